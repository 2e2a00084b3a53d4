// SQL over spans, incidents, states, clocks and rollups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/model/op.h"
#include "core/render/incidents.h"
#include "core/sql/catalogue.h"
#include "core/sql/sql.h"
#include "core/store/rows/state_names.h"
#include "tests/support/memory_limit.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t minute = 60 * second;
constexpr uint64_t wall = 1'700'000'040 * second;  ///< minus CLOCK_MONOTONIC; a multiple of a minute

/// Two boots, of two nodes, ten minutes each. Every minute has a request, a step, a label, a state and rollups.
class SqlHistory : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* node : {"alpha", "beta"}) write_boot(node);
        snapshot_ = open_snapshot(directory_.path());
        auto engine = SqlEngine::open();
        ASSERT_TRUE(engine) << engine.error().message;
        engine_ = std::move(*engine);
    }

    void write_boot(const std::string& node) {
        StoreOptions options;
        ClockTriple clock{minute, minute, wall + minute};
        options.clock = [&clock] { return clock; };
        auto writer = open_writer(directory_.path(), options);
        Session session = make_session("boot of " + node);
        session.id = node;
        session.node = node;
        session.clock = clock;
        session.first_covered_ns = minute;
        ASSERT_TRUE(writer->begin_session(session));
        for (uint64_t i = 1; i <= 10; ++i) {
            const uint64_t now = i * minute;
            const auto uid = static_cast<uint32_t>(1'000 + i % 2);
            Batch batch;
            SpanRow span;
            span.id = "r" + std::to_string(i);
            span.start_ns = now;
            span.end_ns = now + i * second;
            span.scheduled_ns = now + 5;
            span.first_token_ns = now + 9;
            span.output_tokens = i;
            span.model = "m";
            span.process = {100, 7};
            span.uid = uid;
            span.labels = {{"tenant", "\xff"}};
            span.values = {{"loss", 0.5}};
            span.received_ns = now + 11 * second;
            batch.spans.push_back(span);
            span.kind = SpanKind::step;
            span.id.clear();
            batch.spans.push_back(span);
            span.kind = SpanKind::label;
            span.end_ns = span.start_ns;
            span.values = {{"peer_gid", 50}};
            batch.spans.push_back(span);
            IncidentRow incident;
            incident.id = "i" + std::to_string(i / 2);
            incident.at_ns = now;
            incident.opened_ns = i / 2 * 2 * minute;
            incident.event = i % 2 == 1 ? IncidentEvent::closed : IncidentEvent::opened;
            incident.kind = "cpu-contention";
            incident.uid = 1'000;
            incident.process = {100, 7};
            incident.lost_ns = i;
            incident.explained_permille = 250;
            incident.culprits = {{"hog", 9, 8}};
            batch.incidents.push_back(incident);
            incident.kind = imported_finding;
            incident.finding = R"({"severity": "HIGH", "cuda_p99_us": 7, "tail_ratio": 2.5, "timeline": "[]"})";
            batch.incidents.push_back(incident);
            batch.states.push_back({now, "host", {{"cpu_pct", 12.5}, {"mem_avail", 2'048}}});
            batch.states.push_back({now, "nvml", {{"watts", 61.25}}});
            RollupRow rollup;
            rollup.minute_ns = now;
            rollup.op = *op_of_name("cudaMemcpy");
            rollup.process = {100, 7};
            rollup.uid = uid;
            rollup.calls = 100;
            rollup.total_ns = 100 * second;
            rollup.max_ns = 2 * second;
            rollup.bytes = 4'096;
            rollup.durations.add(90, 60);
            rollup.durations.add(120, 40);
            batch.rollups.push_back(rollup);
            rollup.process = {};
            rollup.uid = UINT32_MAX;
            rollup.durations = {};
            batch.rollups.push_back(rollup);
            Event event = make_event(++sequence_, now, 3 * second);
            event.op = rollup.op;
            event.tgid = 100;
            event.process_start_ns = 7;
            event.weight = 1;
            event.time_weight = 0;
            event.depth = 0;
            event.return_code = 0;
            event.args[0] = 10;
            batch.events.push_back(event);
            batch.covered_until_ns = now + 30 * second;
            clock = {now + 30 * second, now + 30 * second, wall + now + 30 * second};
            ASSERT_TRUE(writer->commit(batch));
        }
        if (node == "alpha") {
            ASSERT_TRUE(writer->end_session());
        }
    }

    Result<SqlAnswer> run(SqlQuery query) { return engine_->run(*snapshot_, query); }
    json rows(const std::string& sql, const Filter* filter = nullptr) {
        SqlQuery query;
        query.sql = sql;
        query.whole_trace = !filter;
        if (filter) query.filter = *filter;
        auto answer = run(query);
        EXPECT_TRUE(answer) << sql << ": " << (answer ? "" : answer.error().message);
        return answer ? answer->rows : json("failed");
    }
    std::string plan(const std::string& sql) {
        SqlQuery query;
        query.sql = sql;
        query.explain = true;
        auto answer = run(query);
        return answer ? answer->rows.dump() : answer.error().message;
    }

    TemporaryDirectory directory_;
    std::unique_ptr<StoreSnapshot> snapshot_;
    std::unique_ptr<SqlEngine> engine_;
    uint64_t sequence_ = 0;
};

TEST_F(SqlHistory, ColumnsSayWhatTheRowsSay) {
    const uint64_t at = wall + 3 * minute;
    EXPECT_EQ(rows("SELECT id, pid, start_ns, end_ns, duration_ns, queue_ns, ttft_ns, model, prompt_tokens, "
                   "output_tokens, node FROM requests WHERE id = 'r3' AND node = 'beta'"),
              (json{{"r3", 100, at, at + 3 * second, 3 * second, 5, 9, "m", nullptr, 3, "beta"}}));
    EXPECT_EQ(rows("SELECT kind, labels, numbers, uid, scope, received_ns FROM spans WHERE id = 'r3' LIMIT 1"),
              (json{{"request", "{\"tenant\":\"\xef\xbf\xbd\"}", R"({"loss":0.5})", 1'001, nullptr, at + 11 * second}}))
        << rows("SELECT kind, labels, numbers, uid, scope, received_ns FROM spans WHERE id = 'r3' LIMIT 1").dump();
    EXPECT_EQ(rows("SELECT kind, COUNT(*), COUNT(DISTINCT number) FROM spans GROUP BY kind ORDER BY kind"),
              (json{{"label", 20, 20}, {"request", 20, 20}, {"step", 20, 20}}));
    EXPECT_EQ(rows("SELECT timestamp, pid, start_time, span_start, span_end, peer_uid, peer_gid, peer_pid FROM "
                   "annotations WHERE timestamp = " +
                   std::to_string(at) + " LIMIT 1"),
              (json{{at, 100, nullptr, 0, 0, 1'001, 50, nullptr}}));
    EXPECT_EQ(rows("SELECT source, name, value FROM states WHERE node = 'alpha' ORDER BY timestamp, id LIMIT 3"),
              (json{{"host", "cpu_pct", 12.5}, {"host", "mem_avail", 2'048.0}, {"nvml", "watts", 61.25}}));
    EXPECT_EQ(rows("SELECT COUNT(*), MIN(cpu_pct), MIN(mem_pct), typeof(mem_avail), SUM(mem_avail) "
                   "FROM system_snapshots"),
              (json{{20, 12.5, nullptr, "integer", 20 * 2'048}}));
    EXPECT_EQ(rows("SELECT source, op, uid, calls, total_ns, max_ns, p50_ns, p95_ns, bytes FROM rollups "
                   "WHERE node = 'alpha' AND pid = 100 AND minute_ns = " +
                   std::to_string(at)),
              (json{{"CUDA", "cudaMemcpy", 1'001, 100, 100 * second, 2 * second, 90, 120, 4'096}}));
    EXPECT_EQ(rows("SELECT uid, p99_ns FROM rollups WHERE pid = 0 LIMIT 1"), (json{{nullptr, nullptr}}));
    EXPECT_EQ(rows("SELECT node, COUNT(*), MIN(realtime_ns - monotonic_ns), COUNT(DISTINCT session) FROM clocks "
                   "GROUP BY node"),
              (json{{"alpha", 10, wall, 1}, {"beta", 10, wall, 1}}));
}

TEST_F(SqlHistory, AnIncidentIsOneRowAsItWasLast) {
    EXPECT_EQ(
        rows("SELECT id, opened_ns, closed_ns, lost_ns, explained, culprits, node FROM incidents "
             "WHERE id IN ('i4', 'i5') AND node = 'alpha' ORDER BY id"),
        (json{{"i4", wall + 8 * minute, wall + 9 * minute, 9, 0.25, R"([{"name":"hog","ns":8,"pid":9}])", "alpha"},
              {"i5", wall + 10 * minute, wall + 10 * minute + 30 * second, 10, 0.25,
               R"([{"name":"hog","ns":8,"pid":9}])", "alpha"}}));
    EXPECT_EQ(rows("SELECT id, node FROM incidents WHERE closed_ns IS NULL"), json::array({{"i5", "beta"}}))
        << "alpha's session has ended";
    EXPECT_EQ(rows("SELECT id, detected_at, severity, cuda_p99_us, tail_ratio, timeline, root_cause FROM causal_chains "
                   "WHERE node = 'beta' ORDER BY detected_at DESC LIMIT 1"),
              (json{{"i5", wall + 10 * minute, "HIGH", 7, 2.5, "[]", nullptr}}));
}

TEST_F(SqlHistory, SaysWhenAnIncidentBeganAsTheCommandDoesThoughTheWallClockWasSetMeanwhile) {
    const ClockTriple opened_at{2 * minute, 2 * minute, wall + 2 * minute};
    const ClockTriple set{3 * minute, 3 * minute, wall + 63 * minute};
    Finding finding;
    finding.kind = "cpu-contention";
    finding.severity = Severity::high;
    finding.verdict = Verdict::proven;
    finding.lost_ns = finding.newly_lost_ns = second;
    finding.worst.event.tgid = finding.pid = 100;
    finding.worst.event.process_start_ns = 7;
    IncidentTracker tracker("boot of gamma");
    Batch batch;
    for (const ClockTriple& now : {opened_at, set})
        for (const IncidentChange& change : tracker.observe({finding}, now))
            batch.incidents.push_back(incident_row(change, now));
    ASSERT_EQ(batch.incidents.size(), 2u);
    snapshot_.reset();
    {
        StoreOptions options;
        options.clock = [&set] { return set; };
        const auto writer = open_writer(directory_.path(), options);
        Session session = make_session("boot of gamma");
        session.node = "gamma";
        session.clock = opened_at;
        session.first_covered_ns = minute;
        ASSERT_TRUE(writer->begin_session(session));
        ASSERT_TRUE(writer->commit(batch));
    }
    snapshot_ = open_snapshot(directory_.path());
    const auto listed = read_incidents(*snapshot_, {.window = everything, .uid = {}, .pid = {}});
    ASSERT_TRUE(listed) << listed.error().message;
    const auto one = std::find_if(listed->begin(), listed->end(),
                                  [&](const auto& each) { return each.latest.id == batch.incidents[0].id; });
    ASSERT_NE(one, listed->end());
    const json answer = rows("SELECT opened_ns FROM incidents WHERE node = 'gamma'");
    ASSERT_EQ(answer.size(), 1u) << answer.dump();
    EXPECT_EQ(answer.at(0).at(0), one->opened_ns);
}

TEST_F(SqlHistory, AConditionOnTimeOrIdLeavesWhatSqliteWould) {
    const std::pair<const char*, const char*> columns[] = {{"spans", "start_ns"},
                                                           {"spans", "end_ns"},
                                                           {"requests", "end_ns"},
                                                           {"annotations", "timestamp"},
                                                           {"incidents", "opened_ns"},
                                                           {"incidents", "closed_ns"},
                                                           {"incidents", "updated_ns"},
                                                           {"causal_chains", "detected_at"},
                                                           {"states", "timestamp"},
                                                           {"system_snapshots", "timestamp"},
                                                           {"rollups", "minute_ns"},
                                                           {"clocks", "realtime_ns"},
                                                           {"request_events", "timestamp"},
                                                           {"request_events", "request_start_ns"},
                                                           {"request_events", "request_end_ns"}};
    for (const auto& [table, column] : columns) {
        for (const char* operation : {"=", "<", "<=", ">", ">="}) {
            for (const uint64_t at : {uint64_t{0}, 4 * minute, 4 * minute + 1, 4 * minute + 4 * second, 5 * minute}) {
                const std::string time = std::to_string(wall + at);
                const std::string from = std::string("SELECT COUNT(*), COUNT(DISTINCT node) FROM ") + table + " WHERE ";
                const auto where = [&](const std::string& name) { return from + name + " " + operation + " " + time; };
                EXPECT_EQ(rows(where(column)), rows(where("+" + std::string(column)))) << where(column);
            }
        }
    }
    for (const char* id : {"r3", "R3", "r", "", "r3 "}) {
        const std::string wanted = std::string(" = '") + id + "'";
        for (const char* collation : {"", " COLLATE NOCASE", " COLLATE RTRIM"})
            EXPECT_EQ(rows("SELECT COUNT(*) FROM spans WHERE id" + wanted + collation),
                      rows("SELECT COUNT(*) FROM spans WHERE +id" + wanted + collation));
    }
    EXPECT_EQ(rows("SELECT COUNT(*) FROM spans WHERE id IN ('r3', 'r4', 'nobody')"), (json{{4}}));
}

TEST_F(SqlHistory, OnlyWhatIsAskedForIsRead) {
    EXPECT_THAT(plan("SELECT * FROM spans WHERE id = 'r3'"), HasSubstr("spans: by id"));
    EXPECT_THAT(plan("SELECT * FROM rollups WHERE minute_ns > 5"), HasSubstr("rollups: by time"));
    EXPECT_THAT(plan("SELECT * FROM spans"), HasSubstr("spans: all rows"));
    // The calls of each request by the time of the request.
    EXPECT_EQ(rows("SELECT r.id, COUNT(*) FROM requests r JOIN events e ON e.timestamp BETWEEN r.start_ns AND r.end_ns "
                   "AND e.node = r.node WHERE r.id = 'r4' GROUP BY r.id, r.node"),
              json::array({json::array({"r4", 1}), json::array({"r4", 1})}));
}

TEST_F(SqlHistory, TheCallsOfARequestAreThoseThatOverlapIt) {
    EXPECT_EQ(
        rows("SELECT request_id, request_start_ns, source, op, pid, timestamp, duration_ns, overlap_ns, shared_by, "
             "return_code, weight FROM request_events WHERE node = 'beta' AND request_id IN ('r2', 'r7') "
             "ORDER BY request_id"),
        (json{
            {"r2", wall + 2 * minute, "CUDA", "cudaMemcpy", 100, wall + 2 * minute, 3 * second, 2 * second, 1, 0, 1},
            {"r7", wall + 7 * minute, "CUDA", "cudaMemcpy", 100, wall + 7 * minute, 3 * second, 3 * second, 1, 0, 1}}));
    EXPECT_EQ(rows("SELECT COUNT(*), COUNT(DISTINCT request_id), SUM(shared_by) FROM request_events"),
              (json{{20, 10, 20}}));
    EXPECT_EQ(rows("SELECT r.request_id, e.op FROM request_events r JOIN events e ON e.id = r.event_id AND "
                   "e.node = r.node WHERE r.request_id = 'r4' AND r.node = 'alpha'"),
              (json::array({json::array({"r4", "cudaMemcpy"})})));
    EXPECT_THAT(plan("SELECT * FROM request_events WHERE request_id = 'r3'"), HasSubstr("request_events: by id"));
}

TEST_F(SqlHistory, AggregatesHoldRowsAndWhatIsLeftOfThem) {
    const std::string at = std::to_string(wall + 3 * minute);
    EXPECT_EQ(rows("SELECT source, op, pid, count, stored, sum_dur, min_dur, max_dur, sum_arg0 FROM event_aggregates "
                   "WHERE bucket = " +
                   at + " ORDER BY pid"),
              (json{{"CUDA", "cudaMemcpy", 0, 200, 0, 200 * second, nullptr, 2 * second, 8'192},
                    {"CUDA", "cudaMemcpy", 100, 202, 2, 206 * second, 3 * second, 3 * second, 8'212}}));
    EXPECT_EQ(rows("SELECT SUM(count), SUM(stored) FROM event_aggregates"), (json{{4'020, 20}}));
}

TEST_F(SqlHistory, OneUserAndOneProcessAreSeen) {
    Filter filter;
    filter.window = {0, INT64_MAX};
    filter.uid = 1'001;
    EXPECT_EQ(rows("SELECT COUNT(*) FROM requests", &filter), (json{{10}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM spans WHERE id = 'r4'", &filter), (json{{0}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM incidents", &filter), (json{{0}}));
    EXPECT_EQ(rows("SELECT COUNT(*), MIN(pid) FROM rollups", &filter), (json{{10, 100}}));
    filter = {};
    filter.window = {0, INT64_MAX};
    filter.pid = 200;
    EXPECT_EQ(rows("SELECT COUNT(*) FROM spans", &filter), (json{{0}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM states", &filter), (json{{60}}));
}

TEST_F(SqlHistory, AWindowLeavesWhatOverlapsIt) {
    Filter filter;
    filter.window = {wall + 4 * minute + second, wall + 6 * minute};
    EXPECT_EQ(rows("SELECT DISTINCT id FROM requests ORDER BY id", &filter), (json{{"r4"}, {"r5"}}));
    EXPECT_EQ(rows("SELECT DISTINCT id FROM spans WHERE id = 'r6'", &filter), json::array());
    EXPECT_EQ(rows("SELECT COUNT(*) FROM system_snapshots", &filter), (json{{2}}));
    EXPECT_EQ(rows("SELECT DISTINCT id FROM incidents", &filter), (json{{"i2"}})) << "open over its begin";
    EXPECT_EQ(rows("SELECT COUNT(*) FROM rollups", &filter), (json{{8}}));
}

/// Of one session that began with the clock.
class StoreOfStates {
  public:
    explicit StoreOfStates(const std::string& directory) {
        StoreOptions options;
        options.clock = [this] { return clock_; };
        writer_ = open_writer(directory, options);
        Session session = make_session("boot-a");
        session.clock = clock_;
        session.first_covered_ns = 1;
        EXPECT_TRUE(writer_->begin_session(session));
    }
    void commit(Batch& batch, uint64_t now_ns) {
        clock_ = {now_ns, now_ns, wall + now_ns};
        batch.covered_until_ns = now_ns;
        EXPECT_TRUE(writer_->commit(batch));
    }

  private:
    ClockTriple clock_{1, 1, wall + 1};
    std::unique_ptr<StoreWriter> writer_;
};

TEST(SqlLibraries, AreShownToWhomTheyBelongAndThoseOfTheSystemToAll) {
    const TemporaryDirectory directory;
    {
        StoreOfStates store(directory.path());
        Batch batch;
        const auto add = [&](uint64_t at, const char* path, const char* state, double uid, bool is_systems) {
            StateRow row{.time_ns = at * second, .source = std::string(library_source), .values = {}};
            row.values = {{std::string(library_uid), uid},
                          {std::string(library_is_systems), is_systems ? 1 : 0},
                          {"functions", 127}};
            row.texts = {
                {std::string(library_path), path}, {"library", "libcuda"}, {"state", state}, {"build_id", "0a1b"}};
            batch.states.push_back(std::move(row));
        };
        add(1, "/usr/lib/libcuda.so.1", "attached", 0, true);
        add(2, "/opt/a/libcuda.so.1", "attached", 1'001, false);
        add(3, "/opt/b/libcuda.so.1", "failed", 0, false);
        add(4, "/opt/a/libcuda.so.1", "detached", 1'001, false);
        store.commit(batch, 10 * second);
    }
    const auto snapshot = open_snapshot(directory.path());
    const auto engine = SqlEngine::open();
    ASSERT_TRUE(engine);
    const auto files = [&](std::optional<uint32_t> uid, const std::string& sql) {
        SqlQuery query;
        query.sql = sql;
        query.filter = {.window = {0, INT64_MAX}, .uid = uid, .pid = {}};
        const auto answer = (*engine)->run(*snapshot, query);
        return answer ? answer->rows : json(answer.error().message);
    };
    const std::string all = "SELECT file, state FROM libraries ORDER BY timestamp";
    const json system = {"/usr/lib/libcuda.so.1", "attached"}, attached = {"/opt/a/libcuda.so.1", "attached"},
               failed = {"/opt/b/libcuda.so.1", "failed"}, detached = {"/opt/a/libcuda.so.1", "detached"};
    EXPECT_EQ(files(std::nullopt, all), json::array({system, attached, failed, detached}));
    EXPECT_EQ(files(1'001, all), json::array({system, attached, detached}));
    EXPECT_EQ(files(1'002, all), json::array({system}));
    EXPECT_EQ(files(std::nullopt,
                    "SELECT timestamp, library, build_id, functions, single_stepped, reason FROM libraries LIMIT 1"),
              (json::array({json::array({wall + second, "libcuda", "0a1b", 127, nullptr, nullptr})})));
    EXPECT_EQ(files(std::nullopt, "SELECT COUNT(*) FROM states"), (json::array({json::array({0})})))
        << "they are no measurements";
}

TEST(SqlMeasurements, OfALongTimeTakeLittleMemory) {
    const TemporaryDirectory directory;
    constexpr uint64_t rounds = 10'000, gpus = 8;
    {
        StoreOfStates store(directory.path());
        for (uint64_t round = 1; round <= rounds;) {
            Batch batch;
            for (const uint64_t until = round + 500; round < until; ++round)
                for (uint64_t gpu = 0; gpu < gpus; ++gpu) {
                    StateRow row{.time_ns = round * second, .source = "gpu:" + std::to_string(gpu), .values = {}};
                    for (const StateName& one : state_names) row.values.emplace_back(one.name, round % 2);
                    row.texts = {{"name", "Stand-in"}};
                    batch.states.push_back(std::move(row));
                }
            store.commit(batch, round * second);
        }
    }
    const auto snapshot = open_snapshot(directory.path());
    const auto engine = SqlEngine::open();
    ASSERT_TRUE(engine);
    SqlQuery query;
    query.sql = "SELECT name, COUNT(*), COUNT(DISTINCT uuid), AVG(power_watts) FROM gpu_samples GROUP BY name";
    // Decoded, the rows are some 300 MB.
    const MemoryLimit limit(64 << 20);
    const auto answer = (*engine)->run(*snapshot, query);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->rows, (json{{"Stand-in", rounds * gpus, gpus, 0.5}}));
}

}  // namespace
}  // namespace ingero
