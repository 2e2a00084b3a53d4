#include "daemon/worker/sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>

#include "daemon/worker/protocol.h"

namespace ingero {

namespace {

constexpr uid_t nobody = 65'534;
constexpr rlim_t open_files = 16;

auto failed(const char* what, int error_number) {
    return fail(ErrorCode::internal, errno_message(std::string("sandbox: ") + what, error_number));
}

Result<void> drop_capabilities() {
    // The bounding set needs CAP_SETPCAP; without it no_new_privs alone keeps an execve from gaining anything.
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; ++cap)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0 && errno != EPERM) return failed("PR_CAPBSET_DROP", errno);
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return failed("PR_CAP_AMBIENT", errno);
    return {};
}

Result<void> clear_capabilities() {
    const std::unique_ptr<std::remove_pointer_t<cap_t>, int (*)(void*)> none(cap_init(), cap_free);
    if (!none || cap_set_proc(none.get()) != 0) return failed("cap_set_proc", errno);
    return {};
}

Result<void> become_nobody() {
    if (geteuid() != 0) return {};
    if (setgroups(0, nullptr) != 0 && errno != EPERM) return failed("setgroups", errno);
    // A rootless container may map no other user: root without capabilities is then what is least.
    if (setresgid(nobody, nobody, nobody) != 0 && errno != EINVAL) return failed("setresgid", errno);
    if (setresuid(nobody, nobody, nobody) != 0 && errno != EINVAL) return failed("setresuid", errno);
    return {};
}

Result<uint64_t> mapped_bytes() {
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    if (!(statm >> pages)) return fail(ErrorCode::internal, "sandbox: cannot read /proc/self/statm");
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Result<void> set_limits(uint64_t address_space_bytes) {
    struct Limit {
        decltype(RLIMIT_AS) what;
        rlim_t value;
    };
    for (const Limit& limit : {Limit{RLIMIT_AS, address_space_bytes}, Limit{RLIMIT_NOFILE, open_files},
                               Limit{RLIMIT_NPROC, 0}, Limit{RLIMIT_CORE, 0}}) {
        if (limit.what == RLIMIT_AS && sanitizer_build) continue;  // shadow memory is terabytes of address space
        const rlimit both{limit.value, limit.value};
        if (setrlimit(limit.what, &both) != 0) return failed("setrlimit", errno);
    }
    return {};
}

Result<void> die_with_parent(int parent_pid) {
    // After the credentials changed: that clears it.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return failed("PR_SET_PDEATHSIG", errno);
    pollfd socket{worker_socket_fd, 0, 0};
    const bool hung_up = poll(&socket, 1, 0) > 0 && (socket.revents & (POLLHUP | POLLNVAL));
    if (getppid() != parent_pid || hung_up) return fail(ErrorCode::internal, "sandbox: the parent is gone");
    return {};
}

scmp_arg_cmp equals(unsigned argument, scmp_datum_t value) {
    return {argument, SCMP_CMP_EQ, value, 0};
}
scmp_arg_cmp at_most(unsigned argument, scmp_datum_t value) {
    return {argument, SCMP_CMP_LE, value, 0};
}
scmp_arg_cmp without_bits(unsigned argument, scmp_datum_t mask) {
    return {argument, SCMP_CMP_MASKED_EQ, mask, 0};
}

/// Collects the filter's rules; the first failure sticks.
class Filter {
  public:
    Filter()
        : context_(seccomp_init(sanitizer_build ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_KILL_PROCESS), seccomp_release) {}

    void allow(std::initializer_list<int> calls) {
        for (const int call : calls) add(call, {});
    }
    void allow_if(int call, std::initializer_list<scmp_arg_cmp> arguments) { add(call, arguments); }

    Result<void> load() {
        if (!context_) return failed("seccomp_init", ENOMEM);
        if (error_ == 0) error_ = seccomp_load(context_.get());
        if (error_ != 0) return failed("seccomp", -error_);
        return {};
    }

  private:
    void add(int call, std::initializer_list<scmp_arg_cmp> arguments) {
        if (!context_ || error_ != 0) return;
        error_ = seccomp_rule_add_array(context_.get(), SCMP_ACT_ALLOW, call, static_cast<unsigned>(arguments.size()),
                                        arguments.begin());
        if (error_ == -EDOM) error_ = 0;  // this architecture has no such call: poll on arm64
    }

    std::unique_ptr<void, void (*)(scmp_filter_ctx)> context_;
    int error_ = 0;
};

void allow_memory_and_time(Filter& filter) {
    filter.allow({SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk), SCMP_SYS(futex),
                  SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(getrandom), SCMP_SYS(sysinfo),
                  SCMP_SYS(sched_yield), SCMP_SYS(restart_syscall)});
    for (const int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) filter.allow_if(call, {without_bits(2, PROT_EXEC)});
}

void allow_open_descriptors(Filter& filter, bool has_client) {
    filter.allow({SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(fstat), SCMP_SYS(lseek), SCMP_SYS(close), SCMP_SYS(poll),
                  SCMP_SYS(ppoll)});
    for (const int call : {SCMP_SYS(recvmsg), SCMP_SYS(sendmsg)}) {
        filter.allow_if(call, {equals(0, worker_socket_fd)});
        if (has_client) filter.allow_if(call, {equals(0, worker_client_fd)});
    }
    // A copy of the store, to a file that came with the request; an answer, to the connection that did. sendto() passes
    // no descriptor along.
    filter.allow_if(SCMP_SYS(pwrite64), {equals(0, worker_output_fd)});
    filter.allow_if(SCMP_SYS(sendto), {equals(0, worker_output_fd), equals(4, 0)});
    filter.allow_if(SCMP_SYS(dup3), {equals(1, worker_output_fd)});
    // Last words only: LMDB holds the store's lock file open for writing.
    for (const int call : {SCMP_SYS(write), SCMP_SYS(writev)}) filter.allow_if(call, {at_most(0, STDERR_FILENO)});
    // glibc's fstat() is this; a path cannot be distinguished from "" here, so the worker can learn that a file exists.
    filter.allow_if(SCMP_SYS(newfstatat), {equals(3, AT_EMPTY_PATH)});
    // libelf asks F_GETFD; LMDB marks a living reader by a lock on its file, and newer ones wait for it as they close.
    for (const int command : {F_GETFD, F_GETFL, F_GETLK, F_SETLK, F_SETLKW})
        filter.allow_if(SCMP_SYS(fcntl), {equals(1, static_cast<scmp_datum_t>(command))});
}

void allow_ending(Filter& filter) {
    filter.allow({SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask),
                  SCMP_SYS(rt_sigaction), SCMP_SYS(getpid), SCMP_SYS(gettid)});
    // abort() signals itself, and nobody else.
    filter.allow_if(SCMP_SYS(tgkill), {equals(0, static_cast<scmp_datum_t>(getpid()))});
}

/// UBSan asks the kernel whether an address can be read by writing from it into a pipe of its own.
void allow_sanitizers(Filter& filter) {
    if (!sanitizer_build) return;
    filter.allow({SCMP_SYS(pipe), SCMP_SYS(pipe2), SCMP_SYS(write), SCMP_SYS(sigaltstack)});
}

}  // namespace

Result<void> keep_only_socket(int socket_fd, bool has_client) {
    if (socket_fd <= STDERR_FILENO) return failed("the socket's number", EINVAL);
    if (socket_fd != worker_socket_fd && dup2(socket_fd, worker_socket_fd) < 0) return failed("dup2", errno);
    const int last = has_client ? worker_client_fd : worker_socket_fd;
    if (close_range(static_cast<unsigned>(last) + 1, ~0U, 0) != 0) return failed("close_range", errno);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) return failed("/dev/null", errno);
    close(null);
    for (int fd = worker_socket_fd; fd <= last; ++fd)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return failed("the socket", errno);
    return {};
}

Result<void> enter_sandbox(uint64_t memory_bytes, int parent_pid, bool has_client) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("PR_SET_NO_NEW_PRIVS", errno);
    // Before the credentials change: nobody may be kept from /proc, or from / itself.
    const auto mapped = mapped_bytes();
    if (!mapped) return tl::unexpected(mapped.error());
    if (auto done = drop_capabilities(); !done) return done;
    if (auto done = become_nobody(); !done) return done;
    if (auto done = clear_capabilities(); !done) return done;
    if (auto done = set_limits(*mapped + memory_bytes); !done) return done;
    if (auto done = die_with_parent(parent_pid); !done) return done;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return failed("PR_SET_DUMPABLE", errno);

    Filter filter;
    allow_memory_and_time(filter);
    allow_open_descriptors(filter, has_client);
    allow_ending(filter);
    allow_sanitizers(filter);
    return filter.load();
}

}  // namespace ingero
