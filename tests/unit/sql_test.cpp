// SQL over a store: what statements give is what the rows say.
#include "tests/unit/sql_fixture.h"

namespace ingero {
namespace {

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
    const std::string sql = "SELECT pid, op, COUNT(*), percentile(duration, 50) FROM events GROUP BY ";
    EXPECT_THAT(plan(sql + "pid, op"), Not(HasSubstr("sorts")));
    EXPECT_EQ(rows(sql + "pid, op"), rows(sql + "+pid, +op"));
    EXPECT_EQ(rows("SELECT DISTINCT pid FROM events ORDER BY pid DESC"), (json{{300}, {200}, {100}}));
}

TEST_F(SqlTest, TheLongestCallsAreFoundWithoutSortingAll) {
    const std::string later = " WHERE timestamp >= " + std::to_string(realtime_offset + 700'000'000);
    for (const std::string& where : std::vector<std::string>{
             "", " WHERE pid = 100", " WHERE op = 'cudaMalloc' AND duration_ns < 60000",
             " WHERE pid IN (100, 300) AND duration > 50000", " WHERE duration % 3 = 1", " WHERE ret_code <> 0", later})
        for (const std::string order : {"duration DESC", "duration_ns DESC", "duration", "duration ASC"})
            for (const std::string limit :
                 {" LIMIT 0", " LIMIT 1", " LIMIT 300", " LIMIT 20 OFFSET 7", " LIMIT 5 OFFSET 19998",
                  " LIMIT 100 OFFSET 100000", " LIMIT (SELECT 3)", " LIMIT -1 OFFSET 19990"}) {
                const std::string rest = " FROM events" + where + " ORDER BY ";
                const json found = rows("SELECT duration, op, pid, tid, id" + rest + order + limit);
                std::string compared = order;
                compared.insert(0, "+");
                json durations = json::array();
                for (const json& row : found) {
                    durations.push_back(json::array({row[0]}));
                    const Event& event = rows_[row[4].get<size_t>() - 1];
                    EXPECT_EQ(row[0], event.duration_ns);
                    EXPECT_EQ(row[1], op_name(event.op));
                    EXPECT_EQ(row[3], event.tid);
                }
                EXPECT_EQ(durations, rows("SELECT duration" + rest + compared + limit)) << where << order << limit;
                std::set<json> ids;
                for (const json& row : found) ids.insert(row[4]);
                EXPECT_EQ(ids.size(), found.size()) << "a row is there twice";
            }
    const std::string sql = "SELECT id, duration FROM events WHERE pid = 100 ORDER BY duration DESC LIMIT 5";
    EXPECT_THAT(plan(sql), HasSubstr("; the longest"));
    EXPECT_THAT(plan(sql), Not(HasSubstr("sorts")));
    EXPECT_THAT(plan("SELECT id FROM events WHERE duration % 2 = 0 ORDER BY duration LIMIT 5"), HasSubstr("sorts"));
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

TEST_F(SqlTest, AggregatesHaveNoBytesOfCallsThatFailed) {
    uint64_t bytes = 0;
    for (const Event& event : rows_)
        if (event.op == 0x0101 && event.return_code == 0) bytes += event.args[0];
    const std::string of_op = " WHERE op = '" + op_name(0x0101) + "'";
    EXPECT_EQ(rows("SELECT SUM(sum_arg0) FROM event_aggregates" + of_op)[0][0], bytes);
    EXPECT_GT(rows("SELECT SUM(bytes) FROM events" + of_op)[0][0].get<uint64_t>(), bytes) << "some failed";
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

TEST_F(SqlTest, StacksOfNoProcessAreThereForEachPidButNotForOneUser) {
    const auto stacks = [&](const Filter& filter) {
        SqlQuery query;
        query.sql = "SELECT hash, stack FROM stack_traces ORDER BY hash";
        query.filter = filter;
        const auto answer = engine_->run(*snapshot_, query);
        return answer ? answer->rows : json(answer.error().message);
    };
    const auto row = [](int hash, const char* stack) { return json::array({hash, stack}); };
    const json first = row(1, "outer;inner"), imported = row(3, "inner");
    EXPECT_EQ(stacks({}).size(), 3u);
    EXPECT_EQ(stacks({.window = {}, .uid = {}, .pid = 100}), json::array({first, imported}));
    EXPECT_EQ(stacks({.window = {}, .uid = {}, .pid = 200}), json::array({imported}));
    EXPECT_EQ(stacks({.window = {}, .uid = 1000, .pid = {}}), json::array({first}));
    EXPECT_EQ(stacks({.window = {}, .uid = 1000, .pid = 100}), json::array({first}));
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

TEST(SqlOfProcesses, ThatEndedInAnUnknownWayHasTheirEndAndNoExitCode) {
    const TemporaryDirectory directory;
    StoreOptions options;
    options.clock = [] { return ClockTriple{5'000, 5'000, 1'005'000}; };
    {
        const auto writer = open_writer(directory.path(), options);
        Session session = make_session("boot");
        session.clock = options.clock();
        ASSERT_TRUE(writer->begin_session(session));
        Batch batch;
        for (const uint32_t pid : {100, 200, 300, 400}) {
            Process& process = batch.processes.emplace_back();
            process.key = {pid, 6'000};
            process.comm = "trainer";
            process.first_seen_ns = 7'000;
            process.exited_ns = pid == 100 ? 0 : 8'000;
            process.exit_code = pid == 300 ? 9 : pid == 400 ? 0 : exit_status_unknown;
        }
        ASSERT_TRUE(writer->commit(batch));
    }
    const auto snapshot = open_snapshot(directory.path());
    const auto engine = SqlEngine::open();
    ASSERT_TRUE(snapshot && engine);
    for (const std::string end : {"exited_at, exit_code FROM process_names", "exited_ns, exit_code FROM processes"}) {
        SqlQuery query;
        query.sql = "SELECT pid, " + end + " ORDER BY pid";
        const auto answer = (*engine)->run(*snapshot, query);
        ASSERT_TRUE(answer) << answer.error().message;
        EXPECT_EQ(answer->rows, json::parse("[[100, null, null], [200, 1008000, null], [300, 1008000, 9], "
                                            "[400, 1008000, 0]]"))
            << end;
    }
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

}  // namespace
}  // namespace ingero
