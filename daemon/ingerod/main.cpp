// ingerod: traces the calls that GPU programs make, keeps them, and answers for them.
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include "daemon/ingerod/check.h"
#include "daemon/ingerod/config.h"
#include "daemon/ingerod/control_server.h"
#include "daemon/ingerod/event_loop.h"
#include "daemon/ingerod/manager.h"
#include "daemon/ingerod/version.h"

namespace ingero {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr int exit_not_ready = 4;

struct Options {
    std::string directory;
    std::string config = "/etc/ingero/ingerod.conf";
    std::string socket = "/run/ingerod/control.sock";
    std::string worker;
    std::string log_level = "info";
    std::vector<std::string> denied_features;
    bool config_given = false;
    bool check_config = false;
    bool check = false;
};

int report(const Error& error, int code) {
    std::cerr << "ingerod: " << error.message << "\n";
    if (!error.hint.empty()) std::cerr << "hint: " << error.hint << "\n";
    return code;
}

// To the journal with its own fields when systemd gave us its stream, else to stderr.
void set_up_logging(const std::string& level) {
    if (getenv("JOURNAL_STREAM") && !isatty(STDERR_FILENO)) {
        spdlog::set_default_logger(
            std::make_shared<spdlog::logger>("ingerod", std::make_shared<spdlog::sinks::systemd_sink_mt>("ingerod")));
        spdlog::set_pattern("%v");
    } else {
        spdlog::set_default_logger(spdlog::stderr_color_mt("ingerod"));
        spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    }
    spdlog::set_level(spdlog::level::from_str(level));
}

// In a build tree the worker lies in the folder beside; installed, at its fixed place.
std::string find_worker(const std::string& given) {
    if (!given.empty()) return given;
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    const auto beside = self.parent_path().parent_path() / "worker" / "ingero-worker";
    return std::filesystem::exists(beside, error) ? beside.string() : std::string(worker_install_path);
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

int run(const Options& options, Config config, std::set<Feature> denied) {
    EventLoop loop;
    // Before any thread starts, so that all inherit the blocked signals.
    const auto on_term = loop.add_signal(SIGTERM, [&] { loop.exit(0); });
    const auto on_int = loop.add_signal(SIGINT, [&] { loop.exit(0); });
    signal(SIGPIPE, SIG_IGN);

    std::string socket = options.socket;
    if (!options.directory.empty()) {
        if (auto made = make_directory(options.directory, 0755); !made) return report(made.error(), exit_failed);
        const std::string directory = std::filesystem::absolute(options.directory);
        config.store_path = directory + "/store";
        socket = directory + "/control.sock";
    }
    if (auto made = make_directory(config.store_path, 0700); !made) return report(made.error(), exit_failed);

    auto manager = Manager::start(
        loop, {.config = config, .worker_program = find_worker(options.worker), .denied_features = std::move(denied)});
    if (!manager) return report(manager.error(), exit_failed);

    const ControlOptions control{.version = version};
    std::unique_ptr<ControlServer> server;
    if (sd_listen_fds(1) > 0) {
        server = std::make_unique<ControlServer>(loop, **manager, SD_LISTEN_FDS_START, control);
    } else {
        auto bound = ControlServer::bind(loop, **manager, socket, control);
        if (!bound) return report(bound.error(), exit_failed);
        server = std::move(*bound);
    }
    auto publish = [&] { sd_notifyf(0, "STATUS=%s", (*manager)->status_line().c_str()); };
    (*manager)->on_change(publish);
    spdlog::info("ingerod {} is ready, control socket {}", version, socket);
    sd_notify(0, "READY=1");
    publish();
    const int code = loop.run();
    sd_notify(0, "STOPPING=1");
    spdlog::info("stopping: {}", (*manager)->status_line());
    (*manager)->on_change({});
    return code;
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
    app.add_option("--log-level", options.log_level, "debug, info, warn or error")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
    app.add_flag("--check-config", options.check_config, "Check the configuration and exit");
    app.add_flag("--check", options.check, "Say what this host offers for tracing and exit");
    app.add_option("--deny-feature", options.denied_features, "Do as if the kernel lacked this feature")->group("");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_usage;
    }
    set_up_logging(options.log_level);

    auto config = load_config(options.config, config_option->count() > 0);
    if (!config) return report(config.error(), exit_usage);
    std::set<Feature> denied;
    for (const std::string& name : options.denied_features) {
        const auto feature = feature_from_string(name);
        if (!feature) return report(feature.error(), exit_usage);
        denied.insert(*feature);
    }
    if (options.check_config) {
        std::cout << options.config << ": OK\n";
        return 0;
    }
    if (options.check) {
        KernelFeatures features(denied);
        if (!options.directory.empty()) config->store_path = options.directory + "/store";
        return print_checks(check_host(features, *config)) ? 0 : exit_not_ready;
    }
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
