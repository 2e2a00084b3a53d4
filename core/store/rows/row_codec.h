// How the fields of a store's small rows become bytes and come back. Only rows.cpp, which says what fields there are,
// uses it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/store/rows/state_names.h"
#include "core/store/store.h"

namespace ingero::row_codec {

static_assert(std::endian::native == std::endian::little);

/// Longer than any path; a target's text is not to fill the store.
inline constexpr size_t max_text_bytes = 4096;

inline constexpr size_t max_frames = 1024;
inline constexpr char numbered_name = '\x01';
/// From here on a double does not distinguish all whole numbers.
inline constexpr double largest_whole = 9'007'199'254'740'992;
using Values = std::vector<std::pair<std::string, double>>;
/// Four bytes of length before it. A sketch with a count in every bucket has less.
inline constexpr size_t max_long_text_bytes = 65'536;
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
    void operator()(CommunicatorOrigin origin) { (*this)(static_cast<uint8_t>(origin)); }
    void operator()(double value) { (*this)(std::bit_cast<uint64_t>(value)); }
    /// Of what is measured, what has no number.
    void values_by_name(const Values& values) {
        const auto count = std::count_if(values.begin(), values.begin() + kept_values(values),
                                         [](const auto& value) { return number_of_state(value.first) == 0; });
        (*this)(static_cast<uint16_t>(count));
        for (auto value = values.begin(); value != values.begin() + kept_values(values); ++value) {
            if (number_of_state(value->first) != 0) continue;
            (*this)(value->first);
            (*this)(value->second);
        }
    }
    /// And the rest, in as few bytes as it takes: most are small whole numbers.
    void values_by_number(const Values& values) {
        const auto all = kept_values(values);
        const auto has_number = [](const auto& value) { return number_of_state(value.first) != 0; };
        (*this)(static_cast<uint16_t>(std::count_if(values.begin(), values.begin() + all, has_number)));
        for (auto value = values.begin(); value != values.begin() + all; ++value) {
            const uint8_t number = number_of_state(value->first);
            if (number == 0) continue;
            (*this)(number);
            small_number(value->second);
        }
    }
    /// Rows before `version` end here.
    bool has(uint8_t /*version*/) const { return true; }
    template <std::integral T>
    void operator()(const std::optional<T>& value) {
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
    static std::ptrdiff_t kept_values(const Values& values) {
        return static_cast<std::ptrdiff_t>(std::min(values.size(), max_state_values));
    }
    void small_number(double value) {
        const bool is_whole = !std::signbit(value) && value < largest_whole && value == std::trunc(value);
        uint64_t bits = is_whole ? static_cast<uint64_t>(value) : std::bit_cast<uint64_t>(value);
        const auto bytes = static_cast<uint8_t>(is_whole ? (std::bit_width(bits) + 7) / 8 : sizeof bits);
        (*this)(bytes);
        for (uint8_t i = 0; i < bytes; ++i, bits >>= 8) bytes_.push_back(static_cast<char>(bits & 0xff));
    }

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
    void operator()(CommunicatorOrigin& origin) {
        uint8_t number = 0;
        (*this)(number);
        const bool known = number < static_cast<uint8_t>(CommunicatorOrigin::not_kept);
        origin = known ? static_cast<CommunicatorOrigin>(number) : CommunicatorOrigin::not_kept;
    }
    void operator()(double& value) {
        uint64_t bits = 0;
        (*this)(bits);
        value = std::bit_cast<double>(bits);
    }
    bool has(uint8_t version) const { return version_ >= version; }
    void values_by_name(Values& values) {
        list(values, max_state_values, [](RowReader& inner, auto& value) {
            inner(value.first);
            inner(value.second);
            // Version 4 had numbers in place of names.
            if (value.first.size() == 2 && value.first.front() == numbered_name && inner.has(4))
                value.first = state_of_number(static_cast<uint8_t>(value.first.back()));
        });
    }
    void values_by_number(Values& values) {
        Values numbered;
        list(numbered, max_state_values, [](RowReader& inner, auto& value) {
            uint8_t number = 0;
            inner(number);
            value.first = state_of_number(number);
            value.second = inner.small_number();
        });
        // Of a version that measures more.
        std::erase_if(numbered, [](const auto& value) { return value.first.empty(); });
        values.insert(values.begin(), std::make_move_iterator(numbered.begin()),
                      std::make_move_iterator(numbered.end()));
    }
    /// What was read of a row's beginning, without a copy.
    std::string_view text_view() {
        uint16_t length = 0;
        (*this)(length);
        failed_ |= length > bytes_.size();
        const std::string_view text = bytes_.substr(0, failed_ ? 0 : length);
        bytes_.remove_prefix(text.size());
        return text;
    }
    template <std::integral T>
    void operator()(std::optional<T>& value) {
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
    double small_number() {
        uint8_t bytes = 0;
        (*this)(bytes);
        uint64_t bits = 0;
        failed_ |= bytes > sizeof bits || bytes > bytes_.size();
        if (failed_) return 0;
        for (uint8_t i = 0; i < bytes; ++i) bits |= uint64_t{static_cast<uint8_t>(bytes_[i])} << 8 * i;
        bytes_.remove_prefix(bytes);
        return bytes == sizeof bits ? std::bit_cast<double>(bits) : static_cast<double>(bits);
    }
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

}  // namespace ingero::row_codec
