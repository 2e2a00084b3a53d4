// What live diagnosis keeps of processes, and of communicators whose collectives may not all have been seen.
#include "daemon/ingerod/live/live_diagnosis.h"

#include <gmock/gmock.h>

#include <set>

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t second = 1'000'000'000;

Process process_of(const ProcessKey& key, uint64_t exited_ns = 0) {
    Process process;
    process.key = key;
    process.exited_ns = exited_ns;
    return process;
}

class InterruptedCommunicators : public testing::Test {
  protected:
    static CommunicatorRow row(uint32_t pid, uint64_t made_ns, uint64_t handle = 0x5000) {
        CommunicatorRow row;
        row.process = {pid, 1};
        row.id = made_ns & ~uint64_t{0xfff};
        row.handle = handle;
        row.hash = 0xfeed;
        return row;
    }
    /// From when on it is not compared, as it is stored.
    uint64_t put(const CommunicatorRow& row) {
        std::vector<CommunicatorRow> stored;
        live_.put_communicator(row, [&](const CommunicatorRow& now) { stored.push_back(now); });
        return stored.size() == 1 ? stored[0].interrupted_ns : UINT64_MAX;
    }
    /// Of whom that is stored.
    std::vector<uint32_t> interrupt(std::optional<ProcessKey> process, const Window& time) {
        std::vector<uint32_t> pids;
        live_.interrupt_communicators(process, time, [&](const CommunicatorRow& row) {
            EXPECT_EQ(row.interrupted_ns, time.from_ns);
            pids.push_back(row.process.pid);
        });
        return pids;
    }

    EventLoop loop_;
    LiveDiagnosis live_{loop_, "boot", {}, [](const DiagnosisPass&) {}};
};

TEST(LiveDiagnosis, KnowsWhoseProcessItWasAfterItsEnd) {
    EventLoop loop;
    LiveDiagnosis live(loop, "boot", {}, [](const DiagnosisPass&) {});
    Process process;
    process.key = {10, 1};
    process.uid = 1'000;
    EXPECT_FALSE(live.process(process.key));
    live.put_process(process);
    process.exited_ns = monotonic_now_ns();
    live.put_process(process);
    ASSERT_TRUE(live.process(process.key));
    EXPECT_EQ(live.process(process.key)->uid, 1'000u);
    EXPECT_FALSE(live.process({10, 2})) << "another one with its pid";
}

// A build beside a traced program: each of its processes begins, has the program's CPU for a moment, and ends.
TEST(LiveDiagnosis, RemembersTracedProcessesBesideManyOthersThatEnd) {
    constexpr uint32_t first = 1'000, many = 50'000;
    EventLoop loop;
    LiveDiagnosis live(loop, "boot", {}, [](const DiagnosisPass&) {});
    const uint64_t now_ns = monotonic_now_ns();
    live.put_process(process_of({10, 1}));
    live.put_process(process_of({11, 1}));
    live.put_process(process_of({11, 1}, now_ns));
    for (uint32_t pid = first; pid < first + many; ++pid) {
        live.put_bystander(process_of({pid, 1}));
        live.put_bystander(process_of({pid, 1}, now_ns + pid));
    }
    size_t remembered = 0;
    for (uint32_t pid = first; pid < first + many; ++pid) remembered += live.process({pid, 1}).has_value();
    EXPECT_LE(remembered, 16'384u);
    EXPECT_GT(remembered, 16'000u);
    EXPECT_TRUE(live.process({first + many - 1, 1})) << "the latest that ended";
    EXPECT_TRUE(live.process({10, 1}));
    EXPECT_TRUE(live.process({11, 1}));
}

TEST_F(InterruptedCommunicators, AreNotThoseOfARankForWhichThereWasNoRoom) {
    for (const uint32_t pid : {10, 11}) {
        live_.put_process(process_of({pid, 1}));
        put(row(pid, second));
    }
    live_.put_process(process_of({11, 1}, monotonic_now_ns()));
    for (uint32_t pid = 1'000; pid < 1'000 + 16'384; ++pid) live_.put_process(process_of({pid, 1}));
    EXPECT_FALSE(live_.process({11, 1}));
    EXPECT_TRUE(live_.process({10, 1}));
    EXPECT_THAT(interrupt(std::nullopt, {5 * second, 5 * second}), ElementsAre(10));
}

TEST_F(InterruptedCommunicators, AreStoredOnceAndStaySo) {
    EXPECT_EQ(put(row(10, second, 0)), 0u);
    EXPECT_EQ(put(row(11, second)), 0u);
    EXPECT_THAT(interrupt(std::nullopt, {5 * second, 5 * second}), ElementsAre(10, 11));
    EXPECT_THAT(interrupt(std::nullopt, {6 * second, 6 * second}), IsEmpty());
    // Its handle is known only now.
    EXPECT_EQ(put(row(10, second)), 5 * second);
}

TEST_F(InterruptedCommunicators, AreThoseOfTheProcessThatLives) {
    for (const uint32_t pid : {10, 11, 12}) put(row(pid, second));
    live_.put_process(process_of({11, 1}, monotonic_now_ns()));
    EXPECT_THAT(interrupt(ProcessKey{12, 1}, {5 * second, 5 * second}), ElementsAre(12));
    EXPECT_THAT(interrupt(std::nullopt, {6 * second, 6 * second}), ElementsAre(10));
}

// A program that makes new ones all the time, and others with a single one each.
TEST_F(InterruptedCommunicators, AreThoseOfProgramsBesideWhichAnotherMakesMany) {
    constexpr uint64_t many = 5'000, apart_ns = 0x1000;
    for (const uint32_t pid : {10, 12}) put(row(pid, second));
    for (uint64_t number = 0; number < many; ++number) put(row(11, second + number * apart_ns));
    std::vector<CommunicatorRow> kept;
    live_.interrupt_communicators(std::nullopt, {900 * second, 900 * second},
                                  [&](const CommunicatorRow& row) { kept.push_back(row); });
    ASSERT_EQ(kept.size(), 2u + 1'024);
    EXPECT_EQ(kept.front().process.pid, 10u);
    EXPECT_EQ(kept.back().process.pid, 12u);
    EXPECT_EQ(kept[1].id, row(11, second).id) << "its first";
    EXPECT_EQ(kept[1'024].id, row(11, second + (many - 1) * apart_ns).id) << "and its latest";
}

TEST_F(InterruptedCommunicators, AreThoseOfProgramsBesideWhichManyOthersMakeMany) {
    constexpr uint32_t many = 66;
    put(row(10, second));
    for (uint32_t pid = 11; pid < 11 + many; ++pid)
        for (uint64_t number = 0; number < 1'024; ++number) put(row(pid, second + number * 0x1000));
    const std::vector<uint32_t> pids = interrupt(std::nullopt, {900 * second, 900 * second});
    EXPECT_LE(pids.size(), 65'536u);
    EXPECT_GT(pids.size(), 60'000u);
    const std::set<uint32_t> kept(pids.begin(), pids.end());
    EXPECT_EQ(kept.size(), 1u + many) << "each has its first and its latest";
}

TEST_F(InterruptedCommunicators, AreThoseTooThatAreMadeMeanwhile) {
    interrupt(std::nullopt, {5 * second, 15 * second});
    // Its record was read late.
    EXPECT_EQ(put(row(10, 4 * second)), 5 * second);
    EXPECT_EQ(put(row(10, 7 * second)), row(10, 7 * second).id);
    EXPECT_EQ(put(row(10, 16 * second)), 0u);
    interrupt(ProcessKey{10, 1}, {20 * second, UINT64_MAX});
    EXPECT_NE(put(row(10, 500 * second)), 0u);
    EXPECT_EQ(put(row(11, 500 * second)), 0u);
    interrupt(ProcessKey{10, 1}, {600 * second, 600 * second});
    EXPECT_EQ(put(row(10, 601 * second)), 0u);
}

}  // namespace
}  // namespace ingero
