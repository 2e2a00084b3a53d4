#include "daemon/ingerod/probes/probe_figures.h"

#include <map>
#include <set>
#include <string>

#include "core/model/op.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/probes/attach/targets.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_listed_libraries = 256;
constexpr size_t max_listed_reasons = 8;
constexpr size_t max_listed_misplaced = 16;

struct Copies {
    size_t attached = 0, reading = 0, failed = 0, stepped = 0;
    std::map<std::string_view, size_t> sets;
    std::set<std::string> reasons;
    std::set<std::string> misplaced;
};

json to_json(const std::string& name, const Copies& copies, const std::function<bool(std::string_view)>& is_off) {
    json sets = json::array();
    for (const auto& [set, functions] : copies.sets)
        sets.push_back({{"set", set}, {"functions", is_off(set) ? 0 : functions}, {"on", !is_off(set)}});
    return {{"library", name},           {"attached", copies.attached},  {"reading", copies.reading},
            {"failed", copies.failed},   {"stepped", copies.stepped},    {"sets", std::move(sets)},
            {"reasons", copies.reasons}, {"misplaced", copies.misplaced}};
}

void add(Copies& copies, const LibraryEntry& entry) {
    copies.attached += entry.state == LibraryState::attached;
    copies.reading += entry.state == LibraryState::reading;
    copies.failed += entry.state == LibraryState::failed;
    if (entry.state == LibraryState::failed && copies.reasons.size() < max_listed_reasons)
        copies.reasons.insert(to_valid_utf8(entry.reason));
    for (const std::string& name : entry.misplaced)
        if (copies.misplaced.size() < max_listed_misplaced) copies.misplaced.insert(to_valid_utf8(name));
    if (entry.state != LibraryState::attached) return;
    copies.stepped += entry.stepped;
    for (const auto& [set, functions] : entry.sets) copies.sets[set] += functions;
}

}  // namespace

json probe_counts(const std::map<OpId, size_t>& functions, const SymbolCounters& counters, bool sees_all) {
    std::map<OpId, json> symbols;
    for (size_t i = 0; i < counters.size(); ++i)
        if (counters[i].entries != 0)
            symbols[all_targets()[i].op].push_back(
                {{"symbol", all_targets()[i].symbol}, {"hits", counters[i].entries}});
    json probes = json::array();
    const auto ops = all_ops();
    const OpCounters of_ops = sum_by_op(counters);
    for (size_t i = 0; i < ops.size(); ++i) {
        const ingero_call_counters& count = of_ops[i];
        const auto sites = functions.find(ops[i].id);
        if (sites == functions.end() && (count.entries == 0 || !sees_all)) continue;
        const auto shown = [&](uint64_t of_all_users) { return sees_all ? json(of_all_users) : json(); };
        const auto hit = symbols.find(ops[i].id);
        probes.push_back({{"source", std::string(source_name(op_source(ops[i].id)))},
                          {"op", op_name(ops[i].id)},
                          {"set", probe_set_of(ops[i].id)},
                          {"functions", sites == functions.end() ? 0 : sites->second},
                          {"hits", shown(count.entries)},
                          {"symbols", !sees_all              ? json()
                                      : hit == symbols.end() ? json::array()
                                                             : hit->second},
                          {"records", shown(count.records)},
                          {"lost_ring", shown(count.lost_ring)},
                          {"lost_frames", shown(count.lost_frames)},
                          {"lost_depth", shown(count.lost_depth)},
                          {"thinned", shown(count.thinned)},
                          {"uncertain", shown(count.uncertain)}});
    }
    return probes;
}

json probe_figures(const Libraries& libraries, const SymbolCounters& counters,
                   const std::function<bool(std::string_view)>& is_off,
                   const std::function<bool(const LibraryKey&, const LibraryEntry&)>& may_see, bool sees_all) {
    std::map<std::string, Copies> by_name;
    std::map<OpId, size_t> functions;
    for (const auto& [id, entry] : libraries.all()) {
        if (!may_see(id, entry)) continue;
        if (entry.state == LibraryState::attached)
            for (const auto& [op, count] : entry.functions) functions[op] += count;
        const std::string name = to_valid_utf8(entry.name());
        if (by_name.size() < max_listed_libraries || by_name.contains(name)) add(by_name[name], entry);
    }
    json listed = json::array();
    for (const auto& [name, copies] : by_name) listed.push_back(to_json(name, copies, is_off));
    return {{"libraries", std::move(listed)}, {"probes", probe_counts(functions, counters, sees_all)}};
}

}  // namespace ingero
