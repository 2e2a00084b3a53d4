// ingeroctl check: what this host offers for tracing, from the daemon, or without one from `ingerod --check`.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "core/wire/child_process.h"
#include "core/wire/client.h"
#include "ctl/ask/check_locally.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

struct CheckOptions {
    bool local = false;
    bool probe = false;
};

/// A daemon that refuses or fails is one that answers: its error is reported.
bool has_daemon(const Options& options) {
    const auto client = ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
    if (client) return true;
    const ErrorCode code = client.error().code;
    return code != ErrorCode::not_found && code != ErrorCode::denied && code != ErrorCode::deadline;
}

int run(const Options& options, const CheckOptions& check) {
    int exit_code = exit_done;
    std::optional<json> answer;
    if (check.local || !has_daemon(options)) {
        auto local = check_locally(options, check.probe);
        if (!local) return report("check", local.error(), exit_failed);
        answer = std::move(*local);
    } else {
        answer = ask(options, "check", check.probe ? json{{"probe", true}} : json::object(), exit_code);
        if (!answer) return exit_code;
    }
    if (!print(options, *answer, text_check)) return exit_failed;
    return answer->value("ready", json(false)) == true ? exit_done : exit_not_ready;
}

}  // namespace

Result<json> check_locally(const Options& options, bool probe) {
    constexpr std::chrono::seconds timeout{60};
    constexpr size_t most_bytes = 1 << 20;
    std::vector<std::string> command = {find_sibling("daemon/ingerod/ingerod", "sbin/ingerod", INGEROD_INSTALL_PATH),
                                        "--check", "--json", "--socket", options.socket};
    if (probe) command.emplace_back("--probe");
    auto done = run_program(command, {}, timeout, most_bytes);
    if (!done) return tl::unexpected(done.error());
    json answer = json::parse(done->text, nullptr, false);
    const bool ended_well =
        WIFEXITED(done->status) && (WEXITSTATUS(done->status) == 0 || WEXITSTATUS(done->status) == exit_not_ready);
    if (!ended_well || !answer.is_object())
        return fail(ErrorCode::internal, command[0] + " --check " + describe_wait_status(done->status),
                    "run it by hand to see why");
    return answer;
}

void add_check(CLI::App& app, Command& command) {
    const auto check = std::make_shared<CheckOptions>();
    CLI::App* subcommand =
        app.add_subcommand("check", "Check what this host offers for tracing, and print a fix for what it lacks");
    subcommand->add_flag("--probe", check->probe,
                         "Also trace a test program of the package, and compare what was recorded (root only)");
    subcommand->add_flag("--local", check->local, "Check with the rights of the caller, not with the daemon's");
    add_examples(*subcommand, {{"Can this host be traced?", "ingeroctl check"},
                               {"Does it work, also in containers? As root", "ingeroctl check --probe"}});
    subcommand->callback(
        [&command, check] { command = [check](const Options& options) { return run(options, *check); }; });
}

}  // namespace ingero::ctl
