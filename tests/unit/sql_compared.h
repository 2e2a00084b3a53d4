// A store with something for every table of SQL, and SQLite's own tables to compare answers with.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <set>

#include "core/model/op.h"
#include "core/sql/catalogue.h"
#include "core/sql/sql.h"
#include "core/store/rows/state_names.h"
#include "tests/unit/store_fixture.h"

namespace ingero::testing_sql {

using nlohmann::json;

inline constexpr uint64_t second = 1'000'000'000;
inline constexpr uint64_t minute = 60 * second;
inline constexpr uint64_t wall = 1'700'000'040 * second;

struct CloseSqlite {
    void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

/// SQLite's own tables.
class PlainDatabase {
  public:
    PlainDatabase() {
        sqlite3* raw = nullptr;
        EXPECT_EQ(sqlite3_open(":memory:", &raw), SQLITE_OK);
        database_.reset(raw);
    }

    void add_table(const SqlTableInfo& table, const json& rows) {
        std::string places;
        for (size_t i = 0; i < table.columns.size(); ++i) places.append(places.empty() ? "?" : ", ?");
        const std::string name(table.name);
        run("CREATE TABLE " + name + "(" + column_declarations(table.columns) + ")");
        for (const json& row : rows) run("INSERT INTO " + name + " VALUES (" + places + ")", row);
    }

    json run(const std::string& sql, const json& values = json::array()) {
        sqlite3_stmt* raw = nullptr;
        EXPECT_EQ(sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &raw, nullptr), SQLITE_OK) << sql;
        const std::unique_ptr<sqlite3_stmt, CloseSqlite> statement(raw);
        for (size_t i = 0; i < values.size(); ++i) bind(raw, static_cast<int>(i) + 1, values[i]);
        json rows = json::array();
        while (sqlite3_step(raw) == SQLITE_ROW) {
            json row = json::array();
            for (int i = 0; i < sqlite3_column_count(raw); ++i) row.push_back(value(raw, i));
            rows.push_back(std::move(row));
        }
        return rows;
    }

  private:
    static void bind(sqlite3_stmt* statement, int place, const json& value) {
        if (value.is_number_integer())
            sqlite3_bind_int64(statement, place, value.get<int64_t>());
        else if (value.is_number())
            sqlite3_bind_double(statement, place, value.get<double>());
        else if (value.is_string())
            sqlite3_bind_text(statement, place, value.get_ref<const std::string&>().c_str(), -1, SQLITE_TRANSIENT);
    }
    static json value(sqlite3_stmt* statement, int column) {
        switch (sqlite3_column_type(statement, column)) {
            case SQLITE_INTEGER:
                return static_cast<int64_t>(sqlite3_column_int64(statement, column));
            case SQLITE_FLOAT:
                return sqlite3_column_double(statement, column);
            case SQLITE_TEXT:
                return reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
            default:
                return nullptr;
        }
    }

    std::unique_ptr<sqlite3, CloseSqlite> database_;
};

/// As SQL writes it.
inline std::string literal(const json& value) {
    if (!value.is_string()) return value.dump();
    std::string text = "'";
    for (const char c : value.get_ref<const std::string&>()) text.append(c == '\'' ? 2 : 1, c);
    return text + "'";
}

/// Two boots, of two nodes, ten minutes each, with something for every table in each minute.
class SqlCompared : public ::testing::Test {
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
            Batch batch;
            add_calls(batch, i);
            add_facts(batch, i);
            add_history(batch, i);
            const uint64_t now = i * minute + 30 * second;
            batch.covered_until_ns = now;
            clock = {now, now, wall + now};
            ASSERT_TRUE(writer->commit(batch));
        }
        ASSERT_TRUE(writer->end_session());
    }

    void add_calls(Batch& batch, uint64_t i) {
        constexpr OpId ops[] = {0x0101, 0x0103, 0x0107, 0x0401, 0x0301, 0x0315, 0x031f,
                                0x0320, 0x0501, 0x0601, 0x0602, 0x0702, 0x0903, 0x0804};
        for (const OpId op : ops) {
            Event& event = batch.events.emplace_back();
            event.sequence = ++sequence_;
            event.op = op;
            event.start_ns = i * minute + sequence_ % 7 * second;
            event.duration_ns = (1 + sequence_ % 5) * second;
            event.tgid = 100 + static_cast<uint32_t>(i % 3);
            event.tid = event.tgid + static_cast<uint32_t>(sequence_ % 2);
            event.process_start_ns = 7;
            event.args = {4'096 * i, op == 0x0903 ? 5 : i % 4, i << 32 | (i << 11 & 0x3ff)};
            event.return_code = i % 4 == 0 ? 2 : 0;
            event.runnable_ns = i * 1'000;
            event.blocked_ns = i * 2'000;
            event.weight = 1 + static_cast<uint32_t>(i % 3);
            event.time_weight = i % 3 == 2 ? 2 : 0;
            event.stack = 1;
        }
    }

    void add_facts(Batch& batch, uint64_t i) {
        if (i > 3) return;
        const auto pid = 100 + static_cast<uint32_t>(i % 3);
        Process process;
        process.key = {pid, 7};
        process.uid = 1'000 + pid;
        process.comm = "program-" + std::to_string(pid);
        process.cgroup = "/slice-" + std::to_string(pid);
        process.first_seen_ns = i * minute;
        batch.processes.push_back(process);
        CommunicatorRow communicator;
        communicator.process = process.key;
        communicator.id = 5;
        communicator.hash = i;
        communicator.seen_ns = i * minute;
        batch.communicators.push_back(communicator);
        const auto id = static_cast<uint32_t>(i);
        batch.files.push_back({.id = id, .path = "/lib/" + std::to_string(i), .build_id = "", .state = FileState::ok});
        batch.stacks.push_back({.id = id, .process = process.key, .seen_ns = i * minute, .frames = {{id, 64 * i}}});
        batch.losses.push_back({.from_ns = i * minute, .to_ns = i * minute + second, .op = 0x0103, .lost_ring = i});
    }

    void add_history(Batch& batch, uint64_t i) {
        const uint64_t now = i * minute;
        SpanRow span;
        span.id = "r" + std::to_string(i);
        span.start_ns = now;
        span.end_ns = now + i * second;
        span.output_tokens = i;
        span.process = {100 + static_cast<uint32_t>(i % 3), 7};
        span.uid = 1'000;
        span.received_ns = now + 11 * second;
        for (const SpanKind kind : {SpanKind::request, SpanKind::step, SpanKind::label}) {
            span.kind = kind;
            batch.spans.push_back(span);
        }
        IncidentRow incident;
        incident.id = "i" + std::to_string(i / 2);
        incident.at_ns = now;
        incident.opened_ns = i / 2 * 2 * minute;
        incident.event = i % 2 == 1 ? IncidentEvent::closed : IncidentEvent::opened;
        incident.kind = "cpu-contention";
        incident.process = {100, 7};
        incident.lost_ns = i;
        batch.incidents.push_back(incident);
        incident.kind = imported_finding;
        incident.finding = R"({"severity": "HIGH", "cuda_p99_us": 7, "timeline": "[]"})";
        batch.incidents.push_back(incident);
        const auto value = static_cast<double>(i);
        batch.states.push_back({now, "host", {{"cpu_pct", value}, {"mem_avail", 1'024 * value}}});
        for (const char* gpu : {"a", "b"}) {
            batch.states.push_back({now, std::string(gpu_source) + gpu, {{"power_watts", value}, {"gpu_index", 1}}});
            batch.states.push_back({now, std::string(gpu_event_source) + gpu, {{"xid", value}}});
        }
        batch.states.push_back({now, std::string(port_source) + "mlx5_0/1", {{"symbol_errors", value}}});
        StateRow library{.time_ns = now, .source = std::string(library_source), .values = {{"functions", value}}};
        library.texts = {{std::string(library_path), "/opt/libcuda.so." + std::to_string(i)},
                         {"library", "libcuda"},
                         {"state", "attached"}};
        batch.states.push_back(std::move(library));
        for (const uint32_t pid : {100, 101}) {
            RollupRow rollup;
            rollup.minute_ns = now;
            rollup.op = 0x0107;
            rollup.process = {pid, 7};
            rollup.uid = pid;
            rollup.calls = 100 * i;
            rollup.total_ns = 100 * second;
            rollup.max_ns = i * second;
            rollup.durations.add(90, 100 * i);
            batch.rollups.push_back(rollup);
        }
    }

    json rows(const std::string& sql, bool explain = false) {
        SqlQuery query;
        query.sql = sql;
        query.explain = explain;
        query.limit = most_sql_rows;
        const auto answer = engine_->run(*snapshot_, query);
        EXPECT_TRUE(answer) << sql << ": " << (answer ? "" : answer.error().message);
        return answer ? answer->rows : json::array();
    }

    /// A lower and a higher one of the column's values; null where there are none.
    static std::pair<json, json> values_of(const json& rows, size_t column) {
        std::set<json> values;
        for (const json& row : rows)
            if (!row[column].is_null()) values.insert(row[column]);
        if (values.empty()) return {};
        const auto at = [&](size_t place) { return *std::next(values.begin(), static_cast<std::ptrdiff_t>(place)); };
        return {at(values.size() / 3), at(values.size() * 2 / 3)};
    }

    static json sorted(json rows) {
        std::sort(rows.begin(), rows.end());
        return rows;
    }

    TemporaryDirectory directory_;
    std::unique_ptr<StoreSnapshot> snapshot_;
    std::unique_ptr<SqlEngine> engine_;
    uint64_t sequence_ = 0;
};

}  // namespace ingero::testing_sql
