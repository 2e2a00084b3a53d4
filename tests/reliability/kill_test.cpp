// kill -9 of a store's writer at any moment: what it acknowledged is there, once, and the store is whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "core/model/unique_fd.h"
#include "core/store/verify.h"
#include "tests/support/seed.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

/// Told after commit() returned.
struct Acknowledgement {
    uint64_t last = 0;
    uint64_t dropped = 0;  ///< by this writer
};

[[noreturn]] void write_until_killed(const std::string& directory, uint64_t cap, uint64_t seed, int acknowledge) {
    auto writer = StoreWriter::open(directory, {.max_size_bytes = cap});
    if (!writer || !(*writer)->begin_session(make_session("boot-a"))) _exit(1);
    std::mt19937_64 random(seed);
    for (;;) {
        const uint64_t next = (*writer)->figures().last_sequence + 1;
        Batch batch;
        batch.events = make_events(next, 1 + random() % 1'500, next * 1'000);
        batch.losses = {{.from_ns = next, .to_ns = next + 1, .op = 0x103, .lost_ring = 1}};
        batch.processes = {
            {.key = {1 + static_cast<uint32_t>(random() % 99), 7}, .comm = "c", .cgroup = "", .unit = ""}};
        if (!(*writer)->commit(batch)) _exit(2);
        const Acknowledgement told{batch.events.back().sequence, (*writer)->figures().events_dropped_for_space};
        if (write(acknowledge, &told, sizeof told) != sizeof told) _exit(3);
        if (const auto tidied = (*writer)->tidy(); !tidied && tidied.error().code != ErrorCode::limit) _exit(4);
    }
}

class KilledWriter : public testing::Test {
  protected:
    void SetUp() override {
        seed_ = test::chosen_seed();
        random_.seed(seed_);
    }

    int kills() const { return std::getenv("INGERO_LONG") ? 1'000 : 30; }

    /// One writer's life. What it acknowledged last; of an earlier one where it acknowledged nothing.
    Acknowledgement kill_one(const std::string& directory, uint64_t cap, Acknowledgement before) {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        UniqueFd reading(ends[0]), writing(ends[1]);
        const pid_t child = fork();
        if (child == 0) {
            reading.reset();
            write_until_killed(directory, cap, random_(), writing.get());
        }
        writing.reset();
        Acknowledgement told = before, got;
        const uint64_t commits = random_() % 40;
        const auto take = [&] {
            if (read(reading.get(), &got, sizeof got) != sizeof got) return false;
            told = {got.last, before.dropped + got.dropped};
            return true;
        };
        for (uint64_t i = 0; i < commits && take(); ++i) {
        }
        usleep(static_cast<useconds_t>(random_() % 8'000));  // into a commit, a merge, the opening itself
        kill(child, SIGKILL);
        while (take()) {
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status)) << "exited with " << WEXITSTATUS(status);
        return told;
    }

    /// A killed writer's last commit may be there unacknowledged, and may have let the oldest go for it.
    void expect_whole(const std::string& directory, const Acknowledgement& told) {
        const auto verified = verify_store(directory);
        // Nothing was acknowledged: there need be no store yet.
        if (told.last == 0 && !verified && verified.error().code == ErrorCode::not_found) return;
        ASSERT_TRUE(verified) << verified.error().message;
        ASSERT_TRUE(verified->is_clean()) << verified->damages.front().key << ": " << verified->damages.front().what;
        const auto snapshot = open_snapshot(directory);
        ASSERT_TRUE(snapshot);
        auto events = scan_all(*snapshot);
        ASSERT_TRUE(events) << events.error().message;
        auto found = sequences(*events);
        std::sort(found.begin(), found.end());
        const uint64_t last = snapshot->figures().last_sequence;
        ASSERT_GE(last, told.last);
        if (found.empty()) {
            ASSERT_EQ(last, 0u);
            return;
        }
        ASSERT_EQ(found.back(), last);
        ASSERT_EQ(found.back() - found.front() + 1, found.size()) << "a hole, or one is there twice";
        if (told.dropped == 0) {
            ASSERT_LE(found.front(), 1u + 20'000) << "acknowledged and gone";
        } else {
            ASSERT_GE(found.front(), told.dropped + 1);
            ASSERT_LE(found.front(), told.dropped + 1 + 40'000);
        }
        for (size_t i = 0; i < events->size(); i += 97)
            ASSERT_EQ(all_fields((*events)[i]),
                      all_fields(make_event((*events)[i].sequence, (*events)[i].sequence * 1'000, 500)));
    }

    uint64_t seed_ = 0;
    std::mt19937_64 random_;
};

TEST_F(KilledWriter, HasEachAcknowledgedBatchOnce) {
    for (int killed = 0; killed < kills() && !HasFatalFailure();) {
        const TemporaryDirectory directory;
        Acknowledgement told;
        for (const int until = killed + 15; killed < until && !HasFatalFailure(); ++killed) {
            told = kill_one(directory.path(), 1ULL << 30, told);
            ASSERT_EQ(told.dropped, 0u);
            expect_whole(directory.path(), told);
            if (told.last == 0) continue;
            const auto events = scan_all(*open_snapshot(directory.path()));
            ASSERT_EQ(events->size(), open_snapshot(directory.path())->figures().last_sequence) << "from the first on";
        }
    }
}

TEST_F(KilledWriter, OfAFullStoreHasTheNewestOnce) {
    for (int killed = 0; killed < kills() && !HasFatalFailure();) {
        const TemporaryDirectory directory;
        Acknowledgement told;
        for (const int until = killed + 15; killed < until && !HasFatalFailure(); ++killed) {
            told = kill_one(directory.path(), 16 << 20, told);
            expect_whole(directory.path(), told);
            if (told.last == 0) continue;
            // What went with the commit that was killed is not in what it told.
            const auto events = scan_all(*open_snapshot(directory.path()));
            const auto found = sequences(*events);
            told.dropped = *std::min_element(found.begin(), found.end()) - 1;
        }
        EXPECT_GT(told.dropped, 0u) << "it never was full";
    }
}

}  // namespace
}  // namespace ingero
