// The life of incidents.
#include "core/diagnosis/incidents/incidents.h"

#include <gmock/gmock.h>

#include <set>

#include "core/render/incidents.h"

namespace ingero {
namespace {

using What = IncidentChange::What;

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr uint32_t python = 123;
constexpr uint32_t hog = 777;
constexpr uint64_t epoch = 1'700'000'000 * second;

ClockTriple at(uint64_t monotonic_ns) {
    return {monotonic_ns, monotonic_ns, epoch + monotonic_ns};
}

Finding contention(uint64_t newly_lost_ns, Severity severity = Severity::medium, uint32_t pid = python) {
    Finding finding;
    finding.kind = "cpu-contention";
    finding.severity = severity;
    finding.verdict = Verdict::proven;
    finding.lost_ns = finding.newly_lost_ns = newly_lost_ns;
    finding.explained_fraction = 0.9;
    finding.worst.event.tgid = finding.pid = pid;
    finding.worst.event.process_start_ns = 5;
    finding.comm = "python";
    finding.culprits = {{"stress-hog", hog, newly_lost_ns}};
    return finding;
}

class Incidents : public testing::Test {
  protected:
    std::vector<IncidentChange> observe(std::vector<Finding> findings) {
        now += second;
        return tracker.observe(findings, at(now));
    }

    IncidentTracker tracker{"boot"};
    uint64_t now = 100 * second;
};

TEST_F(Incidents, one_odd_second_opens_nothing) {
    EXPECT_TRUE(observe({contention(50 * ms)}).empty());
    EXPECT_TRUE(observe({}).empty());
    EXPECT_TRUE(observe({contention(50 * ms)}).empty());
    EXPECT_TRUE(tracker.open().empty());
}

TEST_F(Incidents, what_holds_up_an_owners_work_is_one_whichever_process_it_is) {
    size_t opened = 0;
    for (int pass = 0; pass < 10; ++pass) {
        Finding finding = contention(50 * ms, Severity::medium, pass % 2 == 0 ? 300 : 301);
        finding.owner = {python, 5};
        for (const IncidentChange& change : observe({finding})) {
            EXPECT_EQ(change.incident.process, (ProcessKey{python, 5}));
            opened += change.what == What::opened;
        }
    }
    EXPECT_EQ(opened, 1u);
    EXPECT_EQ(tracker.open().size(), 1u);
}

TEST_F(Incidents, the_same_lost_time_seen_twice_opens_nothing) {
    EXPECT_TRUE(observe({contention(50 * ms)}).empty());
    EXPECT_TRUE(observe({contention(0)}).empty());
    EXPECT_TRUE(observe({contention(0)}).empty());
    EXPECT_TRUE(tracker.waiting()) << "the finding is still there";
    observe({});
    EXPECT_FALSE(tracker.waiting());
}

TEST_F(Incidents, findings_of_one_kind_and_process_are_one) {
    Finding other = contention(100 * ms);
    other.culprits[0].name = "another";
    EXPECT_TRUE(observe({contention(200 * ms), other}).empty()) << "one second";
    const auto changes = observe({other, contention(200 * ms)});
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].incident.lost_ns, 600 * ms);
    EXPECT_EQ(changes[0].incident.culprits.at(0).name, "stress-hog");
    EXPECT_TRUE(observe({contention(10 * ms), contention(10 * ms)}).empty());
}

TEST_F(Incidents, what_devices_of_a_process_lost_at_once_it_lost_once) {
    const auto starved = [](uint64_t newly_lost_ns) {
        Finding finding = contention(newly_lost_ns, Severity::high);
        finding.kind = "data-starvation";
        finding.between_calls = true;
        return finding;
    };
    const auto opened = observe({starved(2 * second), starved(3 * second)});
    ASSERT_EQ(opened.size(), 1u);
    EXPECT_EQ(opened[0].incident.lost_ns, 3 * second);
    Finding in_calls = starved(second);
    in_calls.between_calls = false;
    const auto updated = observe({starved(second), in_calls, starved(2 * second)});
    ASSERT_EQ(updated.size(), 1u);
    EXPECT_EQ(updated[0].incident.lost_ns, 6 * second) << "what threads lost in calls is added";
}

TEST_F(Incidents, two_seconds_in_a_row_open_one_with_what_both_lost) {
    observe({contention(200 * ms)});
    const auto changes = observe({contention(300 * ms)});
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].what, What::opened);
    const Incident& incident = changes[0].incident;
    EXPECT_THAT(incident.id, testing::MatchesRegex("[0-9a-f]{16}"));
    EXPECT_EQ(incident.lost_ns, 500 * ms);
    EXPECT_EQ(incident.process, (ProcessKey{python, 5}));
    EXPECT_EQ(incident.opened_realtime_ns, epoch + now);
    EXPECT_EQ(incident.opened_monotonic_ns, now);
    EXPECT_EQ(incident.closed_realtime_ns, 0u);
    ASSERT_EQ(incident.culprits.size(), 1u);
    EXPECT_EQ(incident.culprits[0].pid, hog);
    EXPECT_EQ(tracker.open().size(), 1u);
}

TEST_F(Incidents, a_finding_that_comes_every_other_second_is_one) {
    EXPECT_TRUE(observe({contention(50 * ms)}).empty());
    EXPECT_TRUE(observe({contention(0)}).empty());
    EXPECT_EQ(observe({contention(50 * ms)}).size(), 1u);
}

TEST_F(Incidents, high_severity_opens_at_once_and_low_never) {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(observe({contention(ms, Severity::low)}).empty());
    EXPECT_EQ(observe({contention(2 * second, Severity::high)}).size(), 1u);
}

TEST_F(Incidents, what_has_grown_graver_only_as_the_window_moved_on_opens_nothing) {
    observe({contention(50 * ms)});
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(observe({contention(0, Severity::high)}).empty());
    Finding waits = contention(0, Severity::high);
    waits.newly_waited_ns = ms;
    EXPECT_EQ(observe({waits}).size(), 1u) << "what it costs is not known until its cycle has ended";
}

TEST_F(Incidents, what_there_was_no_room_for_opens_as_there_is) {
    IncidentOptions options;
    options.max_open = 1;
    IncidentTracker small("boot", options);
    uint64_t at_ns = 100 * second;
    const auto see = [&](std::vector<Finding> findings) {
        at_ns += second;
        return small.observe(findings, at(at_ns));
    };
    ASSERT_EQ(see({contention(second, Severity::high)}).size(), 1u);
    EXPECT_TRUE(see({contention(0), contention(second, Severity::high, 200)}).empty());
    size_t opened = 0;
    for (int i = 0; i < 30; ++i)
        for (const IncidentChange& change : see({contention(0, Severity::high, 200)}))
            opened += change.what == What::opened && change.incident.process.pid == 200;
    EXPECT_EQ(opened, 1u) << "what is new of it came while there was no room";
}

TEST_F(Incidents, what_is_not_proven_opens_nothing) {
    Finding unexplained = contention(second, Severity::high);
    unexplained.verdict = Verdict::unexplained;
    Finding insufficient = contention(second, Severity::high);
    insufficient.verdict = Verdict::insufficient_evidence;
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(observe({unexplained, insufficient}).empty());
}

TEST_F(Incidents, an_update_is_told_when_the_loss_has_grown_by_a_tenth_or_the_severity_changes) {
    observe({contention(second, Severity::high)});
    EXPECT_TRUE(observe({contention(50 * ms, Severity::high)}).empty());
    const auto grown = observe({contention(50 * ms, Severity::high)});
    ASSERT_EQ(grown.size(), 1u);
    EXPECT_EQ(grown[0].what, What::updated);
    EXPECT_EQ(grown[0].incident.lost_ns, 1'100 * ms);
    EXPECT_TRUE(observe({contention(ms, Severity::low)}).empty()) << "one that fades is no lesser one";
    EXPECT_EQ(tracker.open()[0].severity, Severity::high);
    EXPECT_EQ(tracker.open()[0].lost_ns, 1'101 * ms) << "low severity keeps an open one open";
}

TEST_F(Incidents, one_whose_cost_is_not_known_yet_is_told_once_and_again_as_it_is) {
    Finding waits = contention(0, Severity::high);
    waits.newly_waited_ns = ms;
    ASSERT_EQ(observe({waits}).size(), 1u);
    EXPECT_EQ(tracker.open().at(0).lost_ns, 0u);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(observe({waits}).empty()) << "pass " << i;
    waits.newly_lost_ns = ms;
    const auto changes = observe({waits});
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].what, What::updated);
    EXPECT_EQ(changes[0].incident.lost_ns, ms);
}

TEST_F(Incidents, quiet_closes_it_with_the_time_it_was_last_seen_and_another_gets_another_id) {
    const auto opened = observe({contention(second, Severity::high)});
    const uint64_t last = now;
    std::vector<IncidentChange> changes;
    int passes = 0;
    // What stays in the window without anything new does not count.
    for (; changes.empty() && passes < 100; ++passes) changes = observe({contention(0, Severity::high)});
    EXPECT_EQ(passes, 15);
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].what, What::closed);
    EXPECT_EQ(changes[0].incident.id, opened[0].incident.id);
    EXPECT_EQ(changes[0].incident.closed_realtime_ns, epoch + last);
    EXPECT_TRUE(tracker.open().empty());
    const auto again = observe({contention(second, Severity::high)});
    ASSERT_EQ(again.size(), 1u);
    EXPECT_NE(again[0].incident.id, opened[0].incident.id);
}

TEST_F(Incidents, another_culprit_of_the_same_trouble_is_the_same_incident) {
    observe({contention(second, Severity::high)});
    Finding other = contention(second, Severity::high);
    other.culprits[0].name = "backup";
    const auto changes = observe({other});
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].what, What::updated);
    EXPECT_EQ(changes[0].incident.culprits[0].name, "backup");
}

TEST_F(Incidents, the_number_of_open_ones_is_bounded_and_the_rest_is_counted) {
    std::vector<Finding> many;
    for (uint32_t pid = 1; pid <= 1'000; ++pid) many.push_back(contention(second, Severity::high, pid));
    EXPECT_EQ(observe(many).size(), 256u);
    EXPECT_EQ(tracker.open().size(), 256u);
    EXPECT_EQ(tracker.refused(), 744u);
    std::set<std::string> ids;
    for (const Incident& incident : tracker.open()) ids.insert(incident.id);
    EXPECT_EQ(ids.size(), 256u);
}

TEST_F(Incidents, of_whom_others_tell_open_once_they_are_severe_enough) {
    Finding late = contention(200 * ms, Severity::low);
    late.kind = "straggler";
    EXPECT_FALSE(tracker.put("abc", late, at(now)));
    EXPECT_FALSE(tracker.waiting());
    EXPECT_FALSE(tracker.end("abc", epoch + now));
    late.severity = Severity::medium;
    EXPECT_FALSE(tracker.put("abc", late, at(now), true)) << "it is over";
    const auto opened = tracker.put("abc", late, at(now));
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->what, What::opened);
    late.severity = Severity::low;
    late.lost_ns *= 2;
    const auto updated = tracker.put("abc", late, at(now));
    ASSERT_TRUE(updated) << "it stays one";
    EXPECT_EQ(updated->what, What::updated);
}

TEST_F(Incidents, of_whom_others_tell_begin_and_end_as_they_say) {
    Finding late = contention(200 * ms);
    late.kind = "straggler";
    EXPECT_TRUE(observe({late}).empty());
    EXPECT_TRUE(observe({late}).empty()) << "observe() leaves them to put()";
    const auto opened = tracker.put("abc", late, at(now));
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->what, What::opened);
    EXPECT_EQ(opened->incident.id, "abc");
    EXPECT_EQ(opened->incident.process, (ProcessKey{python, 5}));
    EXPECT_TRUE(tracker.waiting());
    EXPECT_EQ(tracker.open().size(), 1u);
    EXPECT_FALSE(tracker.put("abc", late, at(now))) << "nothing has changed";
    now += 60 * second;
    EXPECT_TRUE(observe({}).empty()) << "quiet ends it not";
    late.lost_ns = 300 * ms;
    const auto updated = tracker.put("abc", late, at(now));
    ASSERT_TRUE(updated);
    EXPECT_EQ(updated->what, What::updated);
    EXPECT_EQ(updated->incident.lost_ns, 300 * ms);
    EXPECT_FALSE(tracker.end("xyz", epoch));
    const auto closed = tracker.end("abc", epoch + now);
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->what, What::closed);
    EXPECT_EQ(closed->incident.closed_realtime_ns, epoch + now);
    EXPECT_FALSE(tracker.end("abc", epoch + now));
    EXPECT_FALSE(tracker.waiting());
}

/// As `at`, once the wall clock was set back by an hour.
ClockTriple set_back(uint64_t monotonic_ns) {
    return {monotonic_ns, monotonic_ns, epoch + monotonic_ns - 3'600 * second};
}

TEST_F(Incidents, are_stored_as_opened_when_they_were_though_the_wall_clock_is_set_meanwhile) {
    const auto opened = observe({contention(second, Severity::high)});
    const uint64_t began = now;
    ASSERT_EQ(opened.size(), 1u);
    EXPECT_EQ(incident_row(opened[0], at(now)).opened_ns, began);
    EXPECT_EQ(incident_row(opened[0], at(now)).at_ns, began);
    now += second;
    const auto updated = tracker.observe({contention(second, Severity::high)}, set_back(now));
    ASSERT_EQ(updated.size(), 1u);
    const IncidentRow second_row = incident_row(updated[0], set_back(now));
    EXPECT_EQ(second_row.event, IncidentEvent::updated);
    EXPECT_EQ(second_row.opened_ns, began);
    EXPECT_EQ(second_row.at_ns, now);
    const uint64_t last = now;
    now += 20 * second;
    const auto closed = tracker.observe({}, set_back(now));
    ASSERT_EQ(closed.size(), 1u);
    const IncidentRow last_row = incident_row(closed[0], set_back(now));
    EXPECT_EQ(last_row.event, IncidentEvent::closed);
    EXPECT_EQ(last_row.opened_ns, began);
    EXPECT_EQ(last_row.at_ns, last);
}

TEST_F(Incidents, of_whom_others_tell_are_stored_so_too) {
    Finding late = contention(200 * ms);
    late.kind = "straggler";
    const auto opened = tracker.put("abc", late, at(now));
    ASSERT_TRUE(opened);
    const uint64_t began = now;
    now += 60 * second;
    late.lost_ns = 300 * ms;
    const auto updated = tracker.put("abc", late, set_back(now));
    ASSERT_TRUE(updated);
    EXPECT_EQ(incident_row(*updated, set_back(now)).opened_ns, began);
    const auto closed = tracker.end("abc", set_back(now).realtime_ns);
    ASSERT_TRUE(closed);
    EXPECT_EQ(incident_row(*closed, set_back(now)).opened_ns, began);
    EXPECT_EQ(incident_row(*closed, set_back(now)).at_ns, now);
}

}  // namespace
}  // namespace ingero
