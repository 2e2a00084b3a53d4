#include "daemon/ingerod/control/listening_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ingero {

namespace {

bool somebody_listens(const sockaddr_un& address) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true;
    const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    const bool listens = result == 0 || errno == EAGAIN;
    ::close(fd);
    return listens;
}

bool is_socket(const std::string& path) {
    struct stat status {};
    return lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

}  // namespace

Result<UniqueFd> listen_at(const std::string& path, mode_t mode) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path))
        return fail(ErrorCode::bad_request, "a socket's path has 1 to 107 bytes: " + path, "use a shorter directory");
    std::memcpy(address.sun_path, path.data(), path.size());
    if (is_socket(path)) {
        if (somebody_listens(address))
            return fail(ErrorCode::busy, "another ingerod listens at " + path, "stop it, or use another --directory");
        unlink(path.c_str());
    }
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fail(ErrorCode::internal, errno_message("socket", errno));
    const bool made = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                      chmod(path.c_str(), mode) == 0 && listen(fd.get(), SOMAXCONN) == 0;
    if (made) return fd;
    return fail(ErrorCode::internal, errno_message("cannot make the socket " + path, errno),
                "the directory must exist and be writable for ingerod");
}

}  // namespace ingero
