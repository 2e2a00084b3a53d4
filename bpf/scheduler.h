/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The scheduler's tracepoints: they split the time of each call into on CPU, runnable and blocked, and hand on to
 * watch.h what is of threads that are watched.
 */
#ifndef INGERO_SCHEDULER_H
#define INGERO_SCHEDULER_H

#include "watch.h"

/* A program in each, entered by a tail call, which the loader fills in: one a tracepoint, as the kernel wants it. */
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} watched_switch SEC(".maps"), watched_waking SEC(".maps");

static __always_inline struct thread_state *traced(struct task_struct *task) {
    struct thread_state *thread = task->bpf_storage ? bpf_task_storage_get(&threads, task, 0, 0) : 0;
    return thread && thread->depth ? thread : 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct thread_state *leaving, *entering;
    struct cpu_slices *slices = 0;
    __u64 now;
    __u32 waiting = waiting_threads[cpu & CPU_MASK];
    int watched = is_watched(prev) || is_watched(next);

    if (!prev->bpf_storage && !next->bpf_storage && !waiting && !watched) return 0;
    leaving = traced(prev);
    entering = traced(next);
    if (!leaving && !entering && !waiting) goto watched;
    now = bpf_ktime_get_ns();
    slices = slices_of(cpu);
    if (slices && waiting) record_slice(slices, prev, now);
    if (leaving) leave_cpu_in_call(leaving, prev, preempt, cpu, now);
    if (entering && entering->wait.off_ns) enter_cpu_in_call(entering, next, slices, now);
    if (slices && waiting_threads[cpu & CPU_MASK]) record_current(slices, next, now);
watched:
    if (watched) bpf_tail_call(ctx, &watched_switch, 0);
    return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task) {
    struct thread_state *thread = traced(task);
    struct task_struct *current;
    struct cpu_slices *slices;
    __u64 now;
    __u32 cpu;

    if (!thread || has_run_since(&thread->wait)) goto watched;
    now = bpf_ktime_get_ns();
    current = bpf_get_current_task_btf();
    thread->wait.wake_ns = now;
    if (in_interrupt(current)) {
        thread->wait.waker_kind = INGERO_WAKER_INTERRUPT;
        thread->wait.waker_tgid = 0;
        thread->wait.waker_comm[0] = 0;
    } else {
        thread->wait.waker_kind = INGERO_WAKER_TASK;
        thread->wait.waker_tgid = process_id(current);
        bpf_probe_read_kernel(thread->wait.waker_comm, sizeof(thread->wait.waker_comm), current->comm);
    }
    if (!thread->wait.off_ns) goto watched;
    cpu = cpu_of(task);
    slices = slices_of(cpu);
    /* Nobody waited there, so the last switches were not kept and who runs now is not known. */
    if (start_waiting(&thread->wait, cpu, now) == 0 && slices) slices->current_known = 0;
watched:
    if (is_watched(task) && note_waker_kind(task)) bpf_tail_call(ctx, &watched_waking, 0);
    return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int to_cpu) {
    struct thread_state *thread = traced(task);
    struct cpu_slices *slices;
    __u32 from_cpu;
    __u64 now;

    if (is_watched(task)) migrate_watched(task, to_cpu);
    if (!thread || !thread->wait.off_ns || !thread->wait.wait_cpu) return 0;
    now = bpf_ktime_get_ns();
    from_cpu = thread->wait.wait_cpu - 1;
    slices = slices_of(from_cpu);
    if (slices) charge_wait(&thread->wait, slices, thread->wait.wait_from_ns, now, 1);
    slices = slices_of(to_cpu);
    if (start_waiting(&thread->wait, to_cpu, now) == 0 && slices) slices->current_known = 0;
    return 0;
}

#endif
