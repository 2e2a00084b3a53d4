// Event blocks from a file that may come from anywhere. What decodes must say the truth about itself and encode back.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/block.h"

namespace {

void try_block(std::string_view data) {
    std::vector<ingero::Event> events;
    const auto header = ingero::read_block_header(data);
    if (!ingero::decode_block(data, events)) {
        if (!events.empty()) abort();
        return;
    }
    if (!header || header->rows != events.size()) abort();
    const std::string again = ingero::encode_block(header->boot_index, events);
    std::vector<ingero::Event> back;
    if (!ingero::decode_block(again, back) || back.size() != events.size()) abort();
    if (ingero::read_block_header(again).value() != *header) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string block(reinterpret_cast<const char*>(data), size);
    try_block(block);
    // A fuzzer does not guess checksums: with them made right, what is behind them is reached. The body's length is
    // made right too where the columns leave any.
    constexpr size_t columns_at = 6;
    constexpr size_t body_bytes_at = 72;
    constexpr size_t header_bytes = 80;
    if (block.size() < header_bytes) return 0;
    uint16_t columns = 0;
    std::memcpy(&columns, block.data() + columns_at, sizeof columns);
    const size_t body_at = header_bytes + size_t{columns} * 8;
    if (block.size() < body_at) return 0;
    const auto body_bytes = static_cast<uint32_t>(block.size() - body_at);
    std::memcpy(block.data() + body_bytes_at, &body_bytes, sizeof body_bytes);
    ingero::seal_block(block);
    try_block(block);
    return 0;
}
