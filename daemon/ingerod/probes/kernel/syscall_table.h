// What system calls wait for, by their numbers on this architecture: for the kernel side, which knows no names.
#pragma once

#include <sys/syscall.h>

#include <cstdint>

#include "bpf/event.h"

namespace ingero {

struct SyscallClass {
    long number;
    uint8_t kind;
};

inline constexpr SyscallClass syscall_table[] = {
    {SYS_read, INGERO_SYSCALL_FILE},
    {SYS_write, INGERO_SYSCALL_FILE},
    {SYS_pread64, INGERO_SYSCALL_FILE},
    {SYS_pwrite64, INGERO_SYSCALL_FILE},
    {SYS_readv, INGERO_SYSCALL_FILE},
    {SYS_writev, INGERO_SYSCALL_FILE},
    {SYS_preadv, INGERO_SYSCALL_FILE},
    {SYS_pwritev, INGERO_SYSCALL_FILE},
    {SYS_preadv2, INGERO_SYSCALL_FILE},
    {SYS_pwritev2, INGERO_SYSCALL_FILE},
    {SYS_getdents64, INGERO_SYSCALL_FILE},
    {SYS_fallocate, INGERO_SYSCALL_FILE},
    {SYS_fsync, INGERO_SYSCALL_DISK},
    {SYS_fdatasync, INGERO_SYSCALL_DISK},
    {SYS_sync_file_range, INGERO_SYSCALL_DISK},
    {SYS_syncfs, INGERO_SYSCALL_DISK},
    {SYS_futex, INGERO_SYSCALL_FUTEX},
    {SYS_ioctl, INGERO_SYSCALL_IOCTL},
    {SYS_ppoll, INGERO_SYSCALL_POLL},
    {SYS_pselect6, INGERO_SYSCALL_POLL},
    {SYS_epoll_pwait, INGERO_SYSCALL_POLL},
    {SYS_epoll_pwait2, INGERO_SYSCALL_POLL},
#ifdef SYS_poll
    {SYS_poll, INGERO_SYSCALL_POLL},
    {SYS_select, INGERO_SYSCALL_POLL},
    {SYS_epoll_wait, INGERO_SYSCALL_POLL},
#endif
    {SYS_recvfrom, INGERO_SYSCALL_SOCKET},
    {SYS_recvmsg, INGERO_SYSCALL_SOCKET},
    {SYS_recvmmsg, INGERO_SYSCALL_SOCKET},
    {SYS_sendto, INGERO_SYSCALL_SOCKET},
    {SYS_sendmsg, INGERO_SYSCALL_SOCKET},
    {SYS_sendmmsg, INGERO_SYSCALL_SOCKET},
    {SYS_connect, INGERO_SYSCALL_SOCKET},
    {SYS_accept, INGERO_SYSCALL_SOCKET},
    {SYS_accept4, INGERO_SYSCALL_SOCKET},
    {SYS_wait4, INGERO_SYSCALL_CHILD},
    {SYS_waitid, INGERO_SYSCALL_CHILD},
    {SYS_nanosleep, INGERO_SYSCALL_TIMER},
    {SYS_clock_nanosleep, INGERO_SYSCALL_TIMER},
};

}  // namespace ingero
