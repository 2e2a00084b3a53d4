// A SQLite file that anyone may have written, read through SQLite with everything off that a trace does not need: no
// view, trigger, virtual table, extension or attached file, no writing, bounded sizes and time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ingero {

/// The current row of a table, its columns in the order they were asked for. Valid inside the visit only.
class TraceRow {
  public:
    explicit TraceRow(sqlite3_stmt* statement) : statement_(statement) {}

    /// Absent: NULL, or the table lacks the column.
    bool is_null(int column) const;
    /// Nothing where it is none.
    std::optional<int64_t> integer(int column) const;
    /// A REAL or an INTEGER.
    std::optional<double> real(int column) const;
    /// The integer, or `otherwise` where it is null; a value of another type sets `ret_wrong`.
    int64_t integer_or(int column, int64_t otherwise, bool& ret_wrong) const;
    /// Empty where it is none.
    std::string_view text(int column) const;

  private:
    sqlite3_stmt* statement_;
};

class TraceDatabase {
  public:
    /// `bytes` are changed (a header that asks for a write-ahead log no longer does) and outlive this.
    /// Checks the whole file. Errors: corrupt, bad_request (a table that a trace has is a view or virtual; no events).
    static Result<TraceDatabase> open(std::span<std::byte> bytes, std::chrono::seconds time_limit);

    bool has(const std::string& table) const { return columns_.contains(table); }
    bool has(const std::string& table, const std::string& column) const;
    /// Calls `visit` with each row until it returns false. Columns that the table lacks are null; a table that is not
    /// there has no rows. `order`: a column, or empty. Errors: corrupt, limit.
    Result<void> for_each(const std::string& table, const std::vector<std::string>& columns, const std::string& order,
                          const std::function<bool(const TraceRow&)>& visit);
    /// How many rows; 0 where there is no such table. Errors: corrupt, limit.
    Result<uint64_t> count(const std::string& table);

  private:
    struct Closer {
        void operator()(sqlite3* database) const;
    };
    struct Clock;

    TraceDatabase() = default;
    Result<void> check(std::span<std::byte> bytes);
    Result<void> learn_tables();
    tl::unexpected<Error> error(const char* what) const;

    std::shared_ptr<Clock> clock_;
    std::unique_ptr<sqlite3, Closer> database_;
    std::map<std::string, std::vector<std::string>> columns_;  ///< of the tables a trace may have
};

/// Works the write-ahead log beside a file of ours into it. Errors: corrupt, limit.
Result<void> work_in_log(const std::string& path);

}  // namespace ingero
