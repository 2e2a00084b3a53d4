// Whose task it is that has a thread's CPU: its own program's or host's, a neighbour's of another cgroup, or
// nobody's, where a quota keeps it off.
#include <gmock/gmock.h>

#include <algorithm>

#include "core/diagnosis/assign.h"
#include "core/model/host_event.h"
#include "tests/unit/detectors_fixture.h"

namespace ingero::test {
namespace {

using testing::HasSubstr;

constexpr ProcessKey other{300, 7};

class Neighbours : public Detectors {
  protected:
    void add(ProcessKey key, const std::string& comm, const std::string& cgroup) {
        Process row;
        row.key = key;
        row.comm = comm;
        row.cgroup = cgroup;
        snapshot_.add(row);
    }
    /// Synchronisations spin 2 ms, and all but the first twenty are kept off the CPU for twice as long.
    void contended(uint32_t preemptor) {
        for (int step = 0; step < 320; ++step) {
            for (int i = 0; i < 4; ++i) launch(0x1000);
            const bool alone = step < 20;
            Event& event = call("cudaStreamSync", alone ? 2 * ms : 6 * ms);
            if (alone) continue;
            event.runnable_ns = event.preempted_ns = 4 * ms;
            event.waits = 1;
            if (preemptor == 0) continue;
            event.preemptor_ns = 4 * ms;
            event.preemptor_tgid = preemptor;
            event.preemptor_comm = to_comm("busy");
        }
    }
    /// A wait for a CPU inside of a call, from so long after its begin on, while the call's preemptor ran.
    Event& wait_in(const Event& one, uint64_t after_ns, uint64_t ns) {
        Event wait = one;
        wait.sequence = 0;
        wait.op = op_wait;
        wait.start_ns = one.start_ns + after_ns;
        wait.duration_ns = wait.runnable_ns = wait.preempted_ns = ns;
        wait.preemptor_ns = std::min(one.preemptor_ns, ns);
        wait.depth = 1;
        wait.args = {};
        return snapshot_.add(wait);
    }
    /// The waits inside of the calls that there are.
    void throttle_calls() {
        const std::vector<Event> calls = snapshot_.events();
        for (const Event& one : calls)
            if (one.runnable_ns != 0) wait_in(one, ms, one.runnable_ns).return_code = wait_throttled;
    }
};

TEST_F(Neighbours, ATaskOfAnotherControlGroupIsANeighbour) {
    add(python, "python", "/system.slice/training.service");
    add(other, "busy", "/system.slice/build.service");
    contended(other.pid);
    const Finding finding = found("noisy-neighbour");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.culprits.at(0).name, "busy");
    EXPECT_EQ(finding.culprits[0].pid, other.pid);
    EXPECT_THAT(finding.fix, HasSubstr("another cgroup"));
}

TEST_F(Neighbours, ATaskOfTheSameGroupOrOneBelowIsNone) {
    add(python, "python", "/system.slice/training.service");
    add(other, "busy", "/system.slice/training.service/workers");
    contended(other.pid);
    EXPECT_EQ(found("cpu-contention").culprits.at(0).name, "busy");
    add(other, "busy", "/system.slice/training.service");
    EXPECT_EQ(found("cpu-contention").culprits.at(0).name, "busy");
}

TEST_F(Neighbours, OneThatBeganDuringTheCallIsOne) {
    add(python, "python", "/system.slice/training.service");
    for (int step = 0; step < 40; ++step) {
        for (int i = 0; i < 4; ++i) launch(0x1000);
        call("cudaStreamSync", 2 * ms);
    }
    Event& event = call("cudaStreamSync", 2 * ms + second);
    event.runnable_ns = event.preempted_ns = event.preemptor_ns = second;
    event.waits = 1;
    event.preemptor_tgid = other.pid;
    event.preemptor_comm = to_comm("busy");
    add({other.pid, event.start_ns + ms}, "busy", "/system.slice/build.service");
    EXPECT_EQ(found("noisy-neighbour").culprits.at(0).name, "busy");
}

TEST_F(Neighbours, OfATaskThatIsNotKnownNoGroupIsGuessed) {
    add(python, "python", "/system.slice/training.service");
    contended(other.pid);
    EXPECT_EQ(found("cpu-contention").culprits.at(0).name, "busy");
}

TEST_F(Neighbours, OfManyTasksThatShareTheCpuOnlyTheOneThatIsKnownIsANeighbour) {
    add(python, "python", "/system.slice/training.service");
    add(other, "busy", "/system.slice/build.service");
    contended(other.pid);
    for (Event& event : snapshot_.events()) event.preemptor_ns /= 4;
    const std::vector<Finding> findings = explain();
    ASSERT_EQ(findings.size(), 2u);
    EXPECT_EQ(findings[0].kind, "cpu-contention");
    EXPECT_EQ(findings[0].culprits.at(0).name, "other tasks");
    EXPECT_EQ(findings[1].kind, "noisy-neighbour");
    ASSERT_EQ(findings[1].culprits.size(), 1u);
    EXPECT_EQ(findings[1].culprits[0].name, "busy");
    EXPECT_NEAR(static_cast<double>(findings[1].lost_ns), static_cast<double>(findings[0].lost_ns) / 3,
                0.01 * static_cast<double>(findings[0].lost_ns));
    EXPECT_NEAR(static_cast<double>(findings[1].waited_ns), static_cast<double>(findings[0].waited_ns) / 3,
                0.01 * static_cast<double>(findings[0].waited_ns));
}

TEST_F(Neighbours, AQuotaIsNamedInPlaceOfWhoRanMeanwhile) {
    add(python, "python", "/system.slice/training.service");
    add(other, "busy", "/system.slice/build.service");
    contended(other.pid);
    throttle_calls();
    const Finding finding = found("cpu-contention");
    EXPECT_EQ(finding.culprits.at(0).name, quota_name);
    EXPECT_EQ(finding.culprits[0].pid, 0u);
    EXPECT_THAT(finding.summary, HasSubstr("quota"));
    EXPECT_THAT(finding.fix, HasSubstr("CPUQuota"));
}

// A quarter of the wait is the quota's, too little to name it. Who ran then took nothing from the thread.
TEST_F(Neighbours, WhoRanWhileAQuotaKeptTheThreadOffTheCpuIsNotNamed) {
    contended(other.pid);
    const std::vector<Event> calls = snapshot_.events();
    for (Event& event : snapshot_.events()) event.preemptor_ns /= 4;
    for (const Event& one : calls) {
        if (one.runnable_ns == 0) continue;
        wait_in(one, ms, ms).return_code = wait_throttled;
        Event& wait = wait_in(one, 2 * ms, 3 * ms);
        wait.preemptor_tgid = 301;
        wait.preemptor_comm = to_comm("hog");
    }
    const Finding finding = found("cpu-contention");
    ASSERT_EQ(finding.culprits.size(), 2u) << finding.summary;
    EXPECT_EQ(finding.culprits[0].name, "hog");
    EXPECT_EQ(finding.culprits[1].name, other_tasks);
}

TEST_F(Neighbours, AQuotaIsNamedWhereNobodyRan) {
    contended(0);
    throttle_calls();
    const Finding finding = found("cpu-contention");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.culprits.at(0).name, quota_name);
}

}  // namespace
}  // namespace ingero::test
