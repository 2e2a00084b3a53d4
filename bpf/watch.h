/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What threads wait for, in calls and between them: one record a wait that takes long, the short ones summed.
 *
 * Watched are the threads that call, those that they start, and for a while whoever ended a long wait of one that is
 * watched: so a wait can be followed to whoever caused it, over processes that call nothing.
 */
#ifndef INGERO_WATCH_H
#define INGERO_WATCH_H

#include "capture.h"
#include "off_cpu.h"

#define WATCHED_PIDS (1U << 22) /* PID_MAX_LIMIT */
#define WATCHED_WORD_MASK (WATCHED_PIDS / 64 - 1)
#define MAX_FOLLOWED 4               /* wakers of wakers, and so on */
#define FOLLOWED_NS 10000000000ULL   /* after the last long wait that it ended */
#define WAIT_RECORDS_A_SECOND 200    /* of a thread; the rest is summed */
#define SUMMED_NS 1000000000ULL      /* sums are told this often, and when the thread ends */
#define COMPLETION_NS 100000         /* from a block request's completion to the wake-up of who waits for it */

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

/* Waits that take less are summed. 0: nothing is watched. Mapped by the loader. */
__u64 wait_floor_ns;
__u32 any_watched; /* some thread called since the daemon began */
/* Waits that are neither told nor in a sum, for want of room in the ring or in the table of threads. */
__u64 waits_lost;

/* A bit for each thread, by its id in the kernel: what a switch between others costs is two loads. */
__u64 watched_bits[WATCHED_PIDS / 64];

struct watched {
    struct wait_state wait;
    __u64 start_ns; /* of the thread: its id may come again */
    __u64 process_start_ns;
    __u64 watched_from_ns;
    __u64 useful_ns; /* when it last ended a long wait of a watched thread */
    __u64 second_from_ns;
    __u64 summed_from_ns;
    __u64 summed_blocked_ns;
    __u64 summed_runnable_ns;
    __u64 summed_interrupt_ns;
    __u64 request_done_ns; /* of the block request whose completion woke it */
    __u64 request_begun_ns;
    __u64 request_bytes;
    __u64 reclaim_from_ns;   /* the one under way */
    __u64 reclaimed_from_ns; /* the first of those that are not told yet */
    __u64 reclaimed_ns;
    __u64 reclaimed_pages;
    __u64 policy; /* as it was when its process was found to be recorded; see capture.h */
    __u32 request_device;
    __u32 request_kind;
    __u32 records_in_second;
    __u32 summed;
    __u32 tgid;
    __u32 tid;
    __u32 uid;
    __u32 level; /* 0: calls itself */
    __u32 waker_tid;
    __u32 from_cpu;
    __u32 throttled;
    __u32 depth; /* of calls, when it was switched out */
    __u32 is_disk_waiter; /* counted in disk_waiters */
    __u32 waker_watched; /* for all of the sleep that it ended */
    __u32 is_followed;   /* counted in followed_threads */
    __u32 reclaims;      /* not told yet */
};

/* By id in the kernel. Made beforehand, so that entries may be added wherever the scheduler is. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192);
    __type(key, __u32);
    __type(value, struct watched);
} watched_threads SEC(".maps");

/* Of these, those that only ended waits: some sleep for days, and the others must have room. */
#define MAX_FOLLOWED_THREADS 4096
__s32 followed_threads;

__u64 unwatched[sizeof(struct watched) / sizeof(__u64)]; /* never written */

/* The block request that was completed last on each CPU. */
struct completed_request {
    __u64 begun_ns;
    __u64 done_ns;
    __u64 bytes;
    __u32 device;
    __u32 kind;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct completed_request);
} completed_requests SEC(".maps");

/* Watched threads that wait for a disk: only then are completions looked at. */
__s32 disk_waiters;

static __always_inline int is_watched(struct task_struct *task) {
    __u32 pid = task->pid;
    return (watched_bits[(pid >> 6) & WATCHED_WORD_MASK] >> (pid & 63)) & 1;
}

static __always_inline void mark_watched(struct task_struct *task) {
    __u32 pid = task->pid;
    __sync_fetch_and_or(&watched_bits[(pid >> 6) & WATCHED_WORD_MASK], 1ULL << (pid & 63));
}

static __always_inline void unmark_watched(struct task_struct *task) {
    __u32 pid = task->pid;
    __sync_fetch_and_and(&watched_bits[(pid >> 6) & WATCHED_WORD_MASK], ~(1ULL << (pid & 63)));
}

/* By a decision that is known: nothing is decided for this alone. */
static __always_inline int may_watch(struct task_struct *task) {
    struct ingero_decision *decision;
    __u32 process;

    if (!policy_now()) return CAPTURE_CONFIRMED;
    process = process_id(task);
    decision = bpf_map_lookup_elem(&decisions, &process);
    if (!decision || !decision->captured || decision->process_start_ns != told_start(task)) return CAPTURE_NO;
    return decision->inherited ? CAPTURE_YES : CAPTURE_CONFIRMED;
}

/* As is_captured() does for calls. */
static __always_inline int may_still_watch(struct watched *watched, struct task_struct *task) {
    __u64 policy = policy_now();
    int captured;

    if (watched->policy == policy) return 1;
    look_up_behind_policy(&watched->policy);
    captured = may_watch(task);
    if (captured == CAPTURE_CONFIRMED) watched->policy = policy;
    return captured != CAPTURE_NO;
}

static __always_inline struct watched *find_watched(struct task_struct *task) {
    __u32 pid = task->pid;
    struct watched *watched = bpf_map_lookup_elem(&watched_threads, &pid);
    return watched && watched->start_ns == task->start_boottime ? watched : 0;
}

static __always_inline void stop_waiting_for_disk(struct watched *watched) {
    if (__sync_lock_test_and_set(&watched->is_disk_waiter, 0)) __sync_fetch_and_add(&disk_waiters, -1);
}

static __always_inline void forget_watched(__u32 pid) {
    struct watched *watched = bpf_map_lookup_elem(&watched_threads, &pid);

    if (!watched) return;
    stop_waiting(&watched->wait);
    stop_waiting_for_disk(watched);
    if (__sync_lock_test_and_set(&watched->is_followed, 0)) __sync_fetch_and_add(&followed_threads, -1);
    bpf_map_delete_elem(&watched_threads, &pid);
}

/* For want of memory, or where there is none left for it in the table: 0. */
static __always_inline struct watched *watch(struct task_struct *task, __u32 level, __u64 now) {
    struct watched *watched;
    __u32 pid = task->pid;

    if (!may_watch(task) || (level && followed_threads >= MAX_FOLLOWED_THREADS)) return 0;
    forget_watched(pid); /* of one that had its id before */
    if (bpf_map_update_elem(&watched_threads, &pid, unwatched, BPF_ANY) != 0) {
        if (!level) __sync_fetch_and_add(&waits_lost, 1); /* one at least */
        return 0;
    }
    watched = bpf_map_lookup_elem(&watched_threads, &pid);
    if (!watched) return 0;
    watched->start_ns = task->start_boottime;
    watched->process_start_ns = task->group_leader->start_boottime;
    watched->tgid = process_id(task);
    watched->tid = thread_id(task);
    watched->uid = BPF_CORE_READ(task, cred, uid.val);
    watched->level = level;
    if (level) {
        watched->is_followed = 1;
        __sync_fetch_and_add(&followed_threads, 1);
    }
    watched->watched_from_ns = watched->useful_ns = watched->summed_from_ns = now;
    watched->wait.in_ns = now;
    mark_watched(task);
    return watched;
}

/* A thread that calls, in its own context. */
static __always_inline void watch_caller(struct task_struct *task) {
    any_watched = 1;
    watch(task, 0, bpf_ktime_get_ns());
}

static __always_inline void unwatch(struct task_struct *task) {
    unmark_watched(task);
    forget_watched(task->pid);
}

/* Throttled by its cgroup's quota: who runs instead is not the reason. */
static __always_inline int is_throttled(struct task_struct *task) {
    struct task_struct___throttled *newer = (void *)task;
    struct cfs_rq *queue;

    if (bpf_core_field_exists(newer->throttled)) return BPF_CORE_READ(newer, throttled);
    queue = BPF_CORE_READ(task, se.cfs_rq);
    if (!queue || !bpf_core_field_exists(queue->throttle_count)) return 0;
    return BPF_CORE_READ(queue, throttle_count) != 0;
}

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

/* One record of all that were not told yet: as long as they took together. */
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
    struct ingero_wait_record *record;

    if (watched->reclaims) tell_reclaims(watched, task);
    if (!watched->summed && !watched->summed_interrupt_ns) {
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
    watched->summed_from_ns = now;
    watched->summed_runnable_ns = watched->summed_blocked_ns = watched->summed_interrupt_ns = 0;
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

/* It was switched in at `in_ns`, and is told of now: where that is later, see enter_cpu(). */
static __always_inline void end_wait(struct watched *watched, struct task_struct *task, struct cpu_slices *slices,
                                     __u64 in_ns, __u64 now) {
    __u64 off = watched->wait.off_ns, floor = wait_floor_ns;
    __u32 late = in_ns != now;

    stop_waiting_for_disk(watched);
    enter_cpu(&watched->wait, task, slices, in_ns, late);
    if (!may_still_watch(watched, task)) { /* left out since: nothing more is told of it */
        unwatch(task);
        return;
    }
    if (!floor || (watched->level && now - watched->useful_ns > FOLLOWED_NS)) {
        tell_sums(watched, task, now);
        unwatch(task);
        return;
    }
    if (in_ns - off >= floor && !is_ring_filling() && has_record_left(watched, now)) {
        tell_wait(watched, task, off, in_ns, late);
    } else {
        watched->summed++;
        watched->summed_runnable_ns += watched->wait.charged_runnable_ns;
        watched->summed_blocked_ns += watched->wait.charged_ns;
    }
    if (now - watched->summed_from_ns >= SUMMED_NS) tell_sums(watched, task, now);
}

static __always_inline void watched_enters(struct task_struct *task, struct cpu_slices *slices, __u64 now) {
    struct watched *watched = find_watched(task);

    if (!watched || !watched->wait.off_ns) return;
    if (switches_of(task) == watched->wait.switches_of_task) end_wait(watched, task, slices, now, now);
    else lose_wait(watched, task, now); /* it has run since, and slept again */
}

static __always_inline void watched_leaves(struct task_struct *task, int preempted, __u32 cpu, __u64 now) {
    struct watched *watched = find_watched(task);
    struct thread_state *thread;
    __u64 in_ns;

    if (!watched) {
        unmark_watched(task); /* of one that had its id before */
        return;
    }
    if (watched->wait.off_ns) { /* its switch-in was not told of, nor who ran before */
        in_ns = untold_switch_in(&watched->wait, task, now);
        if (in_ns) {
            watched->wait.wait_preemptor_ns = 0;
            end_wait(watched, task, 0, in_ns, now);
            watched = is_watched(task) ? find_watched(task) : 0;
            if (!watched) return;
        } else {
            lose_wait(watched, task, now);
        }
    }
    thread = task->bpf_storage ? bpf_task_storage_get(&threads, task, 0, 0) : 0;
    watched->depth = thread ? thread->depth : 0;
    watched->from_cpu = cpu;
    watched->request_done_ns = 0;
    leave_cpu(&watched->wait, task, preempted, cpu, now);
    watched->throttled = watched->wait.off_kind == OFF_RUNNABLE && is_throttled(task);
    if (watched->wait.off_kind == OFF_BLOCKED && watched->wait.in_iowait && !watched->is_disk_waiter) {
        watched->is_disk_waiter = 1;
        __sync_fetch_and_add(&disk_waiters, 1);
    }
}

static __always_inline __u32 cpu_of(struct task_struct *task) {
    struct task_struct___before_5_16 *older = (void *)task;
    if (bpf_core_field_exists(task->thread_info.cpu)) return BPF_CORE_READ(task, thread_info.cpu);
    return BPF_CORE_READ(older, cpu);
}

static __always_inline void migrate_watched(struct task_struct *task, __u32 to_cpu) {
    struct watched *watched = find_watched(task);
    struct cpu_slices *slices;
    __u64 now;

    if (!watched || !watched->wait.off_ns || !watched->wait.wait_cpu) return;
    now = bpf_ktime_get_ns();
    slices = slices_of(watched->wait.wait_cpu - 1);
    if (slices) charge_wait(&watched->wait, slices, watched->wait.wait_from_ns, now, 1);
    slices = slices_of(to_cpu);
    if (start_waiting(&watched->wait, to_cpu, now) == 0 && slices) slices->current_known = 0;
}

/* Behind on_switch, in a program of its own: the verifier then walks each alone. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_watched_switch, bool preempt, struct task_struct *prev, struct task_struct *next) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct cpu_slices *slices = slices_of(cpu);
    __u64 now = bpf_ktime_get_ns();

    if (is_watched(prev)) watched_leaves(prev, preempt, cpu, now);
    if (is_watched(next)) watched_enters(next, slices, now);
    if (slices && waiting_threads[cpu & CPU_MASK]) record_current(slices, next, now);
    return 0;
}

#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

/* The loader itself, in the kernel's numbers: what it waits for is never of interest to others. */
__u32 own_tgid;

/* Whoever ends a long wait is watched from then on, to see what it waits for itself. Whether it was since `since`. */
static __always_inline __u32 follow(struct task_struct *waker, __u32 level, __u64 since, __u64 now) {
    struct watched *known;
    __u32 tgid = waker->tgid;

    if (waker->flags & PF_KTHREAD) return 0;
    known = is_watched(waker) ? find_watched(waker) : 0;
    if (known) {
        /* Two that answer each other do not keep each other watched. */
        if (level < known->level) known->level = level;
        if (level <= known->level) known->useful_ns = now;
        return known->watched_from_ns <= since;
    }
    if (level > MAX_FOLLOWED || tgid == own_tgid || (waker->flags & PF_EXITING)) return 0;
    if (bpf_map_lookup_elem(&processes, &tgid)) level = 0;
    watch(waker, level, now);
    return 0;
}

/* In on_waking, whose variables lie on the small stack that in_interrupt() tells from an interrupt's. */
static __always_inline int note_waker_kind(struct task_struct *task) {
    struct watched *watched = find_watched(task);

    if (!watched || has_run_since(&watched->wait)) return 0;
    watched->wait.waker_kind =
        in_interrupt(bpf_get_current_task_btf()) ? INGERO_WAKER_INTERRUPT : INGERO_WAKER_TASK;
    return 1;
}

/* Behind on_waking. */
SEC("tp_btf/sched_waking")
int BPF_PROG(on_watched_waking, struct task_struct *task) {
    struct task_struct *current = bpf_get_current_task_btf();
    struct watched *watched = find_watched(task);
    struct completed_request *request;
    struct cpu_slices *slices;
    __u32 zero = 0;
    __u64 now;

    if (!watched) return 0;
    now = bpf_ktime_get_ns();
    watched->wait.wake_ns = now;
    if (watched->wait.waker_kind == INGERO_WAKER_TASK) {
        watched->wait.waker_tgid = process_id(current);
        watched->waker_tid = thread_id(current);
        bpf_probe_read_kernel(watched->wait.waker_comm, sizeof(watched->wait.waker_comm), current->comm);
        watched->waker_watched = 0;
        if (watched->wait.off_ns && watched->wait.off_kind == OFF_BLOCKED && now - watched->wait.off_ns >= wait_floor_ns)
            watched->waker_watched = follow(current, watched->level + 1, watched->wait.off_ns, now);
    }
    if (!watched->wait.off_ns) return 0;
    if (watched->wait.in_iowait &&
        (watched->wait.waker_kind == INGERO_WAKER_INTERRUPT || (current->flags & PF_KTHREAD))) {
        request = bpf_map_lookup_elem(&completed_requests, &zero);
        if (request && request->done_ns >= watched->wait.off_ns && now - request->done_ns < COMPLETION_NS) {
            watched->request_done_ns = request->done_ns;
            watched->request_begun_ns = request->begun_ns;
            watched->request_bytes = request->bytes;
            watched->request_device = request->device;
            watched->request_kind = request->kind;
            request->done_ns = 0;
        }
    }
    zero = cpu_of(task);
    slices = slices_of(zero);
    if (start_waiting(&watched->wait, zero, now) == 0 && slices) slices->current_known = 0;
    return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_request_done, struct request *rq, int error, unsigned int bytes) {
    struct completed_request *done;
    __u32 zero = 0;

    if (disk_waiters <= 0) return 0;
    done = bpf_map_lookup_elem(&completed_requests, &zero);
    if (!done) return 0;
    done->begun_ns = BPF_CORE_READ(rq, start_time_ns);
    done->done_ns = bpf_ktime_get_ns();
    if (!done->begun_ns) done->begun_ns = BPF_CORE_READ(rq, io_start_time_ns);
    if (!done->begun_ns) done->begun_ns = done->done_ns; /* its queue keeps no times */
    done->bytes = BPF_CORE_READ(rq, __data_len);
    done->kind = BPF_CORE_READ(rq, cmd_flags) & 0xff;
    done->device = (__u32)BPF_CORE_READ(rq, q, disk, major) << 20 | (BPF_CORE_READ(rq, q, disk, first_minor) & 0xfffff);
    return 0;
}

/* A thread ends, or becomes another program's. */
static __always_inline void stop_watching(struct task_struct *task) {
    struct watched *watched;

    if (!is_watched(task)) return;
    watched = find_watched(task);
    if (watched) tell_sums(watched, task, bpf_ktime_get_ns());
    unwatch(task);
}

static __always_inline void watch_new_thread(struct task_struct *parent, struct task_struct *child) {
    struct watched *watched;

    if (child->tgid != parent->tgid || !is_watched(parent)) return;
    watched = find_watched(parent);
    if (watched && watched->level == 0) watch(child, 0, bpf_ktime_get_ns());
}

#endif
