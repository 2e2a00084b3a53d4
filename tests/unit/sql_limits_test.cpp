// What SQL refuses: all that does more than read, that is not on the list, or that takes too much.
#include "core/render/render.h"
#include "core/sql/events/event_index.h"
#include "core/wire/value.h"
#include "core/wire/worker_protocol.h"
#include "tests/unit/sql_fixture.h"

namespace ingero {
namespace {

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
    // One user's coverage is made of rows, which takes its time too.
    query.sql = "SELECT 1";
    query.filter.uid = 1'000;
    query.deadline = std::chrono::milliseconds(0);
    failed = engine_->run(*snapshot_, query);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::deadline);
    EXPECT_THAT(failed.error().message, HasSubstr("the query took longer than 0 s"));

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

TEST_F(SqlTest, AnAnswerIsCutBeforeItIsTooLargeForAMessage) {
    for (const int columns : {1, 9, 500}) {
        SqlQuery query;
        query.sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000) SELECT x";
        for (int i = 1; i < columns; ++i) query.sql += ", x";
        query.sql += " FROM n";
        query.limit = most_sql_rows;
        auto answer = engine_->run(*snapshot_, query);
        ASSERT_TRUE(answer) << answer.error().message;
        const size_t fit = std::min<size_t>(most_sql_rows, 980'000 / (static_cast<size_t>(columns) + 1));
        EXPECT_GE(answer->rows.size(), fit) << columns << " columns";
        EXPECT_EQ(answer->truncated, columns > 1);
        EXPECT_TRUE(fits_in_message(to_json(std::move(*answer), {}), worker_rpc_limits)) << columns << " columns";
    }
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
    const std::string from = " FROM events WHERE timestamp > 5 AND pid = 100 AND op LIKE 'cuda%' GROUP BY op";
    const std::string rows = plan("SELECT op, percentile(duration, 50)" + from);
    const std::string sums = plan("SELECT op, timestamp / 60, count(*)" + from + ", 2");
    for (const std::string& words : {rows, sums}) {
        EXPECT_THAT(words, HasSubstr("reads events: rows where "));
        for (const char* part : {"timestamp >", "pid =", "op LIKE"}) EXPECT_THAT(words, HasSubstr(part));
    }
    EXPECT_THAT(rows, HasSubstr("; grouped by op"));
    EXPECT_THAT(sums, HasSubstr("; summed by op, timestamp / 60"));
    EXPECT_THAT(plan("SELECT tid, percentile(duration, 50) FROM events GROUP BY tid"),
                HasSubstr("sorts the rows for GROUP BY"));
}

/// So many blocks, each with a call of one process and one of another.
void write_blocks(const std::string& directory, size_t blocks) {
    StoreOptions options;
    options.clock = [] { return make_session("").clock; };
    options.owner_of = [](uint32_t uid) { return uid; };  // each user's calls are in blocks of their own
    const auto writer = open_writer(directory, options);
    ASSERT_TRUE(writer->begin_session(make_session("boot")));
    writer->set_first_covered(1'000);
    Batch batch;
    for (uint32_t uid = 1; uid <= blocks; ++uid)
        for (const uint32_t pid : {100u, 200u}) {
            Process& process = batch.processes.emplace_back();
            process.key = {pid, uid};
            process.uid = uid;
            process.first_seen_ns = 1'000;
            Event& event = batch.events.emplace_back();
            event.sequence = batch.events.size();
            event.op = 0x0101;
            event.tgid = event.tid = pid;
            event.process_start_ns = uid;
            event.start_ns = 10'000 + uid;
            event.duration_ns = pid;
        }
    batch.covered_until_ns = 1'000'000;
    ASSERT_TRUE(writer->commit(batch));
}

TEST(SqlOfManyBlocks, IsPlannedWithoutLookingIntoAllOfThem) {
    for (const size_t blocks : {EventIndex::most_decoded_blocks, EventIndex::most_decoded_blocks + 1}) {
        const TemporaryDirectory directory;
        ASSERT_NO_FATAL_FAILURE(write_blocks(directory.path(), blocks));
        const auto snapshot = open_snapshot(directory.path());
        const auto engine = SqlEngine::open();
        ASSERT_TRUE(snapshot && engine);
        EXPECT_EQ(snapshot->figures().blocks, blocks);
        SqlQuery query;
        query.sql = "SELECT pid, COUNT(*), percentile(duration, 50) FROM events WHERE timestamp > 0 GROUP BY pid";
        auto answer = (*engine)->run(*snapshot, query);
        ASSERT_TRUE(answer) << answer.error().message;
        EXPECT_EQ(answer->rows, (json{{100, blocks, 100}, {200, blocks, 200}}));
        query.explain = true;
        answer = (*engine)->run(*snapshot, query);
        ASSERT_TRUE(answer) << answer.error().message;
        const bool sorts = blocks > EventIndex::most_decoded_blocks;
        EXPECT_EQ(answer->rows.dump().find("grouped by pid") == std::string::npos, sorts) << answer->rows.dump();
        EXPECT_EQ(answer->rows.dump().find("sorts") != std::string::npos, sorts) << answer->rows.dump();
    }
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
