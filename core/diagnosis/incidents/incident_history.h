// Incidents as a store records them: their history, the rows around the evidence, and whether they are over for good.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/query/answers/wait_chains.h"
#include "core/store/store.h"

namespace ingero {

/// What happened to an incident. Times are CLOCK_REALTIME.
struct IncidentHistory {
    IncidentRow latest;  ///< says all; its times are CLOCK_MONOTONIC
    BootWindow boot;     ///< the whole of it
    uint64_t opened_ns = 0;
    uint64_t updated_ns = 0;
    std::optional<uint64_t> closed_ns;  ///< or when ingerod ended while it was open
    struct Step {
        IncidentEvent event = IncidentEvent::opened;
        uint64_t at_ns = 0;
        uint64_t lost_ns = 0;
    };
    std::vector<Step> steps;  ///< at most max_incident_steps, the latest
    std::string comm;         ///< of the process
    /// As the live diagnosis stored it; null where there is none.
    nlohmann::json finding;
};
inline constexpr size_t max_incident_steps = 64;

/// Those that were open at some time of the window, the one that lost the most first. Those that other tools found are
/// left out. Errors: those of the store.
Result<std::vector<IncidentHistory>> read_incidents(const StoreSnapshot& snapshot, const Filter& filter);
/// The one whose id begins so, among those of the user that `filter` names. Errors: not_found, bad_request (several).
Result<IncidentHistory> find_incident(const StoreSnapshot& snapshot, const Filter& filter, const std::string& id);

/// Gives each finding the id of the latest incident of its kind and process of which there is news in the window. Where
/// the rows of incidents cannot be read, findings have none.
void name_incidents(const StoreSnapshot& snapshot, const Filter& filter, std::vector<Finding>& ret_findings);

/// What was recorded around the worst of it.
struct IncidentDetail {
    Window around;                ///< CLOCK_MONOTONIC; empty where the incident says nothing of a worst call or wait
    std::vector<Event> rows;      ///< of its process, in order of start, at most max_incident_rows
    std::vector<Event> evidence;  ///< in order of start
    uint64_t worst = 0;           ///< sequence of the worst call or wait; 0: none
    std::vector<WaitChain> chains;
    bool is_empty() const { return rows.empty() && evidence.empty() && chains.empty(); }
};
inline constexpr size_t max_incident_rows = 80;

/// Errors: those of the store.
Result<IncidentDetail> read_incident_detail(const StoreSnapshot& snapshot, const Filter& filter,
                                            const IncidentHistory& incident);

enum class Fixed { yes, no, not_known };
std::string_view to_string(Fixed fixed);

/// Whether what would confirm that an incident is over holds on later calls of the same program.
struct IncidentVerified {
    Fixed fixed = Fixed::not_known;
    std::string why;
    Window fresh;  ///< CLOCK_REALTIME, what was looked at
    Coverage coverage;
    uint64_t calls = 0;  ///< of the program there; of a device fault, of its other processes
    uint64_t lost_ns = 0;
    double share = 0;  ///< of the fresh window
    double share_before = 0;
};

/// `fresh`: where it is empty, from the incident's end to the end of what is stored. What shows once in a run (memory
/// that leaks or is missing, faults of the device, hangs) is fixed only where a run since took as long as the one
/// before the incident, or an hour. Errors: those of the store.
Result<IncidentVerified> verify_incident(const StoreSnapshot& snapshot, const Filter& filter,
                                         const IncidentHistory& incident, Window fresh);

}  // namespace ingero
