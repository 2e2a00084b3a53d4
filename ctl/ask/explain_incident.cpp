#include "core/render/incidents.h"
#include "ctl/ask/explain.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

/// Of an incident all that is stored is looked at, unless a window is given.
Result<json> params_of(const Options& options, const WindowOptions& window, const std::string& id) {
    if (window.pid)
        return fail(ErrorCode::bad_request, "--pid cannot be used with an incident",
                    "an incident belongs to one process: leave out --pid");
    auto params = window.to_params(options);
    if (!params) return params;
    if (!window.is_given()) params->erase("since_ns");
    (*params)["id"] = id;
    return params;
}

}  // namespace

int run_incident(const Options& options, const WindowOptions& window, const std::string& id) {
    if (window.is_given())
        return usage_error("explain", {ErrorCode::bad_request, "an incident has its own window",
                                       "leave out --since, --from and --to"});
    auto params = params_of(options, window, id);
    if (!params) return usage_error("explain", params.error());
    int exit_code = exit_done;
    const auto answer = ask(options, "incidents", std::move(*params), exit_code);
    if (!answer) return exit_code;
    return print(options, *answer, text_incident) ? exit_done : exit_failed;
}

int run_verify(const Options& options, const WindowOptions& window, const std::string& id) {
    auto params = params_of(options, window, id);
    if (!params) return usage_error("explain", params.error());
    (*params)["verify"] = true;
    int exit_code = exit_done;
    const auto answer = ask(options, "incidents", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_verified)) return exit_failed;
    const json state = answer->value("state", json());
    if (state == "fixed") return exit_done;
    return state == "not-fixed" ? exit_findings : exit_partial;
}

}  // namespace ingero::ctl
