#include "core/store/rows/span_repeats.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "core/store/file/tables.h"
#include "core/store/rows/rows.h"

namespace ingero {

namespace {

constexpr size_t most_looked_at = 64;
/// Of one list together: spans that all begin at once must not make a commit long.
constexpr size_t looks_a_span = 4, more_looks = 256;

auto identity(const SpanRow& span) {
    return std::tie(span.kind, span.id, span.start_ns, span.end_ns, span.process, span.scope, span.labels, span.values);
}

struct Earlier {
    bool operator()(const SpanRow* a, const SpanRow* b) const { return identity(*a) < identity(*b); }
};

}  // namespace

Result<std::vector<size_t>> find_repeats(const Environment& environment, MDB_txn* transaction, uint32_t boot_index,
                                         std::span<const SpanRow> spans) {
    std::vector<size_t> repeats;
    std::set<const SpanRow*, Earlier> seen;
    size_t looks_left = looks_a_span * spans.size() + more_looks;
    Cursor cursor;
    if (const int rc = cursor.open(transaction, environment.tables().spans))
        return tl::unexpected(lmdb_error("cannot read the spans", rc));
    for (size_t i = 0; i < spans.size(); ++i) {
        const SpanRow& span = spans[i];
        bool is_repeat = !seen.insert(&span).second, damaged = false;
        // Rows of one start lie together, by number: the latest first.
        const std::string after = encode_key(HistoryKey{boot_index, span.start_ns, UINT64_MAX});
        MDB_val key = to_value(after), value{};
        int rc = is_repeat ? MDB_NOTFOUND : cursor.get(key, value, MDB_SET_RANGE);
        if (!is_repeat) rc = cursor.get(key, value, rc == MDB_NOTFOUND ? MDB_LAST : MDB_PREV);
        for (size_t looked = 0; rc == 0 && looked < most_looked_at && looks_left != 0 && !is_repeat && !damaged;
             ++looked, --looks_left) {
            const auto fields = decode_history_key(to_text(key));
            if (!fields || fields->boot_index != boot_index || fields->time_ns != span.start_ns) break;
            const auto content = unseal(to_text(key), to_text(value));
            const auto row = content ? decode_span(*content) : std::nullopt;
            damaged = !row;
            is_repeat = row && identity(*row) == identity(span);
            rc = cursor.get(key, value, MDB_PREV);
        }
        // The reader reports a damaged row: it is no reason to refuse what is new.
        if (rc != 0 && rc != MDB_NOTFOUND) return tl::unexpected(lmdb_error("cannot read the spans", rc));
        if (is_repeat) repeats.push_back(i);
    }
    return repeats;
}

}  // namespace ingero
