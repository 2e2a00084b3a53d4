// What live diagnosis keeps of communicators whose collectives may not all have been seen.
#include "daemon/ingerod/live/live_diagnosis.h"

#include <gmock/gmock.h>

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t second = 1'000'000'000;

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
    Process ended;
    ended.key = {11, 1};
    ended.exited_ns = monotonic_now_ns();
    live_.put_process(ended);
    EXPECT_THAT(interrupt(ProcessKey{12, 1}, {5 * second, 5 * second}), ElementsAre(12));
    EXPECT_THAT(interrupt(std::nullopt, {6 * second, 6 * second}), ElementsAre(10));
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
