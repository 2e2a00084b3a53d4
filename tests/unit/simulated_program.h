// A program that feeds a device, alone on its CPU and beside what holds it up, as rows of a store. Simulated time is
// exact, so what it lost is known too.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"

namespace ingero::test {

inline constexpr uint64_t us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
inline constexpr OpId launch_op = op::cudaLaunchKernel, sync_op = op::cudaStreamSync;
inline constexpr uint32_t pid = 123, another = pid + 1;

enum class Sync { spins, yields, blocks };
enum class HogRuns { never, always, while_device_works, between_calls };

struct Program {
    Sync sync = Sync::spins;
    uint64_t launches = 20;
    uint64_t launch_ns = 5 * us;
    uint64_t kernel_ns = 420 * us;
    uint64_t own_ns = 20 * us;    ///< between two steps
    uint64_t launches_ahead = 1;  ///< steps from one synchronisation to the next
    HogRuns hog = HogRuns::never;
    uint64_t hog_every = 1;    ///< steps, in the others it sleeps
    uint64_t alone_every = 0;  ///< steps, in which it sleeps
    uint64_t after_ns = 0;     ///< between the launches of a step and its end
    unsigned least_turns = 1;  ///< of others, before it is its own again
    unsigned most_turns = 1;
    bool by_quota = false;     ///< there is no hog, but a quota that is used up
    uint64_t reads_every = 0;  ///< steps, the first launch of which waits for the disk
    uint64_t read_ns = 30 * ms;
    uint64_t locks_every = 0;      ///< steps, the synchronisation of which waits 20 ms for a lock of the driver's
    uint64_t waits_every = 0;      ///< steps, amid the launches of which it waits for a lock, 5 ms each time
    uint64_t idles_every = 0;      ///< steps, before which it waits to be asked
    uint64_t idle_ns = 40 * ms;    ///< each time
    uint32_t released_by_tid = 0;  ///< these locks, by a thread of its process; 0: it gives up
    bool others_wait = false;      ///< meanwhile, for the device
    uint64_t loads = 0;            ///< parts of a model, each copied and waited for before the first step
    uint64_t hands_over_ns = 0;    ///< of each step: a thread that it woke has its CPU, and has enqueued for the device
    uint64_t of_another = 0;       ///< launches of each step, by a thread on a CPU of its own for which it waits
    bool hog_of_another = false;   ///< only that CPU has a hog
    bool another_synchronises = false;
    uint64_t rows_late_ns = 0;  ///< of the other one: recorded so much later than they ended
    bool knows_last_wait = true;
    uint64_t interrupted_every = 0;  ///< steps, whose synchronisation ends with an interrupt that is in no trace
    uint64_t unseen_every = 0;       ///< steps, whose waits are in no trace
    double jitter = 0.01;
};

/// A thread and its CPU, which it shares with a hog by time slices; and another, where that one launches for it.
class SimulatedThread {
  public:
    explicit SimulatedThread(const Program& program) : program_(program), snapshot_(1'000 * second) {
        Process row;
        row.key = {pid, 5};
        row.uid = 1'000;
        row.comm = "python";
        snapshot_.add(row);
        slice_left_ = slice();
        if (program_.of_another != 0) slice_left_of_another_ = slice();
        snapshot_.delay_rows(
            [late_ns = program_.rows_late_ns](const Event& row) { return row.tid == another ? late_ns : 0; });
    }

    /// How long it takes.
    uint64_t run(uint64_t steps) {
        for (uint64_t load = 0; load < program_.loads; ++load) {
            launch(ms);
            synchronise(load);
        }
        for (uint64_t step = 0; step < steps; ++step) {
            hog_sleeps_ =
                step % program_.hog_every != 0 || (program_.alone_every != 0 && step % program_.alone_every == 7);
            is_unseen_ = program_.unseen_every != 0 && step % program_.unseen_every == 7;
            run_between_calls(program_.own_ns);
            if (program_.idles_every != 0 && step % program_.idles_every == 7) {
                idle_from_.push_back(now_);
                wait_for_lock(program_.idle_ns);
            }
            for (uint64_t i = 0; i < program_.launches; ++i) {
                if (i != 0 && program_.waits_every != 0 && step % program_.waits_every == 7) wait_for_lock(5 * ms);
                const bool reads = i == 0 && program_.reads_every != 0 && step % program_.reads_every == 7;
                launch(program_.kernel_ns, reads ? program_.read_ns : 0);
            }
            if (program_.after_ns != 0) run_between_calls(program_.after_ns);
            if (program_.of_another != 0) let_another_launch();
            if (program_.hands_over_ns != 0) be_off(now_, now_ + jittered(program_.hands_over_ns), BlockedReason::none);
            if ((step + 1) % program_.launches_ahead == 0) synchronise(step);
        }
        return now_;
    }

    const std::map<uint64_t, OpId>& ops() const { return ops_; }
    const std::vector<uint64_t>& idle_from() const { return idle_from_; }

    /// Without a CPU, again and again, and no call between.
    void lose_cpus(unsigned times) {
        for (unsigned i = 0; i < times; ++i) {
            now_ += ms;
            lose_cpu();
        }
    }

    /// Another process meanwhile: each of its threads waits for the device once.
    void add_crowd(uint64_t threads) {
        for (uint64_t i = 0; i < threads; ++i) {
            Event call;
            call.op = sync_op;
            call.tgid = 999;
            call.tid = static_cast<uint32_t>(10'000 + i);
            call.process_start_ns = 6;
            call.start_ns = second + (now_ - second) / threads * i;
            call.duration_ns = ms;
            snapshot_.add(call);
        }
    }

    ExplainAnswer explain() { return explain({0, now_ + 1}); }
    /// `window`: of the monotonic clock.
    ExplainAnswer explain(const Window& window) {
        auto answer = ingero::explain(snapshot_, {{MemorySnapshot::realtime_at_zero_ns + window.from_ns,
                                                   MemorySnapshot::realtime_at_zero_ns + window.to_ns},
                                                  {},
                                                  {}});
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? *answer : ExplainAnswer{};
    }

  private:
    uint64_t jittered(uint64_t ns) {
        const double factor = std::uniform_real_distribution<>(1 - program_.jitter, 1 + program_.jitter)(own_random_);
        return static_cast<uint64_t>(static_cast<double>(ns) * factor);
    }
    uint64_t slice() { return std::uniform_int_distribution<uint64_t>(2'500 * us, 3'500 * us)(random_); }

    void launch(uint64_t kernel_ns, uint64_t read_ns = 0) {
        begin(launch_op);
        if (read_ns != 0) sleep_until(now_ + read_ns, BlockedReason::disk);
        run_for(jittered(program_.launch_ns));
        end();
        done_ns_ = std::max(done_ns_, now_) + jittered(kernel_ns);
    }
    /// As PyTorch does with its backward passes.
    void let_another_launch() {
        const uint64_t handed_over_ns = now_;
        released_by_tid_ = pid;
        tid_ = another;
        std::swap(slice_left_, slice_left_of_another_);
        now_ = std::exchange(another_done_ns_, 0);
        if (now_ != 0) be_off(handed_over_ns, handed_over_ns + 20 * us, BlockedReason::futex);
        now_ = std::max(now_, handed_over_ns);
        for (uint64_t i = 0; i < program_.of_another; ++i) {
            run_between_calls(2 * us);
            launch(program_.kernel_ns);
        }
        if (program_.another_synchronises) synchronise(0);
        another_done_ns_ = std::exchange(now_, handed_over_ns);
        tid_ = pid;
        released_by_tid_ = program_.released_by_tid != 0 ? program_.released_by_tid : another;
        std::swap(slice_left_, slice_left_of_another_);
        be_off(another_done_ns_, another_done_ns_ + 20 * us, BlockedReason::futex);
    }
    void begin(OpId op) {
        call_ = Event{};
        call_.op = op;
        call_.tgid = pid;
        call_.tid = tid_;
        call_.process_start_ns = 5;
        call_.start_ns = now_;
        in_call_ = true;
    }
    void end() {
        call_.duration_ns = now_ - call_.start_ns;
        if (call_.waits != 0) call_.tail_ns = now_ - back_ns_;
        if (!program_.knows_last_wait)
            call_.last_wait_ns = call_.last_runnable_ns = call_.tail_ns = 0, call_.last_reason = BlockedReason::none;
        ops_[snapshot_.add(call_).sequence] = call_.op;
        in_call_ = false;
    }

    void wait_for_lock(uint64_t ns) {
        released_by_tid_ = program_.released_by_tid;
        const uint64_t from_ns = now_;
        be_off(now_ + ns, now_ + ns + 20 * us, BlockedReason::futex);
        if (!program_.others_wait) return;
        Event call;
        call.op = op::cudaEventSynchronize;
        call.tgid = pid;
        call.tid = another;
        call.process_start_ns = 5;
        call.start_ns = from_ns;
        call.duration_ns = ns - 20 * us;
        snapshot_.add(call);
    }
    /// Off the CPU: asleep up to `woken_ns`, and from there without a CPU up to `to_ns`.
    void be_off(uint64_t woken_ns, uint64_t to_ns, BlockedReason reason) {
        if (is_unseen_) {
            now_ = to_ns;
            return;
        }
        Event wait;
        wait.op = op_wait;
        wait.tgid = pid;
        wait.tid = tid_;
        wait.process_start_ns = 5;
        wait.start_ns = now_;
        wait.depth = in_call_ ? 1 : 0;
        for (Event* one : {&wait, &call_}) {
            one->blocked_ns += woken_ns - now_;
            one->runnable_ns += to_ns - woken_ns;
            if (woken_ns == now_) one->preempted_ns += to_ns - woken_ns;
            if (reason != BlockedReason::none) one->blocked_reason = reason;
            one->longest_sleep_ns = std::max(one->longest_sleep_ns, woken_ns - now_);
            if (to_ns > woken_ns && !program_.by_quota) {
                one->preemptor_ns += to_ns - woken_ns;
                one->preemptor_tgid = 777;
                one->preemptor_comm = to_comm("hog");
            }
            one->waits += 1;
            one->last_wait_ns = to_ns - now_;
            one->last_runnable_ns = to_ns - woken_ns;
            one->last_reason = reason;
        }
        wait.duration_ns = to_ns - now_;
        if (program_.by_quota) wait.return_code = wait_throttled;
        if (!in_call_ && reason == BlockedReason::futex) {
            wait.waker_kind = released_by_tid_ == 0 ? WakerKind::interrupt : WakerKind::task;
            wait.waker_tgid = released_by_tid_ == 0 ? 0 : pid;
            wait.waker_comm = to_comm("other");
            wait.args[0] = pack_wait_place({.waker_tid = released_by_tid_});
            wait.args[1] = 0xb49280;
            wait.return_code = INGERO_DETAIL_LOCK;
        }
        wait.last_wait_ns = wait.last_runnable_ns = 0;
        if (wait.duration_ns >= 200 * us) snapshot_.add(wait);
        now_ = back_ns_ = to_ns;
    }
    bool is_hog_there() const {
        if (hog_sleeps_ || (program_.hog_of_another && tid_ != another)) return false;
        if (program_.hog == HogRuns::while_device_works)
            return in_call_ && call_.op == sync_op && now_ + 4 * ms < done_ns_;
        return program_.hog == HogRuns::always || (program_.hog == HogRuns::between_calls && !in_call_);
    }
    void lose_cpu() {
        unsigned turns = program_.least_turns;
        if (program_.most_turns > turns) turns += static_cast<unsigned>(random_() % (program_.most_turns - turns + 1));
        uint64_t until_ns = now_;
        while (turns-- != 0) until_ns += slice();
        be_off(now_, until_ns, BlockedReason::none);
        slice_left_ = slice();
    }
    void run_until(uint64_t to_ns) {
        while (now_ < to_ns) {
            const uint64_t part_ns = std::min(to_ns - now_, slice_left_);
            now_ += part_ns;
            slice_left_ -= part_ns;
            if (slice_left_ != 0) continue;
            slice_left_ = slice();
            if (is_hog_there()) lose_cpu();
        }
    }
    void run_for(uint64_t ns) {
        while (ns != 0) {
            const uint64_t part_ns = std::min(ns, slice_left_);
            run_until(now_ + part_ns);
            ns -= part_ns;
        }
    }
    void run_between_calls(uint64_t ns) { run_for(ns); }
    void sleep_until(uint64_t to_ns, BlockedReason reason) {
        const bool is_late = is_hog_there() && random_() % 4 == 0;
        be_off(to_ns, to_ns + (is_late ? random_() % (3 * ms) : 20 * us), reason);
        slice_left_ = slice();
    }
    void synchronise(uint64_t step) {
        begin(sync_op);
        run_for(3 * us);
        if (program_.locks_every != 0 && step % program_.locks_every == 7)
            sleep_until(std::max(now_, done_ns_) + 20 * ms, BlockedReason::futex);
        if (program_.sync == Sync::spins) run_until(done_ns_);
        if (program_.sync == Sync::blocks && now_ < done_ns_) sleep_until(done_ns_, BlockedReason::ioctl);
        while (program_.sync == Sync::yields && now_ < done_ns_) {
            run_until(std::min(done_ns_, now_ + 2 * us));
            if (now_ < done_ns_ && is_hog_there()) lose_cpu();
        }
        if (program_.interrupted_every != 0 && step % program_.interrupted_every == 7) now_ += 300 * us;
        now_ += 5 * us;
        end();
    }

    Program program_;
    MemorySnapshot snapshot_;
    std::map<uint64_t, OpId> ops_;  ///< of calls, by sequence
    std::vector<uint64_t> idle_from_;
    std::mt19937_64 own_random_{1}, random_{42};
    uint32_t released_by_tid_ = 0;
    uint64_t now_ = second, back_ns_ = 0, done_ns_ = 0, slice_left_ = 0;
    uint32_t tid_ = pid;
    uint64_t another_done_ns_ = 0, slice_left_of_another_ = 0;
    Event call_;
    bool in_call_ = false;
    bool hog_sleeps_ = false, is_unseen_ = false;
};

}  // namespace ingero::test
