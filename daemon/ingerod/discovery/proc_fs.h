// What /proc says of processes: facts, mapped files, and a mapped file opened as the very file that is mapped. Text in
// it is partly the target's own and never trusted.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/process/process.h"
#include "core/model/process/process_facts.h"
#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/discovery/bounded_calls.h"
#include "daemon/ingerod/discovery/mount_table.h"
#include "daemon/ingerod/limits/uid_owners.h"

namespace ingero {

struct FileId {
    uint64_t device = 0;  ///< as makedev
    uint64_t inode = 0;
    auto operator<=>(const FileId&) const = default;
};

struct Mapping {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t offset = 0;  ///< of start, in the file
    bool executable = false;
    bool deleted = false;  ///< its path names another file by now, or none
    FileId file;
    std::string path;  ///< as the target sees it; only its base name is ever used
};

/// One line of /proc/PID/maps; nullopt for a mapping without a file, or a line that is none.
std::optional<Mapping> parse_maps_line(std::string_view line);
/// The start time field of /proc/PID/stat in ns since boot; the command in it may hold any character.
std::optional<uint64_t> parse_start_time(std::string_view stat);
/// The systemd unit of a cgroup path: its last component that ends in .service or .scope; empty where there is none.
std::string unit_of_cgroup(std::string_view path);

/// For one thread.
class ProcFs {
  public:
    /// `root` stands in for /proc in tests. By `owner_of` it is counted how many questions a user holds up.
    explicit ProcFs(std::string root = "/proc", const BoundedCallsLimits& limits = {}, OwnerOf owner_of = {});

    std::vector<uint32_t> pids() const;
    /// A living process; not_found once it is gone. first_seen_ns is left 0, facts are left empty.
    Result<Process> read_process(uint32_t pid) const;
    /// What the process is part of. Empty where it cannot be read, or another process has the pid by now.
    ProcessFacts read_facts(const ProcessKey& process, const FactsOptions& options) const;
    /// Whose process it is; nullopt once it is gone. A file of its that nobody holds up.
    std::optional<uint32_t> user_of(uint32_t pid) const;
    /// Its number in its own, innermost pid namespace; nullopt once it is gone.
    std::optional<uint32_t> innermost_pid_of(uint32_t pid) const;
    /// Its control groups as the kernel lists them, up to 64 KiB; nullopt once it is gone.
    std::optional<std::string> control_groups_of(uint32_t pid) const;
    /// Inode, change time and size of the file that it runs. Errors: not_found, deadline (the process holds it up).
    Result<struct statx> program_of(uint32_t pid) const;
    std::optional<FileId> pid_namespace_of(uint32_t pid) const;
    UniqueFd open_pid_namespace(uint32_t pid) const;
    /// ProcessKey::start_ns of the process that has the pid now.
    std::optional<uint64_t> start_of(uint32_t pid) const;
    /// It has begun to end, or is gone, and another may have the pid: its memory may be gone too, and where it is in no
    /// unified hierarchy its control groups are all said to be the root's.
    bool is_ending(const ProcessKey& process) const;
    /// Inodes of the sockets that it has open, of its first 4,096 descriptors; none once it is gone.
    std::vector<uint64_t> sockets_of(const ProcessKey& process) const;
    /// Executable mappings of files; none where they cannot be read.
    std::vector<Mapping> executable_mappings(uint32_t pid) const;
    /// The same; nullopt where the process held the question up for too long, or others of its user's do, or no
    /// descriptor is left. It can: while it executes a program, for one.
    std::optional<std::vector<Mapping>> try_executable_mappings(uint32_t pid) const;
    /// What of a file the process has mapped at the address; nullopt where nothing is.
    std::optional<Mapping> mapping_at(uint32_t pid, uint64_t address) const;
    /// Whether there is known to be a file at the path that the process had it mapped from. No link is followed, none
    /// of its own either, and nobody is asked who serves the folder: only what the kernel remembers of it counts.
    bool has_file_at(uint32_t pid, const std::string& path) const;
    /// Mount points of the host, by patterns as of fnmatch(3), whose FUSE file systems are trusted to answer; * spans
    /// no slashes.
    void trust_fuse(std::vector<std::string> mount_points) { trusted_fuse_ = std::move(mount_points); }
    /// Whether files on this device may be opened without the danger that nobody ever answers: those of FUSE may not,
    /// nor of an overlay that lies on it or that a user made, nor of what is in no mount table of ours, the host's or
    /// the process's. Errors: denied (with the reason), not_found (the process is gone), busy (it holds the question
    /// up).
    Result<void> check_file_system(uint32_t pid, uint64_t device) const;
    /// Opens the mapped file itself, whatever its path now names, by map_files; never a file that may not be answered
    /// for, also where the process maps another one there meanwhile. `mapping` may have been split since, so long as
    /// code of the file is left in its range. Errors: not_found (gone meanwhile), denied (capabilities, or a file
    /// system that is not to be trusted), busy (no descriptor is left, or the process holds it up).
    Result<UniqueFd> open_mapped_file(uint32_t pid, const Mapping& mapping) const;
    /// Up to `most` bytes of a file that the process has mapped; nullopt where it cannot be read.
    std::optional<std::string> read_at(uint32_t pid, const FileId& id, std::shared_ptr<const UniqueFd> file,
                                       uint64_t offset, size_t most) const;

    /// What `call` returns of a file that is open, which its file system's server can hold up. A thread of its own
    /// makes it, so that it must use nothing of the caller's; nullopt where it was given up. `owner`: whose share that
    /// is.
    template <class Call>
    auto ask_of_file(const FileId& file, uint32_t owner, Call call) const -> std::optional<decltype(call())> {
        return file_calls_->run({file.device, file.inode}, owner, std::move(call));
    }
    /// Whose share what is done for the process is.
    uint32_t owner_of(uint32_t pid) const {
        const uint32_t uid = user_of(pid).value_or(0);
        return owner_of_ ? owner_of_(uid) : uid;
    }

  private:
    /// A file that nobody was asked to open: O_PATH.
    struct Place {
        std::shared_ptr<const UniqueFd> fd;
        struct statx facts {};
        int error = 0;  ///< 0 where it is there; ETIMEDOUT where the process held it up
    };
    bool is_trusted(const Mount& fuse) const;
    /// As the host's first process sees it, or else this one; whoever serves the folder is asked.
    std::optional<std::string> hosts_link_at(const std::string& path) const;
    Error why_not_mounted(uint32_t pid) const;
    /// In its namespace, and `find` must use nothing of the caller's; nullopt where it holds the question up.
    std::optional<std::optional<Mount>> find_mount(uint32_t pid,
                                                   std::function<const Mount*(const std::vector<Mount>&)> find) const;
    /// What `call` returns of something that the process can hold up, as ask_of_file() has it.
    template <class Call>
    auto within_bounds(uint32_t pid, Call call) const -> std::optional<decltype(call())> {
        return calls_->run(pid, owner_of(pid), std::move(call));
    }
    Result<std::string> read_stat(uint32_t pid) const;
    Place find_range(uint32_t pid, const Mapping& mapping) const;
    Result<void> check_place(uint32_t pid, const Mapping& mapping, const struct statx& facts) const;

    std::string root_;
    OwnerOf owner_of_;
    std::vector<std::string> trusted_fuse_;
    using HostMounts = std::array<MountTable, 2>;
    std::shared_ptr<HostMounts> host_mounts_;   ///< that of process 1, and ours
    std::shared_ptr<BoundedCalls> calls_;       ///< about processes
    std::shared_ptr<BoundedCalls> file_calls_;  ///< apart, so that a server that is gone keeps none of these from being
                                                ///< asked
};

}  // namespace ingero
