// Requests, or steps, of a window: which calls overlap each, where their time went, and what stalled it longest.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/spans/span_join.h"
#include "core/store/rows/history.h"

namespace ingero {

/// Printed with every such answer, below the rows.
extern const char* const shared_calls_note;
extern const char* const ranking_note;

struct RequestsQuery {
    /// Spans that overlap the window, of the user; of a process: its calls, and the spans of the scope groups it is in.
    Filter filter;
    SpanKind kind = SpanKind::request;  ///< or step, or phase
    std::optional<std::string> id;      ///< only those; as it is, or as to_valid_utf8() makes it
    std::optional<std::string> hash;    ///< of that id: only those that are kept under either
    uint64_t slower_than_ns = 0;        ///< at least so long
    size_t limit = 20;                  ///< rows, the longest; 0: all
    bool with_occupants = true;
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

struct RequestStall {
    uint64_t ns = 0;   ///< off the CPU in one call, or without one between calls: what can lie inside the request
    std::string kind;  ///< what most of it was: "cpu-contention", "lock-wait", "device wait"
    Culprit culprit;   ///< name empty where nobody is known
    OpId op = 0;       ///< op_wait: between calls
    uint32_t pid = 0, tid = 0;
    uint64_t start_realtime_ns = 0;
    uint64_t sequence = 0;
};

/// Who had the engine while a request waited for its first token, or for its end where its span records none.
struct Occupant {
    std::string id;
    uint64_t ns = 0;   ///< its spans' overlap with the wait, each span for itself
    double share = 0;  ///< of all other spans' overlap with the wait
};

struct RequestStats {
    SpanRow span;
    uint64_t start_realtime_ns = 0;
    uint64_t duration_ns = 0;
    std::optional<uint64_t> queue_ns;  ///< from arrival to being scheduled
    std::optional<uint64_t> ttft_ns;   ///< from arrival to the first token
    CallSums sums;                     ///< of the calls that overlap it, a call inside another not for itself
    uint64_t co_resident = 0;          ///< other spans of its kind and scope group that overlap it
    std::optional<RequestStall> longest_stall;
    std::vector<Occupant> occupied_by;  ///< largest first
};

struct RequestsAnswer {
    Window window;
    Coverage coverage;  ///< of the window, and of what of the requests lies outside of it
    SpanKind kind = SpanKind::request;
    std::vector<RequestStats> requests;  ///< by measured duration, longest first
    uint64_t found = 0;                  ///< before the limit
    bool counts_collectives = false;     ///< calls of NCCL are in the store
};

/// A call that overlaps a request of its scope group.
struct RequestCall {
    uint32_t request = 0;  ///< its place among the requests
    uint32_t tgid = 0, tid = 0;
    OpId op = 0;
    int32_t return_code = 0;
    uint32_t weight = 1, time_weight = 1;  ///< the second: how often its times count, as in Event::times()
    uint32_t shared_by = 0;                ///< requests of the group that it overlaps
    uint64_t start_ns = 0;                 ///< CLOCK_MONOTONIC
    uint64_t duration_ns = 0;
    uint64_t overlap_ns = 0;  ///< of the duration, inside the request
    uint64_t on_cpu_ns = 0, runnable_ns = 0, blocked_ns = 0;
    uint64_t sequence = 0;
};

struct RequestCalls {
    std::vector<SpanRow> requests;
    std::vector<RequestCall> calls;
};

inline constexpr size_t max_request_calls = 1'000'000;

/// The calls of the boot's requests that overlap `wanted` (CLOCK_MONOTONIC), each pair for itself; calls inside of
/// others are left out, as in compute_requests(). Neither the query's window nor its limit holds. Errors: those of the
/// store; limit where there are more than max_request_calls.
Result<RequestCalls> list_request_calls(const StoreSnapshot& snapshot, const BootWindow& boot,
                                        const RequestsQuery& query, const Window& wanted);

/// Errors: those of the store; limit; deadline.
Result<RequestsAnswer> compute_requests(const StoreSnapshot& snapshot, const RequestsQuery& query);

}  // namespace ingero
