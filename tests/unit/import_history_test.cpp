// What the earlier agent kept beside events: its snapshots, annotations, sums and chains, by SQL as it had them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/import/import.h"
#include "core/import/trace_history.h"
#include "core/sql/sql.h"
#include "core/store/verify.h"
#include "test_paths.h"
#include "tests/unit/trace_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;

constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t start = 1'700'000'040 * second;  ///< a whole minute

std::string at(uint64_t ns) {
    return std::to_string(start + ns);
}

/// Three allocations of process 10 in the first minute.
std::string events() {
    std::string script;
    for (uint64_t i = 0; i < 3; ++i)
        script += "INSERT INTO events(timestamp,pid,tid,source,op,duration,arg0) VALUES(" + at(i * second) +
                  ",10,10,1,1,1000,64);";
    return script;
}

class ImportedHistory : public testing::Test {
  protected:
    ImportSummary import(const std::string& script) {
        folder_.make_trace(std::string(test::first_generation) + test::history_tables + events() + script);
        auto summary = folder_.import();
        EXPECT_TRUE(summary) << summary.error().message;
        const auto verified = verify_store(folder_.store());
        EXPECT_TRUE(verified && verified->is_clean());
        return summary ? *summary : ImportSummary();
    }

    json rows(const std::string& sql) {
        if (!engine_) engine_ = std::move(*SqlEngine::open());
        SqlQuery query;
        query.sql = sql;
        const auto snapshot = folder_.snapshot();
        auto answer = engine_->run(*snapshot, query);
        EXPECT_TRUE(answer) << sql << ": " << (answer ? "" : answer.error().message);
        return answer ? answer->rows : json("failed");
    }

    test::TraceFolder folder_;
    std::unique_ptr<SqlEngine> engine_;
};

TEST_F(ImportedHistory, SnapshotsAreStatesOfTheHost) {
    const auto summary = import(
        "INSERT INTO system_snapshots(timestamp,cpu_pct,mem_pct,mem_avail,swap_mb,load_avg) "
        "VALUES(" +
        at(5) + ",12.5,50,2048,0,1.25),(" + at(9) + ",NULL,'x',NULL,NULL,7),(-5,1,1,1,1,1);");
    EXPECT_EQ(summary.snapshots, 2u);
    EXPECT_EQ(summary.left_out, (std::map<std::string, uint64_t>{{"system_snapshots", 1}}));
    EXPECT_EQ(rows("SELECT timestamp, cpu_pct, mem_pct, mem_avail, swap_mb, load_avg, node FROM system_snapshots "
                   "ORDER BY timestamp"),
              (json{{start + 5, 12.5, 50.0, 2'048, 0, 1.25, "trace"},
                    {start + 9, nullptr, nullptr, nullptr, nullptr, 7.0, "trace"}}));
}

TEST_F(ImportedHistory, AnnotationsAreLabels) {
    const auto summary = import(
        "INSERT INTO annotations(timestamp,labels,pid,start_time,span_start,span_end,peer_uid,peer_gid,peer_pid) "
        "VALUES(" +
        at(5) + ",'{\"phase\":\"warmup\",\"n\":7}',10,99," + at(1) + "," + at(9) + ",1000,100,12),(" + at(6) +
        ",'{\"a\":{\"b\":1}}',0,0,0,0,0,0,0),(" + at(7) + ",'{}',10,0," + at(9) + "," + at(1) + ",0,0,0);");
    EXPECT_EQ(summary.annotations, 2u);
    EXPECT_EQ(summary.unreadable_texts, 1u);
    EXPECT_EQ(summary.left_out, (std::map<std::string, uint64_t>{{"annotations", 1}})) << "it ends before it begins";
    EXPECT_EQ(rows("SELECT timestamp, labels, pid, start_time, span_start, span_end, peer_uid, peer_gid, peer_pid "
                   "FROM annotations ORDER BY timestamp"),
              (json{{start + 1, R"({"n":"7","phase":"warmup"})", 10, 99, start + 1, start + 9, 1'000, 100, 12},
                    {start + 6, "{}", 0, nullptr, 0, 0, 0, nullptr, nullptr}}));
    EXPECT_EQ(rows("SELECT kind, received_ns FROM spans WHERE pid = 10"),
              json::array({json::array({"label", start + 5})}));
}

TEST_F(ImportedHistory, SumsAreRowsAndWhatIsLeftOfThem) {
    const auto summary = import(
        "DROP TABLE event_aggregates; CREATE TABLE event_aggregates(bucket,source,op,pid,count,stored,sum_dur,min_dur,"
        "max_dur,sum_arg0); INSERT INTO event_aggregates VALUES(" +
        at(0) + ",1,1,10,8,3,9000,900,2000,512),(" + at(0) + ",3,3,10,5,0,50,1,20,4096),(" + at(0) +
        ",1,1,11,2,2,7,1,4,0),(" + at(60 * second) + ",1,1,10,1,1,7,7,7,1);");
    EXPECT_EQ(summary.rollups, 4u);
    EXPECT_EQ(summary.sampled_out, 5u + 5 + 2 + 1);
    EXPECT_EQ(rows("SELECT bucket, source, op, pid, count, stored, sum_dur, max_dur, sum_arg0 FROM event_aggregates "
                   "WHERE pid = 10 AND source = 'CUDA' ORDER BY bucket"),
              (json{{start, "CUDA", "cudaMalloc", 10, 8, 3, 9'000, 2'000, 512},
                    {start + 60 * second, "CUDA", "cudaMalloc", 10, 1, 0, 7, 7, 1}}));
    EXPECT_EQ(rows("SELECT SUM(count), SUM(stored) FROM event_aggregates"), (json{{16, 3}}));
    const auto stats = folder_.stats();
    ASSERT_TRUE(stats);
    ASSERT_EQ(stats->ops.size(), 1u);
    EXPECT_EQ(stats->ops[0].count, 3u) << "statistics are of rows";
    EXPECT_EQ(stats->coverage.sampled_out, 12u) << "of the time that the rows are of";
}

TEST_F(ImportedHistory, AggregatesOfFiveSecondsAreSummedToMinutes) {
    const auto summary = import(
        "CREATE TABLE event_aggregates_5s(bucket,source,op,pid,count,stored,sum_dur,min_dur,"
        "max_dur,sum_arg0); INSERT INTO event_aggregates_5s VALUES(" +
        at(0) + ",1,1,10,4,3,4000,1,1000,256),(" + at(5 * second) + ",1,1,10,6,0,60,1,10,6);");
    EXPECT_EQ(summary.rollups, 1u);
    EXPECT_EQ(rows("SELECT minute_ns, calls, total_ns, max_ns, bytes, p50_ns FROM rollups"),
              (json{{start, 7, 1'060, 1'000, 70, nullptr}}));
}

TEST_F(ImportedHistory, ChainsAreFindingsOfAnotherTool) {
    const std::string row = "INSERT INTO causal_chains VALUES(";
    const auto summary = import(
        row + "'chain-1'," + at(5) +
        ",'HIGH','slow','disk','because','[\"wait\"]','cudaMalloc',800,10,80.5,'[{\"layer\":\"HOST\"}]','');" + row +
        "'chain-2'," + at(6) + ",'odd','b','c','d','no json','cudaFree',1,1,1,NULL,'other');" + row + "''," + at(7) +
        ",'LOW','no id','','','','',0,0,0,'','');" + "INSERT INTO cgroup_schedstat VALUES(1,2,3);");
    EXPECT_EQ(summary.chains, 2u);
    EXPECT_EQ(summary.unreadable_texts, 1u);
    EXPECT_EQ(summary.left_out, (std::map<std::string, uint64_t>{{"causal_chains", 1}, {"cgroup_schedstat", 1}}));
    EXPECT_EQ(rows("SELECT id, detected_at, severity, summary, root_cause, explanation, recommendations, cuda_op, "
                   "cuda_p99_us, cuda_p50_us, tail_ratio, timeline, node FROM causal_chains ORDER BY detected_at"),
              (json{{"chain-1", start + 5, "HIGH", "slow", "disk", "because", "[\"wait\"]", "cudaMalloc", 800, 10, 80.5,
                     "[{\"layer\":\"HOST\"}]", "trace"},
                    {"chain-2", start + 6, "odd", "b", "c", "d", nullptr, "cudaFree", 1, 1, 1.0, nullptr, "trace"}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM incidents"), (json{{0}})) << "what nobody here has found";
}

TEST_F(ImportedHistory, OfSeveralNodesOnlyWhatNamesItsNodeIsTaken) {
    const auto event = [](const char* node, uint64_t ns) {
        return "INSERT INTO events(id,timestamp,pid,tid,source,op,duration,node) VALUES('" + std::string(node) + ":" +
               std::to_string(ns) + "'," + at(ns) + ",10,10,1,3,1000,'" + node + "');";
    };
    folder_.make_trace(std::string(test::second_generation) + test::history_tables + event("a", 1) + event("b", 2) +
                       "INSERT INTO system_snapshots(timestamp,load_avg) VALUES(" + at(5) +
                       ",1);INSERT INTO annotations(timestamp,labels) VALUES(" + at(5) +
                       ",'{}');INSERT INTO causal_chains(id,detected_at,node) VALUES('x'," + at(5) + ",'b'),('y'," +
                       at(6) + ",'c');");
    const auto summary = folder_.import();
    ASSERT_TRUE(summary) << summary.error().message;
    EXPECT_EQ(summary->left_out,
              (std::map<std::string, uint64_t>{{"annotations", 1}, {"causal_chains", 1}, {"system_snapshots", 1}}));
    EXPECT_EQ(rows("SELECT id, node FROM causal_chains"), json::array({json::array({"x", "b"})}));
}

TEST_F(ImportedHistory, IsImportedOnce) {
    import("INSERT INTO system_snapshots(timestamp,load_avg) VALUES(" + at(5) + ",1);");
    const std::string before = folder_.store_bytes();
    const auto again = folder_.import();
    ASSERT_TRUE(again);
    EXPECT_TRUE(again->already_there);
    EXPECT_EQ(folder_.store_bytes(), before);
}

TEST_F(ImportedHistory, IsAnsweredToStatementsAsPublished) {
    import("INSERT INTO system_snapshots(timestamp,load_avg) VALUES(" + at(5) +
           ",1);INSERT INTO annotations(timestamp,labels) VALUES(" + at(5) +
           ",'{}');INSERT INTO causal_chains(id,detected_at,severity) VALUES('x'," + at(5) +
           ",'HIGH');INSERT INTO event_aggregates(bucket,source,op,pid,count,stored) VALUES(" + at(0) +
           ",1,1,10,8,3);");
    std::ifstream file(INGERO_PUBLISHED_SQL);
    size_t statements = 0;
    std::map<std::string, size_t> answered;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line.starts_with("--")) continue;
        ++statements;
        const json found = rows(line);
        for (const char* table : {"system_snapshots", "annotations", "causal_chains", "event_aggregates"})
            if (line.find(std::string("FROM ") + table) != std::string::npos) answered[table] += found.size();
    }
    EXPECT_GE(statements, 20u);
    EXPECT_EQ(answered,
              (std::map<std::string, size_t>{
                  {"annotations", 1}, {"causal_chains", 1}, {"event_aggregates", 4}, {"system_snapshots", 1}}));
}

TEST_F(ImportedHistory, JsonOfAHundredThousandLevelsIsLeftOut) {
    std::string arrays(100'000, '['), objects;
    for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
    EXPECT_FALSE(is_bounded_json(arrays));
    // Short enough to be read, and still deeper than anything has a use for.
    EXPECT_FALSE(is_bounded_json(std::string(8'000, '[') + std::string(8'000, ']')));
    EXPECT_TRUE(is_bounded_json(std::string(8, '[') + std::string(8, ']')));
    EXPECT_FALSE(is_bounded_json(std::string(9, '[') + std::string(9, ']')));
    const auto summary =
        import("INSERT INTO annotations(timestamp,labels) VALUES(" + at(5) + ",'" + objects + "'),(" + at(6) + ",'" +
               arrays + "');INSERT INTO causal_chains(id,detected_at,recommendations,timeline) VALUES('x'," + at(7) +
               ",'" + arrays + "','" + objects + "');INSERT INTO stack_traces(hash,ips,frames) VALUES(5,'','" + arrays +
               "'),(6,'','" + objects + "');");
    EXPECT_EQ(summary.annotations, 2u);
    EXPECT_EQ(summary.chains, 1u);
    EXPECT_EQ(summary.unreadable_texts, 4u);
    EXPECT_EQ(summary.unreadable_stacks, 2u);
    EXPECT_EQ(rows("SELECT recommendations, timeline FROM causal_chains"), (json{{nullptr, nullptr}}));
}

TEST_F(ImportedHistory, HugeTextsLeaveRoomForWhatMatters) {
    // Each of these bytes is six in JSON.
    const std::string text(4'096, '\x01');
    const auto summary = import(
        "INSERT INTO causal_chains(id,detected_at,summary,root_cause,explanation,cuda_op) "
        "VALUES('x'," +
        at(7) + ",'" + text + "','" + text + "','" + text + "','" + text + "');");
    EXPECT_EQ(summary.chains, 1u);
    EXPECT_EQ(summary.unreadable_texts, 1u);
    EXPECT_EQ(rows("SELECT LENGTH(summary), LENGTH(cuda_op), LENGTH(explanation) FROM causal_chains"),
              (json{{4'096, 4'096, nullptr}}));
}

}  // namespace
}  // namespace ingero
