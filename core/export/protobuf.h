// Protocol buffers' wire format, as much of it as is written: https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ingero {

/// One message. Fields come in the order in which they are given.
class ProtoMessage {
  public:
    void clear() { bytes_.clear(); }
    std::string_view bytes() const { return bytes_; }

    /// uint32, uint64, int64 (two's complement), bool, enum.
    void number(uint32_t field, uint64_t value) {
        varint(uint64_t{field} << 3);
        varint(value);
    }
    void fixed64(uint32_t field, uint64_t value) {
        constexpr uint64_t eight_bytes = 1;
        varint(uint64_t{field} << 3 | eight_bytes);
        for (unsigned byte = 0; byte < 8; ++byte) bytes_ += static_cast<char>(value >> (8 * byte));
    }
    /// string, bytes, and embedded messages.
    void text(uint32_t field, std::string_view value) {
        constexpr uint64_t length_delimited = 2;
        varint(uint64_t{field} << 3 | length_delimited);
        varint(value.size());
        bytes_ += value;
    }
    void message(uint32_t field, const ProtoMessage& value) { text(field, value.bytes_); }

  private:
    void varint(uint64_t value) {
        for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
        bytes_ += static_cast<char>(value);
    }

    std::string bytes_;
};

}  // namespace ingero
