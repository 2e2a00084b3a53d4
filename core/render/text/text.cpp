#include "core/render/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/model/time.h"
#include "core/render/table.h"

namespace ingero {

using nlohmann::json;

namespace text {

const json& member(const json& object, const char* key) {
    static const json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found != object.end() ? *found : null;
}

const json& list(const json& object, const char* key) {
    static const json empty = json::array();
    const json& value = member(object, key);
    return value.is_array() ? value : empty;
}

std::optional<uint64_t> number(const json& object, const char* key) {
    const json& value = member(object, key);
    if (value.is_number_unsigned()) return value.get<uint64_t>();
    // A JSON text parsed elsewhere may hold the same number as a signed one.
    if (value.is_number_integer() && value.get<int64_t>() >= 0) return static_cast<uint64_t>(value.get<int64_t>());
    return std::nullopt;
}

std::optional<double> fraction(const json& object, const char* key) {
    const json& value = member(object, key);
    if (!value.is_number()) return std::nullopt;
    const double result = value.get<double>();
    return std::isfinite(result) ? std::optional(result) : std::nullopt;
}

bool flag(const json& object, const char* key) {
    const json& value = member(object, key);
    return value.is_boolean() && value.get<bool>();
}

std::string words_or_empty(const json& object, const char* key) {
    const json& value = member(object, key);
    return value.is_string() ? escape_text(value.get_ref<const std::string&>()) : "";
}

std::string words(const json& object, const char* key) {
    std::string result = words_or_empty(object, key);
    return result.empty() ? absent : result;
}

std::string count(const json& object, const char* key) {
    const auto value = number(object, key);
    return value ? format_count(*value) : absent;
}

std::string duration(const json& object, const char* key) {
    const auto value = number(object, key);
    return value ? format_duration(*value) : absent;
}

std::string bytes(const json& object, const char* key) {
    const auto value = number(object, key);
    return value ? format_bytes(*value) : absent;
}

std::string time(const json& object, const char* key, const TextStyle& style) {
    const auto value = number(object, key);
    if (!value) return absent;
    if (!style.short_times) return format_time(*value);
    // A recording reads the same on any day.
    return format_short_time(*value, style.db.empty() ? ClockTriple::now().realtime_ns : 0);
}

std::string moment(const json& object, const char* key, const TextStyle& style) {
    const auto value = number(object, key);
    if (!value || !style.short_times) return time(object, key, style);
    const std::string ms = std::to_string(1'000 + *value / 1'000'000 % 1'000);
    return time(object, key, style) + "." + ms.substr(1);
}

std::string process(const json& object, const char* name_key, const char* pid_key) {
    const std::string name = words_or_empty(object, name_key);
    const auto pid = number(object, pid_key);
    if (!pid) return name.empty() ? absent : name;
    return name.empty() ? "pid " + std::to_string(*pid) : name + " (" + std::to_string(*pid) + ")";
}

std::string paint(std::string text, Colour colour, const TextStyle& style) {
    constexpr std::array<const char*, 7> codes = {"", "1", "2", "1;31", "33", "32", "36"};
    if (!style.colour || colour == Colour::none) return text;
    return std::string("\x1b[") + codes.at(static_cast<size_t>(colour)) + "m" + text + "\x1b[0m";
}

Colour severity_colour(std::string_view severity) {
    if (severity == "high") return Colour::red;
    return severity == "medium" ? Colour::yellow : Colour::cyan;
}

std::string upper(std::string text) {
    for (char& c : text)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return text;
}

std::string joined(const json& list, const char* separator) {
    std::string result;
    for (const json& item : list)
        if (item.is_string()) result += (result.empty() ? "" : separator) + escape_text(item.get<std::string>());
    return result;
}

uint64_t gaps_ns(const json& answer, const Window& window, bool all) {
    std::vector<Window> gaps;
    for (const json& gap : list(member(answer, "coverage"), "gaps")) {
        const auto from = number(gap, "from_ns"), to = number(gap, "to_ns");
        if (from && to && (all || !flag(gap, "partial")))
            gaps.push_back({std::max(*from, window.from_ns), std::min(*to, window.to_ns)});
    }
    std::sort(gaps.begin(), gaps.end(), [](const Window& a, const Window& b) { return a.from_ns < b.from_ns; });
    uint64_t total_ns = 0, until_ns = 0;
    for (const Window& gap : gaps) {
        total_ns += Window{std::max(gap.from_ns, until_ns), gap.to_ns}.length_ns();
        until_ns = std::max(until_ns, gap.to_ns);
    }
    return total_ns;
}

namespace {

std::string gaps_text(const json& answer) {
    const json& window = member(answer, "window");
    const auto from = number(window, "from_ns"), to = number(window, "to_ns");
    if (!from || !to) return "";
    const Window whole{*from, *to};
    const uint64_t missing_ns = gaps_ns(answer, whole, false), partial_ns = gaps_ns(answer, whole, true) - missing_ns;
    if (missing_ns != 0 && missing_ns == whole.length_ns()) return "nothing recorded";
    if (missing_ns != 0 && partial_ns != 0)
        return "nothing recorded for " + format_duration(missing_ns) + ", incomplete for " +
               format_duration(partial_ns);
    if (missing_ns != 0) return "nothing recorded for " + format_duration(missing_ns);
    if (partial_ns == 0) return "";
    return partial_ns == whole.length_ns() ? "incomplete" : "incomplete for " + format_duration(partial_ns);
}

/// Empty where all was recorded.
std::string recorded_text(const json& answer, const TextStyle& style) {
    const json& coverage = member(answer, "coverage");
    if (!coverage.is_object() || flag(coverage, "complete")) return "";
    std::string result = gaps_text(answer);
    const auto add = [&](const std::string& text) { result += (result.empty() ? "" : ", ") + text; };
    if (const auto lost = number(coverage, "lost"); lost && *lost != 0)
        add(format_count(*lost, "event lost", "events lost"));
    if (const auto left_out = number(coverage, "sampled_out"); left_out && *left_out != 0)
        add(format_count(*left_out) + " sampled out");
    if (result.empty()) result = "incomplete";
    const bool has_more = !style.coverage && !list(coverage, "gaps").empty();
    return paint(result, Colour::yellow, style) + (has_more ? " (--coverage)" : "");
}

/// In words, where the code of the reason says less than they do.
std::string gap_reason(const json& gap) {
    const std::string reason = words_or_empty(gap, "reason");
    constexpr std::pair<std::string_view, std::string_view> words_of[] = {
        {"refused: ", "not traced: "},
        {"excluded: ", "not traced: "},
        {"imported: ", "imported trace: "},
        {"late-attach: ", "probes not attached yet: "},
        {"turned-off: ", "turned off: "},
        {"too-many: ", "limit reached: "},
        {"sliced: ", "recorded in time slices: "},
    };
    for (const auto& [code, said] : words_of)
        if (reason.starts_with(code)) return std::string(said) + reason.substr(code.size());
    return reason;
}

std::string gap_lines(const json& gaps, const TextStyle& style) {
    std::string result;
    for (const json& gap : gaps) {
        const std::string reason = gap_reason(gap);
        const std::string line = (flag(gap, "partial") ? "incomplete from " : "nothing recorded from ") +
                                 moment(gap, "from_ns", style) + " to " + moment(gap, "to_ns", style) +
                                 (reason.empty() ? "" : ": " + reason);
        result += "  " + wrap_text(line, style.width, 4) + "\n";
    }
    return result;
}

}  // namespace

std::string window_line(const json& answer, const TextStyle& style) {
    const json& window = member(answer, "window");
    const auto from = number(window, "from_ns");
    const auto to = number(window, "to_ns");
    std::string result = words(answer, "node") + ", " + time(window, "from_ns", style) + " to ";
    result += from && to && style.short_times ? format_short_time(*to, *from) : time(window, "to_ns", style);
    if (from && to && *to >= *from) result += " (" + format_duration(*to - *from) + ")";
    const std::string recorded = recorded_text(answer, style);
    if (!recorded.empty()) result += ": " + recorded;
    return wrap_text(result, style.width, 2) + "\n";
}

std::string recorded_line(const json& answer, const TextStyle& style) {
    const std::string recorded = recorded_text(answer, style);
    return recorded.empty() ? recorded : "Coverage  " + wrap_text(recorded, style.width, 10) + "\n";
}

std::string coverage_lines(const json& answer, const TextStyle& style) {
    std::string result = style.coverage ? gap_lines(list(member(answer, "coverage"), "gaps"), style) : "";
    std::string names;
    for (const json& probe : list(answer, "missing_probes"))
        if (probe.is_string()) names += (names.empty() ? "" : ", ") + escape_text(probe.get_ref<const std::string&>());
    if (!names.empty())
        result +=
            paint("Probes    not attached:", Colour::yellow, style) + " " + wrap_text(names, style.width, 10) + "\n";
    const json& gaps = list(member(answer, "coverage"), "gaps");
    if (std::any_of(gaps.begin(), gaps.end(),
                    [](const json& gap) { return words(gap, "reason").starts_with("sliced: "); }))
        result += "Slices    " +
                  wrap_text(
                      "hot calls were recorded for a small part of the time only: their counts and total times are "
                      "estimates, and most slow ones were missed (--coverage)",
                      style.width, 10) +
                  "\n";
    return result;
}

namespace {

Colour state_colour(const std::string& state) {
    if (state == "tracing" || state == "idle") return Colour::green;
    return state == "starting" ? Colour::yellow : Colour::red;
}

std::string rate(const json& object, const char* key) {
    const auto value = fraction(object, key);
    if (!value || *value < 0 || *value > 1e15) return absent;
    return format_count(static_cast<uint64_t>(std::llround(*value)));
}

std::string overhead_text(const json& overhead, const TextStyle& style) {
    const auto measured = fraction(overhead, "measured_permille"), budget = fraction(overhead, "budget_permille");
    const auto percent = [](double permille) { return format_percent(permille / 1000); };
    std::string result = measured ? percent(*measured) + " of the traced threads' time" : "not measured";
    if (budget && *budget > 0 && !measured) {
        result += ", the budget is " + percent(*budget);
    } else if (budget && *budget > 0) {
        const bool is_over = *measured > *budget;
        result += ", " + (is_over ? paint("OVER", Colour::yellow, style) : std::string("within")) + " the budget of " +
                  percent(*budget);
    } else {
        result += ", no budget";
    }
    std::string thinned;
    for (const json& op : list(overhead, "thinned"))
        thinned += (thinned.empty() ? ": " : ", ") + words(op, "op") + " recorded 1 in " + rate(op, "weight");
    if (const uint64_t processes = number(overhead, "in_slices").value_or(0); processes != 0)
        thinned += "; " + std::to_string(processes) + (processes == 1 ? " process" : " processes") +
                   " recorded in time slices, see 'ingeroctl processes'";
    return result + thinned;
}

/// Of a process whose tracing exceeds the overhead budget, however few of its calls are recorded.
std::string slices_line(const json& process, const TextStyle& style) {
    const json& slices = member(process, "slices");
    if (!slices.is_object()) return {};
    const std::string exceeds =
        "Tracing process " + std::to_string(number(process, "pid").value_or(0)) + " exceeds the overhead budget: ";
    if (list(slices, "ops").empty()) return wrap_text(exceeds + words(slices, "reason"), style.width, 2) + "\n";
    std::string ops;
    for (const json& op : list(slices, "ops")) ops += (ops.empty() ? "" : ", ") + escape_text(op.get<std::string>());
    const auto share = fraction(slices, "share");
    std::string seen = share ? "for " + format_percent(*share) + " of the time" : "in time slices";
    if (const auto error = fraction(slices, "count_error")) seen += ", counts accurate to " + format_percent(*error);
    return wrap_text(exceeds + ops + " recorded " + seen, style.width, 2) + "\n";
}

std::string store_text(const json& store, const TextStyle& style) {
    std::string result = bytes(store, "bytes") + " of " + bytes(store, "cap_bytes");
    return number(store, "oldest_ns") ? result + ", since " + time(store, "oldest_ns", style) : result + ", empty";
}

/// Always reports what is missing; the figures of the works with all details.
std::string events_lines(const json& events, const TextStyle& style) {
    const auto shows = [&](const char* key) { return number(events, key).value_or(0) != 0 || style.details; };
    const auto lost = number(events, "lost").value_or(0);
    std::string result;
    // Null where the caller sees only processes of their own.
    if (number(events, "recorded")) result += format_count(*number(events, "recorded"), "event, ", "events, ");
    result += lost == 0 ? "none lost" : paint(format_count(lost) + " lost", Colour::yellow, style);
    if (shows("sampled_out")) result += ", " + count(events, "sampled_out") + " sampled out";
    if (shows("stacks_lost"))
        result += ", " + format_count(number(events, "stacks_lost").value_or(0), "stack lost", "stacks lost");
    if (shows("names_lost"))
        result +=
            ", " + format_count(number(events, "names_lost").value_or(0), "function name lost", "function names lost");
    if (style.details && number(events, "recorded"))
        result += ", " + count(events, "split_uncertain") + " with an estimated time split, last stored event " +
                  count(events, "committed");
    return "Recorded  " + wrap_text(result, style.width, 10) + "\n";
}

std::string devices_text(const json& devices) {
    std::string result;
    for (const json& device : devices) {
        if (!device.is_number_unsigned()) continue;
        result += (result.empty() ? "" : ",") + std::to_string(device.get<uint64_t>());
    }
    return result.empty() ? absent : result;
}

/// A part of a duration, as a share of it: "-" where nothing was spent at all.
std::string share(const json& op, const char* key) {
    const auto part = number(op, key);
    const auto whole = number(op, "total_ns");
    if (!part || !whole || *whole == 0) return absent;
    return format_percent(static_cast<double>(*part) / static_cast<double>(*whole));
}

/// "cudaMalloc of 4242: 3 times cudaErrorMemoryAllocation (2)".
std::string error_lines(const json& ops, const TextStyle& style) {
    std::string lines;
    for (const json& op : ops) {
        std::string codes;
        for (const json& code : list(op, "error_codes"))
            codes += (codes.empty() ? "" : ", ") + count(code, "count") + " times " + words(code, "name");
        if (codes.empty()) continue;
        lines += wrap_text(words(op, "op") + " of " + process(op, "comm", "pid") + ": " + codes, style.width, 2) + "\n";
    }
    return lines.empty() ? "" : "\n" + paint(lines, Colour::red, style);
}

std::string spans_text(const json& spans) {
    std::string result = count(spans, "accepted") + " accepted, " +
                         format_count(number(spans, "connections").value_or(0), "program", "programs") + " connected";
    if (const json& refused = member(spans, "refused"); refused.is_object() && !refused.empty()) {
        std::string reasons;
        for (const auto& [why, number] : refused.items())
            reasons += (reasons.empty() ? "" : ", ") + std::to_string(number.is_number() ? number.get<uint64_t>() : 0) +
                       " " + escape_text(why);
        result += "; refused: " + reasons;
    }
    if (const json& dropped = member(spans, "dropped"); dropped.is_number() && dropped != 0)
        result += "; dropped for lack of room: " + count(spans, "dropped");
    return result;
}

/// Nothing where there is no relay.
std::string relay_lines(const json& relay, const TextStyle& style) {
    if (!flag(relay, "connected")) return "";
    const json& sources = member(relay, "sources");
    std::string result;
    for (const auto& [key, title] : {std::pair("gpus", "GPUs      "), std::pair("ports", "Ports     ")}) {
        const json& source = member(sources, key);
        if (!source.is_object()) continue;
        const std::string reason = words_or_empty(source, "reason");
        result +=
            title + wrap_text(words(source, "state") + (reason.empty() ? "" : ": " + reason), style.width, 10) + "\n";
    }
    if (const json& dropped = member(relay, "dropped"); dropped.is_number() && dropped != 0)
        result += "          " + count(relay, "dropped") + " measurements dropped for lack of room\n";
    return result;
}

}  // namespace

}  // namespace text

std::string text_status(const json& answer, const TextStyle& style) {
    const std::string state = text::words(answer, "state");
    const json& events = text::member(answer, "events");
    const auto uptime = text::number(answer, "uptime_ns");
    const auto processes = text::number(answer, "processes").value_or(0),
               incidents = text::number(answer, "incidents_open").value_or(0);
    // Null where the caller sees only processes of their own.
    const bool of_all_users = !text::member(events, "recorded").is_null();
    std::string result =
        wrap_text("ingerod " + text::words(answer, "version") + " on " + text::words(answer, "node") + ": " +
                      text::paint(state, text::state_colour(state), style) + (state == "tracing" ? " " : ", ") +
                      (of_all_users ? format_count(processes, "process", "processes")
                                    : format_count(processes) + " of your processes") +
                      ", up " + (uptime ? format_span(*uptime) : text::absent),
                  style.width, 2) +
        "\n";
    if (state == "degraded")
        result += text::paint("Degraded", text::Colour::yellow, style) +
                  "  'ingeroctl check' shows the reason and what to do\n";
    result += "Incidents " +
              (incidents == 0 ? std::string("none open")
                              : text::paint(format_count(incidents) + " open", text::Colour::bold, style) +
                                    " (ingeroctl incidents)") +
              "\n";
    result +=
        "Overhead  " + wrap_text(text::overhead_text(text::member(answer, "overhead"), style), style.width, 10) + "\n";
    result += text::events_lines(events, style);
    result += "Store     " + text::store_text(text::member(answer, "store"), style) + "\n";
    if (!of_all_users)
        result += "Hidden    " +
                  wrap_text("what other users' programs do: root and members of group ingero see it", style.width, 10) +
                  "\n";
    const json& spans = text::member(answer, "spans");
    const bool has_spans = text::number(spans, "accepted").value_or(0) != 0 ||
                           !text::member(spans, "refused").empty() || text::number(spans, "dropped").value_or(0) != 0;
    if (of_all_users && (has_spans || style.details))
        result += "Spans     " + wrap_text(text::spans_text(spans), style.width, 10) + "\n";
    result += text::relay_lines(text::member(answer, "relay"), style);
    if (style.details)
        result += "Memory    " + text::bytes(answer, "memory_bytes") + "\nSockets   " + text::count(answer, "sockets") +
                  " listening\n";
    // The lines above report what was lost.
    result += text::coverage_lines(answer, style);
    return result + (style.details ? "" : "Details: ingeroctl status --all\n");
}

namespace {

/// Of a container's id, as container tools show it.
constexpr size_t short_container_id = 12;

std::string job_text(const json& process) {
    for (const char* name : {"pod_name", "pod_uid", "ecs_task"})
        if (const std::string text = text::words(process, name); text != text::absent) return text;
    const std::string job = text::words(process, "slurm_job"), step = text::words(process, "slurm_step");
    return step == text::absent ? job : job + "." + step;
}

}  // namespace

std::string text_processes(const json& answer, const TextStyle& style) {
    const json& processes = text::list(answer, "processes");
    std::string result;
    if (processes.empty()) {
        result = "No traced process that you may see on node " + text::words(answer, "node") + "\n";
    } else {
        Table table({{"PID", Align::right},
                     {"COMMAND"},
                     {"STATE"},
                     {"STARTED", Align::left, false, 3},
                     {"CALLS/S", Align::right, false, 1},
                     {"GPU MEMORY", Align::right, false, 2},
                     {"RANK", Align::right, false, 1},
                     {"DEVICES", Align::left, false, 4},
                     {"UNIT", Align::left, true, 1},
                     {"JOB", Align::left, true, 4},
                     {"CONTAINER", Align::left, true, 5},
                     {"COMMAND LINE", Align::left, true, 6}});
        for (const json& process : processes) {
            std::string rank = text::count(process, "rank");
            if (text::number(process, "world_size")) rank += "/" + text::count(process, "world_size");
            const auto pid = text::number(process, "pid");
            table.add_row({pid ? std::to_string(*pid) : text::absent, text::words(process, "comm"),
                           text::words(process, "state"), text::time(process, "start_time_ns", style),
                           text::rate(process, "calls_per_s"), text::bytes(process, "gpu_memory_bytes"), rank,
                           text::devices_text(text::list(process, "devices")), text::words(process, "unit"),
                           job_text(process), text::words(process, "container").substr(0, short_container_id),
                           text::words(process, "command")});
        }
        result = table.render(style.width);
        for (const json& process : processes) result += text::slices_line(process, style);
    }
    return result + text::recorded_line(answer, style) + text::coverage_lines(answer, style);
}

std::string text_stats(const json& answer, const TextStyle& style) {
    const json& ops = text::list(answer, "ops");
    const std::string window = text::window_line(answer, style) + text::coverage_lines(answer, style);
    if (ops.empty()) return "No traced call in this window\n" + window;
    const bool by_kernel = text::words(answer, "by") == "kernel";
    Table table({{by_kernel ? "KERNEL" : "OPERATION", Align::left, true},
                 {"PID", Align::right},
                 {"CALLS", Align::right},
                 {"ERRORS", Align::right, false, 2},
                 {"P50", Align::right},
                 {"P95", Align::right, false, 3},
                 {"P99", Align::right},
                 {"MAX", Align::right},
                 {"TOTAL", Align::right},
                 {"ON CPU", Align::right, false, 4},
                 {"DEVICE", Align::right, false, 4},
                 {"NO CPU", Align::right, false, 4},
                 {"ASLEEP", Align::right, false, 4},
                 {"BYTES", Align::right, false, 5}});
    for (const json& op : ops) {
        const auto pid = text::number(op, "pid");
        const std::string name = !by_kernel                               ? text::words(op, "op")
                                 : text::member(op, "kernel").is_string() ? text::words(op, "kernel")
                                                                          : "(not known)";
        table.add_row({name, pid ? std::to_string(*pid) : text::absent, text::count(op, "count"),
                       text::count(op, "errors"), text::duration(op, "p50_ns"), text::duration(op, "p95_ns"),
                       text::duration(op, "p99_ns"), text::duration(op, "max_ns"), text::duration(op, "total_ns"),
                       text::share(op, "on_cpu_ns"), text::share(op, "device_wait_ns"), text::share(op, "runnable_ns"),
                       text::share(op, "blocked_ns"), text::bytes(op, "bytes")});
    }
    const bool approximate = std::any_of(ops.begin(), ops.end(), [](const json& op) {
        const json& value = text::member(op, "approximate");
        return value.is_boolean() && value.get<bool>();
    });
    return table.render(style.width) + (approximate ? "Percentiles are within 0.8 %.\n" : "") +
           text::error_lines(ops, style) + "\n" + window;
}

}  // namespace ingero
