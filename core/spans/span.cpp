#include "core/spans/span.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_model_bytes = 128;
constexpr size_t max_key_bytes = 64;
constexpr size_t max_value_bytes = 256;

constexpr std::pair<std::string_view, SpanKind> kinds[] = {{"request", SpanKind::request}, {"step", SpanKind::step},
                                                           {"phase", SpanKind::phase},     {"label", SpanKind::label},
                                                           {"sample", SpanKind::sample},   {"scope", SpanKind::scope}};

auto refuse(SpanRefusal why) {
    return tl::unexpected(why);
}

bool is_key_character(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

bool is_key(std::string_view text) {
    return !text.empty() && text.size() <= max_key_bytes && std::all_of(text.begin(), text.end(), is_key_character);
}

/// Reads fields of a map one by one; the first fault stays.
class Fields {
  public:
    explicit Fields(const json& fields) : fields_(fields) {}

    const std::optional<SpanRefusal>& fault() const { return fault_; }
    void blame(SpanRefusal why) {
        if (!fault_) fault_ = why;
    }

    /// Null is as good as absent.
    const json* find(const char* name) const {
        const auto found = fields_.find(name);
        return found == fields_.end() || found->is_null() ? nullptr : &*found;
    }

    std::optional<uint64_t> number(const char* name, uint64_t most = UINT64_MAX) {
        const json* value = find(name);
        if (!value) return std::nullopt;
        if (!value->is_number_unsigned() || value->get<uint64_t>() > most) {
            blame(SpanRefusal::bad_field);
            return std::nullopt;
        }
        return value->get<uint64_t>();
    }

    std::optional<uint64_t> time(const char* name) {
        const auto ns = number(name);
        return ns == 0 ? std::nullopt : ns;
    }

    /// UTF-8 of 1 to `most` bytes; the decoder hands over as bytes what is not.
    std::optional<std::string> text(const json& value, size_t most) {
        if (value.is_binary())
            blame(SpanRefusal::not_utf8);
        else if (!value.is_string() || value.get_ref<const std::string&>().size() > most)
            blame(SpanRefusal::bad_field);
        else
            return value.get<std::string>();
        return std::nullopt;
    }

    std::optional<std::string> text(const char* name, size_t most) {
        const json* value = find(name);
        return value ? text(*value, most) : std::nullopt;
    }

    /// Opaque bytes.
    std::optional<std::string> identifier(const char* name) {
        const json* value = find(name);
        if (!value) return std::nullopt;
        std::string bytes;
        if (value->is_string()) {
            bytes = value->get<std::string>();
        } else if (value->is_binary()) {
            const json::binary_t& binary = value->get_binary();
            bytes.assign(binary.begin(), binary.end());
        }
        if (bytes.empty() || bytes.size() > max_span_id_bytes) {
            blame(SpanRefusal::bad_id);
            return std::nullopt;
        }
        return bytes;
    }

    std::vector<std::pair<std::string, std::string>> labels(const char* name) {
        std::vector<std::pair<std::string, std::string>> labels;
        const json* map = members(name, max_span_labels);
        if (!map) return labels;
        for (const auto& [key, value] : map->items()) {
            auto content = text(value, max_value_bytes);
            if (!is_key(key)) blame(SpanRefusal::bad_field);
            if (content) labels.emplace_back(key, std::move(*content));
        }
        return labels;
    }

    std::vector<std::pair<std::string, double>> values(const char* name) {
        std::vector<std::pair<std::string, double>> values;
        const json* map = members(name, max_span_values);
        if (!map) return values;
        for (const auto& [key, value] : map->items()) {
            if (!is_key(key) || !value.is_number() || !std::isfinite(value.get<double>()))
                blame(SpanRefusal::bad_field);
            else
                values.emplace_back(key, value.get<double>());
        }
        return values;
    }

  private:
    const json* members(const char* name, size_t most) {
        const json* map = find(name);
        if (!map) return nullptr;
        if (map->is_object() && map->size() <= most) return map;
        blame(SpanRefusal::bad_field);
        return nullptr;
    }

    const json& fields_;
    std::optional<SpanRefusal> fault_;
};

bool lies_between(const std::optional<uint64_t>& point, uint64_t from, uint64_t to) {
    return !point || (*point >= from && *point <= to);
}

/// "17" as earlier emitters put a count into a label.
std::optional<uint64_t> parse_count(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

std::string_view to_string(SpanRefusal refusal) {
    static constexpr std::array<std::string_view, span_refusal_count> names = {
        "bad-frame",       "too-large",        "too-deep",   "bad-field",        "not-utf8",
        "bad-id",          "end-before-start", "too-long",   "in-future",        "too-old",
        "no-such-process", "not-yours",        "rate-limit", "connection-limit", "store-full"};
    return names[static_cast<size_t>(refusal)];
}

SpanResult<IncomingSpan> to_span(const json& map) {
    if (!map.is_object()) return refuse(SpanRefusal::bad_field);
    Fields fields(map);
    IncomingSpan span;
    // First, so that a refused span still gets its answer.
    span.ack = fields.number("ack");
    SpanRow& row = span.row;
    if (const auto kind = fields.text("kind", max_key_bytes)) {
        const auto* known =
            std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return k.first == *kind; });
        if (known == std::end(kinds)) return refuse(SpanRefusal::bad_field);
        row.kind = known->second;
    }
    if (auto id = fields.identifier("id")) row.id = std::move(*id);
    if (row.kind == SpanKind::request && row.id.empty()) fields.blame(SpanRefusal::bad_id);
    const auto start = fields.number("start"), end = fields.number("end");
    if (!start || !end) fields.blame(SpanRefusal::bad_field);
    row.start_ns = start.value_or(0);
    row.end_ns = end.value_or(0);
    if (const auto clock = fields.text("clock", max_key_bytes)) {
        span.realtime = *clock == "realtime";
        if (!span.realtime && *clock != "monotonic") fields.blame(SpanRefusal::bad_field);
    }
    row.scheduled_ns = fields.number("scheduled");
    row.first_token_ns = fields.number("first_token");
    row.prompt_tokens = fields.number("prompt_tokens");
    row.output_tokens = fields.number("output_tokens");
    if (auto model = fields.text("model", max_model_bytes)) row.model = std::move(*model);
    row.labels = fields.labels("labels");
    row.values = fields.values("values");
    span.pid = fields.number("pid", INT32_MAX);
    span.start_ticks = fields.number("start_time");
    if (span.start_ticks && !span.pid) fields.blame(SpanRefusal::bad_field);
    if (fields.fault()) return refuse(*fields.fault());
    if (row.end_ns < row.start_ns) return refuse(SpanRefusal::end_before_start);
    if (!lies_between(row.scheduled_ns, row.start_ns, row.end_ns) ||
        !lies_between(row.first_token_ns, row.start_ns, row.end_ns))
        return refuse(SpanRefusal::bad_field);
    return span;
}

SpanResult<IncomingSpan> to_annotation(const json& map) {
    if (!map.is_object()) return refuse(SpanRefusal::bad_field);
    Fields fields(map);
    IncomingSpan span;
    span.realtime = true;
    SpanRow& row = span.row;
    row.kind = SpanKind::label;
    span.ack = fields.number("ack");
    row.labels = fields.labels("labels");
    if (row.labels.empty()) fields.blame(SpanRefusal::bad_field);
    // 0 is none: what earlier emitters send for what they leave out.
    const auto at = fields.time("ts"), start = fields.time("span_start"), end = fields.time("span_end");
    if (start.has_value() != end.has_value()) fields.blame(SpanRefusal::bad_field);
    if (const auto pid = fields.number("pid", INT32_MAX); pid && *pid != 0) {
        span.pid = pid;
        span.start_ticks = fields.number("start_time");
    }
    if (fields.fault()) return refuse(*fields.fault());
    span.has_interval = start || at;
    row.start_ns = start.value_or(at.value_or(0));
    row.end_ns = end.value_or(at.value_or(0));
    if (row.end_ns < row.start_ns) return refuse(SpanRefusal::end_before_start);

    const auto label = [&](std::string_view key) -> const std::string* {
        const auto found =
            std::find_if(row.labels.begin(), row.labels.end(), [&](const auto& l) { return l.first == key; });
        return found == row.labels.end() ? nullptr : &found->second;
    };
    // Only an interval can be worked on: a moment stays a label.
    if (start)
        for (const auto& [key, kind] : {std::pair<std::string_view, SpanKind>{"request_id", SpanKind::request},
                                        {"step", SpanKind::step},
                                        {"phase", SpanKind::phase}}) {
            const std::string* id = label(key);
            if (!id || id->empty()) continue;
            if (id->size() > max_span_id_bytes) return refuse(SpanRefusal::bad_id);
            row.kind = kind;
            row.id = *id;
            break;
        }
    if (row.kind == SpanKind::request) {
        if (const std::string* count = label("prompt_len")) row.prompt_tokens = parse_count(*count);
        if (const std::string* count = label("output_len")) row.output_tokens = parse_count(*count);
        if (const std::string* model = label("model"); model && model->size() <= max_model_bytes) row.model = *model;
    }
    return span;
}

std::string_view span_kind_name(SpanKind kind) {
    for (const auto& [name, known] : kinds)
        if (known == kind) return name;
    return "other";
}

std::string registration_id(std::string_view scope) {
    constexpr size_t digits = 16;
    std::string id("scope:");
    if (id.size() + scope.size() <= max_span_id_bytes) return id.append(scope);
    char hash[digits + 1];
    std::snprintf(hash, sizeof(hash), "%016" PRIx64, static_cast<uint64_t>(XXH3_64bits(scope.data(), scope.size())));
    return id.append(scope.substr(0, max_span_id_bytes - id.size() - digits)).append(hash, digits);
}

SpanResult<void> place_in_time(IncomingSpan& span, const SpanRules& rules) {
    SpanRow& row = span.row;
    if (!span.has_interval) {
        row.start_ns = row.end_ns = rules.now.monotonic_ns;
        return {};
    }
    // Before any conversion: a time that no clock could show would wrap around.
    const uint64_t now = span.realtime ? rules.now.realtime_ns : rules.now.monotonic_ns;
    if (row.end_ns > now && row.end_ns - now > span_future_ns) return refuse(SpanRefusal::in_future);
    if (row.end_ns - row.start_ns > rules.longest_ns) return refuse(SpanRefusal::too_long);
    if (span.realtime) {
        // The monotonic clock cannot say when that was.
        if (row.start_ns < rules.now.realtime_ns - rules.now.monotonic_ns) return refuse(SpanRefusal::too_old);
        const auto convert = [&](uint64_t time) { return rules.now.to_monotonic(time); };
        row.start_ns = convert(row.start_ns);
        row.end_ns = convert(row.end_ns);
        if (row.scheduled_ns) row.scheduled_ns = convert(*row.scheduled_ns);
        if (row.first_token_ns) row.first_token_ns = convert(*row.first_token_ns);
    }
    if (row.end_ns < rules.oldest_ns) return refuse(SpanRefusal::too_old);
    return {};
}

}  // namespace ingero
