// Every call is either in the store or counted as lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/model/op.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

class Exactness : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    struct Counts {
        uint64_t made = 0, traced = 0, lost = 0;
        bool alone = true;
        std::map<OpId, int64_t> difference;
    };

    /// Traces the workload and compares the store with its log.
    Counts trace(std::vector<std::string> workload_arguments) {
        const TemporaryDirectory directory;
        const std::string log = directory / "truth";
        workload_arguments.insert(workload_arguments.end(), {"--log", log, "--cpu", "0"});
        Daemon daemon(directory / "run");
        Workload workload(workload_arguments);
        EXPECT_TRUE(daemon.wait_traced(workload.pid()));
        const uint32_t pid = static_cast<uint32_t>(workload.pid());
        workload.open_gate();
        EXPECT_EQ(workload.finish(), 0) << workload.child().errors();
        EXPECT_EQ(daemon.stop(), 0) << daemon.process().output();

        const auto truth = standin::GroundTruth::open(log);
        if (!truth) {
            ADD_FAILURE() << "the workload left no log";
            return {};
        }
        EXPECT_EQ(truth->overflow(), 0u);
        const StoreContents store = read_store(daemon.store());
        Counts counts;
        std::map<OpId, int64_t> by_op;
        for (const standin::Record& record : truth->records())
            if (const auto op = op_of_function(truth->name(record))) by_op[*op]++;
        for (const auto& [op, count] : by_op) counts.made += static_cast<uint64_t>(count);
        for (const Event& event : store.events) {
            if (event.tgid != pid) continue;
            by_op[event.op]--;
            counts.traced++;
        }
        // Losses are those of the host: where others were traced too, they may be theirs.
        counts.alone = std::all_of(store.events.begin(), store.events.end(),
                                   [pid](const Event& event) { return event.tgid == pid || !is_call(event.op); });
        for (const LossRow& row : store.losses) by_op[row.op] -= static_cast<int64_t>(row.lost());
        counts.lost = store.lost();
        counts.difference = by_op;
        return counts;
    }

    static void expect_all_accounted_for(const Counts& counts) {
        EXPECT_LE(counts.traced, counts.made);
        if (counts.alone) {
            EXPECT_EQ(counts.traced + counts.lost, counts.made);
        }
        for (const auto& [op, difference] : counts.difference) {
            EXPECT_LE(difference, 0) << op_name(op) << ": made less traced less lost";
            if (counts.alone) {
                EXPECT_EQ(difference, 0) << op_name(op) << ": made less traced less lost";
            }
        }
    }
};

// A million of them with --full.
TEST_F(Exactness, of_calls_at_100000_a_second_each_is_traced_or_counted_as_lost) {
    const uint64_t calls = full_form() ? 1'000'000 : 300'000;
    const Counts counts = trace({"calls", "--count", std::to_string(calls), "--rate", "100000", "--op", "launch"});
    EXPECT_GE(counts.made, calls);
    expect_all_accounted_for(counts);
    RecordProperty("made", std::to_string(counts.made));
    RecordProperty("lost", std::to_string(counts.lost));
    std::cout << counts.made << " made, " << counts.traced << " traced, " << counts.lost << " lost\n";
}

TEST_F(Exactness, at_20000_calls_a_second_none_is_lost) {
    // In the gate as many as the ring and the queue hold while a busy disk syncs.
    const uint64_t calls = emulated() ? 20'000 : full_form() ? 100'000 : 30'000;
    const Counts counts = trace({"calls", "--count", std::to_string(calls), "--rate", "20000", "--op", "mixed"});
    EXPECT_GE(counts.made, calls);
    expect_all_accounted_for(counts);
    if (!sanitized && counts.alone) {
        EXPECT_EQ(counts.lost, 0u);
    }
}

TEST_F(Exactness, calls_left_by_longjmp_and_thread_death_are_counted_as_lost) {
#if defined(__aarch64__)
    // Unwinding through a return probe reads the kernel's trampoline, which arm64 lets nobody read: the program ends.
    const Counts counts = trace({"jump", "--how", "longjmp"});
#else
    const Counts counts = trace({"jump"});
#endif
    EXPECT_GT(counts.lost, 0u);
    expect_all_accounted_for(counts);
}

TEST_F(Exactness, calls_of_many_threads_are_all_there) {
    const std::string calls = emulated() ? "16000" : "80000";
    const Counts counts = trace({"calls", "--count", calls, "--rate", "20000", "--op", "mixed", "--threads", "8"});
    expect_all_accounted_for(counts);
}

}  // namespace
