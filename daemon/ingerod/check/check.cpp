#include "daemon/ingerod/check/check.h"

#include <algorithm>
#include <utility>

#include "core/model/time.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/check/host_checks.h"
#include "daemon/ingerod/check/library_check.h"
#include "daemon/ingerod/check/probe_check.h"
#include "daemon/ingerod/check/return_probe_check.h"
#include "daemon/ingerod/check/symbol_reader.h"

namespace ingero {

using nlohmann::json;

namespace {

std::string_view to_string(CheckResult::State state) {
    switch (state) {
        case CheckResult::State::pass:
            return "pass";
        case CheckResult::State::note:
            return "note";
        case CheckResult::State::fail:
            return "fail";
    }
    return "fail";
}

json to_json(const CheckResult& result) {
    return {{"name", result.name},
            {"state", std::string(to_string(result.state))},
            {"detail", to_valid_utf8(result.detail)},
            {"fix", result.fix.empty() ? json() : json(to_valid_utf8(result.fix))}};
}

json to_json(const ProbeFigures& figures) {
    return {{"attach_method", figures.attach_method},
            {"calls", figures.calls},
            {"events", figures.events},
            {"cost_ns", figures.cost_ns}};
}

void append(CheckResults& results, CheckResults more) {
    std::move(more.begin(), more.end(), std::back_inserter(results));
}

}  // namespace

void add_checks(json& answer, const CheckResults& results) {
    for (const CheckResult& result : results) {
        answer["checks"].push_back(to_json(result));
        if (result.state == CheckResult::State::fail) answer["ready"] = false;
    }
}

json check_answer(const std::string& node, const CheckResults& results, const std::optional<ProbeFigures>& figures) {
    const uint64_t now = ClockTriple::now().realtime_ns;
    Coverage coverage;
    coverage.complete = true;
    json answer = answer_head("check", {.node = node, .missing_probes = {}, .comms = {}}, {now, now}, coverage);
    answer["ready"] = true;
    answer["checks"] = json::array();
    answer["probe"] = figures ? to_json(*figures) : json();
    add_checks(answer, results);
    return answer;
}

void note_absent_libraries(json& answer) {
    for (const json& check : answer["checks"])
        if (check["name"] == library_check_name || check["name"] == mapped_library_check_name) return;
    add_checks(answer,
               {{library_check_name, CheckResult::State::note,
                 "no libcudart and no libcuda in the usual places, and no program that is visible here uses one",
                 "nothing to do where programs bring their own, as containers and Python wheels do: they are "
                 "found when they start. Else install the NVIDIA driver (libcuda) and the CUDA runtime "
                 "(libcudart)"}});
}

json check_host(KernelFeatures& features, const CheckOptions& options) {
    CheckResults results = check_kernel(features);
    results.push_back(check_return_probes(find_probed_return()));
    append(results, check_surroundings(options.config, options.socket));
    SymbolReader symbols(options.worker_program);
    results.push_back(symbols.check());
    ProcFs proc;
    proc.trust_fuse(options.config.trusted_fuse);
    append(results, check_libraries(symbols, options.processes ? &proc : nullptr));
    std::optional<ProbeFigures> figures;
    if (options.probe) append(results, check_by_probing(features, options.target_program, symbols, figures));
    return check_answer(options.config.node, results, figures);
}

}  // namespace ingero
