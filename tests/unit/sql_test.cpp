// SQL over a store: what statements give is what the rows say, and nothing but reading is done.
#include "core/sql/sql.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <map>
#include <random>
#include <set>

#include "core/model/op.h"
#include "core/render/table.h"
#include "core/sql/catalogue.h"
#include "core/sql/functions.h"
#include "test_paths.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t realtime_offset = 1'700'000'000'000'000'000 - 1'000;

struct Caller {
    uint32_t pid;
    uint32_t uid;
    const char* comm;
};
constexpr Caller callers[] = {{100, 1000, "trainer"}, {200, 1000, "trainer"}, {300, 2000, "server"}};

/// 20,000 calls of three processes in three seconds, in six blocks that overlap in time.
std::vector<Event> make_rows() {
    struct Kind {
        OpId op;
        uint64_t median_ns;
    };
    constexpr Kind kinds[] = {{0x0101, 50'000}, {0x0103, 8'000},   {0x0107, 12'000}, {0x0105, 90'000},
                              {0x0401, 6'000},  {0x0804, 20'000},  {0x0301, 70'000}, {0x0501, 300'000},
                              {0x0702, 40'000}, {0x0901, 100'000}, {0x6303, 1'000},  {0x0000, 5'000}};
    std::mt19937_64 random(7);
    std::vector<Event> rows;
    for (uint64_t i = 0; i < 20'000; ++i) {
        const Kind& kind = kinds[random() % std::size(kinds)];
        const Caller& caller = callers[random() % 3];
        Event event;
        event.sequence = i + 1;
        event.op = kind.op;
        event.start_ns = 1'000'000 + i * 150'000 + random() % 1'000'000;
        event.duration_ns = kind.median_ns / 2 + random() % kind.median_ns;
        event.tgid = caller.pid;
        event.tid = caller.pid + static_cast<uint32_t>(random() % 4);
        event.process_start_ns = caller.pid * 10;
        event.args = {random() % 5'000'000, random() % 7, i};
        event.return_code = random() % 50 == 0 ? 2 : 0;
        event.stack = static_cast<uint32_t>(random() % 3);
        event.device = static_cast<uint16_t>(random() % 2);
        if (random() % 3 == 0) {
            event.blocked_ns = event.duration_ns / 2;
            event.runnable_ns = event.duration_ns / 4;
            event.longest_sleep_ns = event.blocked_ns;
            event.blocked_reason = BlockedReason::futex;
            if (i % 2) {  // as rows of today have it, and those from before it was recorded
                event.last_wait_ns = event.duration_ns / 2;
                event.last_runnable_ns = event.duration_ns / 8;
                event.last_reason = i % 4 == 1 ? BlockedReason::futex : BlockedReason::none;
                event.tail_ns = i % 3;
            }
            event.blocked_syscall = 9'999;
            event.preemptor_tgid = 4'000;
            event.preemptor_comm = to_comm("hog");
        }
        rows.push_back(event);
    }
    return rows;
}

class SqlTest : public testing::Test {
  protected:
    void SetUp() override {
        StoreOptions options;
        options.clock = [] { return ClockTriple{1'000, 2'000, realtime_offset + 1'000}; };
        auto writer = open_writer(directory_.path(), options);
        Session session = make_session("boot");
        ASSERT_TRUE(writer->begin_session(session));
        writer->set_first_covered(1'000'000);
        for (size_t at = 0; at < rows_.size(); at += 3'500) {
            Batch batch;
            batch.events.assign(rows_.begin() + static_cast<std::ptrdiff_t>(at),
                                rows_.begin() + static_cast<std::ptrdiff_t>(std::min(at + 3'500, rows_.size())));
            for (const Caller& caller : callers) {
                Process process;
                process.key = {caller.pid, caller.pid * 10};
                process.uid = caller.uid;
                process.comm = caller.comm;
                process.cgroup = caller.uid == 1000 ? "/user.slice/a" : "/system.slice/b";
                process.first_seen_ns = 1'000'000;
                batch.processes.push_back(process);
            }
            if (at == 0) {
                batch.losses.push_back({.from_ns = 1'000'000, .to_ns = 2'000'000, .op = 0x0103, .lost_ring = 17});
                batch.stacks.push_back({.id = 1, .process = {100, 1'000}, .seen_ns = 5, .frames = {{1, 64}, {1, 128}}});
                batch.stacks.push_back({.id = 2, .process = {300, 3'000}, .seen_ns = 5, .frames = {{1, 256}}});
                batch.files.push_back({.id = 1, .path = "/usr/lib/libx.so", .build_id = "", .state = FileState::ok});
                batch.symbols.push_back({.file = 1, .offset = 64, .name = "inner", .demangled = ""});
                batch.symbols.push_back({.file = 1, .offset = 128, .name = "outer", .demangled = ""});
            }
            batch.covered_until_ns = 4'000'000'000;
            ASSERT_TRUE(writer->commit(batch));
        }
        ASSERT_TRUE(writer->end_session());
        snapshot_ = open_snapshot(directory_.path());
        auto engine = SqlEngine::open();
        ASSERT_TRUE(engine) << engine.error().message;
        engine_ = std::move(*engine);
    }

    Result<SqlAnswer> run(const std::string& sql, std::optional<uint32_t> uid = std::nullopt) {
        SqlQuery query;
        query.sql = sql;
        query.filter.uid = uid;
        return engine_->run(*snapshot_, query);
    }
    json rows(const std::string& sql, std::optional<uint32_t> uid = std::nullopt) {
        auto answer = run(sql, uid);
        EXPECT_TRUE(answer) << sql << ": " << (answer ? "" : answer.error().message);
        return answer ? answer->rows : json("failed");
    }
    Error error(const std::string& sql) {
        auto answer = run(sql);
        EXPECT_FALSE(answer) << sql;
        return answer ? Error{} : answer.error();
    }
    template <class Holds>
    uint64_t count(const Holds& holds) const {
        return static_cast<uint64_t>(std::count_if(rows_.begin(), rows_.end(), holds));
    }
    std::string plan(const std::string& sql) {
        SqlQuery query;
        query.sql = sql;
        query.explain = true;
        auto answer = engine_->run(*snapshot_, query);
        return answer ? answer->rows.dump() : answer.error().message;
    }

    TemporaryDirectory directory_;
    std::vector<Event> rows_ = make_rows();
    std::unique_ptr<StoreSnapshot> snapshot_;
    std::unique_ptr<SqlEngine> engine_;
};

std::vector<std::string> published() {
    std::ifstream file(INGERO_PUBLISHED_SQL);
    std::vector<std::string> statements;
    for (std::string line; std::getline(file, line);)
        if (!line.empty() && !line.starts_with("--")) statements.push_back(line);
    return statements;
}

TEST_F(SqlTest, PublishedStatementsRunUnchanged) {
    const auto statements = published();
    ASSERT_GE(statements.size(), 20u);
    for (const std::string& sql : statements) {
        const auto answer = run(sql);
        EXPECT_TRUE(answer) << sql << ": " << answer.error().message;
    }
}

TEST_F(SqlTest, AllocationsByHalfMinuteAreThoseOfTheRows) {
    struct Sums {
        uint64_t count = 0, total = 0, most = 0, bytes = 0;
    };
    std::map<uint64_t, Sums> expected;
    for (const Event& event : rows_) {
        if (event.op != 0x0101) continue;
        Sums& sums = expected[(event.start_ns + realtime_offset) / 30'000'000'000 * 30];
        ++sums.count;
        sums.total += event.duration_ns;
        sums.most = std::max(sums.most, event.duration_ns);
        sums.bytes += event.args[0];
    }
    json wanted = json::array();
    for (const auto& [second, sums] : expected)
        wanted.push_back({second, sums.count, static_cast<double>(sums.total) / static_cast<double>(sums.count) / 1000,
                          sums.most / 1000, sums.bytes / 1'048'576});
    EXPECT_EQ(rows(published().at(0)), wanted);
}

TEST_F(SqlTest, ProcessesAndOperationsAreCountedAsTheyAre) {
    const uint64_t trainers = count([](const Event& e) { return e.tgid != 300; });
    EXPECT_EQ(rows(published().at(1)),
              json::array({json::array({"trainer", trainers}), json::array({"server", rows_.size() - trainers})}));
    std::map<std::string, uint64_t> by_op, by_source;
    for (const Event& event : rows_) {
        ++by_op[op_name(event.op)];
        ++by_source[sql_source_name(op_source(event.op))];
    }
    json wanted = json::array();
    for (const auto& [op, n] : by_op) wanted.push_back({op, n});
    EXPECT_EQ(rows("SELECT op, COUNT(*) FROM events GROUP BY op"), wanted);
    std::reverse(wanted.begin(), wanted.end());
    EXPECT_EQ(rows("SELECT op, COUNT(*) FROM events GROUP BY op ORDER BY op DESC"), wanted);
    wanted = json::array();
    for (const auto& [source, n] : by_source) wanted.push_back({"node-1", source, n});
    EXPECT_EQ(rows("SELECT node, source, COUNT(*) FROM events GROUP BY node, source"), wanted);
    EXPECT_EQ(by_source.count("source-99"), 1u);
}

TEST_F(SqlTest, NamesWorkWhereverTheyStand) {
    const uint64_t mallocs = count([](const Event& e) { return e.op == 0x0101; });
    const uint64_t launches = count([](const Event& e) { return e.op == 0x0103; });
    const auto one = [&](const std::string& where) { return rows("SELECT COUNT(*) FROM events " + where)[0][0]; };
    EXPECT_EQ(one("WHERE op = 'cudaMalloc'"), mallocs);
    EXPECT_EQ(one("WHERE 'cudaMalloc' = op"), mallocs);
    EXPECT_EQ(one("WHERE op = 'cudaMalloc' OR op = 'cudaLaunchKernel'"), mallocs + launches);
    EXPECT_EQ(one("WHERE op = 'cudaMalloc' OR duration < 0"), mallocs);
    EXPECT_EQ(one("WHERE op IN ('cudaMalloc', 'cudaLaunchKernel', 'nothing')"), mallocs + launches);
    EXPECT_EQ(one("WHERE op NOT IN ('cudaMalloc', 'cudaLaunchKernel')"), rows_.size() - mallocs - launches);
    EXPECT_EQ(one("WHERE op != 'cudaMalloc'"), rows_.size() - mallocs);
    EXPECT_EQ(one("WHERE op LIKE 'CUDAMALL%'"), mallocs);
    EXPECT_EQ(one("WHERE op GLOB 'cudaMall*'"), mallocs);
    EXPECT_EQ(one("WHERE op NOT LIKE 'cudaMall%'"), rows_.size() - mallocs);
    EXPECT_EQ(one("WHERE op = 'CUDAMALLOC' COLLATE NOCASE"), mallocs);
    EXPECT_EQ(one("WHERE op = 'cudamalloc'"), 0);
    EXPECT_EQ(one("WHERE op = NULL"), 0);
    EXPECT_EQ(rows("SELECT SUM(CASE op WHEN 'cudaMalloc' THEN 1 ELSE 0 END) FROM events")[0][0], mallocs);
    EXPECT_EQ(rows("SELECT op FROM events GROUP BY op HAVING op = 'cudaMalloc'"), (json{{"cudaMalloc"}}));
}

TEST_F(SqlTest, OldNumbersOfOperationsAndSourcesAreUnderstood) {
    const auto one = [&](const std::string& where) { return rows("SELECT COUNT(*) FROM events " + where)[0][0]; };
    const uint64_t launches = count([](const Event& e) { return e.op == 0x0103; });
    EXPECT_EQ(one("WHERE source = 1 AND op = 3"), launches);
    EXPECT_EQ(one("WHERE op = 3"), launches + count([](const Event& e) { return e.op == 0x6303; }));
    EXPECT_EQ(one("WHERE source = 'CUDA' AND op IN (1, 3)"),
              launches + count([](const Event& e) { return e.op == 0x0101; }));
    EXPECT_EQ(one("WHERE source_num = 1 AND op_num = 3"), launches);
}

TEST_F(SqlTest, ConditionsThatBlocksAnswerLeaveWhatSqliteWould) {
    // The same condition twice: as the blocks take it, and hidden from them by a unary plus.
    const std::string from = std::to_string(realtime_offset + 700'000'000),
                      to = std::to_string(realtime_offset + 900'000'000);
    const std::vector<std::string> values = {
        "100", "200.0", "150.5",     "'100'", "'abc'", "NULL",        "1e30", "-1e30", "x'31'", "9223372036854775807",
        from,  to,      from + ".0", "60000", "0",     "(SELECT 100)"};
    for (const char* column :
         {"pid", "tid", "timestamp", "duration", "id", "start_ns", "duration_ns", "rowid", "op_num", "source_num"})
        for (const char* operation : {"=", "<", "<=", ">", ">=", "IS"})
            for (const std::string& value : values) {
                const std::string condition = std::string(column) + " " + operation + " " + value;
                const std::string hidden =
                    "+" + std::string(column) + " " + operation + " CAST(" + value + " AS NUMERIC)";
                const bool is_text = value.starts_with("'") || value.starts_with("x");
                const std::string compared = is_text && value != "'100'" ? "+" + condition : hidden;
                EXPECT_EQ(rows("SELECT COUNT(*), SUM(id) FROM events WHERE " + condition),
                          rows("SELECT COUNT(*), SUM(id) FROM events WHERE " +
                               (value == "NULL" ? "+" + condition : compared)))
                    << condition;
            }
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events WHERE ret_code != 0")[0][0],
              count([](const Event& e) { return e.return_code != 0; }));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events WHERE error IS NOT NULL")[0][0],
              count([](const Event& e) { return e.return_code != 0; }));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events WHERE pid IN (100, 300) AND tid BETWEEN 101 AND 301")[0][0],
              count([](const Event& e) { return e.tgid != 200 && e.tid >= 101 && e.tid <= 301; }));
}

TEST_F(SqlTest, RowsComeInOrderOfTime) {
    std::vector<std::pair<uint64_t, uint64_t>> expected;
    for (const Event& event : rows_)
        if (event.duration_ns > 60'000) expected.emplace_back(event.start_ns + realtime_offset, event.sequence);
    std::sort(expected.begin(), expected.end());
    const auto check = [&](const json& answer, const auto& wanted) {
        ASSERT_EQ(answer.size(), wanted.size());
        std::set<std::pair<uint64_t, uint64_t>> seen;
        for (size_t i = 0; i < wanted.size(); ++i) {
            ASSERT_EQ(answer[i][0], wanted[i].first) << i;
            seen.emplace(answer[i][0], answer[i][1]);
        }
        EXPECT_EQ(seen, std::set(wanted.begin(), wanted.end()));
    };
    const std::string sql = "SELECT timestamp, id FROM events WHERE duration > 60000 ORDER BY timestamp";
    check(rows(sql), expected);
    std::reverse(expected.begin(), expected.end());
    check(rows(sql + " DESC"), expected);
    EXPECT_THAT(plan(sql), HasSubstr("in order of time"));
    EXPECT_THAT(plan(sql), Not(HasSubstr("sorts")));
}

TEST_F(SqlTest, GroupsOfProcessesNeedNoSorting) {
    const std::string sql = "SELECT pid, op, COUNT(*) FROM events GROUP BY pid, op";
    EXPECT_THAT(plan(sql), Not(HasSubstr("sorts")));
    EXPECT_EQ(rows(sql), rows("SELECT +pid, +op, COUNT(*) FROM events GROUP BY 1, 2 ORDER BY 1, 2"));
    EXPECT_EQ(rows("SELECT DISTINCT pid FROM events ORDER BY pid DESC"), (json{{300}, {200}, {100}}));
}

TEST_F(SqlTest, TheLastWaitIsNullWhereItIsNotKnown) {
    const json all =
        rows("SELECT last_wait_ns, last_runnable_ns, last_blocked_on, tail_ns FROM events ORDER BY id LIMIT 300");
    ASSERT_EQ(all.size(), 300u);
    for (size_t i = 0; i < all.size(); ++i) {
        const Event& e = rows_[i];
        const json wanted = {e.last_wait_ns, e.last_runnable_ns,
                             e.last_reason == BlockedReason::none ? json() : json("futex"), e.tail_ns};
        EXPECT_EQ(all[i], e.last_wait_ns == 0 ? json({nullptr, nullptr, nullptr, nullptr}) : wanted);
    }
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events WHERE tail_ns = 0")[0][0],
              count([](const Event& e) { return e.last_wait_ns != 0 && e.tail_ns == 0; }));
}

TEST_F(SqlTest, ColumnsSayWhatTheRowsSay) {
    const json all = rows(
        "SELECT id, timestamp, end_ns, duration, pid, tid, arg0, arg1, arg2, ret_code, on_cpu_ns, runnable_ns, "
        "blocked_ns, "
        "blocked_on, preemptor, preemptor_pid, device, comm, bytes, direction, error, syscall, cgroup_id != 0, "
        "stack_hash, "
        "op_num, source_num FROM events ORDER BY id LIMIT 300");
    ASSERT_EQ(all.size(), 300u);
    constexpr const char* directions[] = {"H2H", "H2D", "D2H", "D2D", "default"};
    for (size_t i = 0; i < all.size(); ++i) {
        const Event& e = rows_[i];
        const bool copy = e.op == 0x0107, alloc = e.op == 0x0101, blocked = e.blocked_ns != 0;
        const json wanted = {e.sequence,
                             e.start_ns + realtime_offset,
                             e.end_ns() + realtime_offset,
                             e.duration_ns,
                             e.tgid,
                             e.tid,
                             e.args[0],
                             e.args[1],
                             e.args[2],
                             e.return_code,
                             e.on_cpu_ns(),
                             e.runnable_ns,
                             e.blocked_ns,
                             blocked ? json("futex") : json(),
                             blocked ? json("hog") : json(),
                             blocked ? json(4'000) : json(),
                             e.device,
                             e.tgid == 300 ? "server" : "trainer",
                             copy || alloc ? json(e.args[0]) : json(),
                             copy && e.args[1] < 5 ? json(directions[e.args[1]]) : json(),
                             e.return_code == 0         ? json()
                             : !is_call(e.op)           ? json("ENOENT")
                             : e.op >> 8 == source_nccl ? json("ncclSystemError")
                             : is_driver_op(e.op)       ? json("CUDA_ERROR_OUT_OF_MEMORY")
                                                        : json("cudaErrorMemoryAllocation"),
                             blocked ? json("syscall-9999") : json(),
                             1,
                             e.stack,
                             e.op & 0xff,
                             e.op >> 8};
        EXPECT_EQ(all[i], wanted) << i;
    }
}

TEST_F(SqlTest, FamiliesHoldTheirSources) {
    const auto of = [&](std::set<int> sources) {
        return count([&](const Event& e) { return sources.count(e.op >> 8); });
    };
    EXPECT_EQ(rows("SELECT COUNT(*) FROM cuda_events")[0][0], of({1, 4, 8}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM host_events")[0][0], of({3}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM io_events")[0][0], of({5}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM net_events")[0][0], of({6, 7}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM nccl_events WHERE source = 'NCCL'")[0][0], of({9}));
    EXPECT_EQ(rows("SELECT SUM(stored) FROM event_aggregates")[0][0], rows_.size());
}

TEST_F(SqlTest, FunctionsPeopleNeed) {
    std::vector<uint64_t> durations;
    for (const Event& event : rows_)
        if (event.op == 0x0101) durations.push_back(event.duration_ns);
    std::sort(durations.begin(), durations.end());
    const auto rank = [&](double p) {
        return durations[static_cast<size_t>(
                             std::max(1.0, std::ceil(p * static_cast<double>(durations.size()) / 100))) -
                         1];
    };
    EXPECT_EQ(rows("SELECT percentile(duration, 0), percentile(duration, 50), percentile(duration, 99), "
                   "percentile(duration, 100) FROM events WHERE op = 'cudaMalloc'"),
              (json{{durations.front(), rank(50), rank(99), durations.back()}}));
    EXPECT_EQ(rows("SELECT percentile(duration, 50) FROM events WHERE pid = 1"), (json{{nullptr}}));
    EXPECT_EQ(rows("SELECT percentile(x, 50) FROM (SELECT 1 AS x UNION ALL SELECT 2.5 UNION ALL SELECT 9)"),
              (json{{2.5}}));
    EXPECT_EQ(rows("SELECT time_bucket(119999999999, '1m'), time_bucket(-1, '1s'), time_bucket(NULL, '1s')"),
              (json{{60'000'000'000, -1'000'000'000, nullptr}}));
    EXPECT_EQ(rows("SELECT op_name(3), op_name(1, 4), op_name(259), op_name(-1)"),
              (json{{"cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernel", nullptr}}));
    EXPECT_EQ(rows("SELECT bytes_h(1073741824), bytes_h(NULL)"),
              json::array({json::array({format_bytes(1 << 30), nullptr})}));
    EXPECT_THAT(error("SELECT percentile(duration, 101) FROM events").message, HasSubstr("from 0 to 100"));
    EXPECT_THAT(error("SELECT time_bucket(timestamp, 'x') FROM events").message, HasSubstr("width"));
}

TEST_F(SqlTest, OneUserSeesRowsOfOwnProcessesOnly) {
    const uint64_t own = count([](const Event& e) { return e.tgid == 300; });
    EXPECT_EQ(rows("SELECT COUNT(*), MIN(pid), MAX(pid) FROM events", 2000), (json{{own, 300, 300}}));
    EXPECT_EQ(rows("SELECT pid FROM events GROUP BY pid", 2000), (json{{300}}));
    EXPECT_EQ(rows("SELECT DISTINCT pid FROM (SELECT pid FROM events ORDER BY timestamp)", 2000), (json{{300}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events WHERE pid = 100", 2000)[0][0], 0);
    EXPECT_EQ(rows("SELECT SUM(stored) FROM event_aggregates", 2000)[0][0], own);
    EXPECT_EQ(rows("SELECT name FROM process_names", 2000), (json{{"server"}}));
    EXPECT_EQ(rows("SELECT cgroup_path FROM cgroup_metadata", 2000), (json{{"/system.slice/b"}}));
    EXPECT_EQ(rows("SELECT hash FROM stack_traces", 2000), (json{{2}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events", 4711)[0][0], 0);
    // What one was told is not there for the next.
    EXPECT_EQ(rows("SELECT name FROM process_names", 4711), json::array());
    EXPECT_EQ(rows("SELECT COUNT(*) FROM process_names")[0][0], 3);
}

TEST_F(SqlTest, SmallTablesHoldWhatTheStoreHas) {
    EXPECT_EQ(rows("SELECT stack, pid, \"end\" FROM stack_traces WHERE hash = 1"),
              json::array({{"outer;inner", 100, "whole"}}));
    EXPECT_EQ(
        rows("SELECT json_extract(frames, '$[0].s'), json_extract(frames, '$[0].f') FROM stack_traces WHERE hash = 1"),
        json::array({json::array({"inner", "libx.so"})}));
    EXPECT_EQ(rows("SELECT op, lost FROM coverage WHERE kind = 'loss'"),
              json::array({json::array({"cudaLaunchKernel", 17})}));
    EXPECT_EQ(rows("SELECT node, kernel, ingero_ver, stopped_at > 0 FROM sessions"),
              (json{{"node-1", "6.1.0-test", "0.1.0", 1}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM sources WHERE id = 'CUDA'")[0][0], 1);
    for (const SqlTableInfo& table : sql_tables()) {
        const auto answer = run("SELECT * FROM " + std::string(table.name) + " LIMIT 1");
        ASSERT_TRUE(answer) << table.name << ": " << answer.error().message;
        ASSERT_EQ(answer->columns.size(), table.columns.size()) << table.name;
        for (size_t i = 0; i < table.columns.size(); ++i) EXPECT_EQ(answer->columns[i].name, table.columns[i].name);
        EXPECT_EQ(
            rows("SELECT COUNT(*) FROM schema_columns WHERE table_name = '" + std::string(table.name) + "'")[0][0],
            table.columns.size());
    }
}

TEST_F(SqlTest, AWindowLeavesWhatOverlapsIt) {
    SqlQuery query;
    query.sql = "SELECT COUNT(*) FROM events";
    query.whole_trace = false;
    query.filter.window = {realtime_offset + 700'000'000, realtime_offset + 900'000'000};
    const auto answer = engine_->run(*snapshot_, query);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->rows[0][0],
              count([](const Event& e) { return e.start_ns < 900'000'000 && e.end_ns() > 700'000'000; }));
    EXPECT_EQ(answer->window.from_ns, query.filter.window.from_ns);
    query.filter.pid = 200;
    EXPECT_EQ(engine_->run(*snapshot_, query)->rows[0][0], count([](const Event& e) {
                  return e.tgid == 200 && e.start_ns < 900'000'000 && e.end_ns() > 700'000'000;
              }));
}

// A recorder before this one took the statement and did not look at it.
TEST_F(SqlTest, EveryStatementIsAnsweredByItself) {
    EXPECT_EQ(rows("SELECT 1 + 1"), (json{{2}}));
    EXPECT_EQ(rows("SELECT 'x' AS y"), (json{{"x"}}));
    EXPECT_EQ(run("SELECT 'x' AS y")->columns.at(0).name, "y");
    EXPECT_NE(rows("SELECT COUNT(*) FROM events"), rows("SELECT COUNT(*) FROM events WHERE pid = 100"));
    EXPECT_EQ(error("SELECT nonsense FROM events").code, ErrorCode::bad_request);
    EXPECT_EQ(error("").code, ErrorCode::bad_request);
    EXPECT_EQ(error(" -- nothing\n ;").code, ErrorCode::bad_request);
}

// A recorder before this one had a read-only mode that looked for words, and deleted where a newline followed one.
TEST_F(SqlTest, NothingButReadingIsDone) {
    const std::string before = read_file(directory_.data_file());
    for (const char* sql : {"DELETE FROM events",
                            "DELETE\nFROM process_names",
                            "DELETE\tFROM\tprocess_names WHERE 1",
                            "WITH x AS (SELECT 1) DELETE FROM process_names",
                            "INSERT INTO ops VALUES (1,1,1,1,1,1)",
                            "REPLACE INTO ops VALUES (1,1,1,1,1,1)",
                            "UPDATE ops SET name = 'x'",
                            "DROP TABLE ops",
                            "DROP VIEW event_aggregates",
                            "CREATE TABLE t(x)",
                            "CREATE TEMP TABLE t(x)",
                            "CREATE TABLE t AS SELECT 1",
                            "CREATE VIEW v AS SELECT 1",
                            "CREATE TEMP TRIGGER t AFTER INSERT ON ops BEGIN SELECT 1; END",
                            "CREATE INDEX i ON ops(name)",
                            "CREATE VIRTUAL TABLE t USING ingero_events()",
                            "ALTER TABLE ops RENAME TO oops",
                            "ATTACH 'x.db' AS x",
                            "DETACH main",
                            "VACUUM",
                            "VACUUM INTO '/tmp/x.db'",
                            "ANALYZE",
                            "REINDEX",
                            "BEGIN",
                            "COMMIT",
                            "SAVEPOINT s",
                            "PRAGMA writable_schema = 1",
                            "PRAGMA journal_mode = WAL",
                            "PRAGMA temp_store = FILE",
                            "PRAGMA hard_heap_limit = 0",
                            "PRAGMA case_sensitive_like = 1",
                            "SELECT load_extension('x')",
                            "EXPLAIN DELETE FROM ops",
                            "SELECT * FROM pragma_hard_heap_limit(0)"}) {
        const Error refused = error(sql);
        EXPECT_TRUE(refused.code == ErrorCode::denied || refused.code == ErrorCode::bad_request)
            << sql << ": " << refused.message;
        if (std::string_view(sql).starts_with("SELECT")) continue;  // SQLite itself has no such thing here
        EXPECT_EQ(refused.code, ErrorCode::denied) << sql;
    }
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events")[0][0], rows_.size());
    EXPECT_EQ(rows("SELECT COUNT(*) FROM process_names")[0][0], 3);
    EXPECT_EQ(read_file(directory_.data_file()), before);
    // Words are not what is looked at.
    EXPECT_EQ(rows("SELECT 'delete from events; drop table ops' AS \"insert \""),
              (json{{"delete from events; drop table ops"}}));
    EXPECT_EQ(rows("SELECT name FROM pragma_table_info('ops') LIMIT 1"), (json{{"source_id"}}));
}

void stranger(sqlite3_context* call, int, sqlite3_value**) {
    sqlite3_result_int(call, 1);
}
int add_stranger(sqlite3* database, char**, const sqlite3_api_routines*) {
    return sqlite3_create_function(database, "stranger", 0, SQLITE_UTF8 | SQLITE_INNOCUOUS, nullptr, stranger, nullptr,
                                   nullptr);
}

// Some of SQLite's own functions tell addresses of the program, or call what lies at one.
TEST_F(SqlTest, OnlyFunctionsOnTheListAreCalled) {
    const auto extension = reinterpret_cast<void (*)()>(add_stranger);
    ASSERT_EQ(sqlite3_auto_extension(extension), SQLITE_OK);
    auto engine = SqlEngine::open();
    sqlite3_cancel_auto_extension(extension);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
    std::set<std::string> refused, called;
    for (const json& function : rows("SELECT DISTINCT name, narg FROM pragma_function_list")) {
        const auto name = function[0].get<std::string>();
        std::string call = "SELECT \"" + name + "\"(";
        const int64_t arguments = std::max<int64_t>(function[1].get<int64_t>(), 0);
        for (int64_t i = 0; i < arguments; ++i) call += i == 0 ? "NULL" : ", NULL";
        const auto answer = run(call + ")");
        const bool is_refused = !answer && answer.error().code == ErrorCode::denied;
        EXPECT_EQ(is_refused, !may_be_called(name)) << name << ": " << (answer ? "" : answer.error().message);
        (is_refused ? refused : called).insert(name);
    }
    EXPECT_EQ(refused.count("stranger"), 1u) << "a function that nobody knows";
    for (const SqlFunctionInfo& own : sql_functions())
        EXPECT_EQ(called.count(std::string(own.call.substr(0, own.call.find('(')))), 1u) << own.call;
    for (const char* call :
         {"stranger()", "fts3_tokenizer('simple')", "FTS3_Tokenizer('simple', x'0000000000000000')",
          "load_extension('x')", "(SELECT max(fts3_tokenizer('simple')) FROM ops)", "fts5(NULL)", "rtreenode(1, x'00')",
          "sqlite_compileoption_get(1)", "changes()", "'a' MATCH 'b'", "'a' REGEXP 'b'"}) {
        const Error failure = error("SELECT " + std::string(call));
        // Builds of SQLite differ in what they have.
        const bool is_absent = failure.message.find("no such function") != std::string::npos;
        EXPECT_TRUE(is_absent || failure.code == ErrorCode::denied) << call << ": " << failure.message;
    }
    EXPECT_THAT(error("SELECT stranger()").message, HasSubstr("cannot call stranger()"));
    EXPECT_EQ(rows("SELECT 'b' LIKE 'B', 'b' GLOB 'B', '[7]' ->> 0, upper('x'), coalesce(NULL, 2)"),
              (json{{1, 0, 7, "X", 2}}));
}

TEST_F(SqlTest, OnlyTablesOnTheListAreRead) {
    for (const char* table : {"dbstat", "sqlite_stmt", "fts3tokenize", "fts3tokenize('simple', 'a b')", "fts5vocab",
                              "rtree", "sqlite_temp_master", "sqlite_sequence", "pragma_module_list",
                              "pragma_database_list", "pragma_compile_options", "bytecode('SELECT 1')"})
        for (const char* what : {"*", "COUNT(*)"})
            EXPECT_FALSE(run("SELECT " + std::string(what) + " FROM " + table)) << what << " " << table;
    EXPECT_EQ(rows("SELECT SUM(value) FROM json_each('[1, 2]')"), (json{{3}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM json_tree('[1, 2]')"), (json{{3}}));
    EXPECT_EQ(rows("SELECT COUNT(*) FROM sqlite_schema WHERE name = 'events'"), (json{{1}}));
    EXPECT_EQ(rows("WITH dbstat AS (SELECT 1 AS x UNION SELECT 2) SELECT COUNT(*) FROM dbstat"), (json{{2}}));
    EXPECT_EQ(rows("SELECT SUM(x) FROM (SELECT 1 AS x UNION SELECT 2) AS y"), (json{{3}}));
}

TEST_F(SqlTest, OneStatementAtATime) {
    EXPECT_EQ(rows("SELECT 1; -- and a comment\n /* two */ ;"), (json{{1}}));
    EXPECT_THAT(error("SELECT 1; SELECT 2").message, HasSubstr("only one statement"));
    EXPECT_THAT(error("SELECT 1; garbage").message, HasSubstr("only one statement"));
    EXPECT_EQ(error(std::string("SELECT 1\0SELECT 2", 17)).code, ErrorCode::bad_request);
    EXPECT_THAT(error("SELECT ?").message, HasSubstr("parameters"));
}

TEST_F(SqlTest, FailuresSayWhatThereIs) {
    const Error column = error("SELECT dur FROM events");
    EXPECT_THAT(column.message, HasSubstr("no such column: dur"));
    EXPECT_THAT(column.hint, HasSubstr("columns of events: id, timestamp"));
    EXPECT_THAT(error("SELECT \"dur\" FROM events").message, HasSubstr("no such column"));
    EXPECT_THAT(error("SELECT * FROM event").hint, HasSubstr("tables: events, cuda_events"));
    EXPECT_THAT(error("SELECT median(duration) FROM events").hint, HasSubstr("percentile(x, p)"));
    EXPECT_THAT(error("SELEC 1").message, HasSubstr("syntax error"));
}

TEST_F(SqlTest, LimitsBiteWithAWordOfTheirOwn) {
    SqlQuery query;
    query.sql = "SELECT id FROM events";
    auto answer = engine_->run(*snapshot_, query);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->rows.size(), default_sql_rows);
    EXPECT_TRUE(answer->truncated);
    query.limit = rows_.size();
    answer = engine_->run(*snapshot_, query);
    EXPECT_EQ(answer->rows.size(), rows_.size());
    EXPECT_FALSE(answer->truncated);

    query.deadline = std::chrono::milliseconds(50);
    query.sql = "SELECT COUNT(*) FROM events a, events b, events c WHERE a.duration + b.duration > c.duration";
    auto failed = engine_->run(*snapshot_, query);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::deadline);
    query.sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT SUM(x) FROM n";
    EXPECT_EQ(engine_->run(*snapshot_, query).error().code, ErrorCode::deadline);

    query = {};
    query.memory_bytes = 8 << 20;
    query.sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION SELECT x + 1 FROM n LIMIT 10000000) SELECT COUNT(*) FROM n";
    failed = engine_->run(*snapshot_, query);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::limit);
    EXPECT_THAT(failed.error().message, HasSubstr("8 MiB"));
    EXPECT_EQ(error("SELECT length(zeroblob(1000000000))").code, ErrorCode::limit);
    EXPECT_EQ(rows("SELECT COUNT(*) FROM events")[0][0], rows_.size());
}

TEST_F(SqlTest, ADamagedBlockIsToldOfAndNotLeftOut) {
    std::string bytes = read_file(directory_.data_file());
    const size_t block = bytes.find("GIBK") == std::string::npos ? bytes.find("IGBK") : bytes.find("GIBK");
    ASSERT_NE(block, std::string::npos);
    snapshot_.reset();
    bytes[block + 1'500] = static_cast<char>(~bytes[block + 1'500]);
    write_file(directory_.data_file(), bytes);
    snapshot_ = open_snapshot(directory_.path());
    ASSERT_NE(snapshot_, nullptr);
    EXPECT_EQ(error("SELECT SUM(duration), SUM(arg0), SUM(tid) FROM events").code, ErrorCode::corrupt);
}

TEST_F(SqlTest, PlansAreInWords) {
    const std::string sql =
        "SELECT op, COUNT(*) FROM events WHERE timestamp > 5 AND pid = 100 AND op LIKE 'cuda%' GROUP BY op";
    EXPECT_THAT(plan(sql), HasSubstr("reads events: only blocks and rows with"));
    for (const char* part : {"timestamp >", "pid =", "op LIKE", "; by op"}) EXPECT_THAT(plan(sql), HasSubstr(part));
    EXPECT_THAT(plan("SELECT tid, COUNT(*) FROM events GROUP BY tid"), HasSubstr("sorts the rows for GROUP BY"));
}

/// One process of a boot that began at `booted_ns` of the wall clock.
void write_boot(const std::string& directory, const std::string& node, uint64_t booted_ns, uint32_t pid) {
    StoreOptions options;
    options.clock = [booted_ns] { return ClockTriple{5'000, 5'000, booted_ns + 5'000}; };
    const auto writer = open_writer(directory, options);
    Session session = make_session("boot of " + node);
    session.node = node;
    session.clock = options.clock();
    ASSERT_TRUE(writer->begin_session(session));
    Batch batch;
    Process& process = batch.processes.emplace_back();
    process.key = {pid, 6'000};
    process.comm = "trainer";
    process.first_seen_ns = 7'000;
    process.exited_ns = 8'000;
    CommunicatorRow& communicator = batch.communicators.emplace_back();
    communicator.process = process.key;
    communicator.id = 1;
    communicator.seen_ns = 9'000;
    ASSERT_TRUE(writer->commit(batch));
}

TEST(SqlOfSeveralBoots, GivesEachProcessTheNodeAndTheClockOfItsOwnBoot) {
    const TemporaryDirectory directory;
    write_boot(directory.path(), "alpha", 1'000'000, 100);
    write_boot(directory.path(), "beta", 2'000'000, 200);
    write_boot(directory.path(), "gamma", 3'000'000, 300);
    const auto snapshot = open_snapshot(directory.path());
    const auto engine = SqlEngine::open();
    ASSERT_TRUE(snapshot && engine);
    const auto rows = [&](const char* sql) {
        SqlQuery query;
        query.sql = sql;
        const auto answer = (*engine)->run(*snapshot, query);
        return answer ? answer->rows : json(answer.error().message);
    };
    EXPECT_EQ(rows("SELECT pid, node, seen_at, exited_at FROM process_names ORDER BY pid"),
              (json{{100, "alpha", 1'007'000, 1'008'000},
                    {200, "beta", 2'007'000, 2'008'000},
                    {300, "gamma", 3'007'000, 3'008'000}}));
    EXPECT_EQ(rows("SELECT pid, node, start_time_ns, first_seen_ns, exited_ns FROM processes ORDER BY pid"),
              (json{{100, "alpha", 1'006'000, 1'007'000, 1'008'000},
                    {200, "beta", 2'006'000, 2'007'000, 2'008'000},
                    {300, "gamma", 3'006'000, 3'007'000, 3'008'000}}));
    EXPECT_EQ(rows("SELECT pid, node, seen_at FROM communicators ORDER BY pid"),
              (json{{100, "alpha", 1'009'000}, {200, "beta", 2'009'000}, {300, "gamma", 3'009'000}}));
}

}  // namespace
}  // namespace ingero
