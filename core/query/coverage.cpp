#include "core/query/coverage.h"

#include <algorithm>
#include <map>

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
std::vector<Covered> covered_intervals(const std::vector<Session>& sessions) {
    const auto clocks = boot_clocks(sessions);
    std::vector<Covered> covered;
    for (const Session& session : sessions) {
        if (session.first_covered_ns == 0 || session.last_covered_ns <= session.first_covered_ns) continue;
        const ClockTriple& clock = clocks.at(session.boot_index);
        covered.push_back(
            {.realtime = {clock.to_realtime(session.first_covered_ns), clock.to_realtime(session.last_covered_ns)},
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

}  // namespace

std::vector<BootWindow> boot_windows(const StoreSnapshot& snapshot, Window realtime) {
    const auto clocks = boot_clocks(snapshot.sessions());
    std::map<uint32_t, BootWindow> windows;
    for (const Session& session : snapshot.sessions()) {
        if (session.first_covered_ns == 0) continue;
        const ClockTriple& clock = clocks.at(session.boot_index);
        // A session that has covered no more than an instant may still hold events of it.
        const Window covered{clock.to_realtime(session.first_covered_ns),
                             clock.to_realtime(std::max(session.last_covered_ns, session.first_covered_ns + 1))};
        if (!overlap(covered, realtime)) continue;
        const Window monotonic{clock.to_monotonic(realtime.from_ns), clock.to_monotonic(realtime.to_ns)};
        windows[session.boot_index] = {session.boot_index, monotonic, clock};
    }
    std::vector<BootWindow> result;
    for (const auto& [boot, window] : windows) result.push_back(window);
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

Result<Coverage> coverage(const StoreSnapshot& snapshot, Window realtime) {
    Coverage result;
    result.gaps = find_gaps(covered_intervals(snapshot.sessions()), realtime);
    for (const BootWindow& boot : boot_windows(snapshot, realtime)) {
        const auto losses = snapshot.losses(boot.boot_index, boot.monotonic);
        if (!losses) return tl::unexpected(losses.error());
        // A row that reaches past the window counts whole: when in its interval the loss was is not known.
        for (const LossRow& row : *losses) {
            result.lost += row.lost();
            result.sampled_out += row.thinned;
        }
    }
    result.complete = result.gaps.empty() && result.lost == 0 && result.sampled_out == 0;
    return result;
}

}  // namespace ingero
