#include "core/import/trace_history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_text_bytes = 4'096;
constexpr size_t max_json_bytes = 16 << 10;
constexpr int max_json_depth = 8;

std::string cut(std::string_view text) {
    return to_valid_utf8(text.substr(0, max_text_bytes));
}

std::optional<uint64_t> time_of(const TraceRow& row, int column) {
    const auto time_ns = row.integer(column);
    if (!time_ns || *time_ns <= 0) return std::nullopt;
    return static_cast<uint64_t>(*time_ns);
}

/// A document whose values are thrown away: nothing is built, so that depth costs nothing but a count.
class DepthReader : public nlohmann::json_sax<json> {
  public:
    bool start_array(size_t) override { return ++depth_ <= max_json_depth; }
    bool end_array() override { return --depth_ >= 0; }
    bool start_object(size_t) override { return ++depth_ <= max_json_depth; }
    bool end_object() override { return --depth_ >= 0; }
    bool key(string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool boolean(bool) override { return true; }
    bool null() override { return true; }
    bool binary(binary_t&) override { return false; }
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  private:
    int depth_ = 0;
};

class LabelReader final : public nlohmann::json_sax<json> {
  public:
    explicit LabelReader(std::vector<std::pair<std::string, std::string>>& labels) : labels_(labels) {}

    bool start_object(size_t) override { return ++depth_ == 1; }
    bool end_object() override { return --depth_ == 0; }
    bool start_array(size_t) override { return false; }
    bool end_array() override { return false; }
    bool key(string_t& name) override {
        key_ = cut(name);
        return true;
    }
    bool string(string_t& text) override { return add(cut(text)); }
    bool number_unsigned(number_unsigned_t value) override { return add(std::to_string(value)); }
    bool number_integer(number_integer_t value) override { return add(std::to_string(value)); }
    bool number_float(number_float_t, const string_t& text) override { return add(cut(text)); }
    bool boolean(bool value) override { return add(value ? "true" : "false"); }
    bool null() override { return add(""); }
    bool binary(binary_t&) override { return false; }
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  private:
    bool add(std::string value) {
        if (depth_ != 1) return false;
        if (labels_.size() < max_span_labels) labels_.emplace_back(key_, std::move(value));
        return true;
    }

    std::vector<std::pair<std::string, std::string>>& labels_;
    std::string key_;
    int depth_ = 0;
};

}  // namespace

bool is_bounded_json(std::string_view text) {
    if (text.size() > max_json_bytes || !is_utf8(text)) return false;
    DepthReader reader;
    return json::sax_parse(text.begin(), text.end(), &reader);
}

bool parse_labels(std::string_view text, std::vector<std::pair<std::string, std::string>>& ret_labels) {
    if (text.size() > max_json_bytes) return false;
    std::vector<std::pair<std::string, std::string>> labels;
    LabelReader reader(labels);
    if (!json::sax_parse(text.begin(), text.end(), &reader)) return false;
    ret_labels = std::move(labels);
    return true;
}

const std::vector<std::string>& snapshot_columns() {
    static const std::vector<std::string> columns = {"timestamp", "cpu_pct", "mem_pct",
                                                     "mem_avail", "swap_mb", "load_avg"};
    return columns;
}

const std::vector<std::string>& annotation_columns() {
    static const std::vector<std::string> columns = {"timestamp", "labels",   "pid",      "start_time", "span_start",
                                                     "span_end",  "peer_uid", "peer_gid", "peer_pid"};
    return columns;
}

const std::vector<std::string>& chain_columns() {
    static const std::vector<std::string> columns = {
        "id",      "detected_at",     "severity", "summary",     "node",        "root_cause", "explanation",
        "cuda_op", "recommendations", "timeline", "cuda_p99_us", "cuda_p50_us", "tail_ratio"};
    return columns;
}

std::optional<StateRow> read_snapshot(const TraceRow& row) {
    const auto time_ns = time_of(row, 0);
    if (!time_ns) return std::nullopt;
    StateRow state;
    state.time_ns = *time_ns;
    state.source = "host";
    for (size_t column = 1; column < snapshot_columns().size(); ++column) {
        const auto value = row.real(static_cast<int>(column));
        if (value && std::isfinite(*value)) state.values.emplace_back(snapshot_columns()[column], *value);
    }
    if (state.values.empty()) return std::nullopt;
    return state;
}

std::optional<SpanRow> read_annotation(const TraceRow& row, uint64_t& ret_unreadable) {
    enum { timestamp, labels, pid, start_time, span_start, span_end, peer_uid, peer_gid, peer_pid };
    const auto time_ns = time_of(row, timestamp);
    const int64_t process = row.integer(pid).value_or(0);
    if (!time_ns || process < 0 || process > INT32_MAX) return std::nullopt;
    SpanRow span;
    span.kind = SpanKind::label;
    span.start_ns = time_of(row, span_start).value_or(*time_ns);
    span.end_ns = time_of(row, span_end).value_or(span.start_ns);
    if (span.end_ns < span.start_ns) return std::nullopt;
    span.received_ns = *time_ns;
    span.process.pid = static_cast<uint32_t>(process);
    span.uid = static_cast<uint32_t>(row.integer(peer_uid).value_or(0));
    if (!row.is_null(labels) && !parse_labels(row.text(labels), span.labels)) ++ret_unreadable;
    for (const int column : {start_time, peer_gid, peer_pid})
        if (const auto value = row.integer(column); value && *value != 0)
            span.values.emplace_back(annotation_columns()[static_cast<size_t>(column)], static_cast<double>(*value));
    return span;
}

std::optional<IncidentRow> read_chain(const TraceRow& row, uint64_t& ret_unreadable) {
    enum {
        id,
        detected_at,
        severity,
        summary,
        node [[maybe_unused]],
        root_cause,
        explanation,
        cuda_op,
        recommendations,
        timeline
    };
    const auto time_ns = time_of(row, detected_at);
    if (!time_ns || row.text(id).empty()) return std::nullopt;
    IncidentRow incident;
    incident.id = cut(row.text(id));
    incident.event = IncidentEvent::closed;  // the agent reported it once, and never again
    incident.at_ns = incident.opened_ns = *time_ns;
    incident.kind = imported_finding;
    incident.verdict = "insufficient-evidence";
    incident.summary = cut(row.text(summary));
    constexpr std::pair<std::string_view, const char*> severities[] = {
        {"LOW", "low"}, {"MEDIUM", "medium"}, {"HIGH", "high"}};
    for (const auto& [theirs, own] : severities)
        if (row.text(severity) == theirs) incident.severity = own;

    json finding = json::object();
    const auto name = [](int column) { return chain_columns()[static_cast<size_t>(column)]; };
    for (const int column : {int{severity}, int{root_cause}, int{explanation}, int{cuda_op}})
        if (!row.text(column).empty()) finding[name(column)] = cut(row.text(column));
    for (int column = timeline + 1; column < static_cast<int>(chain_columns().size()); ++column) {
        if (const auto whole = row.integer(column))
            finding[name(column)] = *whole;
        else if (const auto value = row.real(column); value && std::isfinite(*value))
            finding[name(column)] = *value;
    }
    for (const int column : {int{recommendations}, int{timeline}}) {
        if (row.text(column).empty()) continue;
        if (is_bounded_json(row.text(column)))
            finding[name(column)] = std::string(row.text(column));
        else
            ++ret_unreadable;
    }
    // Escaped it may be several times as long.
    incident.finding = finding.dump();
    for (const int column : {int{timeline}, int{recommendations}, int{explanation}, int{root_cause}}) {
        if (incident.finding.size() <= max_finding_bytes) break;
        ret_unreadable += finding.erase(name(column));
        incident.finding = finding.dump();
    }
    return incident;
}

}  // namespace ingero
