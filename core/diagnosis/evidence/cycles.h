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
// another waits for it, what was given before may have lasted meanwhile, and it is not known what the first lost.
// Unless the other, the one that waits for the process's devices, sleeps meanwhile until the first wakes it, as in
// PyTorch's backward passes: then it waits for the first, and what held that one up during the sleep is of its cycles.
// The sleep itself holds nothing up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
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
    bool has_others = false;                           ///< what held up threads that work for it is in it
};

/// Fed twice with the outermost calls of a window, the first time with those of the history before it too; blocks in
/// the order in which they were recorded, rows of a block in any. CPUs are read one after the other, and what was read
/// is stored in parts, so a row may have ended before some of a block before: by up to two seconds. Bounded, some 100
/// MiB at most: it keeps 1,024 threads from one learnt block to the next, and of each the four kinds of waits for the
/// device in which it waits most. Where there are more threads it forgets first those that called longest before the
/// window.
class Cycles {
  public:
    explicit Cycles(const Window& window);

    void learn(const Event& call, const Op* op);
    /// A wait of a thread between its calls: when, what for and who ended it.
    void learn_gap_wait(const Event& wait);
    void end_learnt_block();
    void finish_learning();

    /// A call of the window. `assignment`: of one that took longer than is usual.
    void judge(const Event& call, const Op* op, const Assignment* assignment);
    /// Whether a thread has cycles, so that what it waits between its calls is known to cost something. Once learnt.
    bool has_cycles(const ProcessKey& process, uint32_t tid) const;
    /// A wait between calls of a thread that has cycles. It is of a cycle once the thread calls again.
    void judge_gap_wait(const Event& wait, const Assignment& assignment);
    /// The same wait, as far as its thread slept: others may have worked for it meanwhile.
    void judge_sleep(const Event& wait);
    /// Appends what was lost in cycles of which all rows have come.
    void end_judged_block(std::vector<ThreadLoss>& ret_losses);
    /// What is left of cycles that have not.
    void finish(std::vector<ThreadLoss>& ret_losses);

  private:
    /// Calls and waits of threads that work for one, until it sleeps or waits.
    static constexpr size_t max_others = 4'096;

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
    /// Who waits for the devices of a process, as far as was learnt. The map has some for its whole life.
    struct Waits {
        uint32_t tid = 0;        ///< the thread that waits most
        uint64_t waited_ns = 0;  ///< of all_ns
        uint64_t all_ns = 0;
    };
    /// Delays of the cycle under way by cause; the last: of other causes.
    using Delays = std::array<uint64_t, finding_causes + 1>;
    struct Learnt {
        uint32_t of = 0;      ///< the thread
        uint32_t thread = 0;  ///< in whose cycles it counts: itself, or the one that waits for what it gives the device
        bool is_certain = true;
        uint64_t start_ns = 0, end_ns = 0;
        uint64_t delay_ns = 0;
        uint64_t delay_for_device_ns = 0;
        uint64_t sequence = 0;
        uint64_t what = 0;  ///< of waits for the device; 0: another call, or none
        // Of a wait between calls.
        bool is_gap_wait = false;
        bool may_be_idle = false;   ///< it slept where one does that waits to be asked
        bool is_for_other = false;  ///< it slept until one woke it that works for it
        uint32_t waker = 0;         ///< from a futex, of its process; 0: none, or not known
        uint64_t slept_ns = 0;      ///< at its beginning
        bool is_of_others() const { return of != thread; }
    };
    /// Ends of rows.
    struct Settled {
        uint64_t latest_ns = 0;
        uint64_t taken_ns = 0;
    };
    struct Judged {
        Learnt call;
        Delays delays{};
        bool is_sleep = false;  ///< in which others may have worked for the thread
    };
    struct Thread {
        std::vector<Kind> kinds;
        std::vector<Window> gap_waits;
        std::optional<Length> length;  ///< of the cycles that count: nothing where there are none
        uint64_t pacing = 0;           ///< the kind of wait for the device that ends them
        bool feeds_device = false;     ///< it waits for one, or may have before it was forgotten
        bool enqueues = false;         ///< some call that was held up gave a device work
        bool leads = false;            ///< others give its device work for it
        uint64_t leads_from_ns = 0;    ///< what it slept before counts as if none did
        uint64_t devices = 0;          ///< it enqueued on, a bit each; the highest: of others, or not known
        uint64_t waited_for = 0;       ///< the same of waits
        uint64_t waited_ns = 0;        ///< for the device
        Waits* waits = nullptr;        ///< of its process; nullptr: not looked up yet, or no room
        uint64_t learnt_until_ns = 0;  ///< when the latest ended that was learnt of it
        uint32_t leader = 0;           ///< whose cycles what delays it is of; itself, where it is of no others'
        std::vector<Learnt> others;    ///< what held up those, and ended since its last sleep or wait for the device
        // While judging, of the cycle under way.
        std::vector<Judged> judged_others;
        uint64_t from_ns = 0;
        uint64_t last_ns = 0;
        uint64_t last_sequence = 0;
        bool is_certain = true;
        size_t next_gap = 0;
        Delays delays{};
        Delays gap_delays{};   ///< the part of them between calls
        Delays next_delays{};  ///< since the last call, which are none of these yet
        Delays next_others{};  ///< of others, in its sleeps since then
        std::array<bool, finding_causes> between_calls{};
        // Of those that ended.
        int64_t lost_ns = 0;
        uint64_t delayed_ns = 0;
    };
    /// Of waits for the device; 0: another call.
    static uint64_t kind_of(const Event& call, const Op* op);
    static Learnt gap_wait(const Event& wait);
    uint32_t thread_of(const ProcessKey& process, uint32_t tid);
    void note_wait(const Learnt& call);
    void take_gap_wait(Learnt& ret_wait);
    void keep_gap_wait(Thread& thread, const Learnt& wait);
    bool is_for_other(const Learnt& wait) const;
    /// The part of another's call or wait in which the thread slept.
    static Window in_sleep(const Learnt& other, const Learnt& sleep);
    /// Up to what end rows are taken in order, now that a block has come; 0: none are.
    static uint64_t settled_ns(Settled& settled, uint64_t latest_ns, size_t held);
    /// Those that ended by then.
    void take_learnt(uint64_t until_ns);
    void take_judged(uint64_t until_ns, std::vector<ThreadLoss>& ret_losses);
    /// The thread of its process that waits for what it gives the device; itself, where none or several do.
    uint32_t find_leader(uint32_t number);
    void take(Thread& thread, Learnt call);
    static bool is_before(const Learnt& a, const Learnt& b);
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
    void take_sleep(Thread& thread, const Judged& sleep, std::vector<ThreadLoss>& ret_losses);
    /// What held up others is none of its cycles.
    void leave_others(Thread& thread, bool has_ended, std::vector<ThreadLoss>& ret_losses);
    /// The cycle under way ends, or the window does.
    void settle(uint32_t number, bool has_ended, std::vector<ThreadLoss>& ret_losses);

    Window window_;
    KeyIndex<ThreadKey> index_;
    std::vector<Thread> threads_;
    ThreadKey last_;
    uint32_t last_number_ = KeyIndex<ThreadKey>::none;
    size_t gap_waits_ = 0;
    std::vector<Learnt> learnt_;
    size_t held_ = 0;  ///< the first so many are of earlier blocks
    std::vector<Judged> judged_;
    Settled learnt_until_, judged_until_;
    bool forgot_callers_ = false;        ///< of the window: a thread that is not known may be one of them
    std::map<ProcessKey, Waits> waits_;  ///< of processes of which some thread waits for a device
    std::vector<ThreadLoss> of_others_;  ///< threads that there was no room for
};

}  // namespace ingero
