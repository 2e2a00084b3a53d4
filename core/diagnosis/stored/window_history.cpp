#include "core/diagnosis/stored/window_history.h"

#include <set>
#include <string>
#include <utility>

#include "core/spans/span.h"

namespace ingero {

namespace {

constexpr size_t max_spans = 262'144;

}  // namespace

Result<WindowHistory> read_history(const StoreSnapshot& snapshot, const BootWindow& boot, const Filter& filter) {
    WindowHistory history;
    auto gpus = read_gpu_states(snapshot, boot.boot_index, boot.monotonic);
    if (!gpus) return tl::unexpected(gpus.error());
    history.gpus = std::move(*gpus);
    auto spans = snapshot.spans(boot.boot_index, boot.monotonic, [&](const SpanRow& span) {
        return (span.kind == SpanKind::request || span.kind == SpanKind::step) &&
               (!filter.uid || span.uid == *filter.uid);
    });
    if (!spans) return tl::unexpected(spans.error());
    history.spans = std::move(*spans);
    if (history.spans.size() > max_spans) {
        history.left_out = history.spans.size() - max_spans;
        history.spans.erase(history.spans.begin(),
                            history.spans.begin() + static_cast<std::ptrdiff_t>(history.left_out));
    }
    std::set<std::string> scopes;
    for (const SpanRow& span : history.spans)
        if (!span.scope.empty()) scopes.insert(span.scope);
    for (const std::string& scope : scopes) {
        auto registered = snapshot.spans_of(registration_id(scope), {});
        if (!registered) return tl::unexpected(registered.error());
        // Emitters register the same processes again and again.
        std::set<ProcessKey> processes;
        for (SpanRow& span : *registered)
            if (span.kind == SpanKind::scope && span.scope == scope && processes.insert(span.process).second)
                history.spans.push_back(std::move(span));
    }
    return history;
}

}  // namespace ingero
