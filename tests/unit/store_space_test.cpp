// The size cap, full disks, and what is let go for them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "core/store/copy.h"
#include "tests/unit/file_size_limit.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

constexpr uint64_t cap = 16 << 20;

class AFullStore : public testing::Test {
  protected:
    std::unique_ptr<StoreWriter> start(const std::string& directory, uint64_t cap_bytes = cap) {
        auto writer = open_writer(directory, {.max_size_bytes = cap_bytes});
        if (writer) {
            EXPECT_TRUE(writer->begin_session(make_session("boot-a")));
            writer->set_first_covered(1);
            next_ = writer->figures().last_sequence + 1;
        }
        return writer;
    }

    Batch next_batch(size_t rows) {
        Batch batch;
        batch.events = make_events(next_, rows, next_ * 1'000);
        next_ += rows;
        batch.covered_until_ns = next_ * 1'000;
        return batch;
    }

    Result<void> commit(StoreWriter& writer, size_t rows) { return writer.commit(next_batch(rows)); }

    /// What is stored are the newest `acknowledged` events without a hole, and the figures add up.
    void expect_the_newest(const std::string& directory, const StoreFigures& figures, uint64_t last) {
        const auto snapshot = open_snapshot(directory);
        ASSERT_TRUE(snapshot);
        const auto events = scan_all(*snapshot);
        ASSERT_TRUE(events) << events.error().message;
        ASSERT_FALSE(events->empty());
        auto found = sequences(*events);
        std::sort(found.begin(), found.end());
        EXPECT_EQ(found.back(), last);
        EXPECT_EQ(found.back() - found.front() + 1, found.size()) << "a hole";
        EXPECT_EQ(found.size() + figures.events_dropped_for_space, last);
    }

    TemporaryDirectory directory_;
    uint64_t next_ = 1;
};

TEST_F(AFullStore, KeepsItsCapAndTheNewestWhileTenTimesTheCapIsWritten) {
    const auto writer = start(directory_.path());
    uint64_t written = 0;
    while (written < 10 * cap) {
        const auto committed = commit(*writer, 4'000);
        ASSERT_TRUE(committed) << committed.error().message;
        written += 4'000 * 172;
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), cap);
        ASSERT_LE(writer->figures().bytes, cap);
    }
    EXPECT_EQ(writer->figures().cap_bytes, cap);
    EXPECT_GT(writer->figures().events_dropped_for_space, 700'000u);
    EXPECT_GT(writer->figures().blocks * 4'000 * 172, cap / 2) << "no more than needed went";
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

TEST_F(AFullStore, TakesBatchesOfAnySizeForLong) {
    const auto writer = start(directory_.path());
    std::mt19937 random(3);
    for (int round = 0; round < 600; ++round) {
        const size_t rows = random() % 4 == 0 ? 1 + random() % 8'192 : 1 + random() % 300;
        const auto committed = commit(*writer, rows);
        ASSERT_TRUE(committed) << round << ": " << committed.error().message;
    }
    EXPECT_GT(writer->figures().events_dropped_for_space, 0u);
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

TEST_F(AFullStore, LetsTheFirstWrittenGoAndNotTheOneWithALongCall) {
    const auto writer = start(directory_.path());
    for (int round = 0; round < 15; ++round) ASSERT_TRUE(commit(*writer, 4'000));
    Batch batch = next_batch(4'000);
    const uint64_t sequence = next_++;
    batch.events.push_back(make_event(sequence, 1, sequence * 1'000));  // began before all others
    ASSERT_TRUE(writer->commit(batch));
    while (writer->figures().events_dropped_for_space == 0) ASSERT_TRUE(commit(*writer, 4'000));
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

TEST_F(AFullStore, NoLongerClaimsToCoverWhatWentAndForgetsItsLosses) {
    {
        const auto writer = start(directory_.path());
        Batch batch = next_batch(4'000);
        batch.losses = {{.from_ns = 1'000, .to_ns = 2'000, .op = 0x103, .lost_ring = 1}};
        batch.processes = {
            {.key = {5, 5}, .comm = "old", .cgroup = "", .unit = "", .first_seen_ns = 1, .exited_ns = 1'500}};
        batch.stacks = {{.id = 8, .process = {5, 5}, .seen_ns = 1, .frames = {{3, 4}}},
                        {.id = 9, .process = {6, 6}, .seen_ns = 1, .frames = {{3, 4}}}};
        batch.files = {{.id = 3, .path = "/lib.so", .build_id = ""}};
        ASSERT_TRUE(writer->commit(batch));
        ASSERT_TRUE(writer->end_session());
    }
    const auto writer = start(directory_.path());
    for (int round = 0; round < 130; ++round) {
        Batch batch = next_batch(4'000);
        const uint64_t at = batch.events.front().start_ns;
        batch.losses = {{.from_ns = at, .to_ns = at + 1'000, .op = 0x103, .lost_ring = 1}};
        ASSERT_TRUE(writer->commit(batch));
    }
    const auto snapshot = open_snapshot(directory_.path());
    const auto events = scan_all(*snapshot);
    ASSERT_TRUE(events);
    ASSERT_EQ(snapshot->sessions().size(), 2u) << "the first one's calls are still told of by rollups";
    EXPECT_EQ(snapshot->sessions()[0].rolled_up_from_ns, 1u);
    EXPECT_EQ(snapshot->sessions()[0].first_covered_ns, snapshot->sessions()[0].last_covered_ns);
    const Session& session = snapshot->sessions()[1];
    EXPECT_EQ(session.rolled_up_from_ns, 1u);
    EXPECT_LE(session.first_covered_ns, events->front().start_ns);
    EXPECT_GT(session.first_covered_ns, events->front().start_ns - 10'000);
    const auto losses = snapshot->losses(0, everything);
    EXPECT_EQ(losses->size(), events->size() / 4'000);
    EXPECT_TRUE(snapshot->processes()->empty());
    EXPECT_EQ(snapshot->stacks({8, 9})->size(), 1u) << "the stacks of the process that went, and no others";
    EXPECT_EQ(snapshot->files()->size(), 1u);
    EXPECT_EQ(writer->figures().last_stack, 9u) << "ids are not given out again";
}

TEST_F(AFullStore, FailsWhileASnapshotHoldsTheOldPagesAndRecoversAfterwards) {
    const auto writer = start(directory_.path());
    ASSERT_TRUE(commit(*writer, 4'000));
    uint64_t last = next_ - 1;
    auto snapshot = open_snapshot(directory_.path());
    Result<void> committed;
    for (int round = 0; round < 60 && committed; ++round) {
        committed = commit(*writer, 4'000);
        if (committed) last = next_ - 1;
    }
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code, ErrorCode::limit);
    EXPECT_FALSE(committed.error().hint.empty());
    EXPECT_EQ(scan_all(*snapshot)->size(), 4'000u) << "the snapshot is whole";
    EXPECT_EQ(writer->figures().last_sequence, last);
    snapshot.reset();
    next_ = last + 1;
    for (int round = 0; round < 40; ++round) {
        committed = commit(*writer, 4'000);
        ASSERT_TRUE(committed) << committed.error().message;
    }
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

/// Another process that holds a snapshot until it is killed.
class Holder {
  public:
    explicit Holder(const std::string& directory) {
        int ends[2] = {-1, -1};
        if (pipe(ends) != 0) return;
        pid_ = fork();
        if (pid_ == 0) {
            const auto snapshot = open_snapshot(directory);
            if (!snapshot || write(ends[1], "s", 1) != 1) _exit(1);
            for (;;) pause();
        }
        close(ends[1]);
        char said = 0;
        holds_ = read(ends[0], &said, 1) == 1;
        close(ends[0]);
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder() { end(); }

    bool holds() const { return holds_; }
    void end() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }

  private:
    pid_t pid_ = -1;
    bool holds_ = false;
};

TEST_F(AFullStore, RecoversByItselfWhenTheReaderThatHoldsTheOldPagesIsKilled) {
    const auto writer = start(directory_.path());
    ASSERT_TRUE(commit(*writer, 4'000));
    Holder holder(directory_.path());
    ASSERT_TRUE(holder.holds());
    uint64_t last = next_ - 1;
    Result<void> committed;
    for (int round = 0; round < 60 && committed; ++round) {
        committed = commit(*writer, 4'000);
        if (committed) last = next_ - 1;
    }
    ASSERT_FALSE(committed) << "a living reader is waited for";
    holder.end();
    next_ = last + 1;
    for (int round = 0; round < 40; ++round) {
        committed = commit(*writer, 4'000);
        ASSERT_TRUE(committed) << round << ": " << committed.error().message;
    }
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

TEST_F(AFullStore, RefusesABatchThatIsTooLargeForIt) {
    const auto writer = start(directory_.path());
    const auto committed = commit(*writer, 60'000);
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code, ErrorCode::limit);
    next_ = 1;
    EXPECT_TRUE(commit(*writer, 100));
}

TEST_F(AFullStore, GoesOnWithinASmallerCap) {
    {
        const auto writer = start(directory_.path(), 4 * cap);
        for (int round = 0; round < 90; ++round) ASSERT_TRUE(commit(*writer, 4'000));
    }
    auto writer = start(directory_.path(), cap);
    EXPECT_GT(writer->figures().bytes, writer->figures().cap_bytes) << "of which the daemon warns";
    for (int round = 0; round < 40; ++round) {
        const auto committed = commit(*writer, 4'000);
        ASSERT_TRUE(committed) << round << ": " << committed.error().message;
    }
    EXPECT_LE(writer->figures().blocks * 4'000 * 172, cap);
    EXPECT_LE(std::filesystem::file_size(directory_.data_file()), 4 * cap + cap);
    EXPECT_GT(writer->figures().bytes, cap) << "the file does not shrink";
    writer.reset();

    const TemporaryDirectory copy;
    const int fd = open(copy.data_file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_TRUE(compact_store(directory_.path(), fd));
    close(fd);
    EXPECT_LE(std::filesystem::file_size(copy.data_file()), cap);
    writer = start(copy.path(), cap);
    EXPECT_LE(writer->figures().bytes, writer->figures().cap_bytes);
    EXPECT_TRUE(commit(*writer, 4'000));
}

TEST_F(AFullStore, IsReadOnAfterItsCapWasRaised) {
    { start(directory_.path(), cap); }
    auto reader = StoreReader::open(directory_.path());
    ASSERT_TRUE(reader);
    const auto writer = start(directory_.path(), 8 * cap);
    for (int round = 0; round < 60; ++round) ASSERT_TRUE(commit(*writer, 4'000));
    ASSERT_GT(writer->figures().bytes, 2 * cap);
    auto snapshot = (*reader)->snapshot();
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    EXPECT_EQ(scan_all(**snapshot)->size(), 60u * 4'000);
}

TEST_F(AFullStore, TurnsOverWhatItHasWhenTheDiskIsFull) {
    const auto writer = start(directory_.path(), 8 * cap);
    for (int round = 0; round < 10; ++round) ASSERT_TRUE(commit(*writer, 4'000));
    {
        const FileSizeLimit limit(std::filesystem::file_size(directory_.data_file()));
        for (int round = 0; round < 60; ++round) {
            const auto committed = commit(*writer, 4'000);
            ASSERT_TRUE(committed) << round << ": " << committed.error().message;
        }
        EXPECT_GT(writer->figures().events_dropped_for_space, 0u);
        expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
    }
    const uint64_t dropped = writer->figures().events_dropped_for_space;
    for (int round = 0; round < 10; ++round) ASSERT_TRUE(commit(*writer, 4'000));
    EXPECT_EQ(writer->figures().events_dropped_for_space, dropped) << "with room again nothing has to go";
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

TEST_F(AFullStore, SaysSoWhenNothingFitsAndIsUsableAfterwards) {
    const auto writer = start(directory_.path(), 8 * cap);
    ASSERT_TRUE(commit(*writer, 100));
    const Batch batch = next_batch(100'000);
    {
        const FileSizeLimit limit(std::filesystem::file_size(directory_.data_file()));
        const auto committed = writer->commit(batch);
        ASSERT_FALSE(committed);
        EXPECT_FALSE(committed.error().hint.empty());
    }
    EXPECT_EQ(writer->figures().last_sequence, 100u);
    EXPECT_EQ(scan_all(*open_snapshot(directory_.path()))->size(), 100u);
    ASSERT_TRUE(writer->commit(batch));
    EXPECT_EQ(scan_all(*open_snapshot(directory_.path()))->size(), 100'100u);
}

TEST_F(AFullStore, LosesNothingWhenACommitBreaksOffHalfway) {
    const auto writer = start(directory_.path());
    for (int round = 0; round < 5; ++round) ASSERT_TRUE(commit(*writer, 4'000));
    const Batch batch = next_batch(4'000);
    // The file is already longer, so that growing is no issue and LMDB itself runs into the limit.
    for (const uint64_t limit_bytes : {uint64_t{12} << 10, uint64_t{64} << 10}) {
        const FileSizeLimit limit(limit_bytes);
        ASSERT_FALSE(writer->commit(batch));
        EXPECT_EQ(writer->figures().last_sequence, 20'000u);
    }
    EXPECT_EQ(scan_all(*open_snapshot(directory_.path()))->size(), 20'000u);
    ASSERT_TRUE(writer->commit(batch));
    EXPECT_EQ(scan_all(*open_snapshot(directory_.path()))->size(), 24'000u);
}

TEST_F(AFullStore, IsConsistentAfterFailuresAtAnyPointOfACommit) {
    const auto writer = start(directory_.path());
    for (int round = 0; round < 5; ++round) ASSERT_TRUE(commit(*writer, 4'000));
    uint64_t last = next_ - 1;
    std::mt19937 random(5);
    for (int round = 0; round < 60; ++round) {
        const Batch batch = next_batch(4'000);
        const FileSizeLimit limit((1 + random() % 1'500) * 4096);
        if (writer->commit(batch))
            last = next_ - 1;
        else
            next_ = last + 1;
        ASSERT_EQ(writer->figures().last_sequence, last);
    }
    ASSERT_TRUE(commit(*writer, 4'000));
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

/// A file system of its own, a few MiB small.
class SmallDisk {
  public:
    explicit SmallDisk(const std::string& path, const char* options) : path_(path) {
        mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0, options) == 0;
    }
    ~SmallDisk() {
        if (mounted_) umount2(path_.c_str(), MNT_DETACH);
    }
    bool mounted() const { return mounted_; }

  private:
    std::string path_;
    bool mounted_ = false;
};

TEST_F(AFullStore, TurnsOverWhatItHasOnAFullFileSystem) {
    const SmallDisk disk(directory_.path(), "size=8m");
    if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs";
    const auto writer = start(directory_.path(), 8 * cap);
    for (int round = 0; round < 60; ++round) {
        const auto committed = commit(*writer, 2'000);
        ASSERT_TRUE(committed) << round << ": " << committed.error().message;
    }
    EXPECT_GT(writer->figures().events_dropped_for_space, 0u);
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

TEST_F(AFullStore, SurvivesAFileSystemThatOthersFillUp) {
    const SmallDisk disk(directory_.path(), "size=8m");
    if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs";
    const auto writer = start(directory_.path(), 8 * cap);
    ASSERT_TRUE(commit(*writer, 100));
    write_file(directory_.path() + "/others", std::string(8 << 20, 'x'));
    uint64_t last = next_ - 1;
    size_t failed = 0;
    for (int round = 0; round < 20; ++round) {
        const Batch batch = next_batch(8'000);
        if (writer->commit(batch)) {
            last = batch.events.back().sequence;
        } else {
            ++failed;
            next_ = last + 1;
        }
    }
    EXPECT_GT(failed, 0u);
    std::filesystem::remove(directory_.path() + "/others");
    const auto committed = commit(*writer, 8'000);
    ASSERT_TRUE(committed) << committed.error().message;
    expect_the_newest(directory_.path(), writer->figures(), next_ - 1);
}

}  // namespace
}  // namespace ingero
