// Ranks that compute, enter collectives and wait for each other, and what is found of who comes last.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnosis/stragglers.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"
#include "tests/unit/ranks_fixture.h"

namespace ingero::test {

inline uint64_t told_ns(const StragglerEpisode& episode) {
    uint64_t sum = 0;
    for (const MeanwhilePart& part : episode.meanwhile) sum += part.ns;
    return sum;
}

class Stragglers : public testing::Test {
  protected:
    Stragglers() : snapshot_(1'000 * second) { make(4); }

    void make(uint32_t ranks, uint64_t hash = world) {
        hash_ = hash;
        ranks_ = ranks;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            CommunicatorRow row;
            row.process = process_of(rank);
            row.id = row.hash = hash;
            row.rank = static_cast<int32_t>(rank);
            row.ranks = ranks;
            row.origin = CommunicatorOrigin::init_rank;
            snapshot_.add(row);
            Process process;
            process.key = process_of(rank);
            process.uid = 1'000 + rank;
            process.comm = "trainer-" + std::to_string(rank);
            snapshot_.add(process);
        }
    }
    Event& add(OpId op, uint32_t rank, uint64_t start_ns, uint64_t duration_ns) {
        Event event;
        event.op = op;
        event.start_ns = start_ns;
        event.duration_ns = duration_ns;
        event.tgid = event.tid = process_of(rank).pid;
        event.process_start_ns = process_of(rank).start_ns;
        event.stream = 0x77;
        event.device = 0;
        end_ns_ = std::max(end_ns_, event.end_ns());
        return snapshot_.add(event);
    }
    /// Each computes for its time, enters the next collective and waits until all have.
    void step(const std::vector<uint64_t>& compute_ns, uint64_t device_ns = ms) {
        const uint64_t done_ns = now_ + *std::max_element(compute_ns.begin(), compute_ns.end()) + device_ns;
        ++sequence_;
        for (uint32_t rank = 0; rank < compute_ns.size(); ++rank) {
            const uint64_t arrival_ns = now_ + compute_ns[rank];
            add(*op_of_name("ncclAllReduce"), rank, arrival_ns, 5 * us).args = {
                4096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            add(*op_of_name("cudaStreamSync"), rank, arrival_ns + 10 * us, done_ns - arrival_ns - 10 * us);
        }
        now_ = done_ns;
    }
    /// Rank `late` computes so much longer.
    void steps(int number, uint64_t compute_ns, std::optional<uint32_t> late = {}, uint64_t more_ns = 0) {
        for (int i = 0; i < number; ++i) {
            std::vector<uint64_t> compute;
            for (uint32_t rank = 0; rank < ranks_; ++rank)
                compute.push_back(static_cast<uint64_t>(static_cast<double>(compute_ns) * spread_(random_)));
            if (late) compute[*late] += more_ns;
            step(compute);
        }
    }
    /// A wait of the rank in its latest compute time; it is watched.
    Event& waits(uint32_t rank, uint64_t start_ns, uint64_t blocked_ns, uint64_t runnable_ns = 0) {
        Event& wait = add(op_wait, rank, start_ns, blocked_ns + runnable_ns);
        wait.blocked_ns = blocked_ns;
        wait.runnable_ns = runnable_ns;
        return wait;
    }

    StragglersAnswer answer(std::optional<uint32_t> uid = {}, const StragglerOptions& options = {}) {
        const Filter filter{.window = {MemorySnapshot::realtime_at_zero_ns,
                                       MemorySnapshot::realtime_at_zero_ns + std::max(end_ns_, now_) + 1},
                            .uid = uid,
                            .pid = {}};
        auto found = compute_stragglers(snapshot_, filter, options);
        EXPECT_TRUE(found) << found.error().message;
        return found ? std::move(*found) : StragglersAnswer();
    }
    std::vector<StragglerEpisode> episodes(const StragglerOptions& options = {}) {
        StragglersAnswer found = answer({}, options);
        return found.boots.empty() ? std::vector<StragglerEpisode>() : std::move(found.boots[0].episodes);
    }

    /// A hundred steps to which rank 2 comes some 30 ms late, and what it did meanwhile by far the most; empty: not
    /// known.
    std::string cause_where(const std::function<void(uint64_t from_ns)>& meanwhile) {
        make(4, ++hash_);
        for (int i = 0; i < 100; ++i) {
            const uint64_t from_ns = now_;
            steps(1, 20 * ms, 2, 30 * ms);
            meanwhile(from_ns);
        }
        for (const StragglerEpisode& one : episodes())
            if (one.hash == hash_ && one.cause()) return meanwhile_text(*one.cause());
        return "";
    }

    MemorySnapshot snapshot_;
    uint64_t now_ = second, end_ns_ = 0, hash_ = world;
    uint32_t sequence_ = 0, ranks_ = 4;
    std::mt19937_64 random_{7};
    std::uniform_real_distribution<> spread_{0.95, 1.05};
};

}  // namespace ingero::test
