#include "core/import/trace_stacks.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/symbols/symbolizer.h"

namespace ingero {

namespace {

constexpr size_t max_json_bytes = 256 << 10;
constexpr size_t max_frames = 1'024;
constexpr size_t max_text_bytes = 4'096;

std::optional<uint64_t> hex(std::string_view text) {
    if (text.starts_with("0x")) text.remove_prefix(2);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// A list of flat objects, read without building it: nothing is kept of what is not asked for, and depth is bounded.
class FrameReader final : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit FrameReader(std::vector<TraceFrame>& frames) : frames_(frames) {}

    bool start_array(size_t) override { return depth_++ == 0; }
    bool end_array() override { return --depth_ == 0; }
    bool start_object(size_t) override {
        if (depth_++ != 1) return false;
        frame_ = {};
        python_ = {};
        return true;
    }
    bool end_object() override {
        --depth_;
        if (frames_.size() == max_frames) return true;
        if (!python_.empty()) {
            frame_.symbol = python_ + (line_ == 0 ? "" : ":" + std::to_string(line_));
            frame_.symbol_offset = 0;
        }
        line_ = 0;
        frames_.push_back(std::move(frame_));
        return true;
    }
    bool key(string_t& name) override {
        key_ = name;
        return true;
    }
    bool string(string_t& text) override {
        if (text.size() > max_text_bytes) text.resize(max_text_bytes);
        if (key_ == "i") frame_.address = hex(text).value_or(0);
        if (key_ == "s") set_symbol(text);
        if (key_ == "f" && frame_.file.empty()) frame_.file = text;
        if (key_ == "pf") frame_.file = text;
        if (key_ == "pfn") python_ = text;
        return depth_ == 2;
    }
    bool number_unsigned(number_unsigned_t value) override {
        if (key_ == "pl") line_ = value;
        return depth_ == 2;
    }
    bool number_integer(number_integer_t) override { return depth_ == 2; }
    bool number_float(number_float_t, const string_t&) override { return depth_ == 2; }
    bool boolean(bool) override { return depth_ == 2; }
    bool null() override { return depth_ == 2; }
    bool binary(binary_t&) override { return false; }
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  private:
    /// "name+0x1f"
    void set_symbol(const std::string& text) {
        const size_t plus = text.rfind("+0x");
        const auto offset = plus == std::string::npos ? std::nullopt : hex(std::string_view(text).substr(plus + 1));
        frame_.symbol = offset ? text.substr(0, plus) : text;
        frame_.symbol_offset = offset.value_or(0);
    }

    std::vector<TraceFrame>& frames_;
    TraceFrame frame_;
    std::string key_, python_;
    uint64_t line_ = 0;
    int depth_ = 0;
};

}  // namespace

bool parse_frames(std::string_view json, std::vector<TraceFrame>& ret_frames) {
    if (json.size() > max_json_bytes) return false;
    std::vector<TraceFrame> frames;
    FrameReader reader(frames);
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) return false;
    ret_frames = std::move(frames);
    return true;
}

TraceStacks::Rows TraceStacks::add(uint64_t hash, std::string_view json) {
    Rows rows;
    ++stacks_;
    rows.stack.id = known_[hash].id = ++last_stack_;
    std::vector<TraceFrame> frames;
    if (!parse_frames(json, frames) || frames.empty()) {
        ++unreadable_;
        rows.stack.end = StackEnd::not_kept;
        return rows;
    }
    for (const TraceFrame& frame : frames) rows.stack.frames.push_back(place_of(frame, rows));
    return rows;
}

uint32_t TraceStacks::id_of(uint64_t hash) {
    if (hash == 0) return 0;
    const auto found = known_.find(hash);
    if (found == known_.end()) {
        if (full()) return 0;
        ++lost_;
        StackRow row;
        row.id = ++last_stack_;
        known_[hash] = {.in_trace = false, .id = row.id, .used = true};
        row.end = StackEnd::not_kept;
        made_.push_back(row);
        return row.id;
    }
    if (!found->second.used && found->second.in_trace) ++used_;
    found->second.used = true;
    return found->second.id;
}

std::vector<StackRow> TraceStacks::take_lost() {
    return std::exchange(made_, {});
}

uint32_t TraceStacks::file_of(const std::string& path, Rows& rows) {
    const auto [at, is_new] = files_.try_emplace(path, last_file_ + 1);
    if (is_new) rows.files.push_back({.id = ++last_file_, .path = path, .build_id = {}, .state = FileState::imported});
    return at->second;
}

StackFrame TraceStacks::place_of(const TraceFrame& frame, Rows& rows) {
    const uint32_t file = file_of(frame.file, rows);
    const auto identity = std::tuple(file, frame.symbol, frame.symbol_offset, frame.symbol.empty() ? frame.address : 0);
    if (const auto known = places_.find(identity); known != places_.end()) return {file, known->second};
    // A stand-in for the place in the file, which the trace does not record.
    const uint64_t place = places_.size() + 1;
    if (place > max_places) return {file, 0};
    places_.emplace(identity, place);
    if (!frame.symbol.empty())
        rows.symbols.push_back({.file = file,
                                .offset = place,
                                .name = frame.symbol,
                                .demangled = demangle(frame.symbol),
                                .symbol_offset = frame.symbol_offset});
    return {file, place};
}

}  // namespace ingero
