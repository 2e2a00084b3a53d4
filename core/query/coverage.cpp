#include "core/query/coverage.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/query/event_filter.h"
#include "core/query/segment_columns.h"

namespace ingero {

namespace {

/// How long after its latest commit a session without an end may still be one that runs: commits come each second.
constexpr uint64_t commit_grace_ns = 5'000'000'000;

/// What one session answers for, on the wall clock.
struct Covered {
    Window realtime;
    bool ended_cleanly = false;
    uint64_t latest_commit_ns = 0;
};

/// The clock of each boot: the latest triple of its last session. A wall clock set right after the start is right for
/// all of the boot, and "five minutes ago" means five minutes before now.
std::map<uint32_t, ClockTriple> boot_clocks(const std::vector<Session>& sessions) {
    std::map<uint32_t, ClockTriple> clocks;
    for (const Session& session : sessions) clocks[session.boot_index] = session.latest_clock;
    return clocks;
}

/// Sessions that cover something, in order of wall time.
std::vector<Covered> covered_intervals(const std::vector<Session>& sessions, bool by_rollups = false) {
    const auto clocks = boot_clocks(sessions);
    std::vector<Covered> covered;
    for (const Session& session : sessions) {
        const bool rolled_up = by_rollups && session.rolled_up_from_ns != 0;
        const uint64_t from_ns = rolled_up ? session.rolled_up_from_ns : session.first_covered_ns;
        if (from_ns == 0 || session.last_covered_ns <= from_ns) continue;
        const ClockTriple& clock = clocks.at(session.boot_index);
        covered.push_back({.realtime = {clock.to_realtime(from_ns), clock.to_realtime(session.last_covered_ns)},
                           .ended_cleanly = session.ended_cleanly,
                           .latest_commit_ns = clock.to_realtime(session.latest_clock.monotonic_ns)});
    }
    std::stable_sort(covered.begin(), covered.end(),
                     [](const Covered& a, const Covered& b) { return a.realtime.from_ns < b.realtime.from_ns; });
    return covered;
}

bool overlap(Window a, Window b) {
    return a.from_ns < b.to_ns && b.from_ns < a.to_ns;
}

/// Why nothing is covered from `before`'s end on; `until_ns` is where the gap ends, `last` whether no session follows.
std::string gap_reason(const Covered* before, uint64_t until_ns, bool last) {
    if (before == nullptr) return "before the first record";
    if (before->ended_cleanly) return "ingerod was not running";
    if (last && until_ns <= before->latest_commit_ns + commit_grace_ns) return "not yet stored";
    return "ingerod ended without a clean stop";
}

std::vector<Gap> find_gaps(const std::vector<Covered>& covered, Window window) {
    std::vector<Gap> gaps;
    const Covered* before = nullptr;  // of those so far, the one that reaches furthest
    const auto close_gap = [&](uint64_t until_ns, bool last) {
        const uint64_t from = std::max(window.from_ns, before == nullptr ? 0 : before->realtime.to_ns);
        const uint64_t to = std::min(window.to_ns, until_ns);
        if (from < to) gaps.push_back({from, to, gap_reason(before, to, last)});
    };
    for (const Covered& session : covered) {
        close_gap(session.realtime.from_ns, false);
        if (before == nullptr || session.realtime.to_ns > before->realtime.to_ns) before = &session;
    }
    close_gap(window.to_ns, true);
    return gaps;
}

/// A store of several nodes reports for each what it lacks: one node's records say nothing of another's time.
std::vector<Gap> find_node_gaps(const std::vector<Session>& sessions, Window window) {
    std::map<std::string, std::vector<Session>> nodes;
    for (const Session& session : sessions) nodes[session.node].push_back(session);
    if (nodes.size() < 2) return {};
    std::vector<Gap> gaps;
    for (const auto& [node, own] : nodes)
        for (Gap& gap : find_gaps(covered_intervals(own), window))
            gaps.push_back({gap.from_ns, gap.to_ns, "node " + node + ": " + gap.reason, true});
    return gaps;
}

bool may_report(const GapRow& row, const GapFilter& filter) {
    if (row.process.pid == 0) return is_of_anyone(row) || !filter.uid || row.uid == *filter.uid;
    if (filter.uid && row.uid != *filter.uid) return false;
    return !filter.pid || row.process.pid == *filter.pid;
}

}  // namespace

namespace {

/// When the next boot of each boot's node began, on the boot's own clock: nothing of it is later. Where the wall clock
/// was set meanwhile, not before all that it recorded.
std::map<uint32_t, uint64_t> boot_ends(const std::vector<Session>& sessions,
                                       const std::map<uint32_t, ClockTriple>& clocks) {
    std::map<std::string, std::set<uint64_t>> begins;  // of CLOCK_REALTIME, by node
    const auto begin_of = [&](const Session& session) { return clocks.at(session.boot_index).to_realtime(0); };
    for (const Session& session : sessions) begins[session.node].insert(begin_of(session));
    std::map<uint32_t, uint64_t> ends;
    for (const Session& session : sessions) {
        const auto& of_node = begins.at(session.node);
        const auto next = of_node.upper_bound(begin_of(session));
        const uint64_t end_ns = next == of_node.end() ? UINT64_MAX : clocks.at(session.boot_index).to_monotonic(*next);
        uint64_t& boot_end_ns = ends.try_emplace(session.boot_index, 0).first->second;
        boot_end_ns = std::max({boot_end_ns, end_ns, session.last_covered_ns, session.latest_clock.monotonic_ns});
    }
    return ends;
}

}  // namespace

std::vector<BootWindow> boot_windows(const StoreSnapshot& snapshot, Window realtime,
                                     const std::optional<BootClock>& fixed) {
    auto clocks = boot_clocks(snapshot.sessions());
    if (fixed)
        if (const auto found = clocks.find(fixed->boot_index); found != clocks.end()) found->second = fixed->clock;
    const auto ends = boot_ends(snapshot.sessions(), clocks);
    std::map<uint32_t, BootWindow> windows;
    for (const Session& session : snapshot.sessions()) {
        if (session.first_covered_ns == 0) continue;
        const ClockTriple& clock = clocks.at(session.boot_index);
        // A session that has covered no more than an instant may still hold events of it.
        const Window covered{clock.to_realtime(session.first_covered_ns),
                             clock.to_realtime(std::max(session.last_covered_ns, session.first_covered_ns + 1))};
        if (!overlap(covered, realtime)) continue;
        const Window monotonic{clock.to_monotonic(realtime.from_ns),
                               std::min(clock.to_monotonic(realtime.to_ns), ends.at(session.boot_index))};
        windows[session.boot_index] = {session.boot_index, monotonic, clock};
    }
    std::vector<BootWindow> result;
    for (const auto& [boot, window] : windows) result.push_back(window);
    return result;
}

std::optional<uint64_t> writer_end_ns(const std::vector<Session>& sessions, uint32_t boot_index, uint64_t at_ns) {
    const auto begun = [](const Session& session) { return std::pair(session.boot_index, session.clock.monotonic_ns); };
    const Session* writer = nullptr;
    for (const Session& session : sessions)
        if (session.boot_index == boot_index && session.clock.monotonic_ns <= at_ns &&
            (!writer || begun(session) >= begun(*writer)))
            writer = &session;
    if (!writer) return std::nullopt;
    const bool is_followed = std::any_of(sessions.begin(), sessions.end(), [&](const Session& session) {
        return session.node == writer->node && begun(session) > begun(*writer);
    });
    if (!is_followed && !writer->ended_cleanly) return std::nullopt;
    return std::max(at_ns, writer->latest_clock.monotonic_ns);
}

Result<std::vector<RolledUp>> rolled_up(const StoreSnapshot& snapshot, Window realtime, const GapFilter& filter) {
    const auto clocks = boot_clocks(snapshot.sessions());
    std::map<uint32_t, RolledUp> boots;
    const auto add = [&](uint32_t index, Window gone) {
        if (gone.from_ns == 0 || gone.length_ns() == 0) return;
        auto& boot = boots.try_emplace(index, RolledUp{index, gone, clocks.at(index)}).first->second;
        boot.monotonic.from_ns = std::min(boot.monotonic.from_ns, gone.from_ns);
        boot.monotonic.to_ns = std::max(boot.monotonic.to_ns, gone.to_ns);
    };
    for (const Session& session : snapshot.sessions())
        add(session.boot_index, {session.rolled_up_from_ns, session.first_covered_ns});
    // What gave way for room did so while other calls of its time stayed.
    for (const auto& [index, clock] : clocks) {
        const Window window{clock.to_monotonic(realtime.from_ns), clock.to_monotonic(realtime.to_ns)};
        const auto rows = snapshot.gaps(index, window);
        if (!rows) return tl::unexpected(rows.error());
        for (const GapRow& row : *rows)
            if (row.reason == GapReason::gave_way && may_report(row, filter)) {
                const auto sums =
                    snapshot.rollups(index, {std::max(row.from_ns, window.from_ns), std::min(row.to_ns, window.to_ns)});
                if (!sums) return tl::unexpected(sums.error());
                // They may be gone by now, or never have been there, as in a recording.
                if (!sums->empty()) add(index, {std::max(row.from_ns, sums->front().minute_ns), row.to_ns});
            }
    }
    std::vector<RolledUp> result;
    for (const auto& [index, boot] : boots) {
        const Window wall{boot.clock.to_realtime(boot.monotonic.from_ns), boot.clock.to_realtime(boot.monotonic.to_ns)};
        if (overlap(wall, realtime)) result.push_back(boot);
    }
    return result;
}

Window whole_trace(const StoreSnapshot& snapshot) {
    Window whole;
    for (const Covered& session : covered_intervals(snapshot.sessions())) {
        if (whole.to_ns == 0) whole.from_ns = session.realtime.from_ns;
        whole.to_ns = std::max(whole.to_ns, session.realtime.to_ns);
    }
    return whole;
}

namespace {

/// One reported gap, merged from rows that touch.
struct ProcessGap {
    ProcessKey process;
    GapReason reason = GapReason::late_attach;
    std::string subject;
    Window realtime;
    auto identity() const { return std::tie(process, reason, subject); }
};

/// The session that wrote the row: the last of its boot that had begun by then.
const Session* session_of(const std::vector<Session>& sessions, uint32_t boot_index, const GapRow& row) {
    const Session* writer = nullptr;
    for (const Session& session : sessions) {
        if (session.boot_index != boot_index) continue;
        if (!writer || session.clock.monotonic_ns <= row.from_ns) writer = &session;
    }
    return writer;
}

/// What of the row lies in its session and the window, on the wall clock: nothing of a session is covered before its
/// first covered instant; gaps between sessions report that. An open row lasts as long as the session that left it.
Window clip(const GapRow& row, const Session& session, const BootWindow& boot) {
    const uint64_t end = row.to_ns == 0 ? session.last_covered_ns : row.to_ns;
    const uint64_t from = std::max({row.from_ns, session.first_covered_ns, boot.monotonic.from_ns});
    const uint64_t to = std::min({end, session.last_covered_ns, boot.monotonic.to_ns});
    if (session.first_covered_ns == 0 || from >= to) return {};
    return {boot.clock.to_realtime(from), boot.clock.to_realtime(to)};
}

void merge(std::vector<ProcessGap>& gaps) {
    std::sort(gaps.begin(), gaps.end(), [](const ProcessGap& a, const ProcessGap& b) {
        return std::tuple(a.identity(), a.realtime.from_ns) < std::tuple(b.identity(), b.realtime.from_ns);
    });
    std::vector<ProcessGap> merged;
    for (ProcessGap& gap : gaps) {
        const bool touches = !merged.empty() && merged.back().identity() == gap.identity() &&
                             gap.realtime.from_ns <= merged.back().realtime.to_ns;
        if (touches)
            merged.back().realtime.to_ns = std::max(merged.back().realtime.to_ns, gap.realtime.to_ns);
        else
            merged.push_back(std::move(gap));
    }
    gaps = std::move(merged);
}

Gap to_gap(const ProcessGap& gap) {
    std::string reason = std::string(to_string(gap.reason)) + ": " + gap.subject;
    if (gap.process.pid != 0) reason += " (pid " + std::to_string(gap.process.pid) + ")";
    return {gap.realtime.from_ns, gap.realtime.to_ns, std::move(reason), true};
}

/// The longest, and one line for the rest.
std::vector<Gap> bounded(std::vector<ProcessGap> gaps) {
    std::optional<Gap> rest;
    if (gaps.size() > max_process_gaps) {
        const auto longer = [](const ProcessGap& a, const ProcessGap& b) {
            return a.realtime.length_ns() > b.realtime.length_ns();
        };
        const auto first_left_out = gaps.begin() + max_process_gaps;
        std::nth_element(gaps.begin(), first_left_out, gaps.end(), longer);
        rest = Gap{UINT64_MAX, 0, {}, true};
        uint64_t length_ns = 0;
        for (auto gap = first_left_out; gap != gaps.end(); ++gap) {
            rest->from_ns = std::min(rest->from_ns, gap->realtime.from_ns);
            rest->to_ns = std::max(rest->to_ns, gap->realtime.to_ns);
            length_ns += gap->realtime.length_ns();
        }
        rest->reason = std::to_string(gaps.end() - first_left_out) + " more gaps of single processes, " +
                       format_duration(length_ns) + " in all";
        gaps.erase(first_left_out, gaps.end());
    }
    std::vector<Gap> result;
    for (const ProcessGap& gap : gaps) result.push_back(to_gap(gap));
    std::stable_sort(result.begin(), result.end(), [](const Gap& a, const Gap& b) { return a.from_ns < b.from_ns; });
    if (rest) result.push_back(std::move(*rest));
    return result;
}

/// Of the rows of one user, since the counts of losses are of all users together.
Result<void> add_sampled_out(const StoreSnapshot& snapshot, const BootWindow& boot,
                             std::chrono::steady_clock::time_point deadline, EventFilter& filter, uint64_t& ret_calls) {
    SegmentColumns columns;
    Result<void> decoded;
    const auto scanned = snapshot.scan_blocks(boot.boot_index, boot.monotonic, [&](BlockView& block) {
        if (!filter.may_match(block.header())) return true;
        if (std::chrono::steady_clock::now() >= deadline) {
            decoded = Result<void>(fail(ErrorCode::deadline, "the deadline has passed"));
            return false;
        }
        for (size_t segment = 0; segment < block.ops().size() && decoded; ++segment) {
            if (block.ops()[segment].calls == block.ops()[segment].rows) continue;
            columns.open(block, segment);
            decoded = columns.decode(ColumnId::tgid, ColumnId::process_start, ColumnId::start, ColumnId::duration,
                                     ColumnId::weight);
            if (!decoded) break;
            for (size_t row = 0; row < block.ops()[segment].rows; ++row) {
                Event event;
                event.start_ns = columns[ColumnId::start][row];
                event.duration_ns = columns[ColumnId::duration][row];
                const ProcessKey process{static_cast<uint32_t>(columns[ColumnId::tgid][row]),
                                         columns[ColumnId::process_start][row]};
                const uint64_t weight = columns[ColumnId::weight][row];
                if (weight > 1 && overlaps(event, boot.monotonic) && filter.matches(process)) ret_calls += weight - 1;
            }
        }
        return decoded.has_value();
    });
    return decoded ? scanned : decoded;
}

Result<void> add_process_gaps(const StoreSnapshot& snapshot, const BootWindow& boot, const GapFilter& filter,
                              std::vector<ProcessGap>& gaps) {
    const auto rows = snapshot.gaps(boot.boot_index, boot.monotonic);
    if (!rows) return tl::unexpected(rows.error());
    for (const GapRow& row : *rows) {
        if (!may_report(row, filter)) continue;
        const Session* writer = session_of(snapshot.sessions(), boot.boot_index, row);
        for (const Session& session : snapshot.sessions()) {
            // What gave way is not what one session left out.
            const bool is_of =
                row.reason == GapReason::gave_way ? session.boot_index == boot.boot_index : &session == writer;
            const Window realtime = is_of ? clip(row, session, boot) : Window{};
            if (realtime.length_ns() != 0) gaps.push_back({row.process, row.reason, row.subject, realtime});
        }
    }
    return {};
}

}  // namespace

Result<Coverage> coverage(const StoreSnapshot& snapshot, Window realtime, const GapFilter& filter,
                          std::chrono::steady_clock::time_point deadline) {
    Coverage result;
    result.gaps = find_gaps(covered_intervals(snapshot.sessions(), filter.by_rollups), realtime);
    if (filter.by_rollups) {
        const auto boots = rolled_up(snapshot, realtime, filter);
        if (!boots) return tl::unexpected(boots.error());
        for (const RolledUp& boot : *boots) {
            const uint64_t from = boot.clock.to_realtime(boot.monotonic.from_ns);
            const uint64_t to = boot.clock.to_realtime(boot.monotonic.to_ns);
            result.gaps.push_back(
                {std::max(from, realtime.from_ns), std::min(to, realtime.to_ns), "rolled-up: whole minutes", true});
        }
    }
    for (Gap& gap : find_node_gaps(snapshot.sessions(), realtime)) result.gaps.push_back(std::move(gap));
    std::vector<ProcessGap> process_gaps;
    std::optional<EventFilter> of_user;
    if (filter.uid) {
        const auto processes = snapshot.processes();
        if (!processes) return tl::unexpected(processes.error());
        of_user.emplace(Filter{.window = realtime, .uid = filter.uid, .pid = filter.pid}, *processes);
    }
    for (const BootWindow& boot : boot_windows(snapshot, realtime)) {
        const auto losses = snapshot.losses(boot.boot_index, boot.monotonic);
        if (!losses) return tl::unexpected(losses.error());
        // A row that reaches past the window counts whole: when in its interval the loss was is not known.
        for (const LossRow& row : *losses) {
            result.lost += row.lost();
            if (!of_user) result.sampled_out += row.thinned;
        }
        if (of_user)
            if (auto added = add_sampled_out(snapshot, boot, deadline, *of_user, result.sampled_out); !added)
                return tl::unexpected(added.error());
        if (auto added = add_process_gaps(snapshot, boot, filter, process_gaps); !added)
            return tl::unexpected(added.error());
    }
    merge(process_gaps);
    for (Gap& gap : bounded(std::move(process_gaps))) result.gaps.push_back(std::move(gap));
    result.complete = result.gaps.empty() && result.lost == 0 && result.sampled_out == 0;
    return result;
}

}  // namespace ingero
