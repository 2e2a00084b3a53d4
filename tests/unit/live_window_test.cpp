// The flight recorder: what is found in it, and what it keeps where there is no room for all.
#include "core/diagnosis/live/live_window.h"

#include <gtest/gtest.h>

#include <map>

#include "core/diagnosis/evidence/wait_table.h"
#include "core/model/collective.h"
#include "core/model/host_event.h"
#include "core/model/op.h"

namespace ingero {
namespace {

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr uint32_t python = 123;
constexpr uint32_t hog = 777;

ClockTriple at(uint64_t monotonic_ns) {
    return {monotonic_ns, monotonic_ns, 1'700'000'000 * second + monotonic_ns};
}

/// Synchronisations of 1 ms and a pause as long; where there is a hog, each is preempted for another millisecond.
std::vector<Event> syncs(uint64_t from_ns, unsigned count, bool with_hog, uint64_t& sequence) {
    std::vector<Event> events;
    for (unsigned i = 0; i < count; ++i) {
        Event event;
        event.sequence = ++sequence;
        event.op = op::cudaStreamSync;
        event.tgid = event.tid = python;
        event.process_start_ns = 5;
        event.start_ns = from_ns + i * (with_hog ? 3 : 2) * ms;
        event.duration_ns = with_hog ? 2 * ms : ms;
        if (with_hog) {
            event.runnable_ns = event.preempted_ns = event.preemptor_ns = ms;
            event.preemptor_tgid = hog;
            event.preemptor_comm = to_comm("stress-hog");
            event.waits = 1;
        }
        events.push_back(event);
    }
    return events;
}

Process python_process() {
    Process process;
    process.key = {python, 5};
    process.comm = "python";
    return process;
}

TEST(LiveWindow, finds_the_hog_and_says_what_is_new_since_the_last_pass) {
    LiveWindow window("boot");
    uint64_t sequence = 0;
    window.add(syncs(99 * second, 50, false, sequence), 0);
    window.add(syncs(100 * second, 300, true, sequence), 0);
    const auto first = window.pass(at(101 * second), {python_process()});
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first[0].kind, "cpu-contention");
    EXPECT_EQ(first[0].verdict, Verdict::proven);
    EXPECT_EQ(first[0].comm, "python");
    EXPECT_EQ(first[0].newly_lost_ns, first[0].lost_ns);
    EXPECT_FALSE(window.has_new());

    window.add(syncs(101 * second, 100, true, sequence), 0);
    const auto second_pass = window.pass(at(102 * second), {python_process()});
    ASSERT_EQ(second_pass.size(), 1u);
    EXPECT_NEAR(static_cast<double>(second_pass[0].newly_lost_ns), 100.0 * ms, 5.0 * ms);
    EXPECT_NEAR(static_cast<double>(second_pass[0].lost_ns), 400.0 * ms, 20.0 * ms);
}

TEST(LiveWindow, is_silent_on_healthy_calls_and_forgets_what_is_old) {
    LiveWindow window("boot");
    uint64_t sequence = 0;
    window.add(syncs(100 * second, 300, true, sequence), 0);
    const size_t of_one_block = window.bytes();
    EXPECT_GE(of_one_block, 300 * sizeof(Event));
    EXPECT_EQ(window.pass(at(101 * second), {}).size(), 1u);
    window.add(syncs(112 * second, 300, false, sequence), 0);
    EXPECT_TRUE(window.pass(at(113 * second), {}).empty()) << "more than ten seconds ago";
    window.trim(129 * second);
    EXPECT_FALSE(window.empty());
    window.trim(131 * second);
    EXPECT_EQ(window.bytes(), of_one_block) << "the first block is gone";
    window.trim(200 * second);
    EXPECT_TRUE(window.empty());
    EXPECT_EQ(window.bytes(), 0u);
}

TEST(LiveWindow, proves_nothing_where_much_was_lost) {
    LiveWindow window("boot");
    uint64_t sequence = 0;
    window.add(syncs(100 * second, 300, true, sequence), 1'000);
    const auto findings = window.pass(at(101 * second), {python_process()});
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].verdict, Verdict::partial);
}

TEST(LiveWindow, keeps_no_more_bytes_than_it_may) {
    LiveWindow window("boot", {.max_bytes = 1 << 20});
    uint64_t sequence = 0;
    for (unsigned i = 0; i < 100; ++i) {
        window.add(syncs((100 + i) * second, 300, false, sequence), 0);
        EXPECT_LE(window.bytes(), size_t{1} << 20);
    }
    EXPECT_GT(window.bytes(), size_t{1} << 19);
}

/// Calls of a process that makes 20,000 a second.
std::vector<Event> many_calls(uint64_t from_ns, uint64_t until_ns, uint32_t pid, uint64_t& sequence) {
    std::vector<Event> events;
    for (uint64_t start_ns = from_ns; start_ns < until_ns; start_ns += 50'000) {
        Event event;
        event.sequence = ++sequence;
        event.op = op::cudaLaunchKernel;
        event.tgid = event.tid = pid;
        event.process_start_ns = 5;
        event.start_ns = start_ns;
        event.duration_ns = 5'000;
        events.push_back(event);
    }
    return events;
}

TEST(LiveWindow, who_calls_all_the_time_crowds_out_nobody_else) {
    constexpr uint64_t hash = 0xabc;
    constexpr size_t max_bytes = 4 << 20;
    LiveWindow window("boot", {.max_bytes = max_bytes, .since_ns = second});
    uint64_t sequence = 0;
    std::vector<CommunicatorRow> rows;
    std::vector<Process> processes;
    for (uint32_t rank = 0; rank < 3; ++rank) {
        CommunicatorRow& row = rows.emplace_back();
        row.process = {100 + rank, 1 + rank};
        row.id = row.hash = hash;
        row.rank = static_cast<int32_t>(rank);
        row.ranks = 3;
        row.origin = CommunicatorOrigin::init_rank;
        Process& process = processes.emplace_back();
        process.key = row.process;
        // The last never enters the second collective.
        std::vector<Event> calls;
        for (uint64_t number = 1; number <= (rank == 2 ? 1 : 2); ++number) {
            Event& event = calls.emplace_back();
            event.sequence = ++sequence;
            event.op = op::ncclAllReduce;
            event.tgid = event.tid = process.key.pid;
            event.process_start_ns = process.key.start_ns;
            event.start_ns = (99 + number) * second + rank * ms;
            event.duration_ns = 10'000;
            event.args = {4'096, hash, number << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
        }
        window.add(std::move(calls), 0);
    }
    processes[2].exited_ns = 102 * second;
    for (uint64_t now_ns = 101 * second; now_ns < 114 * second; now_ns += second / 10) {
        window.add(many_calls(now_ns, now_ns + second / 10, hog, sequence), 0);
        window.trim(now_ns);
        EXPECT_LE(window.bytes(), max_bytes);
    }
    EXPECT_GT(window.bytes(), max_bytes / 2);
    const auto findings = window.pass(at(114 * second), processes, Communicators(rows));
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].kind, "nccl-hang");
    EXPECT_EQ(findings[0].verdict, Verdict::proven) << findings[0].summary;
    EXPECT_EQ(findings[0].culprits.at(0).pid, 102u);
}

TEST(LiveWindow, those_that_call_alike_are_kept_for_as_long) {
    constexpr uint32_t callers = 40;
    constexpr size_t max_bytes = 8 << 20;
    LiveWindow window("boot", {.max_bytes = max_bytes, .since_ns = second});
    uint64_t sequence = 0;
    for (unsigned i = 0; i < 30; ++i) {
        std::vector<Event> block;
        for (uint32_t caller = 0; caller < callers; ++caller) {
            const auto calls = many_calls((100 + i) * second, (100 + i) * second + 5 * ms, 200 + caller, sequence);
            block.insert(block.end(), calls.begin(), calls.end());
        }
        window.add(std::move(block), 0);
        EXPECT_LE(window.bytes(), max_bytes);
    }
    // Not the half of what there is room for is free: nobody was dropped whole to make room for the others.
    EXPECT_GT(window.bytes(), max_bytes - max_bytes / 8);
    window.trim(200 * second);
    EXPECT_TRUE(window.empty());
    EXPECT_EQ(window.bytes(), 0u);
}

TEST(WaitTable, knows_nothing_of_a_time_whose_rows_were_dropped) {
    const ProcessKey program{python, 5}, worker{200, 5};
    std::vector<Process> processes(2);
    processes[0].key = program;
    processes[1].key = worker;
    Event wait;
    wait.op = op_wait;
    wait.tgid = wait.tid = python;
    wait.process_start_ns = 5;
    wait.start_ns = second;
    wait.duration_ns = wait.blocked_ns = wait.longest_sleep_ns = second;
    wait.blocked_reason = BlockedReason::futex;
    wait.waits = 1;
    wait.waker_kind = WakerKind::task;
    wait.waker_tgid = worker.pid;
    wait.args[0] = pack_wait_place({.waker_tid = worker.pid, .from_cpu = 1, .waker_watched = true});
    const auto spent_by = [&](const KnownProcesses& known) {
        WaitTable waits(&known, EventFilter(Filter{}, processes));
        waits.add(wait);
        waits.finish();
        std::map<Spent, uint64_t> of_worker;
        for (const SpentPart& part : waits.split(program, python, {second, 2 * second})) {
            EXPECT_EQ(part.process, worker);
            of_worker[part.spent] += part.ns;
        }
        return of_worker;
    };
    EXPECT_EQ(spent_by(KnownProcesses(processes)), (std::map<Spent, uint64_t>{{Spent::ran, second}}));
    EXPECT_EQ(spent_by(KnownProcesses(processes, {{worker, 1'600 * ms}})),
              (std::map<Spent, uint64_t>{{Spent::ran, 400 * ms}, {Spent::unknown, 600 * ms}}));
    EXPECT_EQ(spent_by(KnownProcesses(processes, {{worker, 3 * second}})),
              (std::map<Spent, uint64_t>{{Spent::unknown, second}}));
}

}  // namespace
}  // namespace ingero
