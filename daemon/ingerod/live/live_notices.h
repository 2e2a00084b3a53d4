// What is signalled on the bus, for those who listen on the control socket: `monitor` of the control protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/model/result.h"
#include "daemon/ingerod/control/control_backend.h"
#include "daemon/ingerod/limits/uid_owners.h"

namespace ingero {

/// Loop thread only.
class LiveNotices {
  public:
    /// For one who does not read; of more the oldest are left out, and counted.
    static constexpr size_t max_waiting = 256;

    explicit LiveNotices(OwnerOf owner_of) : owner_of_(std::move(owner_of)) {}
    ~LiveNotices();
    LiveNotices(const LiveNotices&) = delete;
    LiveNotices& operator=(const LiveNotices&) = delete;

    /// Errors: busy (too many subscribers).
    Result<std::unique_ptr<LiveStream>> subscribe(const Caller& caller, std::function<void()> on_ready);
    /// Sends a notice about a process of user `uid`, or where there is none about the host as a whole, which is for
    /// those who see every process.
    void send(const nlohmann::json& notice, std::optional<uint32_t> uid);

  private:
    class Subscriber;

    const OwnerOf owner_of_;
    std::set<Subscriber*> subscribers_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ingero
