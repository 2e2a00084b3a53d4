#include "core/import/trace_database.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ingero {

namespace {

/// Those that any published generation has, in lower case.
constexpr std::array<std::string_view, 15> trace_tables = {"events",
                                                           "stack_traces",
                                                           "causal_chains",
                                                           "system_snapshots",
                                                           "sessions",
                                                           "process_names",
                                                           "event_aggregates",
                                                           "event_aggregates_5s",
                                                           "cgroup_metadata",
                                                           "cgroup_schedstat",
                                                           "annotations",
                                                           "sources",
                                                           "ops",
                                                           "schema_info",
                                                           "node_info"};

constexpr int max_value_bytes = 4 << 20;
constexpr int steps_between_looks = 20'000;
constexpr size_t max_tables = 1'000;

struct Finalizer {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalizer>;

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

bool is_trace_table(std::string_view name) {
    return std::find(trace_tables.begin(), trace_tables.end(), name) != trace_tables.end();
}

/// A statement of ours reads columns of the tables named above, and counts rows. Nothing else is done.
int authorize(void*, int action, const char* table, const char* name, const char*, const char*) {
    if (action == SQLITE_SELECT) return SQLITE_OK;
    if (action == SQLITE_READ && table && is_trace_table(lower(table))) return SQLITE_OK;
    if (action == SQLITE_FUNCTION && name && std::string_view(name) == "count") return SQLITE_OK;
    return SQLITE_DENY;
}

Result<void> harden(sqlite3* database) {
    struct Setting {
        int what;
        int value;
    };
    for (const Setting& setting :
         {Setting{SQLITE_DBCONFIG_DEFENSIVE, 1}, Setting{SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
          Setting{SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, Setting{SQLITE_DBCONFIG_ENABLE_VIEW, 0},
          Setting{SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}, Setting{SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
          Setting{SQLITE_DBCONFIG_DQS_DML, 0}, Setting{SQLITE_DBCONFIG_DQS_DDL, 0}})
        if (sqlite3_db_config(database, setting.what, setting.value, nullptr) != SQLITE_OK)
            return fail(ErrorCode::internal, "this SQLite library cannot be set to distrust a file");
    for (const Setting& limit :
         {Setting{SQLITE_LIMIT_LENGTH, max_value_bytes}, Setting{SQLITE_LIMIT_SQL_LENGTH, 256 << 10},
          Setting{SQLITE_LIMIT_COLUMN, 256}, Setting{SQLITE_LIMIT_EXPR_DEPTH, 50},
          Setting{SQLITE_LIMIT_COMPOUND_SELECT, 4}, Setting{SQLITE_LIMIT_VDBE_OP, 50'000},
          Setting{SQLITE_LIMIT_FUNCTION_ARG, 8}, Setting{SQLITE_LIMIT_ATTACHED, 0},
          Setting{SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100}, Setting{SQLITE_LIMIT_VARIABLE_NUMBER, 8},
          Setting{SQLITE_LIMIT_TRIGGER_DEPTH, 1}, Setting{SQLITE_LIMIT_WORKER_THREADS, 0}})
        sqlite3_limit(database, limit.what, limit.value);
    sqlite3_extended_result_codes(database, 1);
    return {};
}

ErrorCode code_of(int rc) {
    switch (rc & 0xff) {
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
        case SQLITE_IOERR:  // a page past the end of the file
        case SQLITE_SCHEMA:
        case SQLITE_ERROR:
            return ErrorCode::corrupt;
        case SQLITE_TOOBIG:
        case SQLITE_NOMEM:
        case SQLITE_INTERRUPT:
        case SQLITE_FULL:
            return ErrorCode::limit;
        default:
            return ErrorCode::internal;
    }
}

Result<Statement> prepare(sqlite3* database, const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    const char* rest = nullptr;
    const int rc = sqlite3_prepare_v2(database, sql.c_str(), static_cast<int>(sql.size()), &statement, &rest);
    if (rc != SQLITE_OK) return fail(code_of(rc), std::string("the trace cannot be read: ") + sqlite3_errmsg(database));
    return Statement(statement);
}

}  // namespace

bool TraceRow::is_null(int column) const {
    return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::optional<int64_t> TraceRow::integer(int column) const {
    if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return std::nullopt;
    return sqlite3_column_int64(statement_, column);
}

std::optional<double> TraceRow::real(int column) const {
    const int type = sqlite3_column_type(statement_, column);
    if (type != SQLITE_FLOAT && type != SQLITE_INTEGER) return std::nullopt;
    return sqlite3_column_double(statement_, column);
}

int64_t TraceRow::integer_or(int column, int64_t otherwise, bool& ret_wrong) const {
    if (is_null(column)) return otherwise;
    const auto value = integer(column);
    if (!value) ret_wrong = true;
    return value.value_or(otherwise);
}

std::string_view TraceRow::text(int column) const {
    if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return {};
    const unsigned char* text = sqlite3_column_text(statement_, column);
    if (!text) return {};
    return {reinterpret_cast<const char*>(text), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

struct TraceDatabase::Clock {
    std::chrono::steady_clock::time_point deadline;
    static int look(void* self) {
        return std::chrono::steady_clock::now() > static_cast<Clock*>(self)->deadline ? 1 : 0;
    }
};

void TraceDatabase::Closer::operator()(sqlite3* database) const {
    sqlite3_close(database);
}

tl::unexpected<Error> TraceDatabase::error(const char* what) const {
    const int rc = sqlite3_extended_errcode(database_.get());
    const bool late = (rc & 0xff) == SQLITE_INTERRUPT;
    return fail(
        code_of(rc), std::string(what) + ": " + (late ? "it takes too long" : sqlite3_errmsg(database_.get())),
        code_of(rc) == ErrorCode::corrupt ? "the file is damaged: copy it again from where it was recorded" : "");
}

Result<TraceDatabase> TraceDatabase::open(std::span<std::byte> bytes, std::chrono::seconds time_limit) {
    constexpr size_t write_version_at = 18, read_version_at = 19, header_bytes = 100;
    if (bytes.size() < header_bytes) return fail(ErrorCode::corrupt, "the file is too short to be a SQLite file");
    // A file in memory has no log: SQLite refuses one that says it does.
    for (const size_t at : {write_version_at, read_version_at})
        if (bytes[at] == std::byte{2}) bytes[at] = std::byte{1};

    TraceDatabase trace;
    trace.clock_ = std::make_shared<Clock>(Clock{std::chrono::steady_clock::now() + time_limit});
    sqlite3* database = nullptr;
    const int rc = sqlite3_open_v2(
        ":memory:", &database,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, nullptr);
    trace.database_.reset(database);
    if (rc != SQLITE_OK) return fail(ErrorCode::internal, "cannot start SQLite");
    if (auto hardened = harden(database); !hardened) return tl::unexpected(hardened.error());
    if (auto checked = trace.check(bytes); !checked) return tl::unexpected(checked.error());
    if (auto learnt = trace.learn_tables(); !learnt) return tl::unexpected(learnt.error());
    sqlite3_set_authorizer(database, authorize, nullptr);
    return trace;
}

Result<void> TraceDatabase::check(std::span<std::byte> bytes) {
    const auto size = static_cast<sqlite3_int64>(bytes.size());
    if (sqlite3_deserialize(database_.get(), "main", reinterpret_cast<unsigned char*>(bytes.data()), size, size,
                            SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
        return error("the trace cannot be opened");
    sqlite3_progress_handler(database_.get(), steps_between_looks, Clock::look, clock_.get());
    for (const char* setting : {"PRAGMA cell_size_check=ON", "PRAGMA temp_store=MEMORY", "PRAGMA query_only=ON"})
        if (sqlite3_exec(database_.get(), setting, nullptr, nullptr, nullptr) != SQLITE_OK)
            return error("the trace cannot be opened");
    const auto check = prepare(database_.get(), "PRAGMA quick_check(1)");
    if (!check) return tl::unexpected(check.error());
    if (sqlite3_step(check->get()) != SQLITE_ROW) return error("the trace cannot be checked");
    const std::string_view said = TraceRow(check->get()).text(0);
    if (said != "ok")
        return fail(ErrorCode::corrupt, "the trace is damaged: " + std::string(said.substr(0, 200)),
                    "copy it again from where it was recorded");
    return {};
}

Result<void> TraceDatabase::learn_tables() {
    const auto tables = prepare(database_.get(), "SELECT type, name, rootpage FROM sqlite_schema");
    if (!tables) return tl::unexpected(tables.error());
    std::vector<std::string> found;
    int rc = SQLITE_ROW;
    for (size_t seen = 0; (rc = sqlite3_step(tables->get())) == SQLITE_ROW; ++seen) {
        if (seen == max_tables) return fail(ErrorCode::limit, "the file has too many tables for a trace");
        const TraceRow row(tables->get());
        const std::string name = lower(row.text(1));
        if (!is_trace_table(name)) continue;
        if (row.text(0) != "table" || row.integer(2).value_or(0) <= 0)
            return fail(ErrorCode::bad_request,
                        "\"" + name + "\" is not a plain table: the earlier agent did not write this file",
                        "import the file that the agent wrote");
        found.push_back(name);
    }
    if (rc != SQLITE_DONE) return error("the trace's tables cannot be listed");
    for (const std::string& name : found) {
        const auto columns = prepare(database_.get(), "PRAGMA table_xinfo(" + name + ")");
        if (!columns) return tl::unexpected(columns.error());
        while ((rc = sqlite3_step(columns->get())) == SQLITE_ROW) {
            const TraceRow row(columns->get());
            constexpr int name_at = 1, hidden_at = 6;
            // Not 0: computed when read.
            if (row.integer(hidden_at) == 0) columns_[name].push_back(lower(row.text(name_at)));
        }
        if (rc != SQLITE_DONE) return error("the trace's columns cannot be listed");
    }
    for (const char* column : {"timestamp", "pid", "source", "op", "duration"})
        if (!has("events", column))
            return fail(ErrorCode::bad_request,
                        std::string("this is not a trace of the earlier agent: its events have no column ") + column);
    return {};
}

bool TraceDatabase::has(const std::string& table, const std::string& column) const {
    const auto found = columns_.find(table);
    return found != columns_.end() &&
           std::find(found->second.begin(), found->second.end(), column) != found->second.end();
}

Result<void> TraceDatabase::for_each(const std::string& table, const std::vector<std::string>& columns,
                                     const std::string& order, const std::function<bool(const TraceRow&)>& visit) {
    if (!has(table)) return {};
    std::string sql = "SELECT ";
    for (size_t i = 0; i < columns.size(); ++i)
        sql += (i == 0 ? "" : ", ") + (has(table, columns[i]) ? "\"" + columns[i] + "\"" : std::string("NULL"));
    sql += " FROM \"" + table + "\"";
    if (!order.empty() && has(table, order)) sql += " ORDER BY \"" + order + "\"";
    const auto rows = prepare(database_.get(), sql);
    if (!rows) return tl::unexpected(rows.error());
    int rc = SQLITE_ROW;
    while ((rc = sqlite3_step(rows->get())) == SQLITE_ROW)
        if (!visit(TraceRow(rows->get()))) return {};
    if (rc != SQLITE_DONE) return error(("the table " + table + " cannot be read").c_str());
    return {};
}

Result<uint64_t> TraceDatabase::count(const std::string& table) {
    if (!has(table)) return 0;
    const auto rows = prepare(database_.get(), "SELECT count(*) FROM \"" + table + "\"");
    if (!rows) return tl::unexpected(rows.error());
    if (sqlite3_step(rows->get()) != SQLITE_ROW) return error(("the table " + table + " cannot be read").c_str());
    return static_cast<uint64_t>(TraceRow(rows->get()).integer(0).value_or(0));
}

Result<void> work_in_log(const std::string& path) {
    sqlite3* raw = nullptr;
    const int rc = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    const std::unique_ptr<sqlite3, void (*)(sqlite3*)> database(raw, [](sqlite3* one) { sqlite3_close(one); });
    if (rc != SQLITE_OK) return fail(code_of(rc), std::string("the copy cannot be opened: ") + sqlite3_errstr(rc));
    if (auto hardened = harden(raw); !hardened) return hardened;
    for (const char* step : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA wal_checkpoint(TRUNCATE)"})
        if (const int failed = sqlite3_exec(raw, step, nullptr, nullptr, nullptr); failed != SQLITE_OK)
            return fail(code_of(failed),
                        std::string("the write-ahead log cannot be merged into the copy: ") + sqlite3_errmsg(raw));
    return {};
}

}  // namespace ingero
