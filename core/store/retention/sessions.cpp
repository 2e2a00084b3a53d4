#include "core/store/retention/sessions.h"

#include <algorithm>

#include "core/store/file/tables.h"
#include "core/store/rows/rows.h"

namespace ingero {

namespace {

/// Up to where the session's time lies before the horizon; 0: none of it does.
uint64_t gone_until(const Session& session, const std::optional<Horizon>& horizon, bool running) {
    if (!horizon || session.boot_index > horizon->boot_index) return 0;
    if (session.boot_index < horizon->boot_index) return session.last_covered_ns;
    return running ? horizon->from_ns : std::min(horizon->from_ns, session.last_covered_ns);
}

bool is_past(const Session& session, const std::optional<Horizon>& horizon) {
    return horizon && (session.boot_index < horizon->boot_index ||
                       (session.boot_index == horizon->boot_index && session.last_covered_ns <= horizon->from_ns));
}

/// What was evicted is no longer covered: an empty answer there must not look like a quiet time. Returns whether the
/// session changed.
bool move_horizon(Session& session, const Evicted& evicted, bool rolled_up, bool running) {
    bool changed = false;
    const uint64_t calls_gone = gone_until(session, evicted.horizon, running);
    if (session.first_covered_ns != 0 && session.first_covered_ns < calls_gone) {
        if (session.rolled_up_from_ns == 0) session.rolled_up_from_ns = session.first_covered_ns;
        if (!rolled_up) session.rolled_up_from_ns = calls_gone;
        session.first_covered_ns = calls_gone;
        changed = true;
    }
    const uint64_t rollups_gone = std::min(gone_until(session, evicted.rollups, running), session.first_covered_ns);
    if (session.rolled_up_from_ns != 0 && session.rolled_up_from_ns < rollups_gone) {
        session.rolled_up_from_ns = rollups_gone;
        changed = true;
    }
    return changed;
}

}  // namespace

int move_horizon(MDB_txn* txn, MDB_dbi table, const Evicted& evicted, bool rolled_up, SessionMap& sessions,
                 std::optional<uint32_t> current) {
    for (auto at = sessions.begin(); at != sessions.end();) {
        auto& [number, session] = *at;
        const bool running = current == number;
        const bool changed = move_horizon(session, evicted, rolled_up, running);
        const bool has_rollups = session.rolled_up_from_ns != 0 && session.rolled_up_from_ns < session.first_covered_ns;
        const bool gone = (is_past(session, evicted.horizon) && !has_rollups) ||
                          (is_past(session, evicted.rollups) && session.first_covered_ns >= session.last_covered_ns);
        if (gone && !running) {
            const std::string key = encode_key(number);
            MDB_val raw_key = to_value(key);
            if (const int rc = mdb_del(txn, table, &raw_key, nullptr)) return rc;
            at = sessions.erase(at);
            continue;
        }
        if (changed)
            if (const int rc = put_sealed(txn, table, encode_key(number), encode_row(session))) return rc;
        ++at;
    }
    return 0;
}

AgeLimits age_limits(const SessionMap& sessions, std::optional<uint32_t> current, uint64_t age_ns) {
    AgeLimits limits;
    if (age_ns == 0 || !current) return limits;
    const Session& running = sessions.at(*current);
    const ClockTriple& now = running.latest_clock;
    for (const auto& [number, session] : sessions) {
        if (session.boot_index == running.boot_index)
            limits[session.boot_index] = now.monotonic_ns - std::min(now.monotonic_ns, age_ns);
        else if (now.realtime_ns > age_ns)
            limits[session.boot_index] = session.latest_clock.to_monotonic(now.realtime_ns - age_ns);
    }
    return limits;
}

}  // namespace ingero
