// What the store does with its blocks afterwards: small ones are merged, old ones compressed, and no row is ever lost
// or there twice.
#include <gtest/gtest.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "core/store/rows/rows.h"
#include "tests/unit/store_fixture.h"
#include "tests/unit/version_1_block.h"

namespace ingero {
namespace {

class AStoreOfSmallBatches : public testing::Test {
  protected:
    std::unique_ptr<StoreWriter> start(StoreOptions options = {}, const std::string& boot_id = "boot-a") {
        auto writer = open_writer(directory_.path(), options);
        if (writer) {
            EXPECT_TRUE(writer->begin_session(make_session(boot_id)));
        }
        return writer;
    }

    void commit(StoreWriter& writer, size_t rows) {
        Batch batch;
        const uint64_t next = writer.figures().last_sequence + 1;
        batch.events = make_events(next, rows, next * 1'000);
        const auto committed = writer.commit(batch);
        ASSERT_TRUE(committed) << committed.error().message;
    }

    /// Until there is nothing more to do; how many steps did something.
    static int tidy(StoreWriter& writer) {
        int steps = 0;
        for (;; ++steps) {
            const auto more = writer.tidy();
            EXPECT_TRUE(more) << (more ? "" : more.error().message);
            if (!more || !*more || steps > 1'000) return steps;
        }
    }

    /// All rows there are, each once and as it was committed.
    void expect_whole(uint64_t last, uint32_t boot_index = 0, uint64_t first = 1) {
        const auto snapshot = open_snapshot(directory_.path());
        ASSERT_TRUE(snapshot);
        auto events = scan_all(*snapshot, boot_index);
        ASSERT_TRUE(events) << events.error().message;
        ASSERT_EQ(events->size(), last - first + 1);
        std::sort(events->begin(), events->end(), [](auto& a, auto& b) { return a.sequence < b.sequence; });
        for (uint64_t sequence = first; sequence <= last; ++sequence)
            ASSERT_EQ(all_fields((*events)[sequence - first]), all_fields(make_event(sequence, sequence * 1'000, 500)));
    }

    size_t count_blocks(uint32_t boot_index, const std::function<bool(BlockView&)>& wanted) {
        size_t count = 0;
        EXPECT_TRUE(open_snapshot(directory_.path())->scan_blocks(boot_index, everything, [&](BlockView& block) {
            count += wanted(block);
            return true;
        }));
        return count;
    }

    TemporaryDirectory directory_;
};

TEST_F(AStoreOfSmallBatches, MergesThemIntoFullBlocks) {
    const auto writer = start();
    for (int round = 0; round < 50; ++round) {
        commit(*writer, 1'000);
        tidy(*writer);
    }
    EXPECT_LE(writer->figures().blocks, 50'000u / 4'096 + 18);
    EXPECT_GE(count_blocks(0, [](BlockView& block) { return block.rows() == max_block_rows; }), 8u);
    expect_whole(50'000);
}

TEST_F(AStoreOfSmallBatches, WaitsUntilThereAreEnoughOfThem) {
    const auto writer = start();
    for (int round = 0; round < 10; ++round) {
        commit(*writer, 1'000);
        tidy(*writer);
        ASSERT_EQ(writer->figures().blocks, static_cast<uint64_t>(round + 1));
    }
}

TEST_F(AStoreOfSmallBatches, DoesNotLetVerySmallOnesPileUp) {
    const auto writer = start();
    for (int round = 0; round < 500; ++round) {
        commit(*writer, 3);
        tidy(*writer);
        ASSERT_LE(writer->figures().blocks, 66u);
    }
    expect_whole(1'500);
}

TEST_F(AStoreOfSmallBatches, LeavesFullBlocksAsTheyAre) {
    const auto writer = start();
    for (int round = 0; round < 10; ++round) commit(*writer, 8'192);
    commit(*writer, 500);
    for (int round = 0; round < 10; ++round) commit(*writer, 8'192);
    const uint64_t blocks = writer->figures().blocks;
    tidy(*writer);
    EXPECT_EQ(writer->figures().blocks, blocks) << "one small block among many is not worth moving the others";
    expect_whole(20 * 8'192 + 500);
}

TEST_F(AStoreOfSmallBatches, MergesTheRemaindersOfLargerOnes) {
    const auto writer = start();
    for (int round = 0; round < 40; ++round) {
        commit(*writer, 5'000);
        tidy(*writer);
    }
    EXPECT_LT(writer->figures().blocks, 40u * 5'000 / 4'096 + 10);
    expect_whole(40 * 5'000);
}

TEST_F(AStoreOfSmallBatches, IsReadTheSameByASnapshotThatIsHeldMeanwhile) {
    const auto writer = start();
    for (int round = 0; round < 16; ++round) commit(*writer, 1'000);
    const auto before = open_snapshot(directory_.path());
    std::string_view bytes;
    ASSERT_TRUE(before->scan_blocks(0, everything, [&](BlockView& block) {
        bytes = block.bytes();
        return false;
    }));
    commit(*writer, 1'000);
    EXPECT_GT(tidy(*writer), 0);
    for (int round = 0; round < 5; ++round) commit(*writer, 1'000);
    EXPECT_EQ(scan_all(*before)->size(), 16'000u);
    BlockView block;
    ASSERT_TRUE(block.open(bytes)) << "bytes are valid as long as the snapshot";
    std::vector<Event> events;
    ASSERT_TRUE(block.events(events));
    EXPECT_EQ(events.size(), 1'000u);
    expect_whole(22'000);
}

TEST_F(AStoreOfSmallBatches, GoesOnMergingAfterARestart) {
    for (int round = 0; round < 40; ++round) {
        const auto writer = start();
        commit(*writer, 1'000);
        tidy(*writer);
    }
    EXPECT_GE(count_blocks(0, [](BlockView& block) { return block.rows() == max_block_rows; }), 4u);
    expect_whole(40'000);
}

TEST_F(AStoreOfSmallBatches, KeepsBootsApart) {
    {
        const auto writer = start({}, "boot-a");
        for (int round = 0; round < 6; ++round) commit(*writer, 1'000);
    }
    const auto writer = start({}, "boot-b");
    for (int round = 0; round < 20; ++round) {
        commit(*writer, 1'000);
        tidy(*writer);
    }
    EXPECT_EQ(count_blocks(0, [](BlockView&) { return true; }), 2u) << "no more will come to those of the first boot";
    expect_whole(6'000, 0);
    expect_whole(26'000, 1, 6'001);
}

TEST_F(AStoreOfSmallBatches, KeepsItsCapAndTheNewestWhileItMerges) {
    StoreOptions options;
    options.max_size_bytes = 16 << 20;
    const auto writer = start(options);
    std::mt19937 random(3);
    for (int round = 0; round < 700; ++round) {
        commit(*writer, 1 + random() % 1'200);
        // With blocks as large as these there is not always room for another in one piece.
        const auto tidied = writer->tidy();
        ASSERT_TRUE(tidied || tidied.error().code == ErrorCode::limit) << round << ": " << tidied.error().message;
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), options.max_size_bytes);
    }
    const StoreFigures figures = writer->figures();
    EXPECT_GT(figures.events_dropped_for_space, 100'000u);
    const auto events = scan_all(*open_snapshot(directory_.path()));
    ASSERT_TRUE(events);
    auto found = sequences(*events);
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found.back(), figures.last_sequence);
    EXPECT_EQ(found.size() + figures.events_dropped_for_space, figures.last_sequence);
    EXPECT_EQ(found.back() - found.front() + 1, found.size()) << "a hole";
}

TEST_F(AStoreOfSmallBatches, LosesNothingWhenMergingFindsNoRoom) {
    StoreOptions options;
    options.max_size_bytes = 64 << 20;
    const auto writer = start(options);
    for (int round = 0; round < 20; ++round) commit(*writer, 1'000);
    {
        signal(SIGXFSZ, SIG_IGN);
        rlimit before{};
        getrlimit(RLIMIT_FSIZE, &before);
        const rlimit limit{64 << 10, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        const auto tidied = writer->tidy();
        setrlimit(RLIMIT_FSIZE, &before);
        signal(SIGXFSZ, SIG_DFL);
        ASSERT_FALSE(tidied);
        EXPECT_FALSE(tidied.error().message.empty());
    }
    expect_whole(20'000);
    EXPECT_EQ(writer->figures().blocks, 20u);
    for (int round = 0; round < 20; ++round) {
        commit(*writer, 1'000);
        tidy(*writer);
    }
    EXPECT_LT(writer->figures().blocks, 25u) << "tried again";
    expect_whole(40'000);
}

TEST_F(AStoreOfSmallBatches, CompressesOldBlocksOnly) {
    StoreOptions options;
    ClockTriple now{1, 1, 1'700'000'000'000'000'000};
    options.clock = [&] { return now; };
    options.compress_after_ns = 1'000'000'000;
    const auto writer = start(options);
    const auto commit_calls = [&](uint64_t start_ns) {
        Batch batch;
        for (uint64_t i = 0; i < max_block_rows; ++i) {
            Event event;
            event.sequence = writer->figures().last_sequence + 1 + i;
            event.start_ns = start_ns + i * 1'000;
            event.duration_ns = noise(i % 64, 1) % 100'000;  // the same over and over
            event.args[0] = noise(i % 64, 2);
            batch.events.push_back(event);
        }
        now.monotonic_ns = start_ns;
        ASSERT_TRUE(writer->commit(batch));
    };
    for (uint64_t second = 1; second <= 8; ++second) commit_calls(second * 1'000'000'000);
    const auto before = *scan_all(*open_snapshot(directory_.path()));
    tidy(*writer);
    const auto is_compressed = [](BlockView& block) { return block.is_compressed(); };
    EXPECT_EQ(count_blocks(0, is_compressed), 6u) << "those that ended a second before 8 s";
    EXPECT_EQ(writer->figures().blocks, 8u);
    const auto after = *scan_all(*open_snapshot(directory_.path()));
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(all_fields(after[i]), all_fields(before[i]));
    EXPECT_EQ(tidy(*writer), 0) << "once is enough";
    commit_calls(9'000'000'000);
    tidy(*writer);
    EXPECT_EQ(count_blocks(0, is_compressed), 7u);
}

[[noreturn]] void commit_and_tidy_until_killed(const std::string& directory, int acknowledge) {
    auto writer = StoreWriter::open(directory, {});
    if (!writer || !(*writer)->begin_session(make_session("boot-a"))) _exit(1);
    std::mt19937 random(static_cast<unsigned>(getpid()));
    for (;;) {
        const uint64_t next = (*writer)->figures().last_sequence + 1;
        Batch batch;
        batch.events = make_events(next, 1 + random() % 1'500, next * 1'000);
        if (!(*writer)->commit(batch)) _exit(2);
        const uint64_t last = batch.events.back().sequence;
        if (write(acknowledge, &last, sizeof last) != sizeof last) _exit(3);
        if (!(*writer)->tidy()) _exit(4);
    }
}

TEST_F(AStoreOfSmallBatches, HasEachAcknowledgedRowOnceAfterAKillAtAnyPoint) {
    std::mt19937 random(7);
    uint64_t acknowledged = 0;
    const int rounds = std::getenv("INGERO_LONG") ? 30 : 12;
    for (int round = 0; round < rounds; ++round) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            commit_and_tidy_until_killed(directory_.path(), ends[1]);
        }
        close(ends[1]);
        uint64_t value = 0;
        const unsigned commits = 1 + random() % 30;
        for (unsigned i = 0; i < commits && read(ends[0], &value, sizeof value) == sizeof value; ++i)
            acknowledged = value;
        usleep(random() % 6'000);  // into the middle of a merge or a commit
        kill(child, SIGKILL);
        while (read(ends[0], &value, sizeof value) == sizeof value) acknowledged = value;
        close(ends[0]);
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status)) << "exited with " << WEXITSTATUS(status);
        const uint64_t last = open_snapshot(directory_.path())->figures().last_sequence;
        ASSERT_GE(last, acknowledged);
        expect_whole(last);
        ASSERT_FALSE(HasFatalFailure());
    }
    EXPECT_GT(count_blocks(0, [](BlockView& block) { return block.rows() == max_block_rows; }), 5u)
        << "merging did happen";
}

/// Changes a closed store as an older program would have left it.
void with_lmdb(const std::string& directory, const std::function<void(MDB_txn*)>& change) {
    MDB_env* env = nullptr;
    ASSERT_EQ(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 16);
    mdb_env_set_mapsize(env, 32 << 20);
    ASSERT_EQ(mdb_env_open(env, directory.c_str(), 0, 0640), 0);
    MDB_txn* txn = nullptr;
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
    change(txn);
    ASSERT_EQ(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

void put(MDB_txn* txn, const char* table, std::string key, std::string value) {
    MDB_dbi dbi = 0;
    ASSERT_EQ(mdb_dbi_open(txn, table, 0, &dbi), 0);
    MDB_val raw_key{key.size(), key.data()};
    MDB_val raw_value{value.size(), value.data()};
    ASSERT_EQ(mdb_put(txn, dbi, &raw_key, &raw_value, 0), 0);
}

TEST_F(AStoreOfSmallBatches, ReadsAndGoesOnWithAStoreOfLayout2) {
    start();
    const std::string block = version_1_block();
    with_lmdb(directory_.path(), [&](MDB_txn* txn) {
        put(txn, "meta", std::string(layout_key), seal(layout_key, encode_number(2)));
        put(txn, "meta", std::string(last_sequence_key), seal(last_sequence_key, encode_number(1'001)));
        const auto header = read_block_header(block);
        put(txn, "events", encode_key(EventKey{3, header->first_start_ns, header->min_sequence}), block);
    });
    const auto read = scan_all(*open_snapshot(directory_.path()), 3);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(sequences(*read), (std::vector<uint64_t>{1'000, 1'001, 900}));
    const auto writer = start();
    EXPECT_EQ(writer->figures().last_sequence, 1'001u);
    commit(*writer, 10);
    tidy(*writer);
    EXPECT_EQ(sequences(*scan_all(*open_snapshot(directory_.path()), 3)), (std::vector<uint64_t>{1'000, 1'001, 900}));
    EXPECT_EQ(sequences(*scan_all(*open_snapshot(directory_.path()), 3, {6'000, 7'000})),
              (std::vector<uint64_t>{1'001}));
    with_lmdb(directory_.path(), [&](MDB_txn* txn) {
        MDB_dbi meta = 0;
        ASSERT_EQ(mdb_dbi_open(txn, "meta", 0, &meta), 0);
        MDB_val key{layout_key.size(), const_cast<char*>(layout_key.data())};
        MDB_val value{};
        ASSERT_EQ(mdb_get(txn, meta, &key, &value), 0);
        const auto content = unseal(layout_key, {static_cast<char*>(value.mv_data), value.mv_size});
        ASSERT_TRUE(content);
        EXPECT_EQ(decode_number(*content), store_layout_version);
    });
}

}  // namespace
}  // namespace ingero
