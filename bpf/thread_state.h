/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is kept of a thread that is inside a traced call, and the maps.
 *
 * Off-CPU time is summed a thread, and a frame remembers the sums at its entry: nested calls need no work of their own.
 */
#ifndef INGERO_THREAD_STATE_H
#define INGERO_THREAD_STATE_H

#include "call_price.h"
#include "event.h"
#include "kernel_types.h"
#include "slice_worth.h"
#include "stack_event.h"
#include "walk_cost.h"

/* A call that has been entered and has not returned. The last part is valid only when waits is not 0. */
struct frame {
    __u64 stack_pointer;
    __u64 entry; /* where the function begins */
    __u64 cookie;
    __u64 start_ns;
    __u64 args[3];
    __u64 stream;
    __u64 runnable_before;
    __u64 preempted_before;
    __u64 blocked_before;
    __u64 switches_before; /* kernel's count less ours: unchanged at return when none was missed */
    __u32 waits;
    __u8 uncertain;
    __u8 blocked_reason;
    __u8 waker_kind;
    __u8 in_iowait;
    __u64 longest_sleep_ns;
    __u64 preemptor_ns;
    __u32 preemptor_tgid;
    __u32 waker_tgid;
    __u32 blocked_syscall;
    __u32 stack;          /* id of the native stack at entry; 0: none */
    __u64 return_address; /* before the return probe took its place */
    __u64 communicator;   /* of a call of NCCL: handle; of one that makes some: hash of the unique id, or how many */
    __u64 out;            /* where it puts handles */
    char preemptor_comm[INGERO_COMM_LENGTH];
    char waker_comm[INGERO_COMM_LENGTH];
};

/* A stack being walked (stacks.h), and where the process's mappings stand as of an epoch. */
struct stack_walk {
    __u64 address; /* of the last byte of the call, but for the first frame */
    __u64 stack_pointer;
    __u64 frame_pointer;
    __u64 seed; /* of hashes: differs for each process and mapping list */
    __u32 outer; /* traced calls that are still to be met on the way out */
    __u32 end;   /* enum ingero_stack_end */
    __u32 frame_pointer_lost;
    __u32 frames;
    struct ingero_walk_cost cost;
    __u32 epoch;
    __u32 generation;
    __u32 first;
    __u32 count;
    __u64 stack[INGERO_MAX_STACK_FRAMES];
};
#define MAX_CONTEXTS 4

#define MAX_PENDING_COMMUNICATORS 16

/* What a call of NCCL was made with: for functions that are not given the registers. */
struct nccl_call {
    __u64 parameters[16]; /* those in registers, by number from 1 */
    __u64 stack;          /* where the others lie */
    __u64 unique_id;      /* where ncclUniqueId lies, in a call that takes one */
};

/* A communicator that a call made, see communicators.h. */
struct made_communicator {
    __u64 out; /* where its handle will be put; 0: none is waited for */
    __u64 id;
    __u64 hash;
    __u64 parent;
    __u64 parent_hash;
    __s32 rank;
    __u32 ranks;
    __s32 color;
    __s32 key;
    __u32 split;
    __u32 origin;
};

enum off_kind {
    OFF_RUNNABLE = 1, /* switched out while it could run on */
    OFF_BLOCKED = 2,
};

/* Where a thread is on its ways off a CPU and back. */
struct wait_state {
    __u64 off_ns; /* when it was switched out; 0 while on CPU */
    __u64 in_ns;  /* when it was last switched in */
    __u64 wake_ns;
    __u64 runnable_ns; /* sums since the thread was first seen */
    __u64 preempted_ns;
    __u64 blocked_ns;
    __u64 switches_seen;
    __u64 run_delay; /* the scheduler's own sum at switch-out: a witness for a missed switch-in */
    __u64 executed_ns;      /* and what it had executed */
    __u64 switches_of_task; /* and the kernel's count of its switches, that one among them */
    __u64 wait_from_ns;
    __u64 wait_preemptor_ns;
    __u64 charged_ns; /* of the latest wait: the sleep in it, what for, and whether that was seen */
    __u64 charged_runnable_ns;
    __u32 charged_reason;
    __u32 charged_uncertain;
    __u32 off_kind;
    __u32 wait_cpu; /* the CPU in whose count this thread is, plus 1; 0 for none */
    __u32 waker_kind;
    __u32 waker_tgid;
    __s32 syscall;
    __u32 in_iowait;
    __u32 wait_preemptor_tgid; /* best candidate of the wait in progress, kept over migrations */
    __u32 stopped;
    char wait_preemptor_comm[INGERO_COMM_LENGTH];
    char waker_comm[INGERO_COMM_LENGTH];
};

struct thread_state {
    __u64 process_start_ns;
    __u32 tgid;
    __u32 tid;
    __u32 depth;
    __u32 device;        /* ordinal, or INGERO_DEVICE_UNKNOWN */
    __u32 implicit_device; /* in a process seen from its start the runtime's device is 0 until it is set */
    __u32 contexts_pushed;
    __u32 exec_id; /* of the program that it runs */
    __u32 told_spared; /* INGERO_PROCESS_SPARED was */
    __u32 reserved_2;
    __u64 policy;  /* as it was when its process was found to be recorded; see capture.h */
    __u64 watch_from_ns; /* its waits are not watched for want of room, and this is when to try again */
    __u64 context; /* handle; 0: none, or not known */
    __u64 below[MAX_CONTEXTS]; /* contexts that the current one was pushed on */
    __u64 window_from_ns; /* of the overhead budget, see thinning.h */
    __u32 window_calls;
    __u32 keep_one_in;
    struct ingero_entry_cost entry_cost;
    __u64 window_worth; /* calls of the window, with what those in slices stand for */
    __u32 slot_worth[INGERO_THIN_SLOTS];
    __u64 slice_open_ns; /* the latest slice in which the thread called */
    __u64 slice_close_ns;
    __u64 slice_number;
    __u64 sliced_ns; /* the latest call of the thread that is seen in slices only */
    __u64 stands_for_ns; /* that slice, for this thread */
    __u64 own_ps; /* what the program takes for a call of those in slices, by its pace; 0: not known */
    struct ingero_in_slice in_slice;
    __u32 others_since; /* that slice: calls that count for the pace */
    __u32 reserved_3;
    struct ingero_pace pace;
    __u16 unkept[INGERO_THIN_SLOTS]; /* since the last record of the op */
    __u16 keep_after[INGERO_THIN_SLOTS];
    struct wait_state wait;
    struct frame frames[INGERO_MAX_DEPTH];
    struct stack_walk walk;
    __u32 group_depth; /* of ncclGroupStart */
    __u32 reserved;
    __u64 unique_id[16];
    struct nccl_call nccl_call; /* the latest */
    struct made_communicator made; /* by the call that returns */
    struct made_communicator pending[MAX_PENDING_COMMUNICATORS];
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread_state);
} threads SEC(".maps");

/* A handle is a program's own: another one of the same pid, or by exec in the same process, may have it for another. */
struct context_key {
    __u64 context;
    __u64 process_start_ns;
    __u32 tgid;
    __u32 exec_id;
};

/* The device of each context that was seen to be made. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct context_key);
    __type(value, __u32);
} contexts SEC(".maps");

/* Set beside the start of a process that registered functions while it was traced: it is known from its start. */
#define FROM_START (1ULL << 63)

/* Traced processes, so that the end of one is seen whichever of its threads ends last. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u32);
    __type(value, __u64);
} processes SEC(".maps");

struct ring {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
};

/* One ring a CPU, so that a launch storm on one never takes the room of another. Sized and filled by the loader. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1);
    __type(key, __u32);
    __array(values, struct ring);
} rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct ingero_call_counters);
} call_counters SEC(".maps");

/* The reader says it sleeps; the next record wakes it and takes the flag back. Mapped by the reader. */
__u32 reader_sleeps;

/* The loader detaches everything: a frame that no return ends is then of a call in flight. Mapped by the loader. */
__u32 detaching;

/*
 * 1: a seccomp filter meets the system call by which a probed call returns, and may end the process for it: the return of a
 * call in a thread under a filter is not probed. Mapped by the loader.
 */
__u32 spare_filtered;

/* Names for which a ring had no room. */
__u64 names_lost;

/* Threads inside a call that wait for each CPU: only then are that CPU's slices kept. */
__u32 waiting_threads[INGERO_MAX_CPUS];

/* The daemon's pid namespace, found by find_pid_namespace: pids are reported as the daemon sees them. */
__u32 pid_level;
__u64 pid_namespace;

/* Filled by the loader: enum ingero_syscall_class by number. */
const volatile __u8 syscall_classes[INGERO_MAX_SYSCALLS];

/* As the daemon sees it. */
static __always_inline __u32 number_in_namespace(struct pid *pid) {
    struct upid number = {};
    __u64 offset = bpf_core_field_offset(struct pid, numbers) + pid_level * bpf_core_type_size(struct upid);

    if (!pid || BPF_CORE_READ(pid, level) < pid_level) return INGERO_PID_OUTSIDE;
    bpf_probe_read_kernel(&number, bpf_core_type_size(struct upid) <= sizeof(number) ? sizeof(number) : 0,
                          (void *)pid + offset);
    return (__u64)number.ns == pid_namespace ? (__u32)number.nr : INGERO_PID_OUTSIDE;
}

static __always_inline __u32 pid_in_namespace(struct task_struct *task) {
    return number_in_namespace(BPF_CORE_READ(task, thread_pid));
}

static __always_inline __u32 process_id(struct task_struct *task) {
    return pid_level == 0 || task->tgid == 0 ? (__u32)task->tgid : pid_in_namespace(task->group_leader);
}

static __always_inline __u32 thread_id(struct task_struct *task) {
    return pid_level == 0 || task->pid == 0 ? (__u32)task->pid : pid_in_namespace(task);
}

static __always_inline int shape_of(__u64 cookie) { return (cookie >> 24) & 0x7f; }

static __always_inline struct ingero_call_counters *counters_of(__u64 cookie) {
    __u32 index = (cookie >> 16) & 0xff;
    return bpf_map_lookup_elem(&call_counters, &index);
}

/* A program may be preempted by another on the same CPU between load and store, hence atomic. */
#define COUNT_BY(counters, field, by)                                       \
    do {                                                                    \
        struct ingero_call_counters *counted = (counters);                    \
        if (counted) __sync_fetch_and_add(&counted->field, (__u64)(by));    \
    } while (0)
#define COUNT(counters, field) COUNT_BY(counters, field, 1)

/* Lost with it are the calls that it would have stood for; those among them that were counted as thinned are so no more. */
static __always_inline void lose_record(struct ingero_call_counters *counters, __u32 weight, __u32 thinned) {
    COUNT_BY(counters, lost_ring, weight);
    COUNT_BY(counters, thinned, -(__s64)thinned);
}

static __always_inline void *ring_of_cpu(void) {
    __u32 cpu = bpf_get_smp_processor_id();
    return bpf_map_lookup_elem(&rings, &cpu);
}

static __always_inline int is_ring_fuller_than(__u64 eighths) {
    void *ring = ring_of_cpu();
    return ring &&
           bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / 8 * eighths;
}

static __always_inline int is_ring_filling(void) { return is_ring_fuller_than(6); }

static __always_inline int is_ring_almost_full(void) { return is_ring_fuller_than(7); }

static __always_inline void *reserve(__u64 size) {
    void *ring = ring_of_cpu();
    return ring ? bpf_ringbuf_reserve(ring, size, 0) : 0;
}

/* A ring wakes its reader with a record only: one that the reader is not given. Global, so that the verifier walks it once. */
__attribute__((noinline)) int wake_reader(void) {
    void *nothing;

    if (!__sync_lock_test_and_set(&reader_sleeps, 0)) return 0; /* another record does */
    nothing = reserve(8);
    if (nothing) bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
    else reader_sleeps = 1; /* for the next */
    return 0;
}

/*
 * Submits, and only then looks whether the reader sleeps, which says so and only then looks for records: whichever comes
 * second sees the other. To submit is to exchange a word of the record, which orders the two.
 */
static __always_inline void submit(void *record) {
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
    if (*(volatile __u32 *)&reader_sleeps) wake_reader();
}

#endif
