// SPDX-License-Identifier: GPL-2.0
/*
 * Probes on the calls of GPU libraries, and the scheduler tracepoints that split each call's time into on CPU, runnable
 * and blocked. One record a finished call; see event.h.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "arguments.h"
#include "capture.h"
#include "communicators.h"
#include "devices.h"
#include "frames.h"
#include "in_flight.h"
#include "interrupts.h"
#include "memory_events.h"
#include "off_cpu.h"
#include "real_file.h"
#include "scheduler.h"
#include "slices.h"
#include "socket_events.h"
#include "stacks.h"
#include "thinning.h"
#include "watch.h"

char LICENSE[] SEC("license") = "GPL";

#ifdef INGERO_SESSION_TAKES_CONTEXT
extern bool bpf_session_is_return(void *ctx) __ksym __weak;
#define IS_RETURN(ctx) bpf_session_is_return(ctx)
#else
extern bool bpf_session_is_return(void) __ksym __weak;
#define IS_RETURN(ctx) bpf_session_is_return()
#endif

static __always_inline __u64 switches(struct task_struct *task, struct thread_state *thread) {
    return switches_of(task) - thread->wait.switches_seen;
}

/* A thread that runs this is on a CPU: if its state says otherwise, a switch-in was not delivered. */
static __always_inline void set_right(struct thread_state *thread, struct task_struct *task, __u64 now) {
    __u64 waited, off = thread->wait.off_ns;

    if (!off) return;
    /* Runnable time is what the scheduler says it was; the rest, up to now, counts as on CPU. */
    waited = task->sched_info.run_delay - thread->wait.run_delay;
    if (thread->wait.off_kind == OFF_BLOCKED && thread->wait.wake_ns > off && thread->wait.wake_ns < now)
        thread->wait.blocked_ns += thread->wait.wake_ns - off;
    if (off + waited > now) waited = now > off ? now - off : 0;
    thread->wait.runnable_ns += waited;
    thread->wait.off_ns = 0;
    thread->wait.in_ns = now;
    thread->wait.wait_preemptor_ns = 0;
    stop_waiting(&thread->wait);
    charge_frames(thread, 0, INGERO_BLOCKED_NONE, 1);
}

static __always_inline struct thread_state *first_call(struct task_struct *task) {
    struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    __u32 tgid = task->tgid;
    __u64 start, *known;

    if (!thread) return 0;
    thread->tgid = process_id(task);
    thread->tid = thread_id(task);
    start = task->group_leader->start_boottime;
    thread->process_start_ns = start;
    thread->exec_id = task->self_exec_id;
    thread->device = INGERO_DEVICE_UNKNOWN;
    known = bpf_map_lookup_elem(&processes, &tgid);
    if (known && (*known & ~FROM_START) == start)
        thread->implicit_device = *known != start;
    else
        bpf_map_update_elem(&processes, &tgid, &start, BPF_ANY);
    return thread;
}

/* 0 where the ring had no room. */
static __always_inline int report_process(struct task_struct *task, __u32 change, __u64 start, int exit_code) {
    struct ingero_process_record *record = reserve(sizeof(*record));
    if (!record) return 0; /* discovery sees the end of a process by its own means too, but not how it ended */
    record->type = INGERO_RECORD_PROCESS;
    record->change = change;
    record->time_ns = bpf_ktime_get_ns();
    record->process_start_ns = start;
    record->tgid = process_id(task);
    record->parent_tgid = process_id(task->real_parent);
    record->exit_code = exit_code;
    record->uid = bpf_get_current_uid_gid();
    bpf_probe_read_kernel(record->comm, sizeof(record->comm), task->comm);
    submit(record);
    return 1;
}

static __always_inline int is_under_filter(struct task_struct *task) {
    return bpf_core_field_exists(task->seccomp) && task->seccomp.mode != 0;
}

/* The call is not recorded, and the daemon is notified of it once a thread. */
static __always_inline void spare(struct task_struct *task, struct thread_state *thread) {
    if (!thread) thread = first_call(task);
    if (!thread || thread->told_spared) return;
    thread->told_spared = report_process(task, INGERO_PROCESS_SPARED, thread->process_start_ns, 0);
}

#define SOURCE_RUNTIME 1 /* core/model/op.h */

#define SOURCE_GRAPH 8
#define NCCL_IN_PROGRESS 7 /* success, of a communicator that does not block */
#define FIRST_DRIVER_GRAPH 200

static __always_inline int is_runtime(__u64 cookie) {
    __u8 source = cookie >> 8, number = cookie;
    return source == SOURCE_RUNTIME || (source == SOURCE_GRAPH && number < FIRST_DRIVER_GRAPH);
}

/* Counts the entry; of some, times that. */
static __always_inline struct ingero_call_counters *count_entry(struct thread_state *thread, __u64 cookie) {
    __u64 began = thread && is_entry_timed(thread) ? bpf_ktime_get_ns() : 0;
    struct ingero_call_counters *counters = counters_of(cookie);
    __u32 depth;

    COUNT(counters, entries);
    if (!began) return counters;
    barrier();
    depth = *(volatile __u32 *)&thread->depth;
    if (depth < INGERO_MAX_DEPTH) (void)*(volatile __u64 *)&thread->frames[depth].stack_pointer;
    COUNT_BY(counters, timed_ns, ingero_note_entry(&thread->entry_cost, &overhead_budget, bpf_ktime_get_ns() - began));
    COUNT(counters, timed);
    return counters;
}

/* Returns 1 where the return is of no use, which saves the session its return probe. */
static __always_inline int enter_call(struct call_context *ctx, __u64 cookie) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);
    struct ingero_call_counters *counters;
    __u64 stack_pointer = entry_stack_pointer(ctx), now;
    struct frame *frame;
    __u32 depth;

    if (is_sliced(cookie) && !is_slice_open()) {
        COUNT(counters_of(cookie), passed_by);
        return 1;
    }
    if (!is_captured(task, thread)) return 1;
    if (spare_filtered && is_under_filter(task)) {
        spare(task, thread);
        return 1;
    }
    if (thread && thread->depth) {
        drop_returned_frames(thread, task);
        if (thread->depth && is_repeated(ctx, thread, task, stack_pointer)) {
            /* By a link for all: whatever is attached to in slices is seen in full. */
            if (!is_sliced(cookie)) unslice(thread);
            return 1;
        }
    }
    counters = count_entry(thread, cookie);
    if (wait_floor_ns && !is_watched(task)) watch_caller(task, thread);
    if (!thread) thread = first_call(task);
    if (!thread) {
        COUNT(counters, lost_depth);
        return 1;
    }
    if (thread->depth) {
        if (is_on_higher_signal_stack(thread, task, stack_pointer)) {
            COUNT(counters, lost_depth);
            return 1;
        }
        drop_stale_frames(ctx, thread, task, stack_pointer);
    }
    barrier();
    depth = *(volatile __u32 *)&thread->depth; /* the verifier must see the bound on the value used */
    if (depth >= INGERO_MAX_DEPTH) {
        COUNT(counters, lost_depth);
        return 1;
    }
    frame = &thread->frames[depth];
    frame->stack_pointer = stack_pointer;
    frame->entry = entry_address(ctx);
    frame->cookie = cookie;
    if (!is_nccl(cookie)) read_arguments(ctx, frame, cookie);
    else {
        note_nccl_call(ctx, thread);
        if (shape_of(cookie) == INGERO_SHAPE_COLLECTIVE) enter_collective(thread, depth);
        else enter_communicator_call(thread, depth);
    }
    /* A program registers its functions before it runs, each from a place of its own. */
    frame->stack = capture_stack(ctx, thread, frame, depth,
                                 !is_to_be_left_out(thread, cookie) && shape_of(cookie) != INGERO_SHAPE_REGISTER);
    /* Before the clock: a preemption between the two then shows as a switch too many. */
    frame->switches_before = switches(task, thread);
    barrier();
    now = bpf_ktime_get_ns();
    if (depth == 0) {
        /* Outside calls nothing is kept, so what state says of then is of no interest. */
        thread->wait.off_ns = 0;
        thread->wait.in_ns = now;
        if (thread->wait.wait_cpu) stop_waiting(&thread->wait);
    } else {
        set_right(thread, task, now);
    }
    frame->runnable_before = thread->wait.runnable_ns;
    frame->preempted_before = thread->wait.preempted_ns;
    frame->blocked_before = thread->wait.blocked_ns;
    frame->waits = 0;
    frame->uncertain = 0;
    if (thread->implicit_device && is_runtime(cookie)) {
        thread->implicit_device = 0;
        if (thread->device == INGERO_DEVICE_UNKNOWN) thread->device = 0;
    }
    frame->start_ns = now;
    barrier();
    thread->depth = depth + 1;
    return 0;
}

static __always_inline struct frame *frame_of_return(struct thread_state *thread, __u64 stack_pointer) {
    for (int i = 0; i < INGERO_MAX_DEPTH; i++) {
        __u32 top = thread->depth - 1;
        struct frame *frame;
        if (top >= INGERO_MAX_DEPTH) return 0;
        frame = &thread->frames[top];
        if (frame->stack_pointer > stack_pointer) return 0; /* entered before the probe, or too deep */
        thread->depth = top;
        if (frame->stack_pointer == stack_pointer) return frame;
        lose_frame(frame);
    }
    return 0;
}

static __always_inline void begin_function_record(struct ingero_function_record *record, struct thread_state *thread,
                                                  __u64 handle, __u64 now) {
    record->type = INGERO_RECORD_FUNCTION;
    record->tgid = thread->tgid;
    record->process_start_ns = thread->process_start_ns;
    record->time_ns = now;
    record->handle = handle;
}

/*
 * The name of a function that is registered lies on a page that nobody may have touched yet, and that the callee does not
 * touch either. To fault it in here would be to sleep for as long as whoever serves the page likes, with a record held that
 * nobody can read past: the record has the name's address instead. So it has where a program registers thousands at its
 * start and a small ring fills: without the name, which then is the program's own constant, it takes a fifth of the room.
 */
static __always_inline void tell_function(struct thread_state *thread, __u64 handle, __u64 name, __u64 now,
                                          int is_constant) {
    struct ingero_function_record *record;

    if (is_constant && is_ring_fuller_than(2)) {
        record = reserve(__builtin_offsetof(struct ingero_function_record, name));
        if (!record) goto lost;
        begin_function_record(record, thread, handle, now);
        record->name_address = name;
        submit(record);
        return;
    }
    record = reserve(sizeof(*record));
    if (!record) goto lost;
    begin_function_record(record, thread, handle, now);
    record->name_address = 0;
    if (bpf_probe_read_user_str(record->name, INGERO_MAX_NAME, (void *)name) <= 0) {
        record->name[0] = 0;
        record->name_address = name;
    }
    submit(record);
    return;
lost:
    __sync_fetch_and_add(&names_lost, 1);
}

/* What a call that succeeded changed for its thread, or revealed of its process. */
static __always_inline void take_effect(struct thread_state *thread, struct task_struct *task, struct frame *frame,
                                        __u64 now) {
    __u32 tgid = task->tgid;
    struct context_key key = key_of_context(thread, frame->args[0]);
    __u32 device = frame->args[1];
    __u64 start = thread->process_start_ns | FROM_START;

    switch (shape_of(frame->cookie)) {
        case INGERO_SHAPE_SET_DEVICE: thread->device = (__u16)frame->args[0]; break;
        case INGERO_SHAPE_SET_CONTEXT:
            if (frame->args[0]) use_context(thread, frame->args[0]);
            else pop_context(thread);
            break;
        case INGERO_SHAPE_PUSH_CONTEXT: push_context(thread, frame->args[0]); break;
        case INGERO_SHAPE_POP_CONTEXT: pop_context(thread); break;
        case INGERO_SHAPE_NEW_CONTEXT:
            bpf_map_update_elem(&contexts, &key, &device, BPF_ANY);
            push_context(thread, frame->args[0]);
            break;
        case INGERO_SHAPE_RETAIN_CONTEXT:
            bpf_map_update_elem(&contexts, &key, &device, BPF_ANY);
            /* Which the runtime may have made current before it asked for it. */
            if (thread->context == frame->args[0] && thread->device == INGERO_DEVICE_UNKNOWN) thread->device = device;
            break;
        case INGERO_SHAPE_END_CONTEXT:
            bpf_map_delete_elem(&contexts, &key);
            if (thread->context == frame->args[0]) pop_context(thread);
            break;
        case INGERO_SHAPE_REGISTER:
            bpf_map_update_elem(&processes, &tgid, &start, BPF_ANY);
            if (thread->device == INGERO_DEVICE_UNKNOWN) thread->device = 0;
            tell_function(thread, frame->args[0], frame->args[2], now, 1);
            frame->args[2] = 0;
            break;
        case INGERO_SHAPE_NAME:
            tell_function(thread, frame->args[0], frame->args[2], now, 0);
            frame->args[2] = 0;
            break;
    }
}

/* Taken together with the time of the return: a preemption of this program itself is none of the call's. */
struct off_cpu_sums {
    __u64 runnable_ns;
    __u64 preempted_ns;
    __u64 blocked_ns;
};

static __always_inline void fill_call(struct ingero_call_record *record, struct thread_state *thread,
                                      struct frame *frame, __u64 now, int return_code,
                                      const struct ingero_worth *worth) {
    record->op = (__u16)frame->cookie;
    record->depth = thread->depth;
    record->start_ns = frame->start_ns;
    record->duration_ns = now - frame->start_ns;
    record->process_start_ns = thread->process_start_ns;
    record->args[0] = frame->args[0];
    record->args[1] = frame->args[1];
    record->args[2] = frame->args[2];
    record->stream = frame->stream;
    record->tgid = thread->tgid;
    record->tid = thread->tid;
    record->return_code = return_code;
    record->cpu = bpf_get_smp_processor_id();
    record->stack = frame->stack;
    record->weight = worth->calls;
    record->time_weight = worth->times;
    record->device = thread->device;
    record->reserved = 0;
}

static __always_inline void fill_waits(struct ingero_call_wait_record *record, const struct off_cpu_sums *sums,
                                       struct frame *frame, const struct wait_state *wait) {
    __u64 end = record->call.start_ns + record->call.duration_ns, back, last, runnable;
    __u32 reason;

    record->runnable_ns = sums->runnable_ns;
    record->preempted_ns = sums->preempted_ns;
    record->blocked_ns = sums->blocked_ns;
    record->waits = frame->waits;
    record->last_wait_ns = record->last_runnable_ns = record->tail_ns = record->last_reason = record->reserved = 0;
    if (frame->waits == 0) { /* uncertain, with no wait seen: what the frame says of waits is from an older call */
        record->longest_sleep_ns = record->preemptor_ns = 0;
        record->preemptor_tgid = record->waker_tgid = 0;
        record->blocked_reason = record->waker_kind = 0;
        record->blocked_syscall = 0xffff;
        __builtin_memset(record->preemptor_comm, 0, INGERO_COMM_LENGTH);
        __builtin_memset(record->waker_comm, 0, INGERO_COMM_LENGTH);
        return;
    }
    record->longest_sleep_ns = frame->longest_sleep_ns;
    record->preemptor_ns = frame->preemptor_ns;
    record->preemptor_tgid = frame->preemptor_tgid;
    record->waker_tgid = frame->waker_tgid;
    record->blocked_reason = frame->blocked_reason;
    record->waker_kind = frame->waker_kind;
    record->blocked_syscall = frame->blocked_syscall;
    copy_comm(record->preemptor_comm, frame->preemptor_comm);
    copy_comm(record->waker_comm, frame->waker_comm);
    /* What was set right has no times of its own, and one of before the call is none of it. */
    if (frame->uncertain || wait->in_ns < frame->start_ns) return;
    back = *(volatile const __u64 *)&wait->in_ns;
    last = wait->charged_ns + wait->charged_runnable_ns;
    runnable = wait->charged_runnable_ns;
    reason = wait->charged_reason;
    barrier();
    /* Another wait came between, after the clock was read. */
    if (back > end || *(volatile const __u64 *)&wait->in_ns != back) return;
    record->last_wait_ns = last;
    record->last_runnable_ns = runnable;
    record->last_reason = reason;
    record->tail_ns = end - back;
}

static __always_inline void forget_frames(struct thread_state *thread) {
    thread->depth = 0;
    thread->wait.off_ns = 0;
    stop_waiting(&thread->wait);
}

static __always_inline void leave_call(struct call_context *ctx) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);
    struct ingero_call_counters *counters;
    struct off_cpu_sums sums;
    struct frame *frame;
    int return_code = (int)return_value(ctx);
    __u64 now, switched;
    struct ingero_worth worth;
    __u32 thinned = 0;
    __u8 uncertain, waited;

    if (!thread || !thread->depth) return;
    if (!is_captured(task, thread)) { /* the policy changed while it was inside */
        forget_frames(thread);
        return;
    }
    now = bpf_ktime_get_ns();
    set_right(thread, task, now);
    sums.runnable_ns = thread->wait.runnable_ns;
    sums.preempted_ns = thread->wait.preempted_ns;
    sums.blocked_ns = thread->wait.blocked_ns;
    switched = switches(task, thread);
    frame = frame_of_return(thread, return_stack_pointer(ctx));
    if (!frame) return;
    counters = counters_of(frame->cookie);
    sums.runnable_ns -= frame->runnable_before;
    sums.preempted_ns -= frame->preempted_before;
    sums.blocked_ns -= frame->blocked_before;
    uncertain = frame->uncertain || switched != frame->switches_before;
    if (sums.runnable_ns + sums.blocked_ns > now - frame->start_ns) { /* preempted between the clock and the sums */
        uncertain = 1;
        sums.blocked_ns = sums.blocked_ns < now - frame->start_ns ? sums.blocked_ns : now - frame->start_ns;
        sums.runnable_ns = now - frame->start_ns - sums.blocked_ns;
        if (sums.preempted_ns > sums.runnable_ns) sums.preempted_ns = sums.runnable_ns;
    }
    if (shape_of(frame->cookie) == INGERO_SHAPE_REGISTER) return_code = 0; /* it returns nothing */
    if (is_nccl(frame->cookie)) {
        if (return_code == NCCL_IN_PROGRESS) return_code = 0;
        leave_nccl_call(thread, thread->depth, return_code != 0);
    } else {
        read_out_arguments(frame, return_code);
    }
    if (shape_of(frame->cookie) >= INGERO_SHAPE_SET_DEVICE) {
        if (return_code == 0) take_effect(thread, task, frame, now);
        else if (shape_of(frame->cookie) == INGERO_SHAPE_NAME) frame->args[2] = 0;
    }
    worth = count_call(thread, frame->cookie, frame->start_ns, now);
    waited = frame->waits || uncertain;
    if (return_code != 0) {
        worth.calls = worth.times = 1;
    } else if (is_to_make_room(frame->cookie, now - frame->start_ns, waited)) {
        lose_record(counters, 1, 0);
        return;
    } else {
        worth = weigh_call(thread, frame->cookie, now - frame->start_ns, waited, worth, &thinned);
    }
    if (worth.calls == 0) {
        COUNT(counters, thinned);
        return;
    }
    if (waited) {
        struct ingero_call_wait_record *record = reserve(sizeof(*record));
        if (!record) {
            lose_record(counters, worth.calls, thinned);
            return;
        }
        record->call.type = INGERO_RECORD_CALL_WAIT;
        record->call.flags = (uncertain ? INGERO_CALL_SPLIT_UNCERTAIN : 0) |
                             (frame->waits && frame->in_iowait ? INGERO_CALL_IN_IOWAIT : 0);
        fill_call(&record->call, thread, frame, now, return_code, &worth);
        fill_waits(record, &sums, frame, &thread->wait);
        if (uncertain) COUNT(counters, uncertain);
        submit(record);
    } else {
        struct ingero_call_record *record = reserve(sizeof(*record));
        if (!record) {
            lose_record(counters, worth.calls, thinned);
            return;
        }
        record->type = INGERO_RECORD_CALL;
        record->flags = 0;
        fill_call(record, thread, frame, now, return_code, &worth);
        submit(record);
    }
    COUNT(counters, records);
}

SEC("uprobe")
int call_session(struct call_context *ctx) {
    if (IS_RETURN(ctx)) {
        leave_call(ctx);
        return 0;
    }
    return enter_call(ctx, bpf_get_attach_cookie(ctx));
}

SEC("uprobe")
int call_entry(struct call_context *ctx) {
    enter_call(ctx, bpf_get_attach_cookie(ctx));
    return 0;
}

SEC("uprobe")
int call_return(struct call_context *ctx) {
    leave_call(ctx);
    return 0;
}

/* What the thread has not given records of, and will not any more. */
static __always_inline void settle(struct task_struct *task) {
    struct thread_state *thread = task->bpf_storage ? bpf_task_storage_get(&threads, task, 0, 0) : 0;
    if (!thread) return;
    for (__u32 i = 0; i < INGERO_MAX_DEPTH; i++) {
        if (i >= thread->depth) break;
        lose_frame(&thread->frames[i]);
    }
    forget_frames(thread);
    lose_unkept(thread);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task) {
    __u32 tgid = task->tgid;
    __u64 *start;
    int code;

    settle(task);
    stop_watching(task);
    start = bpf_map_lookup_elem(&processes, &tgid);
    if (task->signal->live.counter != 0) return 0;
    if (!start) {
        forget_decision(task);
        return 0;
    }
    code = task->signal->group_exit_code;
    if (is_captured(task, 0))
        report_process(task, INGERO_PROCESS_EXIT, *start & ~FROM_START, code ? code : task->exit_code);
    bpf_map_delete_elem(&processes, &tgid);
    forget_decision(task);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_id) {
    __u32 tgid = task->tgid;
    __u64 *start = bpf_map_lookup_elem(&processes, &tgid);

    settle(task);
    stop_watching(task);
    forget_watched(old_id); /* a thread that was not the first takes its id */
    forget_mappings(task);
    /* Another program, and a thread that was not the first now has the id of the one that was. */
    bpf_task_storage_delete(&threads, task);
    if (start) {
        *start &= ~FROM_START;
        if (is_captured(task, 0)) report_process(task, INGERO_PROCESS_EXEC, *start, 0);
    }
    forget_decision(task); /* it was made by the name of another program */
    return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child) {
    inherit_decision(parent, child);
    watch_new_thread(parent, child);
    return 0;
}

/* Run once by the loader, in its own context. */
SEC("raw_tp")
int find_pid_namespace(void *ctx) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct pid *pid = BPF_CORE_READ(task, thread_pid);
    __u32 level = BPF_CORE_READ(pid, level);
    struct upid number = {};

    bpf_probe_read_kernel(&number, sizeof(number), (void *)pid + bpf_core_field_offset(struct pid, numbers) +
                                                       level * bpf_core_type_size(struct upid));
    own_tgid = task->tgid;
    pid_namespace = (__u64)number.ns;
    pid_level = level;
    return 0;
}
