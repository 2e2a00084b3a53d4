/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The records of waits: what each was about, and the sums of the short ones.
 */
#ifndef INGERO_WAIT_RECORD_H
#define INGERO_WAIT_RECORD_H

#include "watched.h"

#define WAIT_RECORDS_A_SECOND 200    /* of a thread; the rest is summed */
#define LONG_RUNNABLE_NS 1000000ULL  /* without a CPU for so long: recorded all the same, for a second has few such */

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

static __always_inline struct file *file_of(struct task_struct *task, __u64 descriptor) {
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    struct file **slots = BPF_CORE_READ(table, fd), *file = 0;

    if (descriptor >= BPF_CORE_READ(table, max_fds)) return 0;
    bpf_probe_read_kernel(&file, sizeof(file), slots + descriptor);
    return file;
}

static __always_inline void describe_socket(struct ingero_wait_record *record, struct sock *sock) {
    __u16 family = BPF_CORE_READ(sock, __sk_common.skc_family);

    if (family == AF_UNIX) {
        record->detail_kind = INGERO_DETAIL_LOCAL_SOCKET;
        record->detail[0] = number_in_namespace(BPF_CORE_READ(sock, sk_peer_pid));
        return;
    }
    if (family != AF_INET && family != AF_INET6) return;
    record->detail_kind = INGERO_DETAIL_SOCKET;
    if (family == AF_INET) { /* as ::ffff:a.b.c.d, in network order */
        record->detail[0] = 0;
        record->detail[1] = 0xffff0000ULL | (__u64)BPF_CORE_READ(sock, __sk_common.skc_daddr) << 32;
    } else {
        bpf_core_read(&record->detail[0], 16, &sock->__sk_common.skc_v6_daddr);
    }
    record->detail[2] = (__u64)family << 32 | (__u32)__builtin_bswap16(BPF_CORE_READ(sock, __sk_common.skc_dport)) << 16 |
                        BPF_CORE_READ(sock, __sk_common.skc_num);
}

/* What a sleep was about: the lock, the file, the other end of a socket, the block request. */
static __always_inline void describe_sleep(struct ingero_wait_record *record, struct watched *watched,
                                           struct task_struct *task) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    struct socket *socket;
    struct file *file;
    __u64 first;

    if (watched->request_done_ns) {
        record->detail_kind = INGERO_DETAIL_REQUEST;
        record->detail[0] = watched->request_device;
        record->detail[1] = watched->request_bytes << 8 | (watched->request_kind & 0xff);
        record->detail[2] = watched->request_done_ns - watched->request_begun_ns;
        return;
    }
    if (watched->wait.syscall < 0 || watched->wait.syscall >= INGERO_MAX_SYSCALLS) return;
    first = syscall_first_argument(regs);
    switch (syscall_classes[watched->wait.syscall & (INGERO_MAX_SYSCALLS - 1)]) {
        case INGERO_SYSCALL_FUTEX:
            record->detail_kind = INGERO_DETAIL_LOCK;
            record->detail[0] = first;
            return;
        case INGERO_SYSCALL_SOCKET:
        case INGERO_SYSCALL_FILE:
        case INGERO_SYSCALL_DISK:
            file = file_of(task, first);
            if (!file) return;
            if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) == S_IFSOCK) {
                socket = BPF_CORE_READ(file, private_data);
                describe_socket(record, BPF_CORE_READ(socket, sk));
                return;
            }
            record->detail_kind = INGERO_DETAIL_FILE;
            record->detail[0] = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
            record->detail[1] = BPF_CORE_READ(file, f_inode, i_ino);
            return;
        default: return;
    }
}

static __always_inline struct ingero_wait_record *begin_record(struct watched *watched, struct task_struct *task,
                                                               __u16 op) {
    struct ingero_wait_record *record = reserve(sizeof(*record));

    if (!record) {
        __sync_fetch_and_add(&waits_lost, 1);
        return 0;
    }
    __builtin_memset(record, 0, sizeof(*record));
    record->type = INGERO_RECORD_WAIT;
    record->op = op;
    record->process_start_ns = watched->process_start_ns;
    record->tgid = watched->tgid;
    record->tid = watched->tid;
    record->uid = watched->uid;
    record->level = watched->level;
    record->cpu = bpf_get_smp_processor_id();
    record->blocked_syscall = 0xffff;
    bpf_probe_read_kernel(record->comm, sizeof(record->comm), task->comm);
    return record;
}

/* One record of all that were not sent yet: as long as they took together. */
static __always_inline void tell_reclaims(struct watched *watched, struct task_struct *task) {
    struct ingero_wait_record *record = begin_record(watched, task, INGERO_OP_DIRECT_RECLAIM);

    if (!record) return; /* they wait for the next */
    record->start_ns = watched->reclaimed_from_ns;
    record->duration_ns = watched->reclaimed_ns;
    record->waits = watched->reclaims;
    record->detail[0] = watched->reclaimed_pages;
    record->detail[1] = watched->reclaims;
    watched->reclaimed_ns = watched->reclaimed_pages = 0;
    watched->reclaims = 0;
    submit(record);
}

static __always_inline void tell_sums(struct watched *watched, struct task_struct *task, __u64 now) {
    __u64 migrations = migrations_of(task);
    struct ingero_wait_record *record;

    if (watched->reclaims) tell_reclaims(watched, task);
    if (!watched->summed && !watched->summed_interrupt_ns && migrations == watched->summed_migrations) {
        watched->summed_from_ns = now;
        return;
    }
    record = begin_record(watched, task, INGERO_OP_WAITS_SUMMED);
    if (!record) return; /* the sums go on */
    record->start_ns = watched->summed_from_ns;
    record->duration_ns = now - watched->summed_from_ns;
    record->runnable_ns = watched->summed_runnable_ns;
    record->blocked_ns = watched->summed_blocked_ns;
    record->waits = watched->summed;
    record->detail[0] = watched->summed_interrupt_ns;
    record->detail[2] = migrations - watched->summed_migrations;
    watched->summed_from_ns = now;
    watched->summed_runnable_ns = watched->summed_blocked_ns = watched->summed_interrupt_ns = 0;
    watched->summed_migrations = migrations;
    watched->summed = 0;
    submit(record);
}

static __always_inline int has_record_left(struct watched *watched, __u64 now) {
    if (now - watched->second_from_ns >= 1000000000ULL) {
        watched->second_from_ns = now;
        watched->records_in_second = 0;
    }
    return watched->records_in_second++ < WAIT_RECORDS_A_SECOND;
}

static __always_inline void tell_wait(struct watched *watched, struct task_struct *task, __u64 off, __u64 now,
                                      __u32 late) {
    struct wait_state *wait = &watched->wait;
    struct ingero_wait_record *record = begin_record(watched, task, INGERO_OP_WAIT);

    if (!record) return;
    record->start_ns = off;
    record->duration_ns = now - off;
    record->runnable_ns = wait->charged_runnable_ns;
    record->preempted_ns = wait->off_kind == OFF_RUNNABLE ? wait->charged_runnable_ns : 0;
    record->blocked_ns = wait->charged_ns;
    record->waits = 1;
    record->from_cpu = watched->from_cpu;
    record->depth = watched->depth;
    record->flags = (wait->charged_uncertain ? INGERO_CALL_SPLIT_UNCERTAIN : 0) |
                    (wait->charged_ns && wait->in_iowait ? INGERO_CALL_IN_IOWAIT : 0) |
                    (watched->throttled ? INGERO_CALL_THROTTLED : 0);
    record->preemptor_ns = wait->wait_preemptor_ns;
    record->preemptor_tgid = wait->wait_preemptor_tgid;
    if (wait->wait_preemptor_ns) copy_comm(record->preemptor_comm, wait->wait_preemptor_comm);
    if (wait->charged_ns) {
        record->blocked_reason = wait->charged_reason;
        record->blocked_syscall = wait->syscall < 0 ? 0xffff : wait->syscall;
        record->waker_kind = wait->waker_kind;
        if (wait->waker_kind == INGERO_WAKER_TASK) {
            record->waker_tgid = wait->waker_tgid;
            record->waker_tid = watched->waker_tid;
            record->flags |= watched->waker_watched ? INGERO_CALL_WAKER_WATCHED : 0;
            copy_comm(record->waker_comm, wait->waker_comm);
        }
        if (!late || watched->request_done_ns) describe_sleep(record, watched, task);
    }
    submit(record);
}

/* What it did since it was last switched out is not known: it may have waited all of it. */
static __always_inline void lose_wait(struct watched *watched, struct task_struct *task, __u64 now) {
    struct ingero_wait_record *record;
    __u64 off = watched->wait.off_ns;

    stop_waiting_for_disk(watched);
    stop_waiting(&watched->wait);
    watched->wait.off_ns = 0;
    __sync_fetch_and_add(&waits_lost, 1);
    if (!is_ring_filling() && has_record_left(watched, now)) {
        record = begin_record(watched, task, INGERO_OP_WAITS_SUMMED);
        if (!record) return;
        record->start_ns = off;
        record->duration_ns = now - off;
        record->waits = 1;
        record->flags = INGERO_CALL_SPLIT_UNCERTAIN;
        submit(record);
    }
}

#endif
