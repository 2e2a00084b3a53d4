// Stores merged into one: what each had is there, and nothing of two nodes is taken for the same.
#include "core/import/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/diagnosis/incidents/incident_history.h"
#include "core/import/finding_calls.h"
#include "core/model/op.h"
#include "core/query/coverage.h"
#include "core/query/sources/node_snapshot.h"
#include "core/store/rows/rows.h"
#include "core/store/verify.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

const OpId launch = *op_of_name("cudaLaunchKernel");

struct Content {
    std::string node = "alpha";
    std::string session_id = "a";
    std::string boot_id = "boot-a";
    std::string comm = "train";
    uint64_t events = 10;
    uint64_t clock_ns = 1'000;
    bool ended_cleanly = true;
    bool has_incident = false;
};

/// As ingerod stores it: the finding names calls by their sequences, the fourth as the worst.
IncidentRow incident_of(const std::vector<Event>& events, const std::string& comm) {
    const Event& worst = events.at(3);
    const auto text = [](uint64_t number) { return std::to_string(number); };
    IncidentRow row;
    row.id = "incident of " + comm;
    row.kind = "cpu-contention";
    row.at_ns = row.opened_ns = worst.end_ns();
    row.process = worst.process();
    row.finding = R"({"evidence":[)" + text(worst.sequence) + "," + text(events.at(5).sequence) +
                  R"(],"worst":{"call":)" + text(worst.sequence) + R"(,"from_ns":)" + text(worst.start_ns) +
                  R"(,"tid":)" + text(worst.tid) + R"(,"to_ns":)" + text(worst.end_ns()) + "}}";
    return row;
}

/// Every store gives out the same numbers: pid 10 started at 500, stack 1, file 1, events from 1.
void add_session(const std::string& directory, const Content& content) {
    StoreOptions options;
    const ClockTriple clock{content.clock_ns + 900'000, content.clock_ns + 900'000,
                            1'700'000'000'000'000'000 + content.clock_ns + 900'000};
    options.clock = [clock] { return clock; };
    auto writer = open_writer(directory, options);
    const uint64_t first = writer->figures().last_sequence;
    Session session = make_session(content.boot_id);
    session.id = content.session_id;
    session.node = content.node;
    session.clock = {content.clock_ns, content.clock_ns, 1'700'000'000'000'000'000 + content.clock_ns};
    session.first_covered_ns = content.clock_ns;
    ASSERT_TRUE(writer->begin_session(session));
    Batch batch;
    for (uint64_t i = 0; i < content.events; ++i) {
        Event event = make_event(first + i + 1, content.clock_ns + i * 1'000, 500);
        event.op = launch;
        event.tgid = 10;
        event.process_start_ns = 500;
        event.stack = 1;
        batch.events.push_back(event);
    }
    if (content.has_incident) batch.incidents.push_back(incident_of(batch.events, content.comm));
    const ProcessKey process{10, 500};
    Process row;
    row.key = process;
    row.uid = 1000;
    row.comm = content.comm;
    batch.processes.push_back(row);
    batch.functions.push_back({process, 77, 600, "kernel_of_" + content.comm});
    CommunicatorRow communicator;
    communicator.process = process;
    communicator.id = 5;
    communicator.hash = content.events;
    batch.communicators.push_back(communicator);
    batch.files.push_back({1, "/lib/" + content.comm + ".so", "", FileState::ok});
    batch.symbols.push_back({1, 64, "function_of_" + content.comm, "", 0});
    StackRow stack;
    stack.id = 1;
    stack.process = process;
    stack.frames = {{1, 64}};
    batch.stacks.push_back(stack);
    LossRow loss;
    loss.from_ns = content.clock_ns;
    loss.to_ns = content.clock_ns + 1'000;
    loss.op = launch;
    loss.lost_ring = content.events;
    batch.losses.push_back(loss);
    batch.gaps.push_back({process, 1000, content.clock_ns, content.clock_ns + 100, GapReason::late_attach, "lib"});
    batch.covered_until_ns = content.clock_ns + content.events * 1'000;
    ASSERT_TRUE(writer->commit(batch));
    if (content.ended_cleanly) {
        ASSERT_TRUE(writer->end_session());
    }
}

/// For a loop over it: a temporary inside another would be gone.
template <class T>
T all(Result<T> result) {
    EXPECT_TRUE(result);
    return result ? std::move(*result) : T();
}

/// A row of each kind, and rollups of two minutes.
void add_history(const std::string& directory, const Content& content, uint32_t uid) {
    StoreOptions options;
    const uint64_t realtime_ns = 1'700'000'000'000'000'000;
    const uint64_t begin_ns = content.clock_ns;
    ClockTriple clock{begin_ns, begin_ns, realtime_ns + begin_ns};
    options.clock = [&clock] { return clock; };
    auto writer = open_writer(directory, options);
    Session session = make_session(content.boot_id);
    session.id = content.session_id;
    session.node = content.node;
    session.clock = clock;
    session.first_covered_ns = begin_ns + 3 * rollup_minute_ns;
    session.rolled_up_from_ns = begin_ns;
    ASSERT_TRUE(writer->begin_session(session));
    const ProcessKey process{10, 500};
    Batch batch;
    Process row;
    row.key = process;
    row.comm = content.comm;
    batch.processes.push_back(row);
    SpanRow request;
    request.id = "request";
    request.start_ns = begin_ns + 10;
    request.end_ns = begin_ns + 500;
    request.process = process;
    request.uid = uid;
    request.labels = {{"of", content.comm}};
    batch.spans.push_back(request);
    request.id = "registration";  // of a process that has no row
    request.kind = SpanKind::scope;
    request.process = {11, 900};
    batch.spans.push_back(request);
    request.id.clear();
    request.process = {};
    batch.spans.push_back(request);
    IncidentRow incident;
    incident.id = "incident of " + content.comm;
    incident.at_ns = incident.opened_ns = begin_ns + 600;
    incident.process = process;
    incident.uid = uid;
    incident.finding = "{}";
    batch.incidents.push_back(incident);
    batch.states.push_back({begin_ns + 700, "host", {{"load", 1.5 + uid}}});
    for (uint64_t minute = 0; minute < 2; ++minute) {
        RollupRow rollup;
        rollup.minute_ns = (begin_ns / rollup_minute_ns + minute) * rollup_minute_ns;
        rollup.op = launch;
        rollup.process = process;
        rollup.uid = uid;
        rollup.calls = rollup.total_ns = rollup.max_ns = 1 + minute;
        rollup.durations.add(1 + minute, 1 + minute);
        batch.rollups.push_back(rollup);
        rollup.process = {};
        batch.rollups.push_back(rollup);
    }
    batch.covered_until_ns = begin_ns + 4 * rollup_minute_ns;
    for (int commits = 0; commits < 4; ++commits) {
        ASSERT_TRUE(writer->commit(batch));
        batch = {};
        clock = {clock.monotonic_ns + rollup_minute_ns, clock.boottime_ns + rollup_minute_ns,
                 clock.realtime_ns + rollup_minute_ns + 5};
    }
    ASSERT_TRUE(writer->end_session());
}

/// Rows of history as they are stored, but for the start of their process; with the node they are of.
std::multiset<std::string> history_in(const std::string& directory) {
    const auto snapshot = open_snapshot(directory);
    std::multiset<std::string> rows;
    std::map<uint32_t, std::string> node_of;
    for (const Session& session : snapshot->sessions()) node_of[session.boot_index] = session.node;
    std::map<ProcessKey, std::string> comms;
    for (const Process& process : all(snapshot->processes())) comms[process.key] = process.comm;
    for (const auto& [boot, node] : node_of) {
        const auto add = [&, &node = node](auto row) {
            std::string name;
            if constexpr (requires { row.process; }) {
                name = comms[row.process];
                row.process.start_ns = 0;
            }
            if constexpr (requires { row.session; }) row.session = 0;
            rows.insert(node + "/" + name + "/" + encode_row(row));
        };
        for (const SpanRow& row : all(snapshot->spans(boot, everything))) add(row);
        for (const IncidentRow& row : all(snapshot->incidents(boot, everything))) add(row);
        for (const StateRow& row : all(snapshot->states(boot, everything))) add(row);
        for (const RollupRow& row : all(snapshot->rollups(boot, everything))) add(row);
        for (const ClockRow& row : all(snapshot->clocks(boot, everything))) add(row);
    }
    return rows;
}

/// What a node has in a store, by the names that its rows lead to.
struct Seen {
    uint64_t events = 0;
    std::set<std::string> comms, kernels, frames;
    uint64_t lost = 0;
    size_t gaps = 0;
    auto operator<=>(const Seen&) const = default;
};

std::map<std::string, Seen> seen_in(const std::string& directory) {
    const auto snapshot = open_snapshot(directory);
    std::map<std::string, Seen> nodes;
    std::map<uint32_t, std::string> node_of;
    for (const Session& session : snapshot->sessions()) node_of[session.boot_index] = session.node;
    std::map<ProcessKey, std::string> comms;
    for (const Process& process : all(snapshot->processes())) comms[process.key] = process.comm;
    const auto files = *snapshot->files();
    std::set<uint64_t> sequences;
    for (const auto& [boot, node] : node_of) {
        Seen& seen = nodes[node];
        for (const Event& event : all(scan_all(*snapshot, boot))) {
            ++seen.events;
            EXPECT_TRUE(sequences.insert(event.sequence).second) << "a number given out twice";
            seen.comms.insert(comms[event.process()]);
            if (const auto function = *snapshot->function(event.process(), 77)) seen.kernels.insert(function->name);
            const auto stacks = *snapshot->stacks({event.stack});
            EXPECT_THAT(stacks, SizeIs(1));
            for (const auto& [id, stack] : stacks) {
                EXPECT_EQ(comms[stack.process], comms[event.process()]);
                for (const StackFrame& frame : stack.frames) {
                    const auto symbols = *snapshot->symbols({frame});
                    for (const auto& [place, symbol] : symbols)
                        seen.frames.insert(files.at(frame.file).path + " " + symbol.name);
                }
            }
        }
        for (const LossRow& row : all(snapshot->losses(boot, everything))) seen.lost += row.lost();
        for (const GapRow& row : all(snapshot->gaps(boot, everything))) {
            ++seen.gaps;
            seen.comms.insert(comms[row.process]);
        }
    }
    return nodes;
}

class Merge : public testing::Test {
  protected:
    Result<MergeSummary> merge(std::vector<const TemporaryDirectory*> from) {
        std::vector<MergeSource> sources;
        for (const TemporaryDirectory* one : from) sources.push_back({one->path(), "unnamed", one->path()});
        return merge_stores(sources, out_.path());
    }

    TemporaryDirectory a_, b_, out_;
};

TEST_F(Merge, EachNodeKeepsWhatItHad) {
    add_session(a_.path(), {.events = 10});
    add_session(b_.path(), {.node = "beta", .session_id = "b", .boot_id = "boot-b", .comm = "serve", .events = 7});
    std::map<std::string, Seen> wanted = seen_in(a_.path());
    wanted.merge(seen_in(b_.path()));
    const auto merged = merge({&a_, &b_});
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(seen_in(out_.path()), wanted);
    EXPECT_EQ(wanted["alpha"].comms, std::set<std::string>{"train"});
    EXPECT_EQ(wanted["beta"].frames, std::set<std::string>{"/lib/serve.so function_of_serve"});
    EXPECT_EQ(merged->events, 17u);
    EXPECT_EQ(merged->sessions, 2u);
    EXPECT_EQ(merged->nodes.at("beta").events, 7u);
    EXPECT_EQ(merged->stacks, 2u);
    std::map<uint64_t, ProcessKey> communicators;
    const auto snapshot = open_snapshot(out_.path());
    for (const CommunicatorRow& row : all(snapshot->communicators())) communicators[row.hash] = row.process;
    ASSERT_EQ(communicators.size(), 2u);
    EXPECT_NE(communicators[10], communicators[7]) << "the same process of two nodes is two";
    for (const Process& process : all(snapshot->processes()))
        EXPECT_EQ(communicators[process.comm == "serve" ? 7 : 10], process.key);
}

TEST_F(Merge, HistoryIsAsItWas) {
    const uint64_t begin_ns = 5 * rollup_minute_ns;
    add_history(a_.path(), {.clock_ns = begin_ns}, 1'000);
    add_history(b_.path(),
                {.node = "beta", .session_id = "b", .boot_id = "boot-b", .comm = "serve", .clock_ns = begin_ns}, 2'000);
    std::multiset<std::string> wanted = history_in(a_.path());
    const size_t of_one = wanted.size();
    EXPECT_EQ(of_one, 3u + 1 + 1 + 4 + 5);
    wanted.merge(history_in(b_.path()));
    const auto merged = merge({&a_, &b_});
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(history_in(out_.path()), wanted);
    EXPECT_EQ(merged->spans, 6u);
    EXPECT_EQ(merged->incidents, 2u);
    EXPECT_EQ(merged->states, 2u);
    EXPECT_EQ(merged->rollups, 8u);
    const auto verified = verify_store(out_.path());
    ASSERT_TRUE(verified);
    EXPECT_TRUE(verified->is_clean()) << verified->damages.front().what;

    EXPECT_THAT(all(open_snapshot(out_.path())->spans_of("registration", {})), SizeIs(2));
    const auto beta = of_node(open_snapshot(out_.path()), "beta");
    const auto registrations = all(beta->spans_of("registration", {}));
    ASSERT_THAT(registrations, SizeIs(1)) << "of a process that has no row";
    EXPECT_EQ(registrations.front().uid, 2'000u);
    EXPECT_THAT(all(beta->spans_of("registration", {0})), SizeIs(0)) << "a boot of the other node";

    TemporaryDirectory again;
    ASSERT_TRUE(merge_stores({{out_.path(), "", "out"}, {a_.path(), "", "a"}}, again.path()));
    EXPECT_EQ(history_in(again.path()), wanted);
}

TEST_F(Merge, HistoryOfSessionsOfABootIsTakenOnce) {
    add_history(a_.path(), {.clock_ns = 5 * rollup_minute_ns}, 1'000);
    add_history(b_.path(), {.clock_ns = 5 * rollup_minute_ns}, 1'000);
    // The minute in which it begins has calls of the session before it too, which are of the other store.
    add_history(b_.path(), {.session_id = "a2", .clock_ns = 20 * rollup_minute_ns + 1}, 1'000);
    const auto merged = merge({&a_, &b_});
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(merged->rollups, 4u + 2) << "one minute of two, of two processes";
    EXPECT_EQ(merged->spans, 6u);
    const std::vector<Session> sessions = open_snapshot(out_.path())->sessions();
    ASSERT_THAT(sessions, SizeIs(2));
    EXPECT_EQ(sessions[1].rolled_up_from_ns, 21 * rollup_minute_ns) << "what is not there is not claimed";
}

TEST_F(Merge, TheSameBootIdOfTwoNodesIsTwoBoots) {
    add_session(a_.path(), {});
    add_session(b_.path(), {.node = "beta", .session_id = "b"});
    ASSERT_TRUE(merge({&a_, &b_}));
    const std::vector<Session> sessions = open_snapshot(out_.path())->sessions();
    ASSERT_THAT(sessions, SizeIs(2));
    EXPECT_NE(sessions[0].boot_index, sessions[1].boot_index);
    EXPECT_NE(sessions[0].boot_id, sessions[1].boot_id);
}

TEST_F(Merge, ASessionIsTakenOnceAndThenTheLongerOne) {
    add_session(a_.path(), {.events = 4, .ended_cleanly = false});
    add_session(b_.path(), {.events = 9});  // the same session, as it ended
    for (const auto& order : {std::vector<const TemporaryDirectory*>{&a_, &b_}, {&b_, &a_}}) {
        const TemporaryDirectory out;
        std::vector<MergeSource> sources;
        for (const auto* one : order) sources.push_back({one->path(), "", one->path()});
        const auto merged = merge_stores(sources, out.path());
        ASSERT_TRUE(merged) << merged.error().message;
        EXPECT_EQ(merged->events, 9u);
        EXPECT_EQ(merged->repeated_sessions, 1u);
        EXPECT_EQ(seen_in(out.path()), seen_in(b_.path()));
    }
}

TEST_F(Merge, SessionsOfABootAreTakenFromTheirOwnStores) {
    add_session(a_.path(), {.events = 5});
    add_session(a_.path(), {.session_id = "a2", .events = 6, .clock_ns = 2'000'000});
    // A copy of the store as it was after the first.
    add_session(b_.path(), {.events = 5});
    const auto merged = merge({&b_, &a_});
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(merged->events, 11u);
    const auto snapshot = open_snapshot(out_.path());
    ASSERT_THAT(snapshot->sessions(), SizeIs(2));
    EXPECT_EQ(snapshot->sessions()[0].boot_index, snapshot->sessions()[1].boot_index);
    EXPECT_EQ(snapshot->sessions()[1].id, "a2");
    EXPECT_EQ(snapshot->sessions()[0].last_covered_ns, 1'000u + 5'000);
}

TEST_F(Merge, ASessionThatDidNotEndCleanlyStaysOne) {
    add_session(a_.path(), {.ended_cleanly = false});
    add_session(b_.path(), {.node = "", .session_id = "b", .boot_id = "boot-b"});
    ASSERT_TRUE(merge({&a_, &b_}));
    std::map<std::string, bool> clean;
    const auto merged = open_snapshot(out_.path());
    for (const Session& session : merged->sessions()) clean[session.node] = session.ended_cleanly;
    EXPECT_EQ(clean, (std::map<std::string, bool>{{"alpha", false}, {"unnamed", true}}));
}

TEST_F(Merge, AnIncidentNamesItsOwnCallsByTheirNewNumbers) {
    add_session(a_.path(), {.has_incident = true});
    add_session(b_.path(),
                {.node = "beta", .session_id = "b", .boot_id = "boot-b", .comm = "serve", .has_incident = true});
    ASSERT_TRUE(merge({&a_, &b_}));
    for (const auto& [node, comm] : {std::pair("alpha", "train"), std::pair("beta", "serve")}) {
        const auto snapshot = of_node(open_snapshot(out_.path()), node);
        const auto incident = find_incident(*snapshot, {}, std::string("incident of ") + comm);
        ASSERT_TRUE(incident) << incident.error().message;
        const auto detail = read_incident_detail(*snapshot, {}, *incident);
        ASSERT_TRUE(detail) << detail.error().message;
        ASSERT_THAT(detail->evidence, SizeIs(2)) << node;
        EXPECT_EQ(detail->evidence[0].sequence, detail->worst);
        EXPECT_EQ(detail->evidence[0].start_ns, 1'000u + 3 * 1'000);
        EXPECT_EQ(detail->evidence[1].start_ns, 1'000u + 5 * 1'000);
    }
}

std::string moved(const std::string& finding, uint64_t by, std::string_view kind = "cpu-contention") {
    IncidentRow row;
    row.kind = kind;
    row.finding = finding;
    move_calls(by, row);
    return row.finding;
}

TEST(AFinding, NamesItsCallsByTheirNewNumbersAndIsElseAsItWas) {
    EXPECT_EQ(moved(R"({"detail":{"evidence":[{"id":4}],"rows":[{"id":4,"tid":4},{"id":0}]},"evidence":[4,6],)"
                    R"("lost_ns":4,"timeline":{"id":4},"worst":{"call":4,"tid":4}})",
                    10),
              R"({"detail":{"evidence":[{"id":14}],"rows":[{"id":14,"tid":4},{"id":0}]},"evidence":[14,16],)"
              R"("lost_ns":4,"timeline":{"id":14},"worst":{"call":14,"tid":4}})");
    const std::string deep = R"({"evidence":[4],"deep":)" + std::string(1'000, '[') + std::string(1'000, ']') + "}";
    for (const std::string& other : {std::string(R"({ "worst": {"call": 0} })"), std::string(R"({ "evidence": 4 })"),
                                     std::string("[4]"), std::string(R"({"evidence":[4)"), std::string(), deep})
        EXPECT_EQ(moved(other, 10), other);
    const std::string own = R"({"evidence": [4]})";
    EXPECT_EQ(moved(own, 0), own);
    EXPECT_EQ(moved(own, 10, imported_finding), own) << "another tool's";
}

TEST(AFinding, LosesDetailsBeforeItIsTooLong) {
    const std::string head = R"({"detail":{"chains":[")", tail = R"("]},"evidence":[9]})";
    const std::string longest = head + std::string(max_finding_bytes - head.size() - tail.size(), 'x') + tail;
    EXPECT_EQ(moved(longest, 1), R"({"detail":{"chains":[]},"evidence":[10]})");
}

TEST_F(Merge, ADamagedSourceIsNamed) {
    add_session(a_.path(), {});
    write_file(b_.data_file(), "no store");
    const auto merged = merge({&a_, &b_});
    ASSERT_FALSE(merged);
    EXPECT_THAT(merged.error().message, testing::HasSubstr(b_.path()));
}

}  // namespace
}  // namespace ingero
