#include "core/render/incidents.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

constexpr size_t most_ops = 15;

std::string signed_duration(const json& object, const char* key, const char* per) {
    const json& value = member(object, key);
    if (!value.is_number_integer()) return absent;
    const auto ns = value.get<int64_t>();
    const uint64_t size = ns < 0 ? uint64_t{0} - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
    return (ns < 0 ? "-" : "+") + format_duration(size) + per;
}

std::string plain_duration(const json& object, const char* key, const char* per) {
    const auto ns = number(object, key);
    return ns ? format_duration(*ns) + per : absent;
}

std::string within(const json& one, const char* per) {
    const auto uncertainty = number(one, "uncertainty_ns");
    return uncertainty ? "± " + format_duration(*uncertainty) + per : "not known";
}

std::string verdict(const json& one) {
    if (!number(one, "uncertainty_ns")) return "";
    if (!flag(one, "certain")) return "no significant change";
    const json& change = member(one, "change_ns");
    const bool worse = change.is_number_integer() && change.get<int64_t>() > 0;
    return worse ? "worse" : "better";
}

std::string side_line(const char* name, const json& side, const TextStyle& style) {
    return std::string(name) + "  " + window_line(side, style);
}

std::string kinds_text(const char* heading, const json& kinds) {
    std::string result;
    for (const json& one : kinds)
        result += (result.empty() ? std::string(heading) : ", ") + words(one, "kind") + " of " + words(one, "comm");
    return result.empty() ? result : result + "\n";
}

}  // namespace

std::string text_explain_diff(const json& answer, const TextStyle& style) {
    std::string result = side_line("A", member(answer, "a"), style) + side_line("B", member(answer, "b"), style);
    result += coverage_lines(answer, style);
    result += kinds_text("Findings only in A: ", list(answer, "findings_gone"));
    result += kinds_text("Findings only in B: ", list(answer, "findings_new"));
    const json& causes = list(answer, "causes");
    if (causes.empty()) result += "\nNo call took longer than usual in either window.\n";
    if (!causes.empty()) {
        Table table({{"WHY", Align::left, true},
                     {"A", Align::right},
                     {"B", Align::right},
                     {"CHANGE", Align::right},
                     {"UNCERTAINTY", Align::right, false, 1},
                     {"", Align::left, true}});
        for (const json& one : causes)
            table.add_row({words(one, "cause"), plain_duration(one, "a_ns", "/s"), plain_duration(one, "b_ns", "/s"),
                           signed_duration(one, "change_ns", "/s"), within(one, "/s"), verdict(one)});
        result += "\nTime beyond the usual, per second that was recorded, by cause\n" + table.render(style.width, 2);
    }
    const json& ops = list(answer, "ops");
    if (ops.empty()) return result;
    Table table({{"OPERATION", Align::left, true},
                 {"A", Align::right},
                 {"B", Align::right},
                 {"CHANGE", Align::right},
                 {"UNCERTAINTY", Align::right, false, 1},
                 {"CALLS IN B", Align::right, false, 2},
                 {"", Align::left, true}});
    size_t listed = 0;
    for (const json& one : ops) {
        if (listed++ == most_ops) break;
        table.add_row({words(one, "op"), duration(one, "a_mean_ns"), duration(one, "b_mean_ns"),
                       signed_duration(one, "change_ns", ""), within(one, ""), count(one, "b_calls"), verdict(one)});
    }
    return result + "\nMean time of a call, by operation\n" + table.render(style.width, 2);
}

}  // namespace ingero
