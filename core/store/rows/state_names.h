// The names of what is measured of GPUs and ports, each with the number that rows of a store have in place of it.
// Numbers are stored: never used again for another.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace ingero {

struct StateName {
    uint8_t number;
    std::string_view name;
};

inline constexpr auto state_names = std::to_array<StateName>({
    {1, "utilization_percent"},
    {2, "memory_utilization_percent"},
    {3, "memory_used_bytes"},
    {4, "memory_total_bytes"},
    {5, "graphics_clock_mhz"},
    {6, "sm_clock_mhz"},
    {7, "memory_clock_mhz"},
    {8, "max_sm_clock_mhz"},
    {9, "throttle_reasons"},
    {10, "temperature_celsius"},
    {11, "power_watts"},
    {12, "power_limit_watts"},
    {13, "ecc_corrected"},
    {14, "ecc_uncorrected"},
    {15, "remapped_rows_corrected"},
    {16, "remapped_rows_uncorrected"},
    {17, "remap_pending"},
    {18, "remap_failed"},
    {19, "pcie_sent_bytes_per_s"},
    {20, "pcie_received_bytes_per_s"},
    {21, "pcie_replays"},
    {22, "pcie_generation"},
    {23, "pcie_max_generation"},
    {24, "pcie_width"},
    {25, "pcie_max_width"},
    {26, "nvlinks_active"},
    {27, "nvlink_crc_errors"},
    {28, "nvlink_replays"},
    {29, "nvlink_recoveries"},
    {30, "numa_node"},
    {31, "gpu_index"},
    {32, "xid"},
    {33, "processes_running"},
    {40, "rate_bits_per_s"},
    {41, "symbol_errors"},
    {42, "link_recoveries"},
    {43, "link_downed"},
    {44, "receive_errors"},
    {45, "transmit_discards"},
    {46, "transmit_wait"},
    {47, "received_bytes"},
    {48, "sent_bytes"},
    {49, "out_of_sequence"},
    {50, "packet_sequence_errors"},
    {51, "local_ack_timeouts"},
});

/// 0 where there is none.
constexpr uint8_t number_of_state(std::string_view name) {
    const auto found =
        std::find_if(state_names.begin(), state_names.end(), [&](const StateName& one) { return one.name == name; });
    return found == state_names.end() ? uint8_t{0} : found->number;
}

/// Empty where there is none.
constexpr std::string_view state_of_number(uint8_t number) {
    const auto found = std::find_if(state_names.begin(), state_names.end(),
                                    [&](const StateName& one) { return one.number == number; });
    return found == state_names.end() ? std::string_view() : found->name;
}

/// What sources of state rows begin with; what follows says which one it is.
inline constexpr std::string_view gpu_source = "gpu:";              ///< UUID
inline constexpr std::string_view gpu_event_source = "gpu-event:";  ///< UUID
/// A text of rows of the second kind, and what it says: the GPU went, or came, while others were measured.
inline constexpr std::string_view gpu_change = "change", gpu_lost = "lost", gpu_found = "found";
inline constexpr std::string_view port_source = "port:";  ///< "mlx5_0/1"
/// Rows of a library or program that was attached to, or let go. Its path is of any user's making; a value says whose
/// it is, another that it is root's library, of which everybody may know.
inline constexpr std::string_view library_source = "library", library_path = "path", library_uid = "uid",
                                  library_is_systems = "system_wide";

}  // namespace ingero
