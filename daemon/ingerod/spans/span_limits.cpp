#include "daemon/ingerod/spans/span_limits.h"

#include "core/model/time.h"

namespace ingero {

namespace {

/// Shares without a connection that are kept; beyond it those that have all of their tokens go.
constexpr size_t max_idle = 1'024;

template <class Shares>
void forget_full(Shares& shares, uint64_t now_ns) {
    if (shares.size() < max_idle) return;
    std::erase_if(
        shares, [&](const auto& entry) { return entry.second.connections == 0 && entry.second.spans.is_full(now_ns); });
}

}  // namespace

bool SpanLimits::connect(const Party& party) {
    if (connections_ >= quota_.connections) return false;
    if (!party.is_root && unprivileged_ >= quota_.unprivileged_connections) return false;
    forget_idle();
    Share& user = share_of_uid(party.uid);
    if (user.connections >= quota_.connections_per_uid) return false;
    if (counts(party.cgroup)) {
        Share& group = share_of_cgroup(party.cgroup);
        if (group.connections >= quota_.connections_per_cgroup) return false;
        ++group.connections;
    }
    ++user.connections;
    ++connections_;
    if (!party.is_root) ++unprivileged_;
    return true;
}

void SpanLimits::disconnect(const Party& party) {
    --share_of_uid(party.uid).connections;
    if (counts(party.cgroup)) --share_of_cgroup(party.cgroup).connections;
    --connections_;
    if (!party.is_root) --unprivileged_;
}

bool SpanLimits::take(const Party& party, uint64_t now_ns) {
    // What the cgroup has no room for is not taken from its user's other services.
    if (counts(party.cgroup) && !share_of_cgroup(party.cgroup).spans.take(now_ns)) return false;
    return share_of_uid(party.uid).spans.take(now_ns);
}

void SpanLimits::forget_idle() {
    const uint64_t now_ns = monotonic_now_ns();
    forget_full(uids_, now_ns);
    forget_full(cgroups_, now_ns);
}

}  // namespace ingero
