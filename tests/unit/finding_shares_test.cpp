// What the shares of a finding are of: the time in which its process was there.
#include <gtest/gtest.h>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/incidents/known_processes.h"

namespace ingero::test {
namespace {

constexpr uint64_t second = 1'000'000'000;

class SharesOfFindings : public testing::Test {
  protected:
    /// Of a window from 100 s to 400 s.
    uint64_t time_of(uint64_t first_seen_ns, uint64_t exited_ns, uint64_t covered_ns = 300 * second) {
        Process process;
        process.key = key_;
        process.first_seen_ns = first_seen_ns;
        process.exited_ns = exited_ns;
        const std::vector<Process> processes = {process};
        const KnownProcesses known(processes);
        JudgementContext context;
        context.covered_ns = covered_ns;
        context.window = {100 * second, 400 * second};
        context.processes = &known;
        return context.time_of(key_);
    }

    const ProcessKey key_{7, 1};
};

TEST_F(SharesOfFindings, AreOfTheProcesssTimeInTheWindow) {
    EXPECT_EQ(time_of(50 * second, 0), 300 * second);
    EXPECT_EQ(time_of(200 * second, 0), 200 * second);
    EXPECT_EQ(time_of(50 * second, 130 * second), 30 * second);
    EXPECT_EQ(time_of(200 * second, 220 * second), 20 * second);
    EXPECT_EQ(time_of(50 * second, 1'000 * second), 300 * second) << "it ended later";
}

TEST_F(SharesOfFindings, AreOfNoLessThanWhatIsJudgedLive) {
    EXPECT_EQ(time_of(200 * second, 201 * second), 10 * second);
    EXPECT_EQ(time_of(10 * second, 20 * second), 10 * second) << "its calls are of before";
    EXPECT_EQ(time_of(200 * second, 201 * second, 4 * second), 4 * second) << "nothing more is covered";
}

TEST_F(SharesOfFindings, AreOfWhatIsCoveredWhereTheProcessIsNotKnown) {
    EXPECT_EQ(time_of(50 * second, 0, 60 * second), 60 * second) << "with gaps";
    JudgementContext context;
    context.covered_ns = 5;
    EXPECT_EQ(context.time_of(key_), 5u);
}

}  // namespace
}  // namespace ingero::test
