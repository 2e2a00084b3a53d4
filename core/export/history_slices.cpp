#include "core/export/history_slices.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>

#include "core/diagnosis/incidents/incident_history.h"
#include "core/diagnosis/requests.h"
#include "core/model/call_time.h"
#include "core/wire/utf8.h"

namespace ingero {

namespace {

/// Readers' numbers are signed.
uint64_t readable(uint64_t number) {
    return std::min<uint64_t>(number, INT64_MAX);
}

std::optional<HistoryKind> kind_of(SpanKind kind) {
    switch (kind) {
        case SpanKind::request:
            return HistoryKind::request;
        case SpanKind::step:
            return HistoryKind::step;
        case SpanKind::phase:
            return HistoryKind::phase;
        default:
            return std::nullopt;
    }
}

bool is_wanted(const SpanRow& span, const Window& window, const Filter& filter) {
    if ((filter.uid && span.uid != *filter.uid) || (filter.pid && span.process.pid != *filter.pid)) return false;
    return span.start_ns < window.to_ns && (span.end_ns > window.from_ns || window.contains(span.start_ns));
}

HistorySlice slice_of(const SpanRow& span, HistoryKind kind, uint32_t boot, const ClockTriple& clock) {
    HistorySlice slice;
    slice.kind = kind;
    slice.boot = boot;
    slice.process = span.process;
    slice.start_ns = readable(clock.to_realtime(span.start_ns));
    slice.end_ns = std::max(readable(clock.to_realtime(span.end_ns)), slice.start_ns);
    slice.name = span.id.empty() ? std::string(to_string(kind)) : to_valid_utf8(span.id);
    if (!span.model.empty()) slice.texts.emplace_back("model", to_valid_utf8(span.model));
    for (const auto& [key, value] : span.labels)
        slice.texts.emplace_back("label " + to_valid_utf8(key), to_valid_utf8(value));
    if (span.prompt_tokens) slice.numbers.emplace_back("prompt_tokens", readable(*span.prompt_tokens));
    if (span.output_tokens) slice.numbers.emplace_back("output_tokens", readable(*span.output_tokens));
    if (kind != HistoryKind::request) return slice;
    const auto add_part = [&](std::string_view name, std::optional<uint64_t> until_ns) {
        if (until_ns) slice.parts.emplace_back(name, readable(clock.to_realtime(*until_ns)));
    };
    add_part("waiting to be taken up", span.scheduled_ns);
    add_part("until the first token", span.first_token_ns);
    if (!slice.parts.empty()) slice.parts.emplace_back("until the end", slice.end_ns);
    return slice;
}

HistorySlice slice_of(const IncidentHistory& incident, uint32_t boot) {
    HistorySlice slice;
    const IncidentRow& row = incident.latest;
    slice.kind = HistoryKind::incident;
    slice.boot = boot;
    slice.process = row.process;
    slice.start_ns = readable(incident.opened_ns);
    slice.end_ns = std::max(readable(incident.closed_ns.value_or(incident.updated_ns)), slice.start_ns);
    slice.name = to_valid_utf8(row.kind);
    for (const auto& [name, text] :
         {std::pair("id", &row.id), {"severity", &row.severity}, {"verdict", &row.verdict}, {"summary", &row.summary}})
        slice.texts.emplace_back(name, to_valid_utf8(*text));
    slice.numbers.emplace_back("lost_ns", readable(row.lost_ns));
    return slice;
}

/// Keeps the longest, and says how many it did not.
template <class Row, class Length>
void keep_longest(std::vector<Row>& rows, const std::string& what, const Length& length, HistorySlices& slices) {
    if (rows.size() <= most_history_slices) return;
    slices.notes.push_back(std::to_string(rows.size() - most_history_slices) + " " + what +
                           "s are not shown: only the longest " + std::to_string(most_history_slices));
    const auto middle = rows.begin() + most_history_slices;
    std::nth_element(rows.begin(), middle, rows.end(),
                     [&](const Row& a, const Row& b) { return length(a) > length(b); });
    rows.erase(middle, rows.end());
}

/// Less of a request is not worth an arrow.
constexpr uint64_t least_part = 100;

/// What held up each of the requests that are shown.
class Stalls {
  public:
    Stalls(const StoreSnapshot& snapshot, const Filter& filter, HistorySlices& slices) {
        RequestsQuery query;
        query.filter = filter;
        query.limit = most_history_slices;
        query.with_occupants = false;
        query.deadline = std::chrono::steady_clock::now() + patience;
        auto answer = compute_requests(snapshot, query);
        if (!answer) {
            slices.notes.push_back("what held requests up is not shown: " + answer.error().message);
            return;
        }
        for (RequestStats& request : answer->requests) {
            const auto& stall = request.longest_stall;
            if (!stall || stall->tid == 0 || stall->ns < request.duration_ns / least_part) continue;
            // Of another the call is not in the file.
            if (filter.window.contains(stall->start_realtime_ns)) stalls_.try_emplace(key_of(request.span), *stall);
        }
    }

    /// Once: where several requests are alike in all that names them, of one of them.
    std::optional<LongestStall> take(const SpanRow& span, const ClockTriple& clock) {
        const auto found = stalls_.extract(key_of(span));
        if (found.empty()) return std::nullopt;
        const RequestStall& stall = found.mapped();
        // After the begin of both, in the order of a trace's reader.
        const uint64_t begin_ns = std::max(stall.start_realtime_ns, clock.to_realtime(span.start_ns));
        return LongestStall{.pid = stall.pid,
                            .tid = stall.tid,
                            .op = stall.op,
                            .id = stall.sequence,
                            .flow = ++flows_,
                            .ns = stall.ns,
                            .at_ns = readable(begin_ns + 1),
                            .why = to_valid_utf8(stall.kind),
                            .by = stall.culprit.pid == 0 ? std::string() : to_valid_utf8(stall.culprit.name)};
    }

  private:
    static constexpr std::chrono::seconds patience{5};
    using Key = std::tuple<ProcessKey, uint64_t, uint64_t, std::string>;
    static Key key_of(const SpanRow& span) { return {span.process, span.start_ns, span.end_ns, span.id}; }

    std::map<Key, RequestStall> stalls_;
    uint64_t flows_ = 0;
};

struct FoundSpan {
    uint32_t boot = 0;
    SpanRow row;
};

void add_spans(const StoreSnapshot& snapshot, const EventIndex& index, const Filter& filter, bool with_stalls,
               HistorySlices& slices) {
    const auto& boots = index.boots();
    std::array<std::vector<FoundSpan>, history_kinds> found;
    for (uint32_t boot = 0; boot < boots.size(); ++boot) {
        const BootWindow& window = boots[boot].window;
        auto spans = snapshot.spans(window.boot_index, window.monotonic);
        if (!spans) {
            slices.notes.push_back("requests, steps and phases cannot be read: " + spans.error().message);
            continue;
        }
        for (SpanRow& span : *spans)
            if (const auto kind = kind_of(span.kind); kind && is_wanted(span, window.monotonic, filter))
                found[static_cast<size_t>(*kind)].push_back({boot, std::move(span)});
    }
    std::optional<Stalls> stalls;
    if (with_stalls && !found[static_cast<size_t>(HistoryKind::request)].empty())
        stalls.emplace(snapshot, filter, slices);
    const auto length = [](const FoundSpan& span) { return saturating_subtract(span.row.end_ns, span.row.start_ns); };
    for (size_t number = 0; number < history_kinds; ++number) {
        const auto kind = static_cast<HistoryKind>(number);
        keep_longest(found[number], std::string(to_string(kind)), length, slices);
        for (const FoundSpan& span : found[number]) {
            const ClockTriple& clock = boots[span.boot].window.clock;
            slices.all.push_back(slice_of(span.row, kind, span.boot, clock));
            if (stalls && kind == HistoryKind::request) slices.all.back().stall = stalls->take(span.row, clock);
        }
    }
}

void add_incidents(const StoreSnapshot& snapshot, const EventIndex& index, const Filter& filter,
                   HistorySlices& slices) {
    const auto incidents = read_incidents(snapshot, filter);
    if (!incidents) {
        slices.notes.push_back("incidents cannot be read: " + incidents.error().message);
        return;
    }
    std::vector<HistorySlice> found;
    const auto& boots = index.boots();
    for (const IncidentHistory& incident : *incidents)
        for (uint32_t boot = 0; boot < boots.size(); ++boot)
            if (boots[boot].window.boot_index == incident.boot.boot_index) found.push_back(slice_of(incident, boot));
    keep_longest(
        found, "incident", [](const HistorySlice& slice) { return slice.end_ns - slice.start_ns; }, slices);
    std::move(found.begin(), found.end(), std::back_inserter(slices.all));
}

}  // namespace

std::string_view to_string(HistoryKind kind) {
    static constexpr std::array<std::string_view, history_kinds> names = {"incident", "request", "step", "phase"};
    return names[static_cast<size_t>(kind)];
}

HistorySlices read_history_slices(const StoreSnapshot& snapshot, const EventIndex& index, const Filter& filter,
                                  bool with_stalls) {
    HistorySlices slices;
    add_incidents(snapshot, index, filter, slices);
    add_spans(snapshot, index, filter, with_stalls, slices);
    std::stable_sort(slices.all.begin(), slices.all.end(), [](const HistorySlice& a, const HistorySlice& b) {
        return std::tie(a.start_ns, b.end_ns) < std::tie(b.start_ns, a.end_ns);
    });
    return slices;
}

}  // namespace ingero
