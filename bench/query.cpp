// SQL through the virtual tables against SQLite with its indices, and against DuckDB where its library is there: the
// same rows, the same questions, in one run on one core. Answers are compared. Our times are those of a worker's
// answer: a snapshot, the statement, its rows as JSON.
#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/duckdb.h"
#include "bench/figures.h"
#include "bench/rivals.h"
#include "bench/store_rows.h"
#include "core/diagnosis/explain.h"
#include "core/sql/sql.h"

using namespace ingero;
using namespace ingero::bench;

namespace {

constexpr size_t batch_rows = 8'192;
constexpr int our_rounds = 5;
constexpr int their_rounds = 3;
constexpr uint64_t explained_ns = 300'000'000'000;

struct Shape {
    std::string label;
    std::string ours;
    std::string theirs;
    enum class Kind { whole, filter, extra } kind = Kind::whole;
};

std::string number(uint64_t value) {
    return std::to_string(value);
}

std::vector<Shape> make_shapes(Window window) {
    using enum Shape::Kind;
    const std::string in_window = "timestamp >= " + number(window.from_ns) + " AND timestamp < " + number(window.to_ns);
    const std::string sums = "COUNT(*), SUM(duration), MAX(duration) FROM events ";
    const std::string launch = "op = 'cudaLaunchKernel'", their_launch = "source = 1 AND op = 3";
    return {
        {"sums by operation", "SELECT source_num, op_num, " + sums + "GROUP BY source, op",
         "SELECT source, op, " + sums + "GROUP BY source, op", whole},
        {"averages by operation, ordered",
         "SELECT COUNT(*), AVG(duration) / 1000 AS us FROM events GROUP BY op ORDER BY us DESC",
         "SELECT COUNT(*), AVG(duration) / 1000 AS us FROM events GROUP BY source, op ORDER BY us DESC", whole},
        {"sums by process", "SELECT pid, " + sums + "GROUP BY pid", "SELECT pid, " + sums + "GROUP BY pid", whole},
        {"sums of one operation by half minute",
         "SELECT timestamp / 30000000000 * 30 AS w, " + sums + "WHERE " + launch + " GROUP BY w ORDER BY w",
         "SELECT timestamp / 30000000000 * 30 AS w, " + sums + "WHERE " + their_launch + " GROUP BY w ORDER BY w",
         filter},
        {"sums by operation over 1 % of the time",
         "SELECT source_num, op_num, " + sums + "WHERE " + in_window + " GROUP BY source, op",
         "SELECT source, op, " + sums + "WHERE " + in_window + " GROUP BY source, op", filter},
        {"the 100 slowest",
         "SELECT duration FROM (SELECT timestamp, pid, tid, duration FROM events ORDER BY duration "
         "DESC LIMIT 100)",
         "SELECT duration FROM (SELECT timestamp, pid, tid, duration FROM events ORDER BY duration DESC LIMIT 100)",
         whole},
        {"the latest 100", "SELECT timestamp, pid, tid, op_num, duration FROM events ORDER BY timestamp DESC LIMIT 100",
         "SELECT timestamp, pid, tid, op, duration FROM events ORDER BY timestamp DESC LIMIT 100", whole},
        {"calls longer than 10 ms", "SELECT " + sums + "WHERE duration > 10000000",
         "SELECT " + sums + "WHERE duration > 10000000", filter},
        {"long calls of one operation", "SELECT " + sums + "WHERE " + launch + " AND duration > 100000",
         "SELECT " + sums + "WHERE " + their_launch + " AND duration > 100000", filter},
        {"calls of one process in 1 % of the time",
         "SELECT " + sums + "WHERE pid = (SELECT MAX(pid) FROM events WHERE " + in_window + ") AND " + in_window,
         "SELECT " + sums + "WHERE pid = (SELECT MAX(pid) FROM events WHERE " + in_window + ") AND " + in_window,
         filter},
        {"counts a second, by case",
         "SELECT timestamp / 1000000000 AS s, COUNT(*), SUM(CASE WHEN " + launch +
             " THEN 1 ELSE 0 END) FROM events GROUP BY s",
         "SELECT timestamp / 1000000000 AS s, COUNT(*), SUM(CASE WHEN " + their_launch +
             " THEN 1 ELSE 0 END) FROM events GROUP BY s",
         whole},
        {"stacks of one operation by time",
         "SELECT n, total FROM (SELECT stack_hash, COUNT(*) AS n, SUM(duration) AS total FROM events WHERE " + launch +
             " GROUP BY stack_hash ORDER BY total DESC LIMIT 10)",
         "SELECT n, total FROM (SELECT stack_hash, COUNT(*) AS n, SUM(duration) AS total FROM events WHERE " +
             their_launch + " GROUP BY stack_hash ORDER BY total DESC LIMIT 10)",
         filter},
        {"rows in all (none of the twelve)", "SELECT COUNT(*) FROM events", "SELECT COUNT(*) FROM events", extra},
    };
}

/// Dividing whole numbers is another operator there.
std::string for_duckdb(std::string sql) {
    const std::string divided = "timestamp / ";
    for (size_t at = sql.find(divided); at != std::string::npos; at = sql.find(divided, at + 1))
        sql.replace(at, divided.size(), "timestamp // ");
    return sql;
}

uint64_t sum_of(const nlohmann::json& rows) {
    uint64_t sum = 0;
    for (const auto& row : rows)
        for (const auto& value : row) {
            if (value.is_number_integer()) sum += static_cast<uint64_t>(value.get<int64_t>());
            if (value.is_number_float()) sum += static_cast<uint64_t>(static_cast<int64_t>(value.get<double>()));
        }
    return sum;
}

}  // namespace

int main(int argc, char** argv) {
    bool as_json = false;
    uint64_t rows = 1'000'000;
    std::string trace, below, library = DUCKDB_LIBRARY;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
        if (argument == "--json") {
            as_json = true;
        } else if (argument == "--rows") {
            rows = strtoull(value().c_str(), nullptr, 10);
        } else if (argument == "--trace") {
            trace = value();
        } else if (argument == "--duckdb") {
            library = value();
        } else if (argument == "--directory") {
            below = value();
        } else {
            fprintf(stderr, "usage: query [--json] [--rows N] [--trace FILE] [--directory DIR] [--duckdb LIBRARY]\n");
            return 2;
        }
    }
    if (rows < 100'000) fail_with("fewer than 100000 rows say nothing");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);

    const RowSource source = trace.empty() ? made_up_rows() : must(rows_of_trace(trace));
    const Directory place(below);
    const std::string ours = place.path() + "/ours";
    std::filesystem::create_directory(ours);
    Sqlite sqlite(place.path() + "/events.db", false);
    std::string why_no_duckdb;
    const auto duckdb = Duckdb::open(library, place.path() + "/events.duckdb", why_no_duckdb);
    uint64_t first = UINT64_MAX, last = 0;
    {
        StoreOptions options;
        options.max_size_bytes = 64ULL << 30;
        options.clock = [] { return make_session().clock; };
        auto writer = must(StoreWriter::open(ours, options));
        must(writer->begin_session(make_session()));
        writer->set_first_covered(RowStream::first_start_ns);
        RowStream stream(source);
        Batch batch;
        for (uint64_t done = 0; done < rows; done += batch.events.size()) {
            stream.next(std::min<uint64_t>(batch_rows, rows - done), batch.events);
            for (const Event& event : batch.events) {
                first = std::min(first, event.start_ns);
                last = std::max(last, event.end_ns());
            }
            batch.covered_until_ns = last;
            must(writer->commit(batch));
            sqlite.commit(batch.events, wall_offset);
            if (duckdb) duckdb->commit(batch.events, wall_offset);
        }
        must(writer->end_session());
        sqlite.bytes();
        if (duckdb) duckdb->checkpoint();
    }
    auto reader = must(StoreReader::open(ours));
    auto engine = must(SqlEngine::open());
    const uint64_t middle = wall_offset + first + (last - first) / 2;
    const auto shapes = make_shapes({middle, middle + (last - first) / 100});

    std::vector<Row> table;
    std::vector<double> ratios, filter_ratios, duckdb_ratios;
    double refusals = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
        const Shape& shape = shapes[i];
        uint64_t our_answer = 0, their_answer = 0;
        bool refused = false;
        const double our_ms = median_ms(our_rounds, [&] {
            const auto snapshot = must(reader->snapshot());
            SqlQuery query;
            query.sql = shape.ours;
            const auto answer = engine->run(*snapshot, query);
            refused = !answer && answer.error().code == ErrorCode::limit;
            if (!refused) our_answer = sum_of(must(answer).rows);
        });
        if (refused) {
            table.push_back(
                {shape.label + ": refused, over 256 MiB", "shape_" + number(i + 1) + "_refused", 1, "", ""});
            ++refusals;
            continue;
        }
        const double their_ms = median_ms(their_rounds, [&] { their_answer = sqlite.ask(shape.theirs); });
        if (our_answer != their_answer)
            fail_with(shape.label + ": the answers differ: " + number(our_answer) + ", " + number(their_answer));
        const double ratio = our_ms / their_ms;
        const std::string figure = "shape_" + number(i + 1);
        table.push_back({shape.label, figure + "_ms", our_ms, "ms", ""});
        table.push_back({"  SQLite", "sqlite_" + figure + "_ms", their_ms, "ms", ""});
        table.push_back({"  ours / SQLite", figure + "_ratio", ratio, "x",
                         shape.kind == Shape::Kind::extra    ? ""
                         : shape.kind == Shape::Kind::filter ? "goal: at most 0.5"
                                                             : "goal: at most 1"});
        if (duckdb) {
            const std::string sql = for_duckdb(shape.theirs);
            uint64_t answer = 0;
            const double ms = median_ms(our_rounds, [&] { answer = duckdb->ask(sql); });
            // A mean is rounded in its own way.
            constexpr uint64_t rounded = 100;
            if (answer - our_answer + rounded > 2 * rounded)
                fail_with(shape.label + ": the answers differ: " + number(our_answer) + ", " + number(answer));
            table.push_back({"  DuckDB", "duckdb_" + figure + "_ms", ms, "ms", ""});
            table.push_back({"  ours / DuckDB", "duckdb_" + figure + "_ratio", our_ms / ms, "x",
                             shape.kind == Shape::Kind::extra ? "" : "goal: at most 4"});
            if (shape.kind != Shape::Kind::extra) duckdb_ratios.push_back(our_ms / ms);
        }
        if (shape.kind == Shape::Kind::extra) continue;
        ratios.push_back(ratio);
        if (shape.kind == Shape::Kind::filter) filter_ratios.push_back(ratio);
    }
    const auto worst = [](const std::vector<double>& values) {
        return *std::max_element(values.begin(), values.end());
    };
    table.push_back({"the twelve, worst", "sql_ratio", worst(ratios), "x", "goal: at most 1"});
    table.push_back({"the twelve, median", "sql_ratio_median", median(ratios), "x", ""});
    table.push_back({"filters and ranges, worst", "pushdown_ratio", worst(filter_ratios), "x", "goal: at most 0.5"});
    table.push_back({"filters and ranges, median", "pushdown_ratio_median", median(filter_ratios), "x", ""});
    table.push_back({"of the twelve, refused and not in these", "sql_refused", refusals, "", "goal: none"});
    if (duckdb) {
        table.push_back({"ours / DuckDB, median", "duckdb_ratio", median(duckdb_ratios), "x", "goal: at most 1"});
        table.push_back({"ours / DuckDB, worst", "duckdb_ratio_worst", worst(duckdb_ratios), "x", "goal: at most 4"});
    }
    const uint64_t end = wall_offset + last;
    const double explain_ms = median_ms(3, [&] {
        const auto snapshot = must(reader->snapshot());
        must(explain(*snapshot, Filter{.window = {end - explained_ns, end}, .uid = {}, .pid = {}}));
    });
    table.push_back({"explain over the last 5 minutes", "explain_ms", explain_ms, "ms", "goal: under 300"});
    if (!as_json) {
        printf("%llu rows: %s.\n", static_cast<unsigned long long>(rows), source.description.c_str());
        if (duckdb)
            printf("DuckDB %s, one thread.\n", duckdb->version().c_str());
        else
            printf("Not compared with DuckDB: %s.\n", why_no_duckdb.c_str());
    }
    print("query", table, as_json);
    return 0;
}
