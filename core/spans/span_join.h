// Which calls overlap which spans, in sums: a sweep that never makes the pairs. A call that overlaps a span began
// before the span ended and did not end before the span began, so a span's sums are what began before its end less what
// ended before its start. O((calls + spans) log spans) time, O(spans) memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/time.h"

namespace ingero {

/// Added up modulo 2^64.
struct CallSums {
    enum Field : uint8_t {
        calls,
        launches,
        copies,
        collectives,
        syncs,
        allocations,
        errors,
        on_cpu_ns,
        device_wait_ns,
        runnable_ns,
        blocked_ns,
        duration_ns,
        fair_share_ns,  ///< each call's duration divided by the spans that it overlaps
    };
    static constexpr size_t fields = fair_share_ns + 1;

    std::array<uint64_t, fields> values{};
    uint64_t& operator[](Field field) { return values[field]; }
    uint64_t operator[](Field field) const { return values[field]; }
    CallSums& operator+=(const CallSums& other) {
        for (size_t i = 0; i < fields; ++i) values[i] += other.values[i];
        return *this;
    }
    CallSums& operator-=(const CallSums& other) {
        for (size_t i = 0; i < fields; ++i) values[i] -= other.values[i];
        return *this;
    }
};

/// What one span has of the calls around it.
struct JoinedSpan {
    CallSums sums;
    uint64_t co_resident = 0;             ///< other spans that overlap it
    std::optional<size_t> longest_stall;  ///< the tag of add_stall(); of equals the first added
    uint64_t stall_ns = 0;                ///< of it, what can lie inside the span
};

class SpanJoin {
  public:
    /// Half-open; an empty one counts as 1 ns. Answers are by place in this list.
    explicit SpanJoin(std::vector<Window> spans);

    /// A call in any order. Returns how many spans it overlaps. fair_share_ns is filled in here.
    uint64_t add(const Window& call, CallSums sums);
    /// A call that stalled for so long. A span's longest stall is the one of which most can lie inside it.
    void add_stall(const Window& call, uint64_t stalled_ns, size_t tag);
    /// Forgets the stalls that would be no span's longest, all but as many as there are spans. Gives the tags of those
    /// left; their new tags are their places in that list.
    std::vector<size_t> prune_stalls();
    std::vector<JoinedSpan> finish();

  private:
    struct Stall {
        uint64_t ns = 0;
        Window call;
        size_t tag = 0;
    };
    size_t ended_before_or_at(uint64_t time) const;
    size_t started_before(uint64_t time) const;
    struct Longest {
        uint64_t ns = 0;   ///< 0: none
        size_t stall = 0;  ///< its place in stalls_
    };
    static uint64_t possible_ns(const Stall& stall, const Window& span);
    /// By place of the span. Sorts stalls_, the longest first.
    std::vector<Longest> longest_stalls();
    void find_inside(std::vector<Longest>& longest) const;
    void find_across(std::vector<Longest>& longest) const;

    std::vector<Window> spans_;
    std::vector<uint64_t> starts_, ends_;  ///< each sorted
    std::vector<CallSums> began_, ended_;  ///< by place in ends_ and starts_: added from there on
    std::vector<Stall> stalls_;
};

}  // namespace ingero
