#include "daemon/ingerod/targets/unexamined_processes.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "core/model/time.h"

namespace ingero {

bool UnexaminedProcesses::watch(const ProcessKey& process, uint32_t uid) {
    const uint32_t pid = process.pid, owner = owners_.owner_of(uid);
    if (processes_.contains(pid) || !shares_.may_take(owner, 1)) return true;
    One one{.key = process,
            .owner = owner,
            .pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))),
            .exit_source = {}};
    if (!one.pidfd) return false;
    one.exit_source = loop_.add_io(one.pidfd.get(), EPOLLIN, [this, pid](uint32_t) { on_end(pid); });
    shares_.take(owner, 1);
    processes_.emplace(pid, std::move(one));
    return true;
}

void UnexaminedProcesses::on_end(uint32_t pid) {
    const auto ended = processes_.find(pid);
    gaps_.end_process(ended->second.key, monotonic_now_ns());
    shares_.give_back(ended->second.owner, 1);
    processes_.erase(ended);
}

}  // namespace ingero
