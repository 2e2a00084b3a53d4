// Descriptors that travel with bytes over a Unix socket.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/model/unique_fd.h"

namespace ingero {

/// As sendmsg(2), without a signal; `fd`, where not -1, goes along with the first byte.
ssize_t send_with_fd(int socket, std::string_view bytes, int fd, int flags = 0);

/// As recvmsg(2), again after a signal; appends the descriptors that came. More than four at once are closed.
ssize_t receive_with_fds(int socket, std::span<std::byte> out, std::vector<UniqueFd>& fds);

}  // namespace ingero
