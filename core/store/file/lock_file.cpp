#include "core/store/file/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

namespace ingero {

namespace {

/// " by process N", or nothing where the file does not say.
std::string holder(int fd) {
    std::array<char, 16> text{};
    const ssize_t got = pread(fd, text.data(), text.size(), 0);
    int pid = 0;
    if (got <= 0 || std::from_chars(text.data(), text.data() + got, pid).ec != std::errc{}) return {};
    return " by process " + std::to_string(pid);
}

}  // namespace

Result<LockFile> LockFile::take(const std::string& directory) {
    const std::string path = directory + "/ingerod.lock";
    LockFile lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
    if (lock.fd_ < 0) {
        const int error = errno;
        if (error == ENOENT)
            return fail(ErrorCode::not_found, errno_message(directory, error), "create the directory first");
        const bool denied = error == EACCES || error == EPERM || error == EROFS;
        return fail(denied ? ErrorCode::denied : ErrorCode::internal, errno_message("cannot make " + path, error),
                    "ingerod must be able to write to the store's directory");
    }
    // flock belongs to the open file: unlike fcntl's locks it also holds against this same process.
    while (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return fail(ErrorCode::internal, errno_message("cannot lock " + path, errno));
        return fail(ErrorCode::busy, "the event store in " + directory + " is in use" + holder(lock.fd_),
                    "stop that ingerod, or use another --directory");
    }
    const std::string pid = std::to_string(getpid()) + "\n";
    // Only for the message above: a full disk must not keep the daemon from starting.
    if (ftruncate(lock.fd_, 0) == 0 && pwrite(lock.fd_, pid.data(), pid.size(), 0) < 0) errno = 0;
    return lock;
}

LockFile::LockFile(LockFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

LockFile::~LockFile() {
    if (fd_ >= 0) close(fd_);
}

}  // namespace ingero
