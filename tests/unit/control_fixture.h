// A control server on its own loop thread with a backend that does as told, and a client that may break every rule.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/wire/client.h"
#include "core/wire/rpc.h"
#include "daemon/ingerod/control/control_server.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero::test {

/// How long a test waits for what must come. Long, since nothing waits for it to pass.
inline constexpr std::chrono::seconds patience{30};

class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string pattern = "/tmp/ingero-test-XXXXXX";
        if (!mkdtemp(pattern.data())) std::abort();
        path_ = pattern;
        // Children under another uid connect to sockets in here.
        std::filesystem::permissions(path_, std::filesystem::perms::all);
    }
    ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

/// Loop thread only, but for wait_for_queries().
class FakeBackend : public ControlBackend {
  public:
    struct Query {
        Caller caller;
        std::string method;
        nlohmann::json params;
        std::function<void(Result<nlohmann::json>)> done;
        /// Half of an answer is sent, and then the worker ends.
        std::function<void()> break_off;
        /// This is sent in place of one, and called an answer.
        std::function<void(std::string)> garble;
    };

    std::string node() const override { return "test-node"; }
    nlohmann::json status(const Caller&) override { return status_answer; }
    nlohmann::json processes(const Caller& caller) override {
        if (!processes_answer.is_null()) return processes_answer;
        nlohmann::json answer = {{"uid", caller.uid}, {"pid", caller.pid}, {"sees_all", caller.sees_all}};
        if (!padding.empty()) answer["padding"] = padding;
        return answer;
    }
    nlohmann::json probes(const Caller&) override { return {{"probes", nlohmann::json::array()}}; }
    /// Once its server is gone, or does not wait for one any more.
    void join_writers() {
        for (std::thread& writer : writers_) writer.join();
        writers_.clear();
    }

    /// As a worker does, on the connection: an answer that is an error too, but for one that nobody could give.
    void hand_over(const Caller& caller, const std::string& method, const nlohmann::json& params,
                   HandedOver client) override {
        const auto connection = std::make_shared<UniqueFd>(fcntl(client.connection(), F_DUPFD_CLOEXEC, 0));
        const auto write = [this, connection](std::string bytes, std::function<void(bool)> then) {
            writers_.emplace_back([this, connection, bytes = std::move(bytes), then = std::move(then)] {
                const bool written = write_all(connection->get(), bytes);
                connection->reset();
                on_loop([then, written] { then(written); });
            });
        };
        const auto done = [client, write](Result<nlohmann::json> answered) {
            if (!answered && answered.error().code == ErrorCode::internal)
                return client.done(tl::unexpected(answered.error()));
            RpcResponse response{client.request, {}, {}};
            if (answered)
                response.result = std::move(*answered);
            else
                response.error = answered.error();
            client.begins();
            write(encode(response), [client](bool written) {
                client.done(written ? Result<void>() : fail(ErrorCode::bad_request, "the client has hung up"));
            });
        };
        const auto break_off = [client, write] {
            client.begins();
            const std::string bytes = encode(RpcResponse{client.request, {}, {{"text", std::string(1'000, 'x')}}});
            write(bytes.substr(0, 500), [client](bool) { client.done(fail(ErrorCode::internal, "it \x1b[31mended")); });
        };
        const auto garble = [client, write](std::string bytes) {
            client.begins();
            write(std::move(bytes), [client](bool) { client.done({}); });
        };
        keep(caller, method, params, done, break_off, garble);
    }
    void check(const Caller& caller, bool probe, std::function<void(Result<nlohmann::json>)> done) override {
        keep(caller, "check", probe ? nlohmann::json{{"probe", true}} : nlohmann::json::object(), std::move(done), {},
             {});
    }

    /// Writes "copy" to the file.
    void snapshot(UniqueFd file, std::function<bool()> wanted,
                  std::function<void(Result<nlohmann::json>)> done) override {
        if (!wanted()) return;
        const ssize_t written = pwrite(file.get(), "copy", 4, 0);
        done(nlohmann::json{{"bytes", written}});
    }

    /// Gives the chunks of `trace_chunks` while there are any.
    Result<std::unique_ptr<LiveStream>> trace(const Caller&, const nlohmann::json& params,
                                              std::function<void()> on_ready) override {
        if (trace_error) return tl::unexpected(*trace_error);
        struct Chunks : LiveStream {
            explicit Chunks(FakeBackend& backend) : backend(backend) { ++backend.traces; }
            ~Chunks() override { --backend.traces; }
            std::optional<nlohmann::json> next() override {
                if (backend.trace_chunks.empty()) return std::nullopt;
                auto chunk = std::move(backend.trace_chunks.front());
                backend.trace_chunks.pop_front();
                return chunk;
            }
            FakeBackend& backend;
        };
        trace_params = params;
        trace_ready = std::move(on_ready);
        return std::make_unique<Chunks>(*this);
    }

    /// The same.
    Result<std::unique_ptr<LiveStream>> monitor(const Caller& caller, std::function<void()> on_ready) override {
        return trace(caller, nlohmann::json::object(), std::move(on_ready));
    }

    Result<std::unique_ptr<FootprintRecording>> footprint(const Caller&, uint32_t pid) override {
        if (footprint_error) return tl::unexpected(*footprint_error);
        struct Recorded : FootprintRecording {
            Recorded(FakeBackend& backend, uint32_t pid) : backend(backend), pid(pid) { ++backend.footprints; }
            ~Recorded() override { --backend.footprints; }
            bool has_ended() const override { return backend.footprint_has_ended; }
            nlohmann::json finish() override { return {{"pid", pid}}; }
            FakeBackend& backend;
            uint32_t pid;
        };
        return std::make_unique<Recorded>(*this, pid);
    }

    Result<nlohmann::json> reload() override {
        ++reloads;
        return reload_answer;
    }

    bool wait_for_queries(size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [&] { return queries.size() >= count; });
    }

    nlohmann::json status_answer = {{"state", "tracing"}};
    nlohmann::json processes_answer;   ///< null: who asked
    std::vector<std::string> padding;  ///< of answers to processes
    /// Answers at once; where there is none, queries are kept.
    std::function<Result<nlohmann::json>(const std::string&, const nlohmann::json&)> answer;
    std::vector<Query> queries;
    std::deque<nlohmann::json> trace_chunks;
    std::optional<Error> trace_error;
    nlohmann::json trace_params;
    std::function<void()> trace_ready;
    int traces = 0;  ///< that run
    std::optional<Error> footprint_error;
    bool footprint_has_ended = false;
    int footprints = 0;  ///< that are recorded
    unsigned reloads = 0;
    Result<nlohmann::json> reload_answer = nlohmann::json{{"changed", nlohmann::json::array()}};

    /// Runs on the loop thread, later. For a backend that lets others write.
    std::function<void(std::function<void()>)> on_loop;

  private:
    void keep(const Caller& caller, const std::string& method, const nlohmann::json& params,
              std::function<void(Result<nlohmann::json>)> done, std::function<void()> break_off,
              std::function<void(std::string)> garble) {
        if (answer) return done(answer(method, params));
        const std::lock_guard lock(mutex_);
        queries.push_back({caller, method, params, std::move(done), std::move(break_off), std::move(garble)});
        changed_.notify_all();
    }

    static bool write_all(int fd, std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN) return false;
            if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
            pollfd room{fd, POLLOUT, 0};
            if (sent < 0) poll(&room, 1, -1);
        }
        return true;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::thread> writers_;
};

class LoopThread {
  public:
    explicit LoopThread(ControlOptions options = {}, std::string path = "") {
        path_ = path.empty() ? directory_.path() + "/control.sock" : std::move(path);
        std::promise<void> ready;
        thread_ = std::thread([this, &ready, options] { run(options, ready); });
        ready.get_future().get();
    }
    ~LoopThread() {
        on_loop([this] { loop_->exit(0); });
        thread_.join();
        backend_.join_writers();
        ::close(wake_);
    }

    /// Runs on the loop thread and waits for it.
    template <class F>
    std::invoke_result_t<F&> on_loop(F&& work) {
        const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<F&>()>>(std::forward<F>(work));
        auto result = task->get_future();
        post([task] { (*task)(); });
        return result.get();
    }

    bool wait_for_connections(size_t count) {
        return wait_until([&] { return server_->connections() == count; });
    }
    /// Asks again and again on the loop thread; each time is a turn of the loop.
    template <class F>
    bool wait_until(F&& condition) {
        const auto give_up = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < give_up)
            if (on_loop(condition)) return true;
        return false;
    }

    using Answer = std::function<Result<nlohmann::json>(const std::string& method, const nlohmann::json& params)>;

    void answer_with(Answer answer) {
        on_loop([&] { backend_.answer = std::move(answer); });
    }

    const std::string& path() const { return path_; }
    FakeBackend& backend() { return backend_; }
    std::unique_ptr<ControlServer>& server() { return server_; }

  private:
    void post(std::function<void()> task) {
        {
            const std::lock_guard lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        const uint64_t one = 1;
        if (write(wake_, &one, sizeof(one)) != sizeof(one)) std::abort();
    }

    void run(const ControlOptions& options, std::promise<void>& ready) {
        EventLoop loop;
        loop_ = &loop;
        const auto source = loop.add_io(wake_, EPOLLIN, [this](uint32_t) { run_tasks(); });
        backend_.on_loop = [this](std::function<void()> work) { post(std::move(work)); };
        auto server = ControlServer::bind(loop, backend_, path_, options);
        if (!server) std::abort();
        server_ = std::move(*server);
        ready.set_value();
        loop.run();
        server_.reset();
    }

    void run_tasks() {
        uint64_t count = 0;
        if (read(wake_, &count, sizeof(count)) != sizeof(count)) return;
        std::vector<std::function<void()>> tasks;
        {
            const std::lock_guard lock(mutex_);
            tasks.swap(tasks_);
        }
        for (const auto& task : tasks) task();
    }

    TemporaryDirectory directory_;
    std::string path_;
    FakeBackend backend_;
    int wake_ = eventfd(0, EFD_CLOEXEC);
    std::mutex mutex_;
    std::vector<std::function<void()>> tasks_;
    EventLoop* loop_ = nullptr;
    std::unique_ptr<ControlServer> server_;
    std::thread thread_;
};

inline int connect_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    ::close(fd);
    return -1;
}

/// Sends what it is told and shows what comes back.
class RawClient {
  public:
    explicit RawClient(const std::string& path) : fd_(connect_to(path)) {}
    explicit RawClient(LoopThread& server) : RawClient(server.path()) {}
    ~RawClient() { close(); }
    RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), decoder_(std::move(other.decoder_)) {}

    /// False where the server has closed the connection.
    bool send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0) return false;
            bytes.remove_prefix(static_cast<size_t>(sent));
        }
        return true;
    }
    void request(uint64_t id, const std::string& method, nlohmann::json params = nlohmann::json::object()) {
        send(encode(RpcRequest{id, method, std::move(params)}));
    }
    /// The next message, where it is a notification.
    std::optional<RpcNotification> notification() {
        auto next = message();
        auto* one = next ? std::get_if<RpcNotification>(&*next) : nullptr;
        return one ? std::optional(std::move(*one)) : std::nullopt;
    }
    bool hello() {
        request(1, "hello", {{"version", control_protocol_version}, {"client", "test"}});
        const auto answer = response();
        return answer && !answer->error;
    }

    /// nullopt: the connection ended.
    std::optional<RpcMessage> message() {
        for (;;) {
            auto next = decoder_.next();
            if (!next) return std::nullopt;
            if (*next) return std::move(**next);
            std::vector<std::byte> buffer(64 << 10);
            const ssize_t size = wait_for(POLLIN) ? recv(fd_, buffer.data(), buffer.size(), 0) : 0;
            if (size <= 0) return std::nullopt;
            decoder_.feed(std::span(buffer).first(static_cast<size_t>(size)));
        }
    }
    std::optional<RpcResponse> response() {
        for (auto next = message(); next; next = message())
            if (auto* found = std::get_if<RpcResponse>(&*next)) return std::move(*found);
        return std::nullopt;
    }
    /// The error of the next response; a code no server sends where there is none.
    std::string error_code() {
        const auto next = response();
        return next && next->error ? std::string(to_string(next->error->code)) : "no error";
    }
    /// The server has closed the connection and sent nothing more.
    bool ended() { return !message().has_value() && wait_for(POLLHUP); }

    bool wait_for(short events) {
        pollfd poll_fd{fd_, events, 0};
        return poll(&poll_fd, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) > 0;
    }
    void finish_sending() { shutdown(fd_, SHUT_WR); }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    int fd() const { return fd_; }

  private:
    int fd_;
    RpcDecoder decoder_{answer_limits};
};

}  // namespace ingero::test
