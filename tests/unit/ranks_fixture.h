// Ranks of a communicator that compute, enter collectives and wait for each other, as rows of a store.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"

namespace ingero::test {

inline constexpr uint64_t us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
inline constexpr uint64_t world = 0xabc, other_world = 0xdef;

inline ProcessKey process_of(uint32_t rank) {
    return {100 + rank, 1 + rank};
}

class Ranks : public testing::Test {
  protected:
    Ranks() : snapshot_(20'000 * second) {}

    void make(uint32_t ranks, uint64_t hash = world, uint32_t of = 0, uint64_t interrupted_ns = 0) {
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            CommunicatorRow row;
            row.process = process_of(rank);
            row.id = hash;
            row.hash = hash;
            row.seen_ns = now_ - ms;
            row.rank = static_cast<int32_t>(rank);
            row.ranks = of ? of : ranks;
            row.origin = CommunicatorOrigin::init_rank;
            if (rank == 0) row.interrupted_ns = interrupted_ns;
            snapshot_.add(row);
        }
    }
    void add_process(uint32_t rank, uint64_t exited_ns = 0, int32_t exit_code = 0) {
        Process row;
        row.key = process_of(rank);
        row.comm = "trainer-" + std::to_string(rank);
        row.exited_ns = exited_ns;
        row.exit_code = exit_code;
        snapshot_.add(row);
    }
    /// All but the last rank enter the next collective, and the last one ends.
    void last_rank_ends(uint32_t ranks) {
        for (uint32_t rank = 0; rank + 1 < ranks; ++rank) {
            add_process(rank);
            collective(rank, sequence_ + 1, now_ + rank * ms);
        }
        add_process(ranks - 1, now_ + 5 * ms);
    }
    Event& call(const std::string& name, uint32_t rank, uint64_t start_ns, uint64_t duration_ns) {
        Event event;
        event.op = op_of_name(name).value();
        event.start_ns = start_ns;
        event.duration_ns = duration_ns;
        event.tgid = event.tid = process_of(rank).pid;
        event.process_start_ns = process_of(rank).start_ns;
        event.stream = 0x77;
        event.device = static_cast<uint16_t>(rank);
        end_ns_ = std::max(end_ns_, event.end_ns());
        return snapshot_.add(event);
    }
    Event& collective(uint32_t rank, uint32_t sequence, uint64_t start_ns, uint64_t bytes = 4096, uint64_t hash = world,
                      const std::string& name = "ncclAllReduce") {
        Event& event = call(name, rank, start_ns, 10 * us);
        event.args = {bytes, hash, uint64_t{sequence} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
        return event;
    }

    /// For a lock of another task, or until a timer ran out.
    Event& slept(uint32_t rank, uint64_t start_ns, uint64_t ns, uint32_t waker = 0) {
        Event event;
        event.op = op_wait;
        event.start_ns = start_ns;
        event.duration_ns = event.blocked_ns = event.longest_sleep_ns = ns;
        event.tgid = event.tid = process_of(rank).pid;
        event.process_start_ns = process_of(rank).start_ns;
        event.blocked_reason = waker != 0 ? BlockedReason::futex : BlockedReason::timer;
        event.waits = 1;
        event.waker_kind = waker != 0 ? WakerKind::task : WakerKind::interrupt;
        event.waker_tgid = waker;
        event.waker_comm = to_comm(waker != 0 ? "pt_data_worker" : "");
        return snapshot_.add(event);
    }
    /// A hundred steps to which rank 2 comes 20 ms late, and what it did meanwhile: in its summary, and as culprit.
    std::pair<std::string, std::string> late_by(const std::function<void(uint64_t arrival_ns)>& meanwhile) {
        make(4);
        for (int number = 0; number < 100; ++number) {
            std::vector<uint64_t> compute = usual(4);
            compute[2] += 20 * ms;
            meanwhile(now_ + compute[2]);
            step(compute);
        }
        auto found = explain();
        const std::vector<Finding>& stragglers = found["straggler"];
        if (stragglers.size() != 1) return {};
        return {stragglers[0].summary, stragglers[0].culprits.at(0).name};
    }

    /// All begin at now_, compute for their time, enter the next collective, wait for it together and go on.
    void step(const std::vector<uint64_t>& compute_ns, bool synchronises = true, uint64_t device_ns = ms) {
        const uint64_t last_ns = now_ + *std::max_element(compute_ns.begin(), compute_ns.end());
        const uint64_t done_ns = last_ns + device_ns;
        ++sequence_;
        for (uint32_t rank = 0; rank < compute_ns.size(); ++rank) {
            const uint64_t arrival_ns = now_ + compute_ns[rank];
            collective(rank, sequence_, arrival_ns, 4096, hash_);
            if (synchronises) call("cudaStreamSync", rank, arrival_ns + 10 * us, done_ns - arrival_ns - 10 * us);
        }
        now_ = synchronises ? done_ns : last_ns + 20 * us;
    }
    uint64_t jitter(uint64_t ns, double spread) {
        return static_cast<uint64_t>(static_cast<double>(ns) *
                                     std::uniform_real_distribution<>(1 - spread, 1 + spread)(random_));
    }
    std::vector<uint64_t> usual(uint32_t ranks, double spread = 0.05) {
        std::vector<uint64_t> compute;
        for (uint32_t rank = 0; rank < ranks; ++rank) compute.push_back(jitter(10 * ms, spread));
        return compute;
    }

    std::map<std::string, std::vector<Finding>> explain(uint64_t until_ns = 0, uint64_t from_ns = 0) {
        const Filter filter{.window = {MemorySnapshot::realtime_at_zero_ns + from_ns,
                                       MemorySnapshot::realtime_at_zero_ns + (until_ns ? until_ns : end_ns_ + 1)},
                            .uid = {},
                            .pid = {}};
        auto answer = ingero::explain(snapshot_, filter);
        EXPECT_TRUE(answer) << answer.error().message;
        std::map<std::string, std::vector<Finding>> by_kind;
        if (answer)
            for (Finding& finding : answer->findings) by_kind[finding.kind].push_back(std::move(finding));
        return by_kind;
    }
    void expect_nothing(uint64_t until_ns = 0) {
        for (const auto& [kind, findings] : explain(until_ns)) {
            // Ranks that compute have nothing on their devices, and their waits are not made here.
            if (kind == "data-starvation") continue;
            for (const Finding& finding : findings) ADD_FAILURE() << kind << ": " << finding.summary;
        }
    }

    MemorySnapshot snapshot_;
    uint64_t now_ = second, end_ns_ = 0;
    uint32_t sequence_ = 0;
    uint64_t hash_ = world;
    std::mt19937_64 random_{7};
};

}  // namespace ingero::test
