// What is mounted where, as a /proc/PID/mountinfo tells, and which file systems may leave whoever asks without an
// answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingero {

struct Mount {
    uint64_t id = 0;      ///< of the mount, as statx tells it
    uint64_t device = 0;  ///< as makedev
    std::string path;     ///< where it is mounted
    std::string type;     ///< of file system: ext4, fuse.sshfs
    std::string options;  ///< of the file system, escaped as they stand in the table
};

/// One line of the table.
std::optional<Mount> parse_mountinfo_line(std::string_view line);
/// All of it; lines that are none are left out.
std::vector<Mount> parse_mountinfo(std::string_view text);
/// The first of a file system on this device.
std::optional<Mount> mount_of_device(std::string_view text, uint64_t device);
/// The one with this id, of which there is one on the host.
std::optional<Mount> mount_of_id(std::string_view text, uint64_t id);
/// Any user can serve such a file system, and leave whoever opens or reads a file of it without an answer for ever.
bool is_served_by_a_user(std::string_view file_system);
/// What an overlay with these options lies on, as it was told when it was mounted: a path may be relative to a folder
/// that nobody knows any more.
std::vector<std::string> overlay_layers(std::string_view options);
/// The mounts of FUSE that `overlay` lies on, itself or by overlays below it, as far as the table tells: for a path
/// that is relative, each of root's that it may lead to.
std::vector<const Mount*> fuse_below(const std::vector<Mount>& table, const Mount& overlay);

}  // namespace ingero
