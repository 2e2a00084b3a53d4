// The split of a call's time against other witnesses: the thread's CPU clock and the scheduler's own run delay.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

class TimeSplit : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
};

struct Agreement {
    size_t compared = 0, uncertain = 0;
    size_t agreed = 0;   ///< with what the thread's clock says of the call itself
    size_t bounded = 0;  ///< by that and by what it says of the time around the call
    std::vector<std::string> worst;
};

/// What a thread's CPU clock showed at the beginnings and ends of its calls, by the time of day.
using ClockReadings = std::map<uint64_t, uint64_t>;

/// How long the thread ran from the reading before the call to the one after it: the call, and its probes, lie inside.
uint64_t ran_around(const ClockReadings& readings, const standin::Record& record) {
    const auto after = readings.upper_bound(record.end_ns), begin = readings.lower_bound(record.start_ns);
    if (after == readings.end() || begin == readings.begin()) return UINT64_MAX;
    return after->second - std::prev(begin)->second;
}

/// Pairs each thread's traced calls of a depth with the log's, in order: none may be missing.
Agreement compare_on_cpu(const StoreContents& store, const standin::GroundTruth& truth) {
    std::map<std::pair<uint32_t, OpId>, std::vector<const standin::Record*>> logged;
    std::map<std::pair<uint32_t, OpId>, std::vector<const Event*>> traced;
    std::map<uint32_t, ClockReadings> readings;
    for (const standin::Record& record : truth.records()) {
        readings[record.tid].insert({{record.start_ns, record.start_cpu_ns}, {record.end_ns, record.end_cpu_ns}});
        if (const auto op = op_of_function(truth.name(record))) logged[{record.tid, *op}].push_back(&record);
    }
    for (const Event& event : store.events) traced[{event.tid, event.op}].push_back(&event);

    Agreement result;
    for (const auto& [key, events] : traced) {
        const auto& records = logged[key];
        EXPECT_EQ(events.size(), records.size()) << op_name(key.second);
        for (size_t i = 0; i < std::min(events.size(), records.size()); ++i) {
            const Event& event = *events[i];
            // The traced call encloses the logged one.
            EXPECT_LE(event.start_ns, records[i]->start_ns);
            if (event.split_uncertain()) {
                result.uncertain++;
                continue;
            }
            const double truth_ns = static_cast<double>(standin::on_cpu_ns(*records[i])),
                         around_ns = static_cast<double>(ran_around(readings[event.tid], *records[i])),
                         told_ns = static_cast<double>(event.on_cpu_ns()),
                         slack_ns = std::max(30'000.0, 0.05 * truth_ns);
            result.compared++;
            result.agreed += std::abs(told_ns - truth_ns) <= slack_ns;
            if (told_ns >= truth_ns - slack_ns && told_ns <= around_ns + slack_ns)
                result.bounded++;
            else if (result.worst.size() < 10)
                result.worst.push_back(op_name(event.op) + " took " + format_duration(event.duration_ns) + ", on CPU " +
                                       format_duration(event.on_cpu_ns()) + ", by the thread's clock " +
                                       format_duration(static_cast<uint64_t>(truth_ns)) + " of " +
                                       format_duration(standin::duration_ns(*records[i])) + ", around it " +
                                       format_duration(static_cast<uint64_t>(around_ns)));
        }
    }
    return result;
}

// The thread's clock, read inside a call, leaves out what its probes take, which a hypervisor may make long of a few.
// So most calls agree with it closely, and all lie between it and what the same clock says of the time around the call.
// Where a kernel leaves interrupts and a hypervisor's steal out of the clock, one noisy second says little: the median
// of five runs. A sanitizer's daemon brings more of both to the CPU, and its run holds the code, not the figure.
TEST_F(TimeSplit, on_cpu_agrees_with_the_threads_cpu_clock_under_a_pinned_hog) {
    const TemporaryDirectory directory;
    const Hog hog(0, "cpu-hog");
    std::vector<double> agreed, bounded;
    for (int run = 0; run < 5; ++run) {
        const std::string log = directory / ("truth-" + std::to_string(run));
        Daemon daemon(directory / ("run-" + std::to_string(run)));
        Workload workload(
            {"calls", "--count", "12000", "--rate", "10000", "--op", "mixed", "--cpu", "0", "--log", log});
        ASSERT_TRUE(daemon.wait_traced(workload.pid()));
        const auto pid = static_cast<uint32_t>(workload.pid());
        workload.open_gate();
        ASSERT_EQ(workload.finish(), 0);
        ASSERT_EQ(daemon.stop(), 0);

        const auto truth = standin::GroundTruth::open(log);
        ASSERT_TRUE(truth);
        StoreContents store = read_store(daemon.store());
        // Losses are those of the host: where others were traced too, they may be theirs.
        const size_t others = std::erase_if(store.events, [&](const Event& event) { return event.tgid != pid; });
        const Agreement agreement = compare_on_cpu(store, *truth);
        agreed.push_back(static_cast<double>(agreement.agreed) / static_cast<double>(agreement.compared));
        bounded.push_back(static_cast<double>(agreement.bounded) / static_cast<double>(agreement.compared));
        std::cout << agreement.compared << " compared, " << agreement.compared - agreement.agreed << " disagree, "
                  << agreement.compared - agreement.bounded << " out of bounds, " << agreement.uncertain
                  << " uncertain\n";
        for (const std::string& line : agreement.worst) std::cout << "  " << line << "\n";
        EXPECT_LE(static_cast<double>(agreement.uncertain), 0.01 * static_cast<double>(store.events.size()));
        uint64_t counted = 0;
        for (const LossRow& row : store.losses) counted += row.uncertain;
        if (others == 0) {
            EXPECT_EQ(counted, agreement.uncertain);
        }
    }
    for (auto* shares : {&agreed, &bounded}) std::sort(shares->begin(), shares->end());
    EXPECT_GE(agreed[2], 0.9);
    EXPECT_GE(bounded[2], sanitized ? 0.99 : 0.999);
}

/// The scheduler's sums of a process's main thread: on a CPU, and waiting on a run queue, in ns.
struct SchedulerSums {
    uint64_t ran = 0, delay = 0;
};
SchedulerSums scheduler_sums(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/schedstat");
    SchedulerSums sums;
    file >> sums.ran >> sums.delay;
    return sums;
}

/// For how long CPU 0 ran anything, in ns.
uint64_t cpu0_busy_ns() {
    std::ifstream file("/proc/stat");
    std::string line, name;
    while (std::getline(file, line) && !line.starts_with("cpu0 ")) continue;
    std::istringstream fields(line);
    uint64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, interrupt = 0, soft = 0;
    fields >> name >> user >> nice >> system >> idle >> iowait >> interrupt >> soft;
    return (user + nice + system + interrupt + soft) * (1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
}

TEST_F(TimeSplit, preemption_agrees_with_the_schedulers_run_delay_and_names_the_hog) {
    if (sanitized) GTEST_SKIP() << "the daemon's sanitizer build is a hog of its own";
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload workload({"sync-loop", "--kernel-us", "2000", "--duration", "7", "--cpu", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const Hog hog(0, "cpu-hog");
    workload.open_gate();
    // Once calls come in, the loop runs.
    for (Patience limit; daemon.status().at("events").at("recorded") == 0;) ASSERT_TRUE(limit.lasts());
    const SchedulerSums hog_before = scheduler_sums(hog.pid());
    const uint64_t busy_before = cpu0_busy_ns();
    // Each reading may itself be held up: what was waited for then is in the outer time and not in the inner one.
    const uint64_t outer_from_ns = monotonic_now_ns();
    const SchedulerSums loop_before = scheduler_sums(workload.pid());
    const uint64_t from_ns = monotonic_now_ns();
    poll(nullptr, 0, 5'000);  // the time that is measured; whoever asks meanwhile takes part of it
    const uint64_t to_ns = monotonic_now_ns();
    const SchedulerSums loop_after = scheduler_sums(workload.pid());
    const uint64_t outer_to_ns = monotonic_now_ns();
    const uint64_t delay = loop_after.delay - loop_before.delay;
    // Whatever else ran on that CPU held the loop up too, the daemon for one.
    const auto by_others = static_cast<double>(cpu0_busy_ns() - busy_before - (loop_after.ran - loop_before.ran));
    const auto hog_ran = static_cast<double>(scheduler_sums(hog.pid()).ran - hog_before.ran);
    const double share = std::min(1.0, hog_ran / by_others);
    const uint32_t pid = static_cast<uint32_t>(workload.pid());
    ASSERT_EQ(workload.finish(), 0);
    ASSERT_EQ(daemon.stop(), 0);

    const StoreContents store = read_store(daemon.store());
    uint64_t preempted = 0, outer = 0, named = 0, by_hog = 0, inside = 0;
    for (const Event& event : store.events) {
        if (event.depth != 0 || event.tgid != pid) continue;
        if (event.end_ns() >= outer_from_ns && event.start_ns < outer_to_ns) outer += event.preempted_ns;
        if (event.start_ns < from_ns || event.end_ns() >= to_ns) continue;
        preempted += event.preempted_ns;
        inside += event.duration_ns;
        named += event.preemptor_ns;
        if (to_string_view(event.preemptor_comm) == "cpu-hog") by_hog += event.preemptor_ns;
    }
    std::cout << "preempted " << format_duration(preempted) << ", run delay " << format_duration(delay)
              << ", by the hog " << format_duration(by_hog) << ", inside calls " << format_duration(inside)
              << ", the hog's share of the CPU " << share << "\n";
    EXPECT_GT(delay, 1'000'000'000u);
    EXPECT_LE(static_cast<double>(preempted), 1.05 * static_cast<double>(delay));
    EXPECT_GE(static_cast<double>(outer), 0.95 * static_cast<double>(delay));
    // A call names one of those that held it up, the foremost. Where there was no other to speak of, that is the hog.
    EXPECT_GT(by_hog, 0u);
    EXPECT_LE(static_cast<double>(by_hog), 1.05 * hog_ran);
    if (share >= 0.9) {
        EXPECT_GE(static_cast<double>(by_hog), 0.85 * share * static_cast<double>(named));
        EXPECT_GE(static_cast<double>(by_hog), 0.9 * share * static_cast<double>(preempted));
    }
}

TEST_F(TimeSplit, the_parts_of_every_call_sum_to_its_duration) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    const Hog hog(0, "cpu-hog");
    const size_t calls = emulated() ? 5'000 : 20'000;
    Workload workload({"calls", "--count", std::to_string(calls), "--rate", "10000", "--op", "mixed", "--cpu", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    ASSERT_EQ(daemon.stop(), 0);
    const StoreContents store = read_store(daemon.store());
    ASSERT_GT(store.events.size(), calls);
    for (const Event& event : store.events) {
        EXPECT_LE(event.runnable_ns + event.blocked_ns, event.duration_ns) << op_name(event.op);
        EXPECT_LE(event.preempted_ns, event.runnable_ns);
        EXPECT_LE(event.preemptor_ns, event.runnable_ns);
        EXPECT_LE(event.longest_sleep_ns, event.blocked_ns);
    }
}

// Two records of one wait, each with its own look at the clock: what a call says of its last one, and what the kernel
// told of each that was not short.
TEST_F(TimeSplit, the_last_wait_of_a_call_is_the_last_that_was_told_of) {
    constexpr uint64_t floor_ns = 1'000'000, apart_ns = 200'000;
    const TemporaryDirectory directory;
    std::ofstream(directory / "with-waits.conf") << "[capture]\noverhead_budget = 0\n";
    Daemon daemon(directory / "run", {"--config", directory / "with-waits.conf"});
    Workload workload({"sync-loop", "--kernel-us", "5000", "--duration", "3", "--cpu", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const Hog hog(0, "cpu-hog");
    const auto pid = static_cast<uint32_t>(workload.pid());
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    ASSERT_EQ(daemon.stop(), 0);
    const StoreContents store = read_store(daemon.store());
    std::map<std::pair<uint32_t, uint64_t>, uint64_t> lengths;  // of waits, by thread and end
    std::vector<Event> summed;
    for (const Event& event : store.events) {
        if (event.tgid == pid && event.op == op_wait) lengths[{event.tid, event.end_ns()}] = event.duration_ns;
        if (event.tgid == pid && event.op == op_waits_summed) summed.push_back(event);
    }
    // While the rings fill, a wait has no record of its own.
    const auto is_summed = [&](const Event& call, uint64_t back_ns) {
        return std::any_of(summed.begin(), summed.end(), [&](const Event& sum) {
            return sum.tid == call.tid && sum.start_ns < back_ns && back_ns <= sum.end_ns() &&
                   (sum.split_uncertain() || sum.runnable_ns + sum.blocked_ns >= call.last_wait_ns);
        });
    };
    const auto next_after = [&](uint32_t tid, uint64_t time_ns) {
        const auto next = lengths.lower_bound({tid, time_ns});
        return next != lengths.end() && next->first.first == tid ? next : lengths.end();
    };
    size_t compared = 0;
    for (const Event& event : store.events) {
        if (event.tgid != pid || !is_call(event.op) || event.waits == 0 || event.split_uncertain()) continue;
        ASSERT_NE(event.last_wait_ns, 0u) << op_name(event.op);
        EXPECT_LE(event.last_wait_ns + event.tail_ns, event.duration_ns);
        EXPECT_LE(event.last_runnable_ns, event.last_wait_ns);
        if (event.last_reason == BlockedReason::none) {
            EXPECT_EQ(event.last_runnable_ns, event.last_wait_ns) << "it lost its CPU";
        }
        const uint64_t back_ns = event.end_ns() - event.tail_ns;
        const auto later = next_after(event.tid, back_ns + apart_ns);
        EXPECT_TRUE(later == lengths.end() || later->first.second > event.end_ns()) << "a wait after the last";
        if (event.last_wait_ns < floor_ns) continue;
        const auto told = next_after(event.tid, back_ns - apart_ns);
        if (told == lengths.end() || told->first.second > back_ns + apart_ns) {
            EXPECT_TRUE(is_summed(event, back_ns)) << op_name(event.op) << " was last off for " << event.last_wait_ns;
            continue;
        }
        EXPECT_NEAR(static_cast<double>(told->second), static_cast<double>(event.last_wait_ns), apart_ns);
        ++compared;
    }
    EXPECT_GE(compared, 50u);
}

}  // namespace
