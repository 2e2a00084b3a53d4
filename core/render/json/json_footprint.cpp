// A footprint as JSON.
#include <algorithm>

#include "core/render/footprint.h"
#include "core/render/json/values.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

json outcome_json(const Outcome& outcome) {
    if (!outcome) return nullptr;
    return *outcome == 0 ? "ok" : errno_name(*outcome);
}

/// Longest first, then most often.
json calls_json(std::vector<FootprintCall> calls) {
    std::stable_sort(calls.begin(), calls.end(), [](const FootprintCall& a, const FootprintCall& b) {
        return std::pair(a.total_ns, a.count) > std::pair(b.total_ns, b.count);
    });
    json list = json::array();
    for (const FootprintCall& call : calls) {
        json errors = json::array();
        for (const auto& [error, count] : call.errors)
            errors.push_back({{"errno", error}, {"name", errno_name(error)}, {"count", count}});
        list.push_back({{"abi", call.abi},
                        {"number", call.number},
                        {"name", text_or_null(call.name)},
                        {"count", call.count},
                        {"returned", call.returned},
                        {"total_ns", call.total_ns},
                        {"errors", std::move(errors)}});
    }
    return list;
}

template <class Row>
std::vector<Row> by_count(std::vector<Row> rows) {
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.count > b.count; });
    return rows;
}

json losses_json(const FootprintLosses& losses) {
    return {{"files", losses.files},
            {"endpoints", losses.endpoints},
            {"programs", losses.programs},
            {"libraries", losses.libraries},
            {"processes", losses.processes},
            {"records", losses.records},
            {"unreadable", losses.unreadable},
            {"calls", losses.calls},
            {"untimed", losses.untimed},
            {"errors", losses.errors},
            {"other_users", losses.other_users},
            {"compat_calls", losses.compat_calls},
            {"io_uring_calls", losses.io_uring_calls}};
}

}  // namespace

json footprint_json(const Footprint& footprint, const std::string& node) {
    const FootprintLosses& losses = footprint.losses;
    Coverage coverage;
    coverage.lost = losses.records + losses.calls + losses.untimed;
    coverage.complete = coverage.lost == 0 &&
                        losses.files + losses.endpoints + losses.programs + losses.libraries == 0 &&
                        losses.processes + losses.unreadable + losses.errors + losses.other_users == 0 &&
                        losses.compat_calls + losses.io_uring_calls == 0;
    json answer =
        answer_head("footprint", {.node = node, .missing_probes = {}, .comms = {}}, footprint.window, coverage);
    answer["process"] = {{"pid", footprint.process.key.pid},
                         {"start_time_ns", footprint.process.key.start_ns},
                         {"comm", to_valid_utf8(footprint.process.comm)}};
    json processes = json::array(), files = json::array(), endpoints = json::array(), programs = json::array(),
         libraries = json::array();
    for (const FootprintProcess& row : footprint.processes)
        processes.push_back({{"pid", row.pid},
                             {"parent_pid", row.parent_pid == 0 ? json(nullptr) : json(row.parent_pid)},
                             {"comm", to_valid_utf8(row.comm)},
                             {"calls", row.calls},
                             {"ended", row.ended}});
    for (const FootprintFile& row : by_count(footprint.files))
        files.push_back({{"path", to_valid_utf8(row.path)},
                         {"cut", row.cut},
                         {"flags", row.flags},
                         {"result", outcome_json(row.outcome)},
                         {"count", row.count}});
    for (const FootprintEndpoint& row : by_count(footprint.endpoints))
        endpoints.push_back({{"action", row.action},
                             {"family", row.family},
                             {"transport", text_or_null(row.transport)},
                             {"address", text_or_null(row.address)},
                             {"port", row.port ? json(*row.port) : json(nullptr)},
                             {"result", outcome_json(row.outcome)},
                             {"count", row.count}});
    for (const FootprintProgram& row : by_count(footprint.programs))
        programs.push_back({{"path", to_valid_utf8(row.path)},
                            {"named", to_valid_utf8(row.named)},
                            {"argv0", to_valid_utf8(row.first_argument)},
                            {"count", row.count}});
    for (const FootprintLibrary& row : by_count(footprint.libraries))
        libraries.push_back({{"path", to_valid_utf8(row.path)}, {"count", row.count}});
    answer["processes"] = std::move(processes);
    answer["system_calls"] = calls_json(footprint.calls);
    answer["files"] = std::move(files);
    answer["endpoints"] = std::move(endpoints);
    answer["programs"] = std::move(programs);
    answer["libraries"] = std::move(libraries);
    answer["left_out"] = losses_json(losses);
    return answer;
}

}  // namespace ingero
