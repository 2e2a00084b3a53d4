// The rows of the tables of spans, incidents, states, clocks and rollups: read of a boot at a time, and given a column
// at a time. For the thread that runs the statement.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/time.h"
#include "core/query/answers/stats.h"
#include "core/store/store.h"

struct sqlite3_context;

namespace ingero {

struct HistoryBoot {
    uint32_t index = 0;
    ClockTriple clock;  ///< of its last session, as the node
    std::string node;
};

/// Which rows a statement can want; more may be given.
struct HistoryBounds {
    Window wall{0, INT64_MAX};      ///< CLOCK_REALTIME
    std::optional<std::string> id;  ///< of a span
};

class HistoryRows {
  public:
    virtual ~HistoryRows() = default;
    /// Rows of the boot in place of those there were: of the filter's window, user and process. Errors: those of the
    /// store.
    virtual Result<void> load(const StoreSnapshot& snapshot, const HistoryBoot& boot, const HistoryBounds& bounds,
                              const Filter& filter) = 0;
    virtual size_t size() const = 0;
    virtual void give(size_t row, size_t column, sqlite3_context* out) const = 0;
    /// The same for a row whatever the bounds, and no other row's: by it SQLite knows again, where conditions are
    /// joined by OR, what it has had.
    virtual int64_t id(size_t row) const = 0;
    virtual std::vector<std::string_view> columns() const = 0;
};

struct HistoryTable {
    std::string_view name;
    std::vector<std::string_view> from;  ///< columns whose rows lie at or after it where it is at or after a time
    std::vector<std::string_view> to;    ///< the same, before
    std::string_view id;                 ///< a column that the store finds rows by; empty: none
    std::unique_ptr<HistoryRows> (*make)();
};

/// Those of the catalogue's kind `history`. nullptr where there is none.
const HistoryTable* find_history_table(std::string_view name);

/// In order.
std::vector<HistoryBoot> history_boots(const StoreSnapshot& snapshot);

}  // namespace ingero
