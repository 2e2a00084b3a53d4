// Statements that are answered by groups of events: the answer is that of SQLite over the same rows in plain tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/sql/groups/grouped_statement.h"
#include "core/sql/groups/statement_tokens.h"
#include "tests/support/seed.h"
#include "tests/unit/sql_compared.h"

namespace ingero {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_sql::json;
using testing_sql::PlainDatabase;

class SqlGroups : public testing_sql::SqlCompared {
  protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(SqlCompared::SetUp());
        for (const SqlTableInfo& info : sql_tables())
            if (info.kind == SqlTableInfo::Kind::events)
                plain_.add_table(info, rows("SELECT * FROM " + std::string(info.name)));
    }

    struct Answered {
        json rows;
        bool by_groups = false;
    };
    Answered answer(const std::string& sql) {
        SqlQuery query;
        query.sql = sql;
        query.limit = most_sql_rows;
        const auto found = engine_->run(*snapshot_, query);
        EXPECT_TRUE(found) << sql << ": " << (found ? "" : found.error().message);
        return found ? Answered{found->rows, found->by_groups} : Answered{};
    }

    PlainDatabase plain_;
};

TEST_F(SqlGroups, AggregatesAreAnsweredByGroups) {
    const std::string within = " WHERE timestamp >= " + std::to_string(testing_sql::wall + 3 * testing_sql::minute) +
                               " AND timestamp < " + std::to_string(testing_sql::wall + 7 * testing_sql::minute);
    const std::vector<std::string> statements = {
        "SELECT count(*) FROM events",
        "SELECT COUNT(*), SUM(duration), MAX(duration) FROM events" + within,
        "SELECT op, count(*) AS n, avg(duration_ns) / 1000.0 us FROM events GROUP BY op ORDER BY us DESC, op LIMIT 4",
        "select source_num, op_num, sum(weight), min(start_ns), max(end_ns) from events group by source, op, 1, 2 "
        "order by 1, 2",
        "SELECT pid, tid, count(*), total(bytes) FROM events GROUP BY pid, tid HAVING count(*) > 2 ORDER BY 1, 2",
        "SELECT timestamp / 60000000000 * 60 AS minute, count(*) FROM events GROUP BY minute ORDER BY minute",
        "SELECT timestamp / 1000000000 AS s, COUNT(*), SUM(CASE WHEN op = 'cudaLaunchKernel' THEN 1 ELSE 0 END) "
        "FROM events GROUP BY s ORDER BY s",
        "SELECT duration / 1000000000 AS seconds, sum(weight) FROM events GROUP BY 1 ORDER BY 1",
        "SELECT e.op, sum(e.duration * e.time_weight) FROM events AS e WHERE e.pid IN (100, 101) GROUP BY e.op "
        "ORDER BY 2 DESC, 1",
        "SELECT error, count(*), count(error), count(bytes), avg(bytes) FROM events GROUP BY error ORDER BY 1",
        "SELECT DISTINCT op, source FROM events ORDER BY op DESC",
        "SELECT count(DISTINCT tid), count(DISTINCT op) FROM events WHERE ret_code <> 0",
        "SELECT comm, rank, node, cgroup_id, count(*) FROM events GROUP BY comm, rank, node, cgroup_id ORDER BY 1, 3",
        "SELECT upper(op) || '!', round(avg(duration), 2), CAST(sum(duration) AS REAL) FROM events GROUP BY op "
        "ORDER BY op",
        "SELECT direction, device, count(*) FROM cuda_events GROUP BY direction, device ORDER BY 1, 2",
        "SELECT n, total FROM (SELECT stack_hash, COUNT(*) AS n, SUM(duration) AS total FROM events WHERE op = "
        "'cudaLaunchKernel' GROUP BY stack_hash ORDER BY total DESC LIMIT 10)",
        "SELECT sum(duration), sum(runnable_ns), sum(blocked_ns), sum(on_cpu_ns) FROM events WHERE pid = "
        "(SELECT max(pid) FROM events" +
            within + ")",
        "SELECT op, \"sum(id)\" FROM (SELECT op, sum(id) FROM events GROUP BY op) ORDER BY 1",
        "SELECT count(*) FROM events WHERE op LIKE 'cuda%' AND error IS NULL AND NOT (device = 1 OR depth > 2)",
        "SELECT min(op), max(source), avg(CASE op WHEN 'cudaMalloc' THEN 10 WHEN 'x' THEN NULL ELSE 5 END), "
        "count(CASE WHEN depth = 0 THEN 1 END) FROM events /* all */ WHERE duration BETWEEN 1 AND 9e18 -- rows",
        "SELECT op, sum(duration) AS duration FROM events GROUP BY op ORDER BY duration DESC, op",
        "SELECT sum(last_wait_ns), count(tail_ns), min(waits), max(longest_sleep_ns) FROM events WHERE id > 3;",
        "SELECT source_num, op_num, sum(duration) FROM events GROUP BY source, op ORDER BY 1, 2",
        "SELECT pid, comm, gpu_id, max(duration) FROM events GROUP BY pid, device ORDER BY 1, 3",
        "SELECT max(e.pid) AS op, count(*) FROM events e GROUP BY e.op ORDER BY e.op LIMIT 3",
        "SELECT DISTINCT tid AS pid, pid AS x FROM events e ORDER BY e.pid, 1",
        "SELECT op, 0xe-count(*), 1e1-count(*), 1.5e+1 FROM events GROUP BY op ORDER BY 1",
        "SELECT comm, duration / 1 AS d, count(1) FROM events GROUP BY comm, d HAVING duration / 1 = '1000000000' OR d "
        "> 1 "
        "ORDER BY 1, 2",
        "SELECT pid, count(*) FROM events WHERE pid IN (100, 102) AND (op = 'cudaMalloc' OR op LIKE '%Free') "
        "AND duration >= 1000000000 GROUP BY pid ORDER BY pid",
        "SELECT sum(duration) FROM events WHERE timestamp > (SELECT max(timestamp) - 120000000000 FROM events)",
        "SELECT blocked_on, count(*), max(pid), min(arg0), max(arg1) FROM events GROUP BY blocked_on",
    };
    for (const std::string& sql : statements) {
        const Answered answered = answer(sql);
        EXPECT_EQ(answered.rows, plain_.run(sql)) << sql;
        EXPECT_TRUE(answered.by_groups) << sql << "\n" << rows(sql, true).dump();
        EXPECT_THAT(rows(sql, true).dump(), HasSubstr("summed by")) << sql;
    }
}

TEST_F(SqlGroups, WhatIsNotUnderstoodIsAnsweredByRows) {
    const std::vector<std::string> statements = {
        "SELECT op FROM events",                                 // rows
        "SELECT op, id FROM events GROUP BY op, id",             // a group each
        "SELECT op, group_concat(pid) FROM events GROUP BY op",  // of each row
        "SELECT count(*) FROM events WHERE duration % 2 = 0",    // differs within a group
        "SELECT count(*) FROM events WHERE on_cpu_ns > 5",
        "SELECT sum(duration / 3) FROM events",
        "SELECT sum(duration + 1) FROM events",
        "SELECT sum(CASE WHEN duration > 2000000000 THEN 1 ELSE 0 END) FROM events",
        "SELECT sum(CASE WHEN op = 'cudaMalloc' THEN 0.1 ELSE 0 END) FROM events",  // rounded otherwise
        "SELECT sum(DISTINCT duration) FROM events",
        "SELECT 100 * timestamp / 60000000000, count(*) FROM events GROUP BY 1",  // not the column divided
        "SELECT op, count(*) FROM events GROUP BY substr(op, 1, 4), op_num HAVING tid > 0",
        "SELECT count(*) FROM events AS a JOIN events AS b ON a.id = b.id",
        "WITH events AS (SELECT 1 AS op) SELECT op, count(*) FROM events GROUP BY op",
        "SELECT op, row_number() OVER (ORDER BY op) FROM events GROUP BY op",
        "SELECT count(*) FILTER (WHERE op = 'cudaMalloc') FROM events",
        "SELECT op, count(*) FROM events GROUP BY op UNION SELECT op, 5 FROM events",
        "SELECT (SELECT count(*) FROM events AS i WHERE i.tid = o.tid), tid FROM events AS o WHERE o.id < 5",
        "SELECT count(*) FROM events WHERE duration > 5 AND duration % 2 = 0",
        "SELECT count(*) FROM events WHERE (op = 'cudaMalloc' AND duration > 5) OR (op = 'cudaFree' AND duration > 7)",
        "SELECT max(depth * weight), count(device * bytes) FROM events",
        "SELECT max(timestamp) FROM events",  // one row's
        "SELECT op AS \"~rows\", count(*) FROM events GROUP BY \"~rows\"",
        "SELECT count(*) FROM events WHERE op IS DISTINCT FROM 'cudaMalloc'",
        "\xef\xbb\xbfWITH events AS (SELECT 1 AS op) SELECT * FROM (SELECT op, count(*) FROM events GROUP BY op)",
    };
    for (const std::string& sql : statements) {
        const Answered answered = answer(sql);
        if (sql.find("group_concat") == std::string::npos) {
            EXPECT_EQ(sorted(answered.rows), sorted(plain_.run(sql))) << sql;
        }
        EXPECT_FALSE(answered.by_groups) << sql << "\n" << rows(sql, true).dump();
    }
}

// Numbers of a caller's own would be others in groups, and a bare column has the value of some row.
TEST_F(SqlGroups, BareColumnsAndNumbersOfRowsAreThoseOfRows) {
    EXPECT_FALSE(grouped_statement("SELECT op, tid, count(*) FROM events GROUP BY op"));
    EXPECT_FALSE(grouped_statement("SELECT op, count(*) FROM events"));
    EXPECT_FALSE(grouped_statement("SELECT count(*) FROM events HAVING op = 'x'"));
    EXPECT_FALSE(grouped_statement("SELECT op, count(*) FROM events GROUP BY op ORDER BY tid"));
    EXPECT_FALSE(grouped_statement("SELECT DISTINCT op FROM events ORDER BY tid"));
    EXPECT_FALSE(grouped_statement("SELECT op COLLATE nocase, op FROM events GROUP BY op COLLATE nocase"));
    EXPECT_EQ(rows("SELECT count(*) FROM events WHERE rowid < 5"),
              plain_.run("SELECT count(*) FROM events WHERE id < 5"));
    EXPECT_EQ(rows("SELECT count(*) FROM events WHERE pid = 100 OR tid = 102"),
              plain_.run("SELECT count(*) FROM events WHERE pid = 100 OR tid = 102"));
}

TEST_F(SqlGroups, NumbersWithSeparatorsAreLeftToSqlite) {
    for (const char* number : {"1_000_000", "1_0.5", "1.5_0", "1e1_0", "0x1_f", "12abc", "1.5e", "1$"}) {
        const std::string sql = "SELECT sum(duration) / " + std::string(number) + " FROM events";
        EXPECT_FALSE(sql_tokens(sql)) << sql;
        EXPECT_FALSE(grouped_statement(sql)) << sql;
    }
    EXPECT_TRUE(sql_tokens("SELECT sum(duration)/1000000, 0xf-count(*), 1.5e+1, .5, 1. FROM events LIMIT 1"));
    constexpr int first_with_separators = 3'046'000;
    if (sqlite3_libversion_number() < first_with_separators) return;
    EXPECT_EQ(rows("SELECT sum(duration) / 1_000_000 FROM events"), rows("SELECT sum(duration) / 1000000 FROM events"));
}

// No statement of a caller can read groups, nor see that there are such tables.
TEST_F(SqlGroups, TablesOfGroupsAreNobodyElses) {
    for (const char* sql :
         {"SELECT * FROM groups_of_events_0", "SELECT \"~rows\" FROM groups_of_events_3",
          "SELECT op FROM events WHERE pid IN (SELECT pid FROM groups_of_events_1)",
          "SELECT count(*) FROM groups_of_events_0", "SELECT name FROM pragma_table_info('groups_of_events_0')"}) {
        SqlQuery query;
        query.sql = sql;
        const auto answer = engine_->run(*snapshot_, query);
        EXPECT_FALSE(answer) << sql;
    }
    EXPECT_THAT(rows("SELECT name FROM pragma_table_list").dump(), Not(HasSubstr("groups_of")));
    EXPECT_THAT(rows("SELECT name FROM sqlite_master").dump(), Not(HasSubstr("groups_of")));
}

TEST_F(SqlGroups, ColumnsAreNamedAsWritten) {
    SqlQuery query;
    query.sql = "SELECT op, COUNT( * ), sum(duration)/2 AS half, e.pid FROM events e GROUP BY op, pid";
    const auto answer = engine_->run(*snapshot_, query);
    ASSERT_TRUE(answer) << answer.error().message;
    std::vector<std::string> names;
    for (const SqlColumn& column : answer->columns) names.push_back(column.name + " " + column.type);
    EXPECT_EQ(names, (std::vector<std::string>{"op text", "COUNT( * ) integer", "half integer", "pid integer"}));
}

/// Statements of the shape that groups answer, with all that may be in it.
class GroupStatements {
  public:
    explicit GroupStatements(uint64_t seed) : random_(seed) {}

    std::string next() {
        prefix_ = one_of({"", "", "e."});
        const std::string table = one_of({"events", "events", "events", "cuda_events", "nccl_events", "host_events"}) +
                                  (prefix_.empty() ? "" : one_of({" e", " AS e"}));
        std::vector<std::string> groups, items;
        for (size_t left = below(3); left > 0; --left) groups.push_back(key());
        if (groups.empty() && below(5) == 0)
            return "SELECT DISTINCT " + plain_key() + ", " + plain_key() + " FROM " + table + where();
        std::string list, group;
        for (const std::string& one : groups) {
            const std::string alias =
                below(4) == 0 ? one_of({"weight", "depth", "cpu"}) : "k" + std::to_string(items.size());
            list += (list.empty() ? "" : ", ") + one + (below(2) == 0 ? " AS " + alias : "");
            // GROUP BY takes a name for the column's.
            const bool named = list.ends_with(alias) && alias[0] == 'k';
            group += (group.empty() ? " GROUP BY " : ", ") + (below(3) == 0 ? std::to_string(items.size() + 1)
                                                              : named && below(2) == 0 ? alias
                                                                                       : one);
            items.push_back(one);
        }
        for (size_t left = 1 + below(4); left > 0; --left) {
            const std::string one = aggregate();
            list += (list.empty() ? "" : ", ") + one;
            items.push_back(one);
        }
        std::string sql = "SELECT " + list + " FROM " + table + where() + group;
        if (!group.empty() && below(3) == 0)
            sql += " HAVING " + aggregate() + one_of({" > ", " <= ", " IS NOT "}) + std::to_string(below(9));
        if (below(2) == 0) {
            // Of all items: rows that it leaves equal are equal.
            sql += " ORDER BY ";
            for (size_t i = 1; i <= items.size(); ++i)
                sql += (i == 1 ? "" : ", ") + std::to_string(i) + one_of({"", " DESC", " ASC NULLS LAST"});
            if (below(2) == 0) sql += " LIMIT " + std::to_string(below(9)) + " OFFSET " + std::to_string(below(3));
        }
        return sql;
    }

  private:
    size_t below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }
    std::string one_of(std::initializer_list<const char*> all) { return *(all.begin() + below(all.size())); }

    std::string plain_key() {
        return one_of({"op",         "source",
                       "op_num",     "source_num",
                       "pid",        "tid",
                       "comm",       "node",
                       "cgroup_id",  "rank",
                       "device",     "gpu_id",
                       "error",      "ret_code",
                       "weight",     "time_weight",
                       "depth",      "stack_hash",
                       "direction",  "bytes",
                       "blocked_on", "cpu",
                       "arg1",       "kernel",
                       "stream",     "split_uncertain",
                       "waker_pid",  "syscall"});
    }
    std::string key() {
        if (below(4) != 0) return plain_key();
        return prefix_ + one_of({"timestamp", "start_ns", "duration"}) + " / " +
               one_of({"1", "7", "1000000000", "60000000000"}) + one_of({"", " * 60", " % 5", " + 1"});
    }
    std::string plain_number() { return prefix_ + one_of({"depth", "ret_code", "device", "cpu"}); }
    std::string number() {
        return prefix_ + one_of({"duration", "duration_ns", "runnable_ns", "blocked_ns", "on_cpu_ns", "bytes", "weight",
                                 "time_weight", "arg0", "pid", "tid", "waits", "id", "last_wait_ns", "tail_ns",
                                 "longest_sleep_ns"});
    }
    std::string aggregate() {
        switch (below(8)) {
            case 0:
                return "count(*)";
            case 1:
                return "count(DISTINCT " + plain_key() + ")";
            case 2:
                return one_of({"min", "max", "count"}) + "(" + plain_key() + ")";
            case 3:
                return one_of({"sum", "total", "avg"}) + "(CASE WHEN " + plain_key() + " IS NOT NULL AND op " +
                       one_of({"=", "<", "<>"}) + " 'cudaMalloc' THEN 3 " + one_of({"ELSE 2 ", "", "ELSE NULL "}) +
                       "END)";
            case 4:
                return one_of({"sum", "sum", "avg", "max", "count"}) + "(" +
                       (below(3) == 0 ? plain_number() : number()) + " * " + one_of({"time_weight", "depth"}) + ")";
            case 5:
                return one_of({"min", "max"}) + "(" + one_of({"timestamp", "end_ns", "start_ns"}) + ")";
            default:
                return one_of({"sum", "avg", "total", "min", "max", "count"}) + "(" + number() + ")";
        }
    }
    std::string where() {
        std::string text;
        for (size_t left = below(4); left > 0; --left)
            text += (text.empty() ? " WHERE " : one_of({" AND ", " AND ", " OR "})) + condition();
        return text;
    }
    std::string condition() {
        const auto minutes = [&] { return std::to_string(testing_sql::wall + below(12) * testing_sql::minute); };
        switch (below(8)) {
            case 0:
                return "timestamp >= " + minutes();
            case 1:
                return "start_ns BETWEEN " + minutes() + " AND " + minutes();
            case 2:
                return "duration " + one_of({">", "<=", "="}) + " " +
                       one_of({"2000000000", "3000000000.5", "'1000000000'"});
            case 3:
                return "pid IN (100, " + std::to_string(100 + below(4)) + ")";
            case 4:
                return "op " +
                       one_of({"LIKE '%a%'", "= 'cudaMalloc'", "<> 'cudaMalloc'", "IN ('cudaFree', 'cudaMalloc')"});
            case 5:
                return "NOT " + plain_key() + " IS NULL";
            case 6:
                return "tid " + one_of({"<", ">="}) + " 102";
            default:
                return one_of({"pid", "tid", "weight", "depth", "ret_code", "bytes", "waits", "device", "on_cpu_ns"}) +
                       one_of({" > 1", " = 0", " IN (0, 1, 2)"});
        }
    }

    std::mt19937_64 random_;
    std::string prefix_;
};

TEST_F(SqlGroups, RandomStatementsHaveTheAnswersOfSqlite) {
    const uint64_t seed = test::chosen_seed();
    GroupStatements statements(seed);
    size_t summed = 0, with_rows = 0;
    const size_t all = std::getenv("INGERO_LONG") ? 300'000 : 1'500;
    for (size_t i = 0; i < all && !HasFailure(); ++i) {
        const std::string sql = statements.next();
        const json expected = plain_.run(sql);
        const Answered answered = answer(sql);
        const bool ordered = sql.find("ORDER BY") != std::string::npos;
        EXPECT_EQ(ordered ? answered.rows : sorted(answered.rows), ordered ? expected : sorted(expected))
            << sql << "\nseed " << seed << ", statement " << i;
        summed += answered.by_groups ? 1 : 0;
        with_rows += expected.empty() ? 0 : 1;
    }
    EXPECT_GT(summed, all / 2);
    EXPECT_GT(with_rows, all / 2);
}

/// Rows of one's own.
class SqlGroupsOfMany : public ::testing::Test {
  protected:
    json run(const std::vector<Event>& events, const std::string& sql, bool by_groups = false) {
        TemporaryDirectory directory;
        StoreOptions options;
        options.clock = [] { return ClockTriple{5'000, 5'000, testing_sql::wall}; };
        const auto writer = open_writer(directory.path(), options);
        Session session = make_session("boot");
        session.clock = options.clock();
        session.first_covered_ns = 5'000;
        EXPECT_TRUE(writer->begin_session(session));
        Batch batch;
        batch.events = events;
        uint64_t sequence = 0;
        for (Event& event : batch.events) {
            event.sequence = ++sequence;
            batch.covered_until_ns = std::max(batch.covered_until_ns, event.end_ns());
        }
        const auto done = writer->commit(batch);
        EXPECT_TRUE(done) << done.error().message;
        EXPECT_TRUE(writer->end_session());
        const auto snapshot = open_snapshot(directory.path());
        const auto engine = SqlEngine::open();
        EXPECT_TRUE(engine);
        SqlQuery query;
        query.sql = sql;
        const auto answer = (*engine)->run(*snapshot, query);
        if (!answer) return answer.error().message;
        EXPECT_EQ(answer->by_groups, by_groups) << sql;
        return answer->rows;
    }
    static Event call(uint64_t duration_ns, uint32_t tid = 5) {
        Event event;
        event.op = 0x0101;
        event.start_ns = 10'000 + tid;
        event.duration_ns = duration_ns;
        event.tgid = 5;
        event.tid = tid;
        event.process_start_ns = 7;
        return event;
    }
};

// SQLite adds whole numbers, and fails where the sum has no room; an average it adds in floating point.
TEST_F(SqlGroupsOfMany, SumsThatAreNotExactAreThoseOfSqlite) {
    const uint64_t large = uint64_t{1} << 62;
    EXPECT_EQ(run({call(large), call(large - 1)}, "SELECT sum(duration), max(duration) FROM events"),
              (json{{2 * large - 1, large}}));
    EXPECT_THAT(run({call(large), call(large)}, "SELECT sum(duration) FROM events").dump(), HasSubstr("overflow"));
}

TEST_F(SqlGroupsOfMany, SumsOfListsAreExactTogether) {
    const uint64_t exact = uint64_t{1} << 53;
    std::vector<Event> events = {call(exact), call(1), call(1)};
    events[1].tgid = events[2].tgid = 6;
    const std::string sum = "SELECT total(duration) FROM events WHERE pid IN (5, 6)";
    EXPECT_EQ(run(events, sum), (json{{static_cast<double>(exact)}})) << "as they are added one after the other";
    events[0].duration_ns = exact - 2;
    EXPECT_EQ(run(events, sum, true), (json{{static_cast<double>(exact)}}));
}

// One after the other; SQLite alone knows whose name it shows.
TEST_F(SqlGroupsOfMany, APidOfTwoProcessesHasNoOneName) {
    const std::string sql = "SELECT pid, count(*), comm FROM events GROUP BY pid";
    EXPECT_EQ(run({call(1), call(2)}, sql, true), (json{{5, 2, nullptr}}));
    std::vector<Event> events = {call(1), call(2)};
    events[1].process_start_ns = 8;
    EXPECT_EQ(run(events, sql), (json{{5, 2, nullptr}}));
}

// What is beyond 2^63 is negative in SQL.
TEST_F(SqlGroupsOfMany, QuotientsAreThoseOfSignedNumbers) {
    const uint64_t most = INT64_MAX;
    EXPECT_EQ(run({call(most), call(most + 1)},
                  "SELECT duration / 5000000000000000000 AS q, count(*) FROM events GROUP BY q ORDER BY q", true),
              (json{{-1, 1}, {1, 1}}));
}

TEST_F(SqlGroupsOfMany, MoreGroupsThanAreKeptAreSortedAsRows) {
    std::vector<Event> events;
    for (uint32_t tid = 1; tid <= 70'000; ++tid) events.push_back(call(tid % 9, tid));
    EXPECT_EQ(run(events, "SELECT count(*), sum(n) FROM (SELECT tid, count(*) AS n FROM events GROUP BY tid)"),
              (json{{70'000, 70'000}}));
}

}  // namespace
}  // namespace ingero
