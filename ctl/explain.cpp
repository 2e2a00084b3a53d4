#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "ctl/command.h"
#include "ctl/requests.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 3> severities = {"low", "medium", "high"};

struct ExplainOptions {
    WindowOptions window;
    std::string fail_on;
    RequestsOptions requests;
    bool by_request = false;
    bool by_step = false;
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

int run(const Options& options, const ExplainOptions& explain) {
    const bool by_spans = explain.by_request || explain.by_step;
    if ((explain.by_request && explain.by_step) || (by_spans && !explain.fail_on.empty()))
        return usage_error("explain", {ErrorCode::bad_request,
                                       "--by-request, --by-step and --fail-on exclude each other", "choose one"});
    if (by_spans)
        return run_requests(options, "explain", explain.window, explain.requests, explain.by_step ? "step" : "request");
    if (explain.requests.is_given())
        return usage_error("explain", {ErrorCode::bad_request, "--request, --slower-than and --top choose requests",
                                       "add --by-request or --by-step"});
    auto params = explain.window.to_params(options);
    if (!params) return usage_error("explain", params.error());
    int exit_code = exit_done;
    const auto answer = ask(options, "explain", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_explain)) return exit_failed;
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
            "Exit with 3 where a finding is at least this severe (low, medium, high), with 5 where there is none "
            "but the window was not covered in full")
        ->type_name("SEVERITY")
        ->check(CLI::IsMember({"low", "medium", "high"}).description(""));
    subcommand->add_flag("--by-request", explain->by_request, "The requests of the window, the longest first");
    subcommand->add_flag("--by-step", explain->by_step, "The training steps of the window, the longest first");
    explain->requests.add_to(*subcommand);
    subcommand->callback(
        [&command, explain] { command = [explain](const Options& options) { return run(options, *explain); }; });
}

}  // namespace ingero::ctl
