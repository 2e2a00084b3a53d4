#include "daemon/ingerod/bus/bus_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/model/time.h"

namespace ingero {

namespace {

/// For one call to the bus itself while connecting, and for its greeting.
constexpr std::chrono::seconds answer_time{5};
/// A bus that reads nothing for so long is given up.
constexpr uint64_t stall_us = 30'000'000;
/// Of one turn of the loop.
constexpr uint64_t turn_us = 2'000;

uint64_t now_us() {
    return monotonic_now_ns() / 1'000;
}

/// Greets the bus over a connection that can be let go of at any time. A bus that is there and does not answer would
/// hold sdbus-c++, and with it the end of the daemon, for minutes. Empty: it answers.
std::string why_silent(int abort_fd) {
    sd_bus* bus = nullptr;
    int result = sd_bus_open_system(&bus);
    const uint64_t until_us = now_us() + std::chrono::microseconds(answer_time).count();
    while (result >= 0 && (result = sd_bus_is_ready(bus)) == 0) {
        if ((result = sd_bus_process(bus, nullptr)) != 0) continue;
        const uint64_t now = now_us();
        pollfd fds[] = {{sd_bus_get_fd(bus), static_cast<short>(sd_bus_get_events(bus)), 0}, {abort_fd, POLLIN, 0}};
        const int left_ms = now < until_us ? static_cast<int>((until_us - now) / 1'000) + 1 : 0;
        const int ready = poll(fds, 2, left_ms);
        if (ready == 0) result = -ETIMEDOUT;
        if (fds[1].revents != 0) result = -ECANCELED;
    }
    sd_bus_close(bus);
    sd_bus_unref(bus);
    return result < 0 ? std::strerror(-result) : "";
}

}  // namespace

/// Written by its thread until `done` is signalled, read by the loop once the thread has been joined.
struct BusConnection::Attempt {
    UniqueFd done{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    UniqueFd abort{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::unique_ptr<sdbus::IConnection> bus;
    std::string error;
    std::thread thread;

    ~Attempt() {
        if (!thread.joinable()) return;
        signal(abort);
        thread.join();
    }

    static void signal(const UniqueFd& fd) {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(fd.get(), &one, sizeof(one));
    }

    void run(const std::string& name) {
        try {
            error = why_silent(abort.get());
            if (error.empty()) {
                bus = sdbus::createSystemBusConnection();
                bus->setMethodCallTimeout(answer_time);
                bus->requestName(bus::ServiceName(name));
            }
        } catch (const sdbus::Error& failure) {
            const bool taken = failure.getName() == SD_BUS_ERROR_FILE_EXISTS;
            error = taken ? "the name " + name + " is taken; is another ingerod running?" : failure.getMessage();
            bus.reset();
        } catch (const std::exception& failure) {
            error = failure.what();
            bus.reset();
        }
        signal(done);
    }
};

BusConnection::BusConnection(EventLoop& loop, std::string name, std::chrono::milliseconds retry, Callbacks callbacks)
    : loop_(loop), name_(std::move(name)), retry_(retry), callbacks_(std::move(callbacks)) {
    connect();
}

BusConnection::~BusConnection() {
    close();
}

void BusConnection::connect() {
    attempt_ = std::make_unique<Attempt>();
    try {
        attempt_->thread = std::thread([attempt = attempt_.get(), name = name_] { attempt->run(name); });
    } catch (const std::system_error& error) {
        attempt_.reset();
        return retry_later(std::string("cannot start a thread: ") + error.what());
    }
    attempt_done_ = loop_.add_io(attempt_->done.get(), EPOLLIN, [this](uint32_t) { on_attempt_done(); });
}

void BusConnection::on_attempt_done() {
    attempt_->thread.join();
    attempt_done_.reset();
    const auto attempt = std::move(attempt_);
    if (!attempt->bus) return retry_later(attempt->error);
    bus_ = std::move(attempt->bus);
    spdlog::info("D-Bus: connected to the system bus as {}", name_);
    logged_.clear();
    try {
        callbacks_.connected();
    } catch (const std::exception& error) {
        fail(error.what());
    }
}

void BusConnection::retry_later(const std::string& why) {
    if (why != std::exchange(logged_, why))
        spdlog::warn("D-Bus: not connected to the system bus: {}; trying again every {} ms", why, retry_.count());
    const auto wait_us = static_cast<uint64_t>(std::chrono::microseconds(retry_).count());
    retry_timer_ = loop_.add_timer(
        wait_us, [this] { connect(); }, wait_us / 4);
}

void BusConnection::begin() {
    alarm_ = loop_.add_alarm([this] { process(); });
    // A descriptor of our own: sd-bus closes its own one when it finds the bus gone, under the loop's feet.
    io_fd_.reset(fcntl(bus_->getEventLoopPollData().fd, F_DUPFD_CLOEXEC, 3));
    io_ = loop_.add_io(io_fd_.get(), EPOLLIN, [this](uint32_t) { process(); });
    loop_.set_prepare(io_, [this] { prepare(); });
}

bool BusConnection::output_waits() {
    if (!bus_ || failure_.active()) return true;
    try {
        return (bus_->getEventLoopPollData().events & POLLOUT) != 0;
    } catch (const sdbus::Error& error) {
        fail(error.getMessage());
        return true;
    }
}

void BusConnection::prepare() {
    if (!bus_ || failure_.active()) return loop_.set_io_events(io_, 0);
    const bool waited = waits_for_output_;
    try {
        const auto poll_data = bus_->getEventLoopPollData();
        waits_for_output_ = (poll_data.events & POLLOUT) != 0;
        if (waits_for_output_ && !waited) stalled_at_us_ = now_us() + stall_us;
        // While output waits, requests are not read either: their answers would only pile up.
        loop_.set_io_events(io_, waits_for_output_ ? EPOLLOUT : EPOLLIN);
        loop_.set_alarm(alarm_, waits_for_output_ ? stalled_at_us_ : bus::due_us(poll_data));
    } catch (const sdbus::Error& error) {
        fail(error.getMessage());
    }
}

void BusConnection::process() {
    if (!bus_ || failure_.active()) return;
    const uint64_t begun_us = now_us();
    if (waits_for_output_ && begun_us >= stalled_at_us_) return fail("the bus does not read what is sent to it");
    const bool waited = waits_for_output_;
    try {
        while (bus::process_one(*bus_) && !output_waits() && now_us() - begun_us < turn_us) continue;
    } catch (const sdbus::Error& error) {
        return fail(error.getMessage());
    }
    if (!waited) return;
    stalled_at_us_ = now_us() + stall_us;  // it has read something
    if (!output_waits()) callbacks_.drained();
}

void BusConnection::fail(const std::string& why) {
    if (!bus_ || failure_.active()) return;
    // Later: what is on the stack now may be a callback of the bus.
    failure_ = loop_.defer([this, why] {
        close();
        retry_later("the connection is lost: " + why);
    });
}

void BusConnection::close() {
    failure_.reset();
    retry_timer_.reset();
    attempt_done_.reset();
    attempt_.reset();
    io_.reset();
    io_fd_.reset();
    alarm_.reset();
    waits_for_output_ = false;
    if (!bus_) return;
    callbacks_.lost();
    try {
        // Closing flushes, and would wait for a bus that does not read.
        const auto poll_data = bus_->getEventLoopPollData();
        if ((poll_data.events & POLLOUT) != 0) shutdown(poll_data.fd, SHUT_RDWR);
    } catch (const sdbus::Error&) {  // it is closed already
    }
    bus_.reset();
}

}  // namespace ingero
