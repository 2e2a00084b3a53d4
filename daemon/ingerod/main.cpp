// ingerod: traces the calls that GPU programs make, keeps them, and answers for them.
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <syslog.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/render/render.h"
#include "core/usage/usage.h"
#include "core/wire/child_process.h"
#include "daemon/ingerod/bus/bus_service.h"
#include "daemon/ingerod/check/check.h"
#include "daemon/ingerod/config/config.h"
#include "daemon/ingerod/control/control_server.h"
#include "daemon/ingerod/control/listening_socket.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/loop/journal.h"
#include "daemon/ingerod/manager.h"
#include "daemon/ingerod/mcp/mcp_server.h"
#include "daemon/ingerod/version.h"

namespace ingero {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr int exit_not_ready = 4;
/// As the unit has it.
constexpr rlim_t most_descriptors = 65'536;
/// However much changes, systemd gets the status at most this often.
constexpr uint64_t status_period_us = 100'000;
/// While the start takes long, systemd is told so often, and waits for so long from then on: the unit's
/// TimeoutStartSec.
constexpr uint64_t start_report_ns = 2'000'000'000;
constexpr uint64_t start_timeout_us = 60'000'000;

struct Options {
    std::string directory;
    std::string config = "/etc/ingero/ingerod.conf";
    std::string socket = "/run/ingerod/control.sock";
    std::string worker;
    std::string probe_target;
    std::string log_level = "info";
    std::string bus;
    std::vector<std::string> denied_features;
    bool config_given = false;
    bool check_config = false;
    bool print_config = false;
    bool check = false;
    bool probe = false;
    bool json = false;
    bool without_processes = false;
};

int report(const Error& error, int code) {
    std::cerr << "ingerod: " << error.message << "\n";
    if (!error.hint.empty()) std::cerr << "hint: " << error.hint << "\n";
    return code;
}

// systemd.exec(5): the variable names the stream that systemd gave, by device and inode; it may be inherited by a
// program that writes elsewhere.
bool logs_to_journal() {
    const char* stream = getenv("JOURNAL_STREAM");
    struct stat facts {};
    if (!stream || fstat(STDERR_FILENO, &facts) != 0) return false;
    return std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino) == stream;
}

void set_up_logging(const std::string& level) {
    if (logs_to_journal()) {
        spdlog::set_default_logger(
            std::make_shared<spdlog::logger>("ingerod", std::make_shared<spdlog::sinks::systemd_sink_mt>("ingerod")));
        spdlog::set_pattern("%v");
    } else {
        spdlog::set_default_logger(spdlog::stderr_color_mt("ingerod"));
        spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    }
    spdlog::set_level(spdlog::level::from_str(level));
}

/// Each traced process and each probed function may take a descriptor. Where there are few it goes on with these.
void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= std::min(limit.rlim_max, most_descriptors)) return;
    limit.rlim_cur = std::min(limit.rlim_max, most_descriptors);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        spdlog::debug("{}: fewer processes can be traced at once", errno_message("setrlimit", errno));
}

std::string host_name() {
    utsname names{};
    return uname(&names) == 0 ? names.nodename : "localhost";
}

std::string find_worker(const std::string& given) {
    return given.empty() ? find_sibling("worker/ingero-worker", "lib/ingero/ingero-worker", worker_install_path)
                         : given;
}

std::string find_probe_target(const std::string& given) {
    return given.empty() ? find_sibling("probe_target/ingero-probe-target", "lib/ingero/ingero-probe-target",
                                        probe_target_install_path)
                         : given;
}

Result<void> make_directory(const std::string& path, mode_t mode) {
    if (mkdir(path.c_str(), mode) == 0) return {};
    const int first = errno;
    struct stat facts {};
    if (first == EEXIST && stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
        access(path.c_str(), R_OK | W_OK | X_OK) == 0)
        return {};
    const int why = first != EEXIST ? first : S_ISDIR(facts.st_mode) ? EACCES : ENOTDIR;
    return fail(ErrorCode::denied, errno_message("cannot use directory " + path, why),
                "choose a directory that ingerod may write to");
}

/// Sockets that systemd holds, by FileDescriptorName=. A single one of another name, as systemd-socket-activate(1)
/// passes it, is the control socket; of several, those that are not known are closed.
std::map<std::string, int> inherited_sockets() {
    std::map<std::string, int> sockets;
    char** names = nullptr;
    const int count = sd_listen_fds_with_names(1, &names);
    for (int i = 0; i < count; ++i) {
        const int fd = SD_LISTEN_FDS_START + i;
        std::string name = names[i];
        free(names[i]);
        const auto is_known = [](const std::string& one) {
            return one == "control" || one == "spans" || one == "annotate" || one == "mcp" || one == "relay";
        };
        if (count == 1 && !is_known(name)) name = "control";
        const bool known = is_known(name);
        if (known && sockets.emplace(name, fd).second) continue;
        spdlog::warn("systemd passed a duplicate or unknown socket, named {}: closed it", name);
        close(fd);
    }
    free(names);
    return sockets;
}

/// All that listens, while it lives.
struct Sockets {
    std::unique_ptr<ControlServer> control;
    std::unique_ptr<McpServer> mcp;
    std::set<std::string, std::less<>> for_spans;  ///< by name
    bool for_relay = false;
    size_t count() const { return 1 + for_spans.size() + for_relay + (mcp ? 1 : 0); }
};

/// Without systemd, where `directory` is not empty: the sockets where programs send spans lie in it.
Result<Sockets> open_sockets(EventLoop& loop, Manager& manager, const std::string& path, const std::string& directory,
                             ControlOptions control) {
    Sockets sockets;
    const auto serve_spans = [&](std::string_view name, UniqueFd fd, std::string at) {
        const auto form = name == "annotate" ? SpanServer::Form::lines : SpanServer::Form::messagepack;
        manager.listen_for_spans(std::move(fd), form, std::move(at));
        sockets.for_spans.emplace(name);
    };
    const auto serve_relay = [&](UniqueFd fd, std::string at) {
        manager.listen_for_relay(std::move(fd), std::move(at));
        sockets.for_relay = true;
    };
    const auto serve_mcp = [&](UniqueFd fd, std::string at) {
        sockets.mcp = std::make_unique<McpServer>(
            loop, manager.mcp_host(),
            McpOptions{.group = control.group, .owner_of = control.owner_of, .on_refusal = control.on_refusal});
        sockets.mcp->listen(std::move(fd), std::move(at));
    };
    for (const auto& [name, fd] : inherited_sockets()) {
        if (name == "control")
            sockets.control = std::make_unique<ControlServer>(loop, manager, fd, control);
        else if (name == "spans" || name == "annotate")
            serve_spans(name, UniqueFd(fd), {});
        else if (name == "relay")
            serve_relay(UniqueFd(fd), {});
        else
            serve_mcp(UniqueFd(fd), {});
    }
    if (!directory.empty() && !sockets.mcp) {
        auto bound = listen_at(directory + "/mcp.sock");
        if (!bound) return tl::unexpected(bound.error());
        serve_mcp(std::move(*bound), directory + "/mcp.sock");
    }
    if (!sockets.control) {
        auto bound = ControlServer::bind(loop, manager, path, std::move(control));
        if (!bound) return tl::unexpected(bound.error());
        sockets.control = std::move(*bound);
    }
    for (const char* name : {"spans", "annotate"}) {
        if (directory.empty() || sockets.for_spans.contains(name)) continue;
        const std::string place = directory + "/" + name + ".sock";
        auto bound = listen_at(place);
        if (!bound) return tl::unexpected(bound.error());
        serve_spans(name, std::move(*bound), place);
    }
    if (!directory.empty() && !sockets.for_relay) {
        auto bound = listen_at(directory + "/relay.sock", 0600);
        if (!bound) return tl::unexpected(bound.error());
        serve_relay(std::move(*bound), directory + "/relay.sock");
    }
    return sockets;
}

/// Tells systemd, a third of WatchdogSec apart, that the loop turns and the ingest thread with it.
EventLoop::Source start_watchdog(EventLoop& loop, Manager& manager) {
    uint64_t limit_us = 0;
    if (sd_watchdog_enabled(0, &limit_us) <= 0) return {};
    return loop.add_periodic(limit_us / 3, [&manager] {
        if (manager.is_alive())
            sd_notify(0, "WATCHDOG=1");
        else
            spdlog::error("the ingest thread is stuck, so ingerod no longer notifies the watchdog of systemd");
    });
}

int serve(EventLoop& loop, Manager& manager, const Journal& journal, const Options& options,
          const std::string& socket) {
    ControlOptions control{.version = version};
    control.owner_of = manager.owner_of();
    control.on_refusal = [&journal](const Caller& caller, const std::string& text) {
        journal.send(MessageKind::peer_refused, LOG_WARNING, text, {{"INGERO_PID", std::to_string(caller.pid)}});
    };
    const std::string directory =
        options.directory.empty() ? "" : std::filesystem::absolute(options.directory).string();
    auto sockets = open_sockets(loop, manager, socket, directory, std::move(control));
    if (!sockets) return report(sockets.error(), exit_failed);
    manager.set_sockets(sockets->count());

    std::unique_ptr<BusService> bus;
    if (options.bus == "system" || (options.bus.empty() && options.directory.empty()))
        bus = std::make_unique<BusService>(loop, manager);
    EventLoop::Source status;
    manager.on_change([&] {
        if (!status.active())
            status = loop.add_timer(
                status_period_us,
                [&] {
                    status.reset();
                    sd_notifyf(0, "STATUS=%s", manager.status_line().c_str());
                },
                status_period_us / 4);
        if (bus) bus->changed();
    });
    manager.on_incident([&](const IncidentChange& change) {
        if (bus) bus->emit(change);
    });
    manager.on_straggler(
        [&](const Straggler& straggler) {
            if (bus) bus->straggler_detected(straggler);
        },
        [&](const std::string& id, uint64_t at_realtime_ns) {
            if (bus) bus->straggler_resolved(id, at_realtime_ns);
        });
    const auto on_hangup = loop.add_signal(SIGHUP, [&] { (void)manager.reload(); });
    const auto watchdog = start_watchdog(loop, manager);

    journal.send(MessageKind::started, LOG_INFO,
                 std::string("ingerod ") + version + " is ready, control socket " + socket);
    sd_notifyf(0, "READY=1\nSTATUS=%s", manager.status_line().c_str());
    const int code = loop.run();
    sd_notify(0, "STOPPING=1");
    journal.send(MessageKind::stopped, LOG_INFO, "stopping: " + manager.status_line());
    manager.on_change({});
    manager.on_incident({});
    manager.on_straggler({}, {});
    return code;
}

/// The command that makes the daemon's own checks: this program, which stays the same file over an upgrade, with the
/// daemon's own options.
std::vector<std::string> check_command(const Options& options, const std::string& socket) {
    std::vector<std::string> command = {"/proc/self/exe", "--check", "--json",   "--without-processes",
                                        "--socket",       socket,    "--worker", find_worker(options.worker)};
    if (options.config_given) command.insert(command.end(), {"--config", options.config});
    if (!options.directory.empty()) command.insert(command.end(), {"--directory", options.directory});
    if (!options.probe_target.empty()) command.insert(command.end(), {"--probe-target", options.probe_target});
    for (const std::string& feature : options.denied_features)
        command.insert(command.end(), {"--deny-feature", feature});
    return command;
}

/// Prints what this host offers; the exit code.
int check(const Options& options, Config config, std::set<Feature> denied) {
    KernelFeatures features(std::move(denied));
    const std::string directory = options.directory;
    if (!directory.empty()) config.store_path = directory + "/store";
    if (config.node.empty()) config.node = host_name();
    nlohmann::json answer =
        check_host(features, {.config = config,
                              .socket = directory.empty() ? options.socket : directory + "/control.sock",
                              .worker_program = find_worker(options.worker),
                              .target_program = find_probe_target(options.probe_target),
                              .probe = options.probe,
                              .processes = !options.without_processes});
    if (!options.without_processes) note_absent_libraries(answer);
    std::cout << (options.json ? answer.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n"
                               : text_check(answer, {.details = true}));
    if (!std::cout.flush()) return exit_failed;
    return answer["ready"] == true ? 0 : exit_not_ready;
}

/// Whether somebody has asked it to end before the loop turns, which takes the signal.
bool is_stop_pending() {
    sigset_t pending;
    sigemptyset(&pending);
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

/// Reports how far the check of a large store is, so that systemd does not give up on the start.
PageProgress report_store_check(std::function<bool()> must_stop) {
    return [must_stop = std::move(must_stop), reported_ns = monotonic_now_ns(), is_logged = false](
               uint64_t done, uint64_t all) mutable {
        if (must_stop()) return false;
        const uint64_t now = monotonic_now_ns();
        if (now - reported_ns < start_report_ns) return true;
        reported_ns = now;
        if (!std::exchange(is_logged, true)) spdlog::info("checking the event store: {} pages", all);
        sd_notifyf(0,
                   "EXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=checking the event store: %" PRIu64 " of %" PRIu64 " pages",
                   start_timeout_us, done, all);
        return true;
    };
}

int run(const Options& options, Config config, std::set<Feature> denied) {
    raise_descriptor_limit();
    EventLoop loop;
    // Before any thread starts, so that all inherit the blocked signals.
    const auto on_term = loop.add_signal(SIGTERM, [&] { loop.exit(0); });
    const auto on_int = loop.add_signal(SIGINT, [&] { loop.exit(0); });
    sigset_t hangup;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    sigprocmask(SIG_BLOCK, &hangup, nullptr);
    signal(SIGPIPE, SIG_IGN);

    std::string socket = options.socket;
    const auto adapt = [&](Config& read) {
        if (read.node.empty()) read.node = host_name();
        if (!options.directory.empty()) read.store_path = std::filesystem::absolute(options.directory) / "store";
    };
    if (!options.directory.empty()) {
        if (auto made = make_directory(options.directory, 0755); !made) return report(made.error(), exit_failed);
        socket = std::filesystem::absolute(options.directory) / "control.sock";
    }
    adapt(config);
    if (auto made = make_directory(config.store_path, 0700); !made) return report(made.error(), exit_failed);

    const auto load = [&]() -> Result<Config> {
        auto read = load_config(options.config, options.config_given);
        if (read) adapt(*read);
        return read;
    };
    const Journal journal(config.node, logs_to_journal());
    // As Type=notify and `systemctl reload` want it (sd_notify(3)).
    const auto notify_reload = [](bool begins) {
        if (begins)
            sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, monotonic_now_ns() / 1'000);
        else
            sd_notify(0, "READY=1");
    };
    bool is_stopped = false;
    const auto must_stop = [&is_stopped] { return is_stopped = is_stopped || is_stop_pending(); };
    auto manager = Manager::start(loop, journal,
                                  {.config = config,
                                   .worker_program = find_worker(options.worker),
                                   .denied_features = std::move(denied),
                                   .check_command = check_command(options, socket),
                                   .load_config = load,
                                   .notify_reload = notify_reload,
                                   .on_store_pages = report_store_check(must_stop),
                                   .must_stop = must_stop});
    if (!manager && is_stopped) {
        sd_notify(0, "STOPPING=1");
        journal.send(MessageKind::stopped, LOG_INFO, "stopped while starting");
        return 0;
    }
    if (!manager) return report(manager.error(), exit_failed);
    return serve(loop, **manager, journal, options, socket);
}

int parse_and_run(int argc, char** argv) {
    Options options;
    CLI::App app("Traces the calls that GPU programs make and finds the host-side causes of slow ones.", "ingerod");
    app.set_version_flag("--version", std::string("ingerod ") + version);
    app.add_option("--directory", options.directory, "Keep store and sockets below this directory")->type_name("DIR");
    auto* config_option =
        app.add_option("--config", options.config, "Configuration file (default: /etc/ingero/ingerod.conf)")
            ->type_name("FILE");
    app.add_option("--socket", options.socket, "Control socket (default: /run/ingerod/control.sock)")
        ->type_name("PATH");
    app.add_option("--worker", options.worker, "The ingero-worker program")->type_name("PATH");
    app.add_option("--bus", options.bus, "The D-Bus to serve: system (default) or none (default with --directory)")
        ->type_name("BUS")
        ->check(one_of({"system", "none"}));
    app.add_option("--log-level", options.log_level, "debug, info, warn or error")
        ->type_name("LEVEL")
        ->check(one_of({"debug", "info", "warn", "error"}));
    app.add_flag("--check-config", options.check_config, "Check the configuration and exit");
    app.add_flag("--print-config", options.print_config, "Print all of the configuration, defaults included, and exit");
    app.add_flag("--check", options.check, "Say what this host offers for tracing and exit");
    app.add_flag("--probe", options.probe, "With --check: trace a program of the package for a moment");
    app.add_flag("--json", options.json, "With --check: print one line of JSON");
    app.add_flag("--without-processes", options.without_processes, "With --check: inspect no process")->group("");
    app.add_option("--probe-target", options.probe_target, "The ingero-probe-target program")->group("");
    app.add_option("--deny-feature", options.denied_features, "Act as if the kernel lacked this feature")->group("");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& wanted) {  // --help, --version
        return app.exit(wanted) == 0 && std::cout.flush() ? 0 : exit_failed;
    } catch (const CLI::ParseError& error) {
        return report(explain_usage(app, error, {}), exit_usage);
    }
    if ((options.probe || options.json) && !options.check)
        return report({ErrorCode::bad_request, "--probe and --json go with --check", "see 'ingerod --help'"},
                      exit_usage);
    set_up_logging(options.log_level);

    options.config_given = config_option->count() > 0;
    auto config = load_config(options.config, options.config_given);
    if (!config) return report(config.error(), exit_usage);
    std::set<Feature> denied;
    for (const std::string& name : options.denied_features) {
        const auto feature = feature_from_string(name);
        if (!feature) return report(feature.error(), exit_usage);
        denied.insert(*feature);
    }
    if (options.print_config) {
        std::cout << to_text(*config);
        return 0;
    }
    if (options.check_config) {
        const bool is_there = std::filesystem::exists(options.config);
        std::cout << options.config
                  << (is_there ? ": OK\n" : " is not there: the defaults apply, and what is in its .d folder\n");
        return 0;
    }
    if (options.check) return check(options, std::move(*config), std::move(denied));
    return run(options, std::move(*config), std::move(denied));
}

}  // namespace
}  // namespace ingero

int main(int argc, char** argv) {
    try {
        return ingero::parse_and_run(argc, argv);
    } catch (const std::exception& problem) {
        std::cerr << "ingerod: " << problem.what() << "\n";
        return 1;
    }
}
