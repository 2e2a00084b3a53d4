// Traces of the earlier agent, of every generation: small ones made here. Real ones: import_traces_test.cpp.

#include "core/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/import/trace_stacks.h"
#include "core/model/op.h"
#include "core/query/answers/stats.h"
#include "tests/unit/trace_fixture.h"

namespace ingero {
namespace {

using test::first_generation;
using test::latest_generation;
using test::second_generation;
using test::TraceFolder;
using testing::HasSubstr;

constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t start = 1'700'000'000 * second;

std::string event(uint64_t id, uint64_t timestamp, uint32_t pid, uint32_t tid, int source, int op, uint64_t duration,
                  const std::string& arg0 = "0", const std::string& arg1 = "0", const std::string& stack = "0") {
    return "INSERT INTO events(id,timestamp,pid,tid,source,op,duration,arg0,arg1,stack_hash) VALUES(" +
           std::to_string(id) + "," + std::to_string(timestamp) + "," + std::to_string(pid) + "," +
           std::to_string(tid) + "," + std::to_string(source) + "," + std::to_string(op) + "," +
           std::to_string(duration) + "," + arg0 + "," + arg1 + "," + stack + ");";
}

class Import : public testing::Test {
  protected:
    TraceFolder folder_;
};

TEST_F(Import, AnchorsDifferBySource) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +
                       event(2, start, 10, 10, 3, 1, 400) + event(3, start, 10, 11, 5, 1, 300) +
                       event(4, start, 10, 11, 7, 2, 200) + event(5, start, 10, 10, 3, 5, 0));
    const auto events = folder_.import_events();
    ASSERT_EQ(events.size(), 5u);
    const auto start_of = [&](OpId op) {
        for (const Event& one : events)
            if (one.op == op) return one.start_ns;
        return uint64_t{0};
    };
    EXPECT_EQ(start_of(op::cudaLaunchKernel), start);
    EXPECT_EQ(start_of(op::sched_switch), start - 400);
    EXPECT_EQ(start_of(op::block_read), start - 300);
    EXPECT_EQ(start_of(op::net_recv), start - 200);
    EXPECT_EQ(start_of(op::process_exec), start);
}

TEST_F(Import, ZeroIsNotTheDefaultStreamNorADevice) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 10, "77") +
                       event(2, start + 100, 10, 10, 1, 3, 10, "77", "4242") +
                       event(3, start + 200, 10, 10, 4, 3, 10, "512"));
    const auto events = folder_.import_events();
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].stream, unknown_stream);
    EXPECT_EQ(events[0].args[0], 77u);
    EXPECT_EQ(events[1].stream, 4242u);
    EXPECT_EQ(events[1].args[1], 0u);  // a launch has its grid there
    EXPECT_EQ(events[2].args[1], 5u);  // direction: not known
    for (const Event& one : events) EXPECT_EQ(one.device, INGERO_DEVICE_UNKNOWN);
}

TEST_F(Import, NestingAndOffCpuTimeComeFromTheRowsAround) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +
                       event(2, start + 100, 10, 10, 4, 1, 500) +
                       event(3, start + 550, 10, 10, 3, 1, 350) +  // off from +200 to +550: inside both
                       event(4, start + 3000, 10, 10, 3, 1, 100) + event(5, start + 5000, 10, 12, 1, 3, 1000));
    const auto events = folder_.import_events();
    for (const Event& one : events) {
        if (one.op == op::cudaLaunchKernel && one.tid == 10) {
            EXPECT_EQ(one.depth, 0);
            EXPECT_EQ(one.blocked_ns, 350u);
            EXPECT_FALSE(one.split_uncertain());
        }
        if (one.op == op::cuLaunchKernel) {
            EXPECT_EQ(one.depth, 1);
            EXPECT_EQ(one.blocked_ns, 350u);
        }
        if (one.tid == 12) {
            EXPECT_TRUE(one.split_uncertain()) << "no off-CPU time of this thread was recorded";
        }
    }
    EXPECT_EQ(events.size(), 5u);
}

TEST_F(Import, ATimeOffTheCpuThatItsOwnReadsFillIsAWaitForTheDisk) {
    const auto off = [](uint64_t id, uint64_t end, uint32_t tid) { return event(id, start + end, 10, tid, 3, 1, 100); };
    const auto read = [](uint64_t id, uint64_t end, uint32_t tid, uint64_t length) {
        return event(id, start + end, 10, tid, 5, 1, length);
    };
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +  // a call
                       read(2, 240, 10, 50) + read(3, 295, 10, 50) + off(4, 300, 10) +        // two reads inside
                       read(5, 2'095, 10, 89) + off(6, 2'100, 10) +                           // too little of it
                       read(7, 3'098, 11, 98) + off(8, 3'100, 10) +                           // another thread's
                       read(9, 4'099, 10, 150) + off(10, 4'100, 10));                         // from before it slept
    std::map<uint64_t, const Event*> waits;
    const auto events = folder_.import_events();
    for (const Event& one : events)
        if (one.op == op::sched_switch) waits[one.end_ns() - start] = &one;
    ASSERT_EQ(waits.size(), 4u);
    EXPECT_EQ(waits[300]->blocked_reason, BlockedReason::disk);
    EXPECT_EQ(waits[300]->depth, 1) << "in a call";
    EXPECT_EQ(waits[2'100]->blocked_reason, BlockedReason::other);
    EXPECT_EQ(waits[2'100]->depth, 0);
    EXPECT_EQ(waits[3'100]->blocked_reason, BlockedReason::other);
    EXPECT_EQ(waits[4'100]->blocked_reason, BlockedReason::disk);
}

TEST_F(Import, AThreadIsNoProcess) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 12, 7, 1, 10) +
                       event(2, start + 100, 12, 12, 3, 1, 50) + event(3, start + 200, 10, 12, 3, 6, 0) +
                       "INSERT INTO process_names VALUES(10,'python3',1),(12,'worker',1),(99,'systemd',1);");
    const auto imported = folder_.import();
    ASSERT_TRUE(imported) << imported.error().message;
    const auto processes = folder_.processes();
    ASSERT_EQ(processes.size(), 1u);
    EXPECT_EQ(processes[0].key.pid, 10u);
    EXPECT_EQ(processes[0].comm, "python3");
    EXPECT_EQ(processes[0].exited_ns, 0u) << "a thread ended, not the process";
    for (const Event& one : folder_.events()) EXPECT_EQ(one.tgid, 10u);
}

TEST_F(Import, TheSecondGenerationNamesItsNodeInIds) {
    folder_.make_trace(std::string(second_generation) +
                       "INSERT INTO events(id,timestamp,pid,tid,source,op,duration,node) VALUES"
                       "('rack:7:12',1700000000000000000,5,5,1,3,10,''),('rack:7:13',1700000000000000100,5,5,1,3,10,"
                       "'rack:7');");
    const auto imported = folder_.import({.node = "other"});
    ASSERT_TRUE(imported) << imported.error().message;
    ASSERT_EQ(imported->nodes.size(), 1u);
    EXPECT_EQ(imported->nodes[0].name, "rack:7");
}

TEST_F(Import, TheFirstGenerationIsGivenItsNode) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000));
    const auto imported = folder_.import({.node = "alpha"});
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(imported->nodes[0].name, "alpha");
    EXPECT_EQ(folder_.sessions().back().node, "alpha");
}

TEST_F(Import, NodesOfAMergedFileAreKeptApart) {
    folder_.make_trace(std::string(latest_generation) +
                       "INSERT INTO events(id,timestamp,pid,tid,source,op,duration,node,comm) VALUES"
                       "('a:1',1700000000000000000,5,5,1,3,10,'a','train'),('b:1',1700000000000000005,5,5,1,3,20,'b',"
                       "'serve'),('b:2',1700000000000000105,5,5,1,3,20,'b','serve');"
                       "INSERT INTO process_names VALUES(5,'wrong',1);");
    const auto imported = folder_.import();
    ASSERT_TRUE(imported) << imported.error().message;
    ASSERT_EQ(imported->nodes.size(), 2u);
    EXPECT_EQ(imported->nodes[0].events, 1u);
    EXPECT_EQ(imported->nodes[1].events, 2u);
    const auto sessions = folder_.sessions();
    ASSERT_EQ(sessions.size(), 2u);
    EXPECT_NE(sessions[0].boot_index, sessions[1].boot_index);
    std::vector<std::string> comms;
    for (const Process& process : folder_.processes()) comms.push_back(process.comm);
    EXPECT_THAT(comms, testing::UnorderedElementsAre("train", "serve"));
}

TEST_F(Import, IsDoneOnce) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000));
    ASSERT_TRUE(folder_.import());
    const std::string before = folder_.store_bytes();
    const auto again = folder_.import();
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(again->already_there);
    EXPECT_EQ(folder_.store_bytes(), before);
    EXPECT_EQ(folder_.events().size(), 1u);
}

TEST_F(Import, AnotherTraceGoesIntoTheSameStore) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000));
    ASSERT_TRUE(folder_.import());
    std::filesystem::remove(folder_.trace());
    folder_.make_trace(std::string(first_generation) + event(1, start + 9 * second, 10, 10, 1, 3, 1000));
    const auto second_one = folder_.import();
    ASSERT_TRUE(second_one) << second_one.error().message;
    const auto events = folder_.events();
    ASSERT_EQ(events.size(), 2u);
    EXPECT_NE(events[0].sequence, events[1].sequence);
    EXPECT_EQ(folder_.processes().size(), 2u) << "the same pid in another trace is another process";
}

TEST_F(Import, LeavesSourceAndDirectoryAsTheyWere) {
    folder_.make_trace(std::string(first_generation) + "PRAGMA journal_mode=WAL;" +
                       event(1, start, 10, 10, 1, 3, 1000));
    const std::string before = read_file(folder_.trace());
    ASSERT_TRUE(folder_.import());
    EXPECT_EQ(read_file(folder_.trace()), before);
    EXPECT_THAT(folder_.names_beside_trace(), testing::ElementsAre("trace.db"));
}

TEST_F(Import, AWriteAheadLogIsWorkedInToACopy) {
    folder_.make_trace_with_log(first_generation, event(1, start, 10, 10, 1, 3, 1000));
    const auto before = folder_.names_beside_trace();
    ASSERT_THAT(before, testing::Contains("trace.db-wal"));
    const std::string log = read_file(folder_.trace() + "-wal");
    EXPECT_EQ(folder_.import_events().size(), 1u);
    EXPECT_EQ(folder_.names_beside_trace(), before);
    EXPECT_EQ(read_file(folder_.trace() + "-wal"), log);
}

TEST_F(Import, WhatTheAgentCountedAndDidNotKeepIsSaid) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +
                       "INSERT INTO event_aggregates(bucket,source,op,pid,count,stored) VALUES"
                       "(1699999980000000000,1,3,10,100,1),(1699999980000000000,3,3,10,5,0);");
    const auto imported = folder_.import();
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(imported->sampled_out, 99u + 5u);
    const auto stats = folder_.stats();
    ASSERT_TRUE(stats) << stats.error().message;
    EXPECT_EQ(stats->coverage.sampled_out, 104u);
    EXPECT_FALSE(stats->coverage.complete);
}

TEST_F(Import, IsNeverSaidToBeComplete) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000));
    ASSERT_TRUE(folder_.import());
    const auto stats = folder_.stats();
    ASSERT_TRUE(stats);
    EXPECT_FALSE(stats->coverage.complete);
    ASSERT_EQ(stats->coverage.gaps.size(), 1u);
    EXPECT_TRUE(stats->coverage.gaps[0].partial);
    EXPECT_THAT(stats->coverage.gaps[0].reason, HasSubstr("imported"));
}

TEST_F(Import, StacksComeByNameAndLostOnesAreMarked) {
    folder_.make_trace(
        std::string(first_generation) +
        "INSERT INTO stack_traces(hash,ips,frames) VALUES(-5,'','[{\"i\":\"0x7f00\",\"f\":\"liba.so\"},"
        "{\"s\":\"_ZN1a1bEv+0x1f\",\"f\":\"liba.so\"},{\"pf\":\"train.py\",\"pfn\":\"step\",\"pl\":7}]'),"
        "(6,'','[]'),(7,'','[[[');" +
        event(1, start, 10, 10, 1, 3, 1000, "0", "0", "-5") + event(2, start + 5000, 10, 10, 1, 3, 1, "0", "0", "8"));
    const auto imported = folder_.import();
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(imported->stacks, 3u);
    EXPECT_EQ(imported->unused_stacks, 2u);
    EXPECT_EQ(imported->unreadable_stacks, 2u);
    EXPECT_EQ(imported->lost_stacks, 1u);
    const auto names = folder_.stack_names();
    ASSERT_EQ(names.size(), 2u);
    EXPECT_THAT(names[0], testing::ElementsAre("liba.so", "a::b()", "step:7"));
    EXPECT_TRUE(names[1].empty());
}

TEST(Frames, AreBounded) {
    std::vector<TraceFrame> frames;
    EXPECT_FALSE(parse_frames(std::string(100'000, '['), frames));
    EXPECT_FALSE(parse_frames("[{\"s\":{\"s\":1}}]", frames));
    EXPECT_FALSE(parse_frames("{}", frames));
    EXPECT_FALSE(parse_frames("[1]", frames));
    EXPECT_FALSE(parse_frames("[{\"s\":\"" + std::string(300'000, 'a') + "\"}]", frames));
    EXPECT_TRUE(parse_frames("[{\"s\":\"" + std::string(9'000, 'a') + "\",\"x\":null}]", frames));
    ASSERT_EQ(frames.size(), 1u);
    EXPECT_EQ(frames[0].symbol.size(), 4'096u);
    std::string many = "[{}";
    for (int i = 0; i < 5'000; ++i) many += ",{}";
    EXPECT_TRUE(parse_frames(many + "]", frames));
    EXPECT_EQ(frames.size(), 1'024u);
}

class HostileTrace : public Import {
  protected:
    void expect_refused(ErrorCode code, const std::string& part) {
        const auto imported = folder_.import();
        ASSERT_FALSE(imported);
        EXPECT_EQ(imported.error().code, code) << imported.error().message;
        EXPECT_THAT(imported.error().message, HasSubstr(part));
        EXPECT_FALSE(std::filesystem::exists(folder_.store())) << "nothing is left of it";
    }
};

TEST_F(HostileTrace, AViewNamedLikeATableIsRefused) {
    folder_.make_trace(
        "CREATE TABLE t(timestamp,pid,tid,source,op,duration);"
        "CREATE VIEW events AS SELECT * FROM t;");
    expect_refused(ErrorCode::bad_request, "not a plain table");
}

TEST_F(HostileTrace, AVirtualTableIsRefused) {
    folder_.make_trace("CREATE VIRTUAL TABLE events USING fts5(timestamp,pid,tid,source,op,duration);");
    expect_refused(ErrorCode::bad_request, "not a plain table");
}

TEST_F(HostileTrace, ComputedColumnsAreNotRead) {
    folder_.make_trace(
        "CREATE TABLE events(timestamp INTEGER, pid INTEGER, source INTEGER, op INTEGER, "
        "duration INTEGER AS (length(hex(zeroblob(1000000)))));"
        "INSERT INTO events(timestamp,pid,source,op) VALUES(1,1,1,1);");
    expect_refused(ErrorCode::bad_request, "duration");
}

TEST_F(HostileTrace, TriggersAndViewsBesideDoNothing) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +
                       "CREATE VIEW sessions_view AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) "
                       "SELECT x FROM n;"
                       "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END;");
    EXPECT_EQ(folder_.import_events().size(), 1u);
}

TEST_F(HostileTrace, WrongTypesAreLeftOutAndCounted) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +
                       event(2, start, 10, 10, 1, 3, 1000, "'text'") + event(3, start, 10, 10, 300, 3, 1000) +
                       event(4, start, 10, 10, 1, 3, 1000, "x'00'") +
                       "INSERT INTO events(id,timestamp,pid,tid,source,op,duration) VALUES(5,-3,1,1,1,1,1),"
                       "(6,5,1,1,1,1,-1),(7,9223372036854775807,1,1,1,1,5),(8,5,-1,1,1,1,5),(9,5,1,1,3,1,900);");
    const auto imported = folder_.import();
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(imported->events, 1u);
    EXPECT_EQ(imported->unreadable, 8u);
}

TEST_F(HostileTrace, HugeTextsAreBounded) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +
                       "INSERT INTO process_names VALUES(10,printf('%.*c',3000000,'x'),1);"
                       "INSERT INTO stack_traces(hash,ips,frames) VALUES(3,'',printf('%.*c',3000000,'['));");
    ASSERT_TRUE(folder_.import());
    EXPECT_EQ(folder_.processes()[0].comm.size(), 15u);
}

TEST_F(HostileTrace, AValuePastTheLimitIsAClearError) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 1, 3, 1000) +
                       "INSERT INTO stack_traces(hash,ips,frames) VALUES(3,'',printf('%.*c',9000000,'x'));");
    const auto imported = folder_.import();
    ASSERT_FALSE(imported);
    EXPECT_EQ(imported.error().code, ErrorCode::limit) << imported.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder_.store()));
}

TEST_F(HostileTrace, WhatIsNoTraceIsRefused) {
    folder_.make_trace("CREATE TABLE people(name);");
    expect_refused(ErrorCode::bad_request, "not a trace");
    std::filesystem::remove(folder_.trace());
    folder_.make_trace(first_generation);
    expect_refused(ErrorCode::bad_request, "no events");
    std::ofstream(folder_.trace()) << "hello";
    expect_refused(ErrorCode::bad_request, "not a SQLite file");
    std::filesystem::remove(folder_.trace());
    expect_refused(ErrorCode::not_found, "No such file");
    std::filesystem::create_directory(folder_.trace());
    expect_refused(ErrorCode::bad_request, "not a regular file");
}

TEST_F(HostileTrace, EveryCutIsAnErrorOrATrace) {
    std::string script = first_generation;
    for (uint64_t i = 1; i <= 500; ++i) script += event(i, start + i * 1000, 10, 10, 1, 3, 1000);
    folder_.make_trace(script);
    const std::string whole = read_file(folder_.trace());
    for (size_t length = 0; length < whole.size(); length += 4'096 + 13) {
        std::ofstream(folder_.trace(), std::ios::trunc | std::ios::binary) << whole.substr(0, length);
        const auto imported = folder_.import();
        ASSERT_FALSE(imported) << "of " << length << " bytes";
        EXPECT_FALSE(std::filesystem::exists(folder_.store()));
    }
}

TEST_F(HostileTrace, EventsThatAreAllUnreadableAreNoEmptyTrace) {
    folder_.make_trace(std::string(first_generation) + event(1, start, 10, 10, 300, 3, 1000));
    expect_refused(ErrorCode::corrupt, "none of the trace's 1 rows");
}

}  // namespace
}  // namespace ingero
