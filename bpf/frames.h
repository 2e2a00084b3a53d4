/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which of a thread's frames still hold when it enters a call: those that no return will end are dropped, and a call
 * that is reported twice counts once.
 */
#ifndef INGERO_FRAMES_H
#define INGERO_FRAMES_H

#include "registers.h"
#include "slices.h"
#include "thread_state.h"

static __always_inline void lose_frame(struct frame *frame) {
    if (!detaching && !is_sliced(frame->cookie)) COUNT(counters_of(frame->cookie), lost_frames);
}

/* In a tail call the caller's return address was already taken by its own return probe. */
static __always_inline int is_tail_call(struct call_context *ctx, struct task_struct *task) {
    __u64 trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
    return trampoline && return_address(ctx) == trampoline;
}

/* Frames that no return will ever end (longjmp, an exception) lie at or below the stack pointer of a new call. */
static __always_inline void drop_stale_frames(struct call_context *ctx, struct thread_state *thread,
                                              struct task_struct *task, __u64 stack_pointer) {
    for (int i = 0; i < INGERO_MAX_DEPTH; i++) {
        __u32 top = thread->depth - 1;
        struct frame *frame;
        if (top >= INGERO_MAX_DEPTH) break;
        frame = &thread->frames[top];
        if (frame->stack_pointer > stack_pointer) break;
        if (frame->stack_pointer == stack_pointer && is_tail_call(ctx, task)) break;
        lose_frame(frame);
        thread->depth = top;
    }
}

/* Those on top whose link went before they returned. */
static __always_inline void drop_returned_frames(struct thread_state *thread, struct task_struct *task) {
    for (int i = 0; i < INGERO_MAX_DEPTH; i++) {
        __u32 top = thread->depth - 1;
        if (top >= INGERO_MAX_DEPTH || !has_returned(&thread->frames[top], task)) break;
        lose_frame(&thread->frames[top]);
        thread->depth = top;
    }
}

/*
 * Several mounts may show one file as many, as the containers of one image do: each is attached to, and each call then
 * comes once for each. The first one counts. A call that was left by longjmp and is made again looks the same, but has
 * a return probe that still waits, which is prepared only after all probes of the entry have run.
 */
static __always_inline int is_repeated(struct call_context *ctx, struct thread_state *thread, struct task_struct *task,
                                       __u64 stack_pointer) {
    __u32 top = thread->depth - 1;
    struct return_instance *waiting;

    if (top >= INGERO_MAX_DEPTH) return 0;
    if (thread->frames[top].stack_pointer != stack_pointer || thread->frames[top].entry != entry_address(ctx)) return 0;
    waiting = BPF_CORE_READ(task, utask, return_instances);
    if (!waiting) return 1;
    return BPF_CORE_READ(waiting, stack) != stack_pointer || BPF_CORE_READ(waiting, func) != entry_address(ctx);
}

/*
 * A signal's handler that runs above the stack of the call it interrupted: the kernel would take the outer call's return
 * probe for one that longjmp left behind, drop it, and the outer call's return would end the process.
 */
static __always_inline int is_on_higher_signal_stack(struct thread_state *thread, struct task_struct *task,
                                                     __u64 stack_pointer) {
    __u32 top = thread->depth - 1;

    if (top >= INGERO_MAX_DEPTH || thread->frames[top].stack_pointer > stack_pointer) return 0;
    return stack_pointer - task->sas_ss_sp < task->sas_ss_size &&
           thread->frames[top].stack_pointer - task->sas_ss_sp >= task->sas_ss_size;
}

#endif
