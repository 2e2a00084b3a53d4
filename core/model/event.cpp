#include "core/model/event.h"

#include <algorithm>
#include <cstring>

#include "core/model/in_flight_call.h"

namespace ingero {

std::string_view to_string_view(const Comm& comm) {
    return {comm.data(), strnlen(comm.data(), comm.size())};
}

Comm to_comm(std::string_view text) {
    Comm comm{};
    std::copy_n(text.begin(), std::min(text.size(), comm.size() - 1), comm.begin());
    return comm;
}

std::string_view to_string(BlockedReason reason) {
    switch (reason) {
        case BlockedReason::none:
            return "none";
        case BlockedReason::disk:
            return "disk";
        case BlockedReason::network_fs:
            return "network_fs";
        case BlockedReason::futex:
            return "futex";
        case BlockedReason::ioctl:
            return "ioctl";
        case BlockedReason::page_fault:
            return "page_fault";
        case BlockedReason::poll:
            return "poll";
        case BlockedReason::socket:
            return "socket";
        case BlockedReason::pipe:
            return "pipe";
        case BlockedReason::child:
            return "child";
        case BlockedReason::timer:
            return "timer";
        case BlockedReason::stopped:
            return "stopped";
        case BlockedReason::other:
            break;
    }
    return "other";
}

std::string_view to_string(WakerKind kind) {
    switch (kind) {
        case WakerKind::unknown:
            return "unknown";
        case WakerKind::task:
            return "task";
        case WakerKind::interrupt:
            return "interrupt";
    }
    return "unknown";
}

std::string_view to_string(ThreadActivity activity) {
    switch (activity) {
        case ThreadActivity::runs:
            return "running";
        case ThreadActivity::runnable:
            return "runnable";
        case ThreadActivity::blocked:
            return "blocked";
    }
    return "running";
}

}  // namespace ingero
