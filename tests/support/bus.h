// A system bus of the test's own, clients of it, and a polkit that says what the test tells it to.
#pragma once

#include <systemd/sd-bus.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/model/unique_fd.h"
#include "tests/support/child.h"
#include "tests/support/daemon.h"

namespace ingero::test {

/// Why tests of the bus cannot run here; empty where they can. For GTEST_SKIP.
std::string why_no_bus();

/// A dbus-daemon with the rules of Debian's system bus and of dbus/io.ingero.Ingero1.conf. DBUS_SYSTEM_BUS_ADDRESS of
/// the test is set to it, so make it before any thread.
class PrivateBus {
  public:
    explicit PrivateBus(bool start_now = true);

    void start();
    void kill();
    Child& process() { return *process_; }
    const std::string& address() const { return address_; }

  private:
    TemporaryDirectory directory_;
    std::string address_;
    std::unique_ptr<Child> process_;
};

/// "busctl --system ARGUMENTS" to its end.
Finished busctl(std::vector<std::string> arguments, const ChildOptions& options = {});
/// Calls a method of ingerod's manager by busctl.
Finished call_manager(std::vector<std::string> method_and_arguments, const ChildOptions& options = {});

/// A connection that reads the signals of a match rule, in the order they came. One thread.
class Subscriber {
  public:
    explicit Subscriber(const std::string& match = "interface='io.ingero.Ingero1'");
    ~Subscriber();
    Subscriber(const Subscriber&) = delete;
    Subscriber& operator=(const Subscriber&) = delete;

    struct Signal {
        std::string member;
        std::string path;
        std::string first;              ///< its first argument, where that is a string or an object's path
        std::vector<uint64_t> numbers;  ///< its arguments of type t, before any of a container type
    };

    /// Reads until a signal for which `last` is true; false where none came in time.
    bool read_until(const std::function<bool(const Signal&)>& last, milliseconds timeout = milliseconds(30'000));
    bool read_until(const std::string& member) {
        return read_until([&](const Signal& signal) { return signal.member == member; });
    }
    const std::vector<Signal>& signals() const { return signals_; }
    size_t count(const std::string& member) const;
    sd_bus* bus() { return bus_; }

  private:
    static int on_signal(sd_bus_message* message, void* data, sd_bus_error* error);

    sd_bus* bus_ = nullptr;
    std::vector<Signal> signals_;
};

/// org.freedesktop.PolicyKit1 on the private bus, in a thread of its own.
class FakePolkit {
  public:
    FakePolkit();
    ~FakePolkit();

    /// Says yes to these actions from now on, and no to others.
    void allow(std::set<std::string> actions);

    struct Question {
        std::string sender;
        std::string action;
        uint32_t flags = 0;
    };
    std::vector<Question> questions() const;

  private:
    static int on_check(sd_bus_message* message, void* data, sd_bus_error* error);
    void serve(sd_bus* bus);

    mutable std::mutex mutex_;
    std::set<std::string> allowed_;
    std::vector<Question> questions_;
    UniqueFd stop_;
    std::thread thread_;
};

}  // namespace ingero::test
