// What a store keeps besides calls: spans, incidents, state, the history of clocks, and the rollups that outlive calls.
// Texts are cut at 4,096 bytes, lists at the lengths named here. Times are CLOCK_MONOTONIC ns of the row's boot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/event.h"
#include "core/model/figures/quantile_sketch.h"
#include "core/model/time.h"

namespace ingero {

/// Numbers are stored: never used again for another.
enum class SpanKind : uint8_t {
    request = 1,
    step = 2,
    phase = 3,
    label = 4,
    sample = 5,
    scope = 6,
    not_kept = 7,  ///< written by a version that knows more kinds
};

inline constexpr size_t max_span_id_bytes = 128;
inline constexpr uint64_t max_span_ns = 24 * 3'600'000'000'000ULL;
inline constexpr size_t max_span_labels = 32;
inline constexpr size_t max_span_values = 32;

/// A span as a program reported it, and who reported it.
struct SpanRow {
    SpanKind kind = SpanKind::request;
    std::string id;  ///< opaque bytes, cut at max_span_id_bytes; may be empty
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    std::optional<uint64_t> first_token_ns;
    std::optional<uint64_t> scheduled_ns;
    std::optional<uint64_t> prompt_tokens;  ///< advisory: shown, never used for ranking
    std::optional<uint64_t> output_tokens;
    std::string model;
    std::vector<std::pair<std::string, std::string>> labels;
    std::vector<std::pair<std::string, double>> values;  ///< named numbers, such as a step's loss
    ProcessKey process;                                  ///< whose span it is
    uint32_t uid = 0;                                    ///< of that process
    std::string scope;                                   ///< the scope group; empty: the process alone
    uint64_t received_ns = 0;
    uint64_t number = 0;  ///< the store's, of all spans, incidents and states; 0: not read from one
};

enum class IncidentEvent : uint8_t {
    opened = 1,
    updated = 2,
    closed = 3,
    not_kept = 4,  ///< written by a version that knows more
};

inline constexpr size_t max_incident_culprits = 64;
inline constexpr size_t max_finding_bytes = 65'536;

/// The kind of what another tool found, in an imported trace: reported, and trusted in nothing.
inline constexpr std::string_view imported_finding = "imported-finding";

/// One event in an incident's life. Rows are only ever added: the history of an incident is all rows of its id.
struct IncidentRow {
    struct Culprit {
        std::string name;
        uint32_t pid = 0;
        uint64_t ns = 0;
        bool operator==(const Culprit&) const = default;
    };
    std::string id;
    IncidentEvent event = IncidentEvent::opened;
    uint64_t at_ns = 0;      ///< when this happened
    uint64_t opened_ns = 0;  ///< of the incident
    std::string kind;
    std::string severity;
    std::string verdict;
    std::string summary;
    ProcessKey process;  ///< the one that lost the time
    uint32_t uid = 0;    ///< of that process
    uint64_t lost_ns = 0;
    uint32_t explained_permille = 0;
    std::vector<Culprit> culprits;  ///< largest first
    std::string finding;            ///< JSON as `explain` gives it; one longer than max_finding_bytes is left out whole
    uint64_t number = 0;            ///< as of a span
};

inline constexpr size_t max_state_values = 1'024;
inline constexpr size_t max_state_texts = 64;

/// The state of the host or a GPU at one time.
struct StateRow {
    uint64_t time_ns = 0;
    std::string source;  ///< who measured, or what: "host", "gpu:UUID"
    std::vector<std::pair<std::string, double>> values;
    uint64_t number = 0;                                          ///< as of a span
    std::vector<std::pair<std::string, std::string>> texts = {};  ///< names that go with the values
};

/// The beginning of a state row as it lies in a store, and where the rest is. As long as its snapshot.
struct StateHead {
    uint64_t time_ns = 0;
    std::string_view source;
    uint64_t number = 0;
    std::string_view content;
};

/// The three clocks at one time: how the wall clock moved against the others.
struct ClockRow {
    uint32_t session = 0;  ///< its number in the store
    ClockTriple clock;
};

inline constexpr uint64_t rollup_minute_ns = 60'000'000'000;
/// Rows a minute and boot, besides those of `any process`: calls of further processes are summed together.
inline constexpr size_t max_rollup_rows = 1'024;

/// What is left of the calls of one op and process that began in one minute, once their rows have gone. The same sums
/// as compute_stats() makes of rows. A process of pid 0: several together, of no known user; losses are with it.
struct RollupRow {
    uint64_t minute_ns = 0;  ///< where the minute begins: a multiple of rollup_minute_ns
    OpId op = 0;
    ProcessKey process;
    uint32_t uid = UINT32_MAX;  ///< UINT32_MAX: not known
    uint64_t calls = 0;         ///< by weight, as all sums of calls
    uint64_t errors = 0;        ///< with a return code other than success
    uint64_t total_ns = 0;
    uint64_t max_ns = 0;
    uint64_t bytes = 0;      ///< copied or allocated
    uint64_t on_cpu_ns = 0;  ///< waiting for the device included
    uint64_t runnable_ns = 0;
    uint64_t blocked_ns = 0;
    uint64_t lost = 0;         ///< records
    uint64_t thinned = 0;      ///< calls that other records stand for
    QuantileSketch durations;  ///< by weight
};

}  // namespace ingero
