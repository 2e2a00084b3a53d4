#include "core/diagnosis/label_spans.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace ingero {

namespace {

const std::string* label(const SpanRow& row, std::string_view key) {
    const auto found =
        std::find_if(row.labels.begin(), row.labels.end(), [&](const auto& l) { return l.first == key; });
    return found == row.labels.end() ? nullptr : &found->second;
}

/// Whether the moment ends what was under way.
bool ends(const SpanRow& row, SpanKind kind) {
    return label(row, "phase") || (kind == SpanKind::step && (label(row, "step") || label(row, "epoch")));
}

/// The id of what begins with it; nullptr: nothing does.
const std::string* begins(const SpanRow& row, SpanKind kind) {
    const std::string* const id = label(row, kind == SpanKind::step ? "step" : "phase");
    if (!id || id->empty() || id->size() > max_span_id_bytes) return nullptr;
    return kind == SpanKind::phase && id->ends_with("_end") ? nullptr : id;
}

}  // namespace

std::vector<SpanRow> spans_of_labels(std::span<SpanRow> moments, SpanKind kind) {
    std::map<std::tuple<ProcessKey, uint32_t>, std::vector<SpanRow*>> of_process;
    for (SpanRow& row : moments)
        if (row.kind == SpanKind::label && row.start_ns == row.end_ns && ends(row, kind))
            of_process[{row.process, row.uid}].push_back(&row);
    std::vector<SpanRow> spans;
    for (auto& [process, rows] : of_process) {
        // At one time, what ends comes before what begins.
        std::stable_sort(rows.begin(), rows.end(), [&](const SpanRow* a, const SpanRow* b) {
            return std::pair(a->start_ns, begins(*a, kind) != nullptr) <
                   std::pair(b->start_ns, begins(*b, kind) != nullptr);
        });
        for (size_t i = 0; i + 1 < rows.size(); ++i) {
            const std::string* const id = begins(*rows[i], kind);
            const uint64_t length_ns = rows[i + 1]->start_ns - rows[i]->start_ns;
            if (!id || length_ns == 0 || length_ns > max_span_ns) continue;
            std::string own = *id;
            SpanRow& span = spans.emplace_back(std::move(*rows[i]));
            span.kind = kind;
            span.id = std::move(own);
            span.end_ns = rows[i + 1]->start_ns;
        }
    }
    return spans;
}

}  // namespace ingero
