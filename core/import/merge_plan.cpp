#include "core/import/merge_plan.h"

#include <algorithm>
#include <tuple>

namespace ingero::merging {

namespace {

/// Of one session: a store has one a user and its uids.
constexpr size_t most_gave_way = 4'096;

/// A session as one source has it, with what of its boot belongs to it: all that began from its start up to the next
/// one's.
struct Copy {
    Source* source = nullptr;
    Session session;
    Window starts;  ///< CLOCK_MONOTONIC
};

/// Of all copies of one session.
Result<Part> make_part(std::vector<Copy>& copies) {
    std::stable_sort(copies.begin(), copies.end(),
                     [](const Copy& a, const Copy& b) { return goes_further(a.session, b.session); });
    std::vector<SessionCopy> stored;
    for (const Copy& copy : copies) {
        stored.push_back({copy.session, {}});
        if (copies.size() == 1) break;
        auto gave_way = gave_way_in(*copy.source->snapshot, copy.session);
        if (!gave_way) return of_source(*copy.source, gave_way.error());
        stored.back().gave_way = std::move(*gave_way);
    }
    SessionUnion all = unite(stored);
    Part part{std::move(all.session), {}, std::move(all.holes)};
    const auto add = [&](const Copy& copy, Window starts) {
        part.slices.push_back(
            {copy.source, copy.session.boot_index, starts, copy.session.last_covered_ns, copy.starts.to_ns});
    };
    for (const SessionSlice& slice : all.slices) {
        const Copy& copy = copies[slice.copy];
        const Window starts{std::max(slice.starts.from_ns, copy.starts.from_ns),
                            std::min(slice.starts.to_ns, copy.starts.to_ns)};
        if (starts.length_ns() != 0) add(copy, starts);
    }
    if (part.slices.empty()) add(copies.front(), copies.front().starts);
    return part;
}

}  // namespace

tl::unexpected<Error> of_source(const Source& source, Error error) {
    error.message = source.name + ": " + error.message;
    return tl::unexpected(std::move(error));
}

Result<Source> open_source(const MergeSource& from) {
    Source source;
    source.name = from.name;
    const auto reader = StoreReader::open(from.directory);
    if (!reader) return of_source(source, reader.error());
    auto snapshot = (*reader)->snapshot();
    if (!snapshot) return of_source(source, snapshot.error());
    source.snapshot = std::move(*snapshot);
    source.sessions = source.snapshot->sessions();
    for (Session& session : source.sessions)
        if (session.node.empty()) session.node = from.node;
    auto processes = source.snapshot->processes();
    if (!processes) return of_source(source, processes.error());
    for (Process& process : *processes) source.processes.emplace(process.key, std::move(process));
    auto boots = source.snapshot->process_boots();
    if (!boots) return of_source(source, boots.error());
    source.boots = std::move(*boots);
    auto functions = source.snapshot->functions();
    if (!functions) return of_source(source, functions.error());
    for (FunctionRow& function : *functions) source.functions[function.process].push_back(std::move(function));
    const auto communicators = source.snapshot->communicators();
    if (!communicators) return of_source(source, communicators.error());
    for (const CommunicatorRow& row : *communicators) source.communicators[row.process].push_back(row);
    auto files = source.snapshot->files();
    if (!files) return of_source(source, files.error());
    source.files = std::move(*files);
    return source;
}

Result<std::vector<Window>> gave_way_in(const StoreSnapshot& snapshot, const Session& session) {
    const Window covered{session.first_covered_ns, session.last_covered_ns};
    const auto rows = snapshot.gaps(session.boot_index, covered);
    if (!rows) return tl::unexpected(rows.error());
    std::vector<Window> times;
    for (const GapRow& row : *rows) {
        const Window time{std::max(row.from_ns, covered.from_ns), std::min(row.to_ns, covered.to_ns)};
        if (row.reason == GapReason::gave_way && time.length_ns() != 0) times.push_back(time);
    }
    if (times.size() > most_gave_way)
        return fail(ErrorCode::limit,
                    "session " + session.id + " has more than " + std::to_string(most_gave_way) +
                        " gaps of calls that were removed to make room",
                    "merge without this store");
    return times;
}

Result<std::vector<Part>> plan(std::vector<Source>& sources) {
    std::map<std::string, std::vector<Copy>> by_id;
    for (Source& source : sources) {
        for (const Session& session : source.sessions) {
            Copy copy{&source, session, {0, UINT64_MAX}};
            bool is_first = true;
            for (const Session& other : source.sessions) {
                if (other.boot_index != session.boot_index || &other == &session) continue;
                const uint64_t begin = other.clock.monotonic_ns;
                if (std::tie(begin, other.id) < std::tie(session.clock.monotonic_ns, session.id))
                    is_first = false;
                else
                    copy.starts.to_ns = std::min(copy.starts.to_ns, begin);
            }
            if (!is_first) copy.starts.from_ns = session.clock.monotonic_ns;
            by_id[session.id].push_back(std::move(copy));
        }
    }
    std::vector<Part> parts;
    std::map<Boot, uint64_t> begins;
    for (auto& [id, copies] : by_id) {
        auto part = make_part(copies);
        if (!part) return tl::unexpected(part.error());
        const Session& session = part->session;
        uint64_t& begin = begins.try_emplace({session.node, session.boot_id}, UINT64_MAX).first->second;
        begin = std::min(begin, session.clock.realtime_ns);
        parts.push_back(std::move(*part));
    }
    std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) {
        const auto key = [&](const Session& session) {
            return std::tuple(begins.at({session.node, session.boot_id}), session.node, session.boot_id,
                              session.clock.monotonic_ns, session.id);
        };
        return key(a.session) < key(b.session);
    });
    return parts;
}

namespace {

/// Of a slice's source, the time of the first row of a kind in a window; UINT64_MAX where there is none.
using FirstRow = Result<uint64_t>(const Slice& slice, Window window);

Result<uint64_t> first_span(const Slice& slice, Window window) {
    uint64_t first_ns = UINT64_MAX;
    const auto read = slice.source->snapshot->spans(slice.boot_index, window, [&](const SpanRow& row) {
        if (window.contains(row.start_ns)) first_ns = std::min(first_ns, row.start_ns);
        return false;
    });
    if (!read) return tl::unexpected(read.error());
    return first_ns;
}

Result<uint64_t> first_incident(const Slice& slice, Window window) {
    const auto rows = slice.source->snapshot->incidents(slice.boot_index, window);
    if (!rows) return tl::unexpected(rows.error());
    return rows->empty() ? UINT64_MAX : rows->front().at_ns;
}

Result<uint64_t> first_state(const Slice& slice, Window window) {
    uint64_t first_ns = UINT64_MAX;
    const auto scanned = slice.source->snapshot->scan_states(slice.boot_index, window, [&](const StateHead& head) {
        first_ns = head.time_ns;
        return false;
    });
    if (!scanned) return tl::unexpected(scanned.error());
    return first_ns;
}

Result<std::vector<Window>> windows_of(const Part& part, FirstRow& first_row) {
    std::vector<Window> windows(part.slices.size());
    uint64_t to_ns = UINT64_MAX;
    for (size_t i = windows.size(); i-- > 0;) {
        const Slice& slice = part.slices[i];
        Window& window = windows[i];
        window = {slice.starts.from_ns, std::min(to_ns, slice.next_session_ns)};
        if (i == 0) break;
        const auto first_ns = first_row(slice, window);
        if (!first_ns) return of_source(*slice.source, first_ns.error());
        window.from_ns = to_ns = std::min(*first_ns, window.to_ns);
    }
    return windows;
}

}  // namespace

Result<HistoryWindows> history_windows(const Part& part) {
    auto spans = windows_of(part, first_span);
    if (!spans) return tl::unexpected(spans.error());
    auto incidents = windows_of(part, first_incident);
    if (!incidents) return tl::unexpected(incidents.error());
    auto states = windows_of(part, first_state);
    if (!states) return tl::unexpected(states.error());
    return HistoryWindows{std::move(*spans), std::move(*incidents), std::move(*states)};
}

}  // namespace ingero::merging
