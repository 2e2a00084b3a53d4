// Several users in one store: who has most gives way, so that nobody's calls push out those of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/query/answers/stats.h"
#include "core/store/verify.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

constexpr uint64_t small_cap = 16 << 20;
/// Of a row of make_event() as it is stored.
constexpr uint64_t stored_bytes = 172;
constexpr uint32_t root = 0, victim = 1001, flooder = 1002, other_flooder = 1003;
constexpr uint32_t first_subordinate = 100'000;  ///< from here on uids are of containers of `flooder`

class AStoreOfSeveralUsers : public testing::Test {
  protected:
    void SetUp() override { open(); }

    void open() {
        writer_.reset();
        writer_ = open_writer(directory_.path(), {.max_size_bytes = small_cap, .owner_of = [](uint32_t uid) {
                                                      return uid >= first_subordinate ? flooder : uid;
                                                  }});
        ASSERT_TRUE(writer_);
        Session session = make_session("boot-a");
        session.clock.monotonic_ns = now_ns();
        ASSERT_TRUE(writer_->begin_session(session));
        writer_->set_first_covered(now_ns());
    }

    uint64_t now_ns() const { return 1'000'000 + next_ * 1'000; }

    static ProcessKey process_of(uint32_t uid) { return {uid + 1, uid + 2}; }

    /// `rows` calls of each of them, one after the other in turn.
    void commit(const std::vector<uint32_t>& uids, size_t rows) {
        Batch batch;
        for (const uint32_t uid : uids) {
            const ProcessKey key = process_of(uid);
            if (known_.insert(uid).second)
                batch.processes.push_back(
                    {.key = key, .uid = uid, .comm = "", .cgroup = "", .unit = "", .first_seen_ns = 1});
        }
        for (size_t row = 0; row < rows; ++row)
            for (const uint32_t uid : uids) {
                Event event = make_event(next_, now_ns(), 500);
                std::tie(event.tgid, event.process_start_ns) =
                    std::tuple(process_of(uid).pid, process_of(uid).start_ns);
                event.weight = 1;
                event.time_weight = 0;
                event.stack = 0;
                event.op = 0x103;
                made_[uid].push_back(next_++);
                batch.events.push_back(event);
            }
        batch.covered_until_ns = now_ns();
        const auto committed = writer_->commit(batch);
        ASSERT_TRUE(committed) << committed.error().message;
    }

    /// What the store has, in order of sequence, by pid.
    std::map<uint32_t, std::vector<uint64_t>> stored() const {
        std::map<uint32_t, std::vector<uint64_t>> found;
        const auto events = scan_all(*open_snapshot(directory_.path()));
        EXPECT_TRUE(events);
        if (events)
            for (const Event& event : *events) found[event.tgid].push_back(event.sequence);
        for (auto& [pid, sequences] : found) std::sort(sequences.begin(), sequences.end());
        return found;
    }
    std::vector<uint64_t> stored(uint32_t uid) const { return stored()[process_of(uid).pid]; }

    /// The user's newest, without a hole.
    void expect_the_newest_of(uint32_t uid) const {
        const auto found = stored(uid);
        const auto& made = made_.at(uid);
        ASSERT_FALSE(found.empty());
        ASSERT_LT(found.size(), made.size());
        EXPECT_TRUE(std::equal(found.begin(), found.end(), made.end() - static_cast<std::ptrdiff_t>(found.size())));
    }

    std::vector<GapRow> gave_way() const {
        auto gaps = open_snapshot(directory_.path())->gaps(0, everything);
        EXPECT_TRUE(gaps);
        if (!gaps) return {};
        std::erase_if(*gaps, [](const GapRow& gap) { return gap.reason != GapReason::gave_way; });
        return *gaps;
    }

    uint64_t begun_ns(uint64_t sequence) const { return 1'000'000 + sequence * 1'000; }

    TemporaryDirectory directory_;
    std::unique_ptr<StoreWriter> writer_;
    std::set<uint32_t> known_;
    std::map<uint32_t, std::vector<uint64_t>> made_;
    uint64_t next_ = 1;
};

TEST_F(AStoreOfSeveralUsers, LetsNoCallOfOthersGoForOneWhoFloodsIt) {
    commit({root, victim}, 2'000);
    for (int round = 0; round < 150; ++round) {
        commit({flooder}, 4'000);
        commit({root, victim}, 20);
    }
    ASSERT_GT(writer_->figures().events_dropped_for_space, 400'000u);
    EXPECT_EQ(stored(root), made_[root]);
    EXPECT_EQ(stored(victim), made_[victim]);
    expect_the_newest_of(flooder);
    EXPECT_GT(stored(flooder).size() * stored_bytes, small_cap / 2) << "no more than needed went";
    EXPECT_EQ(stored(flooder).size() + writer_->figures().events_dropped_for_space, made_[flooder].size());
    EXPECT_EQ(verify_store(directory_.path())->damaged, 0u);
}

TEST_F(AStoreOfSeveralUsers, TellsWhatWentOfWhomAndKeepsItsSums) {
    commit({root, victim}, 2'000);
    for (int round = 0; round < 60; ++round) commit({flooder}, 4'000);
    const auto snapshot = open_snapshot(directory_.path());
    const uint64_t first_covered_ns = snapshot->sessions()[0].first_covered_ns;
    EXPECT_LE(first_covered_ns, begun_ns(made_[victim].front())) << "the others' time is covered as before";

    const auto gaps = gave_way();
    ASSERT_EQ(gaps.size(), 1u);
    EXPECT_EQ(gaps[0].uid, flooder);
    EXPECT_EQ(gaps[0].process.pid, 0u);
    const auto left = stored(flooder);
    ASSERT_LT(left.size(), made_[flooder].size());
    EXPECT_LE(gaps[0].from_ns, begun_ns(made_[flooder].front()));
    EXPECT_GE(gaps[0].to_ns, begun_ns(left.front() - 1)) << "up to the last that went";
    EXPECT_LE(gaps[0].to_ns, begun_ns(left.front())) << "and no further";

    const Window all = whole_trace(*snapshot);
    const auto reasons_for = [&](std::optional<uint32_t> uid) {
        std::vector<std::string> reasons;
        const auto covered = coverage(*snapshot, all, {.uid = uid, .pid = {}});
        EXPECT_TRUE(covered);
        if (covered)
            for (const Gap& gap : covered->gaps) reasons.push_back(gap.reason);
        return reasons;
    };
    EXPECT_THAT(reasons_for(flooder), testing::ElementsAre(testing::StartsWith("gave-way: ")));
    EXPECT_THAT(reasons_for(std::nullopt), testing::ElementsAre(testing::StartsWith("gave-way: ")));
    EXPECT_THAT(reasons_for(victim), testing::IsEmpty());

    const auto stats = compute_stats(*snapshot, {.window = all, .uid = {}, .pid = {}});
    ASSERT_TRUE(stats);
    std::map<uint32_t, uint64_t> calls;
    for (const OpStats& op : stats->ops) calls[op.pid] += op.count;
    for (const uint32_t uid : {root, victim, flooder}) EXPECT_EQ(calls[process_of(uid).pid], made_[uid].size()) << uid;
}

TEST_F(AStoreOfSeveralUsers, LetsRootGiveWayToo) {
    commit({victim}, 2'000);
    for (int round = 0; round < 60; ++round) commit({root}, 4'000);
    EXPECT_EQ(stored(victim), made_[victim]);
    expect_the_newest_of(root);
    const auto snapshot = open_snapshot(directory_.path());
    const auto covered = coverage(*snapshot, whole_trace(*snapshot), {.uid = victim, .pid = {}});
    ASSERT_TRUE(covered);
    EXPECT_TRUE(covered->gaps.empty()) << "what went of root's calls is nothing to others: " << covered->gaps[0].reason;
    EXPECT_EQ(coverage(*snapshot, whole_trace(*snapshot), {.uid = root, .pid = {}})->gaps.size(), 1u);
}

TEST_F(AStoreOfSeveralUsers, DividesItEquallyBetweenThoseWhoWantMore) {
    while (made_[victim].size() * stored_bytes < small_cap / 5) commit({victim}, 1'000);
    for (int round = 0; round < 100; ++round) {
        commit({flooder}, 4'000);
        commit({other_flooder}, 1'000);
    }
    EXPECT_EQ(stored(victim), made_[victim]) << "a third was theirs";
    const auto one = stored(flooder).size(), other = stored(other_flooder).size();
    EXPECT_LE(std::max(one, other) - std::min(one, other), 2 * 4'000u) << "however fast each of them is";
    expect_the_newest_of(flooder);
    expect_the_newest_of(other_flooder);
}

TEST_F(AStoreOfSeveralUsers, HasRoomForWhoComesLater) {
    for (int round = 0; round < 60; ++round) commit({flooder}, 4'000);
    while (made_[victim].size() * stored_bytes < small_cap / 4) commit({victim, flooder}, 2'000);
    EXPECT_EQ(stored(victim), made_[victim]);
}

TEST_F(AStoreOfSeveralUsers, BelongsToASingleOneAsAWhole) {
    for (int round = 0; round < 60; ++round) commit({flooder}, 4'000);
    EXPECT_GT(stored(flooder).size() * stored_bytes, small_cap / 2);
    EXPECT_TRUE(gave_way().empty()) << "nothing older is left that could be covered";
    EXPECT_GT(open_snapshot(directory_.path())->sessions()[0].first_covered_ns, begun_ns(made_[flooder].front()));
    const size_t alone = stored(flooder).size();
    commit({victim}, 10);
    for (int round = 0; round < 60; ++round) commit({flooder}, 4'000);
    EXPECT_GT(stored(flooder).size() + 2 * 4'096, alone) << "of what others do not need nothing is left free";
}

TEST_F(AStoreOfSeveralUsers, CountsSubordinateUidsAsTheirOwners) {
    commit({victim}, 2'000);
    std::vector<uint32_t> uids;
    for (uint32_t i = 0; i < 16; ++i) uids.push_back(first_subordinate + 1'000 * i);
    for (int round = 0; round < 80; ++round) commit(uids, 250);
    ASSERT_GT(writer_->figures().events_dropped_for_space, 0u);
    EXPECT_EQ(stored(victim), made_[victim]);
    const auto gaps = gave_way();
    ASSERT_FALSE(gaps.empty());
    EXPECT_EQ(gaps[0].subject, "the oldest calls of uid 1002 were removed to make room in the store");
    std::set<uint32_t> told;
    for (const GapRow& gap : gaps) told.insert(gap.uid);
    EXPECT_EQ(told, std::set<uint32_t>(uids.begin(), uids.end())) << "each of these uids may ask";
}

TEST_F(AStoreOfSeveralUsers, KnowsWhoseCallsAreWhoseAfterARestart) {
    commit({root, victim}, 2'000);
    for (int round = 0; round < 20; ++round) commit({flooder}, 4'000);
    for (int restart = 0; restart < 3; ++restart) {
        open();
        for (int round = 0; round < 20; ++round) commit({flooder}, 4'000);
    }
    EXPECT_EQ(stored(root), made_[root]);
    EXPECT_EQ(stored(victim), made_[victim]);
    expect_the_newest_of(flooder);
    EXPECT_THAT(gave_way(), testing::Each(testing::Field(&GapRow::uid, flooder)));
}

// Where a call of an hour goes early, its end says nothing of those that began after it.
TEST_F(AStoreOfSeveralUsers, ForgetsAProcessWhoseUserGaveWayOnlyWithItsLastCall) {
    commit({victim}, 10);
    uint64_t duration_ns = 3'600'000'000'000;
    constexpr uint32_t rounds = 300, first_pid = 50'000;
    for (uint32_t round = 0; round < rounds; ++round) {
        const ProcessKey key{first_pid + round, 1};
        Batch batch;
        for (size_t row = 0; row < 1'000; ++row) {
            Event event = make_event(next_, now_ns(), std::exchange(duration_ns, 500));
            std::tie(event.tgid, event.process_start_ns) = std::tuple(key.pid, key.start_ns);
            event.stack = 0;
            ++next_;
            batch.events.push_back(event);
        }
        batch.processes.push_back({.key = key,
                                   .uid = flooder,
                                   .comm = "",
                                   .cgroup = "",
                                   .unit = "",
                                   .first_seen_ns = 1,
                                   .exited_ns = now_ns()});
        batch.covered_until_ns = now_ns();
        ASSERT_TRUE(writer_->commit(batch));
    }
    ASSERT_EQ(gave_way().size(), 1u);
    const auto processes = open_snapshot(directory_.path())->processes();
    ASSERT_TRUE(processes);
    std::set<uint32_t> named;
    for (const Process& process : *processes) named.insert(process.key.pid);
    for (const auto& [pid, sequences] : stored()) EXPECT_TRUE(named.contains(pid)) << pid;
    EXPECT_LT(named.size(), rounds) << "the others are forgotten";
}

TEST_F(AStoreOfSeveralUsers, MergesSmallBlocksOfEachOfThem) {
    for (int round = 0; round < 400; ++round) {
        commit({root, victim, flooder}, 40);
        ASSERT_TRUE(writer_->tidy());
    }
    EXPECT_LE(writer_->figures().blocks, 3u * (400 * 40 / 4'096 + 2 * 64));
    const auto snapshot = open_snapshot(directory_.path());
    ASSERT_TRUE(snapshot->scan_blocks(0, everything, [&](BlockView& block) {
        EXPECT_EQ(block.header().min_tgid, block.header().max_tgid) << "a block is one user's";
        return true;
    }));
    for (const uint32_t uid : {root, victim, flooder}) EXPECT_EQ(stored(uid), made_[uid]);
    for (int round = 0; round < 40; ++round) commit({flooder}, 4'000);
    for (const uint32_t uid : {root, victim}) EXPECT_EQ(stored(uid), made_[uid]);
    EXPECT_EQ(verify_store(directory_.path())->damaged, 0u);
}

TEST_F(AStoreOfSeveralUsers, ForgetsTheProcessesOfWhoGivesWay) {
    commit({victim}, 100);
    uint32_t pid = 5'000'000;
    for (int round = 0; round < 400; ++round) {
        Batch batch;
        for (int i = 0; i < 500; ++i) {
            ++pid;
            batch.processes.push_back({.key = {pid, pid},
                                       .uid = flooder,
                                       .comm = "",
                                       .cgroup = std::string(100, 'x'),
                                       .unit = "",
                                       .first_seen_ns = now_ns(),
                                       .exited_ns = now_ns()});
        }
        const auto committed = writer_->commit(batch);
        ASSERT_TRUE(committed) << round << ": " << committed.error().message;
        commit({flooder}, 100);
    }
    EXPECT_LT(open_snapshot(directory_.path())->processes()->size(), 400u * 500 / 2);
    EXPECT_GT(stored(flooder).size(), 1'000u);
}

/// So that the store does not know whose its blocks are.
void forget_users(const std::string& directory) {
    MDB_env* env = nullptr;
    ASSERT_EQ(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 32);
    mdb_env_set_mapsize(env, 2 * small_cap);
    ASSERT_EQ(mdb_env_open(env, directory.c_str(), 0, 0640), 0);
    MDB_txn* txn = nullptr;
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    MDB_dbi table = 0;
    ASSERT_EQ(mdb_dbi_open(txn, "held", 0, &table), 0);
    ASSERT_EQ(mdb_drop(txn, table, 0), 0);
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

TEST_F(AStoreOfSeveralUsers, LetsWhatNobodyIsKnownToHoldGoFirst) {
    for (int round = 0; round < 60; ++round) commit({flooder}, 4'000);
    writer_.reset();
    ASSERT_NO_FATAL_FAILURE(forget_users(directory_.path()));
    open();
    while (made_[victim].size() * stored_bytes < small_cap / 2) commit({victim}, 1'000);
    EXPECT_EQ(stored(victim), made_[victim]);
    expect_the_newest_of(flooder);
    while (made_[victim].size() * stored_bytes < 3 * small_cap) commit({victim}, 1'000);
    EXPECT_TRUE(stored(flooder).empty());
    expect_the_newest_of(victim);
}

// Losses are nobody's, and go with the time that they tell of: all calls of that time go before.
TEST_F(AStoreOfSeveralUsers, LetsOldLossesGoWhereTheyCrowdIt) {
    commit({victim}, 100);
    for (int round = 0; round < 400; ++round) {
        Batch batch;
        for (OpId op = 1; op <= 1'000; ++op)
            batch.losses.push_back({.from_ns = now_ns(), .to_ns = now_ns() + 1, .op = op, .lost_ring = 1});
        const auto committed = writer_->commit(batch);
        ASSERT_TRUE(committed) << round << ": " << committed.error().message;
        commit({flooder}, 100);
    }
    EXPECT_TRUE(stored(victim).empty()) << "they were the oldest";
    EXPECT_GT(stored(flooder).size(), 1'000u);
}

}  // namespace
}  // namespace ingero
