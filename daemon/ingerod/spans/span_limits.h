// What one user, and one service or container, may take of the span socket. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/store/rows/history.h"
#include "daemon/ingerod/limits/token_bucket.h"

namespace ingero {

struct SpanQuota {
    unsigned connections = 256;
    unsigned unprivileged_connections = 240;  ///< of these, those that are not root's
    unsigned connections_per_user = 16;
    unsigned connections_per_group = 16;
    uint64_t spans_per_s = 5'000;                ///< a user, and a group
    uint64_t burst = 0;                          ///< of them at once; 0: twice as many as a second
    uint64_t max_span_ns = ingero::max_span_ns;  ///< from its start to its end;
};

/// What looking at processes for somebody may cost the loop. A scan reads all of /proc.
struct LookupBudget {
    TokenBucket lookups{400, 5'000'000};
    TokenBucket scans{8, 250'000'000};
};

class SpanLimits {
  public:
    /// Who a connection counts for. Users by uid; root of the host for itself; root of a container, whose uid every
    /// container has, by its pid namespace.
    struct Party {
        std::string user;
        std::string group;  ///< of the cgroup, see group_of(); empty: does not count
        bool is_root = false;
    };
    static std::string user_of(uint32_t uid) { return "uid " + std::to_string(uid); }
    /// What counts together: the cgroup, but for one that a user can make at will, below user.slice, all of that
    /// user's.
    static std::string group_of(const std::string& cgroup);

    explicit SpanLimits(const SpanQuota& quota) : quota_(quota) {}

    /// False where connect() would refuse this user, or they come too often to be looked at.
    bool may_look_at(const std::string& user, uint64_t now_ns);
    /// Counts the connection, or returns false where there is no room for it.
    bool connect(const Party& party);
    void disconnect(const Party& party);
    /// Whether so many more units, of a span and its size, may be taken from it.
    bool take(const Party& party, uint64_t units, uint64_t now_ns);
    LookupBudget& lookups_of(const Party& party) { return user(party.user).lookups; }
    size_t connections() const { return connections_; }
    /// What was used up is given anew.
    void set_quota(const SpanQuota& quota);

  private:
    struct Share {
        explicit Share(const SpanQuota& quota) : spans(bucket(quota)) {}
        static TokenBucket bucket(const SpanQuota& quota) {
            const uint64_t burst = quota.burst == 0 ? 2 * quota.spans_per_s : quota.burst;
            return {burst, 1'000'000'000 / quota.spans_per_s};
        }
        unsigned connections = 0;
        TokenBucket spans;
        TokenBucket arrivals{64, 50'000'000};
        LookupBudget lookups;
    };
    Share& user(const std::string& name) { return users_.try_emplace(name, quota_).first->second; }
    Share& group(const std::string& name) { return groups_.try_emplace(name, quota_).first->second; }
    void forget_idle(uint64_t now_ns);

    SpanQuota quota_;
    size_t connections_ = 0;
    size_t unprivileged_ = 0;
    /// Kept for a while after the last connection: coming again brings no new tokens.
    std::map<std::string, Share> users_, groups_;
};

}  // namespace ingero
