#include "daemon/ingerod/spans/span_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/model/time.h"
#include "core/spans/scope.h"
#include "daemon/ingerod/control/peer.h"

// Newer than the headers of Debian 12: Linux 6.5, commit 7b26952a91cf.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
// Linux 6.11, commit ca567df74a28: the thread group of that id in a pid namespace, in the caller's numbering.
#ifndef NS_GET_TGID_FROM_PIDNS
#define NS_GET_PID_FROM_PIDNS _IOR(0xb7, 0x6, int)
#define NS_GET_TGID_FROM_PIDNS _IOR(0xb7, 0x7, int)
#endif

namespace ingero {

namespace {

constexpr size_t max_known = 16;
constexpr uint64_t believed_ns = 1'000'000'000;
constexpr std::string_view tree_prefix = "tree:";

tl::unexpected<SpanRefusal> refuse(SpanRefusal refusal) {
    return tl::unexpected(refusal);
}

bool is_gone(int pidfd) {
    pollfd asked{pidfd, POLLIN, 0};
    return poll(&asked, 1, 0) != 0;
}

uint64_t start_ticks_of(const Process& process) {
    static const auto ticks_per_s = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
    return process.key.start_ns / (1'000'000'000 / ticks_per_s);
}

bool lies_below(std::string_view path, std::string_view directory) {
    return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

std::string scope_of(const Process& process) {
    std::string scope = scope_of_cgroup(process.cgroup);
    if (scope.empty())
        scope = std::string(tree_prefix) + std::to_string(process.key.pid) + ":" + std::to_string(process.key.start_ns);
    return scope;
}

bool is_tree_scope(std::string_view scope) {
    return scope.starts_with(tree_prefix);
}

SpanLimits::Party SpanWriter::party(uint32_t user) const {
    std::string name = is_root_ ? "root" : SpanLimits::user_of(user);
    if (!is_root_ && uid_ == 0) name += " in " + std::to_string(pid_namespace_.inode);
    return {std::move(name), SpanLimits::group_of(process_.cgroup), is_root_};
}

SpanResult<SpanWriter> SpanWriter::identify(int socket, const ProcFs& proc) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || credentials.pid <= 0)
        return refuse(SpanRefusal::no_such_process);
    int raw_pidfd = -1;
    size = sizeof(raw_pidfd);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &raw_pidfd, &size) != 0) {
        if (errno != ENOPROTOOPT) return refuse(SpanRefusal::no_such_process);  // gone, or no descriptor is left
        raw_pidfd = -1;
    }
    const UniqueFd pidfd(raw_pidfd);

    SpanWriter writer;
    writer.proc_ = &proc;
    writer.uid_ = credentials.uid;
    const auto pid = static_cast<uint32_t>(credentials.pid);
    auto process = proc.read_process(pid);
    if (!process) return refuse(SpanRefusal::no_such_process);
    writer.process_ = std::move(*process);
    const auto own = proc.pid_namespace_of(static_cast<uint32_t>(getpid())), theirs = proc.pid_namespace_of(pid);
    if (!own || !theirs) return refuse(SpanRefusal::no_such_process);
    writer.pid_namespace_ = *theirs;
    writer.in_own_namespace_ = *own == *theirs;
    const Identity identity =
        identify_process({.uid = credentials.uid, .pid = pid, .groups = {}}, pidfd.get(), std::nullopt);
    writer.is_root_ = pidfd && identity.at_home && credentials.uid == 0;
    // Whoever has the pid now: the same process by its descriptor, or on kernels without one a process of the same
    // user, for which the writer could send spans as an equal, but not as root.
    if (pidfd ? is_gone(pidfd.get()) : writer.process_.uid != writer.uid_) return refuse(SpanRefusal::no_such_process);
    writer.scope_ = scope_of(writer.process_);
    return writer;
}

SpanResult<uint32_t> SpanWriter::translate(uint32_t pid, LookupBudget& budget) const {
    if (in_own_namespace_) return pid;
    const UniqueFd space = proc_->open_pid_namespace(process_.key.pid);
    struct stat status {};
    if (!space || fstat(space.get(), &status) != 0 || FileId{status.st_dev, status.st_ino} != pid_namespace_)
        return refuse(SpanRefusal::no_such_process);
    const int found = ioctl(space.get(), NS_GET_TGID_FROM_PIDNS, static_cast<unsigned long>(pid));
    // Of a thread it is another number: threads are no processes.
    if (found > 0 && ioctl(space.get(), NS_GET_PID_FROM_PIDNS, static_cast<unsigned long>(pid)) != found)
        return refuse(SpanRefusal::no_such_process);
    if (found > 0) return static_cast<uint32_t>(found);
    if (errno != ENOTTY && errno != EINVAL) return refuse(SpanRefusal::no_such_process);
    if (!budget.scans.take(monotonic_now_ns())) return refuse(SpanRefusal::rate_limit);
    for (const uint32_t candidate : proc_->pids())
        if (proc_->pid_namespace_of(candidate) == pid_namespace_ && proc_->innermost_pid_of(candidate) == pid)
            return candidate;
    return refuse(SpanRefusal::no_such_process);
}

bool SpanWriter::may_report(const Process& target) const {
    if (is_root_) return true;
    // Of itself with the user that it had, also where a program was started that runs as another.
    if (target.key == process_.key) return target.uid == process_.uid;
    if (target.uid != uid_) return false;
    if (proc_->pid_namespace_of(target.key.pid) == pid_namespace_) return true;
    const std::string cgroup = scope_of_cgroup(process_.cgroup);
    return !cgroup.empty() && lies_below(target.cgroup, cgroup);
}

SpanResult<Process> SpanWriter::find(uint32_t pid, LookupBudget& budget) const {
    if (!budget.lookups.take(monotonic_now_ns())) return refuse(SpanRefusal::rate_limit);
    const auto translated = translate(pid, budget);
    if (!translated) return refuse(translated.error());
    auto process = proc_->read_process(*translated);
    if (!process) return refuse(SpanRefusal::no_such_process);
    if (!may_report(*process)) return refuse(SpanRefusal::not_yours);
    // Still the one that was asked about: what lies between could have been another of the same pid.
    const auto again = proc_->read_process(*translated);
    if (!again || again->key != process->key) return refuse(SpanRefusal::no_such_process);
    return std::move(*process);
}

SpanResult<SpanOwner> SpanWriter::owner(std::optional<uint32_t> pid, std::optional<uint64_t> start_ticks,
                                        LookupBudget& budget) {
    if (!pid) return SpanOwner{process_.key, process_.uid, scope_};
    if (*pid == 0) return refuse(SpanRefusal::no_such_process);
    auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.pid == *pid; });
    if (known != known_.end() && (monotonic_now_ns() - known->looked_ns > believed_ns ||
                                  proc_->start_of(known->process.key.pid) != known->process.key.start_ns)) {
        known_.erase(known);
        known = known_.end();
    }
    if (known == known_.end()) {
        auto found = find(*pid, budget);
        if (!found) return refuse(found.error());
        known_.push_front({*pid, monotonic_now_ns(), std::move(*found)});
        if (known_.size() > max_known) known_.pop_back();
        known = known_.begin();
    } else {
        known_.splice(known_.begin(), known_, known);
    }
    const Process& process = known->process;
    if (start_ticks && *start_ticks != start_ticks_of(process)) return refuse(SpanRefusal::no_such_process);
    return SpanOwner{process.key, process.uid, {}};
}

}  // namespace ingero
