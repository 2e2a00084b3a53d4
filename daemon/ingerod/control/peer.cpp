#include "daemon/ingerod/control/peer.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/ingerod/discovery/bounded_calls.h"

// Newer than the headers of Debian 12: Linux 6.5, commit 7b26952a91cf.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace ingero {

namespace {

class FileDescriptor {
  public:
    explicit FileDescriptor(int fd) : fd_(fd) {}
    ~FileDescriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&&) = delete;
    int get() const { return fd_; }
    bool valid() const { return fd_ >= 0; }

  private:
    int fd_;
};

enum class Namespaces { own, other, unknown };

struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const FileId&) const = default;
};

std::optional<FileId> file_id(int directory, const char* path) {
    struct stat status {};
    if (fstatat(directory, path, &status, 0) != 0) return std::nullopt;
    return FileId{status.st_dev, status.st_ino};
}

/// Field 22 of stat, in clock ticks since boot. The command before it may hold anything, so it is skipped from the end.
std::optional<std::string> start_time(int process_directory) {
    const FileDescriptor file(openat(process_directory, "stat", O_RDONLY | O_CLOEXEC));
    std::array<char, 1024> buffer;
    const ssize_t size = file.valid() ? read(file.get(), buffer.data(), buffer.size()) : -1;
    if (size <= 0) return std::nullopt;
    std::string_view text(buffer.data(), static_cast<size_t>(size));
    const size_t command_end = text.rfind(')');
    if (command_end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(command_end + 1);
    constexpr int spaces_before = 20;  // one before field 3, and so on up to field 22
    for (int i = 0; i < spaces_before; ++i) {
        const size_t space = text.find(' ');
        if (space == std::string_view::npos) return std::nullopt;
        text.remove_prefix(space + 1);
    }
    return std::string(text.substr(0, text.find(' ')));
}

FileDescriptor peer_pidfd(int socket) {
    int pidfd = -1;
    socklen_t size = sizeof(pidfd);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0) return FileDescriptor(-1);
    return FileDescriptor(pidfd);
}

bool has_exited(int pidfd) {
    pollfd poll_fd{pidfd, POLLIN, 0};
    return poll(&poll_fd, 1, 0) != 0;
}

Namespaces compare_namespaces(int process_directory) {
    for (const char* name : {"user", "pid"}) {
        const auto theirs = file_id(process_directory, (std::string("ns/") + name).c_str());
        const auto ours = file_id(AT_FDCWD, (std::string("/proc/self/ns/") + name).c_str());
        if (!theirs || !ours) return Namespaces::unknown;
        if (*theirs != *ours) return Namespaces::other;
    }
    return Namespaces::own;
}

Namespaces process_namespaces(uint32_t pid, uint32_t uid, int pidfd) {
    if (pid == 0 || pid > INT32_MAX) return Namespaces::other;  // none that our pid namespace holds
    struct Seen {
        Namespaces namespaces = Namespaces::unknown;
        bool is_the_same = false;  ///< from before they were looked at until after
    };
    // Whoever connected may be held up in executing a program by now.
    static BoundedCalls calls;
    const auto seen = calls.run(pid, uid, [pid] {
        // An open /proc directory stays bound to its process: a successor of the same pid is not reached through it.
        const FileDescriptor directory(
            open(("/proc/" + std::to_string(pid)).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!directory.valid()) return Seen{};
        const auto started = start_time(directory.get());
        const Namespaces namespaces = compare_namespaces(directory.get());
        return Seen{namespaces, started && started == start_time(directory.get())};
    });
    if (!seen) return Namespaces::unknown;
    const bool pinned = pidfd >= 0 ? !has_exited(pidfd) : seen->is_the_same;
    return pinned ? seen->namespaces : Namespaces::unknown;
}

/// The primary group and, where they can be read, the others.
std::vector<gid_t> peer_groups(int socket, gid_t primary) {
    std::vector<gid_t> groups(64);
    for (;;) {
        auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
        const int result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
        if (result != 0 && errno != ERANGE) return {primary};
        groups.resize(size / sizeof(gid_t));
        if (result == 0) break;
    }
    groups.push_back(primary);
    return groups;
}

}  // namespace

std::optional<gid_t> find_group(const std::string& name) {
    std::vector<char> buffer(16 << 10);
    group entry{};
    group* found = nullptr;
    while (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE)
        buffer.resize(buffer.size() * 2);
    return found ? std::optional(found->gr_gid) : std::nullopt;
}

Identity identify_process(const ProcessCredentials& credentials, int pidfd, std::optional<gid_t> privileged_group) {
    Identity identity{{credentials.uid, credentials.pid, false}, false};
    const bool own_uid = credentials.uid == geteuid();
    const auto& groups = credentials.groups;
    switch (process_namespaces(credentials.pid, credentials.uid, pidfd)) {
        case Namespaces::own:
            identity.at_home = true;
            identity.caller.sees_all =
                own_uid || credentials.uid == 0 ||
                (privileged_group && std::find(groups.begin(), groups.end(), *privileged_group) != groups.end());
            break;
        case Namespaces::other:
            // Root of a container has the number of the host's root and of every other container's: it owns nothing.
            if (own_uid || credentials.uid == 0) identity.caller.uid = nobody_uid;
            break;
        case Namespaces::unknown:
            // Gone, or not to be read: whoever holds the connection now is not who connected.
            identity.caller.uid = nobody_uid;
            break;
    }
    return identity;
}

Caller identify_peer(int socket, std::optional<gid_t> privileged_group) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {nobody_uid, 0, false};
    const FileDescriptor pidfd = peer_pidfd(socket);
    return identify_process(
               {credentials.uid, static_cast<uint32_t>(credentials.pid), peer_groups(socket, credentials.gid)},
               pidfd.get(), privileged_group)
        .caller;
}

}  // namespace ingero
