#include "core/query/answers/gpus.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/query/coverage.h"
#include "core/store/rows/state_names.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

// nvml.h: nvmlClocksEventReason*
constexpr std::string_view reason_names[] = {"gpu_idle",
                                             "applications_clocks_setting",
                                             "sw_power_cap",
                                             "hw_slowdown",
                                             "sync_boost",
                                             "sw_thermal_slowdown",
                                             "hw_thermal_slowdown",
                                             "hw_power_brake_slowdown",
                                             "display_clock_setting"};

constexpr std::string_view gpu_values[] = {"utilization_percent",
                                           "memory_utilization_percent",
                                           "memory_used_bytes",
                                           "memory_total_bytes",
                                           "graphics_clock_mhz",
                                           "sm_clock_mhz",
                                           "memory_clock_mhz",
                                           "max_sm_clock_mhz",
                                           "temperature_celsius",
                                           "power_watts",
                                           "power_limit_watts",
                                           "ecc_corrected",
                                           "ecc_uncorrected",
                                           "remapped_rows_corrected",
                                           "remapped_rows_uncorrected",
                                           "remap_pending",
                                           "remap_failed",
                                           "pcie_sent_bytes_per_s",
                                           "pcie_received_bytes_per_s",
                                           "pcie_replays",
                                           "pcie_generation",
                                           "pcie_max_generation",
                                           "pcie_width",
                                           "pcie_max_width",
                                           "nvlinks_active",
                                           "nvlink_crc_errors",
                                           "nvlink_replays",
                                           "nvlink_recoveries",
                                           "numa_node",
                                           "processes_running"};
constexpr std::string_view port_values[] = {"rate_bits_per_s", "symbol_errors",          "link_recoveries",
                                            "link_downed",     "receive_errors",         "transmit_discards",
                                            "transmit_wait",   "received_bytes",         "sent_bytes",
                                            "out_of_sequence", "packet_sequence_errors", "local_ack_timeouts"};

std::optional<double> value_of(const StateRow& row, std::string_view name) {
    for (const auto& [known, value] : row.values)
        if (known == name) return value;
    return std::nullopt;
}

/// A whole number as one, so that it reads as it was.
json number_of(const StateRow& row, std::string_view name) {
    const auto value = value_of(row, name);
    if (!value) return nullptr;
    constexpr double exact = 9'007'199'254'740'992;
    const bool fraction = name.ends_with("_watts");
    if (!fraction && *value >= 0 && *value <= exact) return static_cast<uint64_t>(*value);
    return std::isfinite(*value) ? json(*value) : json();
}

json text_of(const StateRow& row, std::string_view name) {
    for (const auto& [known, text] : row.texts)
        if (known == name && !text.empty()) return to_valid_utf8(text);
    return nullptr;
}

/// The latest row of a source. Undecoded: all but the last one are only looked at.
struct Seen {
    StateHead head;
    ClockTriple clock;
    std::string node;

    uint64_t time_ns() const { return clock.to_realtime(head.time_ns); }
};

/// What happened to a GPU within the window.
struct Happened {
    std::string node;
    uint64_t latest_ns = 0;
    uint64_t xids = 0;
    uint64_t xid = 0;  ///< the last one
    uint64_t xid_ns = 0;
    std::optional<uint64_t> lost_ns, found_ns;  ///< the last time

    void take(const StateRow& row, uint64_t time_ns) {
        latest_ns = time_ns;
        if (const json number = number_of(row, "xid"); number.is_number_unsigned()) {
            xid = number.get<uint64_t>();
            xid_ns = time_ns;
            ++xids;
        }
        const json change = text_of(row, gpu_change);
        if (change == gpu_lost) lost_ns = time_ns;
        if (change == gpu_found) found_ns = time_ns;
    }
};

json gpu_json(const std::string& uuid, const StateRow& row, uint64_t time_ns, const std::string& node,
              const Happened& happened) {
    // One that is measured after it was lost is there again.
    const bool is_lost = happened.lost_ns && happened.lost_ns > happened.found_ns && *happened.lost_ns >= time_ns;
    json gpu = {{"uuid", to_valid_utf8(uuid)},
                {"index", number_of(row, "gpu_index")},
                {"name", text_of(row, "name")},
                {"pci", text_of(row, "pci")},
                {"local_cpus", text_of(row, "local_cpus")},
                {"node", node},
                {"time_ns", time_ns},
                {"lost_ns", is_lost ? json(*happened.lost_ns) : json()},
                {"found_ns", happened.found_ns ? json(*happened.found_ns) : json()},
                {"throttle_reasons", nullptr},
                {"processes", gpu_processes(row)},
                {"last_xid", nullptr},
                {"xids", happened.xids}};
    for (const std::string_view name : gpu_values) gpu[std::string(name)] = number_of(row, name);
    if (const auto bits = value_of(row, "throttle_reasons"); bits && *bits >= 0 && *bits < 1.8e19)
        gpu["throttle_reasons"] = throttle_reason_names(static_cast<uint64_t>(*bits));
    if (happened.xids != 0) gpu["last_xid"] = {{"xid", happened.xid}, {"time_ns", happened.xid_ns}};
    return gpu;
}

json port_json(const std::string& port, const Seen& seen, const StateRow& row) {
    json result = {{"port", to_valid_utf8(port)},
                   {"node", seen.node},
                   {"time_ns", seen.time_ns()},
                   {"state", text_of(row, "state")},
                   {"physical_state", text_of(row, "physical_state")},
                   {"link_layer", text_of(row, "link_layer")}};
    for (const std::string_view name : port_values) result[std::string(name)] = number_of(row, name);
    return result;
}

}  // namespace

std::vector<std::string> throttle_reason_names(uint64_t bits) {
    std::vector<std::string> names;
    for (unsigned bit = 0; bit < 64; ++bit) {
        if ((bits >> bit & 1) == 0) continue;
        names.push_back(bit < std::size(reason_names) ? std::string(reason_names[bit]) : "bit-" + std::to_string(bit));
    }
    return names;
}

json gpu_processes(const StateRow& row) {
    json processes = json::array();
    for (const auto& [name, text] : row.texts) {
        const json list = name == "processes" ? json::parse(text, nullptr, false) : json();
        for (const json& one : list) {
            // Rows written before they were short have maps.
            const json pid = one.is_array() && one.size() == 2 ? one[0]
                             : one.is_object()                 ? one.value("pid", json())
                                                               : json();
            const json bytes = one.is_array() && one.size() == 2 ? one[1]
                               : one.is_object()                 ? one.value("memory_bytes", json())
                                                                 : json();
            if (pid.is_number_unsigned())
                processes.push_back({{"pid", pid}, {"memory_bytes", bytes.is_number_unsigned() ? bytes : json()}});
        }
    }
    return processes;
}

namespace {

class Walk {
  public:
    explicit Walk(const StoreSnapshot& snapshot) : snapshot_(snapshot) {}

    Result<void> over(const BootWindow& boot) {
        std::string node;
        for (const Session& session : snapshot_.sessions())
            if (session.boot_index == boot.boot_index) node = session.node;
        std::optional<Error> error;
        auto scanned = snapshot_.scan_states(boot.boot_index, boot.monotonic, [&](const StateHead& head) {
            const std::string_view source = head.source;
            if (source.starts_with(gpu_source)) {
                keep(gpus, source.substr(gpu_source.size()), head, boot, node);
            } else if (source.starts_with(port_source)) {
                keep(ports, source.substr(port_source.size()), head, boot, node);
            } else if (source.starts_with(gpu_event_source)) {
                auto row = read_state(head);
                if (!row) error = row.error();
                Happened& happened = events[std::string(source.substr(gpu_event_source.size()))];
                happened.node = node;
                if (row) happened.take(*row, boot.clock.to_realtime(row->time_ns));
            }
            return !error;
        });
        if (!scanned) return scanned;
        if (error) return tl::unexpected(*error);
        return {};
    }

    std::map<std::string, Seen, std::less<>> gpus, ports;
    std::map<std::string, Happened> events;

  private:
    static void keep(std::map<std::string, Seen, std::less<>>& kept, std::string_view which, const StateHead& head,
                     const BootWindow& boot, const std::string& node) {
        auto found = kept.find(which);
        if (found == kept.end()) found = kept.emplace(std::string(which), Seen()).first;
        found->second = {head, boot.clock, node};
    }

    const StoreSnapshot& snapshot_;
};

/// By number; those without one last.
void sort_by_index(json::array_t& gpus) {
    const auto index = [](const json& gpu) {
        return gpu["index"].is_number_unsigned() ? gpu["index"].get<uint64_t>() : UINT64_MAX;
    };
    std::stable_sort(gpus.begin(), gpus.end(), [&](const json& a, const json& b) { return index(a) < index(b); });
}

bool has_process(const json& gpu, uint32_t pid) {
    return std::any_of(gpu["processes"].begin(), gpu["processes"].end(),
                       [&](const json& process) { return process["pid"] == pid; });
}

}  // namespace

Result<json> latest_gpus(const StoreSnapshot& snapshot, Window realtime, std::optional<uint32_t> pid) {
    Walk walk(snapshot);
    for (const BootWindow& boot : boot_windows(snapshot, realtime))
        if (auto walked = walk.over(boot); !walked) return tl::unexpected(walked.error());
    json answer = {{"gpus", json::array()}, {"ports", json::array()}};
    for (const auto& [uuid, seen] : walk.gpus) {
        const auto row = read_state(seen.head);
        if (!row) return tl::unexpected(row.error());
        json gpu = gpu_json(uuid, *row, seen.time_ns(), seen.node, walk.events[uuid]);
        if (!pid || has_process(gpu, *pid)) answer["gpus"].push_back(std::move(gpu));
        walk.events.erase(uuid);
    }
    // Lost, or at fault, before it was measured in the window.
    for (const auto& [uuid, happened] : walk.events)
        if (!pid) answer["gpus"].push_back(gpu_json(uuid, {}, happened.latest_ns, happened.node, happened));
    sort_by_index(answer["gpus"].get_ref<json::array_t&>());
    if (pid) return answer;
    for (const auto& [port, seen] : walk.ports) {
        const auto row = read_state(seen.head);
        if (!row) return tl::unexpected(row.error());
        answer["ports"].push_back(port_json(port, seen, *row));
    }
    return answer;
}

}  // namespace ingero
