#include "core/import/finding_calls.h"

#include <nlohmann/json.hpp>

namespace ingero {

using nlohmann::json;

namespace {

/// A finding has some six; writing one that a stranger made deeper would take as much of the stack.
constexpr int most_levels = 64;

/// nullptr where there is none of that name.
json* member_of(json& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
}

/// 0 is no call. The same of all below: whether something has changed.
bool move_number(json* value, uint64_t by) {
    const uint64_t sequence = value && value->is_number_unsigned() ? value->get<uint64_t>() : 0;
    if (sequence == 0) return false;
    *value = sequence + by;
    return true;
}

bool move_member(json* object, const char* name, uint64_t by) {
    return object && move_number(member_of(*object, name), by);
}

bool move_finding(json& finding, uint64_t by) {
    bool moved = move_member(member_of(finding, "worst"), "call", by);
    moved = move_member(member_of(finding, "timeline"), "id", by) || moved;
    if (json* evidence = member_of(finding, "evidence"); evidence && evidence->is_array())
        for (json& one : *evidence) moved = move_number(&one, by) || moved;
    // The rows around the worst of it, which outlive the calls.
    json* detail = member_of(finding, "detail");
    for (const char* name : {"rows", "evidence"}) {
        json* rows = detail ? member_of(*detail, name) : nullptr;
        if (!rows || !rows->is_array()) continue;
        for (json& row : *rows) moved = move_member(&row, "id", by) || moved;
    }
    return moved;
}

/// Within what a row holds, as ingerod writes it: longer numbers may be too long by a little.
std::string text_of(json& finding) {
    std::string text;
    for (const char* part : {"", "chains", "rows", "evidence"}) {
        if (*part != 0)
            if (json* detail = member_of(finding, "detail"); detail && detail->is_object())
                (*detail)[part] = json::array();
        text = finding.dump(-1, ' ', true, json::error_handler_t::replace);
        if (text.size() <= max_finding_bytes) break;
    }
    return text;
}

}  // namespace

void move_calls(uint64_t by, IncidentRow& row) {
    if (by == 0 || row.finding.empty() || row.kind == imported_finding) return;
    bool too_deep = false;
    const auto note_depth = [&](int depth, json::parse_event_t, json&) {
        too_deep = too_deep || depth > most_levels;
        return true;
    };
    json finding = json::parse(row.finding, note_depth, false);
    if (too_deep || finding.is_discarded() || !move_finding(finding, by)) return;
    row.finding = text_of(finding);
}

}  // namespace ingero
