/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls that have been entered and have not returned, read on request by going over all threads.
 *
 * The thread itself goes on meanwhile: what is read of a frame counts only where the frame is still the same after it.
 */
#ifndef INGERO_IN_FLIGHT_H
#define INGERO_IN_FLIGHT_H

#include "arguments.h"
#include "off_cpu.h"
#include "slices.h"

/* Of calls that have been in flight for less nothing is said. Mapped by the reader. */
__u64 in_flight_floor_ns;

static __always_inline void describe_activity(struct thread_state *thread, struct task_struct *task,
                                              struct ingero_in_flight_call *call) {
    __u64 off = thread->wait.off_ns;

    call->activity = INGERO_THREAD_RUNS;
    call->blocked_reason = INGERO_BLOCKED_NONE;
    call->off_ns = off;
    if (!off) return;
    call->activity = INGERO_THREAD_RUNNABLE;
    if (thread->wait.off_kind != OFF_BLOCKED || thread->wait.wake_ns > off) return;
    call->activity = INGERO_THREAD_BLOCKED;
    call->blocked_reason = blocked_reason(&thread->wait, task, call->now_ns > off ? call->now_ns - off : 0);
}

static __always_inline void describe_call(struct frame *frame, struct ingero_in_flight_call *call) {
    call->op = frame->cookie;
    call->stack = frame->stack;
    call->stream = frame->stream;
    /* What an out parameter will hold is not known before the return. */
    for (int i = 0; i < 3; i++)
        call->args[i] = (frame->cookie >> (32 + 8 * i)) & INGERO_ARG_OUT ? 0 : frame->args[i];
}

SEC("iter/task")
int list_in_flight(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;
    struct ingero_in_flight_call call = {};
    struct thread_state *thread;
    __u64 now;

    if (!task || !task->bpf_storage) return 0;
    thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread || !thread->depth) return 0;
    now = bpf_ktime_get_ns();
    for (__u32 i = 0; i < INGERO_MAX_DEPTH; i++) {
        struct frame *frame = &thread->frames[i];
        __u64 start = frame->start_ns;

        if (i >= *(volatile __u32 *)&thread->depth) break;
        if (has_returned(frame, task)) break;
        if (start > now || now - start < in_flight_floor_ns) break; /* those within it are younger still */
        call.now_ns = now;
        call.start_ns = start;
        call.process_start_ns = thread->process_start_ns;
        call.tgid = thread->tgid;
        call.tid = thread->tid;
        call.device = thread->device;
        call.depth = i;
        call.runnable_ns = thread->wait.runnable_ns - frame->runnable_before;
        call.blocked_ns = thread->wait.blocked_ns - frame->blocked_before;
        describe_call(frame, &call);
        describe_activity(thread, task, &call);
        bpf_probe_read_kernel(call.comm, sizeof(call.comm), task->comm);
        barrier();
        if (*(volatile __u64 *)&frame->start_ns != start || i >= *(volatile __u32 *)&thread->depth) break;
        bpf_seq_write(ctx->meta->seq, &call, sizeof(call));
    }
    return 0;
}

#endif
