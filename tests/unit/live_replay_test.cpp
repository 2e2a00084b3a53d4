// What the live window finds is what explain() finds in the store of the same rows, in each recorded scenario.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/diagnosis/live/live_window.h"
#include "core/query/communicators.h"
#include "core/query/sources/demos.h"
#include "core/store/store.h"
#include "ctl/files/demos.h"
#include "tests/support/daemon.h"

namespace ingero {
namespace {

using testing::IsEmpty;

constexpr uint64_t second = 1'000'000'000;

/// All that a finding says but its ids, and what only a series of passes knows.
std::string text_of(const Finding& finding) {
    std::ostringstream text;
    text << finding.kind << " of " << finding.comm << ' ' << finding.pid << ", severity "
         << static_cast<int>(finding.severity) << ", verdict " << static_cast<int>(finding.verdict) << ": "
         << finding.summary << "\n  waited " << finding.waited_ns << ", lost " << finding.lost_ns << " ("
         << finding.lost_low_ns << " to " << finding.lost_high_ns << "), between calls "
         << finding.waited_between_calls_ns << ", share " << finding.window_share << ", explained "
         << finding.explained_fraction << "\n  culprits:";
    for (const Culprit& culprit : finding.culprits)  // who knows what functions are called names them later
        text << ' ' << (culprit.function == 0 ? culprit.name : std::to_string(culprit.function)) << ' ' << culprit.pid
             << ' ' << culprit.ns << ';';
    text << "\n  rejected:";
    for (const RejectedHypothesis& one : finding.rejected) text << ' ' << one.hypothesis << ' ' << one.ns << ';';
    text << "\n  evidence:";
    for (const uint64_t sequence : finding.evidence) text << ' ' << sequence;
    text << "\n  worst: " << finding.worst.event.sequence << ' ' << finding.worst.cause << ' '
         << finding.worst.excess_ns << ' ' << finding.worst.explained_ns << "\n  " << finding.fix << "\n  "
         << finding.confirm;
    return text.str();
}

std::set<std::string> texts_of(const std::vector<Finding>& findings) {
    std::set<std::string> texts;
    for (const Finding& finding : findings) EXPECT_TRUE(texts.insert(text_of(finding)).second);
    return texts;
}

std::set<std::string> without(std::set<std::string> texts, const std::set<std::string>& others) {
    std::erase_if(texts, [&](const std::string& text) { return others.contains(text); });
    return texts;
}

struct Recording {
    std::unique_ptr<StoreReader> reader;
    std::unique_ptr<StoreSnapshot> snapshot;
    Session session;
    ClockTriple clock;
    std::vector<Event> rows;  ///< as they were recorded
};

Recording read_recording(const std::string& directory) {
    Recording recording;
    auto opened = StoreReader::open(directory);
    if (!opened) return ADD_FAILURE() << opened.error().message, std::move(recording);
    recording.reader = std::move(*opened);
    auto snapshot = recording.reader->snapshot();
    if (!snapshot) return ADD_FAILURE() << snapshot.error().message, std::move(recording);
    recording.snapshot = std::move(*snapshot);
    const auto sessions = recording.snapshot->sessions();
    if (sessions.size() != 1) return ADD_FAILURE() << sessions.size() << " sessions", std::move(recording);
    recording.session = sessions[0];
    recording.clock = boot_windows(*recording.snapshot, whole_trace(*recording.snapshot)).at(0).clock;
    EXPECT_TRUE(recording.snapshot->scan(sessions[0].boot_index, {0, UINT64_MAX}, [&](std::span<const Event> block) {
        recording.rows.insert(recording.rows.end(), block.begin(), block.end());
        return true;
    }));
    std::sort(recording.rows.begin(), recording.rows.end(),
              [](const Event& a, const Event& b) { return a.sequence < b.sequence; });
    return recording;
}

std::vector<Finding> found_live(const Recording& recording, const Window& window, size_t batch) {
    const uint32_t boot = recording.session.boot_index;
    const Window all{0, UINT64_MAX};
    LiveWindow live(recording.session.boot_id,
                    {.history_ns = 3'600 * second,
                     .max_bytes = size_t{1} << 30,
                     .judged_ns = window.length_ns(),
                     .since_ns = std::min(recording.session.clock.monotonic_ns, recording.session.first_covered_ns)});
    for (size_t from = 0; from < recording.rows.size(); from += batch) {
        const auto begin = recording.rows.begin() + static_cast<std::ptrdiff_t>(from);
        const size_t rows = std::min(batch, recording.rows.size() - from);
        live.add({begin, begin + static_cast<std::ptrdiff_t>(rows)});
    }
    const auto losses = recording.snapshot->losses(boot, all);
    if (losses) live.add({}, *losses);
    const auto spans = recording.snapshot->spans(boot, all);
    const auto states = recording.snapshot->states(boot, all);
    const auto processes = recording.snapshot->processes();
    const auto communicators = Communicators::read(*recording.snapshot);
    if (!spans || !states || !processes || !communicators) return ADD_FAILURE(), std::vector<Finding>();
    live.set_communicators(*communicators);
    live.add_spans(*spans);
    for (const StateRow& state : *states) live.add_state(state);
    ClockTriple now = recording.clock;
    const uint64_t passed_ns = window.to_ns - now.monotonic_ns;
    now.monotonic_ns += passed_ns;
    now.boottime_ns += passed_ns;
    now.realtime_ns += passed_ns;
    return live.pass(now, *processes);
}

TEST(RecordedScenarios, AreJudgedLiveAsTheyAreFromTheStore) {
    const auto scenarios = read_demos();
    ASSERT_TRUE(scenarios);
    size_t found = 0;
    for (const auto& scenario : *scenarios) {
        const std::string name = scenario.at("name");
        const test::TemporaryDirectory directory;
        ASSERT_TRUE(ctl::unpack_demo(name, directory.path()));
        const Recording recording = read_recording(directory.path());
        ASSERT_TRUE(recording.snapshot);
        const Window whole{recording.session.first_covered_ns, recording.session.last_covered_ns};
        const Window end{std::max(whole.from_ns, whole.to_ns - 3 * second), whole.to_ns};
        for (const auto& [window, batch] : {std::pair(whole, 8'192), std::pair(whole, 100), std::pair(end, 100)}) {
            SCOPED_TRACE(name + (window.from_ns == whole.from_ns ? "" : ", the last three seconds"));
            const auto stored = explain(*recording.snapshot, {.window = {recording.clock.to_realtime(window.from_ns),
                                                                         recording.clock.to_realtime(window.to_ns)},
                                                              .uid = {},
                                                              .pid = {}});
            ASSERT_TRUE(stored) << stored.error().message;
            const std::set<std::string> live = texts_of(found_live(recording, window, batch)),
                                        later = texts_of(stored->findings);
            EXPECT_THAT(without(live, later), IsEmpty()) << "live alone";
            EXPECT_THAT(without(later, live), IsEmpty()) << "from the store alone";
            found += stored->findings.size();
        }
    }
    EXPECT_GT(found, 3 * scenarios->size()) << "most have a finding of their own";
}

}  // namespace
}  // namespace ingero
