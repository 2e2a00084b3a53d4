// How long a call should have taken, from the other calls of its kind.
//
// Where a CPU hog runs all the time, every call is slow and the median duration hides the very thing looked for. So
// what is expected is built from the parts of a call that nobody else can inflate: the median time on the CPU, and, for
// calls whose purpose is to wait, the median time blocked. See Baseline.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/call_time.h"
#include "core/model/event.h"
#include "core/model/op.h"
#include "core/query/key_index.h"
#include "core/query/sampler.h"

namespace ingero {

/// How much history before the window counts, so that live and replayed verdicts agree.
inline constexpr uint64_t baseline_history_ns = 600ULL * 1'000'000'000;
/// Rows of calls of the same kind, besides the one judged, that it takes to know what is usual.
inline constexpr uint32_t enough_calls = 8;

/// A sleep that may be what the call is for, such as a driver's wait for its device, as against one that no call of
/// this op needs: disk, network file system, page faults, and locks in ops that wait for nothing. Sleeps of the second
/// kind are never part of what is expected, however usual they have become.
bool sleep_may_be_purpose(BlockedReason reason, const Op* op);

/// How long a call can have held its thread up by waiting: none of its sleeps for what it is called for, and of a wait
/// for the device its last time off the CPU at most. `sleeps_for_lock`: a futex that it slept on is a lock, and not
/// what it is woken by when the device is done.
uint64_t possible_delay_ns(const Event& call, const Op* op, bool sleeps_for_lock = false);

/// Median parts of the calls of one kind, each row as often as it stands for calls; first uses left out.
struct Baseline {
    uint64_t on_cpu_ns = 0;
    uint64_t blocked_ns = 0;  ///< in sleeps that may be the purpose
    uint64_t high_ns = 0;     ///< 95th percentile of how long the calls took in all
    uint32_t rows = 0;        ///< it was taken from, as far as they were kept: each is one observation, whatever it
                              ///< stands for
    uint64_t expected_ns() const { return saturating_add(on_cpu_ns, blocked_ns); }
};

/// A first use costs what others nearly never cost: no more than twice their 95th percentile is a call like any other.
constexpr bool is_cold(uint64_t duration_ns, const Baseline& baseline) {
    return duration_ns / 2 > baseline.high_ns;
}

struct Expectation {
    const Baseline* baseline = nullptr;  ///< nullptr: too few calls to know
    bool first_use = false;  ///< the first call of this function, or of this op, that is known of the process
};

/// Fed once with the calls of the window and of the history before it, in any order; asked after finish(). Holds at
/// most 65,536 kinds of call, which share 4,194,304 samples of 20 bytes, and of each kind 512: some 100 MiB. Kinds
/// beyond those get no expectation of their own.
class ExpectedTimes {
  public:
    ExpectedTimes();

    /// An outermost call whose split is certain. `op` is find_op(event.op), here and below.
    void add(const Event& event, const Op* op);
    void finish();
    Expectation of(const Event& event, const Op* op) const;

  private:
    /// A kind of call, or with `whole_op` all calls of an op by a process, or with `stream` 0 and `first_use` a
    /// function.
    struct Key {
        uint64_t process_start_ns = 0;
        uint64_t what = 0;  ///< function of a launch; power of two of the bytes copied or allocated; else 0
        uint64_t stream = 0;
        uint32_t tgid = 0;
        OpId op = 0;
        bool whole_op = false;
        bool operator==(const Key&) const = default;
        uint64_t hash() const {
            const uint64_t who = static_cast<uint64_t>(tgid) << 32 | static_cast<uint64_t>(op) << 1 | whole_op;
            return hash_words(process_start_ns, what, stream, who);
        }
    };
    /// Floats: 24 bits of precision are plenty for a median, and half the memory.
    struct Sample {
        float on_cpu_ns = 0;
        float purpose_ns = 0;    ///< blocked in a sleep that may be the purpose
        float disturbed_ns = 0;  ///< runnable, or blocked otherwise
        uint32_t calls = 1;      ///< that its row stands for
    };
    struct FirstCall {
        uint64_t start_ns = UINT64_MAX;
        uint64_t sequence = UINT64_MAX;
        auto operator<=>(const FirstCall&) const = default;
    };
    struct Kind {
        Sampler<Sample> samples;
        FirstCall first;
        Sample first_sample;  ///< kept apart until it is known whether it is a first use
        uint32_t whole_op = KeyIndex<Key>::none;
        uint32_t function = KeyIndex<Key>::none;
        bool waits_for_device = false;
        Baseline baseline;
    };

    static Key key_of(const Event& event, const Op* op);
    uint32_t kind_of(const Event& event, const Op* op);
    void add_kind(const Op* op);
    void keep(Kind& kind, uint64_t sequence, const Sample& sample);
    static Baseline baseline_of(const Kind& kind);

    KeyIndex<Key> keys_;
    std::vector<Kind> kinds_;
    size_t room_;  ///< for so many kinds, with as many samples each
    uint32_t most_samples_;
    KeyIndex<Key> functions_;
    std::vector<FirstCall> first_uses_;
};

}  // namespace ingero
