/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The records that the kernel side writes and the ingest thread reads, and the small tables both sides share.
 * Changing a layout needs both sides rebuilt: they ship in one binary, so there is no version field here.
 */
#ifndef INGERO_BPF_EVENT_H
#define INGERO_BPF_EVENT_H

#ifdef __bpf__
typedef __u8 ingero_u8;
typedef __u16 ingero_u16;
typedef __u32 ingero_u32;
typedef __s32 ingero_s32;
typedef __u64 ingero_u64;
#else
#include <stdint.h>
typedef uint8_t ingero_u8;
typedef uint16_t ingero_u16;
typedef uint32_t ingero_u32;
typedef int32_t ingero_s32;
typedef uint64_t ingero_u64;
#endif

#include "start_unit.h"

#define INGERO_COMM_LENGTH 16
#define INGERO_MAX_DEPTH 6     /* nested traced calls a thread; deeper ones are counted as lost */
#define INGERO_MAX_SYMBOLS 256 /* functions that are probed, by name, and rows of the table of counters */
#define INGERO_MAX_CPUS 1024
#define INGERO_PID_OUTSIDE 0xffffffffu /* a process outside the pid namespace of the daemon */
#define INGERO_DEVICE_UNKNOWN 0xffffu
#define INGERO_MAX_NAME 512 /* bytes of a kernel's name, NUL included; longer ones are cut */

enum ingero_record_type {
    INGERO_RECORD_CALL = 1,      /* struct ingero_call_record: never off CPU */
    INGERO_RECORD_CALL_WAIT = 2, /* struct ingero_call_wait_record: off CPU at least once, or split uncertain */
    INGERO_RECORD_PROCESS = 3,   /* struct ingero_process_record */
    INGERO_RECORD_FUNCTION = 4,  /* struct ingero_function_record */
    INGERO_RECORD_COMMUNICATOR = 6, /* struct ingero_communicator_record */
    INGERO_RECORD_WAIT = 7,         /* struct ingero_wait_record */
    INGERO_RECORD_SOCKET = 8,       /* struct ingero_socket_record */
    INGERO_RECORD_STORM = 9,        /* struct ingero_storm_record */
};

/* Flags of a call. */
#define INGERO_CALL_SPLIT_UNCERTAIN 0x01 /* a switch was missed: the time split is an estimate */
#define INGERO_CALL_IN_IOWAIT 0x02       /* the longest sleep was counted as I/O wait by the scheduler */
#define INGERO_CALL_THROTTLED 0x04       /* of a wait for a CPU: by the quota of its cgroup */

/* What the longest sleep of a call waited for. */
enum ingero_blocked_reason {
    INGERO_BLOCKED_NONE = 0,
    INGERO_BLOCKED_DISK = 1,
    INGERO_BLOCKED_NETWORK_FS = 2,
    INGERO_BLOCKED_FUTEX = 3,
    INGERO_BLOCKED_IOCTL = 4,
    INGERO_BLOCKED_PAGE_FAULT = 5,
    INGERO_BLOCKED_POLL = 6,
    INGERO_BLOCKED_SOCKET = 7,
    INGERO_BLOCKED_PIPE = 8,
    INGERO_BLOCKED_CHILD = 9,
    INGERO_BLOCKED_TIMER = 10,
    INGERO_BLOCKED_OTHER = 11,
    INGERO_BLOCKED_STOPPED = 12, /* by a signal, a debugger or the freezer of its cgroup */
};

/* What a system call waits for, by its number: the loader fills the table from its own headers. */
enum ingero_syscall_class {
    INGERO_SYSCALL_OTHER = 0,
    INGERO_SYSCALL_FILE = 1, /* by what its first argument, a descriptor, is */
    INGERO_SYSCALL_FUTEX = 2,
    INGERO_SYSCALL_IOCTL = 3,
    INGERO_SYSCALL_POLL = 4,
    INGERO_SYSCALL_SOCKET = 5,
    INGERO_SYSCALL_CHILD = 6,
    INGERO_SYSCALL_TIMER = 7,
    INGERO_SYSCALL_DISK = 8,
};
#define INGERO_MAX_SYSCALLS 512

/* Who ended the longest sleep. */
enum ingero_waker_kind {
    INGERO_WAKER_UNKNOWN = 0,
    INGERO_WAKER_TASK = 1,
    INGERO_WAKER_INTERRUPT = 2,
};

struct ingero_call_record {
    ingero_u32 type; /* enum ingero_record_type */
    ingero_u16 op;   /* source << 8 | number, as in core/model/op.h */
    ingero_u8 depth; /* 0: outermost */
    ingero_u8 flags;
    ingero_u64 start_ns; /* CLOCK_MONOTONIC */
    ingero_u64 duration_ns;
    ingero_u64 process_start_ns; /* CLOCK_BOOTTIME start of the thread group leader: with tgid, who this is */
    ingero_u64 args[3];
    ingero_u64 stream;
    ingero_u32 tgid;
    ingero_u32 tid;
    ingero_s32 return_code;
    ingero_u32 cpu;
    ingero_u32 stack;    /* id of the native stack at entry; 0: none */
    ingero_u32 weight;   /* calls that this one stands for: 1 unless the op was thinned */
    ingero_u32 time_weight; /* how often its times count: less than weight in a slice, where the probes took a part */
    ingero_u16 device;   /* ordinal, current for the thread at return; INGERO_DEVICE_UNKNOWN */
    ingero_u16 reserved;
};

struct ingero_call_wait_record {
    struct ingero_call_record call;
    ingero_u64 runnable_ns;      /* could run and did not */
    ingero_u64 preempted_ns;     /* the part of runnable_ns that began with a switch-out while runnable */
    ingero_u64 blocked_ns;       /* slept */
    ingero_u64 longest_sleep_ns; /* the sleep that blocked_reason and waker speak of */
    ingero_u64 preemptor_ns;     /* of runnable_ns, the part the named preemptor held the CPU */
    ingero_u64 last_wait_ns;     /* the last time off the CPU; 0: not known, as are the three that follow */
    ingero_u64 last_runnable_ns; /* of it, could run: all of it where it began with a switch-out while runnable */
    ingero_u64 tail_ns;          /* from its end to the return */
    ingero_u32 last_reason;      /* enum ingero_blocked_reason */
    ingero_u32 preemptor_tgid;   /* 0: idle, which is wake-up latency and no contention */
    ingero_u32 waker_tgid;
    ingero_u32 waits;           /* number of off-CPU intervals */
    ingero_u8 blocked_reason; /* enum ingero_blocked_reason */
    ingero_u8 waker_kind;     /* enum ingero_waker_kind */
    ingero_u16 blocked_syscall; /* 0xffff: none in progress */
    ingero_u32 reserved;
    char preemptor_comm[INGERO_COMM_LENGTH];
    char waker_comm[INGERO_COMM_LENGTH];
};

#define INGERO_CALL_WAKER_WATCHED 0x08   /* of a wait: what its waker did meanwhile is recorded too */

/* Ops of what the kernel does to a thread, as in core/model/op.h. */
#define INGERO_OP_WAIT 0x0301           /* off CPU, once */
/* Off CPU, many times and each for short; detail[0]: ns in interrupts; [2]: how often it was moved to another CPU, in
 * long waits too. INGERO_CALL_SPLIT_UNCERTAIN: once, and it was not seen until when: for duration_ns at most. */
#define INGERO_OP_WAITS_SUMMED 0x0315
#define INGERO_OP_OOM_KILL 0x0304
#define INGERO_OP_DIRECT_RECLAIM 0x031e /* detail[0]: pages; [1]: how many, in one record */
#define INGERO_OP_INTERRUPT 0x031f      /* detail[0]: its number */
#define INGERO_OP_SOFT_INTERRUPT 0x0320 /* detail[0]: its vector */
#define INGERO_OP_RETRANSMIT 0x0601
#define INGERO_OP_SOCKET_ERROR 0x0602

/* What the three words of detail say. */
enum ingero_wait_detail {
    INGERO_DETAIL_NONE = 0,
    INGERO_DETAIL_LOCK = 1,    /* address of the futex */
    INGERO_DETAIL_FILE = 2,    /* device, as the kernel has it: major << 20 | minor; inode */
    INGERO_DETAIL_SOCKET = 3,  /* address of the other end, 16 bytes, v4 mapped; family << 32 | port << 16 | own port */
    INGERO_DETAIL_LOCAL_SOCKET = 4, /* pid of the other end, as it was when they connected */
    INGERO_DETAIL_REQUEST = 5, /* device; bytes << 8 | operation of the block layer; ns that it took */
};

#define INGERO_LEVEL_NOT_WATCHED 255

/* A thread off CPU, or kept from its work by the kernel. */
struct ingero_wait_record {
    ingero_u32 type;
    ingero_u16 op; /* INGERO_OP_* */
    ingero_u8 blocked_reason;
    ingero_u8 waker_kind;
    ingero_u64 start_ns;
    ingero_u64 duration_ns;
    ingero_u64 process_start_ns;
    ingero_u64 runnable_ns;
    ingero_u64 preempted_ns;
    ingero_u64 blocked_ns;
    ingero_u64 preemptor_ns;
    ingero_u64 detail[3];
    ingero_u32 tgid;
    ingero_u32 tid;
    ingero_u32 uid;
    ingero_u32 cpu; /* where it went on */
    ingero_u32 from_cpu;
    ingero_u32 preemptor_tgid;
    ingero_u32 waker_tgid;
    ingero_u32 waker_tid;
    ingero_u32 waits; /* off-CPU intervals that this stands for */
    ingero_u16 blocked_syscall;
    ingero_u8 flags; /* INGERO_CALL_* */
    ingero_u8 depth; /* of calls that it was inside of */
    ingero_u8 level; /* 0: of a process that calls; else how many wake-ups away from one, or INGERO_LEVEL_NOT_WATCHED */
    ingero_u8 detail_kind;
    ingero_u8 reserved[2];
    char preemptor_comm[INGERO_COMM_LENGTH];
    char waker_comm[INGERO_COMM_LENGTH];
    char comm[INGERO_COMM_LENGTH]; /* of the thread */
};

/* Something of a socket that no task of its process did. */
struct ingero_socket_record {
    ingero_u32 type;
    ingero_u16 op;
    ingero_u16 reserved;
    ingero_u64 time_ns;
    ingero_u64 address[2]; /* of the other end, as INGERO_DETAIL_SOCKET has it */
    ingero_u64 ports;
    ingero_u64 inode; /* by which its owner is found; 0: nobody has it open any more */
    ingero_u64 process_start_ns; /* of the watched process that connected it, with tgid */
    ingero_u32 tgid;             /* 0: not known */
    ingero_u32 uid;
    ingero_s32 error;
    /* Of a retransmit: for how long nothing that was sent had arrived, as far as was acknowledged; 0: not known. */
    ingero_u32 stalled_us;
};

/* What a thread inside a call does. */
enum ingero_thread_activity {
    INGERO_THREAD_RUNS = 0,
    INGERO_THREAD_RUNNABLE = 1, /* could run and does not */
    INGERO_THREAD_BLOCKED = 2,
};

/* A call that was entered a while ago and has not returned; read by going over all threads, not from a ring. */
struct ingero_in_flight_call {
    ingero_u64 now_ns; /* CLOCK_MONOTONIC, when it was looked at */
    ingero_u64 start_ns;
    ingero_u64 process_start_ns;
    ingero_u64 args[3]; /* those known at entry, else 0 */
    ingero_u64 stream;
    ingero_u64 runnable_ns; /* up to the latest time on a CPU */
    ingero_u64 blocked_ns;
    ingero_u64 off_ns; /* since when the thread is off CPU; 0 where it runs */
    ingero_u32 tgid;
    ingero_u32 tid;
    ingero_u32 stack;
    ingero_u16 op;
    ingero_u16 device;
    ingero_u8 depth;
    ingero_u8 activity;        /* enum ingero_thread_activity */
    ingero_u8 blocked_reason;  /* of the sleep in progress, enum ingero_blocked_reason */
    ingero_u8 reserved[5];
    char comm[INGERO_COMM_LENGTH]; /* of the thread */
};

enum ingero_process_change {
    INGERO_PROCESS_EXEC = 1,
    INGERO_PROCESS_EXIT = 2,
    INGERO_PROCESS_FORK = 3,
    INGERO_PROCESS_SPARED = 4, /* it called, and for its seccomp filter's sake the return was not probed: see spare() */
};

/* Only for processes with at least one thread that made a traced call. */
struct ingero_process_record {
    ingero_u32 type;
    ingero_u32 change; /* enum ingero_process_change */
    ingero_u64 time_ns;
    ingero_u64 process_start_ns;
    ingero_u32 tgid;
    ingero_u32 parent_tgid;
    ingero_s32 exit_code; /* as wait(2) reports it */
    ingero_u32 uid;
    char comm[INGERO_COMM_LENGTH];
};

/* The name behind a function handle: a registered host function, or what a module or library gave out. */
struct ingero_function_record {
    ingero_u32 type;
    ingero_u32 tgid;
    ingero_u64 process_start_ns;
    ingero_u64 time_ns;
    ingero_u64 handle;
    ingero_u64 name_address;    /* of a name that the reader has to look for; then the record may end here. 0: `name` has it */
    char name[INGERO_MAX_NAME]; /* as the target has it: mangled. Ends with a NUL, or is cut at INGERO_MAX_NAME - 1 */
};

/* How a process came to a communicator. Numbers are stored: never used again for another. */
enum ingero_communicator_origin {
    INGERO_COMMUNICATOR_FOUND = 0,    /* made before it was traced: only the handle is known */
    INGERO_COMMUNICATOR_INIT_RANK = 1,
    INGERO_COMMUNICATOR_INIT_ALL = 2,
    INGERO_COMMUNICATOR_SPLIT = 3,
};

/* One rank's communicator, as its process has it. */
struct ingero_communicator_record {
    ingero_u32 type;
    ingero_u32 tgid;
    ingero_u64 process_start_ns;
    ingero_u64 time_ns;
    ingero_u64 id;     /* what calls carry; never another's in its process */
    ingero_u64 handle; /* ncclComm_t; 0: the split gave this rank none, or it is given out only at the group's end */
    ingero_u64 hash;   /* the same for all ranks; 0: not known */
    ingero_u64 parent; /* id of what it was split from; 0: none */
    ingero_u64 parent_hash;
    ingero_s32 rank;   /* -1: not known, as after a split */
    ingero_u32 ranks;  /* 0: not known */
    ingero_s32 color;  /* of a split, with key */
    ingero_s32 key;
    ingero_u32 split;  /* number of this split among the parent's, from 1; 0: none */
    ingero_u32 origin; /* enum ingero_communicator_origin */
};

/* What is decided of a process by [capture]. Start times in the unit of /proc, 10 ms. */
struct ingero_decision {
    ingero_u64 process_start_ns;
    ingero_u32 generation; /* of the policy it was decided by */
    ingero_u8 captured;
    ingero_u8 inherited; /* from its parent: the daemon has not looked at the process itself */
    ingero_u8 reserved[2];
};

/* A process that called before it was decided on. */
struct ingero_undecided {
    ingero_u64 process_start_ns;
    ingero_u64 time_ns; /* of its first call */
    ingero_u32 recorded; /* by its parent's decision */
    ingero_u32 reserved;
};

/* Counters a CPU and op. All counts since load. */
struct ingero_call_counters {
    ingero_u64 entries;      /* entry probe hits */
    ingero_u64 records;      /* records written */
    ingero_u64 lost_ring;    /* no room in the ring, with those that the record stood for */
    ingero_u64 lost_frames;  /* entered and never returned: longjmp, thread death, exec */
    ingero_u64 lost_depth;   /* nested deeper than INGERO_MAX_DEPTH, or no memory for the thread's state */
    ingero_u64 uncertain;    /* records whose split is marked uncertain */
    ingero_u64 thinned;      /* calls that a record of another stands for */
    ingero_u64 timed;        /* entries of which the first part was timed, see call_price.h */
    ingero_u64 timed_ns;     /* what that took */
    ingero_u64 passed_by;    /* entry probe hits of a link for slices while none was open */
};

/* How many calls one counts as, and how often its times do. */
struct ingero_worth {
    ingero_u32 calls;
    ingero_u32 times;
};

#define INGERO_THIN_SLOTS 32 /* ops that may be thinned, and one for none */

/*
 * What slices show of how many calls of ops in slices a thread makes to one of its other calls, of ops that are always
 * seen: sums over the latest slices, those before counting ever less. But for the time, in 16ths.
 */
struct ingero_pace {
    ingero_u64 squares;   /* of `others` of each slice */
    ingero_u32 slices;
    ingero_u32 calls;
    ingero_u32 others;    /* outermost ones */
    ingero_u32 cycles;    /* from one of these to the next within a slice */
    ingero_u32 in_cycles; /* calls in them */
    ingero_u32 us;
};

/*
 * A thread whose calls cost more than the budget although hardly one of them leaves a record: sent some ten times a
 * second while that lasts. In slices its calls are those that the ones seen stand for.
 */
struct ingero_storm_record {
    ingero_u32 type;
    ingero_u32 tgid;
    ingero_u64 process_start_ns;
    ingero_u64 time_ns;
    ingero_u64 elapsed_ns; /* in which they were made */
    ingero_u32 tid;
    ingero_u32 price_ns; /* of a call that leaves no record */
    ingero_u32 calls[INGERO_THIN_SLOTS]; /* by slot; in the first those of ops that have none */
    struct ingero_pace pace; /* of a thread in slices: what their worth is from */
};

/*
 * The calls of functions that are attached to for slices only count where they begin in [open_ns, close_ns), and stand for
 * those of a longer time. The loader changes this while close_ns is past.
 */
struct ingero_slice {
    ingero_u64 open_ns; /* CLOCK_MONOTONIC */
    ingero_u64 close_ns;
    ingero_u64 stands_for_ns;
    ingero_u64 stands_for_new_ns; /* of a thread that was in no slice yet: it was seen in full for longer */
    ingero_u64 number;            /* from 1 */
};

/* What calls may cost a thread of its time, and what they cost. */
struct ingero_overhead_budget {
    ingero_u32 permille;    /* 0: no limit */
    ingero_u32 keep_one_in; /* other than 0: whatever it costs */
    ingero_u32 time_all;    /* other than 0: every entry is timed */
    /* In a loop of calls: a call that leaves no record, what a record costs besides, the timed part of an entry. */
    ingero_u32 unkept_ns;
    ingero_u32 record_ns;
    ingero_u32 entry_ns;
    /* What each costs more amid work; the last is 0 where that made no difference. */
    ingero_u32 unkept_more_ns;
    ingero_u32 record_more_ns;
    ingero_u32 entry_way_ns;
};

/*
 * How to read a call's arguments, packed into the 64-bit probe cookie, so that the probe looks nothing up:
 *   bits  0-15 op, 16-23 number of the symbol, 24-31 shape, 32-55 three argument selectors of 8 bits, 56-63 the stream's.
 * A selector is a parameter number from 1; 0 means none. INGERO_ARG_U32 takes the low 32 bits,
 * INGERO_ARG_OUT reads the pointed-to word when the call has returned success, INGERO_ARG_IN at entry.
 * With INGERO_ARG_OUT, INGERO_ARG_U32 says that the pointed-to word has 32 bits.
 * The shape's highest bit is that of a link for slices.
 */
#define INGERO_COOKIE_SLICED (1ULL << 31)
#define INGERO_ARG_NUMBER 0x1f
#define INGERO_ARG_U32 0x20
#define INGERO_ARG_OUT 0x40
#define INGERO_ARG_IN 0x80

enum ingero_shape {
    INGERO_SHAPE_PLAIN = 0,          /* the selectors say it all */
    INGERO_SHAPE_LAUNCH_RUNTIME = 1, /* cudaLaunchKernel: function, dim3 grid, dim3 block by value, args, shared, stream */
    INGERO_SHAPE_LAUNCH_RUNTIME_EX = 2, /* cudaLaunchKernelExC: config, function, args */
    INGERO_SHAPE_LAUNCH_DRIVER = 3,     /* cuLaunchKernel: function, 3 grid, 3 block, shared, stream, params, extra */
    INGERO_SHAPE_LAUNCH_DRIVER_EX = 4,  /* cuLaunchKernelEx: config, function, params, extra */
    INGERO_SHAPE_PRODUCT = 5, /* args[0] is the product of what selectors 0 and 2 say; args[1] as plain */
    INGERO_SHAPE_ELEMENTS_2 = 6, /* plain, but args[0] counts elements of 2 bytes */
    INGERO_SHAPE_ELEMENTS_4 = 7, /* the same, of 4 bytes */
    INGERO_SHAPE_COPY_2D_STRUCT = 8, /* selector 0: CUDA_MEMCPY2D: args[0] is its width in bytes times its height */
    INGERO_SHAPE_SET_DEVICE = 9,     /* plain; on success args[0] is the thread's device from now on */
    INGERO_SHAPE_SET_CONTEXT = 10,   /* plain; on success the thread's context is args[0] */
    INGERO_SHAPE_PUSH_CONTEXT = 11,  /* plain; on success args[0] is the thread's context, on top of the one before */
    INGERO_SHAPE_POP_CONTEXT = 12,   /* plain; on success the context before is the thread's again */
    INGERO_SHAPE_NEW_CONTEXT = 13,   /* plain; on success args[0] is a context of device args[1], and pushed */
    INGERO_SHAPE_RETAIN_CONTEXT = 14, /* plain; on success args[0] is a context of device args[1] */
    INGERO_SHAPE_END_CONTEXT = 15,    /* plain; on success context args[0] is gone */
    INGERO_SHAPE_NAME = 16,           /* plain; selector 2 is the name of the function args[0] */
    INGERO_SHAPE_REGISTER = 17,       /* the same of a call that returns nothing; the process is known from its start */
    INGERO_SHAPE_COPY_2D_STRUCT_OLD = 18, /* the structure of before 64-bit addresses */
    /* NCCL, communicators.h. Selectors are parameter numbers. */
    INGERO_SHAPE_COLLECTIVE = 19, /* 0: count, before the datatype; 1: communicator, before the stream; 2: peer or root;
                                     3: reduction */
    INGERO_SHAPE_COMMUNICATOR_INIT = 20, /* 0: where the handle is put; 1: ranks; 2: rank; the unique id, by value */
    INGERO_SHAPE_COMMUNICATOR_INIT_ALL = 21, /* 0: where the handles are put; 1: how many */
    INGERO_SHAPE_COMMUNICATOR_SPLIT = 22,    /* 0: where the handle is put; 1: parent, before color and key */
    INGERO_SHAPE_COMMUNICATOR = 23,          /* 1: communicator */
    INGERO_SHAPE_COMMUNICATOR_END = 24,      /* 1: communicator, which on success is gone */
    INGERO_SHAPE_GROUP_START = 25,
    INGERO_SHAPE_GROUP_END = 26,
};

/*
 * Arguments by class of op (core/model/op.h says which class an op is of), for those that a call has:
 *   launch: function; grid as x | y << 32 | z << 48; block as x | y << 11 | z << 22, dynamic shared bytes << 32
 *   alloc:  bytes; address or handle (on success); 0
 *   free:   address or handle; 0; 0
 *   copy:   bytes; direction as cudaMemcpyKind (0 to 4, 5 unknown); 0
 *   sync:   event; 0; 0
 *   graph:  graph; executable graph (new ones on success); mode or flags
 *   name:   function, module or library handle (new ones on success); what it is taken from; 0
 *   device: ordinal or context (new ones on success); of a new context, its device; 0
 *   collective: bytes; id of the communicator; INGERO_COLLECTIVE_* below
 *   communicator: handle (new ones on success); id of it (0: none); rank << 32 | ranks, of a split color << 32 | key;
 *           of groups 0, 0, the depth inside
 *   other:  cuMemMap: bytes, address, handle; cuMemUnmap: bytes, address; host functions: function; events: event
 */

/*
 * The third argument of a collective. Sequence numbers count a communicator's from 1, its sends and receives on their
 * own; 0 in a call that failed, or that another one of NCCL made.
 */
#define INGERO_COLLECTIVE_DATATYPE_SHIFT 0  /* 4 bits, ncclDataType_t; 15: not known, bytes are 0 */
#define INGERO_COLLECTIVE_REDUCTION_SHIFT 4 /* 3 bits, ncclRedOp_t; 5: one that the program made; 7: none */
#define INGERO_COLLECTIVE_GROUP_SHIFT 7     /* 3 bits: depth of groups around it, held at 7 */
#define INGERO_COLLECTIVE_NESTED_SHIFT 10   /* 1 bit: made by another call of NCCL */
#define INGERO_COLLECTIVE_PEER_SHIFT 11     /* 21 bits: peer or root, plus 1; 0: none */
#define INGERO_COLLECTIVE_SEQUENCE_SHIFT 32
#define INGERO_DATATYPE_UNKNOWN 15
#define INGERO_REDUCTION_OWN 5
#define INGERO_REDUCTION_NONE 7

#endif
