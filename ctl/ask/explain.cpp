#include "ctl/ask/explain.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "core/render/incidents.h"
#include "ctl/ask/requests.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 3> severities = {"low", "medium", "high"};

struct ExplainOptions {
    WindowOptions window;
    std::string fail_on;
    RequestsOptions requests;
    std::optional<uint32_t> limit;
    bool by_request = false;
    bool by_step = false;
    bool by_phase = false;
    bool per_process = false;
    bool per_gpu = false;
    std::string incident;
    std::string verify;
    std::vector<std::string> diff;
};

/// Position in `severities`; their number for a severity this version does not know, which is then the gravest.
size_t rank_of(std::string_view severity) {
    return static_cast<size_t>(std::find(severities.begin(), severities.end(), severity) - severities.begin());
}

bool has_finding_at(const json& answer, const std::string& threshold) {
    const auto findings = answer.find("findings");
    if (findings == answer.end() || !findings->is_array()) return false;
    return std::any_of(findings->begin(), findings->end(), [&](const json& finding) {
        if (!finding.is_object() || !finding.contains("severity") || !finding["severity"].is_string()) return false;
        return rank_of(finding["severity"].get_ref<const std::string&>()) >= rank_of(threshold);
    });
}

/// Of what it can show one thing is chosen at most.
bool asks_for_two(const ExplainOptions& explain) {
    const bool chosen[] = {explain.by_request,      explain.by_step,       explain.by_phase,
                           explain.per_process,     explain.per_gpu,       !explain.incident.empty(),
                           !explain.verify.empty(), !explain.diff.empty(), !explain.fail_on.empty()};
    return std::count(std::begin(chosen), std::end(chosen), true) > 1;
}

int run(const Options& options, const ExplainOptions& explain) {
    if (asks_for_two(explain))
        return usage_error("explain",
                           {ErrorCode::bad_request,
                            "--by-request, --by-step, --by-phase, --per-process, --per-gpu, --incident, --verify, "
                            "--diff and --fail-on exclude each other",
                            "choose one"});
    if (explain.by_request || explain.by_step || explain.by_phase)
        return run_requests(options, "explain", explain.window, explain.requests, explain.limit,
                            explain.by_step    ? "step"
                            : explain.by_phase ? "phase"
                                               : "request");
    if (explain.requests.is_given() || explain.limit)
        return usage_error("explain", {ErrorCode::bad_request, "--request, --slower-than and --limit choose requests",
                                       "add --by-request, --by-step or --by-phase"});
    if (!explain.incident.empty()) return run_incident(options, explain.window, explain.incident);
    if (!explain.verify.empty()) return run_verify(options, explain.window, explain.verify);
    if (!explain.diff.empty()) return run_diff(options, explain.window, explain.diff[0], explain.diff[1]);
    auto params = explain.window.to_params(options);
    if (!params) return usage_error("explain", params.error());
    int exit_code = exit_done;
    const auto answer = ask(options, "explain", std::move(*params), exit_code);
    if (!answer) return exit_code;
    const Renderer renderer = explain.per_process ? text_excess_by_process
                              : explain.per_gpu   ? text_excess_by_gpu
                                                  : text_explain;
    if (!print(options, *answer, renderer)) return exit_failed;
    if (!explain.fail_on.empty()) {
        if (has_finding_at(*answer, explain.fail_on)) return exit_findings;
        // "Nothing found" is worth something only where everything was seen.
        return is_complete(*answer) ? exit_done : exit_partial;
    }
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

}  // namespace

void add_explain(CLI::App& app, Command& command) {
    const auto explain = std::make_shared<ExplainOptions>();
    CLI::App* subcommand = app.add_subcommand("explain", "Find the slow calls of a window and what made them slow");
    explain->window.add_to(*subcommand);
    subcommand
        ->add_option(
            "--fail-on", explain->fail_on,
            "Exit with 3 if a finding has at least this severity (low, medium, high), with 5 if there is none but the "
            "window was not recorded in full")
        ->type_name("SEVERITY")
        ->check(one_of({"low", "medium", "high"}));
    subcommand->add_flag("--by-request", explain->by_request, "The requests of the window, the longest first");
    subcommand->add_flag("--by-step", explain->by_step, "The training steps of the window, the longest first");
    subcommand->add_flag("--by-phase", explain->by_phase, "The phases of programs in the window, the longest first");
    subcommand->add_flag("--per-process", explain->per_process,
                         "How much longer than usual the calls of each process took, and why");
    subcommand->add_flag("--per-gpu", explain->per_gpu,
                         "How much longer than usual the calls on each GPU took, and why");
    subcommand->add_option("--incident", explain->incident, "One incident: its worst time, wait chain and evidence")
        ->type_name("ID");
    subcommand
        ->add_option("--verify", explain->verify,
                     "Whether an incident is fixed, judged by what was recorded since: exit with 3 where it is not, "
                     "with 5 where too little was recorded")
        ->type_name("ID");
    subcommand
        ->add_option("--diff", explain->diff,
                     "What changed from A to B: windows such as 10m, 10m..5m or 14:00..14:10, stores, or incidents")
        ->type_name("A B")
        ->expected(2);
    explain->requests.add_to(*subcommand);
    subcommand
        ->add_option("-n,--limit", explain->limit,
                     "With --by-request, --by-step or --by-phase: at most this many, the longest first (default: 20)")
        ->type_name("ROWS")
        ->check(whole_number(1, 10'000));
    add_examples(*subcommand, {{"What made calls slow in the last hour?", "ingeroctl explain --since 1h"},
                               {"How did an incident come about? An example from a recorded scenario:",
                                "ingeroctl --db demo:cpu-contention explain --incident c5585ad5"},
                               {"In a script: fail where something serious was found",
                                "ingeroctl explain --since 2h --fail-on high"}});
    subcommand->callback(
        [&command, explain] { command = [explain](const Options& options) { return run(options, *explain); }; });
}

}  // namespace ingero::ctl
