#include "daemon/relay/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/unique_fd.h"
#include "core/render/render.h"
#include "core/wire/child_process.h"
#include "core/wire/value.h"
#include "daemon/relay/connection.h"

namespace ingero {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// What runs a driver's library is believed no more than any other program.
constexpr RpcLimits poller_limits{
    .message_bytes = 64 << 10, .depth = 4, .string_bytes = 512, .elements = 512, .keep_invalid_text = false};

/// One kind of process that measures.
class Poller {
  public:
    Poller(std::string name, const RelayOptions& options, Connection& connection)
        : name_(std::move(name)), options_(options), connection_(connection), pause_(options.least_pause) {}

    /// Measures so often from now on; 0: not at all.
    void set_interval(milliseconds interval) {
        if (std::exchange(interval_, interval) == interval) return;
        stop();
        pause_ = options_.least_pause;
        next_start_ = steady_clock::now();
        if (interval_.count() == 0) set_state("off", "");
    }
    void send_state() const {
        if (state_.empty()) return;
        connection_.send_state(name_, {{"kind", "source"}, {"source", name_}, {"state", state_}, {"reason", reason_}});
    }
    void add_to(std::vector<pollfd>& waited) const {
        if (!child_) return;
        waited.push_back({.fd = child_->pidfd(), .events = POLLIN, .revents = 0});
        if (reading_) waited.push_back({.fd = child_->output(), .events = POLLIN, .revents = 0});
    }
    /// When there is something to do without anything happening.
    std::optional<steady_clock::time_point> next_time() const {
        if (child_ && killed_) return std::nullopt;
        if (child_) return deadline_;
        if (interval_.count() == 0) return std::nullopt;
        return next_start_;
    }
    void turn() {
        if (!child_ && interval_.count() != 0 && steady_clock::now() >= next_start_) start();
        if (!child_) return;
        // Asked before: what it said last is still to be read then.
        const bool ended = has_ended();
        read();
        if (ended) return take_end();
        if (killed_ || steady_clock::now() < deadline_) return;
        set_state("hung", "the measuring process reported nothing for too long");
        spdlog::warn("the process that measures {} reports nothing: killing it", name_);
        stop();
    }
    /// It ends by itself with this process; a driver that holds it must not hold this process too.
    bool is_held() const { return child_ && !has_ended(); }
    void stop() {
        if (!child_ || std::exchange(killed_, true)) return;
        child_->kill();
    }

  private:
    void start() {
        std::vector<std::string> command = {"ingero-relay",
                                            "--poll",
                                            name_,
                                            "--interval",
                                            std::to_string(interval_.count()) + "ms",
                                            "--sysfs",
                                            options_.poller.sysfs,
                                            "--parent",
                                            std::to_string(getpid())};
        if (!options_.poller.library.empty()) command.insert(command.end(), {"--library", options_.poller.library});
        const ChildProcess::Options how{.program = options_.program};
        auto child = ChildProcess::start(std::move(command), how);
        if (!child) {
            set_state("failed", child.error().message);
            return start_later();
        }
        child_.emplace(std::move(*child));
        decoder_.emplace(poller_limits);
        killed_ = false;
        reading_ = true;
        had_round_ = false;
        started_ = steady_clock::now();
        deadline_ = started_ + options_.first_patience;
        if (state_.empty() || state_ == "off") set_state("starting", "");
    }
    void start_later() {
        next_start_ = steady_clock::now() + pause_;
        pause_ = std::min(2 * pause_, options_.most_pause);
    }
    bool has_ended() const {
        pollfd one{.fd = child_->pidfd(), .events = POLLIN, .revents = 0};
        return poll(&one, 1, 0) > 0;
    }
    void read() {
        std::string bytes;
        if (reading_ && !child_->read_available(bytes)) reading_ = false;
        if (killed_ || bytes.empty()) return;
        decoder_->feed(std::as_bytes(std::span(bytes)));
        for (;;) {
            const auto message = decoder_->next();
            if (!message) {
                set_state("failed", "the measuring process sent something that is not a message");
                return stop();
            }
            if (!*message) return;
            if ((*message)->is_object()) take(**message);
        }
    }
    void take(const json& message) {
        const std::string kind = text_of(message, "kind");
        if (kind == "round") {
            deadline_ = steady_clock::now() + interval_ + options_.patience;
            // It has held for a while: the next fault is another one.
            if (had_round_ && steady_clock::now() - started_ > options_.most_pause) pause_ = options_.least_pause;
            had_round_ = true;
        } else if (kind == "source") {
            set_state(text_of(message, "state"), text_of(message, "reason"));
        } else if (kind == "inventory") {
            connection_.send_state(name_ + " there are", message);
        } else {
            connection_.send(message);
        }
    }
    static std::string text_of(const json& message, const char* name) {
        const auto found = message.find(name);
        return found != message.end() && found->is_string() ? found->get<std::string>() : "";
    }
    void take_end() {
        const int status = child_->wait();
        const bool by_itself = !killed_;
        child_.reset();
        if (by_itself && WIFSIGNALED(status)) {
            set_state("crashed", "the measuring process " + describe_wait_status(status));
            spdlog::warn("the process that measures {} {}", name_, describe_wait_status(status));
        } else if (by_itself && WEXITSTATUS(status) != poller_absent) {
            set_state("failed", "the measuring process " + describe_wait_status(status));
        }
        killed_ = false;
        start_later();
    }
    void set_state(std::string state, std::string reason) {
        if (state == state_ && reason == reason_) return;
        state_ = std::move(state);
        reason_ = std::move(reason);
        spdlog::info("{}: {}{}{}", name_, escape_text(state_), reason_.empty() ? "" : ": ", escape_text(reason_));
        send_state();
    }

    std::string name_;
    const RelayOptions& options_;
    Connection& connection_;
    milliseconds interval_{0};
    milliseconds pause_;
    std::optional<ChildProcess> child_;
    std::optional<ValueDecoder> decoder_;
    bool killed_ = false;
    bool reading_ = false;
    bool had_round_ = false;
    steady_clock::time_point started_{};
    steady_clock::time_point deadline_{};
    steady_clock::time_point next_start_{};
    std::string state_;
    std::string reason_;
};

int milliseconds_until(steady_clock::time_point then) {
    const auto left = std::chrono::ceil<milliseconds>(then - steady_clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

/// What ingerod wants: how often to measure.
void take_wishes(Connection& connection, std::deque<Poller>& pollers) {
    while (const auto message = connection.next()) {
        if (!message->is_object()) continue;
        const auto wanted = message->find("gpu_poll_ns");
        if (wanted == message->end() || !wanted->is_number_unsigned()) continue;
        constexpr uint64_t most_ms = 3'600'000;
        const auto ms = static_cast<int64_t>(std::min(wanted->get<uint64_t>() / 1'000'000, most_ms));
        for (Poller& poller : pollers) poller.set_interval(milliseconds(ms));
    }
}

}  // namespace

int run_relay(const RelayOptions& options) {
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    const UniqueFd signals(signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals) return 1;

    Connection connection(options.socket);
    std::deque<Poller> pollers;
    for (const char* name : {"gpus", "ports"}) pollers.emplace_back(name, options, connection);
    for (;;) {
        if (connection.try_connect())
            for (const Poller& poller : pollers) poller.send_state();
        take_wishes(connection, pollers);
        std::optional<steady_clock::time_point> next;
        if (!connection.is_open()) {
            next = connection.next_attempt();
            for (Poller& poller : pollers) poller.set_interval(milliseconds(0));
        }
        std::vector<pollfd> waited = {{.fd = signals.get(), .events = POLLIN, .revents = 0}};
        for (Poller& poller : pollers) {
            poller.turn();
            poller.add_to(waited);
            if (const auto time = poller.next_time()) next = std::min(next.value_or(*time), *time);
        }
        connection.flush();
        if (connection.is_open())
            waited.push_back({.fd = connection.fd(), .events = connection.events(), .revents = 0});
        else
            next = std::min(next.value_or(connection.next_attempt()), connection.next_attempt());
        if (poll(waited.data(), waited.size(), next ? milliseconds_until(*next) : -1) < 0 && errno != EINTR) return 1;
        if ((waited.front().revents & POLLIN) != 0) break;
    }
    for (Poller& poller : pollers) poller.stop();
    // One that the driver holds may not end, even when killed: nobody waits for it.
    if (std::any_of(pollers.begin(), pollers.end(), [](const Poller& one) { return one.is_held(); })) _exit(0);
    return 0;
}

}  // namespace ingero
