// Event blocks from a file that may come from anywhere. What decodes must say the truth about itself and encode back.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/block/block.h"
#include "core/store/block/block_view.h"
#include "core/store/block/column_codec.h"
#include "core/store/rows/rows.h"

namespace {

void require(bool holds) {
    if (!holds) abort();
}

/// Column by column, in an order of asking that the bytes choose: nothing may depend on what was asked before.
void try_view(std::string_view data, uint32_t order) {
    ingero::BlockView view;
    if (!view.open(data)) return require(view.rows() == 0 && view.ops().empty());
    require(!view.ops().empty());
    std::vector<uint64_t> values;
    for (uint32_t i = 0; i < 32; ++i) {
        const auto id = static_cast<ingero::ColumnId>(1 + (order + i * 7) % 31);
        const size_t segment = (order + i) % view.ops().size();
        values.resize(view.ops()[segment].rows);
        if (!view.column(id, segment, values)) continue;
        for (const uint64_t value : values) view.comm(value);
    }
    if (const auto rows = view.time_order()) require(rows->size() == view.rows());
    std::vector<ingero::Event> events;
    if (!view.events(events)) require(events.empty());
}

void try_block(std::string_view data) {
    uint32_t order = 0;
    if (data.size() > 20) std::memcpy(&order, data.data() + 16, sizeof order);
    try_view(data, order % 1024);
    if (const auto smaller = ingero::compress_block(data)) try_view(*smaller, order % 1024);
    std::vector<ingero::Event> events;
    const auto header = ingero::read_block_header(data);
    if (!ingero::decode_block(data, events)) return require(events.empty());
    require(header && header->rows == events.size());
    const std::string again = ingero::encode_block(header->boot_index, events);
    for (const std::string& bytes : {again, ingero::compress_block(again).value()}) {
        std::vector<ingero::Event> back;
        require(ingero::decode_block(bytes, back) && back.size() == events.size());
        for (size_t i = 0; i < back.size(); ++i)
            require(back[i].sequence == events[i].sequence && back[i].start_ns == events[i].start_ns &&
                    back[i].duration_ns == events[i].duration_ns && back[i].op == events[i].op &&
                    back[i].args == events[i].args && back[i].waker_comm == events[i].waker_comm);
    }
    const auto header_again = ingero::read_block_header(again).value();
    require(header_again.max_end_ns == header->max_end_ns && header_again.max_sequence == header->max_sequence);
}

/// A column's bytes alone, with the slack that blocks keep after them.
void try_column(const uint8_t* data, size_t size) {
    uint32_t stored = 0;
    uint16_t count = 0;
    if (size < sizeof stored + sizeof count) return;
    std::memcpy(&stored, data, sizeof stored);
    std::memcpy(&count, data + sizeof stored, sizeof count);
    std::vector<uint64_t> values(1 + count % ingero::max_column_rows);
    ingero::ColumnShape shape;
    if (!ingero::from_stored(stored, values.size(), shape)) return;
    std::vector<char> bytes(data + sizeof stored + sizeof count, data + size);
    bytes.resize(ingero::column_bytes(shape, values.size()) + ingero::packing_slack_bytes);
    if (!ingero::decode_column(shape, {bytes.data(), bytes.size()}, values)) return;
    std::string encoded;
    const ingero::ColumnShape again = ingero::ColumnEncoder().encode(values, encoded);
    require(encoded.size() == ingero::column_bytes(again, values.size()));
    encoded.append(ingero::packing_slack_bytes, '\xff');
    std::vector<uint64_t> back(values.size());
    require(ingero::decode_column(again, encoded, back) && back == values);
}

/// What decodes of a row comes back from what it encodes to; keys come back as they are.
template <class Row>
void try_row(std::string_view data, std::optional<Row> (*decode)(std::string_view)) {
    const auto row = decode(data);
    if (!row) return;
    const std::string bytes = encode_row(*row);
    const auto again = decode(bytes);
    require(again && encode_row(*again) == bytes);
}

void try_rows(std::string_view data) {
    try_row(data, ingero::decode_process);
    try_row(data, ingero::decode_function);
    try_row(data, ingero::decode_communicator);
    try_row(data, ingero::decode_gap);
    try_row(data, ingero::decode_stack);
    try_row(data, ingero::decode_file);
    try_row(data, ingero::decode_symbol);
    try_row(data, ingero::decode_loss);
    try_row(data, ingero::decode_session);
    try_row(data, ingero::decode_span);
    try_row(data, ingero::decode_incident);
    try_row(data, ingero::decode_state);
    try_row(data, ingero::decode_clock);
    try_row(data, ingero::decode_rollup);
    if (const auto state = ingero::decode_state(data)) {
        const auto head = ingero::decode_state_head(data);
        require(head && head->time_ns == state->time_ns && head->source == state->source && head->content == data);
    }
    if (const auto key = ingero::decode_history_key(data)) require(encode_key(*key) == data);
    if (const auto key = ingero::decode_rollup_key(data)) require(encode_key(*key) == data);
    const auto key = ingero::decode_span_id_key(data);
    if (key && key->id.size() <= ingero::max_span_id_bytes) require(encode_key(*key) == data);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try_column(data, size);
    try_rows({reinterpret_cast<const char*>(data), size});
    std::string block(reinterpret_cast<const char*>(data), size);
    try_block(block);
    // A fuzzer does not guess checksums: with them made right, what is behind them is reached. The body's lengths are
    // made right too where the tables leave any.
    constexpr size_t version_at = 4;
    constexpr size_t entries_at = 6;
    constexpr size_t body_bytes_at = 72;
    constexpr size_t unpacked_bytes_at = 96;
    constexpr size_t compression_at = 102;
    if (block.size() < body_bytes_at + 8) return 0;
    uint16_t version = 0;
    uint16_t entries = 0;
    std::memcpy(&version, block.data() + version_at, sizeof version);
    std::memcpy(&entries, block.data() + entries_at, sizeof entries);
    const size_t body_at = version == 1 ? 80 + size_t{entries} * 8 : 104 + size_t{entries} * 64;
    if (block.size() < body_at) return 0;
    const auto body_bytes = static_cast<uint32_t>(block.size() - body_at);
    std::memcpy(block.data() + body_bytes_at, &body_bytes, sizeof body_bytes);
    if (version > 1 && block[compression_at] == 0)
        std::memcpy(block.data() + unpacked_bytes_at, &body_bytes, sizeof body_bytes);
    ingero::seal_block(block);
    try_block(block);
    return 0;
}
