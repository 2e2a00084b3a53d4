// Exports against the store they are of. Pages are of a few events here, so that there are many.
#include "core/export/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/export/slices.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/render/render.h"
#include "core/wire/child_process.h"
#include "test_paths.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::SizeIs;

constexpr uint32_t boot_ns = 1'000;  // of make_session's clock
constexpr uint64_t realtime_ns = 1'700'000'000'000'000'000;
const OpId launch = *op_of_name("cudaLaunchKernel");
const OpId copy = *op_of_name("cudaMemcpyAsync");

struct Made {
    std::vector<Event> events;
    uint64_t sequence = 0;

    Event& add(OpId op, uint32_t tid, uint8_t depth, uint64_t start_ns, uint64_t duration_ns) {
        Event event;
        event.sequence = ++sequence;
        event.op = op;
        event.tgid = 10;
        event.tid = tid;
        event.process_start_ns = 500;
        event.depth = depth;
        event.start_ns = start_ns;
        event.duration_ns = duration_ns;
        return events.emplace_back(event);
    }

    /// Calls that nest to three levels, those inside stored before those around them, as they return.
    void add_nested(uint32_t tid, uint64_t at) {
        add(launch, tid, 1, at, 400);  // begins with its parent
        add(launch, tid, 2, at + 500, 0);
        add(copy, tid, 1, at + 400, 600).args = {4096, 1, 0};  // right after, and ends with its parent
        Event& parent = add(launch, tid, 0, at, 1'000);
        parent.runnable_ns = 100;
        parent.blocked_ns = 250;
        parent.blocked_reason = BlockedReason::futex;
        add(launch, tid, 0, at + 1'000, 0);
        add(copy, tid, 0, at + 1'000, 50).return_code = 2;
    }
};

class Export : public testing::Test {
  protected:
    void write(const std::string& node, const std::vector<Event>& events, const std::string& comm = "train") {
        StoreOptions options;
        options.clock = [] { return make_session("").clock; };
        auto writer = open_writer(directory_.path(), options);
        Session session = make_session("boot of " + node);
        session.node = node;
        session.first_covered_ns = boot_ns;
        ASSERT_TRUE(writer->begin_session(session));
        Batch batch;
        batch.events = events;
        batch.processes.push_back({.key = {10, 500},
                                   .uid = 1000,
                                   .parent_pid = 1,
                                   .comm = comm,
                                   .cgroup = {},
                                   .unit = {},
                                   .first_seen_ns = 500,
                                   .exited_ns = 0,
                                   .exit_code = 0});
        batch.covered_until_ns = 100'000'000;
        batch.spans = spans_;
        batch.incidents = incidents_;
        // In several blocks that overlap in time, as a daemon commits them.
        const size_t half = batch.events.size() / 2;
        Batch second;
        second.events.assign(batch.events.begin() + static_cast<std::ptrdiff_t>(half), batch.events.end());
        second.covered_until_ns = batch.covered_until_ns;
        batch.events.resize(half);
        ASSERT_TRUE(writer->commit(batch));
        ASSERT_TRUE(writer->commit(second));
        ASSERT_TRUE(writer->end_session());
    }

    /// While that node's boot is recorded, by so much off what it was.
    void set_clock(const std::string& node, int64_t by_ns) {
        StoreOptions options;
        options.clock = [by_ns] {
            ClockTriple clock = make_session("").clock;
            clock.realtime_ns += static_cast<uint64_t>(by_ns);
            return clock;
        };
        const auto writer = open_writer(directory_.path(), options);
        Session session = make_session("boot of " + node);
        session.node = node;
        ASSERT_TRUE(writer->begin_session(session));
        ASSERT_TRUE(writer->end_session());
    }

    std::string all_pages(ExportFormat format, size_t page_bytes = 600, Filter filter = {}) {
        const auto snapshot = open_snapshot(directory_.path());
        filter.window = whole_trace(*snapshot);
        ExportQuery query;
        query.filter = filter;
        query.format = format;
        query.page_bytes = page_bytes;
        std::string bytes;
        for (pages_ = events_ = 0;;) {
            const auto page = export_page(*snapshot, query);
            EXPECT_TRUE(page) << page.error().message;
            if (!page) return bytes;
            bytes += page->bytes;
            events_ += page->events;
            ++pages_;
            if (!page->next) return bytes;
            query.cursor = page->next;
        }
    }

    json query(const std::string& sql) {
        prepare_sqlite();
        const auto snapshot = open_snapshot(directory_.path());
        SqlQuery wanted;
        wanted.sql = sql;
        wanted.limit = most_sql_rows;
        auto answer = (*SqlEngine::open())->run(*snapshot, wanted);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? to_json(std::move(*answer), {}) : json();
    }

    /// Of a Perfetto trace, by the protobuf library. Null where there is none.
    json read_perfetto(const std::string& bytes) {
        const std::string file = directory_.path() + "/trace.pftrace";
        write_file(file, bytes);
        const auto ran =
            run_program({"/usr/bin/python3", PERFETTO_READER, file}, {}, std::chrono::seconds(60), 64 << 20);
        EXPECT_TRUE(ran);
        if (!ran || (WIFEXITED(ran->status) && WEXITSTATUS(ran->status) == 77)) return {};
        EXPECT_EQ(ran->status, 0) << ran->text;
        const json trace = json::parse(ran->text, nullptr, false);
        flows_ = trace.value("flows", json::array());
        return trace.value("slices", json());
    }

    SpanRow& add_span(SpanKind kind, const std::string& id, uint64_t start_ns, uint64_t end_ns) {
        SpanRow& span = spans_.emplace_back();
        span.kind = kind;
        span.id = id;
        span.start_ns = start_ns;
        span.end_ns = end_ns;
        span.process = {10, 500};
        span.uid = 1000;
        return span;
    }
    void add_incident() {
        IncidentRow row;
        row.id = "0123456789abcdef";
        row.at_ns = row.opened_ns = 20'000;
        row.kind = "lock-wait";
        row.severity = "high";
        row.verdict = "proven";
        row.summary = "it waited \xff for a \"lock\"";
        row.process = {10, 500};
        row.uid = 1000;
        row.lost_ns = 700;
        incidents_.push_back(row);
        row.event = IncidentEvent::closed;
        row.at_ns = 30'000;
        incidents_.push_back(row);
    }
    /// By category and name: start, since `realtime_ns`, duration and arguments.
    using Shown = std::map<std::pair<std::string, std::string>, std::tuple<uint64_t, uint64_t, json>>;

    TemporaryDirectory directory_;
    std::vector<SpanRow> spans_;
    std::vector<IncidentRow> incidents_;
    size_t pages_ = 0;
    json flows_;  ///< of the latest Perfetto trace: the numbers of two slices each
    uint64_t events_ = 0;
};

Made many_calls() {
    Made made;
    for (uint64_t i = 0; i < 200; ++i)
        for (const uint32_t tid : {10u, 11u}) made.add_nested(tid, 10'000 + i * 2'000);
    return made;
}

TEST_F(Export, CsvIsWhatSqlGives) {
    Made made = many_calls();
    made.events[3].preemptor_comm = to_comm("a,\"b\"\n\xff");
    made.events[4].preemptor_comm = to_comm("c");
    write("node-1", made.events, "tr\"ain");
    const std::string csv = all_pages(ExportFormat::csv);
    EXPECT_GT(pages_, 100u);
    EXPECT_EQ(events_, made.events.size());
    EXPECT_EQ(csv, csv_query(query("SELECT * FROM events ORDER BY timestamp, id")));
    EXPECT_THAT(csv, HasSubstr("\"a,\"\"b\"\"\n\xef\xbf\xbd\""));
}

TEST_F(Export, EachEventIsWrittenOnceThoughTheClockChangesBetweenPages) {
    const Made alpha = many_calls();
    Made beta = many_calls();
    for (Event& event : beta.events) event.sequence += alpha.sequence;
    write("alpha", alpha.events);
    write("beta", beta.events);
    const auto exported = [&](ExportFormat format, int64_t by_ns) {
        set_clock("beta", 0);
        ExportQuery query;
        // Both ends are starts of calls.
        query.filter.window = {realtime_ns - boot_ns + 50'000, realtime_ns - boot_ns + 370'000};
        query.format = format;
        query.page_bytes = 50'000;
        std::string bytes;
        for (pages_ = events_ = 0; pages_ == 0 || query.cursor; ++pages_) {
            if (pages_ == 1) set_clock("beta", by_ns);
            const auto snapshot = open_snapshot(directory_.path());
            EXPECT_EQ(snapshot->sessions().back().latest_clock.realtime_ns,
                      realtime_ns + static_cast<uint64_t>(pages_ == 0 ? 0 : by_ns));
            const auto page = export_page(*snapshot, query);
            EXPECT_TRUE(page) << page.error().message;
            if (!page) break;
            bytes += page->bytes;
            events_ += page->events;
            query.cursor = page->next;
        }
        return bytes;
    };
    for (const ExportFormat format : {ExportFormat::csv, ExportFormat::perfetto}) {
        const std::string expected = exported(format, 0);
        EXPECT_GT(pages_, 3u);
        EXPECT_EQ(events_, 160u * 2 * 6 * 2);
        for (const int64_t by_ns : {-1, 1, 30'000'000, -30'000'000})
            EXPECT_TRUE(exported(format, by_ns) == expected) << by_ns << " ns, " << events_ << " events";
    }
}

TEST_F(Export, JsonLinesHaveEachColumnThatIsNotNull) {
    const Made made = many_calls();
    write("node-1", made.events);
    const std::string text = all_pages(ExportFormat::jsonl);
    const json rows = query("SELECT * FROM events ORDER BY timestamp, id");
    size_t at = 0;
    for (const json& row : rows["rows"]) {
        const size_t end = text.find('\n', at);
        ASSERT_NE(end, std::string::npos);
        json expected = json::object();
        for (size_t column = 0; column < row.size(); ++column)
            if (!row[column].is_null()) expected[rows["columns"][column]["name"]] = row[column];
        EXPECT_EQ(json::parse(text.substr(at, end - at), nullptr, false), expected);
        at = end + 1;
    }
    EXPECT_EQ(at, text.size());
}

/// Each event is a slice with its times, as deep as it was called.
void expect_slices(const std::vector<Event>& events, const std::map<uint64_t, json>& slices) {
    ASSERT_EQ(slices.size(), events.size());
    for (const Event& event : events) {
        const auto found = slices.find(event.sequence);
        ASSERT_NE(found, slices.end()) << event.sequence;
        const json& slice = found->second;
        EXPECT_EQ(slice["ts"], event.start_ns - boot_ns + realtime_ns);
        EXPECT_EQ(slice["dur"], event.duration_ns);
        EXPECT_EQ(slice["depth"], event.depth) << slice;
        EXPECT_EQ(slice["name"], op_name(event.op));
        EXPECT_EQ(slice["track"]["tid"], event.tid);
        EXPECT_EQ(slice["track"]["pid"], 10);
    }
}

TEST_F(Export, PerfettoHasEachCallOnItsThreadAndNested) {
    const Made made = many_calls();
    write("node-1", made.events);
    const json slices = read_perfetto(all_pages(ExportFormat::perfetto, 20'000));
    EXPECT_GT(pages_, 3u);
    if (slices.is_null()) GTEST_SKIP() << "SKIPPED: no python3-protobuf";
    std::map<uint64_t, json> calls;
    std::map<std::string, uint64_t> off_cpu;
    for (const json& slice : slices) {
        if (slice["category"] == "CUDA") {
            EXPECT_TRUE(calls.emplace(slice["args"]["id"], slice).second);
        }
        if (slice["category"] == "off-cpu") off_cpu[slice["name"]] += slice["dur"].get<uint64_t>();
    }
    expect_slices(made.events, calls);
    const uint64_t parents = made.events.size() / 6;
    EXPECT_EQ(off_cpu, (std::map<std::string, uint64_t>{{"asleep: futex", parents * 250},
                                                        {"waiting for a CPU", parents * 100}}));
    EXPECT_EQ(calls[3]["args"]["bytes"], 4096);
    EXPECT_EQ(calls[3]["args"]["direction"], "H2D");
    EXPECT_EQ(calls[6]["args"]["error"], "cudaErrorMemoryAllocation");
    EXPECT_EQ(calls[3]["track"]["process"], "train");
}

TEST_F(Export, PerfettoHasWhoWokeAThread) {
    Made made;
    const auto add_wait = [&](uint64_t start_ns, uint32_t waker_pid, uint32_t waker_tid) {
        Event& wait = made.add(op_wait, 10, 0, start_ns, 1'000);
        wait.blocked_ns = 700;
        wait.runnable_ns = 300;
        wait.waker_kind = waker_pid == 0 ? WakerKind::interrupt : WakerKind::task;
        wait.waker_tgid = waker_pid;
        wait.waker_comm = to_comm(waker_pid == 0 ? "" : "worker");
        wait.args[0] = waker_tid;
    };
    made.add(launch, 10, 0, 10'000, 100);
    add_wait(20'000, 10, 12);  // a thread of its own, which the trace has no other calls of
    add_wait(30'000, 77, 78);  // one of a process that is not in the store
    add_wait(40'000, 0, 0);
    add_wait(45'000, 10, 12);
    made.events.back().flags |= INGERO_CALL_SPLIT_UNCERTAIN;  // when is not known
    made.add(launch, 10, 0, 50'000, 100);
    write("node-1", made.events);
    const json slices = read_perfetto(all_pages(ExportFormat::perfetto));
    if (slices.is_null()) GTEST_SKIP() << "SKIPPED: no python3-protobuf";
    EXPECT_GT(pages_, 1u);
    const auto place_of = [](const json& slice) {
        return std::tuple(slice["name"].get<std::string>(), slice["track"]["pid"].get<int>(),
                          slice["track"]["tid"].get<int>(), slice["ts"].get<uint64_t>() - (realtime_ns - boot_ns));
    };
    ASSERT_THAT(flows_, SizeIs(2));
    for (const auto& [number, pid, tid, at_ns] : {std::tuple(0, 10, 12, 20'700u), {1, 77, 78, 30'700u}}) {
        const json& from = slices[flows_[number][0].get<size_t>()];
        const json& to = slices[flows_[number][1].get<size_t>()];
        EXPECT_EQ(place_of(from), std::tuple("worker wakes 10", pid, tid, at_ns));
        EXPECT_EQ(from["track"]["name"], "kernel: HOST");
        EXPECT_EQ(place_of(to), std::tuple("woken", 10, 10, at_ns));
        EXPECT_EQ(to["track"]["name"], "kernel: HOST");
        EXPECT_EQ(to["depth"], 1) << "it is not within the wait";
        EXPECT_EQ(from["args"]["id"], to["args"]["id"]);
        EXPECT_EQ(from["track"]["process"], pid == 10 ? json("train") : json());
    }
}

TEST_F(Export, PerfettoLeadsFromARequestToTheCallThatHeldItUp) {
    add_span(SpanKind::request, "request-1", 90'000, 190'000);
    add_span(SpanKind::request, "request-2", 120'000, 200'000);  // which began in the same call
    add_span(SpanKind::request, "request-2", 120'000, 200'000);
    add_span(SpanKind::request, "request-1", 90'000, 95'000);  // another completion of it
    add_span(SpanKind::request, "request-3", 300'000, 400'000);
    add_span(SpanKind::request, "request-4", 500'000, 510'000);  // without a call
    Made made;
    Event& call = made.add(launch, 10, 0, 100'000, 50'000);
    call.blocked_ns = 40'000;
    call.blocked_reason = BlockedReason::futex;
    made.add(launch, 10, 0, 310'000, 50'000).blocked_ns = 900;  // too little to speak of
    write("node-1", made.events);
    const json slices = read_perfetto(all_pages(ExportFormat::perfetto));
    if (slices.is_null()) GTEST_SKIP() << "SKIPPED: no python3-protobuf";
    ASSERT_THAT(flows_, SizeIs(2));
    for (const auto& [number, name, at_ns] : {std::tuple(0, "request-1", 100'001u), {1, "request-2", 120'001u}}) {
        const json& from = slices[flows_[number][0].get<size_t>()];
        const json& to = slices[flows_[number][1].get<size_t>()];
        EXPECT_EQ(from["category"], "request");
        EXPECT_EQ(from["name"], name);
        EXPECT_EQ(to["name"], std::string("holds up ") + name);
        EXPECT_EQ(to["ts"].get<uint64_t>() - (realtime_ns - boot_ns), at_ns);
        EXPECT_EQ(to["track"]["tid"], 10);
        EXPECT_EQ(to["depth"], 1) << "it is not within the call";
        EXPECT_EQ(to["args"]["id"], made.events[0].sequence);
        EXPECT_EQ(to["args"]["why"], "lock-wait");
    }
    EXPECT_THAT(all_pages(ExportFormat::chrome), testing::Not(HasSubstr("holds up")));
}

TEST_F(Export, ChromeHasTheSameSlices) {
    const Made made = many_calls();
    write("node-1", made.events);
    const json trace = json::parse(all_pages(ExportFormat::chrome), nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    EXPECT_EQ(trace["otherData"]["start_realtime_ns"], std::to_string(realtime_ns + 10'000 - boot_ns));
    std::set<uint64_t> ids;
    for (const json& event : trace["traceEvents"]) {
        if (event.value("cat", "") != "CUDA") continue;
        const uint64_t id = event["args"]["id"];
        EXPECT_TRUE(ids.insert(id).second);
        const Event& made_of = made.events[id - 1];
        EXPECT_EQ(event["ph"], "X");
        EXPECT_EQ(event["name"], op_name(made_of.op));
        EXPECT_EQ(event["tid"], made_of.tid);
        EXPECT_DOUBLE_EQ(event["ts"], static_cast<double>(made_of.start_ns - 10'000) / 1e3);
        EXPECT_DOUBLE_EQ(event["dur"], static_cast<double>(made_of.duration_ns) / 1e3);
    }
    EXPECT_THAT(ids, SizeIs(made.events.size()));
}

TEST_F(Export, TellsForHowManyCallsOneStandsAndWhereItsTimesCountOtherwise) {
    Made made;
    made.add(launch, 10, 0, 10'000, 1'000);
    made.add(launch, 10, 0, 20'000, 1'000).weight = 7;
    Event& sliced = made.add(launch, 10, 0, 30'000, 1'000);
    sliced.weight = 200;
    sliced.time_weight = 100;
    write("node-1", made.events);
    const json trace = json::parse(all_pages(ExportFormat::chrome), nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    std::map<uint64_t, json> said;
    for (const json& event : trace["traceEvents"])
        if (event.value("cat", "") == "CUDA")
            said[event["args"]["id"]] = {event["args"].value("weight", 0), event["args"].value("time_weight", 0)};
    EXPECT_EQ(said, (std::map<uint64_t, json>{{1, {0, 0}}, {2, {7, 0}}, {3, {200, 100}}}));
}

TEST_F(Export, CallsThatOverlapInPartStandBesideEachOther) {
    Made made;
    made.add(launch, 10, 0, 10'000, 1'000);
    made.add(launch, 10, 0, 10'500, 1'000);
    made.add(launch, 10, 0, 10'700, 200);
    write("node-1", made.events);
    const json slices = read_perfetto(all_pages(ExportFormat::perfetto));
    if (slices.is_null()) GTEST_SKIP() << "SKIPPED: no python3-protobuf";
    std::map<uint64_t, json> calls;
    for (const json& slice : slices)
        if (slice["category"] == "CUDA") calls[slice["args"]["id"]] = slice;
    ASSERT_THAT(calls, SizeIs(3));
    for (const auto& [id, slice] : calls) EXPECT_EQ(slice["dur"], made.events[id - 1].duration_ns);
    EXPECT_EQ(calls[1]["track"]["name"], nullptr);
    EXPECT_EQ(calls[2]["track"]["name"], "calls, overlapping 1");
    EXPECT_EQ(calls[2]["track"]["tid"], 10);
}

TEST_F(Export, NodesAreKeptApart) {
    Made made;
    made.add(launch, 10, 0, 10'000, 1'000);
    write("alpha", made.events);
    made.events[0].sequence = 2;
    write("beta", made.events, "train");
    const json slices = read_perfetto(all_pages(ExportFormat::perfetto));
    if (slices.is_null()) GTEST_SKIP() << "SKIPPED: no python3-protobuf";
    std::map<int64_t, std::string> processes;
    for (const json& slice : slices)
        if (slice["category"] == "CUDA") processes[slice["track"]["pid"]] = slice["track"]["process"];
    EXPECT_EQ(processes, (std::map<int64_t, std::string>{{10, "train on alpha, pid 10"},
                                                         {(1 << 22) + 10, "train on beta, pid 10"}}));
}

TEST_F(Export, RequestsStepsAndIncidentsAreOnTracksOfTheirProcess) {
    // Before the first call, too.
    SpanRow& request = add_span(SpanKind::request, "request-1", 9'000, 19'000);
    request.scheduled_ns = 12'000;
    request.first_token_ns = 15'000;
    request.output_tokens = 7;
    request.labels = {{"engine", "0"}};
    add_span(SpanKind::request, "request-2", 13'000, 23'000);  // overlaps the first
    add_span(SpanKind::request, "request-3", 12'500, 12'900);  // lies within it
    add_span(SpanKind::step, "", 11'000, 12'000);
    add_span(SpanKind::label, "no slice", 11'000, 11'000);
    add_incident();
    write("node-1", many_calls().events);
    const uint64_t at_zero = realtime_ns - boot_ns;
    const json lost = {{"id", "0123456789abcdef"},
                       {"severity", "high"},
                       {"verdict", "proven"},
                       {"summary", "it waited \uFFFD for a \"lock\""},
                       {"lost_ns", 700}};
    const Shown expected = {{{"request", "request-1"}, {9'000, 10'000, {{"output_tokens", 7}, {"label engine", "0"}}}},
                            {{"request", "waiting to be taken up"}, {9'000, 3'000, json::object()}},
                            {{"request", "until the first token"}, {12'000, 3'000, json::object()}},
                            {{"request", "until the end"}, {15'000, 4'000, json::object()}},
                            {{"request", "request-2"}, {13'000, 10'000, json::object()}},
                            {{"request", "request-3"}, {12'500, 400, json::object()}},
                            {{"step", "step"}, {11'000, 1'000, json::object()}},
                            {{"incident", "lock-wait"}, {20'000, 10'000, lost}}};
    const std::set<std::string> kinds = {"request", "step", "phase", "label", "incident"};

    const json trace = json::parse(all_pages(ExportFormat::chrome), nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    const uint64_t base_ns = std::stoull(trace["otherData"]["start_realtime_ns"].get<std::string>());
    Shown shown;
    for (const json& event : trace["traceEvents"]) {
        if (!kinds.contains(event.value("cat", ""))) continue;
        EXPECT_EQ(event["pid"], 10);
        const auto ns = [&](const char* name) {
            return static_cast<uint64_t>(std::llround(event[name].get<double>() * 1e3));
        };
        const std::pair<std::string, std::string> what(event["cat"], event["name"]);
        EXPECT_TRUE(shown.emplace(what, std::tuple(ns("ts") + base_ns - at_zero, ns("dur"), event["args"])).second);
    }
    EXPECT_EQ(shown, expected);

    const json slices = read_perfetto(all_pages(ExportFormat::perfetto));
    if (slices.is_null()) GTEST_SKIP() << "SKIPPED: no python3-protobuf";
    shown.clear();
    std::map<std::string, std::set<std::string>> tracks;
    for (const json& slice : slices) {
        const std::string kind = slice["category"];
        if (!kinds.contains(kind)) continue;
        const std::tuple said(slice["ts"].get<uint64_t>() - at_zero, slice["dur"].get<uint64_t>(), slice["args"]);
        EXPECT_TRUE(shown.emplace(std::pair(kind, slice["name"].get<std::string>()), said).second);
        EXPECT_EQ(slice["track"]["process"], "train");
        tracks[slice["track"]["name"]].insert(slice["name"]);
    }
    EXPECT_EQ(shown, expected);
    const std::map<std::string, std::set<std::string>> of_tracks = {
        {"requests", {"request-1", "waiting to be taken up", "until the first token", "until the end"}},
        {"requests, overlapping 1", {"request-2", "request-3"}},
        {"steps", {"step"}},
        {"incidents", {"lock-wait"}}};
    EXPECT_EQ(tracks, of_tracks);
}

TEST_F(Export, OfVeryManyRequestsTheLongestAreShownAndTheOthersCounted) {
    for (uint64_t i = 0; i < most_history_slices + 5; ++i)
        add_span(SpanKind::request, "request-" + std::to_string(i), 10'000 + i, 10'000 + 2 * i);
    write("node-1", many_calls().events);
    const std::string trace = all_pages(ExportFormat::chrome, 1 << 20);
    EXPECT_THAT(trace, HasSubstr("\"request-10004\""));
    EXPECT_THAT(trace, testing::Not(HasSubstr("\"request-3\"")));
    EXPECT_THAT(trace, HasSubstr("\"5 requests are not shown: only the longest 10000\""));
}

TEST_F(Export, WhoMaySeeNothingGetsNoEvent) {
    add_span(SpanKind::request, "request-1", 11'000, 19'000);
    add_incident();
    write("node-1", many_calls().events);
    for (const ExportFormat format :
         {ExportFormat::csv, ExportFormat::jsonl, ExportFormat::chrome, ExportFormat::perfetto}) {
        const std::string other = all_pages(format, 600, {.window = {}, .uid = 1001, .pid = {}});
        EXPECT_EQ(events_, 0u);
        EXPECT_THAT(other, testing::Not(HasSubstr("cudaLaunchKernel")));
        EXPECT_THAT(other, testing::Not(HasSubstr("request-1")));
        EXPECT_THAT(other, testing::Not(HasSubstr("lock-wait")));
        const bool is_trace = format == ExportFormat::chrome || format == ExportFormat::perfetto;
        const std::string own = all_pages(format, 600, {.window = {}, .uid = 1000, .pid = {}});
        EXPECT_EQ(events_, 2'400u);
        EXPECT_EQ(own.find("request-1") != std::string::npos, is_trace);
        EXPECT_EQ(own.find("lock-wait") != std::string::npos, is_trace);
        const std::string another = all_pages(format, 600, {.window = {}, .uid = {}, .pid = 11});
        EXPECT_EQ(events_, 0u);
        EXPECT_THAT(another, testing::Not(HasSubstr("request-1")));
        EXPECT_THAT(another, testing::Not(HasSubstr("lock-wait")));
    }
}

TEST_F(Export, MoreEventsOfOneNanosecondThanAPageHoldsAreRefused) {
    Made made;
    for (int i = 0; i < 20'000; ++i) made.add(launch, 10, 0, 10'000, 1'000);
    write("node-1", made.events);
    const auto snapshot = open_snapshot(directory_.path());
    ExportQuery query;
    query.filter.window = whole_trace(*snapshot);
    const auto page = export_page(*snapshot, query);
    ASSERT_FALSE(page);
    EXPECT_EQ(page.error().code, ErrorCode::limit);
}

}  // namespace
}  // namespace ingero
