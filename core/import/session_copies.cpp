#include "core/import/session_copies.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/model/call_time.h"

namespace ingero {

namespace {

/// What is measured or reported is stored a little later: so much of a copy's end may lack something.
constexpr uint64_t unsettled_ns = rollup_minute_ns;

/// How much of the calls of a time a copy has.
enum class Kept { nothing, sums, calls, whole_minutes };

struct Judged {
    Kept kept = Kept::nothing;
    size_t gave_way = 0;          ///< gaps that overlap the time
    uint64_t gave_way_to_ns = 0;  ///< how far they reach: the further, the more is gone
    auto lack() const { return std::tuple(gave_way, gave_way_to_ns); }
};

bool overlap(Window a, Window b) {
    return a.from_ns < b.to_ns && b.from_ns < a.to_ns;
}

bool lies_in(Window inner, Window outer) {
    return outer.from_ns <= inner.from_ns && inner.to_ns <= outer.to_ns;
}

uint64_t minute_of(uint64_t ns) {
    return ns / rollup_minute_ns * rollup_minute_ns;
}

uint64_t minute_from(uint64_t ns) {
    return minute_of(saturating_add(ns, rollup_minute_ns - 1));
}

/// The minutes that it touches.
Window minutes_around(Window time) {
    return {minute_of(time.from_ns), minute_from(time.to_ns)};
}

/// The minutes of which the copy has all but what gave way. Empty, or less, where there is none.
Window settled_minutes(const Session& session) {
    return {minute_from(session.first_covered_ns),
            minute_of(saturating_subtract(session.last_covered_ns, unsettled_ns))};
}

Judged judge(const SessionCopy& copy, Window time) {
    const Session& session = copy.session;
    Judged judged;
    if (session.first_covered_ns == 0) return judged;
    if (session.rolled_up_from_ns != 0 && lies_in(time, {session.rolled_up_from_ns, session.first_covered_ns}))
        judged.kept = Kept::sums;
    if (!lies_in(time, {session.first_covered_ns, session.last_covered_ns})) return judged;
    bool whole = lies_in(time, settled_minutes(session));
    for (const Window& gone : copy.gave_way) {
        whole = whole && !overlap(time, minutes_around(gone));
        if (!overlap(time, gone)) continue;
        ++judged.gave_way;
        judged.gave_way_to_ns = std::max(judged.gave_way_to_ns, gone.to_ns);
    }
    judged.kept = whole ? Kept::whole_minutes : Kept::calls;
    return judged;
}

bool is_better(const Judged& a, const Judged& b) {
    return a.kept != b.kept ? a.kept > b.kept : a.lack() < b.lack();
}

struct Choice {
    size_t copy = 0;
    Kept kept = Kept::nothing;
};

/// `next`: the copy from which the time after this one is taken.
Choice choose(const std::vector<SessionCopy>& copies, Window time, std::optional<size_t> next) {
    size_t best = 0;
    Judged judged = judge(copies[0], time);
    for (size_t i = 1; i < copies.size(); ++i)
        if (const Judged other = judge(copies[i], time); is_better(other, judged)) {
            best = i;
            judged = other;
        }
    // Copies that have sums of a time have the same: the minute in which calls begin is to be of one copy.
    if (next && judged.kept == Kept::sums && judge(copies[*next], time).kept == Kept::sums) best = *next;
    return {best, judged.kept};
}

/// Between two of them that follow each other, each copy has the same all the time.
std::set<uint64_t> edges_of(const std::vector<SessionCopy>& copies) {
    std::set<uint64_t> edges{0, UINT64_MAX};
    const auto add = [&](Window window) {
        edges.insert(window.from_ns);
        edges.insert(window.to_ns);
    };
    for (const SessionCopy& copy : copies) {
        const Session& session = copy.session;
        if (session.first_covered_ns == 0) continue;
        add({session.first_covered_ns, session.last_covered_ns});
        add(settled_minutes(session));
        if (session.rolled_up_from_ns != 0) edges.insert(session.rolled_up_from_ns);
        for (const Window& gone : copy.gave_way) {
            add(gone);
            add(minutes_around(gone));
        }
    }
    return edges;
}

using KeptTimes = std::vector<std::pair<Window, Kept>>;

/// Sets what the session covers: calls from the first that a copy has, and before them rollups, back to where these
/// have a hole.
void claim(const KeptTimes& times, SessionUnion& all) {
    Session& session = all.session;
    const auto has_calls = [](const auto& time) { return time.second >= Kept::calls; };
    auto first = std::find_if(times.begin(), times.end(), has_calls);
    if (first != times.end())
        session.first_covered_ns = first->first.from_ns;
    else
        first = std::find_if(times.begin(), times.end(),
                             [&](const auto& time) { return time.first.from_ns == session.first_covered_ns; });
    session.rolled_up_from_ns = 0;
    for (auto time = first; time != times.begin() && std::prev(time)->second == Kept::sums; --time)
        session.rolled_up_from_ns = std::prev(time)->first.from_ns;
    for (auto time = first; time != times.end(); ++time) {
        const Window& window = time->first;
        if (has_calls(*time) || window.to_ns > session.last_covered_ns) continue;
        if (!all.holes.empty() && all.holes.back().to_ns == window.from_ns)
            all.holes.back().to_ns = window.to_ns;
        else
            all.holes.push_back(window);
    }
}

}  // namespace

bool goes_further(const Session& a, const Session& b) {
    const auto key = [](const Session& session) {
        const uint64_t first_ns = session.first_covered_ns;
        const uint64_t sums_ns = session.rolled_up_from_ns == 0 ? first_ns : session.rolled_up_from_ns;
        return std::tuple(first_ns != 0, session.last_covered_ns, UINT64_MAX - first_ns, UINT64_MAX - sums_ns,
                          session.latest_clock.monotonic_ns, session.ended_cleanly);
    };
    return key(a) > key(b);
}

SessionUnion unite(const std::vector<SessionCopy>& copies) {
    SessionUnion all{copies.front().session, {}, {}};
    KeptTimes times;
    if (copies.size() > 1) {
        const std::set<uint64_t> edges = edges_of(copies);
        std::optional<size_t> next;
        // From the end: what no copy has goes with what follows, since a call that began there may have ended later.
        for (auto edge = std::prev(edges.end()); edge != edges.begin(); --edge) {
            const Window time{*std::prev(edge), *edge};
            const Choice choice = choose(copies, time, next);
            times.emplace_back(time, choice.kept);
            if (choice.kept != Kept::nothing && next != choice.copy) {
                const uint64_t to_ns = all.slices.empty() ? UINT64_MAX : all.slices.back().starts.from_ns;
                all.slices.push_back({choice.copy, {0, to_ns}});
                next = choice.copy;
            }
            if (!all.slices.empty()) all.slices.back().starts.from_ns = time.from_ns;
        }
        std::reverse(all.slices.begin(), all.slices.end());
        std::reverse(times.begin(), times.end());
        claim(times, all);
    }
    if (all.slices.empty()) all.slices.push_back({0, {0, UINT64_MAX}});
    for (const SessionCopy& copy : copies) {
        if (copy.session.ended_cleanly) all.session.ended_cleanly = true;
        if (copy.session.latest_clock.monotonic_ns > all.session.latest_clock.monotonic_ns)
            all.session.latest_clock = copy.session.latest_clock;
    }
    return all;
}

bool adds_to(const SessionCopy& copy, const SessionCopy& stored) {
    if (copy.session.last_covered_ns > stored.session.last_covered_ns) return true;
    const std::set<uint64_t> edges = edges_of({copy, stored});
    for (auto edge = edges.begin(); std::next(edge) != edges.end(); ++edge) {
        const Window time{*edge, *std::next(edge)};
        const Judged own = judge(copy, time), there = judge(stored, time);
        if (own.kept >= Kept::calls && (there.kept < Kept::calls || own.lack() < there.lack())) return true;
        // A merge leaves out sums of a session's first minute where they also count the session before.
        if (own.kept == Kept::sums && there.kept == Kept::nothing && time.length_ns() >= rollup_minute_ns) return true;
    }
    return false;
}

}  // namespace ingero
