// ingeroctl monitor: what ingerod signals on the bus, or sends on its control socket, as it comes.

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/model/time.h"
#include "core/render/table.h"
#include "core/wire/client.h"
#include "ctl/command.h"
#include "ctl/help.h"
#include "dbus/manager_proxy.h"
#include "dbus/sdbus.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr const char* bus_name = "io.ingero.Ingero1";
constexpr const char* manager_path = "/io/ingero/Ingero1";
constexpr int retry_ms = 1'000;
constexpr uint64_t ns_per_us = 1'000;

using VariantMap = std::map<std::string, sdbus::Variant>;

struct MonitorOptions {
    uint64_t count = 0;  ///< 0: without end
};

void say(const std::string& what) {
    std::fprintf(stderr, "ingeroctl: monitor: %s\n", escape_text(what).c_str());
}

template <class T>
bool read_as(const sdbus::Variant& value, json& ret_json) {
    if (!value.containsValueOfType<T>()) return false;
    ret_json = value.get<T>();
    return true;
}

json to_json(const VariantMap& map) {
    json object = json::object();
    for (const auto& [key, value] : map) {
        json& member = object[key];
        read_as<std::string>(value, member) || read_as<bool>(value, member) || read_as<uint64_t>(value, member) ||
            read_as<int64_t>(value, member) || read_as<double>(value, member) || read_as<uint32_t>(value, member);
    }
    return object;
}

/// "2026-11-20T14:32:05.123+01:00  incident-opened     high    cpu-contention: lost 1.2 s to python (4711)".
std::string text_line(const json& event) {
    const auto text = [&](const char* key) {
        return event[key].is_string() ? escape_text(event[key].get<std::string>()) : "-";
    };
    const auto duration = [&](const char* key) {
        return event[key].is_number_unsigned() ? format_duration(event[key].get<uint64_t>()) : "-";
    };
    const std::string name = text("event");
    std::string what = text("id");
    if (name == "incident-opened")
        what = text("kind") + ": " + text("summary") + " (" + what + ")";
    else if (name == "incident-updated")
        what += ": lost " + duration("lost_ns") + ", " +
                (event["explained_fraction"].is_number() ? format_percent(event["explained_fraction"]) : "-") +
                " explained";
    else if (name == "incident-closed")
        what += ": lost " + duration("lost_ns") + " in all";
    else if (name == "straggler-detected")
        what = text("subject") + " (" + text("scope") + "): late by " + duration("lateness_ns") + " (" + what + ")";
    else if (name == "events-lost" && event["events_lost"].is_number_unsigned())
        what = format_count(event["events_lost"].get<uint64_t>()) + " events lost so far";
    const auto padded = [](std::string cell, size_t width) {
        cell.resize(std::max(cell.size(), width), ' ');
        return cell;
    };
    return format_time(event["time_ns"].get<uint64_t>()) + "  " + padded(name, 18) + "  " +
           padded(text("severity"), 6) + "  " + what + "\n";
}

class Printer {
  public:
    Printer(bool as_json, uint64_t count) : as_json_(as_json), left_(count) {}

    /// A line with the fields given; those that the event does not have are null.
    void print(const std::string& name, json fields, const std::optional<std::string>& node) {
        json event = {{"schema", "ingero/monitor/1"},
                      {"node", node ? json(*node) : json()},
                      {"event", name},
                      {"time_ns", ClockTriple::now().realtime_ns}};
        for (const char* key :
             {"id", "kind", "severity", "summary", "object", "lost_ns", "explained_fraction", "at_ns", "scope",
              "subject", "lateness_ns", "threshold_ns", "since_ns", "details", "events_lost"})
            event[key] = fields.contains(key) ? std::move(fields[key]) : json();
        const std::string line =
            as_json_ ? event.dump(-1, ' ', true, json::error_handler_t::replace) + "\n" : text_line(event);
        const bool written =
            std::fwrite(line.data(), 1, line.size(), stdout) == line.size() && std::fflush(stdout) == 0;
        if (!written || (left_ != 0 && --left_ == 0)) finished_ = true;
    }
    bool finished() const { return finished_; }

  private:
    const bool as_json_;
    uint64_t left_;
    bool finished_ = false;
};

/// One connection's life. Signals count only where the owner of ingerod's name has sent them: anyone may send a signal
/// of that interface to anyone.
class Watcher final : public sdbus::ProxyInterfaces<io::ingero::Ingero1_proxy> {
  public:
    Watcher(sdbus::IConnection& bus, Printer& printer)
        : ProxyInterfaces(bus, bus::ServiceName(bus_name), sdbus::ObjectPath(manager_path)),
          printer_(printer),
          driver_(sdbus::createProxy(bus, bus::ServiceName("org.freedesktop.DBus"),
                                     sdbus::ObjectPath("/org/freedesktop/DBus"))) {
        registerProxy();
        driver_->uponSignal("NameOwnerChanged")
            .onInterface("org.freedesktop.DBus")
            .call([this](const std::string& name, const std::string&, const std::string& owner) {
                if (name == bus_name) on_owner(owner);
            });
        bus::finish(*driver_);
        std::string owner;
        try {
            driver_->callMethod("GetNameOwner")
                .onInterface("org.freedesktop.DBus")
                .withArguments(std::string(bus_name))
                .storeResultsTo(owner);
        } catch (const sdbus::Error& error) {
            if (error.getName() != "org.freedesktop.DBus.Error.NameHasNoOwner") throw;
        }
        on_owner(owner);
    }
    ~Watcher() { unregisterProxy(); }

  private:
    void on_owner(const std::string& owner) {
        owner_ = owner;
        node_.reset();
        if (owner.empty()) return say("ingerod is not running on the bus; waiting for it");
        say("ingerod is on the bus");
        getProxy()
            .callMethodAsync("Get")
            .onInterface("org.freedesktop.DBus.Properties")
            .withArguments(std::string(bus_name), std::string("Node"))
            .uponReplyInvoke([this](bus::ReplyError error, const sdbus::Variant& node) {
                if (!error && node.containsValueOfType<std::string>()) node_ = node.get<std::string>();
            });
    }

    void print(const char* name, json fields) {
        if (bus::current_message(getProxy()).getSender() != owner_ || printer_.finished()) return;
        printer_.print(name, std::move(fields), node_);
    }

    void onIncidentOpened(const std::string& id, const std::string& kind, const std::string& severity,
                          const std::string& summary, const sdbus::ObjectPath& incident) override {
        print("incident-opened", {{"id", id},
                                  {"kind", kind},
                                  {"severity", severity},
                                  {"summary", summary},
                                  {"object", std::string(incident)}});
    }
    void onIncidentUpdated(const std::string& id, const std::string& severity, const uint64_t& lost_usec,
                           const double& explained) override {
        print("incident-updated", {{"id", id},
                                   {"severity", severity},
                                   {"lost_ns", lost_usec * ns_per_us},
                                   {"explained_fraction", explained}});
    }
    void onIncidentClosed(const std::string& id, const std::string& severity, const uint64_t& lost_usec,
                          const uint64_t& at_usec) override {
        print("incident-closed",
              {{"id", id}, {"severity", severity}, {"lost_ns", lost_usec * ns_per_us}, {"at_ns", at_usec * ns_per_us}});
    }
    void onStragglerDetected(const std::string& id, const std::string& scope, const std::string& subject,
                             const uint64_t& lateness_usec, const uint64_t& threshold_usec, const uint64_t& since_usec,
                             const VariantMap& details) override {
        print("straggler-detected", {{"id", id},
                                     {"scope", scope},
                                     {"subject", subject},
                                     {"lateness_ns", lateness_usec * ns_per_us},
                                     {"threshold_ns", threshold_usec * ns_per_us},
                                     {"since_ns", since_usec * ns_per_us},
                                     {"details", to_json(details)}});
    }
    void onStragglerResolved(const std::string& id, const uint64_t& at_usec) override {
        print("straggler-resolved", {{"id", id}, {"at_ns", at_usec * ns_per_us}});
    }
    void onEventsLostChanged(const uint64_t& lost) override { print("events-lost", {{"events_lost", lost}}); }

    Printer& printer_;
    std::unique_ptr<sdbus::IProxy> driver_;
    std::string owner_;  ///< unique name; empty: nobody
    std::optional<std::string> node_;
};

/// Waits for the bus, for `timeout_ms` at most (-1: for ever). False: nobody reads standard output any more.
bool wait_for(int fd, short events, int timeout_ms) {
    pollfd fds[] = {{STDOUT_FILENO, 0, 0}, {fd, events, 0}};
    if (poll(fds, 2, timeout_ms) < 0) return true;
    return (fds[0].revents & (POLLERR | POLLHUP)) == 0;
}

/// Until what was wanted is printed or nobody reads it any more; throws sdbus::Error where the bus has gone.
void watch(sdbus::IConnection& bus, Printer& printer) {
    Watcher watcher(bus, printer);
    while (!printer.finished()) {
        if (bus::process_one(bus)) continue;
        const auto poll_data = bus.getEventLoopPollData();
        if (!wait_for(poll_data.fd, poll_data.events, poll_data.getPollTimeout())) return;
    }
}

/// Prints what comes, once the daemon has agreed to send it. Errors: those of ControlClient.
Result<void> follow(ControlClient& client, const Options& options, Printer& printer, bool& ret_connected) {
    if (const auto begun = client.call("monitor", json::object(), answer_patience); !begun)
        return tl::unexpected(begun.error());
    ret_connected = true;
    say("connected to ingerod at " + options.socket);
    const json& name = client.server().value("node", json());
    const auto node = name.is_string() ? std::optional(name.get<std::string>()) : std::nullopt;
    return client.follow(std::nullopt, STDOUT_FILENO, [&](const json& chunk) {
        if (!chunk.is_object()) return true;
        if (const json& skipped = chunk.value("skipped", json(0)); skipped.is_number_unsigned() && skipped != 0)
            say(format_count(skipped.get<uint64_t>(), "notice", "notices") + " skipped: this client reads too slowly");
        for (const json& notice : chunk.value("notices", json::array())) {
            const json& event = notice.is_object() ? notice.value("event", json()) : json();
            if (event.is_string() && !printer.finished()) printer.print(event.get<std::string>(), notice, node);
        }
        return !printer.finished();
    });
}

/// What the socket sends. Once that has begun it goes on over restarts of the daemon, however long there is none or it
/// has no room.
int monitor_socket(const Options& options, Printer& printer) {
    std::string said;
    for (bool connected_before = false;;) {
        auto client = ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
        const bool is_there = client.has_value();
        bool connected = false;
        const auto followed = is_there ? follow(*client, options, printer, connected) : tl::unexpected(client.error());
        if (followed) return exit_done;
        const Error& error = followed.error();
        connected_before |= connected;
        if (!connected_before) {
            const bool is_absent =
                !is_there && (error.code == ErrorCode::not_found || error.code == ErrorCode::deadline);
            return report(is_there ? "monitor" : "connect", error, is_absent ? exit_not_ready : exit_failed);
        }
        // Once: it is tried again and again.
        std::string why =
            connected && error.code == ErrorCode::not_found ? "the connection to ingerod is lost" : error.message;
        if (connected) said.clear();
        if (connected || is_there) {
            if (why != said) say(why + "; waiting for it");
            said = std::move(why);
        }
        if (!wait_for(-1, 0, retry_ms)) return exit_done;
    }
}

int run(const Options& options, const MonitorOptions& monitor, bool by_socket) {
    // Each line is out once it is printed, so that there is nothing left to do.
    const auto leave = [](int) { _exit(exit_done); };
    std::signal(SIGINT, leave);
    std::signal(SIGTERM, leave);
    std::signal(SIGPIPE, SIG_IGN);
    choose_zone(options);
    Printer printer(options.json, monitor.count);
    if (by_socket) return monitor_socket(options, printer);
    for (bool connected_before = false;;) {
        bool connected = false;
        try {
            const auto bus = sdbus::createSystemBusConnection();
            connected = connected_before = true;
            watch(*bus, printer);
            return exit_done;
        } catch (const sdbus::Error& error) {
            const Error why{
                ErrorCode::not_found, "no system bus: " + error.getMessage(),
                "where there is none, name the control socket: ingeroctl --socket " + options.socket + " monitor"};
            if (!connected_before) return report("monitor", why, exit_not_ready);
            if (connected) say("the connection to the system bus is lost; waiting for it");
        }
        if (!wait_for(-1, 0, retry_ms)) return exit_done;
    }
}

}  // namespace

void add_monitor(CLI::App& app, Command& command) {
    const auto monitor = std::make_shared<MonitorOptions>();
    CLI::App* subcommand =
        app.add_subcommand("monitor", "Print incidents, stragglers and losses as ingerod signals them");
    subcommand->add_option("--count", monitor->count, "Exit after this many lines")
        ->type_name("N")
        ->check(whole_number(1, uint64_t{1} << 53));
    add_examples(*subcommand, {{"Wait for the next thing that goes wrong", "ingeroctl monitor --count 1"}});
    subcommand->callback([&command, &app, monitor] {
        command = [&app, monitor](const Options& options) {
            return run(options, *monitor, app.get_option("--socket")->count() > 0);
        };
    });
}

}  // namespace ingero::ctl
