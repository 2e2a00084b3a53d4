// Whose the blocks of a store are. Each is of one user's calls, and where room has to be made the oldest of who has
// most go: nobody's calls push out those of others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/file/environment.h"
#include "core/store/rows/rows.h"

namespace ingero {

/// The user as whom a uid counts. Empty: all are one user's.
using UserOfUid = std::function<uint32_t(uint32_t uid)>;

/// The user as whom calls count where no row describes their process.
inline constexpr uint32_t nobody = UINT32_MAX;

struct Holder {
    uint64_t bytes = 0;  ///< of blocks, with their keys
    /// The time of calls that went for room while older ones of others stayed; absent: none did since the writer
    /// opened.
    struct GaveWay {
        uint32_t boot_index = 0;
        Window window;  ///< CLOCK_MONOTONIC
    };
    std::optional<GaveWay> gave_way = {};
};

/// What memory has of the table "held"; changed with it, in the writer's transaction. Copied before, and replaced by
/// the copy once that is committed. All that return an int return an LMDB code.
class Holders {
  public:
    int load(const Environment& environment, MDB_txn* transaction);
    int add(const Environment& environment, MDB_txn* transaction, uint32_t user, std::string_view block,
            uint64_t bytes);
    /// The user whose it was; `nobody` where the table does not have it.
    int remove(const Environment& environment, MDB_txn* transaction, std::string_view block, uint32_t& ret_user);
    uint32_t user_of(const Environment& environment, MDB_txn* transaction, std::string_view block) const;

    uint64_t bytes() const;
    /// Nothing records any more the calls that gave way before it.
    void forget(uint32_t boot_index, uint64_t before_ns);
    const std::map<uint32_t, Holder>& users() const { return users_; }
    Holder& operator[](uint32_t user) { return users_[user]; }
    /// Absent: nobody has any.
    std::optional<uint32_t> who_has_most() const;
    /// Keys of the user's blocks, by start: the first `most`, or the last, the last one first.
    int first_blocks(const Environment& environment, MDB_txn* transaction, uint32_t user, size_t most,
                     std::vector<std::string>& ret_keys) const;
    int last_blocks(const Environment& environment, MDB_txn* transaction, uint32_t user, size_t most,
                    std::vector<std::string>& ret_keys) const;
    /// The block of all other users that began first.
    int first_of_others(const Environment& environment, MDB_txn* transaction, uint32_t user,
                        std::optional<EventKey>& ret_first) const;

  private:
    std::map<uint32_t, Holder> users_;  ///< of whom there are blocks, or whose gave way
};

}  // namespace ingero
