#include "daemon/ingerod/control/control_server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "core/wire/rpc.h"
#include "daemon/ingerod/control/control_connection.h"
#include "daemon/ingerod/control/listening_socket.h"
#include "daemon/ingerod/control/peer.h"
#include "daemon/ingerod/limits/shares.h"

namespace ingero {

namespace {

constexpr int accepts_per_turn = 16;
constexpr uint64_t accept_pause_us = 1'000'000;

}  // namespace

struct ControlServer::Impl : ControlHost {
    Impl(EventLoop& event_loop, ControlBackend& control_backend, int listening_fd, ControlOptions control_options)
        : loop_(event_loop),
          backend_(control_backend),
          options_(std::move(control_options)),
          fd_(listening_fd),
          privileged_group_(find_group(options_.group)) {
        fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
        wait_for_clients();
    }

    ~Impl() override {
        // Closing calls on_closed(), which must not touch what is being walked over.
        auto connections = std::move(connections_);
        connections_.clear();
        connections.clear();
        listening_.reset();
        ::close(fd_);
        if (!path_.empty()) unlink(path_.c_str());
    }

    EventLoop& loop() override { return loop_; }
    ControlBackend& backend() override { return backend_; }
    const ControlOptions& options() const override { return options_; }

    void on_closed(ControlConnection& connection) override {
        std::erase_if(connections_, [&](const auto& held) { return held.get() == &connection; });
        if (connections_.empty()) sweep_.reset();
    }

    bool reserve_output(const Caller& caller, size_t bytes) override {
        if (!output_.may_take(user_of(caller), bytes)) return false;
        output_.take(user_of(caller), bytes);
        return true;
    }

    void release_output(const Caller& caller, size_t bytes) override { output_.give_back(user_of(caller), bytes); }

    void log_refusal(const Caller& caller, std::string_view reason) override {
        const auto now = ControlConnection::Clock::now();
        if (now < next_log_) {
            ++unlogged_;
            return;
        }
        next_log_ = now + std::chrono::seconds(1);
        const uint64_t unlogged = std::exchange(unlogged_, 0);
        std::string text = "control socket: refused uid " + std::to_string(caller.uid) + " pid " +
                           std::to_string(caller.pid) + ": " + std::string(reason);
        if (unlogged > 0) text += " (and " + std::to_string(unlogged) + " others since the last such line)";
        if (options_.on_refusal) return options_.on_refusal(caller, text);
        spdlog::warn("{}", text);
    }

    void wait_for_clients() {
        listening_ = loop_.add_io(fd_, EPOLLIN, [this](uint32_t) { accept_clients(); });
    }

    void accept_clients() {
        for (int i = 0; i < accepts_per_turn; ++i) {
            const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0) {
                admit(fd);
                continue;
            }
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                // The client stays in the backlog and the socket readable: without a pause the loop would spin.
                spdlog::error("control socket: {}", errno_message("accept", errno));
                listening_.reset();
                retry_ = loop_.add_timer(accept_pause_us, [this] { wait_for_clients(); });
            }
            return;
        }
    }

    uint32_t user_of(const Caller& caller) const {
        return options_.owner_of ? options_.owner_of(caller.uid) : caller.uid;
    }

    /// Of those whose callers do not see every process, or of all.
    Shares held(bool of_all) const {
        Shares shares(of_all ? options_.connections : options_.unprivileged_connections);
        for (const auto& one : connections_)
            if (of_all || !one->caller().sees_all) shares.take(user_of(one->caller()), 1);
        return shares;
    }

    /// False where nobody has so many that they could give one up.
    bool evict_one(const Shares& held, bool of_all, uint32_t for_user) {
        const auto crowd = held.who_gives_way_to(for_user);
        if (!crowd) return false;
        std::shared_ptr<ControlConnection> victim;
        for (const auto& one : connections_) {
            if ((!of_all && one->caller().sees_all) || user_of(one->caller()) != *crowd) continue;
            if (!victim || (one->is_idle() && !victim->is_idle())) victim = one;
        }
        if (!victim) return false;
        victim->evict({ErrorCode::limit,
                       "ingerod has too many control connections: this one is closed for another user",
                       "this user has most of them; connect again later"});
        return true;
    }

    Result<void> make_room(const Caller& caller) {
        constexpr const char* hint = "close one, or try again later";
        const uint32_t user = user_of(caller);
        const Shares all = held(true), strangers = held(false);
        const bool full = all.left() == 0 || (!caller.sees_all && strangers.left() == 0);
        const bool has_share = all.held_by(user) >= options_.connections_per_uid;
        const Shares& pool = caller.sees_all ? all : strangers;
        if (full && (has_share || !evict_one(pool, caller.sees_all, user)))
            return fail(ErrorCode::limit, "ingerod has too many control connections", hint);
        if (has_share) return fail(ErrorCode::limit, "this user has too many control connections", hint);
        return {};
    }

    void admit(int fd) {
        const Caller caller = identify_peer(fd, privileged_group_);
        if (const auto room = make_room(caller); !room) {
            const std::string answer = encode(RpcResponse{0, room.error(), nullptr});
            [[maybe_unused]] const ssize_t sent = send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
            ::close(fd);
            return log_refusal(caller, room.error().message);
        }
        const auto connection = std::make_shared<ControlConnection>(*this, fd, caller);
        connections_.push_back(connection);
        connection->start();
        if (!sweep_.active()) start_sweep();
    }

    void start_sweep() {
        const auto stall_us = static_cast<uint64_t>(std::chrono::microseconds(options_.stall).count());
        const uint64_t period_us = std::clamp<uint64_t>(stall_us / 4, 1'000, 1'000'000);
        const auto sweep = [this] {
            const auto now = ControlConnection::Clock::now();
            const auto held = connections_;  // a stalled connection leaves the list
            for (const auto& connection : held) connection->check_stalls(now);
        };
        sweep_ = loop_.add_periodic(period_us, sweep, period_us / 4);
    }

    EventLoop& loop_;
    ControlBackend& backend_;
    const ControlOptions options_;
    int fd_;
    std::string path_;  ///< where the socket is ours to remove
    const std::optional<gid_t> privileged_group_;
    EventLoop::Source listening_;
    EventLoop::Source retry_;
    EventLoop::Source sweep_;
    std::vector<std::shared_ptr<ControlConnection>> connections_;
    Shares output_{options_.all_output_bytes};
    ControlConnection::Clock::time_point next_log_{};
    uint64_t unlogged_ = 0;
};

Result<std::unique_ptr<ControlServer>> ControlServer::bind(EventLoop& loop, ControlBackend& backend,
                                                           const std::string& path, ControlOptions options) {
    auto fd = listen_at(path);
    if (!fd) return tl::unexpected(fd.error());
    auto server = std::make_unique<ControlServer>(loop, backend, fd->release(), std::move(options));
    server->impl_->path_ = path;
    return server;
}

ControlServer::ControlServer(EventLoop& loop, ControlBackend& backend, int listening_fd, ControlOptions options)
    : impl_(std::make_unique<Impl>(loop, backend, listening_fd, std::move(options))) {}

ControlServer::~ControlServer() = default;

size_t ControlServer::connections() const {
    return impl_->connections_.size();
}

}  // namespace ingero
