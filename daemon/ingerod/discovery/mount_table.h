// What is mounted where, as a /proc/PID/mountinfo lists it, and which file systems may leave whoever asks without an
// answer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/unique_fd.h"

namespace ingero {

struct Mount {
    uint64_t id = 0;      ///< of the mount, as statx returns it
    uint64_t device = 0;  ///< as makedev
    std::string path;     ///< where it is mounted
    std::string type;     ///< of file system: ext4, fuse.sshfs
    std::string options;  ///< of the file system, escaped as they stand in the table
};

/// One line of the table.
std::optional<Mount> parse_mountinfo_line(std::string_view line);
/// All of it; lines that are none are left out.
std::vector<Mount> parse_mountinfo(std::string_view text);
/// The first of a file system on this device; null where there is none.
const Mount* mount_of_device(const std::vector<Mount>& table, uint64_t device);
/// The one with this id, of which there is one on the host; null where it is not in the table.
const Mount* mount_of_id(const std::vector<Mount>& table, uint64_t id);
/// Any user can serve such a file system, and leave whoever opens or reads a file of it without an answer for ever.
bool is_served_by_a_user(std::string_view file_system);
/// The layers in an overlay's options, as written when it was mounted: a path may be relative to a folder that nobody
/// knows any more.
std::vector<std::string> overlay_layers(std::string_view options);
/// Where the link at a path leads; nullopt where there is no link, or nothing is known of it.
using LinkAt = std::function<std::optional<std::string>(const std::string& path)>;
/// An absolute path, without the links that are in it.
std::string without_links(const std::string& path, const LinkAt& link_at);
/// The mount that an absolute path without links lies on; null where the table has none.
const Mount* mount_of_path(const std::vector<Mount>& table, std::string_view path);
/// The mounts of FUSE that `overlay` lies on, itself or by overlays below it, as far as the table shows: for a path
/// that is relative, each of root's that it may lead to. Never calls `link_at` for what lies on FUSE.
std::vector<const Mount*> fuse_below(
    const std::vector<Mount>& table, const Mount& overlay,
    const LinkAt& link_at = [](const std::string&) { return std::nullopt; });

/// The table of one mount namespace, read anew only once something was mounted or unmounted in it. Not thread-safe.
class MountTable {
  public:
    explicit MountTable(std::string path) : path_(std::move(path)) {}
    /// As it is now; empty where it cannot be read.
    const std::vector<Mount>& read();
    /// What `overlay`, which is in the table, lies on: fuse_below(), once for each reading. Links in its layers led
    /// somewhere when it was mounted.
    const std::vector<const Mount*>& fuse_below(const Mount& overlay, const LinkAt& link_at);

  private:
    std::string path_;
    UniqueFd fd_;  ///< by which the kernel reports changes
    std::vector<Mount> mounts_;
    std::map<uint64_t, std::vector<const Mount*>> below_;  ///< by the overlay's id
};

}  // namespace ingero
