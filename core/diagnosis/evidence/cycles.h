// What waiting cost a program, as against how long it waited.
//
// A thread that feeds a device runs ahead of it, and the device works on while the thread is off the CPU. So what a
// wait cost is seen in the thread's cycles only: from the return of one wait for the device to the return of the next
// of its kind. A cycle is held against the cycles of that thread in which nothing can have delayed it, and what it is
// longer by is shared among the waits in it, up to what each can have cost.
//
// A wait for the device that goes on for a moment after its thread was back on a CPU shows that the device had not been
// done: the waits inside that call cost nothing. One that returns at once may have been held up for its last time off
// the CPU.
//
// A thread that waits for no device loses what it waits. But where one thread of a process gives the device work and
// another waits for it, what was given before may have lasted meanwhile: of the first it is not known what it lost.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "core/diagnosis/assign.h"
#include "core/model/event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/query/key_index.h"
#include "core/query/sampler.h"
#include "core/query/thread_key.h"

namespace ingero {

/// What a cycle was longer by, or shorter, in ns: low_ns <= point_ns <= high_ns.
struct CycleLoss {
    int64_t low_ns = 0;
    int64_t point_ns = 0;
    int64_t high_ns = 0;

    void add(const CycleLoss& other);
    bool is_nothing() const { return low_ns == 0 && point_ns == 0 && high_ns == 0; }
};

/// What the causes of one cycle, or of one call outside any, cost the thread.
struct ThreadLoss {
    ProcessKey process;
    uint32_t tid = 0;
    uint64_t sequence = 0;   ///< of its last call; 0: of a cycle that has not ended
    uint64_t last_call = 0;  ///< the same of any cycle
    std::array<CycleLoss, finding_causes> causes;
    std::array<bool, finding_causes> between_calls{};  ///< some of what has this cause passed there
};

/// How long a call can have held its thread up by waiting: none of its sleeps for what it is called for, and of a wait
/// for the device its last time off the CPU at most. `sleeps_for_lock`: a futex that it slept on is a lock, and not
/// what it is woken by when the device is done.
uint64_t possible_delay_ns(const Event& call, const Op* op, bool sleeps_for_lock = false);

/// Fed twice with the outermost calls of a window, the first time with those of the history before it too; blocks in
/// the order in which they were recorded, rows of a block in any. Bounded, some 100 MiB at most: it keeps 1,024 threads
/// from one learnt block to the next, and of each the four kinds of waits for the device in which it waits most. Where
/// there are more threads it forgets first those that called longest before the window.
class Cycles {
  public:
    explicit Cycles(const Window& window);

    void learn(const Event& call, const Op* op);
    /// A wait of a thread between its calls.
    void learn_gap_wait(const ProcessKey& process, uint32_t tid, const Window& time);
    void end_learnt_block();
    void finish_learning();

    /// A call of the window. `assignment`: of one that took longer than is usual.
    void judge(const Event& call, const Op* op, const Assignment* assignment);
    /// Whether a thread has cycles, so that what it waits between its calls is known to cost something. Once learnt.
    bool has_cycles(const ProcessKey& process, uint32_t tid) const;
    /// A wait between calls of a thread that has cycles. It is of a cycle once the thread calls again.
    void judge_gap_wait(const Event& wait, const Assignment& assignment);
    /// Appends what was lost in cycles that have ended.
    void end_judged_block(std::vector<ThreadLoss>& ret_losses);
    /// What is left of cycles that have not.
    void finish(std::vector<ThreadLoss>& ret_losses);

  private:
    /// In ns. Floats: a median needs no more.
    struct Cycle {
        float length = 0;
        float delay = 0;             ///< that its waits can have made up
        float delay_for_device = 0;  ///< of it, without a CPU in waits for the device
    };
    /// How long a cycle takes of itself.
    struct Length {
        uint64_t least_ns = 0;
        uint64_t usual_ns = 0;
        uint64_t most_ns = 0;
        uint64_t alike_from_ns = 0;  ///< shorter ones are of other work
    };
    struct Kind {
        uint64_t what = 0;
        uint64_t from_ns = 0;  ///< of the cycle under way; 0: none is
        uint64_t delay_ns = 0;
        uint64_t delay_for_device_ns = 0;
        bool is_certain = true;
        uint64_t waited_ns = 0;  ///< in these calls
        // Of the cycle in which the window begins: since when, and what delayed it before.
        uint64_t entered_ns = 0;
        uint64_t entered_delay_ns = 0;
        bool entered_certain = true;
        uint64_t returns = 0;  ///< in the window
        uint64_t disturbed = 0, undisturbed = 0;
        uint64_t disturbed_inside = 0, undisturbed_inside = 0;  ///< the window: they count before the history's
        Sampler<float> undisturbed_lengths;
        Sampler<float> lengths_inside;  ///< of undisturbed ones
        Sampler<Cycle> cycles;
        Sampler<Cycle, 128> cycles_inside;
        std::optional<Length> length;
    };
    /// Delays of the cycle under way by cause; the last: of other causes.
    using Delays = std::array<uint64_t, finding_causes + 1>;
    struct Thread {
        std::vector<Kind> kinds;
        std::vector<Window> gap_waits;
        std::optional<Length> length;  ///< of the cycles that count: nothing where there are none
        uint64_t pacing = 0;           ///< the kind of wait for the device that ends them
        bool feeds_device = false;     ///< it waits for one, or may have before it was forgotten
        bool enqueues = false;         ///< some call that was held up gave a device work
        uint64_t learnt_until_ns = 0;  ///< when the latest ended that was learnt of it
        // While judging, of the cycle under way.
        uint64_t from_ns = 0;
        uint64_t last_ns = 0;
        uint64_t last_sequence = 0;
        bool is_certain = true;
        size_t next_gap = 0;
        Delays delays{};
        Delays gap_delays{};   ///< the part of them between calls
        Delays next_delays{};  ///< since the last call, which are none of these yet
        // Of those that ended.
        int64_t lost_ns = 0;
        uint64_t delayed_ns = 0;
    };
    struct Learnt {
        uint32_t thread = 0;
        bool is_certain = true;
        uint64_t start_ns = 0, end_ns = 0;
        uint64_t delay_ns = 0;
        uint64_t delay_for_device_ns = 0;
        uint64_t sequence = 0;
        uint64_t what = 0;  ///< of waits for the device; 0: another call
    };
    struct Judged {
        Learnt call;
        Delays delays{};
        bool is_gap_wait = false;
    };

    uint32_t thread_of(const ProcessKey& process, uint32_t tid);
    /// Where the thread waits for a device, others of its process may give that one work ahead.
    void note_waits(const ProcessKey& process, const Thread& thread);
    void take(Thread& thread, const Learnt& call) const;
    /// Forgets threads where there are too many.
    void make_room();
    void end_cycle(Kind& kind, const Learnt& call) const;
    /// A call outside any cycle.
    static void add_loss(const ProcessKey& process, uint32_t tid, const Judged& judged, bool is_lost,
                         std::vector<ThreadLoss>& ret_losses);
    static float alike_from(const Kind& kind);
    static std::optional<Length> length_of(const Kind& kind);
    static Delays delays_of(const Assignment& assignment);
    static uint64_t sum(const Delays& delays);
    static void add(Delays& sums, const Delays& delays);
    uint64_t gaps_ns(Thread& thread, const Window& cycle) const;
    /// The cycle under way ends, or the window does.
    void settle(uint32_t number, bool has_ended, std::vector<ThreadLoss>& ret_losses);

    Window window_;
    KeyIndex<ThreadKey> index_;
    std::vector<Thread> threads_;
    ThreadKey last_;
    uint32_t last_number_ = KeyIndex<ThreadKey>::none;
    size_t gap_waits_ = 0;
    std::vector<Learnt> learnt_;
    std::vector<Judged> judged_;
    bool forgot_callers_ = false;        ///< of the window: a thread that is not known may be one of them
    std::set<ProcessKey> waiting_;       ///< processes of which some thread waits for a device; all, once learnt
    std::vector<ThreadLoss> of_others_;  ///< threads that there was no room for
};

}  // namespace ingero
