// A program whose calls have the time splits that a test gives them.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "core/diagnosis/explain.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"

namespace ingero {
namespace {

using testing::HasSubstr;

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr OpId device_malloc = op::cudaMalloc;
constexpr OpId launch = op::cudaLaunchKernel;
constexpr OpId copy = op::cudaMemcpy;
constexpr OpId stream_sync = op::cudaStreamSync;
constexpr OpId async_copy = op::cudaMemcpyAsync;
constexpr uint32_t python = 123;
constexpr uint32_t hog = 777;

/// A program's calls one after another on one thread, each with its time split.
class Workload {
  public:
    explicit Workload(uint64_t covered_ns = 100 * second) : snapshot(covered_ns) {
        Process row;
        row.key = {python, 5};
        row.uid = 1'000;
        row.comm = "python";
        snapshot.add(row);
    }

    /// A call that runs `on_cpu_ns` and has nothing else happen to it, after a pause of 10 µs.
    Event& call(OpId op, uint64_t on_cpu_ns) {
        Event event;
        event.op = op;
        event.tgid = event.tid = python;
        event.process_start_ns = 5;
        event.cpu = 3;
        event.start_ns = now + 10 * us;
        event.duration_ns = on_cpu_ns;
        now = event.end_ns();
        return snapshot.add(event);
    }

    /// Uniform, from 1 - spread to 1 + spread times `ns`.
    uint64_t jitter(uint64_t ns, double spread = 0.3) {
        return static_cast<uint64_t>(static_cast<double>(ns) *
                                     std::uniform_real_distribution<>(1 - spread, 1 + spread)(random));
    }

    Event& preempt(Event& event, uint64_t ns, std::string_view comm = "stress-hog", uint32_t pid = hog) {
        event.duration_ns += ns;
        event.runnable_ns += ns;
        event.preempted_ns += ns;
        event.preemptor_ns = ns;
        event.preemptor_tgid = pid;
        event.preemptor_comm = to_comm(comm);
        event.waits += 1;
        now += ns;
        return event;
    }

    Event& block(Event& event, uint64_t ns, BlockedReason reason) {
        event.duration_ns += ns;
        event.blocked_ns += ns;
        event.longest_sleep_ns = ns;
        event.blocked_reason = reason;
        event.waits += 1;
        now += ns;
        return event;
    }

    /// Explains all there is so far.
    ExplainAnswer explain(Filter filter = {}, ExplainOptions options = {}) {
        if (filter.window.to_ns == 0) {
            filter.window = {MemorySnapshot::realtime_at_zero_ns, MemorySnapshot::realtime_at_zero_ns + now + 1};
        }
        auto answer = ingero::explain(snapshot, filter, options);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? *answer : ExplainAnswer{};
    }

    MemorySnapshot snapshot;
    uint64_t now = 0;
    std::mt19937_64 random{42};
};

uint64_t rejected_ns(const std::vector<RejectedHypothesis>& rejected, std::string_view part) {
    uint64_t total = 0;
    for (const auto& [hypothesis, ns] : rejected) {
        if (hypothesis.find(part) != std::string::npos) total += ns;
    }
    return total;
}

/// What a training or serving step looks like.
[[maybe_unused]] void healthy_step(Workload& work) {
    for (uint64_t kernel = 0; kernel < 10; ++kernel) {
        Event& event = work.call(launch, work.jitter(6 * us));
        event.args[0] = 0x1000 + kernel;
        if (work.random() % 200 == 0) work.preempt(event, work.jitter(30 * us), "sshd", 50);
    }
    work.call(async_copy, work.jitter(12 * us)).args[0] = 1 << 20;
    Event& sync = work.call(stream_sync, work.jitter(2 * ms, 0.5));
    if (work.random() % 20 == 0) work.preempt(sync, work.jitter(50 * us), "systemd-journal", 60);
    if (work.random() % 50 == 0) {
        sync.runnable_ns += 10 * us;
        sync.duration_ns += 10 * us;
        work.now += 10 * us;
    }
}

/// Every synchronisation spins 4 ms and is preempted about as long: no undisturbed call to compare with.
[[maybe_unused]] void contended_syncs(Workload& work) {
    for (int step = 0; step < 1'000; ++step) {
        for (int kernel = 0; kernel < 4; ++kernel) work.call(launch, work.jitter(6 * us)).args[0] = 0x1000;
        work.preempt(work.call(stream_sync, work.jitter(4 * ms, 0.1)), work.jitter(4 * ms, 0.2));
    }
}

}  // namespace
}  // namespace ingero
