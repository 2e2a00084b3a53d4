// What verifying a store finds, each thing put there behind its back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>

#include <optional>
#include <tuple>

#include "core/store/rows/rows.h"
#include "core/store/sequence_runs.h"
#include "core/store/verify.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::HasSubstr;

class AVerifiedStore : public testing::Test {
  protected:
    void SetUp() override {
        const auto writer = open_writer(directory_.path(), {.max_size_bytes = 16 << 20});
        ASSERT_TRUE(writer && writer->begin_session(make_session("boot-a")));
        Batch batch;
        batch.events = make_events(1, 100, 1'000'000);
        batch.processes = {{.key = {7, 70}, .comm = "c", .cgroup = "", .unit = ""}};
        batch.losses = {{.from_ns = 1, .to_ns = 2, .op = 0x103, .lost_ring = 1}};
        GapRow gap;
        gap.process = {7, 70};
        gap.from_ns = 5;
        gap.to_ns = 6;
        batch.gaps = {gap};
        FunctionRow function;
        function.process = {7, 70};
        function.handle = 9;
        batch.functions = {function};
        CommunicatorRow communicator;
        communicator.process = {7, 70};
        communicator.id = 12;
        batch.communicators = {communicator};
        ASSERT_TRUE(writer->commit(batch));
    }

    /// Puts a row where `key` is, or takes it away.
    void change(const char* table, std::string key, std::optional<std::string> value) {
        MDB_env* env = nullptr;
        ASSERT_EQ(mdb_env_create(&env), 0);
        mdb_env_set_maxdbs(env, 16);
        ASSERT_EQ(mdb_env_open(env, directory_.path().c_str(), 0, 0640), 0);
        MDB_txn* txn = nullptr;
        ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
        MDB_dbi dbi = 0;
        ASSERT_EQ(mdb_dbi_open(txn, table, MDB_CREATE, &dbi), 0);
        MDB_val raw_key{key.size(), key.data()};
        MDB_val raw_value{value ? value->size() : 0, value ? value->data() : nullptr};
        ASSERT_EQ(value ? mdb_put(txn, dbi, &raw_key, &raw_value, 0) : mdb_del(txn, dbi, &raw_key, nullptr), 0);
        ASSERT_EQ(mdb_txn_commit(txn), 0);
        mdb_env_close(env);
    }

    void expect_damage(const std::string& table, const std::string& key, const std::string& what) {
        const auto verified = verify_store(directory_.path());
        ASSERT_TRUE(verified) << verified.error().message;
        ASSERT_EQ(verified->damaged, 1u);
        EXPECT_EQ(verified->damages[0].table, table);
        EXPECT_EQ(verified->damages[0].key, key);
        EXPECT_THAT(verified->damages[0].what, HasSubstr(what));
    }

    const TemporaryDirectory directory_;
};

TEST_F(AVerifiedStore, IsCleanAsItWasWritten) {
    const auto verified = verify_store(directory_.path());
    ASSERT_TRUE(verified) << verified.error().message;
    EXPECT_TRUE(verified->is_clean());
    EXPECT_EQ(verified->events, 100u);
    EXPECT_EQ(verified->blocks, 1u);
    EXPECT_GE(verified->rows, 9u);
}

TEST_F(AVerifiedStore, NotesWhatIsReferredToAndNotThere) {
    const auto notes = verify_store(directory_.path())->notes;
    ASSERT_EQ(notes.size(), 2u);
    EXPECT_THAT(notes[0].what, HasSubstr("stacks"));
    EXPECT_EQ(notes[0].count, 7u);
    EXPECT_THAT(notes[1].what, HasSubstr("processes"));
}

TEST_F(AVerifiedStore, HasNoSequenceTwice) {
    const auto events = make_events(50, 10, 9'000'000);
    change("events", encode_key(EventKey{0, 9'000'000, 50}), encode_block(0, events));
    expect_damage("events", "0/9000000/50", "occurs twice");
}

TEST_F(AVerifiedStore, HasNoSequenceThatWasNeverGivenOut) {
    const auto events = make_events(101, 10, 9'000'000);
    change("events", encode_key(EventKey{0, 9'000'000, 101}), encode_block(0, events));
    expect_damage("events", "0/9000000/101", "above the last");
}

TEST_F(AVerifiedStore, HasEachBlockUnderItsOwnKey) {
    Batch batch;
    batch.events = make_events(200, 10, 9'000'000);
    change("meta", std::string(last_sequence_key), seal(last_sequence_key, encode_number(300)));
    change("events", encode_key(EventKey{0, 9'000'001, 200}), encode_block(0, batch.events));
    expect_damage("events", "0/9000001/200", "another's key");
}

TEST_F(AVerifiedStore, HasEachRowUnderItsOwnKey) {
    const std::string key = encode_key(ProcessKey{8, 80});
    change("processes", key,
           seal(key, encode_row(StoredProcess{{.key = {9, 80}, .comm = "", .cgroup = "", .unit = ""}, 0})));
    expect_damage("processes", "8/80", "another's key");
}

TEST_F(AVerifiedStore, HasEachStateThatCanBeReadAndItsTime) {
    StateRow state;
    state.time_ns = 6;
    state.source = "host";
    const std::string key = encode_key(HistoryKey{0, 5, 1});
    const std::string whole = encode_row(state);
    change("snapshots", key, seal(key, whole.substr(0, whole.size() - 1)));
    expect_damage("snapshots", "0/5/1", "cannot be read");
    change("snapshots", key, seal(key, whole));
    expect_damage("snapshots", "0/5/1", "another's key");
    state.time_ns = 5;
    change("snapshots", key, seal(key, encode_row(state)));
    EXPECT_TRUE(verify_store(directory_.path())->is_clean());
}

TEST_F(AVerifiedStore, HasEachSeal) {
    for (const auto& [table, key, shown] :
         {std::tuple<const char*, std::string, const char*>{"processes", encode_key(ProcessKey{7, 70}), "7/70"},
          {"losses", encode_key(LossKey{0, 1, 2, 0x103}), "0/1/2/259"},
          {"gaps", encode_key(GapKey{0, 5, {7, 70}, GapReason::late_attach}), "0/5/7/70/1"},
          {"functions", encode_key(FunctionKey{{7, 70}, 9}), "7/70/9"},
          {"communicators", encode_key(CommunicatorKey{{7, 70}, 12}), "7/70/12"},
          {"later", "a table of a later layout", "a table of a later layout"}}) {
        change(table, key, "no seal, but long enough to have one");
        expect_damage(table, shown, "checksum");
        change(table, key, std::nullopt);
    }
}

TEST_F(AVerifiedStore, NamesADamagedSession) {
    change("sessions", encode_key(uint32_t{0}), "no seal, but long enough to have one");
    const auto verified = verify_store(directory_.path());
    ASSERT_TRUE(verified) << verified.error().message;
    EXPECT_EQ(verified->damaged, 1u);
    EXPECT_EQ(verified->events, 100u) << "the rest is verified all the same";
}

TEST_F(AVerifiedStore, NeedsItsLastSequence) {
    change("meta", std::string(last_sequence_key), std::nullopt);
    expect_damage("meta", "last_sequence", "missing");
}

TEST(SequenceRuns, TakeEachNumberOnce) {
    SequenceRuns runs;
    EXPECT_TRUE(runs.add(10, 20));
    EXPECT_TRUE(runs.add(31, 40));
    EXPECT_FALSE(runs.add(20, 25));
    EXPECT_FALSE(runs.add(5, 10));
    EXPECT_FALSE(runs.add(12, 13));
    EXPECT_FALSE(runs.add(1, 100));
    EXPECT_TRUE(runs.add(21, 30)) << "between the two";
    EXPECT_FALSE(runs.add(25, 25));
    EXPECT_TRUE(runs.add(0, 9));
    EXPECT_TRUE(runs.add(41, UINT64_MAX));
    EXPECT_FALSE(runs.add(0, 0));
    EXPECT_FALSE(runs.add(UINT64_MAX, UINT64_MAX));
}

}  // namespace
}  // namespace ingero
