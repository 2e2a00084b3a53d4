/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The threads whose waits are watched, and what is kept of each.
 *
 * Watched are the threads that call, those that they start, and for a while whoever ended a long wait of one that is
 * watched: so a wait can be followed to whoever caused it, over processes that call nothing.
 */
#ifndef INGERO_WATCHED_H
#define INGERO_WATCHED_H

#include "capture.h"
#include "off_cpu.h"

#define WATCHED_PIDS (1U << 22) /* PID_MAX_LIMIT */
#define WATCHED_WORD_MASK (WATCHED_PIDS / 64 - 1)

/* Waits that take less are summed. 0: nothing is watched. Mapped by the loader. */
__u64 wait_floor_ns;
__u32 any_watched; /* some thread called since the daemon began */
/* Waits that are neither recorded nor in a sum, for want of room in the ring or in the table of threads. */
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
    __u64 summed_migrations; /* of the thread since it began, when sums were last sent */
    __u64 request_done_ns; /* of the block request whose completion woke it */
    __u64 request_begun_ns;
    __u64 request_bytes;
    __u64 reclaim_from_ns;   /* the one under way */
    __u64 reclaimed_from_ns; /* the first of those that are not sent yet */
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
    __u32 reclaims;      /* not sent yet */
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

static __always_inline __u64 migrations_of(struct task_struct *task) {
    return BPF_CORE_READ(task, se.nr_migrations);
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
    watched->summed_migrations = migrations_of(task);
    watched->wait.in_ns = now;
    mark_watched(task);
    return watched;
}

#define WATCH_AGAIN_NS 1000000000ULL

/* A thread that calls, in its own context. */
static __always_inline void watch_caller(struct task_struct *task, struct thread_state *thread) {
    __u64 now = bpf_ktime_get_ns();

    any_watched = 1;
    if (thread && now < thread->watch_from_ns) return;
    if (!watch(task, 0, now) && thread && may_watch(task)) thread->watch_from_ns = now + WATCH_AGAIN_NS;
}

static __always_inline void unwatch(struct task_struct *task) {
    unmark_watched(task);
    forget_watched(task->pid);
}

#endif
