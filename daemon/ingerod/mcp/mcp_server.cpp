#include "daemon/ingerod/mcp/mcp_server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include "core/query/sources/demos.h"
#include "core/wire/child_process.h"
#include "core/wire/rpc.h"
#include "core/wire/worker_protocol.h"
#include "daemon/ingerod/control/peer.h"
#include "daemon/ingerod/loop/log_throttle.h"
#include "daemon/ingerod/workers/turn_queue.h"
#include "daemon/ingerod/workers/worker_process.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr int accepts_per_turn = 16;
constexpr uint64_t accept_pause_us = 1'000'000;
constexpr size_t read_bytes = 16 << 10;
/// Of answers that a worker does not read: it asks one thing after the other, so there is one, or it is not ours.
constexpr size_t max_output_bytes = 8 << 20;
/// What a worker asks is small; it has read foreign bytes, and is not trusted.
constexpr RpcLimits session_limits{.message_bytes = 64 << 10, .depth = 4, .string_bytes = 4 << 10, .elements = 64};

}  // namespace

struct McpServer::Impl {
    struct Session {
        Session(WorkerProcess started, Caller who, uint32_t whose, std::chrono::milliseconds time)
            : process(std::move(started)), caller(who), user(whose), deadline(time) {}

        WorkerProcess process;
        const Caller caller;
        const uint32_t user;  ///< as whom the caller counts
        const std::chrono::milliseconds deadline;
        RpcDecoder decoder{session_limits};
        std::string outgoing;
        bool killed = false;
        std::optional<uint64_t> turn_request;  ///< while it waits for its turn
        bool has_turn = false;
        EventLoop::Source socket_source;
        EventLoop::Source exit_source;
        EventLoop::Source deadline_timer;
    };
    using SessionId = uint64_t;

    Impl(EventLoop& event_loop, Host mcp_host, McpOptions mcp_options)
        : loop(event_loop),
          host(std::move(mcp_host)),
          options(std::move(mcp_options)),
          privileged_group(find_group(options.group)) {}
    ~Impl();

    void wait_for_clients();
    void accept_clients();
    void admit(UniqueFd client);
    uint32_t user_of(const Caller& caller) const;
    Result<void> check_room(uint32_t user) const;
    void refuse(const UniqueFd& client, const Caller& caller, const Error& error);
    void on_socket(SessionId id, uint32_t events);
    bool receive_some(SessionId id, Session& session);
    bool handle(SessionId id, Session& session, const RpcMessage& message);
    void answer(SessionId id, const RpcRequest& request);
    bool ask_turn(SessionId id, Session& session, uint64_t request);
    bool end_turn(Session& session);
    void give_turns();
    void send(SessionId id, uint64_t request, Result<json> result);
    void flush(Session& session);
    void kill(Session& session, const std::string& why);
    void on_exit(SessionId id);

    EventLoop& loop;
    const Host host;
    const McpOptions options;
    const std::optional<gid_t> privileged_group;
    UniqueFd listener;
    std::string path;
    EventLoop::Source source;
    EventLoop::Source retry;
    std::map<SessionId, Session> sessions;
    SessionId last_id = 0;
    TurnQueue<uint32_t, SessionId> waiting;  ///< by user, for their turn
    LogThrottle refused_log;
    LogThrottle ended_log;
    /// Answers of the host that come when this is gone see it false.
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

McpServer::Impl::~Impl() {
    *alive = false;
    // First, so that a client whose session ends finds nobody there to begin another with.
    source.reset();
    listener.reset();
    if (!path.empty()) unlink(path.c_str());
    for (auto& [id, session] : sessions) session.process.kill();
    for (auto& [id, session] : sessions) session.process.reap();
}

void McpServer::Impl::wait_for_clients() {
    source = loop.add_io(listener.get(), EPOLLIN, [this](uint32_t) { accept_clients(); });
}

void McpServer::Impl::accept_clients() {
    for (int i = 0; i < accepts_per_turn; ++i) {
        UniqueFd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (client) {
            admit(std::move(client));
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            // The client stays in the backlog and the socket readable: without a pause the loop would spin.
            spdlog::error("mcp socket: {}", errno_message("accept", errno));
            source.reset();
            retry = loop.add_timer(accept_pause_us, [this] { wait_for_clients(); });
        }
        return;
    }
}

uint32_t McpServer::Impl::user_of(const Caller& caller) const {
    return options.owner_of ? options.owner_of(caller.uid) : caller.uid;
}

Result<void> McpServer::Impl::check_room(uint32_t user) const {
    constexpr const char* hint = "end another, or try again later";
    if (sessions.size() >= options.sessions) return fail(ErrorCode::limit, "ingerod has too many MCP sessions", hint);
    const auto theirs =
        std::count_if(sessions.begin(), sessions.end(), [&](const auto& one) { return one.second.user == user; });
    if (static_cast<unsigned>(theirs) >= options.sessions_per_uid)
        return fail(ErrorCode::limit, "this user has too many MCP sessions", hint);
    return {};
}

/// A line of MCP, so that whatever speaks it can say why.
void McpServer::Impl::refuse(const UniqueFd& client, const Caller& caller, const Error& error) {
    constexpr int server_error = -32000;
    const std::string line = json{{"jsonrpc", "2.0"},
                                  {"id", nullptr},
                                  {"error", {{"code", server_error}, {"message", error.message + ": " + error.hint}}}}
                                 .dump() +
                             "\n";
    [[maybe_unused]] const ssize_t sent = ::send(client.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    const auto more = refused_log.take();
    if (!more) return;
    const std::string text = "mcp socket: refused uid " + std::to_string(caller.uid) + " pid " +
                             std::to_string(caller.pid) + ": " + error.message + std::string(*more);
    if (options.on_refusal) return options.on_refusal(caller, text);
    spdlog::warn("{}", text);
}

void McpServer::Impl::admit(UniqueFd client) {
    const Caller caller = identify_peer(client.get(), privileged_group);
    const uint32_t user = user_of(caller);
    if (const auto room = check_room(user); !room) return refuse(client, caller, room.error());
    const WorkerOptions worker = host.worker_options();
    auto process =
        WorkerProcess::start_session(worker, client.get(), caller.sees_all ? std::nullopt : std::optional(caller.uid));
    if (!process) return refuse(client, caller, process.error());
    const SessionId id = ++last_id;
    Session& session = sessions.try_emplace(id, std::move(*process), caller, user, worker.deadline).first->second;
    session.socket_source =
        loop.add_io(session.process.socket(), EPOLLIN, [this, id](uint32_t events) { on_socket(id, events); });
    // Not by sd_event_add_child(): that asks of the whole daemon that SIGCHLD be blocked.
    session.exit_source = loop.add_io(session.process.pidfd(), EPOLLIN, [this, id](uint32_t) { on_exit(id); });
}

void McpServer::Impl::on_socket(SessionId id, uint32_t events) {
    Session& session = sessions.at(id);
    if (session.killed) return;
    if (events & EPOLLOUT) flush(session);
    // One that closes its end is about to leave, or of no use: its pidfd shows which.
    if (!receive_some(id, session)) session.socket_source.reset();
}

bool McpServer::Impl::receive_some(SessionId id, Session& session) {
    std::array<std::byte, read_bytes> buffer;
    const ssize_t n = session.process.receive(buffer);
    if (n == -EAGAIN || n == -EINTR) return true;
    if (n <= 0) return false;
    session.decoder.feed({buffer.data(), static_cast<size_t>(n)});
    for (;;) {
        const auto message = session.decoder.next();
        if (!message) {
            kill(session, "it sent " + message.error().message);
            return false;
        }
        if (!*message) return true;
        if (!handle(id, session, **message)) {
            kill(session, "it sent an unexpected message");
            return false;
        }
    }
}

bool McpServer::Impl::handle(SessionId id, Session& session, const RpcMessage& message) {
    if (const auto* notification = std::get_if<RpcNotification>(&message)) {
        if (notification->method == session_idle) return end_turn(session);
        return notification->method == worker_ready;
    }
    const auto* request = std::get_if<RpcRequest>(&message);
    if (!request) return false;
    if (request->method == session_turn) return ask_turn(id, session, request->id);
    answer(id, *request);
    return true;
}

bool McpServer::Impl::ask_turn(SessionId id, Session& session, uint64_t request) {
    if (session.has_turn || session.turn_request) return false;
    session.turn_request = request;
    waiting.push(session.user, id);
    give_turns();
    return true;
}

bool McpServer::Impl::end_turn(Session& session) {
    if (!session.has_turn) return false;
    session.has_turn = false;
    session.deadline_timer.reset();
    give_turns();
    return true;
}

void McpServer::Impl::give_turns() {
    const auto taken = [this](const auto& match) {
        return static_cast<unsigned>(std::count_if(sessions.begin(), sessions.end(), [&](const auto& one) {
            return one.second.has_turn && match(one.second);
        }));
    };
    while (taken([](const Session&) { return true; }) < options.turns) {
        const auto user = waiting.next([&](uint32_t candidate) {
            return taken([&](const Session& one) { return one.user == candidate; }) < options.turns_per_uid;
        });
        if (!user) return;
        const SessionId id = *waiting.take(*user);
        Session& session = sessions.at(id);
        session.has_turn = true;
        session.deadline_timer =
            loop.add_timer(static_cast<uint64_t>(std::chrono::microseconds(session.deadline).count()),
                           [this, id] { kill(sessions.at(id), "a question took longer than [workers] deadline"); });
        send(id, *std::exchange(session.turn_request, std::nullopt), json());
    }
}

void McpServer::Impl::answer(SessionId id, const RpcRequest& request) {
    const Caller& caller = sessions.at(id).caller;
    const auto done = [this, id, number = request.id, still = alive](Result<json> result) {
        if (*still) send(id, number, std::move(result));
    };
    if (request.method == "status") return done(host.status(caller));
    if (request.method == "processes") return done(host.processes(caller));
    if (request.method == "check") return host.check(caller, done);
    if (request.method == "commit") return host.commit(caller, [done](json facts) { done(std::move(facts)); });
    // What comes with the package is nobody's in particular.
    if (request.method == "demo") {
        const json& scenario = request.params.contains("scenario") ? request.params["scenario"] : json("");
        return done(read_explained_demo(scenario.is_string() ? scenario.get<std::string>() : ""));
    }
    done(fail(ErrorCode::unknown_method, "ingerod does not answer this question of an MCP session"));
}

void McpServer::Impl::send(SessionId id, uint64_t request, Result<json> result) {
    const auto found = sessions.find(id);
    if (found == sessions.end() || found->second.killed) return;
    Session& session = found->second;
    RpcResponse response;
    response.id = request;
    if (result)
        response.result = std::move(*result);
    else
        response.error = result.error();
    session.outgoing += encode(response);
    if (session.outgoing.size() > max_output_bytes) return kill(session, "it does not read its answers");
    flush(session);
}

void McpServer::Impl::flush(Session& session) {
    while (!session.outgoing.empty()) {
        const ssize_t n = session.process.send(session.outgoing, -1);
        if (n < 0) session.outgoing.clear();  // it died: its pidfd says so
        if (n <= 0) break;
        session.outgoing.erase(0, static_cast<size_t>(n));
    }
    if (session.socket_source.active())
        loop.set_io_events(session.socket_source, session.outgoing.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void McpServer::Impl::kill(Session& session, const std::string& why) {
    if (std::exchange(session.killed, true)) return;
    if (const auto more = ended_log.take())
        spdlog::warn("the worker of an MCP session of uid {} was stopped: {}{}", session.caller.uid, why, *more);
    session.process.kill();
}

void McpServer::Impl::on_exit(SessionId id) {
    Session& session = sessions.at(id);
    const int status = session.process.reap();
    const bool by_itself = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!by_itself && !session.killed)
        if (const auto more = ended_log.take())
            spdlog::warn("the worker of an MCP session of uid {} ended: {}{}", session.caller.uid,
                         describe_wait_status(status), *more);
    sessions.erase(id);
    waiting.remove_if([id](SessionId one) { return one == id; });
    give_turns();
}

McpServer::McpServer(EventLoop& loop, Host host, McpOptions options)
    : impl_(std::make_unique<Impl>(loop, std::move(host), std::move(options))) {}

McpServer::~McpServer() = default;

void McpServer::listen(UniqueFd socket, std::string path) {
    fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    impl_->listener = std::move(socket);
    impl_->path = std::move(path);
    impl_->wait_for_clients();
}

size_t McpServer::sessions() const {
    return impl_->sessions.size();
}

size_t McpServer::waiting() const {
    return impl_->waiting.size();
}

std::vector<int> McpServer::pids() const {
    std::vector<int> pids;
    for (const auto& [id, session] : impl_->sessions) pids.push_back(session.process.pid());
    return pids;
}

}  // namespace ingero
