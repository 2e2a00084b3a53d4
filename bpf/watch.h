/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What watched threads wait for, in calls and between them: one record a wait that takes long, the short ones summed.
 */
#ifndef INGERO_WATCH_H
#define INGERO_WATCH_H

#include "wait_record.h"

#define MAX_FOLLOWED 4               /* wakers of wakers, and so on */
#define FOLLOWED_NS 10000000000ULL   /* after the last long wait that it ended */
#define SUMMED_NS 1000000000ULL      /* sums are sent this often, and when the thread ends */
#define COMPLETION_NS 100000         /* from a block request's completion to the wake-up of who waits for it */

/* Throttled by its cgroup's quota: who runs instead is not the reason. */
static __always_inline int is_throttled(struct task_struct *task) {
    struct task_struct___throttled *newer = (void *)task;
    struct cfs_rq *queue;

    if (bpf_core_field_exists(newer->throttled)) return BPF_CORE_READ(newer, throttled);
    queue = BPF_CORE_READ(task, se.cfs_rq);
    if (!queue || !bpf_core_field_exists(queue->throttle_count)) return 0;
    return BPF_CORE_READ(queue, throttle_count) != 0;
}

/* It was switched in at `in_ns`, which is reported now: where that is later, see enter_cpu(). */
static __always_inline void end_wait(struct watched *watched, struct task_struct *task, struct cpu_slices *slices,
                                     __u64 in_ns, __u64 now) {
    __u64 off = watched->wait.off_ns, floor = wait_floor_ns;
    __u32 late = in_ns != now;

    stop_waiting_for_disk(watched);
    enter_cpu(&watched->wait, task, slices, in_ns, late);
    if (!may_still_watch(watched, task)) { /* left out since: nothing more is recorded of it */
        unwatch(task);
        return;
    }
    if (!floor || (watched->level && now - watched->useful_ns > FOLLOWED_NS)) {
        tell_sums(watched, task, now);
        unwatch(task);
        return;
    }
    if (in_ns - off >= floor && !is_ring_filling() &&
        (watched->wait.charged_runnable_ns >= LONG_RUNNABLE_NS || has_record_left(watched, now))) {
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
    if (watched->wait.off_ns) { /* neither its switch-in nor who ran before was reported */
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

/* In on_waking, whose variables lie on the small stack that in_interrupt() distinguishes from an interrupt's. */
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

/* Operations of the block layer, linux/blk_types.h. */
#define REQ_OP_WRITE 1
#define REQ_OP_FLUSH 2

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
    /* A flush is asked for, and ends, as a write without pages; the device's own request has ended before it. */
    if (done->kind == REQ_OP_WRITE && !done->bytes && !BPF_CORE_READ(rq, bio, bi_io_vec)) done->kind = REQ_OP_FLUSH;
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
