// Blocks of version 1: each column at fixed width. Written before stores had layout 3, and only read since.
#include <cstring>

#include "core/store/block/block_layout.h"

namespace ingero::layout {

namespace {

struct Column {
    uint16_t id;
    uint8_t encoding;  // 0: as it lies in memory
    uint8_t width;     // bytes a row
    uint32_t offset;   // in the body, a multiple of eight
};
static_assert(sizeof(Column) == entry_bytes(1));

/// Blocks of the first layout lack the columns from this one on: their rows keep Event's defaults.
constexpr ColumnId first_optional_column = ColumnId::device;

/// The bytes of column `id`, empty where the block has no such column of that width inside its body.
std::string_view find_column(std::string_view data, const Header& header, ColumnId id, size_t width) {
    const std::string_view body = body_of(data, header);
    for (size_t i = 0; i < header.entries; ++i) {
        Column column{};
        std::memcpy(&column, data.data() + sizeof header + i * sizeof column, sizeof column);
        if (column.id != static_cast<uint16_t>(id)) continue;
        const size_t bytes = width * header.rows;
        if (column.encoding != 0 || column.width != width) return {};
        if (column.offset > body.size() || body.size() - column.offset < bytes) return {};
        return body.substr(column.offset, bytes);
    }
    return {};
}

}  // namespace

Result<void> decode_version_1(std::string_view data, const Header& header, std::vector<Event>& ret_events) {
    if (!body_checksum_fits(data, header)) return tl::unexpected(corrupt("body checksum"));
    std::vector<Event> rows(header.rows);
    int missing = 0;
    for_each_column([&]<class Get>(ColumnId id, Get get) {
        constexpr size_t width = sizeof(column_field<Get>);
        const std::string_view column = find_column(data, header, id, width);
        if (column.empty()) {
            if (id < first_optional_column) missing = static_cast<int>(id);
            return;
        }
        const char* at = column.data();
        for (Event& event : rows) {
            std::memcpy(&get(event), at, width);
            at += width;
        }
    });
    if (missing != 0) return tl::unexpected(corrupt("column " + std::to_string(missing) + " is missing or misplaced"));
    ret_events.insert(ret_events.end(), rows.begin(), rows.end());
    return {};
}

}  // namespace ingero::layout
