// SQL over a snapshot of the store: SQLite in memory, with events as virtual tables over the column blocks, and the
// small tables put in as a statement names them. Tables, columns and their meaning: catalogue.h.
//
// One statement, which only reads: an authorizer refuses everything else, and there is no file to change. A statement
// is foreign text, as the rows are: time, memory and the size of the answer are limited.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/model/result.h"
#include "core/query/answers/stats.h"
#include "core/query/coverage.h"
#include "core/store/store.h"

namespace ingero {

inline constexpr size_t default_sql_rows = 10'000;
inline constexpr size_t most_sql_rows = 100'000;

struct SqlQuery {
    std::string sql;
    Filter filter;            ///< whose rows; the window is taken where whole_trace is not set
    bool whole_trace = true;  ///< all that there is: the statement has its own conditions on time
    size_t limit = default_sql_rows;
    bool explain = false;                        ///< how the statement would be answered, in place of its rows
    std::chrono::milliseconds deadline{29'000};  ///< before the worker's own, which ends the worker
    uint64_t memory_bytes = 256 << 20;           ///< of SQLite, in the whole program
};

struct SqlColumn {
    std::string name;
    std::string type;  ///< of its values: "integer", "real", "text", "blob", "any" (several), "null" (none)
};

struct SqlAnswer {
    Window window;  ///< CLOCK_REALTIME
    Coverage coverage;
    std::vector<SqlColumn> columns;
    nlohmann::json rows = nlohmann::json::array();  ///< arrays of null, numbers and texts; blobs as "x'00ff'"
    bool truncated = false;                         ///< there are more rows, or a text was cut
    bool by_groups = false;                         ///< rows of events were not gone through one by one
    uint64_t elapsed_ns = 0;
};

/// What SQLite reads once in the life of a program, such as random bytes: for a worker, before its sandbox.
void prepare_sqlite();

/// For one statement after the other, of one thread.
class SqlEngine {
  public:
    /// Errors: internal, limit.
    static Result<std::unique_ptr<SqlEngine>> open();
    ~SqlEngine();

    /// Errors: bad_request (no such column, syntax: in SQLite's words, with a hint), denied (it would change
    /// something), deadline, limit (memory), and those of the store.
    Result<SqlAnswer> run(const StoreSnapshot& snapshot, const SqlQuery& query);

  private:
    struct Impl;
    explicit SqlEngine(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
