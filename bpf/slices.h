/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the probes themselves cost more than the budget, the daemon attaches to the hottest functions of the process for
 * a moment now and then only: in slices. The calls of one stand for those of the time between it and the one before. The
 * probes take most of a slice where calls follow one another at once: what they took is not the program's time, and the
 * calls stand for that many more.
 */
#ifndef INGERO_SLICES_H
#define INGERO_SLICES_H

#include "call_price.h"
#include "slice_worth.h"
#include "stacks.h"
#include "thread_state.h"

#define MAX_SLICE_NS 1000000000ULL
#define FRESH_NS 20000 /* its link may be another than the one that went */
#define IN_SLICES_NS 5000000000ULL /* a thread that called in one since then is in that stage */

/* Written by the loader; the second is when it last detached from functions. */
struct ingero_slice slice;
__u64 relinked_ns;

static __always_inline int is_sliced(__u64 cookie) { return (cookie & INGERO_COOKIE_SLICED) != 0; }

static __always_inline int is_slice_open(void) {
    __u64 now = bpf_ktime_get_ns();

    return now < *(volatile __u64 *)&slice.close_ns && now >= *(volatile __u64 *)&slice.open_ns;
}

/* Unseen, since the link went before: the kernel has no return probe that deep any more. */
static __always_inline int has_returned(struct frame *frame, struct task_struct *task) {
    struct return_instance *newest;

    if (frame->start_ns >= *(volatile __u64 *)&relinked_ns) return 0;
    newest = BPF_CORE_READ(task, utask, return_instances);
    if (newest && BPF_CORE_READ(newest, stack) <= frame->stack_pointer) return 0;
    return bpf_ktime_get_ns() - frame->start_ns > FRESH_NS;
}

/* The call that was entered last stands for itself alone. */
static __always_inline void unslice(struct thread_state *thread) {
    __u32 top = thread->depth - 1;
    if (top < INGERO_MAX_DEPTH) thread->frames[top].cookie &= ~INGERO_COOKIE_SLICED;
}

/*
 * The thread's first call in a slice: what it did in the one before, and since then, counts. In those between it made no
 * call.
 */
static __noinline int begin_slice(struct thread_state *thread, __u64 open, __u64 close) {
    __u64 number = *(volatile __u64 *)&slice.number, slices = number - thread->slice_number;
    __u64 since = open - thread->slice_close_ns;

    if (!thread->slice_open_ns || since >= MAX_SLICE_NS * 4) { /* nothing of then holds now */
        __builtin_memset(&thread->pace, 0, sizeof(thread->pace));
        thread->own_ps = 0;
    } else {
        ingero_add_slice(&thread->pace, &thread->in_slice, slices,
                         slices * (thread->slice_close_ns - thread->slice_open_ns) / 1000);
        thread->own_ps = ingero_own_ps(&thread->pace, since, thread->others_since);
    }
    thread->slice_open_ns = open;
    thread->slice_close_ns = close;
    thread->slice_number = number;
    thread->stands_for_ns = open - thread->sliced_ns < IN_SLICES_NS ? *(volatile __u64 *)&slice.stands_for_ns
                                                                    : *(volatile __u64 *)&slice.stands_for_new_ns;
    __builtin_memset(&thread->in_slice, 0, sizeof(thread->in_slice));
    thread->others_since = 0;
    return 0;
}

/* A function of its own, for the kernel's limit on the stack of a program. In the upper half how often its times count. */
static __noinline __u64 worth_in_slice(struct thread_state *thread, __u64 elapsed, __u32 call_cost_ns) {
    __u64 stands_for = thread->stands_for_ns, own;
    __u64 length = thread->slice_close_ns - thread->slice_open_ns;
    __u32 random = bpf_get_prandom_u32(), calls, times;

    own = ingero_own_time(&thread->pace, thread->own_ps, length, elapsed, thread->in_slice.calls, call_cost_ns);
    calls = ingero_slice_worth(length, own, stands_for, random);
    times = ingero_slice_worth(length, length, stands_for, random);
    return (__u64)(times < calls ? times : calls) << 32 | calls;
}

static __always_inline void count_other(struct ingero_in_slice *in_slice) {
    if (!in_slice->others++) in_slice->calls_at_first_other = in_slice->calls;
    in_slice->calls_at_last_other = in_slice->calls;
}

/*
 * A call has returned: what it is worth where it is of a slice, else 1. One that is never thinned counts for the pace;
 * of such a call and one inside it only one does.
 */
static __always_inline struct ingero_worth count_in_slice(struct thread_state *thread, __u64 cookie, __u64 start,
                                                          __u64 now, int tells_pace, __u32 call_cost_ns) {
    struct ingero_worth worth = {1, 1};
    __u64 open = *(volatile __u64 *)&slice.open_ns, close = *(volatile __u64 *)&slice.close_ns;
    __u64 length = close - open, both;

    if (!open) return worth;
    if (start < open || start >= close || length > MAX_SLICE_NS) { /* or it is being changed */
        thread->others_since += tells_pace;
        return worth;
    }
    if (thread->slice_open_ns != open) begin_slice(thread, open, close);
    if (!is_sliced(cookie)) {
        if (tells_pace) count_other(&thread->in_slice);
        return worth;
    }
    thread->in_slice.calls++;
    thread->sliced_ns = start;
    both = worth_in_slice(thread, now - open, call_cost_ns);
    worth.calls = (__u32)both;
    worth.times = both >> 32;
    return worth;
}

/* The thread's window has ended. Nothing is lost where the ring has no room: there will be another. */
static __always_inline void tell_storm(struct thread_state *thread, const struct ingero_overhead_budget *costs,
                                       __u64 elapsed, __u64 now) {
    __u64 stands_for = now - thread->sliced_ns < IN_SLICES_NS ? thread->stands_for_ns : 0;
    struct ingero_storm_record *record;

    if (!ingero_is_storm(costs, &thread->entry_cost, thread->window_worth, elapsed, stands_for)) return;
    record = reserve(sizeof(*record));
    if (!record) return;
    record->type = INGERO_RECORD_STORM;
    record->tgid = thread->tgid;
    record->process_start_ns = thread->process_start_ns;
    record->time_ns = now;
    record->elapsed_ns = elapsed;
    record->tid = thread->tid;
    record->price_ns = ingero_unkept_price(costs, &thread->entry_cost);
    __builtin_memcpy(record->calls, thread->slot_worth, sizeof(record->calls));
    __builtin_memset(&record->pace, 0, sizeof(record->pace));
    if (stands_for) record->pace = thread->pace;
    submit(record);
}

#endif
