#include "daemon/ingerod/spans/span_limits.h"

#include <algorithm>
#include <string_view>

#include "core/model/time.h"

namespace ingero {

namespace {

/// Shares without a connection that are kept; beyond it those that have all of their tokens go.
constexpr size_t max_idle = 1'024;

template <class Shares>
void forget_full(Shares& shares, uint64_t now_ns) {
    if (shares.size() < max_idle) return;
    std::erase_if(shares, [&](const auto& entry) {
        const auto& share = entry.second;
        return share.connections == 0 && share.spans.is_full(now_ns) && share.arrivals.is_full(now_ns);
    });
}

}  // namespace

std::string SpanLimits::group_of(const std::string& cgroup) {
    constexpr std::string_view users = "/user.slice/";
    if (cgroup.size() <= 1) return {};
    return cgroup.starts_with(users) ? cgroup.substr(0, cgroup.find('/', users.size())) : cgroup;
}

bool SpanLimits::may_look_at(const std::string& name, uint64_t now_ns) {
    if (connections_ >= quota_.connections) return false;
    forget_idle(now_ns);
    Share& share = user(name);
    return share.connections < quota_.connections_per_user && share.arrivals.take(now_ns);
}

bool SpanLimits::connect(const Party& party) {
    if (connections_ >= quota_.connections) return false;
    if (!party.is_root && unprivileged_ >= quota_.unprivileged_connections) return false;
    forget_idle(monotonic_now_ns());
    Share& own = user(party.user);
    if (own.connections >= quota_.connections_per_user) return false;
    if (!party.group.empty()) {
        Share& shared = group(party.group);
        if (shared.connections >= quota_.connections_per_group) return false;
        ++shared.connections;
    }
    ++own.connections;
    ++connections_;
    if (!party.is_root) ++unprivileged_;
    return true;
}

void SpanLimits::disconnect(const Party& party) {
    --user(party.user).connections;
    if (!party.group.empty()) --group(party.group).connections;
    --connections_;
    if (!party.is_root) --unprivileged_;
}

bool SpanLimits::take(const Party& party, uint64_t units, uint64_t now_ns) {
    // What the group has no room for is not taken from its user's other services.
    if (!party.group.empty() && !group(party.group).spans.take(now_ns, units)) return false;
    return user(party.user).spans.take(now_ns, units);
}

void SpanLimits::set_quota(const SpanQuota& quota) {
    quota_ = quota;
    for (auto* shares : {&users_, &groups_})
        for (auto& [name, share] : *shares) share.spans = Share::bucket(quota);
}

void SpanLimits::forget_idle(uint64_t now_ns) {
    forget_full(users_, now_ns);
    forget_full(groups_, now_ns);
}

}  // namespace ingero
