// What one user, and one service or container, may take of the span socket. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "daemon/ingerod/token_bucket.h"

namespace ingero {

struct SpanQuota {
    unsigned connections = 256;
    unsigned unprivileged_connections = 240;  ///< of these, those that are not root's
    unsigned connections_per_uid = 16;
    unsigned connections_per_cgroup = 16;
    uint64_t spans_per_s = 5'000;  ///< a uid, and a cgroup
    uint64_t burst = 10'000;
};

class SpanLimits {
  public:
    /// Who a connection counts for.
    struct Party {
        uint32_t uid = 0;
        std::string cgroup;  ///< empty, or "/": does not count
        bool is_root = false;
    };

    explicit SpanLimits(const SpanQuota& quota) : quota_(quota) {}

    /// False where connect() would refuse whoever has this uid.
    bool may_connect(uint32_t uid) const {
        const auto share = uids_.find(uid);
        return connections_ < quota_.connections &&
               (share == uids_.end() || share->second.connections < quota_.connections_per_uid);
    }
    /// Counts the connection, or returns false where there is no room for it.
    bool connect(const Party& party);
    void disconnect(const Party& party);
    /// Whether one more span may be taken from it.
    bool take(const Party& party, uint64_t now_ns);
    size_t connections() const { return connections_; }
    /// Takes effect for those who come; what was used up stays used up.
    void set_quota(const SpanQuota& quota) { quota_ = quota; }

  private:
    struct Share {
        explicit Share(const SpanQuota& quota) : spans(quota.burst, 1'000'000'000 / quota.spans_per_s) {}
        unsigned connections = 0;
        TokenBucket spans;
    };
    static bool counts(const std::string& cgroup) { return cgroup.size() > 1; }
    Share& share_of_uid(uint32_t uid) { return uids_.try_emplace(uid, quota_).first->second; }
    Share& share_of_cgroup(const std::string& cgroup) { return cgroups_.try_emplace(cgroup, quota_).first->second; }
    void forget_idle();

    SpanQuota quota_;
    size_t connections_ = 0;
    size_t unprivileged_ = 0;
    /// Kept for a while after the last connection: coming again brings no new tokens.
    std::map<uint32_t, Share> uids_;
    std::map<std::string, Share> cgroups_;
};

}  // namespace ingero
