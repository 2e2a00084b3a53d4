// ingeroctl mcp: what an AI client is configured to run. It carries messages between the client, on standard input and
// output, and the daemon; with --db it answers them itself, from a store or trace.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>

#include "core/mcp/message.h"
#include "core/mcp/session.h"
#include "core/query/sources/demos.h"
#include "core/wire/client.h"
#include "ctl/ask/stored.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr std::chrono::seconds connect_timeout{5};
constexpr size_t read_bytes = 64 << 10;
/// What one side has sent and the other has not taken: beyond it the first is not read any more.
constexpr size_t max_pending_bytes = 1 << 20;
/// Ids of a client that asks without waiting: the worker holds it back long before.
constexpr size_t max_outstanding = 100'000;

/// Bytes read, 0 at the end or where it broke; nullopt: none now.
std::optional<size_t> read_some(int fd, std::span<char> buffer) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return std::nullopt;
    return n < 0 ? 0 : static_cast<size_t>(n);
}

bool write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EAGAIN) {
            pollfd wait{fd, POLLOUT, 0};
            poll(&wait, 1, -1);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

/// Which requests have no answer yet, read from both streams as they pass.
class Outstanding {
  public:
    void from_client(std::string_view bytes) {
        requests_.feed(bytes);
        for_each(requests_, [this](const mcp::Message& message) {
            if (message.kind == mcp::Message::Kind::request && ids_.size() < max_outstanding) ids_.insert(message.id);
            // Such a request is not answered.
            if (message.method == "notifications/cancelled" && message.params.contains("requestId"))
                ids_.erase(message.params["requestId"]);
        });
    }
    void from_server(std::string_view bytes) {
        answers_.feed(bytes);
        for_each(answers_, [this](const mcp::Message& message) { ids_.erase(message.id); });
    }
    /// What the server said of the whole session.
    const std::string& last_words() const { return last_words_; }
    const std::set<json>& ids() const { return ids_; }

  private:
    template <class Visit>
    void for_each(mcp::LineReader& reader, const Visit& visit) {
        while (const auto line = reader.next()) {
            mcp::RpcError error;
            auto value = line->too_long ? std::nullopt : mcp::parse_json(line->text, error);
            if (!value) continue;
            if (&reader == &answers_ && value->is_object() && value->value("id", json()).is_null() &&
                value->contains("error"))
                last_words_ = (*value)["error"].value("message", "");
            if (!value->is_array()) value = json::array({std::move(*value)});
            for (const json& one : *value) visit(mcp::to_message(one));
        }
    }

    mcp::LineReader requests_;
    mcp::LineReader answers_;
    std::set<json> ids_;
    std::string last_words_;
};

class Bridge {
  public:
    Bridge(UniqueFd socket, std::string path) : socket_(std::move(socket)), path_(std::move(path)) {}

    int run() {
        while (!client_gone_ && !server_gone_) turn();
        // What it said last is the client's, however it ended.
        if (!client_gone_) write_all(STDOUT_FILENO, to_client_);
        if (client_gone_) return exit_failed;
        return input_ended_ && outstanding_.ids().empty() && to_server_.empty() ? exit_done : lost();
    }

  private:
    void turn() {
        std::array<pollfd, 3> fds = {{{-1, POLLIN, 0}, {socket_.get(), 0, 0}, {-1, POLLOUT, 0}}};
        if (!input_ended_ && to_server_.size() < max_pending_bytes) fds[0].fd = STDIN_FILENO;
        if (to_client_.size() < max_pending_bytes) fds[1].events |= POLLIN;
        if (!to_server_.empty()) fds[1].events |= POLLOUT;
        // Else poll() would report its end again and again while nothing of it can be read.
        if (fds[1].events == 0) fds[1].fd = -1;
        if (!to_client_.empty()) fds[2].fd = STDOUT_FILENO;
        if (poll(fds.data(), fds.size(), -1) < 0) return;
        if (fds[2].revents != 0) give(STDOUT_FILENO, to_client_, client_gone_);
        // Its last words are read before its end is believed.
        if (fds[1].revents & (POLLIN | POLLHUP | POLLERR) && to_client_.size() < max_pending_bytes) read_server();
        if (fds[1].revents & POLLOUT && !server_gone_) give(socket_.get(), to_server_, server_gone_);
        if (fds[0].revents != 0) read_client();
        if (input_ended_ && to_server_.empty()) shutdown(socket_.get(), SHUT_WR);
    }

    void read_client() {
        const auto n = read_some(STDIN_FILENO, buffer_);
        if (!n) return;
        const std::string_view bytes(buffer_.data(), *n);
        input_ended_ = bytes.empty();
        outstanding_.from_client(bytes);
        to_server_ += bytes;
    }

    void read_server() {
        const auto n = read_some(socket_.get(), buffer_);
        if (!n) return;
        const std::string_view bytes(buffer_.data(), *n);
        server_gone_ = bytes.empty();
        outstanding_.from_server(bytes);
        to_client_ += bytes;
    }

    static void give(int fd, std::string& bytes, bool& ret_gone) {
        // One page at a time: a pipe that has room for it takes it without blocking.
        constexpr size_t surely_taken = 4'096;
        const ssize_t n = fd == STDOUT_FILENO ? ::write(fd, bytes.data(), std::min(bytes.size(), surely_taken))
                                              : send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            bytes.erase(0, static_cast<size_t>(n));
        else if (errno != EAGAIN && errno != EINTR)
            ret_gone = true;
    }

    /// Reports each request that will have no answer to the client, and why we leave to whoever started us.
    int lost() {
        const auto again = connect_to_daemon(path_, connect_timeout);
        std::string what = outstanding_.last_words();
        if (what.empty()) what = again ? "ingerod ended the session" : "ingerod no longer answers";
        const Error error{again ? ErrorCode::busy : ErrorCode::not_found, what,
                          again ? "start 'ingeroctl mcp' again, which begins a new session"
                                : "start it with 'systemctl enable --now ingerod', then 'ingeroctl mcp' again"};
        for (const json& id : outstanding_.ids())
            if (!write_all(STDOUT_FILENO,
                           mcp::to_line(mcp::error_message(id, {mcp::RpcCode::server_lost, what + ": " + error.hint}))))
                break;
        return report("mcp", error, again ? exit_failed : exit_not_ready);
    }

    UniqueFd socket_;
    std::string path_;
    Outstanding outstanding_;
    std::string to_server_;
    std::string to_client_;
    bool input_ended_ = false;
    bool client_gone_ = false;
    bool server_gone_ = false;
    std::array<char, read_bytes> buffer_{};
};

int run_bridge(const Options& options) {
    // Beside the control socket, wherever that is.
    const std::string path = std::filesystem::path(options.socket).replace_filename("mcp.sock").string();
    auto socket = connect_to_daemon(path, connect_timeout);
    if (socket) return Bridge(std::move(*socket), path).run();
    const ErrorCode code = socket.error().code;
    const bool absent = code == ErrorCode::not_found || code == ErrorCode::deadline;
    return report("connect", socket.error(), absent ? exit_not_ready : exit_failed);
}

/// A store's bytes are read by a worker in its sandbox, as for every other command.
class ClosedStore final : public mcp::Source {
  public:
    explicit ClosedStore(StoredSource store) : store_(std::move(store)) {}
    Result<json> ask(const std::string& method, json params) override {
        if (method == "demo") return read_explained_demo(params.value("scenario", ""));
        return store_.ask(method, std::move(params));
    }
    bool is_live() const override { return false; }

  private:
    StoredSource store_;
};

int run_stored(const Options& options) {
    auto opened = StoredSource::open(options.db);
    if (!opened) return report("mcp", opened.error(), exit_failed);
    ClosedStore source(std::move(*opened));
    bool input_ended = false, client_gone = false;
    std::array<char, read_bytes> buffer{};
    mcp::McpSession* running = nullptr;
    const auto look = [&](int timeout_ms) {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        if (input_ended || !running->wants_input() || poll(&input, 1, timeout_ms) <= 0) return;
        const auto n = read_some(STDIN_FILENO, buffer);
        if (n) running->feed({buffer.data(), *n});
        input_ended = n && *n == 0;
    };
    mcp::McpSession session(source,
                            {.version = INGERO_VERSION,
                             .write = [&](const std::string& line) { client_gone |= !write_all(STDOUT_FILENO, line); },
                             .look_for_input = [&] { look(0); }});
    running = &session;
    while (!client_gone)
        if (!session.handle_next()) {
            if (input_ended) return exit_done;
            look(-1);
        }
    return exit_failed;
}

int run(const Options& options) {
    signal(SIGPIPE, SIG_IGN);
    return options.db.empty() ? run_bridge(options) : run_stored(options);
}

}  // namespace

void add_mcp(CLI::App& app, Command& command) {
    CLI::App* subcommand =
        app.add_subcommand("mcp", "Serve an AI client the Model Context Protocol on standard input and output");
    add_examples(*subcommand, {{"What an AI client is configured to run", "ingeroctl mcp"},
                               {"The same, from a store", "ingeroctl --db recording mcp"}});
    subcommand->callback([&command] { command = run; });
}

}  // namespace ingero::ctl
