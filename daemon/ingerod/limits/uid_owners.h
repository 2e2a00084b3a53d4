// Whose a uid is. A user may hold thousands of uids for their containers (subuid(5)): what runs under any of them
// counts as that user's, so that no limit multiplies. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ingero {

/// As UidOwners::owner_of(). Where it is empty each uid is a user.
using OwnerOf = std::function<uint32_t(uint32_t uid)>;

class UidOwners {
  public:
    /// The uid of a user's name.
    using FindUser = std::function<std::optional<uint32_t>(const std::string& name)>;

    /// Ranges of a text in the form of /etc/subuid; lines that are none are left out, and so are users not found.
    static UidOwners parse(std::string_view text, const FindUser& find_user);
    /// Of this host's /etc/subuid. Without that file each uid is a user of its own.
    static UidOwners read();

    /// The user, as Shares counts them: for a uid of a range that its owner, for others the uid itself. Ranges of root
    /// are for its containers, which get 65,536 each: these count by container, as a user whose number is its first
    /// uid.
    uint32_t owner_of(uint32_t uid) const;

    static constexpr size_t max_ranges = 16'384;
    static constexpr uint32_t container_uids = 65'536;

  private:
    struct Range {
        uint32_t last = 0;
        uint32_t owner = 0;
    };
    std::map<uint32_t, Range> ranges_;  ///< by first uid; none overlap
};

}  // namespace ingero
