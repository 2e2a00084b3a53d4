#include "tests/support/bus.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string_view>

#include "test_paths.h"

namespace ingero::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* manager_path = "/io/ingero/Ingero1";
constexpr const char* bus_name = "io.ingero.Ingero1";

/// The default policy of /usr/share/dbus-1/system.conf, and what polkit's own file adds to it.
constexpr const char* bus_rules = R"(
  <type>system</type>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.PolicyKit1"/>
  </policy>
)";

std::string bus_config(const std::string& address) {
    const std::string uid = std::to_string(geteuid());
    return "<busconfig>" + std::string(bus_rules) + "<listen>" + address + "</listen><include>" +
           std::string(DBUS_DIRECTORY) + "/io.ingero.Ingero1.conf</include><policy user=\"" + uid +
           "\"><allow own=\"org.freedesktop.PolicyKit1\"/><allow own=\"io.ingero.Ingero1\"/></policy></busconfig>";
}

bool wait_readable(sd_bus* bus, int other_fd, Clock::time_point until) {
    pollfd fds[] = {{sd_bus_get_fd(bus), static_cast<short>(sd_bus_get_events(bus)), 0}, {other_fd, POLLIN, 0}};
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    return poll(fds, 2, static_cast<int>(std::max<long>(left, 0))) > 0 && fds[1].revents == 0;
}

}  // namespace

std::string why_no_bus() {
    for (const char* program : {"dbus-daemon", "busctl"})
        if (run({"/bin/sh", "-c", std::string("command -v ") + program}).status != 0)
            return std::string("there is no ") + program;
    return {};
}

PrivateBus::PrivateBus(bool start_now) : address_("unix:path=" + directory_ / "bus") {
    std::ofstream(directory_ / "bus.conf") << bus_config(address_);
    setenv("DBUS_SYSTEM_BUS_ADDRESS", address_.c_str(), 1);
    if (start_now) start();
}

void PrivateBus::start() {
    unlink((directory_ / "bus").c_str());
    process_ = std::make_unique<Child>(std::vector<std::string>{
        "dbus-daemon", "--config-file=" + directory_ / "bus.conf", "--nofork", "--print-address=1"});
    if (!process_->read_line()) ADD_FAILURE() << "dbus-daemon did not get ready: " << process_->errors();
}

void PrivateBus::kill() {
    process_->signal(SIGKILL);
    process_->wait();
}

Finished busctl(std::vector<std::string> arguments, const ChildOptions& options) {
    arguments.insert(arguments.begin(), {"busctl", "--system"});
    return run(arguments, options);
}

Finished call_manager(std::vector<std::string> method_and_arguments, const ChildOptions& options) {
    method_and_arguments.insert(method_and_arguments.begin(), {"call", bus_name, manager_path, bus_name});
    return busctl(std::move(method_and_arguments), options);
}

Subscriber::Subscriber(const std::string& match) {
    if (sd_bus_open_system(&bus_) < 0) abort();
    if (sd_bus_add_match(bus_, nullptr, ("type='signal'," + match).c_str(), on_signal, this) < 0) abort();
}

Subscriber::~Subscriber() {
    sd_bus_close(bus_);
    sd_bus_unref(bus_);
}

int Subscriber::on_signal(sd_bus_message* message, void* data, sd_bus_error*) {
    auto* self = static_cast<Subscriber*>(data);
    Signal signal{sd_bus_message_get_member(message), sd_bus_message_get_path(message), {}, {}};
    char type = 0;
    union {
        const char* text;
        uint64_t number;
        double real;
    } value{};
    for (bool is_first = true; sd_bus_message_peek_type(message, &type, nullptr) > 0; is_first = false) {
        if (std::string_view("sotd").find(type) == std::string_view::npos) break;
        if (sd_bus_message_read_basic(message, type, &value) <= 0) break;
        if (is_first && (type == 's' || type == 'o')) signal.first = value.text;
        if (type == 't') signal.numbers.push_back(value.number);
    }
    self->signals_.push_back(std::move(signal));
    return 0;
}

bool Subscriber::read_until(const std::function<bool(const Signal&)>& last, milliseconds timeout) {
    const auto until = Clock::now() + timeout;
    for (;;) {
        const size_t before = signals_.size();
        const int result = sd_bus_process(bus_, nullptr);
        if (result < 0) return false;
        for (size_t i = before; i < signals_.size(); ++i)
            if (last(signals_[i])) return true;
        if (result > 0) continue;
        if (Clock::now() >= until) return false;
        wait_readable(bus_, -1, until);
    }
}

size_t Subscriber::count(const std::string& member) const {
    return static_cast<size_t>(
        std::count_if(signals_.begin(), signals_.end(), [&](const Signal& signal) { return signal.member == member; }));
}

FakePolkit::FakePolkit() : stop_(eventfd(0, EFD_CLOEXEC)) {
    sd_bus* bus = nullptr;
    static const sd_bus_vtable table[] = {SD_BUS_VTABLE_START(0),
                                          SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})",
                                                        FakePolkit::on_check, SD_BUS_VTABLE_UNPRIVILEGED),
                                          SD_BUS_VTABLE_END};
    if (sd_bus_open_system(&bus) < 0 ||
        sd_bus_add_object_vtable(bus, nullptr, "/org/freedesktop/PolicyKit1/Authority",
                                 "org.freedesktop.PolicyKit1.Authority", table, this) < 0 ||
        sd_bus_request_name(bus, "org.freedesktop.PolicyKit1", 0) < 0)
        abort();
    thread_ = std::thread([this, bus] { serve(bus); });
}

FakePolkit::~FakePolkit() {
    const uint64_t one = 1;
    if (write(stop_.get(), &one, sizeof(one)) != sizeof(one)) abort();
    thread_.join();
}

void FakePolkit::serve(sd_bus* bus) {
    constexpr std::chrono::hours never{1};
    for (int result = 1; result >= 0;) {
        result = sd_bus_process(bus, nullptr);
        if (result == 0 && !wait_readable(bus, stop_.get(), Clock::now() + never)) break;
    }
    sd_bus_flush_close_unref(bus);
}

int FakePolkit::on_check(sd_bus_message* message, void* data, sd_bus_error*) {
    auto* self = static_cast<FakePolkit*>(data);
    const char* kind = nullptr;
    const char* sender = nullptr;
    const char* action = nullptr;
    uint32_t flags = 0;
    if (sd_bus_message_enter_container(message, 'r', "sa{sv}") < 0 || sd_bus_message_read(message, "s", &kind) < 0 ||
        sd_bus_message_read(message, "a{sv}", 1, nullptr, "s", &sender) < 0)
        return -EINVAL;
    (void)kind;
    if (sd_bus_message_exit_container(message) < 0 || sd_bus_message_read(message, "s", &action) < 0 ||
        sd_bus_message_skip(message, "a{ss}") < 0 || sd_bus_message_read(message, "u", &flags) < 0)
        return -EINVAL;
    const std::lock_guard lock(self->mutex_);
    self->questions_.push_back({sender, action, flags});
    return sd_bus_reply_method_return(message, "(bba{ss})", self->allowed_.contains(action), 0, 0);
}

void FakePolkit::allow(std::set<std::string> actions) {
    const std::lock_guard lock(mutex_);
    allowed_ = std::move(actions);
}

std::vector<FakePolkit::Question> FakePolkit::questions() const {
    const std::lock_guard lock(mutex_);
    return questions_;
}

}  // namespace ingero::test
