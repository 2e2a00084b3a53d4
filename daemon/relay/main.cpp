// ingero-relay: measures GPUs and InfiniBand ports, and reports to ingerod, which opens no device itself.
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "core/model/time.h"
#include "core/render/render.h"
#include "core/usage/usage.h"
#include "daemon/ingerod/version.h"
#include "daemon/relay/relay.h"

namespace ingero {
namespace {

constexpr int exit_usage = 2;

struct Options {
    RelayOptions relay;
    std::string patience;
    std::string interval = "1s";
    std::string poll;
    int parent = 0;
};

/// Whether it is a time; `what` is set where the text is not empty.
bool read_time(const std::string& text, std::chrono::milliseconds& what) {
    if (text.empty()) return true;
    const auto ns = parse_duration_ns(text);
    if (!ns || *ns < 1'000'000) {
        std::cerr << "ingero-relay: not a time of at least 1ms: " << text << "\nhint: such as 10s or 500ms\n";
        return false;
    }
    what = std::chrono::milliseconds(*ns / 1'000'000);
    return true;
}

int measure(const Options& options) {
    signal(SIGPIPE, SIG_IGN);
    if (!end_with_parent(options.parent)) return 1;
    return options.poll == "gpus" ? poll_gpus(options.relay.poller) : poll_ports(options.relay.poller);
}

int run(const Options& options) {
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    sigprocmask(SIG_BLOCK, &ending, nullptr);
    signal(SIGPIPE, SIG_IGN);
    spdlog::set_default_logger(spdlog::stderr_color_mt("ingero-relay"));
    // systemd's journal has the time.
    spdlog::set_pattern("%^%l%$ %v");
    return run_relay(options.relay);
}

int parse_and_run(int argc, char** argv) {
    Options options;
    CLI::App app("Measures GPUs and InfiniBand ports and reports to ingerod.", "ingero-relay");
    app.set_version_flag("--version", std::string("ingero-relay ") + version);
    app.add_option("--socket", options.relay.socket, "Where ingerod listens (default: /run/ingerod/relay.sock)")
        ->type_name("PATH");
    app.add_option("--library", options.relay.poller.library,
                   "The libnvidia-ml.so.1 to load, writable by root alone (default: where drivers install it)")
        ->type_name("PATH");
    app.add_option("--sysfs", options.relay.poller.sysfs, "Where sysfs is (default: /sys)")->type_name("DIR");
    app.add_option(
           "--patience", options.patience,
           "How long a measurement may take before the measuring process is killed and started again (default: 10s)")
        ->type_name("TIME");
    app.add_option("--poll", options.poll)->group("")->check(one_of({"gpus", "ports"}));
    app.add_option("--interval", options.interval)->group("");
    app.add_option("--parent", options.parent)->group("");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& wanted) {  // --help, --version
        return app.exit(wanted) == 0 && std::cout.flush() ? 0 : 1;
    } catch (const CLI::ParseError& error) {
        const Error why = explain_usage(app, error, {});
        std::cerr << "ingero-relay: " << escape_text(why.message) << "\nhint: " << why.hint << "\n";
        return exit_usage;
    }
    RelayOptions& relay = options.relay;
    if (!read_time(options.patience, relay.patience) || !read_time(options.interval, relay.poller.interval))
        return exit_usage;
    if (!options.patience.empty()) relay.first_patience = 6 * relay.patience;
    return options.poll.empty() ? run(options) : measure(options);
}

}  // namespace
}  // namespace ingero

int main(int argc, char** argv) {
    try {
        return ingero::parse_and_run(argc, argv);
    } catch (const std::exception& problem) {
        std::cerr << "ingero-relay: " << problem.what() << "\n";
        return 1;
    }
}
