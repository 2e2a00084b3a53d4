// The flight recorder: what is found in it, and what it keeps where there is no room for all.
#include "core/diagnosis/live/live_window.h"

#include <gtest/gtest.h>

#include <map>

#include "core/diagnosis/evidence/wait_table.h"
#include "core/diagnosis/incidents/incidents.h"
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
    window.add(syncs(99 * second, 50, false, sequence));
    window.add(syncs(100 * second, 300, true, sequence));
    const auto first = window.pass(at(101 * second), {python_process()});
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first[0].kind, "cpu-contention");
    EXPECT_EQ(first[0].verdict, Verdict::proven);
    EXPECT_EQ(first[0].comm, "python");
    EXPECT_EQ(first[0].newly_lost_ns, first[0].lost_ns);
    EXPECT_FALSE(window.has_new());

    window.add(syncs(101 * second, 100, true, sequence));
    const auto second_pass = window.pass(at(102 * second), {python_process()});
    ASSERT_EQ(second_pass.size(), 1u);
    EXPECT_NEAR(static_cast<double>(second_pass[0].newly_lost_ns), 100.0 * ms, 5.0 * ms);
    EXPECT_NEAR(static_cast<double>(second_pass[0].lost_ns), 400.0 * ms, 20.0 * ms);
}

TEST(LiveWindow, is_silent_on_healthy_calls_and_forgets_what_is_old) {
    LiveWindow window("boot");
    uint64_t sequence = 0;
    window.add(syncs(100 * second, 300, true, sequence));
    const size_t of_one_block = window.bytes();
    EXPECT_GE(of_one_block, 300 * sizeof(Event));
    EXPECT_EQ(window.pass(at(101 * second), {}).size(), 1u);
    window.add(syncs(112 * second, 300, false, sequence));
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
    LossRow lost{.from_ns = 100 * second, .to_ns = 101 * second, .op = op::cudaStreamSync};
    lost.lost_ring = 1'000;
    window.add(syncs(100 * second, 300, true, sequence), std::span(&lost, 1));
    const auto findings = window.pass(at(101 * second), {python_process()});
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].verdict, Verdict::partial);
}

TEST(LiveWindow, keeps_no_more_bytes_than_it_may) {
    LiveWindow window("boot", {.max_bytes = 1 << 20});
    uint64_t sequence = 0;
    for (unsigned i = 0; i < 100; ++i) {
        window.add(syncs((100 + i) * second, 300, false, sequence));
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

/// Three ranks, of which the last does not enter the second collective; the others wait for it from 101 s on.
class AHang : public testing::Test {
  protected:
    static constexpr uint64_t hash = 0xabc;

    AHang() {
        std::vector<CommunicatorRow> rows;
        for (uint32_t rank = 0; rank < 3; ++rank) {
            CommunicatorRow& row = rows.emplace_back();
            row.process = {100 + rank, 1 + rank};
            row.id = row.hash = hash;
            row.rank = static_cast<int32_t>(rank);
            row.ranks = 3;
            row.origin = CommunicatorOrigin::init_rank;
            processes_.emplace_back().key = row.process;
        }
        communicators_ = Communicators(std::move(rows));
        window_.set_communicators(communicators_);
        for (uint32_t rank = 0; rank < 3; ++rank) {
            window_.add({collective(rank, 1, 100 * second), sync(rank, 100 * second + ms, ms)});
            if (rank < 2) window_.add({collective(rank, 2, 101 * second)});
        }
    }

    Event call(OpId op, uint32_t rank, uint64_t start_ns, uint64_t duration_ns) {
        Event event;
        event.sequence = ++sequence_;
        event.op = op;
        event.tgid = event.tid = 100 + rank;
        event.process_start_ns = 1 + rank;
        event.start_ns = start_ns;
        event.duration_ns = duration_ns;
        return event;
    }
    Event collective(uint32_t rank, uint64_t number, uint64_t start_ns) {
        Event event = call(op::ncclAllReduce, rank, start_ns, 10'000);
        event.args = {4'096, hash, number << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
        return event;
    }
    Event sync(uint32_t rank, uint64_t start_ns, uint64_t duration_ns) {
        return call(op::cudaStreamSync, rank, start_ns, duration_ns);
    }
    void lose(OpId op, uint64_t at_ns) {
        LossRow row{.from_ns = at_ns, .to_ns = at_ns + 20 * ms, .op = op};
        row.lost_ring = 7;
        window_.add({}, std::span(&row, 1));
    }
    /// Of hangs, as a pass a second finds them; the last rank does something else meanwhile.
    std::vector<Finding> found_at(uint64_t at_ns) {
        for (; now_ns_ < at_ns; now_ns_ += second) {
            if (processes_[2].exited_ns == 0) window_.add({call(op::cudaMalloc, 2, now_ns_, 5'000)});
            window_.trim(now_ns_);
            window_.pass(at(now_ns_), processes_);
        }
        std::vector<Finding> found;
        for (Finding& finding : window_.pass(at(at_ns), processes_))
            if (finding.kind == "nccl-hang") found.push_back(std::move(finding));
        return found;
    }

    /// When it is an incident, by a pass every three seconds. What that has lost is what the ranks have waited.
    uint64_t incident_opens_ns() {
        IncidentTracker tracker("boot");
        uint64_t opened_ns = 0;
        for (uint64_t at_ns = 102 * second; at_ns <= 300 * second; at_ns += 3 * second) {
            window_.trim(at_ns);
            std::vector<Finding> found = window_.pass(at(at_ns), processes_);
            std::erase_if(found, [](const Finding& finding) { return finding.kind != "nccl-hang"; });
            for (const IncidentChange& change : tracker.observe(found, at(at_ns)))
                if (change.what == IncidentChange::What::opened) opened_ns = at_ns;
            for (const Incident& one : tracker.open()) EXPECT_EQ(one.lost_ns, at_ns - 101 * second);
        }
        EXPECT_EQ(tracker.open().size(), 1u);
        return opened_ns;
    }

    LiveWindow window_{"boot", {.max_bytes = 4 << 20, .since_ns = second}};
    std::vector<Process> processes_;
    Communicators communicators_;
    uint64_t sequence_ = 0, now_ns_ = 102 * second;
};

TEST_F(AHang, is_found_beside_whoever_calls_all_the_time) {
    processes_[2].exited_ns = 102 * second;
    for (; now_ns_ < 114 * second; now_ns_ += second / 10) {
        window_.add(many_calls(now_ns_, now_ns_ + second / 10, hog, sequence_));
        window_.trim(now_ns_);
        EXPECT_LE(window_.bytes(), size_t{4} << 20);
    }
    EXPECT_GT(window_.bytes(), size_t{2} << 20);
    const auto findings = found_at(114 * second);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].verdict, Verdict::proven) << findings[0].summary;
    EXPECT_EQ(findings[0].culprits.at(0).pid, 102u);
}

TEST_F(AHang, for_a_rank_that_has_ended_lasts_as_long_as_the_others_wait) {
    processes_[2].exited_ns = 102 * second;
    EXPECT_TRUE(found_at(111 * second).empty());
    for (const uint64_t at_ns : {113 * second, 129 * second, 140 * second, 400 * second}) {
        const auto findings = found_at(at_ns);
        ASSERT_EQ(findings.size(), 1u) << at_ns;
        EXPECT_EQ(findings[0].verdict, Verdict::proven) << findings[0].summary;
        EXPECT_EQ(findings[0].lost_ns, at_ns - 101 * second);
        EXPECT_EQ(findings[0].newly_lost_ns, second);
        EXPECT_EQ(findings[0].culprits.at(0).pid, 102u);
    }
    processes_[0].exited_ns = processes_[1].exited_ns = 401 * second;
    const auto over = found_at(403 * second);
    ASSERT_EQ(over.size(), 1u);
    EXPECT_EQ(over[0].newly_lost_ns, 0u) << "nobody waits any more";
    EXPECT_TRUE(found_at(412 * second).empty());
}

TEST_F(AHang, lasts_for_the_others_where_the_first_that_waited_has_ended) {
    processes_[2].exited_ns = 102 * second;
    EXPECT_EQ(found_at(129 * second).size(), 1u);
    processes_[0].exited_ns = 130 * second;
    const auto findings = found_at(140 * second);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].newly_lost_ns, second);
    EXPECT_EQ(findings[0].lost_ns, 39 * second);
    EXPECT_TRUE(findings[0].summary.starts_with("rank 1 (pid 101) has waited 39 s")) << findings[0].summary;
}

TEST_F(AHang, is_one_incident_though_the_first_that_waited_has_ended) {
    IncidentTracker tracker("boot");
    size_t changes = 0;
    processes_[2].exited_ns = 102 * second;
    for (uint64_t at_ns = 102 * second; at_ns <= 160 * second; at_ns += second) {
        if (at_ns == 130 * second) processes_[0].exited_ns = at_ns;
        window_.trim(at_ns);
        std::vector<Finding> found = window_.pass(at(at_ns), processes_);
        std::erase_if(found, [](const Finding& finding) { return finding.kind != "nccl-hang"; });
        for (const IncidentChange& change : tracker.observe(found, at(at_ns)))
            changes += change.what != IncidentChange::What::updated;
    }
    EXPECT_EQ(changes, 1u) << "it opened, and is open";
    ASSERT_EQ(tracker.open().size(), 1u);
    EXPECT_EQ(tracker.open()[0].lost_ns, 59 * second);
}

TEST_F(AHang, for_a_rank_that_has_ended_is_an_incident_that_has_lost_all_of_it) {
    processes_[2].exited_ns = 102 * second;
    EXPECT_EQ(incident_opens_ns(), 114 * second);
}

TEST_F(AHang, for_a_rank_that_lives_is_an_incident_that_has_lost_all_of_it) {
    EXPECT_EQ(incident_opens_ns(), 225 * second);
}

TEST_F(AHang, for_a_rank_that_lives_is_told_of_late_and_ends_when_it_comes) {
    EXPECT_TRUE(found_at(130 * second).empty());
    const auto low = found_at(132 * second);
    ASSERT_EQ(low.size(), 1u);
    EXPECT_EQ(low[0].severity, Severity::low);
    const auto medium = found_at(222 * second);
    ASSERT_EQ(medium.size(), 1u);
    EXPECT_EQ(medium[0].severity, Severity::medium);
    EXPECT_EQ(medium[0].verdict, Verdict::partial);
    EXPECT_EQ(medium[0].culprits.at(0).pid, 102u);
    window_.add({collective(2, 2, 223 * second)});
    for (uint32_t rank = 0; rank < 2; ++rank) window_.add({sync(rank, 101 * second + ms, 123 * second)});
    EXPECT_TRUE(found_at(225 * second).empty());
    EXPECT_TRUE(found_at(300 * second).empty());
}

TEST_F(AHang, is_proven_where_calls_were_lost_before_it_alone) {
    processes_[2].exited_ns = 102 * second;
    lose(op::ncclAllReduce, 98 * second);
    auto findings = found_at(200 * second);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].verdict, Verdict::proven);
    lose(op::cudaMalloc, 150 * second);
    EXPECT_EQ(found_at(200 * second).at(0).verdict, Verdict::proven) << "it says nothing of the hang";
    lose(op::ncclAllReduce, 200 * second);
    findings = found_at(300 * second);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].verdict, Verdict::partial);
}

TEST_F(AHang, of_a_rank_that_lives_is_uncertain_where_its_call_may_be_lost) {
    lose(op::ncclAllReduce, 100 * second + 500 * ms);
    const auto findings = found_at(250 * second);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].verdict, Verdict::insufficient_evidence);
    EXPECT_EQ(findings[0].severity, Severity::low) << "no incident";
    EXPECT_NE(findings[0].summary.find("7 calls that could show it were lost"), std::string::npos)
        << findings[0].summary;
}

TEST_F(AHang, is_known_to_be_uncertain_however_much_is_lost_later) {
    lose(op::ncclAllReduce, 100 * second + 500 * ms);
    for (uint64_t at_ns = 102 * second; at_ns < 402 * second; at_ns += 300 * ms) lose(op_wait, at_ns);
    for (uint64_t at_ns = 402 * second; at_ns < 502 * second; at_ns += 300 * ms) lose(op::ncclAllReduce, at_ns);
    const auto findings = found_at(503 * second);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].verdict, Verdict::insufficient_evidence);
    EXPECT_NE(findings[0].summary.find(std::to_string(7 * 335) + " calls"), std::string::npos) << findings[0].summary;
}

TEST_F(AHang, is_none_where_another_rank_has_got_past_the_collective) {
    window_.add({sync(0, 101 * second + ms, ms)});
    EXPECT_TRUE(found_at(150 * second).empty());
    // Nor is that one held up there where it waits for a later one.
    window_.add({collective(0, 3, 150 * second), collective(0, 4, 150 * second + ms)});
    EXPECT_TRUE(found_at(400 * second).empty());
}

TEST_F(AHang, in_the_first_collective_is_told_of_for_as_long) {
    LiveWindow window("boot", {.max_bytes = 4 << 20, .since_ns = 1});
    window.set_communicators(communicators_);
    for (uint32_t rank = 0; rank < 2; ++rank) window.add({collective(rank, 1, 101 * second)});
    processes_[2].exited_ns = 102 * second;
    for (now_ns_ = 102 * second; now_ns_ <= 200 * second; now_ns_ += second) {
        window.add(many_calls(now_ns_, now_ns_ + ms, hog, sequence_));
        window.trim(now_ns_);
        const auto findings = window.pass(at(now_ns_), processes_);
        ASSERT_EQ(findings.size(), now_ns_ >= 112 * second ? 1u : 0u) << now_ns_;
    }
}

TEST_F(AHang, of_a_communicator_that_is_known_no_more_is_none) {
    EXPECT_EQ(found_at(150 * second).size(), 1u);
    std::vector<CommunicatorRow> others;
    for (const Communicator& one : communicators_.all()) others.push_back(one.row);
    for (CommunicatorRow& row : others) row.id = row.hash = 0xdef;
    window_.set_communicators(Communicators(others));
    for (uint32_t rank = 0; rank < 2; ++rank) window_.add({sync(rank, 150 * second, ms)});
    EXPECT_TRUE(found_at(300 * second).empty());
}

TEST_F(AHang, that_its_ranks_gave_up_is_none_any_more) {
    processes_[2].exited_ns = 102 * second;
    EXPECT_EQ(found_at(150 * second).size(), 1u);
    for (uint32_t rank = 0; rank < 2; ++rank) {
        Event abort = call(op_of_name("ncclCommAbort").value(), rank, 150 * second, ms);
        abort.args[1] = hash;
        window_.add({abort});
    }
    EXPECT_TRUE(found_at(161 * second).empty());
    EXPECT_TRUE(found_at(300 * second).empty());
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
        window.add(std::move(block));
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
