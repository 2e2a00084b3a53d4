// Windows that span several boots of a store, explained and compared: each boot has a monotonic clock of its own, and
// between two of them nothing was recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/model/op.h"
#include "core/render/incidents.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

constexpr uint64_t us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
constexpr uint64_t epoch = 1'700'000'000 * second;
constexpr uint64_t usual_ns = 10 * us;
constexpr uint32_t python = 123, hog = 777;

/// A program makes ten calls a second, of which the sixth is held up.
struct Boot {
    const char* id;
    uint64_t begun_s;       ///< after `epoch`, when its monotonic clock was 0
    uint64_t from_s, to_s;  ///< of that clock: what was recorded
    uint64_t held_up_ns;
};

constexpr std::array<Boot, 3> all_boots = {
    {{"boot-a", 0, 100, 400, 5 * ms}, {"boot-b", 1'000, 50, 250, 20 * ms}, {"boot-c", 1'500, 30, 130, 50 * ms}}};

/// CLOCK_REALTIME, in seconds after `epoch`.
constexpr Window wall(uint64_t from_s, uint64_t to_s) {
    return {epoch + from_s * second, epoch + to_s * second};
}

uint64_t common_ns(const Window& a, const Window& b) {
    return Window{std::max(a.from_ns, b.from_ns), std::min(a.to_ns, b.to_ns)}.length_ns();
}

uint64_t recorded_ns(const Window& window) {
    uint64_t total_ns = 0;
    for (const Boot& boot : all_boots)
        total_ns += common_ns(window, wall(boot.begun_s + boot.from_s, boot.begun_s + boot.to_s));
    return total_ns;
}

/// Whether it lies between the beginning of a boot and that of the next.
bool is_of_one_boot(const Window& window) {
    const auto begun_by = [](uint64_t time_ns) {
        return std::count_if(all_boots.begin(), all_boots.end(),
                             [&](const Boot& boot) { return epoch + boot.begun_s * second <= time_ns; });
    };
    return begun_by(window.from_ns) != 0 && begun_by(window.from_ns) == begun_by(window.to_ns - 1);
}

/// A window, and what is true of it.
struct Truth {
    Window window;
    int64_t held_up_per_s;  ///< ns, of each second that was recorded
    int64_t calls;
    int64_t mean_ns;  ///< of a call
};

constexpr Window early = wall(100, 200), late = wall(1'150, 1'250), two_boots = wall(100, 1'250),
                 parts_of_two = wall(300, 1'150), three_boots = wall(100, 1'630);
/// One call was held up in each second: of 100 s of the first boot; of 100 s of the second; of 300 s of the first and
/// 200 s of the second; of 100 s of each of them; of all 600 s.
constexpr std::array<Truth, 5> truths = {{{early, 5 * ms, 1'000, 510 * us},
                                          {late, 20 * ms, 1'000, 2'010 * us},
                                          {two_boots, 11 * ms, 5'000, 1'110 * us},
                                          {parts_of_two, 12'500 * us, 2'000, 1'260 * us},
                                          {three_boots, 17'500 * us, 6'000, 1'760 * us}}};

class SeveralBoots : public testing::Test {
  protected:
    /// `lost`: so many calls of each boot.
    explicit SeveralBoots(const std::array<uint64_t, 3>& lost = {}) {
        for (size_t number = 0; number < all_boots.size(); ++number) record(all_boots[number], lost[number]);
        snapshot_ = open_snapshot(directory_.path());
    }

    ExplainAnswer explained(const Window& window) const {
        auto answer = explain(*snapshot_, {.window = window, .uid = {}, .pid = {}}, {.slices = 10});
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? std::move(*answer) : ExplainAnswer{};
    }
    /// Of the findings that name the hog, in order of the boots.
    std::vector<Verdict> verdicts() const {
        std::map<uint64_t, Verdict> by_start;
        for (const Finding& finding : explained(three_boots).findings)
            if (finding.kind == "cpu-contention") by_start[finding.worst.event.process_start_ns] = finding.verdict;
        std::vector<Verdict> verdicts;
        for (const Boot& boot : all_boots)
            if (by_start.contains(boot.from_s * second)) verdicts.push_back(by_start[boot.from_s * second]);
        return verdicts;
    }
    /// Of the calls that began within it.
    ExcessSums true_sums(const Window& window) const {
        ExcessSums sums;
        for (const auto& [start_ns, held_up_ns] : calls_) {
            if (!window.contains(start_ns)) continue;
            ++sums.calls;
            sums.busy_ns += usual_ns + held_up_ns;
            sums.excess_ns += held_up_ns;
        }
        return sums;
    }

  private:
    void record(const Boot& boot, uint64_t lost) {
        const auto at = [&](uint64_t time_s) {
            return ClockTriple{time_s * second, time_s * second, epoch + (boot.begun_s + time_s) * second};
        };
        ClockTriple now = at(boot.from_s);
        const auto writer = open_writer(directory_.path(), {.clock = [&now] { return now; }});
        ASSERT_TRUE(writer);
        Session session = make_session(boot.id);
        session.clock = now;
        ASSERT_TRUE(writer->begin_session(session));
        writer->set_first_covered(now.monotonic_ns);
        Process process;
        process.key = {python, boot.from_s * second};
        process.comm = "python";
        Batch batch;
        batch.processes.push_back(process);
        for (uint64_t number = 0; number < 10 * (boot.to_s - boot.from_s); ++number) {
            Event call;
            call.sequence = ++latest_sequence_;
            call.op = op::cudaMalloc;
            call.tgid = call.tid = python;
            call.process_start_ns = process.key.start_ns;
            call.start_ns = now.monotonic_ns + number * 100 * ms + 50 * ms;
            call.duration_ns = usual_ns;
            if (number % 10 == 5) {
                call.duration_ns += boot.held_up_ns;
                call.runnable_ns = call.preempted_ns = call.preemptor_ns = boot.held_up_ns;
                call.preemptor_tgid = hog;
                call.preemptor_comm = to_comm("stress-hog");
            }
            calls_.emplace_back(now.to_realtime(call.start_ns), call.runnable_ns);
            batch.events.push_back(call);
        }
        LossRow loss{
            .from_ns = now.monotonic_ns + second, .to_ns = now.monotonic_ns + 2 * second, .op = op::cudaMalloc};
        loss.lost_ring = lost;
        if (lost != 0) batch.losses.push_back(loss);
        now = at(boot.to_s);
        batch.covered_until_ns = now.monotonic_ns;
        ASSERT_TRUE(writer->commit(batch));
        ASSERT_TRUE(writer->end_session());
    }

    TemporaryDirectory directory_;
    std::unique_ptr<StoreSnapshot> snapshot_;
    uint64_t latest_sequence_ = 0;
    std::vector<std::pair<uint64_t, uint64_t>> calls_;  ///< start on the wall clock, and for how long it was held up
};

TEST_F(SeveralBoots, HaveSlicesThatAreEachOfTheTimeOfOne) {
    for (const Truth& truth : truths) {
        ExplainAnswer answer = explained(truth.window);
        ASSERT_THAT(answer.slices, Not(SizeIs(0)));
        std::sort(answer.slices.begin(), answer.slices.end(),
                  [](const ExcessSlice& a, const ExcessSlice& b) { return a.wall.from_ns < b.wall.from_ns; });
        uint64_t until_ns = truth.window.from_ns, in_slices_ns = 0;
        for (const ExcessSlice& slice : answer.slices) {
            SCOPED_TRACE("from " + std::to_string((slice.wall.from_ns - epoch) / ms) + " to " +
                         std::to_string((slice.wall.to_ns - epoch) / ms) + " ms");
            EXPECT_GE(slice.wall.from_ns, until_ns) << "no time is in two of them";
            EXPECT_GT(slice.wall.to_ns, slice.wall.from_ns);
            EXPECT_LE(slice.wall.to_ns, truth.window.to_ns);
            EXPECT_TRUE(is_of_one_boot(slice.wall));
            until_ns = std::max(until_ns, slice.wall.to_ns);
            in_slices_ns += recorded_ns(slice.wall);
        }
        EXPECT_EQ(in_slices_ns, recorded_ns(truth.window)) << "each recorded second is in one of them";
    }
}

TEST_F(SeveralBoots, HaveSlicesThatAddUpToWhatWasRecorded) {
    for (const Truth& truth : truths) {
        const ExplainAnswer answer = explained(truth.window);
        ExcessSums sums;
        for (const ExcessSlice& slice : answer.slices) {
            SCOPED_TRACE("from " + std::to_string((slice.wall.from_ns - epoch) / ms) + " to " +
                         std::to_string((slice.wall.to_ns - epoch) / ms) + " ms");
            const ExcessSums expected = true_sums(slice.wall);
            EXPECT_EQ(slice.sums.calls, expected.calls);
            EXPECT_EQ(slice.sums.busy_ns, expected.busy_ns);
            EXPECT_EQ(slice.sums.excess_ns, expected.excess_ns);
            sums.add(slice.sums);
        }
        const ExcessSums expected = true_sums(truth.window);
        EXPECT_EQ(answer.calls, expected.calls);
        EXPECT_EQ(answer.excess_ns, expected.excess_ns);
        EXPECT_EQ(sums.calls, answer.calls);
        EXPECT_EQ(sums.busy_ns, expected.busy_ns);
        EXPECT_EQ(sums.excess_ns, answer.excess_ns);
        EXPECT_THAT(sums.by_cause(), ElementsAre(Pair("cpu-contention", expected.excess_ns)));
        EXPECT_EQ(answer.excess.by_cause(), sums.by_cause());
    }
}

TEST_F(SeveralBoots, HaveAProcessEach) {
    const ExplainAnswer answer = explained(three_boots);
    ASSERT_THAT(answer.by_process, SizeIs(3));
    const std::array<std::pair<uint64_t, uint64_t>, 3> expected = {
        {{1'000, 100 * 50 * ms}, {2'000, 200 * 20 * ms}, {3'000, 300 * 5 * ms}}};
    for (size_t number = 0; number < expected.size(); ++number) {
        const ExcessGroup& process = answer.by_process[number];
        EXPECT_EQ(process.name, "python");
        EXPECT_EQ(process.pid, python);
        EXPECT_EQ(process.sums.calls, expected[number].first);
        EXPECT_EQ(process.sums.excess_ns, expected[number].second) << "the most comes first";
    }
}

TEST_F(SeveralBoots, HaveFindingsWithSharesOfTheirOwnTime) {
    std::map<uint64_t, double> shares;  // by when the process began, which none of these did twice
    for (const Finding& finding : explained(three_boots).findings)
        if (finding.kind == "cpu-contention") shares[finding.worst.event.process_start_ns] = finding.window_share;
    ASSERT_TRUE(shares.contains(50 * second) && shares.contains(30 * second));
    EXPECT_NEAR(shares[50 * second], 0.020, 0.001);
    EXPECT_NEAR(shares[30 * second], 0.050, 0.001);
}

/// 500 of 1,500 calls are less than a tenth of those of all boots.
class ASmallBootThatLostCalls : public SeveralBoots {
  protected:
    ASmallBootThatLostCalls() : SeveralBoots({0, 0, 500}) {}
};

TEST_F(ASmallBootThatLostCalls, ProvesNothingBesideLargeOnes) {
    EXPECT_THAT(verdicts(), ElementsAre(Verdict::proven, Verdict::proven, Verdict::partial));
}

/// 700 calls are more than a tenth of those of all boots.
class ALargeBootThatLostCalls : public SeveralBoots {
  protected:
    ALargeBootThatLostCalls() : SeveralBoots({700, 0, 0}) {}
};

TEST_F(ALargeBootThatLostCalls, LeavesOthersTheirProof) {
    EXPECT_THAT(verdicts(), ElementsAre(Verdict::partial, Verdict::proven, Verdict::proven));
}

TEST_F(SeveralBoots, AreComparedByTheTimeThatWasRecordedInThem) {
    std::vector<json> answers;
    for (const Truth& truth : truths) answers.push_back(to_json(explained(truth.window), {}));
    for (size_t a = 0; a < truths.size(); ++a) {
        for (size_t b = 0; b < truths.size(); ++b) {
            SCOPED_TRACE("windows " + std::to_string(a) + " and " + std::to_string(b));
            const auto diff = explain_diff(answers[a], answers[b]);
            ASSERT_TRUE(diff) << diff.error().message;
            ASSERT_THAT((*diff)["causes"], SizeIs(1));
            const json& cause = (*diff)["causes"][0];
            EXPECT_EQ(cause["cause"], "cpu-contention");
            EXPECT_EQ(cause["a_ns"].get<int64_t>(), truths[a].held_up_per_s);
            EXPECT_EQ(cause["b_ns"].get<int64_t>(), truths[b].held_up_per_s);
            EXPECT_EQ(cause["change_ns"].get<int64_t>(), truths[b].held_up_per_s - truths[a].held_up_per_s);
            if (a == b) {
                EXPECT_EQ(cause["certain"], false);
            }
            ASSERT_THAT((*diff)["ops"], SizeIs(1));
            const json& calls = (*diff)["ops"][0];
            EXPECT_EQ(calls["op"], "cudaMalloc");
            EXPECT_EQ(calls["a_calls"].get<int64_t>(), truths[a].calls);
            EXPECT_EQ(calls["b_calls"].get<int64_t>(), truths[b].calls);
            EXPECT_EQ(calls["a_mean_ns"].get<int64_t>(), truths[a].mean_ns);
            EXPECT_EQ(calls["b_mean_ns"].get<int64_t>(), truths[b].mean_ns);
            EXPECT_EQ(calls["change_ns"].get<int64_t>(), truths[b].mean_ns - truths[a].mean_ns);
        }
    }
}

TEST(KnownProcesses, AreThoseThatHadBegunByThenInTheSameBoot) {
    std::vector<Process> processes(3);
    processes[0].key = {hog, 100 * second};
    processes[0].exited_ns = 200 * second;
    processes[1].key = {hog, 300 * second};
    processes[2].key = {hog, 310 * second};  // of another boot
    const std::map<ProcessKey, uint32_t> boots = {{processes[1].key, 0}, {processes[2].key, 1}};
    const KnownProcesses known = KnownProcesses(processes).of_boot(boots, 0, {});
    EXPECT_EQ(known.at(hog, 99 * second), nullptr);
    EXPECT_EQ(known.at(hog, 150 * second), &processes[0]);
    EXPECT_EQ(known.at(hog, 250 * second), nullptr) << "one that began later";
    EXPECT_EQ(known.at(hog, 350 * second), &processes[1]) << "one of another boot";
    EXPECT_EQ(known.at(python, 350 * second), nullptr);
    EXPECT_EQ(known.during(hog, {90 * second, 110 * second}), &processes[0]) << "one that began meanwhile";
    EXPECT_EQ(known.during(hog, {150 * second, 250 * second}), &processes[0]) << "one that ended meanwhile";
    EXPECT_EQ(known.during(hog, {210 * second, 299 * second}), nullptr);
    const KnownProcesses suspended(processes, {}, {.monotonic_ns = 400 * second, .boottime_ns = 460 * second});
    EXPECT_EQ(suspended.at(hog, 245 * second), &processes[1]) << "starts count the time of suspension";
}

TEST_F(SeveralBoots, AChangeFromOneToAnotherIsCertainWhereEachIsAlwaysAlike) {
    const auto diff = explain_diff(to_json(explained(early), {}), to_json(explained(late), {}));
    ASSERT_TRUE(diff) << diff.error().message;
    for (const char* list : {"causes", "ops"}) {
        ASSERT_THAT((*diff)[list], SizeIs(1));
        EXPECT_EQ((*diff)[list][0]["certain"], true) << list;
        EXPECT_EQ((*diff)[list][0]["uncertainty_ns"], 0) << list;
    }
}

}  // namespace
}  // namespace ingero
