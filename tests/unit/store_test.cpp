#include "core/store/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::HasSubstr;

/// A store with one running session.
class AStore : public testing::Test {
  protected:
    std::unique_ptr<StoreWriter> start(const std::string& boot_id = "boot-a", const StoreOptions& options = {}) {
        auto writer = open_writer(directory_.path(), options);
        if (writer) {
            EXPECT_TRUE(writer->begin_session(make_session(boot_id)));
        }
        return writer;
    }

    void commit(StoreWriter& writer, Batch batch) {
        const auto result = writer.commit(batch);
        ASSERT_TRUE(result) << result.error().message;
    }

    void commit_events(StoreWriter& writer, std::vector<Event> events) {
        Batch batch;
        batch.events = std::move(events);
        commit(writer, std::move(batch));
    }

    std::vector<Event> scan(uint32_t boot_index, Window window) {
        const auto snapshot = open_snapshot(directory_.path());
        if (!snapshot) return {};
        auto events = scan_all(*snapshot, boot_index, window);
        if (!events) ADD_FAILURE() << events.error().message;
        return events.value_or(std::vector<Event>{});
    }

    TemporaryDirectory directory_;
};

TEST_F(AStore, GivesBackEveryFieldOfWhatWasCommitted) {
    const auto events = make_events(1, 10'000, 1'000'000);
    commit_events(*start(), events);
    const auto back = scan(0, everything);
    ASSERT_EQ(back.size(), events.size());
    for (size_t i = 0; i < events.size(); ++i) ASSERT_EQ(all_fields(back[i]), all_fields(events[i])) << i;
}

TEST_F(AStore, GivesEventsInOrderOfStartWithinABatch) {
    auto events = make_events(1, 9'000, 1'000'000);
    std::shuffle(events.begin(), events.end(), std::mt19937(1));
    commit_events(*start(), events);
    const auto back = scan(0, everything);
    ASSERT_EQ(back.size(), events.size());
    EXPECT_TRUE(std::is_sorted(back.begin(), back.end(),
                               [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; }));
}

TEST_F(AStore, VisitsBlocksInOrderOfTheirStart) {
    const auto writer = start();
    commit_events(*writer, make_events(1, 10, 50'000));
    commit_events(*writer, make_events(11, 10, 10'000));
    EXPECT_EQ(scan(0, everything).front().sequence, 11u);
}

TEST_F(AStore, GivesOnlyWhatOverlapsTheWindow) {
    commit_events(*start(), make_events(1, 10'000, 0));  // each 500 ns, a microsecond apart
    EXPECT_EQ(sequences(scan(0, {3'000, 6'000})), (std::vector<uint64_t>{4, 5, 6}));
    EXPECT_EQ(sequences(scan(0, {3'499, 3'500})), (std::vector<uint64_t>{4}));
    EXPECT_TRUE(scan(0, {3'500, 4'000}).empty());
    EXPECT_TRUE(scan(0, {20'000'000, 30'000'000}).empty());
    EXPECT_TRUE(scan(0, {5'000, 4'000}).empty());
}

TEST_F(AStore, FindsCallsThatBeganLongBeforeTheWindow) {
    const auto writer = start();
    // Stored at its end: a call of 20 ms lies in a block that begins before those of 4 batches that came first.
    for (uint64_t i = 0; i < 4; ++i)
        commit_events(*writer, make_events(1 + i * 5'000, 5'000, 1'000'000 + i * 5'000'000));
    auto late = make_events(20'002, 5'000, 21'000'000);
    late.push_back(make_event(20'001, 900'000, 20'500'000));
    commit_events(*writer, late);
    const auto found = sequences(scan(0, {21'300'000, 21'302'000}));
    EXPECT_THAT(found, testing::UnorderedElementsAre(20'001, 20'302, 20'303));
    EXPECT_THAT(sequences(scan(0, {12'000'200, 12'000'300})), testing::UnorderedElementsAre(20'001, 11'001));
}

TEST_F(AStore, FindsALongCallInABlockWhoseStartsAllLieBeforeTheWindow) {
    const auto writer = start();
    commit_events(*writer, {make_event(1, 1'000, 9'000'000), make_event(2, 2'000, 10)});
    commit_events(*writer, make_events(3, 100, 8'000'000));
    EXPECT_EQ(sequences(scan(0, {5'000'000, 5'000'001})), (std::vector<uint64_t>{1}));
    EXPECT_EQ(sequences(scan(0, {8'000'000, 8'000'100})), (std::vector<uint64_t>{1, 3}));
}

TEST_F(AStore, StopsAScanWhenToldTo) {
    commit_events(*start(), make_events(1, 20'000, 0));
    const auto snapshot = open_snapshot(directory_.path());
    int visits = 0;
    ASSERT_TRUE(snapshot->scan(0, everything, [&](std::span<const Event>) { return ++visits < 2; }));
    EXPECT_EQ(visits, 2);
}

TEST_F(AStore, KeepsBootsApart) {
    {
        const auto writer = start("boot-a");
        commit_events(*writer, make_events(1, 3, 1'000));
    }
    {
        const auto writer = start("boot-b");
        commit_events(*writer, make_events(4, 2, 1'000));
    }
    {
        const auto writer = start("boot-b");
        commit_events(*writer, make_events(6, 1, 9'000));
    }
    EXPECT_EQ(sequences(scan(0, everything)), (std::vector<uint64_t>{1, 2, 3}));
    EXPECT_EQ(sequences(scan(1, everything)), (std::vector<uint64_t>{4, 5, 6}));
    EXPECT_TRUE(scan(2, everything).empty());
    const auto snapshot = open_snapshot(directory_.path());
    ASSERT_EQ(snapshot->sessions().size(), 3u);
    EXPECT_EQ(snapshot->sessions()[0].boot_index, 0u);
    EXPECT_EQ(snapshot->sessions()[1].boot_index, 1u);
    EXPECT_EQ(snapshot->sessions()[2].boot_index, 1u) << "the same boot";
}

TEST_F(AStore, KeepsSessionsWithTheirCoverage) {
    StoreOptions options;
    ClockTriple now{5'000, 6'000, 1'700'000'000'000'004'000};
    options.clock = [&] { return now; };
    const Session session = make_session("boot-a");
    {
        const auto writer = start("boot-a", options);
        writer->set_first_covered(1'500);
        writer->set_first_covered(1'600);
        Batch batch;
        batch.covered_until_ns = 4'000;
        commit(*writer, batch);
        batch.covered_until_ns = 3'000;  // never goes back
        commit(*writer, batch);
        now.monotonic_ns = 7'000;
        ASSERT_TRUE(writer->end_session());
    }
    const auto snapshot = open_snapshot(directory_.path());
    ASSERT_EQ(snapshot->sessions().size(), 1u);
    const Session& back = snapshot->sessions()[0];
    EXPECT_EQ(
        std::tie(back.id, back.boot_id, back.node, back.machine_id, back.version, back.kernel, back.attach_method),
        std::tie(session.id, session.boot_id, session.node, session.machine_id, session.version, session.kernel,
                 session.attach_method));
    EXPECT_EQ(back.clock.monotonic_ns, session.clock.monotonic_ns);
    EXPECT_EQ(back.clock.boottime_ns, session.clock.boottime_ns);
    EXPECT_EQ(back.clock.realtime_ns, session.clock.realtime_ns);
    EXPECT_EQ(back.latest_clock.monotonic_ns, 7'000u);
    EXPECT_EQ(back.first_covered_ns, 1'500u);
    EXPECT_EQ(back.last_covered_ns, 4'000u);
    EXPECT_TRUE(back.ended_cleanly);
}

TEST_F(AStore, KnowsASessionThatDidNotEnd) {
    start();
    EXPECT_FALSE(open_snapshot(directory_.path())->sessions()[0].ended_cleanly);
}

TEST_F(AStore, RefusesToCommitWithoutASession) {
    const auto writer = open_writer(directory_.path());
    EXPECT_FALSE(writer->commit({}));
    EXPECT_FALSE(writer->end_session());
    ASSERT_TRUE(writer->begin_session(make_session("boot-a")));
    EXPECT_FALSE(writer->begin_session(make_session("boot-a")));
}

Process make_process(uint32_t pid, uint64_t start_ns) {
    return {.key = {pid, start_ns},
            .uid = 1000,
            .parent_pid = 7,
            .comm = "python3",
            .cgroup = "/system.slice/x.service",
            .unit = "x.service",
            .first_seen_ns = 55,
            .exited_ns = 0,
            .exit_code = 0};
}

TEST_F(AStore, ReplacesAProcessRowOfTheSameKey) {
    const auto writer = start();
    Batch batch;
    batch.processes = {make_process(10, 1), make_process(10, 2), make_process(11, 1)};
    commit(*writer, batch);
    Process ended = make_process(10, 2);
    ended.exited_ns = 99;
    ended.exit_code = -9;
    ended.comm = "\xff\x01 not text";
    batch.processes = {ended};
    commit(*writer, batch);
    const auto rows = open_snapshot(directory_.path())->processes();
    ASSERT_TRUE(rows);
    ASSERT_EQ(rows->size(), 3u);
    EXPECT_EQ((*rows)[0].key, (ProcessKey{10, 1}));
    EXPECT_EQ((*rows)[0].cgroup, "/system.slice/x.service");
    EXPECT_EQ((*rows)[0].unit, "x.service");
    EXPECT_EQ((*rows)[0].uid, 1000u);
    EXPECT_EQ((*rows)[0].parent_pid, 7u);
    EXPECT_EQ((*rows)[0].first_seen_ns, 55u);
    EXPECT_EQ((*rows)[1].exited_ns, 99u);
    EXPECT_EQ((*rows)[1].exit_code, -9);
    EXPECT_EQ((*rows)[1].comm, ended.comm);
}

TEST_F(AStore, KeepsCommunicatorsByProcessAndId) {
    const auto writer = start();
    CommunicatorRow row;
    row.process = {10, 1};
    row.id = 77;
    row.rank = 3;
    row.ranks = 8;
    row.hash = 0xfeed;
    row.origin = CommunicatorOrigin::init_rank;
    CommunicatorRow part;
    part.process = {10, 2};
    part.id = 77;
    part.parent = 76;
    part.parent_hash = 0xfeed;
    part.color = -1;
    part.key = -5;
    part.split = 4;
    part.seen_ns = 123;
    part.origin = CommunicatorOrigin::split;
    Batch batch;
    batch.communicators = {row, part};
    commit(*writer, batch);
    row.handle = 0x5000;  // given out later
    row.interrupted_ns = 456;
    batch.communicators = {row};
    commit(*writer, batch);
    const auto rows = open_snapshot(directory_.path())->communicators();
    ASSERT_TRUE(rows);
    ASSERT_EQ(rows->size(), 2u);
    const CommunicatorRow &first = (*rows)[0], &second = (*rows)[1];
    EXPECT_EQ(first.process, (ProcessKey{10, 1}));
    EXPECT_EQ(first.handle, 0x5000u);
    EXPECT_EQ(first.interrupted_ns, 456u);
    EXPECT_EQ(first.rank, 3);
    EXPECT_EQ(first.ranks, 8u);
    EXPECT_EQ(first.hash, 0xfeedu);
    EXPECT_EQ(first.origin, CommunicatorOrigin::init_rank);
    EXPECT_EQ(second.process, (ProcessKey{10, 2}));
    EXPECT_EQ(second.id, 77u);
    EXPECT_EQ(second.parent, 76u);
    EXPECT_EQ(second.parent_hash, 0xfeedu);
    EXPECT_EQ(second.color, -1);
    EXPECT_EQ(second.key, -5);
    EXPECT_EQ(second.split, 4u);
    EXPECT_EQ(second.seen_ns, 123u);
    EXPECT_EQ(second.rank, -1);
    EXPECT_EQ(second.origin, CommunicatorOrigin::split);
}

TEST_F(AStore, CutsAProcessTextThatIsTooLong) {
    const auto writer = start();
    Batch batch;
    batch.processes = {make_process(10, 1)};
    batch.processes[0].cgroup.assign(100'000, 'x');
    commit(*writer, batch);
    EXPECT_EQ(open_snapshot(directory_.path())->processes()->at(0).cgroup, std::string(4096, 'x'));
}

TEST_F(AStore, GivesTheLossesThatOverlapTheWindow) {
    const auto writer = start();
    Batch batch;
    batch.losses = {
        {.from_ns = 100, .to_ns = 200, .op = 0x103, .lost_ring = 1, .lost_frames = 2, .lost_depth = 3, .uncertain = 4},
        {.from_ns = 200, .to_ns = 300, .op = 0x103, .lost_ring = 5},
        {.from_ns = 200, .to_ns = 300, .op = 0x104, .uncertain = 6},
        {.from_ns = 300, .to_ns = 400, .op = 0x103}};
    commit(*writer, batch);
    const auto snapshot = open_snapshot(directory_.path());
    const auto all = snapshot->losses(0, everything);
    ASSERT_TRUE(all);
    ASSERT_EQ(all->size(), 3u) << "a row of zeros is not stored";
    EXPECT_EQ((*all)[0].lost(), 6u);
    EXPECT_EQ((*all)[0].uncertain, 4u);
    EXPECT_EQ((*all)[2].op, 0x104);
    EXPECT_EQ(snapshot->losses(0, {150, 200})->size(), 1u);
    EXPECT_EQ(snapshot->losses(0, {199, 201})->size(), 3u);
    EXPECT_EQ(snapshot->losses(0, {300, 900})->size(), 0u);
    EXPECT_EQ(snapshot->losses(1, everything)->size(), 0u);
}

TEST_F(AStore, AddsUpLossesOfTheSameIntervalAndOp) {
    const auto writer = start();
    Batch batch;
    batch.losses = {{.from_ns = 100, .to_ns = 200, .op = 1, .lost_ring = 1}};
    commit(*writer, batch);
    batch.losses = {{.from_ns = 100, .to_ns = 200, .op = 1, .lost_ring = 2, .lost_depth = 5}};
    commit(*writer, batch);
    EXPECT_EQ(open_snapshot(directory_.path())->losses(0, everything)->at(0).lost(), 8u);
}

TEST_F(AStore, GoesOnNumberingWhereItEnded) {
    commit_events(*start(), make_events(1, 123, 0));
    EXPECT_EQ(open_writer(directory_.path())->figures().last_sequence, 123u);
    EXPECT_EQ(open_snapshot(directory_.path())->figures().last_sequence, 123u);
}

TEST_F(AStore, TellsItsFigures) {
    const auto writer = start();
    EXPECT_EQ(writer->figures().oldest_realtime_ns, 0u);
    EXPECT_EQ(writer->figures().cap_bytes, 10ULL << 30);
    commit_events(*writer, make_events(1, 5'000, 1'000));
    const StoreFigures figures = writer->figures();
    EXPECT_EQ(figures.blocks, 2u);
    EXPECT_EQ(figures.last_sequence, 5'000u);
    EXPECT_GT(figures.bytes, 5'000u * 170);
    EXPECT_GT(figures.oldest_realtime_ns, 0u);
    EXPECT_EQ(figures.events_dropped_for_space, 0u);
    const StoreFigures read = open_snapshot(directory_.path())->figures();
    EXPECT_EQ(read.blocks, figures.blocks);
    EXPECT_EQ(read.bytes, figures.bytes);
    EXPECT_EQ(read.oldest_realtime_ns, figures.oldest_realtime_ns);
}

TEST_F(AStore, ShowsASnapshotThatDoesNotChange) {
    const auto writer = start();
    commit_events(*writer, make_events(1, 10, 0));
    auto reader = StoreReader::open(directory_.path());
    ASSERT_TRUE(reader);
    auto before = (*reader)->snapshot();
    commit_events(*writer, make_events(11, 10, 100'000));
    auto after = (*reader)->snapshot();
    EXPECT_EQ(scan_all(**before)->size(), 10u);
    EXPECT_EQ(scan_all(**after)->size(), 20u);
}

/// From here on any call that would open, lock or stat a file kills the process.
bool forbid_files() {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == nullptr) return false;
    for (const int call : {SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(fcntl), SCMP_SYS(flock), SCMP_SYS(pread64),
                           SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(ftruncate), SCMP_SYS(pwrite64)})
        if (seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, call, 0) != 0) return false;
    const bool loaded = seccomp_load(filter) == 0;
    seccomp_release(filter);
    return loaded;
}

TEST_F(AStore, IsReadByAWorkerThatMayNoLongerOpenFiles) {
    commit_events(*start(), make_events(1, 5'000, 0));
    const pid_t child = fork();
    if (child == 0) {
        const auto reader = StoreReader::open(directory_.path());
        if (!reader || !forbid_files()) _exit(2);
        for (int i = 0; i < 3; ++i) {
            const auto snapshot = (*reader)->snapshot();
            if (!snapshot || scan_all(**snapshot)->size() != 5'000) _exit(3);
        }
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "killed by " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// From here on this thread's disk fails as LMDB writes a meta page, which is less than a page, and may not be opened
/// for writing.
bool break_disk() {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == nullptr) return false;
    bool loaded =
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(EIO), SCMP_SYS(pwrite64), 1, SCMP_A2(SCMP_CMP_LT, 4096, 0)) == 0 &&
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(EROFS), SCMP_SYS(openat), 1,
                         SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE, O_RDWR)) == 0;
    loaded = loaded && seccomp_load(filter) == 0;
    seccomp_release(filter);
    return loaded;
}

TEST_F(AStore, FailsWhileItsDiskIsBrokenAndReadOnlyAndGoesOnAfterwards) {
    const auto writer = start();
    commit_events(*writer, make_events(1, 10, 0));
    Batch batch;
    batch.events = make_events(11, 10, 100'000);
    const Batch without_spans = batch;
    batch.spans.emplace_back().id = "a";
    bool broken = false;
    std::vector<Error> errors;
    std::thread([&] {
        broken = break_disk();
        for (int i = 0; i < 4; ++i)
            if (const auto committed = writer->commit(i % 2 == 0 ? batch : without_spans); !committed)
                errors.push_back(committed.error());
        if (const auto tidied = writer->tidy(); !tidied) errors.push_back(tidied.error());
    }).join();
    if (!broken) GTEST_SKIP() << "needs seccomp";
    ASSERT_EQ(errors.size(), 5u);
    EXPECT_THAT(errors.back().message, HasSubstr("Read-only file system"));
    for (const Error& error : errors) EXPECT_FALSE(error.hint.empty()) << error.message;
    EXPECT_EQ(writer->figures().last_sequence, 10u);
    commit(*writer, batch);
    EXPECT_EQ(scan_all(*open_snapshot(directory_.path()))->size(), 20u);
}

TEST_F(AStore, ThatIsRemovedUnderItsWriterTakesNothingMoreAndSaysSo) {
    auto writer = start();
    commit_events(*writer, make_events(1, 10, 0));
    std::filesystem::remove_all(directory_.path());
    Batch batch;
    batch.events = make_events(11, 10, 100'000);
    for (int i = 0; i < 2; ++i) {
        const auto committed = writer->commit(batch);
        ASSERT_FALSE(committed);
        EXPECT_EQ(committed.error().code, ErrorCode::not_found);
        EXPECT_THAT(committed.error().message, HasSubstr("file was removed; restart ingerod"));
        EXPECT_FALSE(committed.error().hint.empty());
    }
    EXPECT_FALSE(writer->tidy());
    EXPECT_FALSE(writer->end_session());
    EXPECT_EQ(writer->figures().last_sequence, 10u);
    EXPECT_FALSE(std::filesystem::exists(directory_.path())) << "nothing is made in its place";

    writer.reset();
    std::filesystem::create_directory(directory_.path());
    writer = start();
    commit(*writer, batch);
    EXPECT_EQ(scan_all(*open_snapshot(directory_.path()))->size(), 10u);
}

TEST_F(AStore, IsNotThereUntilAWriterMadeIt) {
    const auto reader = StoreReader::open(directory_.path());
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().code, ErrorCode::not_found);
    EXPECT_FALSE(reader.error().hint.empty());
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "a reader makes nothing";
    StoreOptions options;
    options.create = false;
    const auto writer = StoreWriter::open(directory_.path(), options);
    ASSERT_FALSE(writer);
    EXPECT_EQ(writer.error().code, ErrorCode::not_found);
    EXPECT_EQ(StoreWriter::open(directory_.path() + "/none", {}).error().code, ErrorCode::not_found);
}

TEST_F(AStore, IsReadFromADirectoryNobodyCanWriteTo) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody who may not write";
    commit_events(*start(), make_events(1, 10, 0));
    std::filesystem::remove(directory_.path() + "/lock.mdb");
    std::filesystem::permissions(directory_.path(), std::filesystem::perms(0555));
    std::filesystem::permissions(directory_.data_file(), std::filesystem::perms(0444));
    std::filesystem::permissions(directory_.path() + "/ingerod.lock", std::filesystem::perms(0444));
    const pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
        const auto reader = StoreReader::open(directory_.path());
        if (!reader) _exit(3);
        const auto snapshot = (*reader)->snapshot();
        _exit(snapshot && scan_all(**snapshot)->size() == 10 ? 0 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(AStore, HasOneWriter) {
    const auto first = start();
    const auto second = StoreWriter::open(directory_.path(), {});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::busy);
    EXPECT_THAT(second.error().message, HasSubstr(std::to_string(getpid())));
    EXPECT_THAT(second.error().hint, HasSubstr("--directory"));
    commit_events(*first, make_events(1, 10, 0));
}

TEST_F(AStore, IsFreeAgainWhenItsWriterIsGone) {
    start().reset();
    EXPECT_NE(start(), nullptr);
}

/// The last sequence each commit of the child acknowledged, as numbers on a pipe.
[[noreturn]] void commit_until_killed(const std::string& directory, int acknowledge) {
    auto writer = StoreWriter::open(directory, {});
    if (!writer || !(*writer)->begin_session(make_session("boot-a"))) _exit(1);
    std::mt19937 random(static_cast<unsigned>(getpid()));
    for (;;) {
        const uint64_t next = (*writer)->figures().last_sequence + 1;
        Batch batch;
        batch.events = make_events(next, 1 + random() % 3'000, next * 1'000);
        batch.covered_until_ns = next;
        if (!(*writer)->commit(batch)) _exit(2);
        const uint64_t last = batch.events.back().sequence;
        if (write(acknowledge, &last, sizeof last) != sizeof last) _exit(3);
    }
}

TEST_F(AStore, HasEveryAcknowledgedCommitAfterAKill) {
    std::mt19937 random(7);
    uint64_t acknowledged = 0;
    for (int round = 0; round < 25; ++round) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            commit_until_killed(directory_.path(), ends[1]);
        }
        close(ends[1]);
        uint64_t value = 0;
        const unsigned commits = 1 + random() % 8;
        for (unsigned i = 0; i < commits && read(ends[0], &value, sizeof value) == sizeof value; ++i)
            acknowledged = value;
        usleep(random() % 4'000);  // into the middle of a commit
        kill(child, SIGKILL);
        while (read(ends[0], &value, sizeof value) == sizeof value) acknowledged = value;
        close(ends[0]);
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status)) << "exited with " << WEXITSTATUS(status);
        const auto snapshot = open_snapshot(directory_.path());
        ASSERT_TRUE(snapshot);
        const uint64_t last = snapshot->figures().last_sequence;
        ASSERT_GE(last, acknowledged);
        const auto events = scan_all(*snapshot);
        ASSERT_TRUE(events) << events.error().message;
        ASSERT_EQ(events->size(), last) << "each sequence up to the last, once";
    }
    EXPECT_GT(acknowledged, 10'000u);
}

}  // namespace
}  // namespace ingero
