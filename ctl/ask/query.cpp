#include <memory>
#include <optional>

#include "core/sql/sql.h"
#include "ctl/ask/requests.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

struct QueryOptions {
    WindowOptions window;
    std::string sql;
    std::optional<uint32_t> limit;
    bool csv = false;
    bool explain = false;
    bool schema = false;
    bool by_request = false;
    RequestsOptions requests;
};

/// What --schema asks, of one table where one is named.
std::string schema_statement(const std::string& table) {
    std::string sql = "SELECT table_name, column_name, type, meaning FROM schema_columns";
    if (table.empty()) return sql;
    std::string quoted;
    for (const char c : table) quoted.append(c == '\'' ? 2 : 1, c);
    return sql + " WHERE table_name = '" + quoted + "'";
}

int run(const Options& options, const QueryOptions& query) {
    const bool of_statement = !query.sql.empty() || query.csv || query.explain || query.schema;
    if (query.by_request && of_statement)
        return usage_error("query", {ErrorCode::bad_request, "--by-request replaces the statement",
                                     "combine it with a window, --request, --slower-than and --limit"});
    if (query.by_request) return run_requests(options, "query", query.window, query.requests, query.limit, "request");
    if (query.requests.is_given())
        return usage_error("query", {ErrorCode::bad_request, "--request and --slower-than choose requests",
                                     "add --by-request, without a statement"});
    if (query.sql.empty() && !query.schema)
        return usage_error("query", {ErrorCode::bad_request, "the statement is missing",
                                     "such as: ingeroctl query \"SELECT * FROM events LIMIT 20\""});
    if (query.csv && options.json)
        return usage_error("query", {ErrorCode::bad_request, "--csv and --json exclude each other", ""});
    auto params = query.window.to_params(options);
    if (!params) return usage_error("query", params.error());
    // Without a window the statement is about all that the store has: its own conditions say which time.
    if (!query.window.is_given()) params->erase("since_ns");
    (*params)["sql"] = query.schema ? schema_statement(query.sql) : query.sql;
    (*params)["limit"] = query.limit.value_or(default_sql_rows);
    if (query.explain) (*params)["explain"] = true;
    int exit_code = exit_done;
    const auto answer = ask(options, "query", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (query.schema && answer->value("rows", nlohmann::json::array()).empty())
        return report("query",
                      {ErrorCode::not_found, "there is no table " + query.sql, "'ingeroctl query --schema' lists them"},
                      exit_failed);
    if (!print(options, *answer, query.csv ? csv_query : text_query)) return exit_failed;
    return covers_nothing(*answer) && !query.schema ? exit_partial : exit_done;
}

}  // namespace

void add_query(CLI::App& app, Command& command) {
    const auto query = std::make_shared<QueryOptions>();
    CLI::App* subcommand = app.add_subcommand("query", "Query the store with SQL");
    subcommand->add_option("SQL", query->sql, "One SELECT statement; with --schema: a table")->type_name("");
    query->window.add_to(*subcommand);
    subcommand->get_option("--since")->description(
        "How long before now, such as 5m, or a time (default: all that is stored)");
    subcommand->add_option("-n,--limit", query->limit, "At most this many rows (default: 10000), or requests (20)")
        ->type_name("ROWS")
        ->check(whole_number(1, most_sql_rows));
    subcommand->add_flag("--csv", query->csv, "Comma-separated values, a line of names first");
    subcommand->add_flag("--explain", query->explain, "Print how the statement would be answered instead of the rows");
    subcommand->add_flag("--schema", query->schema,
                         "In place of a statement: the tables and columns, and what they mean");
    subcommand->add_flag("--by-request", query->by_request, "In place of a statement: the requests, the longest first");
    query->requests.add_to(*subcommand);
    add_examples(*subcommand,
                 {{"Which operations fail?",
                   "ingeroctl query \"SELECT op, count(*) FROM events WHERE ret_code != 0 GROUP BY op\""},
                  {"Which columns does a table have?", "ingeroctl query --schema events"},
                  {"The slowest requests of the last hour", "ingeroctl query --since 1h --by-request -n 5"}});
    subcommand->callback(
        [&command, query] { command = [query](const Options& options) { return run(options, *query); }; });
}

}  // namespace ingero::ctl
