#include "core/store/block/bit_packing.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace ingero {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t mask_of(unsigned width) {
    return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
}

uint64_t load(const char* at) {
    uint64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
}

/// Eight values of `width` bits fill `width` whole bytes: every offset and shift is known when this is compiled.
template <unsigned width, size_t... place>
void unpack_eight(const char* at, uint64_t base, uint64_t* out, std::index_sequence<place...>) {
    ((out[place] = base + ((load(at + place * width / 8) >> (place * width % 8)) & mask_of(width))), ...);
}

template <unsigned width>
void unpack_width(const char* at, uint64_t base, std::span<uint64_t> out) {
    size_t done = 0;
    for (; done + 8 <= out.size(); done += 8, at += width)
        unpack_eight<width>(at, base, out.data() + done, std::make_index_sequence<8>());
    for (size_t place = 0; done < out.size(); ++done, ++place)
        out[done] = base + ((load(at + place * width / 8) >> (place * width % 8)) & mask_of(width));
}

using Unpack = void (*)(const char*, uint64_t, std::span<uint64_t>);

template <size_t... width>
constexpr std::array<Unpack, sizeof...(width)> unpack_table(std::index_sequence<width...>) {
    return {&unpack_width<packed_width(width)>...};
}

constexpr auto unpackers = unpack_table(std::make_index_sequence<65>());

}  // namespace

void pack(std::span<const uint64_t> values, unsigned width, uint64_t base, std::string& ret_data) {
    const size_t from = ret_data.size();
    const size_t bytes = packed_bytes(values.size(), width);
    if (bytes == 0) return;
    ret_data.resize(from + bytes + 2 * sizeof(uint64_t));
    char* at = ret_data.data() + from;
    const uint64_t mask = mask_of(width);
    uint64_t gathered = 0;
    unsigned filled = 0;
    for (uint64_t value : values) {
        value = (value - base) & mask;
        gathered |= value << filled;
        filled += width;
        if (filled < 64) continue;
        std::memcpy(at, &gathered, sizeof gathered);
        at += sizeof gathered;
        filled -= 64;
        gathered = filled == 0 ? 0 : value >> (width - filled);
    }
    std::memcpy(at, &gathered, sizeof gathered);
    ret_data.resize(from + bytes);
}

void unpack(std::string_view data, unsigned width, uint64_t base, std::span<uint64_t> out) {
    unpackers[width](data.data(), base, out);
}

}  // namespace ingero
