// One page of one format: what export_page() walks the events for.
#pragma once

#include <memory>
#include <string>

#include "core/export/export.h"
#include "core/export/history_slices.h"
#include "core/sql/events/event_cursor.h"
#include "core/sql/events/event_index.h"

namespace ingero {

/// What of a page is the same for all its events.
struct PageContext {
    const StoreSnapshot& snapshot;
    const EventIndex& index;
    const ExportQuery& query;
    uint64_t base_ns = 0;  ///< see ExportCursor
    bool is_first = false;
    HistorySlices history{};  ///< of the first page of a trace
};

class PageWriter {
  public:
    virtual ~PageWriter() = default;
    /// Before any event. Errors: those of the store.
    virtual Result<void> begin(std::string& out) = 0;
    /// Keeps the event that `rows` stands on. Errors: corrupt.
    virtual Result<void> keep(EventCursor& rows) = 0;
    /// Writes what was kept since: events that began at the same time.
    virtual void write_kept(std::string& out) = 0;
    /// After all events of the page.
    virtual void end(std::string& out, bool is_last) = 0;
};

std::unique_ptr<PageWriter> make_csv_writer(const PageContext& context);
std::unique_ptr<PageWriter> make_jsonl_writer(const PageContext& context);
std::unique_ptr<PageWriter> make_chrome_writer(const PageContext& context);
std::unique_ptr<PageWriter> make_perfetto_writer(const PageContext& context);

}  // namespace ingero
