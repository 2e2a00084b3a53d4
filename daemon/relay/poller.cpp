#include "daemon/relay/poller.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/wire/value.h"

namespace ingero {

using nlohmann::json;

bool emit(const json& message) {
    const std::string bytes = encode_value(message);
    for (size_t at = 0; at < bytes.size();) {
        const ssize_t written = write(STDOUT_FILENO, bytes.data() + at, bytes.size() - at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        at += static_cast<size_t>(written);
    }
    return true;
}

bool emit_state(const char* source, const char* state, const std::string& reason) {
    return emit({{"kind", "source"}, {"source", source}, {"state", state}, {"reason", reason}});
}

bool end_with_parent(int parent_pid) {
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == parent_pid;
}

bool sleep_until(std::chrono::steady_clock::time_point then) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - std::chrono::steady_clock::now());
        if (left.count() <= 0) return true;
        // Standard output hangs up as the relay ends.
        pollfd output{STDOUT_FILENO, 0, 0};
        const int ready = ::poll(&output, 1, static_cast<int>(std::min<int64_t>(left.count(), 3'600'000)));
        if (ready > 0) return false;
    }
}

}  // namespace ingero
