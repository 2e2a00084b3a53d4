// What can go wrong below a running daemon's store: it says so, goes on, and loses nothing that it acknowledged.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/model/op.h"
#include "core/store/verify.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/mount_point.h"

using namespace ingero;
using namespace ingero::test;
using testing::HasSubstr;

namespace {

class StoreTrouble : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    static std::vector<std::string> calls(uint64_t count, uint64_t rate) {
        return {"calls", "--count", std::to_string(count), "--rate", std::to_string(rate), "--op", "launch",
                "--cpu", "0"};
    }

    /// Until the daemon's status says so.
    template <class Wanted>
    static testing::AssertionResult wait_for(Daemon& daemon, const char* what, Wanted wanted) {
        Patience limit;
        nlohmann::json status;
        while (limit.lasts()) {
            status = daemon.status();
            if (wanted(status)) return testing::AssertionSuccess();
        }
        return testing::AssertionFailure() << "never " << what << ": " << status.dump();
    }

    const TemporaryDirectory directory_;
};

TEST_F(StoreTrouble, ASnapshotOfARunningDaemonIsConsistentAndHoldsNobodyBack) {
    Daemon daemon(directory_ / "run");
    // Two records each: the ring and the queue have room for what comes while a slow disk syncs.
    Workload workload(calls(10'000'000, 5'000));
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    uint64_t committed = 0;
    for (int round = 0; round < 5; ++round) {
        const uint64_t before = committed;
        ASSERT_TRUE(wait_for(daemon, "committed more", [&](const nlohmann::json& status) {
            committed = status.at("events").at("committed");
            return committed > before + 5'000;
        }));
        const std::string copy = directory_ / ("copy-" + std::to_string(round));
        const Finished taken = run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json", "db", "snapshot", copy});
        ASSERT_EQ(taken.status, 0) << taken.errors;
        const auto verified = verify_store(copy);
        ASSERT_TRUE(verified && verified->is_clean());
        EXPECT_GE(verified->events, committed) << "what was committed before it was asked for is in it";
        EXPECT_EQ(read_store(copy).sessions.size(), 1u);
    }
    const Finished again =
        run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "db", "snapshot", directory_ / "copy-0"});
    EXPECT_EQ(again.status, 1);
    EXPECT_THAT(again.errors, HasSubstr("already exists"));
    EXPECT_EQ(daemon.stop(), 0);
    // A daemon that is held up loses to its ring. A frame is lost with a program of another test that is killed in the
    // middle of a call.
    for (const LossRow& row : read_store(daemon.store()).losses)
        if (const Op* op = find_op(row.op); op && op->op_class == OpClass::launch) {
            EXPECT_EQ(row.lost_ring, 0u) << op->name;
        }
}

TEST_F(StoreTrouble, ASnapshotIsOfTheDaemonsUserOnlyAndGoesToAFileOnly) {
    Daemon daemon(directory_ / "run");
    auto client = ControlClient::connect(daemon.socket());
    ASSERT_TRUE(client);
    const auto none = client->call("snapshot", nlohmann::json::object(), milliseconds(10'000));
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::bad_request);
    for (const auto& [path, flags] :
         {std::pair<const char*, int>{"/dev/null", O_WRONLY}, {"/etc/hostname", O_RDONLY}}) {
        const UniqueFd fd(open(path, flags | O_CLOEXEC));
        const auto refused = client->call("snapshot", nlohmann::json::object(), milliseconds(10'000), fd.get());
        ASSERT_FALSE(refused) << path;
        EXPECT_EQ(refused.error().code, ErrorCode::bad_request);
    }
    std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
    const std::string others = directory_ / "others";
    std::filesystem::create_directory(others);
    ASSERT_EQ(chown(others.c_str(), 12'345, 12'345), 0);
    const Finished denied = run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "db", "snapshot", others + "/copy"},
                                {.environment = {}, .uid = 12'345});
    EXPECT_EQ(denied.status, 1);
    EXPECT_THAT(denied.errors, HasSubstr("only root")) << denied.errors;
    EXPECT_TRUE(std::filesystem::is_empty(others));
    EXPECT_EQ(daemon.stop(), 0);
}

TEST_F(StoreTrouble, ADiskFilledToTheLastByteIsSaidAndSurvived) {
    MountPoint mounted(directory_ / "disk");
    if (!mounted.mount("tmpfs", "size=24m")) GTEST_SKIP() << "needs the right to mount a tmpfs";
    const std::string& disk = mounted.path();
    Daemon daemon(disk + "/run");
    Workload workload(calls(10'000'000, 30'000));
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_TRUE(wait_for(daemon, "committed",
                         [](const nlohmann::json& status) { return status.at("events").at("committed") > 0; }));
    std::ofstream others(disk + "/others", std::ios::binary);
    const std::string block(4096, 'x');
    while (others.write(block.data(), 4096).flush()) {
    }
    // It turns over what it has, or says that it cannot store: either way it answers, and goes on afterwards.
    const uint64_t before = daemon.status().at("events").at("recorded");
    ASSERT_TRUE(wait_for(daemon, "recorded on", [&](const nlohmann::json& status) {
        return status.at("events").at("recorded") > before + 100'000;
    }));
    others.close();
    std::filesystem::remove(disk + "/others");
    const uint64_t committed = daemon.status().at("events").at("committed");
    ASSERT_TRUE(wait_for(daemon, "stored again", [&](const nlohmann::json& status) {
        return status.at("events").at("committed") > committed + 50'000;
    }));
    EXPECT_EQ(daemon.stop(), 0);
    const auto verified = verify_store(daemon.store());
    EXPECT_TRUE(verified && verified->is_clean());
}

/// Root may write everywhere: this is done by another user, who says by the exit code how far it came.
int write_into_a_directory_made_read_only(const std::string& directory) {
    const auto commit = [](StoreWriter& writer) {
        Batch batch;
        for (uint64_t i = 1; i <= 3'000; ++i) {
            Event event;
            event.sequence = writer.figures().last_sequence + i;
            event.start_ns = event.sequence * 1'000;
            batch.events.push_back(event);
        }
        return writer.commit(batch).has_value();
    };
    Session session;
    session.boot_id = "boot-a";
    if (setgid(65'534) != 0 || setuid(65'534) != 0) return 1;
    {
        auto writer = StoreWriter::open(directory, {.max_size_bytes = 16 << 20});
        if (!writer || !(*writer)->begin_session(session) || !commit(**writer)) return 2;
        if (chmod(directory.c_str(), 0500) != 0) return 3;
        for (int i = 0; i < 100; ++i)
            if (!commit(**writer) || !(*writer)->tidy()) return 4;
        const auto verified = verify_store(directory);
        if (!verified || !verified->is_clean() || verified->events != 303'000) return 5;
    }
    if (!StoreWriter::open(directory, {.max_size_bytes = 16 << 20})) return 6;
    // Its files, too: then there is no writing, and that is said; reading there is.
    if (chmod((directory + "/data.mdb").c_str(), 0400) != 0) return 7;
    const auto refused = StoreWriter::open(directory, {.max_size_bytes = 16 << 20});
    if (refused || refused.error().code != ErrorCode::denied || refused.error().hint.empty()) return 8;
    const auto verified = verify_store(directory);
    return verified && verified->is_clean() && verified->events == 303'000 ? 0 : 9;
}

TEST(AStore, InADirectoryMadeReadOnlyUnderWayIsWrittenOn) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const TemporaryDirectory outer;
    std::filesystem::permissions(outer.path(), std::filesystem::perms::all);
    const std::string directory = outer / "store";
    std::filesystem::create_directory(directory);
    ASSERT_EQ(chown(directory.c_str(), 65'534, 65'534), 0);
    EXPECT_EXIT(_exit(write_into_a_directory_made_read_only(directory)), testing::ExitedWithCode(0), "");
}

TEST_F(StoreTrouble, ABlockWithAFlippedBitCostsItsOwnCallsAndNoDaemon) {
    std::string store;
    {
        Daemon daemon(directory_ / "run");
        store = daemon.store();
        Workload workload(calls(60'000, 30'000));
        ASSERT_TRUE(daemon.wait_traced(workload.pid()));
        workload.open_gate();
        ASSERT_EQ(workload.finish(), 0);
        EXPECT_EQ(daemon.stop(), 0);
    }
    const uint64_t events = verify_store(store)->events;
    std::string file;
    {
        std::ifstream in(store + "/data.mdb", std::ios::binary);
        file.assign(std::istreambuf_iterator<char>(in), {});
    }
    const size_t at = file.find("IGBK");
    ASSERT_NE(at, std::string::npos);
    std::fstream out(store + "/data.mdb", std::ios::binary | std::ios::in | std::ios::out);
    for (size_t block = at; block != std::string::npos; block = file.find("IGBK", block + 1)) {
        constexpr size_t inside = 64;  // of the smallest block: what lies behind one is not its own
        out.seekp(static_cast<std::streamoff>(block + inside));
        out.put(static_cast<char>(file[block + inside] ^ 0x40));
    }
    out.close();
    const auto damaged = verify_store(store);
    ASSERT_TRUE(damaged);
    EXPECT_FALSE(damaged->is_clean());
    EXPECT_LT(damaged->events, events);
    // The daemon goes on with it: what is damaged is told when it is asked for, and what comes is stored.
    Daemon daemon(directory_ / "run");
    const auto stats = daemon.try_call("query", {{"sql", "SELECT SUM(duration) FROM events"}});
    ASSERT_FALSE(stats);
    EXPECT_EQ(stats.error().code, ErrorCode::corrupt);
    EXPECT_THAT(stats.error().message, HasSubstr("block"));
    Workload workload(calls(1'000, 10'000));
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    ASSERT_TRUE(wait_for(daemon, "committed", [&](const nlohmann::json& status) {
        return status.at("events").at("committed") >= status.at("events").at("recorded") &&
               status.at("events").at("recorded") > 0;
    }));
    EXPECT_EQ(daemon.stop(), 0);
    const auto after = verify_store(store);
    ASSERT_TRUE(after);
    EXPECT_GT(after->events, damaged->events);
    EXPECT_EQ(after->damaged, damaged->damaged) << "nothing else was harmed";
}

TEST_F(StoreTrouble, AFileThatIsNoStoreIsRefusedAtTheStartAndLeftAsItIs) {
    { Daemon daemon(directory_ / "run"); }
    const std::string store = directory_ / "run/store";
    const std::string data = store + "/data.mdb";
    std::filesystem::remove_all(store + "/lock.mdb");
    std::ofstream(data, std::ios::binary | std::ios::trunc) << "SQLite format 3" << std::string(9'000, 'x');
    const Finished ended = run({INGEROD_PROGRAM, "--config", "/dev/null", "--directory", directory_ / "run"});
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.errors + ended.output, HasSubstr("damaged"));
    EXPECT_EQ(std::filesystem::file_size(data), 9'015u) << "left as it was";
}

}  // namespace
