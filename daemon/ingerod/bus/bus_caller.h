// Who calls, as the bus and the kernel say, and what polkit lets them do. Every question to the bus is asynchronous.
// Loop thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/model/result.h"
#include "daemon/ingerod/control/peer.h"
#include "dbus/sdbus.h"

namespace ingero {

class BusCaller {
  public:
    /// The connection must outlive it; answers that have not come until its end never do.
    BusCaller(sdbus::IConnection& bus, std::optional<gid_t> privileged_group);

    /// Who the unique name `sender` is. Errors: denied (gone, or the bus does not say).
    void identify(const std::string& sender, std::function<void(Result<Identity>)> done);
    /// Whether polkit lets `sender` do `action`, asking its user where `interactive`. Never ask it about a process of
    /// other namespaces: it takes uid 0 of a container for root. Errors: denied.
    void authorise(const std::string& sender, const std::string& action, bool interactive,
                   std::function<void(Result<void>)> done);

  private:
    const std::optional<gid_t> privileged_group_;
    std::unique_ptr<sdbus::IProxy> bus_;
    std::unique_ptr<sdbus::IProxy> polkit_;
};

/// The caller agrees to being asked for a password (the message's flag ALLOW_INTERACTIVE_AUTHORIZATION).
bool allows_interaction(const sdbus::Message& message);

}  // namespace ingero
