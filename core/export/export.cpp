#include "core/export/export.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/export/page_writer.h"

namespace ingero {

namespace {

constexpr std::array<std::pair<std::string_view, ExportFormat>, 4> formats = {{{"perfetto", ExportFormat::perfetto},
                                                                               {"chrome", ExportFormat::chrome},
                                                                               {"csv", ExportFormat::csv},
                                                                               {"jsonl", ExportFormat::jsonl}}};

/// Of one nanosecond: only a trace that somebody made up has more.
constexpr size_t most_kept = 16'384;

std::unique_ptr<PageWriter> make_writer(const PageContext& context) {
    switch (context.query.format) {
        case ExportFormat::csv:
            return make_csv_writer(context);
        case ExportFormat::jsonl:
            return make_jsonl_writer(context);
        case ExportFormat::chrome:
            return make_chrome_writer(context);
        case ExportFormat::perfetto:
            break;
    }
    return make_perfetto_writer(context);
}

Result<uint64_t> start_of(EventCursor& rows) {
    const auto start = rows.value(ColumnId::start);
    if (!start) return tl::unexpected(start.error());
    return rows.boot().window.clock.to_realtime(*start);
}

/// Of the boot that may still be recorded. Those of earlier boots stay as they are.
std::optional<BootClock> latest_clock(const StoreSnapshot& snapshot) {
    if (snapshot.sessions().empty()) return std::nullopt;
    const Session& latest = snapshot.sessions().back();
    return BootClock{latest.boot_index, latest.latest_clock};
}

/// A page ends between two nanoseconds, so that the next can begin at a time, whatever becomes of the blocks.
Result<void> write_events(EventCursor& rows, PageWriter& writer, const ExportQuery& query, ExportPage& ret_page) {
    std::optional<uint64_t> kept_ns;
    size_t kept = 0;
    while (!rows.at_end()) {
        const auto start = start_of(rows);
        if (!start) return tl::unexpected(start.error());
        if (kept_ns && *kept_ns != *start) {
            writer.write_kept(ret_page.bytes);
            kept = 0;
            if (ret_page.bytes.size() >= query.page_bytes) {
                ret_page.next.emplace().start_ns = *start;
                return {};
            }
        }
        kept_ns = *start;
        if (++kept > most_kept)
            return fail(ErrorCode::limit, "more than 16384 events began in the same nanosecond",
                        "export one process, with --pid");
        if (auto done = writer.keep(rows); !done) return done;
        ++ret_page.events;
        if (auto moved = rows.next(); !moved) return moved;
    }
    writer.write_kept(ret_page.bytes);
    return {};
}

}  // namespace

std::optional<ExportFormat> export_format(std::string_view name) {
    for (const auto& [known, format] : formats)
        if (known == name) return format;
    return std::nullopt;
}

Result<ExportPage> export_page(const StoreSnapshot& snapshot, const ExportQuery& query) {
    const auto boot = query.cursor ? query.cursor->boot : latest_clock(snapshot);
    const auto index = EventIndex::read(snapshot, query.filter, boot);
    if (!index) return tl::unexpected(index.error());
    EventSelection selection;
    if (query.cursor) selection.start_ns.least = static_cast<int64_t>(query.cursor->start_ns);
    EventCursor rows(*index);
    if (auto started = rows.start(std::move(selection), EventOrder::by_start, {}, query.deadline); !started)
        return tl::unexpected(started.error());
    PageContext context{snapshot, *index, query, query.filter.window.from_ns, !query.cursor};
    if (query.cursor) {
        context.base_ns = query.cursor->base_ns;
    } else if (!rows.at_end()) {
        const auto first = start_of(rows);
        if (!first) return tl::unexpected(first.error());
        context.base_ns = *first;
    }
    if (context.is_first && (query.format == ExportFormat::chrome || query.format == ExportFormat::perfetto)) {
        context.history = read_history_slices(snapshot, *index, query.filter, query.format == ExportFormat::perfetto);
        if (!context.history.all.empty())
            context.base_ns = std::min(context.base_ns, context.history.all.front().start_ns);
    }
    const auto writer = make_writer(context);
    ExportPage page;
    if (auto begun = writer->begin(page.bytes); !begun) return tl::unexpected(begun.error());
    if (auto written = write_events(rows, *writer, query, page); !written) return tl::unexpected(written.error());
    if (page.next) {
        page.next->base_ns = context.base_ns;
        page.next->boot = boot.value_or(BootClock{});
    }
    writer->end(page.bytes, !page.next);
    return page;
}

}  // namespace ingero
