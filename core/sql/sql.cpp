#include "core/sql/sql.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/sql/catalogue.h"
#include "core/sql/events/event_table.h"
#include "core/sql/functions.h"
#include "core/sql/groups/grouped_statement.h"
#include "core/sql/groups/groups_table.h"
#include "core/sql/history/history_table.h"
#include "core/sql/small_tables.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Rows and their cells. A message has 1,000,000 at most, of which columns and coverage need some.
constexpr size_t most_elements = 990'000;
constexpr size_t most_answer_bytes = 24 << 20;
constexpr size_t most_text_bytes = 60'000;
constexpr int steps_between_looks = 1'000;

// What statements may read besides the catalogue's tables.
constexpr auto tables_of_sqlite =
    std::to_array<std::string_view>({"json_each", "json_tree", "pragma_table_info", "pragma_table_xinfo",
                                     "pragma_table_list", "pragma_function_list", "sqlite_master"});

struct Close {
    void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Close>;

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return result;
}

/// What a refused action would have done.
std::string action_text(int action, const char* what) {
    static const std::map<int, std::string_view> names = {
        {SQLITE_INSERT, "INSERT"},           {SQLITE_UPDATE, "UPDATE"},       {SQLITE_DELETE, "DELETE"},
        {SQLITE_ATTACH, "ATTACH"},           {SQLITE_DETACH, "DETACH"},       {SQLITE_PRAGMA, "PRAGMA"},
        {SQLITE_TRANSACTION, "transaction"}, {SQLITE_SAVEPOINT, "SAVEPOINT"}, {SQLITE_ALTER_TABLE, "ALTER TABLE"},
        {SQLITE_ANALYZE, "ANALYZE"},         {SQLITE_REINDEX, "REINDEX"},     {SQLITE_CREATE_VTABLE, "CREATE"},
        {SQLITE_CREATE_TABLE, "CREATE"},     {SQLITE_CREATE_VIEW, "CREATE"},  {SQLITE_CREATE_INDEX, "CREATE"},
        {SQLITE_CREATE_TRIGGER, "CREATE"},   {SQLITE_DROP_TABLE, "DROP"},     {SQLITE_DROP_VIEW, "DROP"},
    };
    const auto found = names.find(action);
    std::string text(found == names.end() ? "CREATE or DROP" : found->second);
    if (what && *what && action != SQLITE_ATTACH) text.append(" ").append(what);
    return text;
}

json to_json(sqlite3_stmt* statement, int column, bool& ret_cut) {
    switch (sqlite3_column_type(statement, column)) {
        case SQLITE_INTEGER:
            return static_cast<int64_t>(sqlite3_column_int64(statement, column));
        case SQLITE_FLOAT: {
            const double value = sqlite3_column_double(statement, column);
            return std::isfinite(value) ? json(value) : json();
        }
        case SQLITE_TEXT: {
            const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
            const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
            ret_cut |= size > most_text_bytes;
            return text ? json(to_valid_utf8(std::string_view(text, std::min(size, most_text_bytes)))) : json();
        }
        case SQLITE_BLOB: {
            const auto* bytes = static_cast<const unsigned char*>(sqlite3_column_blob(statement, column));
            const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
            const size_t shown = std::min(size, most_text_bytes / 2);
            ret_cut |= shown < size;
            static constexpr char digits[] = "0123456789abcdef";
            std::string text = "x'";
            for (size_t i = 0; i < shown; ++i) text.append({digits[bytes[i] >> 4], digits[bytes[i] & 15]});
            return text + "'";
        }
        default:
            return nullptr;
    }
}

std::string_view type_name(int type) {
    switch (type) {
        case SQLITE_INTEGER:
            return "integer";
        case SQLITE_FLOAT:
            return "real";
        case SQLITE_TEXT:
            return "text";
        case SQLITE_BLOB:
            return "blob";
        default:
            return "null";
    }
}

bool has_word(std::string_view text, std::string_view word) {
    const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return true;
    }
    return false;
}

std::string table_hint() {
    std::string hint = "tables: ";
    for (const SqlTableInfo& table : sql_tables())
        hint.append(&table == sql_tables().data() ? "" : ", ").append(table.name);
    return hint;
}

std::string own_functions() {
    std::string calls;
    for (const SqlFunctionInfo& function : sql_functions())
        calls.append(&function == sql_functions().data() ? "" : ", ").append(function.call);
    return calls;
}

bool may_be_read(std::string_view table) {
    return find_sql_table(table) ||
           std::find(tables_of_sqlite.begin(), tables_of_sqlite.end(), table) != tables_of_sqlite.end();
}

bool is_groups_table(std::string_view table) {
    for (size_t number = 0; number < most_groupings; ++number)
        if (groups_table(number) == table) return true;
    return false;
}

/// A statement that does more than read.
Error changes(std::string_view what) {
    return {ErrorCode::denied, "a query only reads, and this would do more: " + to_valid_utf8(what),
            "the store keeps what was recorded; nothing was changed"};
}

std::string hint_for(std::string_view message, std::string_view sql) {
    if (message.find("no such column") != std::string_view::npos) {
        std::string hint;
        for (const SqlTableInfo& table : sql_tables()) {
            if (!has_word(lower(sql), table.name)) continue;
            hint.append(hint.empty() ? "columns of " : "; of ").append(table.name).append(": ");
            for (const SqlColumnInfo& column : table.columns)
                hint.append(&column == table.columns.data() ? "" : ", ").append(column.name);
        }
        if (!hint.empty()) return hint;
    }
    if (message.find("no such table") != std::string_view::npos) return table_hint();
    if (message.find("function") != std::string_view::npos)
        return "besides SQLite's own functions there are " + own_functions();
    return "'ingeroctl query --schema' lists tables and columns; the language is SQLite's";
}

/// A line of EXPLAIN QUERY PLAN in words.
std::string plan_words(std::string detail) {
    constexpr std::string_view marker = " VIRTUAL TABLE INDEX ";
    if (const size_t at = detail.find(marker); at != std::string::npos) {
        const size_t colon = detail.find(':', at);
        const size_t rest = colon == std::string::npos ? detail.size() : colon + 1;
        detail = detail.substr(0, at) + ": " + detail.substr(rest);
    }
    const auto replace = [&](std::string_view from, std::string_view to) {
        if (detail.starts_with(from)) detail = std::string(to) + detail.substr(from.size());
    };
    replace("SCAN ", "reads ");
    replace("SEARCH ", "looks up ");
    replace("USE TEMP B-TREE FOR ", "sorts the rows for ");
    return detail;
}

}  // namespace

struct SqlEngine::Impl {
    const SqlQuery* query = nullptr;  ///< the one in progress
    SqlContext context;               // before the database: its tables point here
    std::unique_ptr<sqlite3, Close> database;
    std::set<std::string> named;   ///< tables that the statement reads
    std::set<std::string> filled;  ///< tables that have rows
    std::optional<Error> refused;
    bool answering = false;  ///< a caller's statement: the authorizer is strict
    bool by_groups = false;  ///< one that was written anew, which may read tables of groups

    Result<void> open();
    Result<void> execute(const std::string& sql);
    Result<SqlAnswer> run(const StoreSnapshot& snapshot, const SqlQuery& query);
    Result<Statement> prepare(const std::string& sql);
    Result<void> check_rest(const char* rest);
    Result<void> fill_tables();
    Result<void> read_rows(sqlite3_stmt* statement, size_t limit, SqlAnswer& ret_answer);
    Result<void> read_plan(const std::string& sql, SqlAnswer& ret_answer);
    /// By groups, where the statement can be answered so; else nothing has been done.
    Result<bool> read_by_groups(sqlite3_stmt* as_asked, SqlAnswer& ret_answer);
    Result<void> empty_tables();
    /// What SQLite's code and message mean for who asked. At once, before another call changes them.
    Error explain_failure(int code);
    Error too_late() const;

    int authorize(int action, const char* first, const char* second);
    static int on_authorize(void* self, int action, const char* first, const char* second, const char*, const char*) {
        return static_cast<Impl*>(self)->authorize(action, first, second);
    }
    static int on_progress(void* self) {
        return EventCursor::Clock::now() >= static_cast<Impl*>(self)->context.deadline;
    }
};

void prepare_sqlite() {
    sqlite3_initialize();
    unsigned char some = 0;
    sqlite3_randomness(sizeof some, &some);
}

int SqlEngine::Impl::authorize(int action, const char* first, const char* second) {
    if (!answering) return SQLITE_OK;
    const std::string_view name = first ? first : "";
    switch (action) {
        case SQLITE_SELECT:
        case SQLITE_RECURSIVE:
            return SQLITE_OK;
        case SQLITE_READ: {
            const std::string table = lower(name);
            named.insert(table);
            if (is_groups_table(table) && !by_groups) {
                if (!refused) refused = Error{ErrorCode::denied, "a query cannot read " + table, table_hint()};
                return SQLITE_DENY;
            }
            // SQLite reports named subqueries without a column.
            const bool is_subquery = second && *second == '\0' && !table.starts_with("sqlite_");
            if (is_subquery || may_be_read(table)) return SQLITE_OK;
            if (is_groups_table(table)) return SQLITE_OK;
            if (!refused)
                refused = Error{ErrorCode::denied, "a query cannot read " + to_valid_utf8(name), table_hint()};
            return SQLITE_DENY;
        }
        case SQLITE_FUNCTION: {
            const std::string function = lower(second ? second : "");
            if (may_be_called(function)) return SQLITE_OK;
            if (!refused)
                refused = Error{
                    ErrorCode::denied, "a query cannot call " + to_valid_utf8(function) + "()",
                    "it can call functions on numbers, strings, times and JSON, aggregates, and " + own_functions()};
            return SQLITE_DENY;
        }
        case SQLITE_PRAGMA: {
            // These only describe.
            const std::string pragma = lower(name);
            if (second && is_groups_table(lower(second))) break;
            if (pragma == "table_info" || pragma == "table_xinfo" || pragma == "table_list" ||
                pragma == "function_list")
                return SQLITE_OK;
            break;
        }
        default:
            break;
    }
    if (!refused) refused = changes(action_text(action, first));
    return SQLITE_DENY;
}

Result<void> SqlEngine::Impl::execute(const std::string& sql) {
    if (sqlite3_exec(database.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return fail(ErrorCode::internal, std::string("SQLite: ") + sqlite3_errmsg(database.get()));
}

Result<void> SqlEngine::Impl::open() {
    sqlite3* raw = nullptr;
    // The worker's sandbox lets nothing be opened: what SQLite puts into temporary files goes to files in memory, which
    // sort faster than what it does without files; a larger cache sorts longer runs at once.
    const bool memory_files = sqlite3_vfs_find("memdb") != nullptr;
    const int code = sqlite3_open_v2(":memory:", &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                     memory_files ? "memdb" : nullptr);
    database.reset(raw);
    if (code != SQLITE_OK) return fail(ErrorCode::internal, "SQLite cannot be started");
    sqlite3_extended_result_codes(raw, 0);
    sqlite3_db_config(raw, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(raw, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
    // It reveals where code lies, and calls whatever address it is given. A build without it knows no such setting.
    sqlite3_db_config(raw, SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0, nullptr);
    sqlite3_db_config(raw, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
    // Else a column's name that is wrong and in double quotes would be a text, and every row would differ from it.
    sqlite3_db_config(raw, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
    constexpr std::pair<int, int> limits[] = {
        {SQLITE_LIMIT_LENGTH, 16 << 20}, {SQLITE_LIMIT_SQL_LENGTH, 1 << 20},        {SQLITE_LIMIT_COLUMN, 500},
        {SQLITE_LIMIT_EXPR_DEPTH, 200},  {SQLITE_LIMIT_COMPOUND_SELECT, 100},       {SQLITE_LIMIT_VDBE_OP, 1'000'000},
        {SQLITE_LIMIT_ATTACHED, 0},      {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1'000}, {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
        {SQLITE_LIMIT_WORKER_THREADS, 0}};
    for (const auto& [limit, value] : limits) sqlite3_limit(raw, limit, value);
    if (auto done = execute(memory_files ? "PRAGMA temp_store = FILE; PRAGMA cache_size = -16000"
                                         : "PRAGMA temp_store = MEMORY");
        !done)
        return done;
    if (register_event_table(raw, context) != SQLITE_OK || register_group_tables(raw, context) != SQLITE_OK ||
        register_history_tables(raw, context) != SQLITE_OK || register_functions(raw, context) != SQLITE_OK)
        return fail(ErrorCode::internal, std::string("SQLite: ") + sqlite3_errmsg(raw));
    std::vector<std::string> groups;
    for (size_t number = 0; number < most_groupings; ++number) groups.push_back(groups_table(number));
    std::vector<const char*> kept_modules = {"ingero_events", "ingero_history", "json_each", "json_tree"};
    for (const std::string& name : groups) kept_modules.push_back(name.c_str());
    kept_modules.push_back(nullptr);
    if (sqlite3_drop_modules(raw, kept_modules.data()) != SQLITE_OK)
        return fail(ErrorCode::internal, "SQLite did not remove the table types that ingero does not use");
    std::string schema = "BEGIN;";
    for (const SqlTableInfo& table : sql_tables()) {
        const std::string name(table.name), definition(table.definition);
        switch (table.kind) {
            case SqlTableInfo::Kind::events:
                schema += "CREATE VIRTUAL TABLE " + name + " USING ingero_events(" + definition + ");";
                break;
            case SqlTableInfo::Kind::history:
                schema += "CREATE VIRTUAL TABLE " + name + " USING ingero_history(" + name + ");";
                break;
            case SqlTableInfo::Kind::filled:
                schema += "CREATE TABLE " + name + "(" + column_declarations(table.columns) + definition + ");";
                break;
            case SqlTableInfo::Kind::view: {
                schema += "CREATE VIEW " + name + "(";
                for (const SqlColumnInfo& column : table.columns)
                    schema.append(&column == table.columns.data() ? "\"" : ",\"").append(column.name).append("\"");
                schema += ") AS " + definition + ";";
                break;
            }
        }
    }
    if (auto done = execute(schema + "COMMIT"); !done) return done;
    // SQLite declares its own virtual tables when they are first named, which the authorizer would take for a change.
    // A build without one of them does without.
    for (const char* own : {"json_each('[]')", "json_tree('[]')", "pragma_table_info('ops')",
                            "pragma_table_xinfo('ops')", "pragma_table_list", "pragma_function_list"})
        (void)execute("SELECT 1 FROM " + std::string(own) + " LIMIT 1");
    for (const std::string& name : groups) (void)execute("SELECT 1 FROM " + name);
    sqlite3_set_authorizer(raw, on_authorize, this);
    sqlite3_progress_handler(raw, steps_between_looks, on_progress, this);
    return {};
}

/// What follows the statement: only blanks and comments.
Result<void> SqlEngine::Impl::check_rest(const char* rest) {
    while (rest && *rest) {
        const char* after = rest;
        sqlite3_stmt* raw = nullptr;
        const int code = sqlite3_prepare_v2(database.get(), rest, -1, &raw, &after);
        const Statement second(raw);
        if (code != SQLITE_OK || raw)
            return fail(ErrorCode::bad_request, "only one statement can be run, and text follows the first",
                        "run them one after the other; nothing was run");
        if (after == rest) break;
        rest = after;
    }
    return {};
}

Result<Statement> SqlEngine::Impl::prepare(const std::string& sql) {
    sqlite3_stmt* raw = nullptr;
    const char* rest = nullptr;
    const int code = sqlite3_prepare_v2(database.get(), sql.c_str(), static_cast<int>(sql.size()) + 1, &raw, &rest);
    Statement statement(raw);
    if (code != SQLITE_OK) return tl::unexpected(explain_failure(code));
    if (!statement) {
        if (auto checked = check_rest(rest); !checked) return tl::unexpected(checked.error());
        return fail(ErrorCode::bad_request, "there is no statement",
                    "write one, such as SELECT * FROM events LIMIT 20");
    }
    if (auto checked = check_rest(rest); !checked) return tl::unexpected(checked.error());
    if (!sqlite3_stmt_readonly(raw)) {
        if (!refused) refused = changes("statement");
        return tl::unexpected(explain_failure(SQLITE_AUTH));
    }
    if (sqlite3_bind_parameter_count(raw) > 0)
        return fail(ErrorCode::bad_request,
                    "the statement has parameters (?, :name), which cannot be bound to values here",
                    "write the values into the statement");
    return statement;
}

Result<void> SqlEngine::Impl::fill_tables() {
    for (const std::string& name : named) {
        const SqlTableInfo* table = find_sql_table(name);
        if (!table || table->kind != SqlTableInfo::Kind::filled) continue;
        filled.insert(name);
        if (auto done = fill_small_table(database.get(), name, context); !done) return done;
    }
    return {};
}

Result<void> SqlEngine::Impl::empty_tables() {
    for (const std::string& name : filled)
        if (auto done = execute("DELETE FROM " + name); !done) return done;
    filled.clear();
    return {};
}

Result<void> SqlEngine::Impl::read_rows(sqlite3_stmt* statement, size_t limit, SqlAnswer& ret_answer) {
    const int count = sqlite3_column_count(statement);
    std::vector<int> types(static_cast<size_t>(count), SQLITE_NULL);
    std::vector<bool> mixed(static_cast<size_t>(count));
    const size_t elements_of_row = static_cast<size_t>(count) + 1;
    size_t elements = 0, bytes = 0;
    int code = SQLITE_OK;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        if (ret_answer.rows.size() >= limit || elements + elements_of_row > most_elements ||
            bytes > most_answer_bytes) {
            ret_answer.truncated = true;
            break;
        }
        json row = json::array();
        for (int column = 0; column < count; ++column) {
            const auto place = static_cast<size_t>(column);
            const int type = sqlite3_column_type(statement, column);
            mixed[place] = mixed[place] || (type != SQLITE_NULL && types[place] != SQLITE_NULL && types[place] != type);
            if (type != SQLITE_NULL) types[place] = type;
            row.push_back(to_json(statement, column, ret_answer.truncated));
            bytes += row.back().is_string() ? row.back().get_ref<const std::string&>().size() + 5 : 9;
        }
        elements += elements_of_row;
        ret_answer.rows.push_back(std::move(row));
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE) return tl::unexpected(explain_failure(code));
    for (int column = 0; column < count; ++column) {
        const auto place = static_cast<size_t>(column);
        const char* name = sqlite3_column_name(statement, column);
        ret_answer.columns.push_back(
            {to_valid_utf8(name ? name : ""), mixed[place] ? "any" : std::string(type_name(types[place]))});
    }
    return {};
}

Result<void> SqlEngine::Impl::read_plan(const std::string& sql, SqlAnswer& ret_answer) {
    sqlite3_stmt* raw = nullptr;
    const std::string explained = "EXPLAIN QUERY PLAN " + sql;
    const int code = sqlite3_prepare_v2(database.get(), explained.c_str(), -1, &raw, nullptr);
    const Statement statement(raw);
    if (code != SQLITE_OK) return tl::unexpected(explain_failure(code));
    std::map<int, size_t> depths = {{0, 0}};
    while (sqlite3_step(raw) == SQLITE_ROW) {
        const int id = sqlite3_column_int(raw, 0), parent = sqlite3_column_int(raw, 1);
        const size_t depth = depths[parent];
        depths[id] = depth + 1;
        const auto* detail = reinterpret_cast<const char*>(sqlite3_column_text(raw, 3));
        ret_answer.rows.push_back({std::string(depth * 2, ' ') + plan_words(to_valid_utf8(detail ? detail : ""))});
    }
    ret_answer.columns = {{"plan", "text"}};
    return {};
}

Result<bool> SqlEngine::Impl::read_by_groups(sqlite3_stmt* as_asked, SqlAnswer& ret_answer) {
    std::optional<GroupedStatement> grouped;
    try {
        grouped = grouped_statement(query->sql);
    } catch (const std::bad_alloc&) {
        return false;
    }
    if (!grouped) return false;
    context.groupings = std::move(grouped->groupings);
    by_groups = true;
    SqlAnswer answer;
    auto statement = prepare(grouped->sql);
    Result<void> read;
    if (statement && query->explain)
        read = read_plan(grouped->sql, answer);
    else if (statement)
        read = read_rows(statement->get(), query->limit, answer);
    by_groups = false;
    if (!statement || !read) {
        // Whatever else was wrong, the statement as it was asked for finds it too.
        const Error error = statement ? read.error() : statement.error();
        if (!context.groups_failed && error.code == ErrorCode::deadline) return tl::unexpected(error);
        context.error.reset();
        context.groupings.clear();
        context.groups_failed = false;
        refused.reset();
        return false;
    }
    ret_answer.rows = std::move(answer.rows);
    ret_answer.truncated = answer.truncated;
    ret_answer.columns = std::move(answer.columns);
    ret_answer.by_groups = true;
    if (query->explain) return true;
    for (size_t column = 0; column < ret_answer.columns.size(); ++column) {
        const char* name = sqlite3_column_name(as_asked, static_cast<int>(column));
        ret_answer.columns[column].name = to_valid_utf8(name ? name : "");
    }
    return true;
}

Error SqlEngine::Impl::too_late() const {
    return {ErrorCode::deadline,
            "the query took longer than " + std::to_string((query->deadline.count() + 999) / 1'000) + " s",
            "ask for less: a shorter time (timestamp >= …, or --since), one pid or op; see --explain"};
}

Error SqlEngine::Impl::explain_failure(int code) {
    const std::string message = to_valid_utf8(sqlite3_errmsg(database.get()));
    if (refused) return *refused;
    if (message.find("may not be modified") != std::string::npos || message.find("cannot modify") != std::string::npos)
        return {ErrorCode::denied, "a query only reads: " + message,
                "the store keeps what was recorded; nothing was changed"};
    const bool late = (context.error && context.error->code == ErrorCode::deadline) || code == SQLITE_INTERRUPT;
    if (late) return too_late();
    if (context.error && context.error->code != ErrorCode::limit) return *context.error;
    if (code == SQLITE_NOMEM || (context.error && context.error->code == ErrorCode::limit))
        return {ErrorCode::limit,
                "the query needs more than " + std::to_string(query->memory_bytes >> 20) + " MiB of memory",
                "sort or group fewer rows: a shorter time, one pid or op; see --explain"};
    if (code == SQLITE_TOOBIG) return {ErrorCode::limit, "SQL: " + message, "make the statement or its texts shorter"};
    return {ErrorCode::bad_request, "SQL: " + message, hint_for(message, query->sql)};
}

Result<SqlAnswer> SqlEngine::Impl::run(const StoreSnapshot& snapshot, const SqlQuery& asked) {
    const auto begin = EventCursor::Clock::now();
    if (asked.sql.find('\0') != std::string::npos)
        return fail(ErrorCode::bad_request, "the statement has a NUL character in it");
    if (auto emptied = empty_tables(); !emptied) return tl::unexpected(emptied.error());
    SqlAnswer answer;
    answer.window = asked.whole_trace ? whole_trace(snapshot) : asked.filter.window;
    constexpr uint64_t last = std::numeric_limits<int64_t>::max();
    query = &asked;
    context.clear();
    context.snapshot = &snapshot;
    context.filter = asked.filter;
    if (asked.whole_trace) context.filter.window = {0, last};
    context.coverage_window = answer.window;
    context.deadline = begin + asked.deadline;
    named.clear();
    refused.reset();

    auto covered =
        coverage(snapshot, answer.window, {.uid = asked.filter.uid, .pid = asked.filter.pid}, context.deadline);
    if (!covered) return tl::unexpected(covered.error().code == ErrorCode::deadline ? too_late() : covered.error());
    answer.coverage = std::move(*covered);

    answering = true;
    auto statement = prepare(asked.sql);
    if (!statement) return tl::unexpected(statement.error());
    auto grouped = asked.explain ? read_by_groups(statement->get(), answer) : Result<bool>(false);
    if (!grouped) return tl::unexpected(grouped.error());
    if (*grouped) {
        // The plan of the statement as it is answered.
    } else if (asked.explain) {
        if (auto read = read_plan(asked.sql, answer); !read) return tl::unexpected(read.error());
    } else {
        answering = false;
        auto done = fill_tables();
        answering = true;
        if (!done && done.error().code == ErrorCode::limit) return tl::unexpected(explain_failure(SQLITE_NOMEM));
        if (!done && done.error().code == ErrorCode::deadline) return tl::unexpected(explain_failure(SQLITE_INTERRUPT));
        if (!done) return tl::unexpected(done.error());
        grouped = read_by_groups(statement->get(), answer);
        if (!grouped) return tl::unexpected(grouped.error());
        if (!*grouped)
            if (auto read = read_rows(statement->get(), asked.limit, answer); !read)
                return tl::unexpected(read.error());
    }
    answer.elapsed_ns = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(EventCursor::Clock::now() - begin).count());
    return answer;
}

SqlEngine::SqlEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqlEngine::~SqlEngine() = default;

Result<std::unique_ptr<SqlEngine>> SqlEngine::open() {
    auto impl = std::make_unique<Impl>();
    if (auto opened = impl->open(); !opened) return tl::unexpected(opened.error());
    return std::unique_ptr<SqlEngine>(new SqlEngine(std::move(impl)));
}

Result<SqlAnswer> SqlEngine::run(const StoreSnapshot& snapshot, const SqlQuery& query) {
    const sqlite3_int64 before = sqlite3_hard_heap_limit64(static_cast<sqlite3_int64>(query.memory_bytes));
    auto answer = impl_->run(snapshot, query);
    // The limit and the deadline are the caller's statement's: what tidies up after it has neither.
    sqlite3_hard_heap_limit64(before);
    impl_->answering = false;
    impl_->context.deadline = EventCursor::Clock::time_point::max();
    if (auto emptied = impl_->empty_tables(); !emptied && answer) return tl::unexpected(emptied.error());
    impl_->context.clear();
    return answer;
}

}  // namespace ingero
