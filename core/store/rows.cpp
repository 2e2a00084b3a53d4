#include "core/store/rows.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>

namespace ingero {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint8_t row_version = 2;
/// Longer than any path; a target's text is not to fill the store.
constexpr size_t max_text_bytes = 4096;

constexpr size_t max_frames = 1024;

/// Both directions call the same fields(), so that they cannot part.
class RowWriter {
  public:
    template <std::integral T>
    void operator()(const T& value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    /// A field that rows before `version` do not have.
    template <class T>
    void since(uint8_t /*version*/, const T& value) {
        (*this)(value);
    }
    void operator()(GapReason reason) { (*this)(static_cast<uint16_t>(reason)); }
    void operator()(StackEnd end) { (*this)(static_cast<uint8_t>(end)); }
    void operator()(FileState state) { (*this)(static_cast<uint8_t>(state)); }
    void operator()(const std::vector<StackFrame>& frames) {
        const auto count = static_cast<uint16_t>(std::min(frames.size(), max_frames));
        (*this)(count);
        for (size_t i = 0; i < count; ++i) {
            (*this)(frames[i].file);
            (*this)(frames[i].offset);
        }
    }
    void operator()(const std::string& text) {
        const auto length = static_cast<uint16_t>(std::min(text.size(), max_text_bytes));
        (*this)(length);
        bytes_.append(text, 0, length);
    }
    std::string take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};

class RowReader {
  public:
    explicit RowReader(std::string_view bytes) : bytes_(bytes) { (*this)(version_); }

    uint8_t version() const { return version_; }
    template <class T>
    void since(uint8_t version, T& value) {
        if (version_ >= version) (*this)(value);
    }

    template <std::integral T>
    void operator()(T& value) {
        if constexpr (std::same_as<T, bool>) {
            uint8_t byte = 0;
            (*this)(byte);
            value = byte != 0;
        } else if (bytes_.size() < sizeof value) {
            failed_ = true;
        } else {
            std::memcpy(&value, bytes_.data(), sizeof value);
            bytes_.remove_prefix(sizeof value);
        }
    }
    void operator()(GapReason& reason) {
        uint16_t number = 0;
        (*this)(number);
        const bool known = number != 0 && number < static_cast<uint16_t>(GapReason::not_kept);
        reason = known ? static_cast<GapReason>(number) : GapReason::not_kept;
    }
    void operator()(StackEnd& end) {
        uint8_t number = 0;
        (*this)(number);
        end = number < static_cast<uint8_t>(StackEnd::not_kept) ? static_cast<StackEnd>(number) : StackEnd::not_kept;
    }
    void operator()(FileState& state) {
        uint8_t number = 0;
        (*this)(number);
        state =
            number <= static_cast<uint8_t>(FileState::imported) ? static_cast<FileState>(number) : FileState::unread;
    }
    void operator()(std::vector<StackFrame>& frames) {
        uint16_t count = 0;
        (*this)(count);
        for (size_t i = 0; i < count && !failed_; ++i) {
            StackFrame frame;
            (*this)(frame.file);
            (*this)(frame.offset);
            frames.push_back(frame);
        }
    }
    void operator()(std::string& text) {
        uint16_t length = 0;
        (*this)(length);
        if (failed_ || length > bytes_.size()) {
            failed_ = true;
            return;
        }
        text.assign(bytes_.substr(0, length));
        bytes_.remove_prefix(length);
    }
    bool failed() const { return failed_; }
    bool at_end() const { return bytes_.empty(); }

  private:
    std::string_view bytes_;
    bool failed_ = false;
    uint8_t version_ = 0;
};

template <class Codec, class Clock>
void clock_fields(Codec& codec, Clock& clock) {
    codec(clock.monotonic_ns);
    codec(clock.boottime_ns);
    codec(clock.realtime_ns);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredProcess>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.process.key.pid);
    codec(row.process.key.start_ns);
    codec(row.process.uid);
    codec(row.process.parent_pid);
    codec(row.process.comm);
    codec(row.process.cgroup);
    codec(row.process.unit);
    codec(row.process.first_seen_ns);
    codec(row.process.exited_ns);
    codec(row.process.exit_code);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredFunction>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.function.process.pid);
    codec(row.function.process.start_ns);
    codec(row.function.handle);
    codec(row.function.seen_ns);
    codec(row.function.name);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredStack>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.stack.id);
    codec(row.stack.process.pid);
    codec(row.stack.process.start_ns);
    codec(row.stack.seen_ns);
    codec(row.stack.end);
    codec(row.stack.frames);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredFile>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.file.id);
    codec(row.file.path);
    codec(row.file.build_id);
    codec(row.file.state);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredSymbol>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.symbol.file);
    codec(row.symbol.offset);
    codec(row.symbol.name);
    codec(row.symbol.demangled);
    codec(row.symbol.symbol_offset);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, GapRow>
void fields(Codec& codec, Row& row) {
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.from_ns);
    codec(row.to_ns);
    codec(row.reason);
    codec(row.subject);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, LossRow>
void fields(Codec& codec, Row& row) {
    codec(row.from_ns);
    codec(row.to_ns);
    codec(row.op);
    codec(row.lost_ring);
    codec(row.lost_frames);
    codec(row.lost_depth);
    codec(row.uncertain);
    codec.since(2, row.thinned);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, Session>
void fields(Codec& codec, Row& row) {
    codec(row.id);
    codec(row.boot_id);
    codec(row.node);
    codec(row.machine_id);
    codec(row.version);
    codec(row.kernel);
    codec(row.attach_method);
    codec(row.boot_index);
    clock_fields(codec, row.clock);
    clock_fields(codec, row.latest_clock);
    codec(row.first_covered_ns);
    codec(row.last_covered_ns);
    codec(row.ended_cleanly);
}

template <class Row>
std::string encode(const Row& row) {
    RowWriter writer;
    writer(row_version);
    fields(writer, row);
    return writer.take();
}

template <class Row>
std::optional<Row> decode(std::string_view content) {
    RowReader reader(content);
    Row row;
    fields(reader, row);
    if (reader.failed() || reader.version() == 0) return std::nullopt;
    if (reader.version() <= row_version && !reader.at_end()) return std::nullopt;
    return row;
}

template <std::integral... T>
std::string big_endian(T... values) {
    std::string key;
    const auto append = [&](auto value) {
        for (size_t shift = sizeof value * 8; shift > 0; shift -= 8)
            key.push_back(static_cast<char>(value >> (shift - 8) & 0xff));
    };
    (append(values), ...);
    return key;
}

/// False unless the key is of exactly these fields.
template <std::integral... T>
bool from_big_endian(std::string_view key, T&... values) {
    if (key.size() != (sizeof(T) + ...)) return false;
    size_t at = 0;
    const auto take = [&](auto& value) {
        value = 0;
        for (size_t i = 0; i < sizeof value; ++i)
            value = static_cast<std::remove_reference_t<decltype(value)>>(uint64_t{value} << 8 |
                                                                          static_cast<uint8_t>(key[at++]));
    };
    (take(values), ...);
    return true;
}

uint64_t checksum(std::string_view key, std::string_view content) {
    return XXH3_64bits_withSeed(content.data(), content.size(), XXH3_64bits(key.data(), key.size()));
}

}  // namespace

std::string seal(std::string_view key, std::string_view content) {
    const uint64_t sum = checksum(key, content);
    std::string value(reinterpret_cast<const char*>(&sum), sizeof sum);
    value.append(content);
    return value;
}

std::optional<std::string_view> unseal(std::string_view key, std::string_view value) {
    uint64_t sum = 0;
    if (value.size() < sizeof sum) return std::nullopt;
    std::memcpy(&sum, value.data(), sizeof sum);
    value.remove_prefix(sizeof sum);
    if (sum != checksum(key, value)) return std::nullopt;
    return value;
}

std::string encode_number(uint64_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::optional<uint64_t> decode_number(std::string_view content) {
    uint64_t value = 0;
    if (content.size() != sizeof value) return std::nullopt;
    std::memcpy(&value, content.data(), sizeof value);
    return value;
}

std::string_view to_string(GapReason reason) {
    switch (reason) {
        case GapReason::late_attach:
            return "late-attach";
        case GapReason::refused:
            return "refused";
        case GapReason::turned_off:
            return "turned-off";
        case GapReason::excluded:
            return "excluded";
        case GapReason::too_many:
            return "too-many";
        case GapReason::imported:
            return "imported";
        case GapReason::not_kept:
            break;
    }
    return "unknown";
}

std::string encode_key(const EventKey& key) {
    return big_endian(key.boot_index, key.first_start_ns, key.first_sequence);
}
std::string encode_key(const LossKey& key) {
    return big_endian(key.boot_index, key.from_ns, key.to_ns, key.op);
}
std::string encode_key(const ProcessKey& key) {
    return big_endian(key.pid, key.start_ns);
}
std::string encode_key(const GapKey& key) {
    return big_endian(key.boot_index, key.from_ns, key.process.pid, key.process.start_ns,
                      static_cast<uint16_t>(key.reason));
}
std::string encode_key(const FunctionKey& key) {
    return big_endian(key.process.pid, key.process.start_ns, key.handle);
}
std::string encode_key(const StackFrame& place) {
    return big_endian(place.file, place.offset);
}
std::string encode_key(uint32_t number) {
    return big_endian(number);
}

std::optional<EventKey> decode_event_key(std::string_view key) {
    EventKey out;
    if (!from_big_endian(key, out.boot_index, out.first_start_ns, out.first_sequence)) return std::nullopt;
    return out;
}

std::optional<LossKey> decode_loss_key(std::string_view key) {
    LossKey out;
    if (!from_big_endian(key, out.boot_index, out.from_ns, out.to_ns, out.op)) return std::nullopt;
    return out;
}

std::optional<GapKey> decode_gap_key(std::string_view key) {
    GapKey out;
    uint16_t reason = 0;
    if (!from_big_endian(key, out.boot_index, out.from_ns, out.process.pid, out.process.start_ns, reason))
        return std::nullopt;
    out.reason = static_cast<GapReason>(reason);
    return out;
}

std::optional<uint32_t> decode_number_key(std::string_view key) {
    uint32_t out = 0;
    if (!from_big_endian(key, out)) return std::nullopt;
    return out;
}

std::string encode_row(const StoredProcess& row) {
    return encode(row);
}
std::string encode_row(const StoredFunction& row) {
    return encode(row);
}
std::string encode_row(const GapRow& row) {
    return encode(row);
}
std::string encode_row(const StoredStack& row) {
    return encode(row);
}
std::string encode_row(const StoredFile& row) {
    return encode(row);
}
std::string encode_row(const StoredSymbol& row) {
    return encode(row);
}
std::string encode_row(const LossRow& row) {
    return encode(row);
}
std::string encode_row(const Session& row) {
    return encode(row);
}
std::optional<StoredProcess> decode_process(std::string_view content) {
    return decode<StoredProcess>(content);
}
std::optional<StoredFunction> decode_function(std::string_view content) {
    return decode<StoredFunction>(content);
}
std::optional<GapRow> decode_gap(std::string_view content) {
    return decode<GapRow>(content);
}
std::optional<StoredStack> decode_stack(std::string_view content) {
    return decode<StoredStack>(content);
}
std::optional<StoredFile> decode_file(std::string_view content) {
    return decode<StoredFile>(content);
}
std::optional<StoredSymbol> decode_symbol(std::string_view content) {
    return decode<StoredSymbol>(content);
}
std::optional<LossRow> decode_loss(std::string_view content) {
    return decode<LossRow>(content);
}
std::optional<Session> decode_session(std::string_view content) {
    return decode<Session>(content);
}

}  // namespace ingero
