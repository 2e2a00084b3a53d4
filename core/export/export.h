// Events as other tools read them: a Perfetto or Chrome trace, comma-separated values, lines of JSON. In pages, in
// order of start, so that neither the reader of the store nor its client holds more than one: pages one after another
// are the file. What the files hold: docs/export.md.
//
// The store's bytes and its texts are foreign: this runs in a worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/query/answers/stats.h"
#include "core/query/coverage.h"
#include "core/sql/events/event_cursor.h"
#include "core/store/store.h"

namespace ingero {

enum class ExportFormat { perfetto, chrome, csv, jsonl };
/// "perfetto" and so on; nothing for another name.
std::optional<ExportFormat> export_format(std::string_view name);

/// Where the next page begins. The store's clocks are those of its latest commit: between two pages all events of the
/// boot that is recorded may move by some ns, or by as much as the wall clock is set. So the clock of the first page
/// goes along, which has each event at one time, and the window's ends at one place, in all pages.
struct ExportCursor {
    uint64_t start_ns = 0;  ///< CLOCK_REALTIME: no event that began earlier is left
    uint64_t base_ns = 0;   ///< CLOCK_REALTIME: when the first event of all began
    BootClock boot{};       ///< the latest boot, whose clock alone may change, and what it was in the first page
};

struct ExportQuery {
    Filter filter;
    ExportFormat format = ExportFormat::perfetto;
    std::optional<ExportCursor> cursor;  ///< nothing: the first page
    size_t page_bytes = 2 << 20;         ///< a page ends at the first event after so many
    EventCursor::Clock::time_point deadline = EventCursor::Clock::time_point::max();
};

struct ExportPage {
    std::string bytes;
    uint64_t events = 0;
    std::optional<ExportCursor> next;  ///< nothing: this was the last page
};

/// Errors: those of the store; deadline; limit (too many events that began in the same nanosecond).
Result<ExportPage> export_page(const StoreSnapshot& snapshot, const ExportQuery& query);

}  // namespace ingero
