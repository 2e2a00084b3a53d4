#include "core/store/rows.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>

namespace ingero {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint8_t row_version = 3;
/// Longer than any path; a target's text is not to fill the store.
constexpr size_t max_text_bytes = 4096;

constexpr size_t max_frames = 1024;
/// Four bytes of length before it. A sketch with a count in every bucket has less.
constexpr size_t max_long_text_bytes = 65'536;
static_assert(max_finding_bytes <= max_long_text_bytes);

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
    void operator()(SpanKind kind) { (*this)(static_cast<uint8_t>(kind)); }
    void operator()(IncidentEvent event) { (*this)(static_cast<uint8_t>(event)); }
    void operator()(double value) { (*this)(std::bit_cast<uint64_t>(value)); }
    void operator()(const std::optional<uint64_t>& value) {
        (*this)(value.has_value());
        if (value) (*this)(*value);
    }
    void operator()(const QuantileSketch& sketch) { long_text(sketch.encode()); }
    /// Cut short it would not be what it was: one that is too long is left out.
    void long_text(const std::string& text) {
        const auto length = static_cast<uint32_t>(text.size() <= max_long_text_bytes ? text.size() : 0);
        (*this)(length);
        bytes_.append(text, 0, length);
    }
    template <class T, class Field>
    void list(const std::vector<T>& items, size_t most, Field field) {
        const auto count = static_cast<uint16_t>(std::min(items.size(), most));
        (*this)(count);
        for (size_t i = 0; i < count; ++i) field(*this, items[i]);
    }
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
    void operator()(SpanKind& kind) {
        uint8_t number = 0;
        (*this)(number);
        const bool known = number != 0 && number < static_cast<uint8_t>(SpanKind::not_kept);
        kind = known ? static_cast<SpanKind>(number) : SpanKind::not_kept;
    }
    void operator()(IncidentEvent& event) {
        uint8_t number = 0;
        (*this)(number);
        const bool known = number != 0 && number < static_cast<uint8_t>(IncidentEvent::not_kept);
        event = known ? static_cast<IncidentEvent>(number) : IncidentEvent::not_kept;
    }
    void operator()(double& value) {
        uint64_t bits = 0;
        (*this)(bits);
        value = std::bit_cast<double>(bits);
    }
    void operator()(std::optional<uint64_t>& value) {
        bool there = false;
        (*this)(there);
        if (there) (*this)(value.emplace());
    }
    void operator()(QuantileSketch& sketch) {
        std::string bytes;
        long_text(bytes);
        auto decoded = QuantileSketch::decode(bytes);
        if (!decoded) failed_ = true;
        if (decoded) sketch = std::move(*decoded);
    }
    void long_text(std::string& text) {
        uint32_t length = 0;
        (*this)(length);
        take(length, text);
    }
    template <class T, class Field>
    void list(std::vector<T>& items, size_t most, Field field) {
        uint16_t count = 0;
        (*this)(count);
        if (count > most) failed_ = true;
        for (size_t i = 0; i < count && !failed_; ++i) field(*this, items.emplace_back());
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
        take(length, text);
    }
    bool failed() const { return failed_; }
    bool at_end() const { return bytes_.empty(); }

  private:
    void take(size_t length, std::string& text) {
        if (failed_ || length > bytes_.size()) {
            failed_ = true;
            return;
        }
        text.assign(bytes_.substr(0, length));
        bytes_.remove_prefix(length);
    }

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
    codec.since(3, row.rolled_up_from_ns);
}

constexpr auto pair_fields = [](auto& codec, auto& pair) {
    codec(pair.first);
    codec(pair.second);
};

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, SpanRow>
void fields(Codec& codec, Row& row) {
    codec(row.kind);
    codec(row.id);
    codec(row.start_ns);
    codec(row.end_ns);
    codec(row.first_token_ns);
    codec(row.scheduled_ns);
    codec(row.prompt_tokens);
    codec(row.output_tokens);
    codec(row.model);
    codec.list(row.labels, max_span_labels, pair_fields);
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.scope);
    codec(row.received_ns);
    codec.list(row.values, max_span_values, pair_fields);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, IncidentRow>
void fields(Codec& codec, Row& row) {
    codec(row.id);
    codec(row.event);
    codec(row.at_ns);
    codec(row.opened_ns);
    codec(row.kind);
    codec(row.severity);
    codec(row.verdict);
    codec(row.summary);
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.lost_ns);
    codec(row.explained_permille);
    codec.list(row.culprits, max_incident_culprits, [](auto& inner, auto& culprit) {
        inner(culprit.name);
        inner(culprit.pid);
        inner(culprit.ns);
    });
    codec.long_text(row.finding);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StateRow>
void fields(Codec& codec, Row& row) {
    codec(row.time_ns);
    codec(row.source);
    codec.list(row.values, max_state_values, pair_fields);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, ClockRow>
void fields(Codec& codec, Row& row) {
    codec(row.session);
    clock_fields(codec, row.clock);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, RollupRow>
void fields(Codec& codec, Row& row) {
    codec(row.minute_ns);
    codec(row.op);
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.calls);
    codec(row.errors);
    codec(row.total_ns);
    codec(row.max_ns);
    codec(row.bytes);
    codec(row.on_cpu_ns);
    codec(row.runnable_ns);
    codec(row.blocked_ns);
    codec(row.lost);
    codec(row.thinned);
    codec(row.durations);
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

}  // namespace

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
std::string encode_row(const SpanRow& row) {
    return encode(row);
}
std::string encode_row(const IncidentRow& row) {
    return encode(row);
}
std::string encode_row(const StateRow& row) {
    return encode(row);
}
std::string encode_row(const ClockRow& row) {
    return encode(row);
}
std::string encode_row(const RollupRow& row) {
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
std::optional<SpanRow> decode_span(std::string_view content) {
    return decode<SpanRow>(content);
}
std::optional<IncidentRow> decode_incident(std::string_view content) {
    return decode<IncidentRow>(content);
}
std::optional<StateRow> decode_state(std::string_view content) {
    return decode<StateRow>(content);
}
std::optional<ClockRow> decode_clock(std::string_view content) {
    return decode<ClockRow>(content);
}
std::optional<RollupRow> decode_rollup(std::string_view content) {
    return decode<RollupRow>(content);
}

}  // namespace ingero
