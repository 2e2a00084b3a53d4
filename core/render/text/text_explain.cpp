#include <algorithm>
#include <array>
#include <utility>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/detector.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using text::Colour;
using text::labelled;
using text::split_line;

namespace {

constexpr size_t label_width = 14;  ///< two spaces, the label, padding
constexpr double hardly_any = 0.01;
constexpr size_t most_culprits = 4;

struct Part {
    const char* key;
    const char* name;
    char mark;
};

constexpr std::array<Part, 4> parts = {{{"on_cpu_ns", "on CPU", '#'},
                                        {"device_wait_ns", "device", '='},
                                        {"runnable_ns", "no CPU", '.'},
                                        {"blocked_ns", "asleep", '-'}}};

uint64_t part_ns(const json& split, const Part& part) {
    // A sum of four must not overflow, whatever a store claims.
    return std::min(text::number(split, part.key).value_or(0), UINT64_MAX / 8);
}

double part_of(uint64_t ns, uint64_t whole_ns) {
    return whole_ns == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(whole_ns);
}

}  // namespace

std::string text::labelled(std::string_view label, std::string_view value, const TextStyle& style) {
    std::string line = "  " + std::string(label);
    line.resize(std::max(line.size() + 1, label_width), ' ');
    return line + wrap_text(value, style.width, label_width) + "\n";
}

std::string text::split_line(const json& split) {
    constexpr double cells = 24;
    uint64_t whole = 0;
    for (const Part& part : parts) whole += part_ns(split, part);
    if (whole == 0) return "";
    std::string bar;
    std::string legend;
    double position = 0;
    for (const Part& part : parts) {
        const double share = part_of(part_ns(split, part), whole);
        position += share * cells;
        const auto end = static_cast<size_t>(position + 0.5);
        if (end > bar.size()) bar.resize(end, part.mark);
        if (share >= hardly_any) legend += (legend.empty() ? "" : ", ") + format_percent(share) + " " + part.name;
    }
    return "[" + bar + "] " + legend;
}

std::string text::main_part(const json& split) {
    const auto largest = std::max_element(parts.begin(), parts.end(), [&](const Part& a, const Part& b) {
        return part_ns(split, a) < part_ns(split, b);
    });
    uint64_t whole = 0;
    for (const Part& part : parts) whole += part_ns(split, part);
    if (whole == 0) return absent;
    return largest->name + std::string(" ") + format_percent(part_of(part_ns(split, *largest), whole));
}

namespace {

std::string waker_text(const json& waker) {
    if (!waker.is_object()) return "";
    const std::string who = text::process(waker, "name", "pid");
    const std::string kind = text::words(waker, "kind");
    return ", woken by " + (kind == "interrupt" ? "an interrupt" : who);
}

/// `named`: the culprit that the finding begins with.
std::string worst_lines(const json& call, const std::string& named, const TextStyle& style) {
    if (!call.is_object()) return "";
    // The worst may be a wait between calls, where no call was held up.
    const bool is_wait = text::words(call, "op") == op_name(op_wait);
    std::string line = text::moment(call, "start_ns", style) + " " +
                       (is_wait ? "between its calls" : text::words(call, "op")) + " " +
                       text::duration(call, "duration_ns");
    if (!is_wait && text::number(call, "expected_ns")) line += ", usually " + text::duration(call, "expected_ns");
    const auto tid = text::number(call, "tid");
    if (tid && style.details) line += ", thread " + std::to_string(*tid);
    std::string result = labelled(is_wait ? "Worst wait" : "Worst call", line, style);
    const auto add = [&](const std::string& more) {
        if (!more.empty()) result += labelled("", more, style);
    };
    add(text::split_line(text::member(call, "split")));
    if (const json& other = text::member(call, "ran_instead"); other.is_object())
        if (const std::string who = text::process(other, "name", "pid"); who != named || style.details)
            add(who + " had the CPU for " + text::duration(other, "ns"));
    if (const json& wait = text::member(call, "waited_for"); wait.is_object())
        add("asleep for " + text::duration(wait, "ns") + ": " + text::words(wait, "reason") +
            waker_text(text::member(wait, "waker")));
    if (text::flag(call, "split_uncertain")) add("a context switch was missed: this time split is an estimate");
    return result;
}

bool is_contention(const std::string& kind) {
    return kind == to_string(Cause::cpu_contention) || kind == to_string(Cause::noisy_neighbour);
}

/// The names of ranks have the pid already.
std::string culprit_name(const json& culprit) {
    const std::string name = text::words(culprit, "name");
    const auto pid = text::number(culprit, "pid");
    return pid && name.find("pid " + std::to_string(*pid) + ")") != std::string::npos
               ? name
               : text::process(culprit, "name", "pid");
}

/// What is nothing beside the first is left out, as is what there is no room for.
std::string culprit_line(const json& finding, const TextStyle& style) {
    const json& culprits = text::list(finding, "culprits");
    const std::string kind = text::words(finding, "kind");
    const bool is_named = kind == to_string(Cause::own_io_wait) || kind == to_string(Cause::memory_reclaim);
    if (culprits.empty() || (is_named && culprits.size() == 1)) return "";
    const auto first_ns = text::number(culprits.front(), "ns").value_or(0);
    std::string result;
    size_t listed = 0, more = 0;
    for (const json& culprit : culprits) {
        const auto ns = text::number(culprit, "ns").value_or(0);
        if (!style.details && first_ns != 0 && part_of(ns, first_ns) < hardly_any) continue;
        if (!style.details && listed == most_culprits) {
            ++more;
            continue;
        }
        ++listed;
        result += (result.empty() ? "" : ", ") + culprit_name(culprit) + (ns == 0 ? "" : " " + format_duration(ns));
    }
    if (more != 0) result += ", and " + std::to_string(more) + " more";
    const bool by_quota = text::words(culprits.front(), "name") == quota_name;
    return labelled(!is_contention(kind) ? "Culprits" : by_quota ? "Limited by" : "Took CPU", result, style);
}

std::string rejected_line(const json& finding, const TextStyle& style) {
    const uint64_t most_ns =
        std::max(text::number(finding, "waited_ns").value_or(0), text::number(finding, "lost_ns").value_or(0));
    std::string result;
    for (const json& one : text::list(finding, "rejected")) {
        const bool is_much = most_ns == 0 || part_of(text::number(one, "ns").value_or(0), most_ns) >= hardly_any;
        if (!style.details && !is_much) continue;
        result += (result.empty() ? "" : ", ") + text::words(one, "hypothesis") + " " + text::duration(one, "ns");
    }
    return result.empty() ? "" : labelled("Other time", result, style);
}

/// The summary without what it cost, which has a line of its own.
std::string summary_of(const json& finding) {
    std::string summary = text::words(finding, "summary");
    if (const size_t from = summary.find("; that cost the program "); from != std::string::npos)
        summary.erase(from, std::min(summary.find(';', from + 1), summary.size()) - from);
    return summary;
}

/// What happened, in one sentence without figures; the summary where that says it best.
std::string headline(const json& finding) {
    const std::string summary = summary_of(finding), kind = text::words(finding, "kind"),
                      who = text::process(finding, "comm", "pid");
    const json& culprits = text::list(finding, "culprits");
    if (text::words(finding, "verdict") != "proven" || culprits.empty()) return summary;
    const json& culprit = culprits.front();
    const std::string name = text::process(culprit, "name", "pid");
    if (is_contention(kind) && name == quota_name) return "the CPU quota of its cgroup throttled " + who;
    const auto pid = text::number(culprit, "pid");
    const bool is_own = pid && pid == text::number(finding, "pid");
    if (is_contention(kind) && is_own) return "other threads of " + who + " kept the CPU from it";
    const bool is_most = text::number(culprit, "ns").value_or(0) >= text::number(finding, "waited_ns").value_or(0) / 2;
    if (is_contention(kind)) return name + (is_most ? "" : " and others") + " kept the CPU from " + who;
    // The worst may be a wait between calls.
    const std::string op = text::words_or_empty(text::member(finding, "timeline"), "op"),
                      waited = who + " waited " + (op.empty() || op == op_name(op_wait) ? "" : "in " + op + " ");
    if (kind == to_string(Cause::own_io_wait))
        return waited + (name == "disk" ? "for the disk" : "for a network file system");
    if (kind == to_string(Cause::memory_reclaim)) return waited + "for memory pages";
    if (kind != to_string(Cause::lock_wait)) return summary;
    if (!pid || *pid == 0) return waited + "for a lock";
    return waited + "for a lock that " + (is_own ? "its own threads" : name) + " released";
}

/// "29 to 36 %".
std::string percent_range(double low, double high) {
    const std::string from = format_percent(low), to = format_percent(high);
    return from == to || low == 0 ? to : from.substr(0, from.size() - 2) + " to " + to;
}

std::string cost_line(const json& finding, const TextStyle& style) {
    const auto lost = text::number(finding, "lost_ns").value_or(0),
               low = text::number(finding, "lost_low_ns").value_or(lost),
               high = text::number(finding, "lost_high_ns").value_or(lost),
               waited = text::number(finding, "waited_ns").value_or(0);
    if (high == 0 && waited == 0) return "";
    std::string line = "too little to measure";
    // Requests overlap: what they lost is no part of the window.
    if (text::words(finding, "kind") == "slow-request")
        return labelled("Slower by", format_duration(lost) + " in total over these requests", style);
    if (high != 0) {
        const std::string least = format_duration(low), most = format_duration(high);
        line = low == 0 ? "at most " + most : least == most ? most : least + " to " + most;
        if (const auto share = text::fraction(finding, "window_share"); lost != 0 && share && *share > 0) {
            const double of_ns = *share / static_cast<double>(lost);
            line += ", " + percent_range(static_cast<double>(low) * of_ns, static_cast<double>(high) * of_ns) +
                    " of the time";
        }
    }
    if (waited != 0 && waited != lost) line += "; waited " + format_duration(waited);
    return labelled("Slower by", line, style);
}

std::string evidence_line(const json& finding, const TextStyle& style) {
    const std::string verdict = text::words(finding, "verdict");
    const auto explained = text::fraction(finding, "explained_fraction");
    std::string line =
        text::words(finding, "kind") + ", " + (verdict == "insufficient-evidence" ? "insufficient evidence" : verdict);
    if (explained && verdict != "insufficient-evidence")
        line += ", " + format_percent(*explained) + " of the time explained";
    const size_t listed = text::list(finding, "evidence").size();
    const std::string events = listed < max_evidence ? format_count(listed, "event", "events")
                                                     : "the worst " + std::to_string(listed) + " events";
    return labelled("Evidence", line + "; " + events + "; finding " + text::words(finding, "id"), style);
}

/// Of a rank that waited for one that keeps coming last, and for nobody else: the finding of that one, which then
/// reports it. nullptr where that is not sure, or it lost less.
const json* reported_with(const json& finding, const json& findings) {
    const json& culprits = text::list(finding, "culprits");
    if (text::words(finding, "kind") != "collective-wait" || culprits.size() != 1) return nullptr;
    const auto pid = text::number(culprits.front(), "pid");
    const json* found = nullptr;
    for (const json& straggler : findings) {
        if (text::words(straggler, "kind") != "straggler" || !pid || text::number(straggler, "pid") != pid) continue;
        // One process may be a rank of several communicators.
        if (found) return nullptr;
        found = &straggler;
    }
    if (!found || !text::words(*found, "summary").starts_with(text::words(culprits.front(), "name"))) return nullptr;
    const auto lost_ns = [](const json& one) { return text::number(one, "lost_ns").value_or(0); };
    return lost_ns(finding) <= lost_ns(*found) ? found : nullptr;
}

std::string waiters_line(const json& findings, const json& straggler, const TextStyle& style) {
    std::string result;
    for (const json& finding : findings)
        if (reported_with(finding, findings) == &straggler)
            result += (result.empty() ? "" : ", ") + text::process(finding, "comm", "pid") + " " +
                      text::duration(finding, "lost_ns");
    return result.empty() ? "" : labelled("Waited", result, style);
}

/// So much of an incident's id names it.
constexpr size_t short_id = 8;

std::string finding_text(const json& finding, const json& findings, const TextStyle& style) {
    const std::string severity = text::upper(text::words(finding, "severity"));
    std::string result =
        text::paint(severity, text::severity_colour(text::words(finding, "severity")), style) + "  " +
        text::paint(wrap_text(headline(finding), style.width, severity.size() + 2), Colour::bold, style) + "\n";
    const json& culprits = text::list(finding, "culprits");
    const std::string named = culprits.empty() ? "" : text::process(culprits.front(), "name", "pid");
    result += cost_line(finding, style) + culprit_line(finding, style) +
              (style.details ? "" : waiters_line(findings, finding, style)) +
              worst_lines(text::member(finding, "timeline"), named, style) + rejected_line(finding, style);
    const auto add = [&](const char* label, const char* key) {
        const std::string value = text::words_or_empty(finding, key);
        if (!value.empty()) result += labelled(label, value, style);
    };
    add("Fix", "fix");
    const std::string incident = text::words_or_empty(finding, "incident");
    if (!incident.empty())
        result += labelled("Check",
                           "ingeroctl " + (style.db.empty() ? "" : "--db " + escape_text(style.db) + " ") +
                               "explain --verify " + incident.substr(0, short_id),
                           style);
    else
        add("Check", "confirm");
    return result + evidence_line(finding, style);
}

std::string looked_at(const json& answer, const TextStyle& style) {
    std::string result = format_count(text::number(answer, "calls").value_or(0), "call", "calls") + " together took " +
                         text::duration(answer, "excess_ns") + " longer than usual";
    const auto excess = text::number(answer, "excess_ns");
    const auto explained = text::number(answer, "explained_ns");
    if (excess && explained && *excess > 0)
        result += ", " + format_percent(part_of(*explained, *excess)) + " of it explained";
    if (!text::list(answer, "slow_calls").empty() && !style.details) result += ". Slowest: --all";
    return wrap_text(result, style.width, 2) + "\n";
}

std::string sentence(std::string text) {
    return text.empty() ? text : text.replace(0, 1, text::upper(text.substr(0, 1)));
}

/// What the summary says besides the first finding's: of other findings, and of what was not inspected.
std::string rest_of_summary(const json& answer) {
    const std::string summary = text::words_or_empty(answer, "summary"),
                      first = text::words_or_empty(text::list(answer, "findings").front(), "summary");
    const size_t from = summary.starts_with(first) ? summary.find("; ", first.size()) : std::string::npos;
    if (from == std::string::npos) return "";
    return sentence(summary.substr(from + 2));
}

std::string slow_calls_text(const json& calls, const TextStyle& style) {
    if (calls.empty()) return "";
    Table table({{"OPERATION", Align::left, true},
                 {"PROCESS", Align::left, true},
                 {"STARTED", Align::left, false, 3},
                 {"TOOK", Align::right},
                 {"USUALLY", Align::right, false, 1},
                 {"EXPLAINED", Align::right, false, 2},
                 {"MAINLY", Align::left}});
    for (const json& call : calls) {
        const auto explained = text::fraction(call, "explained_fraction");
        table.add_row({text::words(call, "op"), text::process(call, "comm", "pid"),
                       text::moment(call, "start_ns", style), text::duration(call, "duration_ns"),
                       text::duration(call, "expected_ns"), explained ? format_percent(*explained) : text::absent,
                       text::main_part(text::member(call, "split"))});
    }
    return "\nSlowest calls\n" + table.render(style.width, 2);
}

}  // namespace

std::string text_explain(const json& answer, const TextStyle& style) {
    const json& findings = text::list(answer, "findings");
    std::string result;
    if (findings.empty()) {
        const Colour colour = text::flag(answer, "healthy") ? Colour::green : Colour::yellow;
        result = text::paint(wrap_text(sentence(text::words(answer, "summary")), style.width, 0), colour, style) + "\n";
    }
    for (const json& finding : findings)
        if (style.details || !reported_with(finding, findings)) result += finding_text(finding, findings, style) + "\n";
    if (!findings.empty()) {
        result += looked_at(answer, style);
        if (const std::string rest = rest_of_summary(answer); !rest.empty())
            result += wrap_text(rest, style.width, 2) + "\n";
    }
    result += text::window_line(answer, style) + text::coverage_lines(answer, style);
    return result + (style.details ? slow_calls_text(text::list(answer, "slow_calls"), style) : "");
}

}  // namespace ingero
