// Which processes are remembered, and which go first.
#include "daemon/ingerod/live/remembered_processes.h"

#include <gmock/gmock.h>

#include <vector>

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t remembered_ns = 60 * second;

constexpr auto bystander = ProcessRole::bystander;
constexpr auto traced = ProcessRole::traced;
constexpr auto rank = ProcessRole::rank;

Process process_of(uint32_t pid, uint64_t exited_ns = 0) {
    Process process;
    process.key = {pid, 1};
    process.exited_ns = exited_ns;
    return process;
}

std::vector<uint32_t> pids_of(const RememberedProcesses& processes) {
    std::vector<uint32_t> pids;
    for (const Process& one : processes.all()) pids.push_back(one.key.pid);
    return pids;
}

TEST(RememberedProcesses, AreNoMoreThanTheLimit) {
    constexpr size_t limit = 16'384;
    constexpr uint32_t many = 50'000;
    RememberedProcesses processes(limit, remembered_ns);
    for (uint32_t pid = 1; pid <= many; ++pid) {
        const auto dropped = processes.put(process_of(pid, second + pid), traced);
        ASSERT_EQ(dropped.has_value(), pid > limit) << pid;
        if (dropped) {
            EXPECT_EQ(dropped->key.pid, pid - limit) << "the one that ended first";
        }
    }
    EXPECT_EQ(processes.size(), limit);
    EXPECT_EQ(processes.all().size(), limit);
    EXPECT_TRUE(processes.find({many, 1}));
    EXPECT_FALSE(processes.find({1, 1}));
}

TEST(RememberedProcesses, GoInTheOrderOfTheirUse) {
    RememberedProcesses processes(8, remembered_ns);
    processes.put(process_of(1), rank);
    processes.put(process_of(2), traced);
    processes.put(process_of(3), bystander);
    processes.put(process_of(4, second), rank);
    processes.put(process_of(5, 3 * second), traced);
    processes.put(process_of(6, 2 * second), traced);
    processes.put(process_of(7, 5 * second), bystander);
    processes.put(process_of(8, 4 * second), bystander);
    std::vector<uint32_t> dropped;
    for (uint32_t pid = 101; pid <= 108; ++pid) {
        const auto one = processes.put(process_of(pid), rank);
        ASSERT_TRUE(one);
        dropped.push_back(one->key.pid);
    }
    EXPECT_THAT(dropped, ElementsAre(8, 7, 6, 5, 4, 3, 2, 1));
    const auto refused = processes.put(process_of(9, second), traced);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->key.pid, 9u) << "the others live";
}

TEST(RememberedProcesses, ThatEndedAreForgottenAfterAWhileUnlessTheyAreRanks) {
    RememberedProcesses processes(100, remembered_ns);
    processes.put(process_of(1), traced);
    processes.put(process_of(2, second), bystander);
    processes.put(process_of(3, second), traced);
    processes.put(process_of(4, second), rank);
    processes.put(process_of(5, 10 * second), traced);
    processes.forget_ended(second + remembered_ns);
    EXPECT_THAT(pids_of(processes), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(processes.long_ended_ranks(second + remembered_ns), IsEmpty());
    processes.forget_ended(second + remembered_ns + 1);
    EXPECT_THAT(pids_of(processes), ElementsAre(1, 4, 5));
    EXPECT_THAT(processes.long_ended_ranks(second + remembered_ns + 1), ElementsAre(ProcessKey{4, 1}));
    processes.erase({4, 1});
    EXPECT_THAT(processes.long_ended_ranks(UINT64_MAX), IsEmpty());
    processes.forget_ended(UINT64_MAX);
    EXPECT_THAT(pids_of(processes), ElementsAre(1)) << "it lives";
}

TEST(RememberedProcesses, KeepTheHighestRoleThatTheyHad) {
    RememberedProcesses processes(100, remembered_ns);
    processes.set_rank({1, 1});
    EXPECT_EQ(processes.size(), 0u);
    processes.put(process_of(1), bystander);
    processes.set_rank({1, 1});
    processes.put(process_of(1, second), traced);
    EXPECT_EQ(processes.size(), 1u);
    EXPECT_THAT(processes.long_ended_ranks(UINT64_MAX), ElementsAre(ProcessKey{1, 1}));
    // It was taken for one that has ended.
    processes.put(process_of(1), bystander);
    EXPECT_THAT(processes.long_ended_ranks(UINT64_MAX), IsEmpty());
    ASSERT_TRUE(processes.find({1, 1}));
    EXPECT_EQ(processes.find({1, 1})->exited_ns, 0u);
}

}  // namespace
}  // namespace ingero
