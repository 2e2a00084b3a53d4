// `ingeroctl gpus` as text.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/render/render.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;

namespace {

std::string with_unit(const json& object, const char* name, const char* unit) {
    const json& value = text::member(object, name);
    if (!value.is_number()) return text::absent;
    return format_count(static_cast<uint64_t>(std::max(value.get<double>(), 0.0) + 0.5)) + unit;
}

std::string reasons_text(const json& gpu) {
    const json& reasons = text::member(gpu, "throttle_reasons");
    if (!reasons.is_array()) return text::absent;
    std::string result;
    for (const json& reason : reasons)
        if (reason.is_string()) result += (result.empty() ? "" : ", ") + escape_text(reason.get<std::string>());
    return result.empty() ? "none" : result;
}

std::string memory_text(const json& gpu) {
    const std::string used = text::bytes(gpu, "memory_used_bytes"), total = text::bytes(gpu, "memory_total_bytes");
    return used == text::absent ? used : used + " of " + total;
}

std::string xid_text(const json& gpu, const TextStyle& style) {
    const json& xid = text::member(gpu, "last_xid");
    if (!xid.is_object()) return text::absent;
    return text::count(xid, "xid") + " at " + text::time(xid, "time_ns", style);
}

std::string presence_text(const json& gpu, const TextStyle& style) {
    if (text::member(gpu, "lost_ns").is_number()) return "lost at " + text::time(gpu, "lost_ns", style);
    if (text::member(gpu, "found_ns").is_number()) return "found at " + text::time(gpu, "found_ns", style);
    return text::absent;
}

std::string ports_text(const json& ports, const TextStyle& style) {
    Table table({{"PORT"},
                 {"STATE"},
                 {"RATE", Align::right},
                 {"SYMBOL ERRORS", Align::right, false, 2},
                 {"LINK DOWN", Align::right, false, 1},
                 {"RECEIVE ERRORS", Align::right, false, 2},
                 {"DISCARDS", Align::right, false, 1}});
    for (const json& port : ports) {
        const json& rate = text::member(port, "rate_bits_per_s");
        table.add_row({text::words(port, "port"), text::words(port, "state"),
                       rate.is_number() ? format_count(static_cast<uint64_t>(rate.get<double>() / 1e9)) + " Gbit/s"
                                        : std::string(text::absent),
                       text::count(port, "symbol_errors"), text::count(port, "link_downed"),
                       text::count(port, "receive_errors"), text::count(port, "transmit_discards")});
    }
    return table.render(style.width);
}

}  // namespace

std::string text_gpus(const json& answer, const TextStyle& style) {
    const json& gpus = text::list(answer, "gpus");
    const json& ports = text::list(answer, "ports");
    std::string result;
    if (gpus.empty()) {
        result = "No GPU was measured in this window: see ingero-relay(8).\n";
    } else {
        // Most hosts lose none, and have no such column.
        const bool any_changed = std::any_of(
            gpus.begin(), gpus.end(), [&](const json& gpu) { return presence_text(gpu, style) != text::absent; });
        std::vector<Column> columns = {{"GPU", Align::right},
                                       {"NAME", Align::left, true},
                                       {"BUSY", Align::right},
                                       {"MEMORY", Align::right},
                                       {"SM CLOCK", Align::right, false, 2},
                                       {"TEMPERATURE", Align::right, false, 3},
                                       {"POWER", Align::right, false, 3},
                                       {"THROTTLED BY", Align::left, true},
                                       {"LAST XID", Align::left, false, 1},
                                       {"MEASURED", Align::left, false, 4}};
        if (any_changed) columns.push_back({"STATE"});
        Table table(std::move(columns));
        for (const json& gpu : gpus) {
            // One that nothing was measured of has no number.
            const bool has_index = text::member(gpu, "index").is_number();
            std::vector<std::string> cells = {text::count(gpu, "index"),
                                              text::words(gpu, has_index ? "name" : "uuid"),
                                              with_unit(gpu, "utilization_percent", " %"),
                                              memory_text(gpu),
                                              with_unit(gpu, "sm_clock_mhz", " MHz"),
                                              with_unit(gpu, "temperature_celsius", " °C"),
                                              with_unit(gpu, "power_watts", " W"),
                                              reasons_text(gpu),
                                              xid_text(gpu, style),
                                              text::time(gpu, "time_ns", style)};
            if (any_changed) cells.push_back(presence_text(gpu, style));
            table.add_row(std::move(cells));
        }
        result = table.render(style.width);
    }
    if (!ports.empty()) result += "\n" + ports_text(ports, style);
    return result + "\n" + text::window_line(answer, style) + text::coverage_lines(answer, style);
}

}  // namespace ingero
