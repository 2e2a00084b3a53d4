#include "daemon/ingerod/discovery/proc_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/limits/shortage.h"

namespace ingero {

Result<std::string> read_open_file(int fd, const std::string& path, size_t most) {
    std::string text;
    char buffer[16384];
    ssize_t got = 0;
    while ((got = read(fd, buffer, sizeof(buffer))) > 0 && text.size() < most)
        text.append(buffer, static_cast<size_t>(got));
    if (got < 0) return fail(ErrorCode::not_found, errno_message(path, errno));
    return text;
}

Result<std::string> read_proc_file(const std::string& path, size_t most) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const int error = errno;
    if (!fd) return fail(is_shortage(error) ? ErrorCode::busy : ErrorCode::not_found, errno_message(path, error));
    return read_open_file(fd.get(), path, most);
}

}  // namespace ingero
