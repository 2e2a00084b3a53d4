#include "core/model/text/syscall_names.h"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace ingero {

namespace {

struct Named {
    uint16_t number;
    std::string_view name;
};

constexpr auto names = std::to_array<Named>({
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_pread64, "pread64"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_openat, "openat"},
    {SYS_ioctl, "ioctl"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_mprotect, "mprotect"},
    {SYS_madvise, "madvise"},
    {SYS_brk, "brk"},
    {SYS_futex, "futex"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
#endif
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_io_getevents, "io_getevents"},
});

}  // namespace

std::string syscall_name(uint16_t number) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const Named& one) { return one.number == number; });
    return found == names.end() ? "syscall-" + std::to_string(number) : std::string(found->name);
}

}  // namespace ingero
