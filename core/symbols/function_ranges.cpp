#include "core/symbols/function_ranges.h"

#include <algorithm>
#include <array>
#include <bit>

namespace ingero {

namespace {

// Linux Standard Base, "DWARF Extensions": pointer encodings of .eh_frame_hdr as every linker writes it.
constexpr uint8_t version = 1;
constexpr uint8_t count_as_u32 = 0x03;              // DW_EH_PE_udata4
constexpr uint8_t entries_as_table_offsets = 0x3b;  // DW_EH_PE_datarel | DW_EH_PE_sdata4
constexpr uint64_t header_bytes = 12;               // four of encodings, the frame pointer, the count
constexpr uint64_t entry_bytes = 8;

}  // namespace

template <class T>
std::optional<T> FunctionRanges::read(uint64_t address) const {
    uint64_t bytes_left = 0;
    const auto offset = file_.any_offset(address, bytes_left);
    std::array<unsigned char, sizeof(T)> bytes;
    if (!offset || bytes_left < sizeof(T) || file_.read_at(*offset, bytes) != sizeof(T)) return std::nullopt;
    return std::bit_cast<T>(bytes);
}

FunctionRanges::FunctionRanges(const ElfFile& file) : file_(file) {
    if (!file.frame_header()) return;
    const ElfSegment& table = *file.frame_header();
    table_ = table.address;
    const auto encodings = read<std::array<uint8_t, 4>>(table_);
    if (!encodings || (*encodings)[0] != version || (*encodings)[2] != count_as_u32 ||
        (*encodings)[3] != entries_as_table_offsets || table.file_bytes < header_bytes)
        return;
    const auto count = read<uint32_t>(table_ + 8);
    if (count) count_ = std::min<uint64_t>(*count, (table.file_bytes - header_bytes) / entry_bytes);
}

std::optional<FunctionRanges::Entry> FunctionRanges::entry(uint64_t index) const {
    const auto fields = read<std::array<int32_t, 2>>(table_ + header_bytes + index * entry_bytes);
    if (!fields) return std::nullopt;
    return Entry{table_ + static_cast<uint64_t>(int64_t{(*fields)[0]}),
                 table_ + static_cast<uint64_t>(int64_t{(*fields)[1]})};
}

// The description repeats the start, relative to itself in the usual encoding, and has the length behind it. Where the
// two disagree the encoding is another one, and the length is not known.
std::optional<uint64_t> FunctionRanges::length_of(const Entry& entry) const {
    const auto fields = read<std::array<int32_t, 4>>(entry.description);  // length, CIE, start, length
    if (!fields) return std::nullopt;
    const uint64_t start = entry.description + 8 + static_cast<uint64_t>(int64_t{(*fields)[2]});
    if (start != entry.start) return std::nullopt;
    return static_cast<uint32_t>((*fields)[3]);
}

bool FunctionRanges::is_inside(uint64_t address) const {
    // The last that starts at or before the address.
    uint64_t low = 0, high = count_;
    std::optional<Entry> found;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const auto one = entry(middle);
        if (!one) return false;
        if (one->start <= address) {
            found = one;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (!found || found->start == address) return false;
    const auto length = length_of(*found);
    return length && address - found->start < *length;
}

}  // namespace ingero
