#include "core/spans/request_rows.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "core/model/call_time.h"

namespace ingero {

namespace {

constexpr uint64_t same_start_ns = 1'000'000;
constexpr const char* completions = "completions";
constexpr double max_completions = 1e6;  ///< more are no number of completions
/// Rows of one request that the next is compared with: whoever sends very many of one id must not make others wait.
constexpr size_t max_compared = 256;

uint64_t duration_of(const SpanRow& span) {
    return saturating_subtract(span.end_ns, span.start_ns);
}

/// One of them was sent again: a later conversion from the wall clock moves all of its times alike.
bool is_copy(const SpanRow& a, const SpanRow& b) {
    return duration_of(a) == duration_of(b) && a.labels == b.labels && a.values == b.values &&
           a.output_tokens == b.output_tokens;
}

template <class Number>
void add_known(std::optional<Number>& ret_sum, const std::optional<Number>& value) {
    if (value) ret_sum = saturating_add(ret_sum.value_or(0), *value);
}

void take_earlier(std::optional<uint64_t>& ret_time, const std::optional<uint64_t>& other) {
    if (other && (!ret_time || *other < *ret_time)) ret_time = other;
}

void add_child(SpanRow& ret_request, const SpanRow& child) {
    const double count = completions_of(ret_request) + completions_of(child);
    if (child.end_ns > ret_request.end_ns) {
        ret_request.end_ns = child.end_ns;
        ret_request.labels = child.labels;
        ret_request.values = child.values;
    }
    std::erase_if(ret_request.values, [](const auto& value) { return value.first == completions; });
    ret_request.values.emplace_back(completions, count);
    take_earlier(ret_request.scheduled_ns, child.scheduled_ns);
    take_earlier(ret_request.first_token_ns, child.first_token_ns);
    if (!ret_request.prompt_tokens) ret_request.prompt_tokens = child.prompt_tokens;
    add_known(ret_request.output_tokens, child.output_tokens);
}

}  // namespace

double completions_of(const SpanRow& span) {
    for (const auto& [name, value] : span.values)
        if (name == completions && value >= 1 && value <= max_completions) return value;
    return 1;
}

bool is_same_request(const SpanRow& a, const SpanRow& b) {
    const uint64_t apart_ns = std::max(a.start_ns, b.start_ns) - std::min(a.start_ns, b.start_ns);
    return apart_ns <= same_start_ns && !a.id.empty() && a.kind == SpanKind::request &&
           std::tie(a.kind, a.process, a.id) == std::tie(b.kind, b.process, b.id);
}

void merge_request_rows(std::vector<SpanRow>& ret_spans) {
    std::vector<SpanRow> merged;
    std::vector<SpanRow> rows_of_last;  // as they came
    const auto moments = [](const SpanRow& span) {
        return std::tie(span.kind, span.process, span.id, span.start_ns, span.end_ns);
    };
    std::stable_sort(ret_spans.begin(), ret_spans.end(),
                     [&](const SpanRow& a, const SpanRow& b) { return moments(a) < moments(b); });
    for (SpanRow& span : ret_spans) {
        if (span.kind != SpanKind::request) {
            // Steps and phases of one name may follow each other at once: only what is the same in all is a repeat.
            if (merged.empty() || moments(merged.back()) != moments(span)) merged.push_back(std::move(span));
            continue;
        }
        if (merged.empty() || !is_same_request(merged.back(), span)) {
            rows_of_last = {span};
            merged.push_back(std::move(span));
            continue;
        }
        const auto sent_again = [&](const SpanRow& row) { return is_copy(row, span); };
        if (std::any_of(rows_of_last.begin(), rows_of_last.end(), sent_again)) continue;
        add_child(merged.back(), span);
        if (rows_of_last.size() < max_compared) rows_of_last.push_back(std::move(span));
    }
    ret_spans = std::move(merged);
    std::stable_sort(ret_spans.begin(), ret_spans.end(), [](const SpanRow& a, const SpanRow& b) {
        return std::tie(a.start_ns, a.end_ns, a.process, a.id) < std::tie(b.start_ns, b.end_ns, b.process, b.id);
    });
}

}  // namespace ingero
