/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits of a thread: who ran instead, what a sleep waited for, who ended it.
 *
 * Who ran instead is read from the last slices of the CPU waited for. They are kept only while a thread of interest
 * waits there, so other CPUs pay one load a switch.
 */
#ifndef INGERO_OFF_CPU_H
#define INGERO_OFF_CPU_H

#include "registers.h"
#include "thread_state.h"

#define SLICES 16 /* a power of two: an index is masked */
#define CPU_MASK (INGERO_MAX_CPUS - 1)
#define INTERESTING_SLEEP_NS 20000 /* below it, the descriptor slept on is not looked at */

struct slice {
    __u64 from_ns;
    __u64 to_ns;
    __u32 tgid;
    __u32 reserved;
    char comm[INGERO_COMM_LENGTH];
};

struct cpu_slices {
    __u64 switched_ns; /* last recorded switch */
    __u32 next;
    __u32 current_known; /* current is who runs since switched_ns */
    __u32 current_tgid;
    __u32 reserved;
    char current_comm[INGERO_COMM_LENGTH];
    struct slice slices[SLICES];
};

/* Sized by the loader to the number of possible CPUs. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct cpu_slices);
} cpus SEC(".maps");

/* Both lie at a multiple of 4, as each in these structures does: four copies for the verifier to walk, not sixteen. */
static __always_inline void copy_comm(char *to, const char *from) {
    __builtin_memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), INGERO_COMM_LENGTH);
}

/* A running CPU's open slice is closed: prev held it since the last recorded switch. */
static __always_inline void record_slice(struct cpu_slices *cpu, struct task_struct *prev, __u64 now) {
    struct slice *slice = &cpu->slices[cpu->next & (SLICES - 1)];
    __u32 tgid = process_id(prev);

    if (cpu->current_known && cpu->current_tgid != tgid) return; /* a switch between was not reported */
    slice->from_ns = cpu->switched_ns;
    slice->to_ns = now;
    slice->tgid = tgid;
    bpf_probe_read_kernel(slice->comm, sizeof(slice->comm), prev->comm);
    cpu->next++;
}

static __always_inline void record_current(struct cpu_slices *cpu, struct task_struct *next, __u64 now) {
    cpu->switched_ns = now;
    cpu->current_tgid = process_id(next);
    bpf_probe_read_kernel(cpu->current_comm, sizeof(cpu->current_comm), next->comm);
    cpu->current_known = 1;
}

/* Without a branch, so that the verifier does not walk each way of each slice. */
static __always_inline __s64 positive_part(__s64 value) {
    __s64 sign = value >> 63;

    barrier_var(sign); /* or the compiler finds the comparison behind it */
    return value & ~sign;
}

static __always_inline __u64 overlap(__u64 from, __u64 to, __u64 slice_from, __u64 slice_to) {
    __u64 begin = from + positive_part(slice_from - from);
    __u64 end = to - positive_part(to - slice_to);
    return positive_part(end - begin);
}

static __always_inline void offer_preemptor(struct wait_state *wait, __u32 tgid, const char *comm, __u64 ns) {
    if (ns == 0) return;
    if (wait->wait_preemptor_ns != 0 && wait->wait_preemptor_tgid == tgid) {
        wait->wait_preemptor_ns += ns;
    } else if (ns > wait->wait_preemptor_ns) {
        wait->wait_preemptor_ns = ns;
        wait->wait_preemptor_tgid = tgid;
        copy_comm(wait->wait_preemptor_comm, comm);
    }
}

/*
 * Charges [from, to) of waiting for a CPU to the process whose slice overlaps it longest, with all its slices.
 * With `open`, the slice now running on that CPU takes part: the thread leaves the queue while it runs.
 */
static __always_inline void charge_wait(struct wait_state *wait, struct cpu_slices *cpu, __u64 from, __u64 to,
                                        int open) {
    __u64 longest = 0, ns = 0; /* longest: with the slice's number in the lower bits */
    struct slice *best;

    for (__u32 i = 0; i < SLICES; i++) {
        ns = overlap(from, to, cpu->slices[i].from_ns, cpu->slices[i].to_ns) * SLICES + i;
        longest += positive_part(ns - longest);
    }
    if (open && cpu->current_known) offer_preemptor(wait, cpu->current_tgid, cpu->current_comm,
                                                    overlap(from, to, cpu->switched_ns, to));
    if (longest < SLICES) return;
    best = &cpu->slices[longest & (SLICES - 1)];
    ns = 0;
    for (__u32 i = 0; i < SLICES; i++) {
        __s64 other = cpu->slices[i].tgid ^ best->tgid;

        other = -other >> 63; /* 0, or all bits */
        barrier_var(other);
        ns += overlap(from, to, cpu->slices[i].from_ns, cpu->slices[i].to_ns) & ~other;
    }
    offer_preemptor(wait, best->tgid, best->comm, ns);
}

/* The thread stands in no CPU's count, or in exactly one: its own word says which, so no missed event can leak. */
static __always_inline void stop_waiting(struct wait_state *wait) {
    __u32 cpu = __sync_lock_test_and_set(&wait->wait_cpu, 0);
    if (cpu) __sync_fetch_and_sub(&waiting_threads[(cpu - 1) & CPU_MASK], 1);
}

/* Returns how many waited there before. */
static __always_inline __u32 start_waiting(struct wait_state *wait, __u32 cpu, __u64 now) {
    __u32 before;

    wait->wait_from_ns = now;
    before = __sync_lock_test_and_set(&wait->wait_cpu, cpu + 1);
    if (before) __sync_fetch_and_sub(&waiting_threads[(before - 1) & CPU_MASK], 1);
    return __sync_fetch_and_add(&waiting_threads[cpu & CPU_MASK], 1);
}

static __always_inline struct cpu_slices *slices_of(__u32 cpu) { return bpf_map_lookup_elem(&cpus, &cpu); }

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFIFO 0010000
#define NFS_MAGIC 0x6969
#define FUSE_MAGIC 0x65735546
#define CIFS_MAGIC 0xff534d42
#define SMB2_MAGIC 0xfe534d42
#define CEPH_MAGIC 0x00c36400
#define LUSTRE_MAGIC 0x0bd00bd0

static __always_inline __u8 file_reason(struct task_struct *task, __u64 descriptor) {
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    struct file **slots = BPF_CORE_READ(table, fd);
    struct file *file = 0;
    struct inode *inode;
    unsigned long magic;

    if (descriptor >= BPF_CORE_READ(table, max_fds)) return INGERO_BLOCKED_OTHER;
    bpf_probe_read_kernel(&file, sizeof(file), slots + descriptor);
    inode = BPF_CORE_READ(file, f_inode);
    magic = BPF_CORE_READ(inode, i_sb, s_magic);
    switch (BPF_CORE_READ(inode, i_mode) & S_IFMT) {
        case S_IFSOCK: return INGERO_BLOCKED_SOCKET;
        case S_IFIFO: return INGERO_BLOCKED_PIPE;
        case S_IFBLK: return INGERO_BLOCKED_DISK;
        case S_IFREG:
        case S_IFDIR:
            if (magic == NFS_MAGIC || magic == FUSE_MAGIC || magic == CIFS_MAGIC || magic == SMB2_MAGIC ||
                magic == CEPH_MAGIC || magic == LUSTRE_MAGIC)
                return INGERO_BLOCKED_NETWORK_FS;
            return INGERO_BLOCKED_DISK;
        default: return INGERO_BLOCKED_OTHER;
    }
}

static __always_inline __u8 blocked_reason(struct wait_state *wait, struct task_struct *task, __u64 slept) {
    __u8 class;
    struct pt_regs *regs;

    if (wait->stopped) return INGERO_BLOCKED_STOPPED;
    if (wait->syscall < 0) return INGERO_BLOCKED_PAGE_FAULT;
    class = wait->syscall < INGERO_MAX_SYSCALLS ? syscall_classes[wait->syscall & (INGERO_MAX_SYSCALLS - 1)]
                                                  : INGERO_SYSCALL_OTHER;
    switch (class) {
        case INGERO_SYSCALL_FUTEX: return INGERO_BLOCKED_FUTEX;
        case INGERO_SYSCALL_IOCTL: return INGERO_BLOCKED_IOCTL;
        case INGERO_SYSCALL_POLL: return INGERO_BLOCKED_POLL;
        case INGERO_SYSCALL_SOCKET: return INGERO_BLOCKED_SOCKET;
        case INGERO_SYSCALL_CHILD: return INGERO_BLOCKED_CHILD;
        case INGERO_SYSCALL_TIMER: return INGERO_BLOCKED_TIMER;
        case INGERO_SYSCALL_FILE:
        case INGERO_SYSCALL_DISK:
            if (slept >= INTERESTING_SLEEP_NS) {
                regs = (struct pt_regs *)bpf_task_pt_regs(task);
                return file_reason(task, syscall_first_argument(regs));
            }
            return wait->in_iowait || class == INGERO_SYSCALL_DISK ? INGERO_BLOCKED_DISK : INGERO_BLOCKED_OTHER;
        default: return wait->in_iowait ? INGERO_BLOCKED_DISK : INGERO_BLOCKED_OTHER;
    }
}

/* A finished off-CPU interval goes to every open frame: each may report its longest sleep and its main preemptor. */
static __always_inline void charge_frames(struct thread_state *thread, __u64 blocked, __u8 reason, __u32 uncertain) {
    for (__u32 i = 0; i < INGERO_MAX_DEPTH; i++) {
        struct frame *frame = &thread->frames[i];
        if (i >= thread->depth) break;
        if (frame->waits++ == 0) {
            frame->longest_sleep_ns = 0;
            frame->preemptor_ns = 0;
            frame->preemptor_tgid = 0;
            frame->blocked_reason = INGERO_BLOCKED_NONE;
            frame->waker_kind = INGERO_WAKER_UNKNOWN;
            frame->waker_tgid = 0;
            frame->in_iowait = 0;
            frame->blocked_syscall = 0xffff;
            frame->preemptor_comm[0] = 0;
            frame->waker_comm[0] = 0;
        }
        frame->uncertain |= uncertain;
        if (blocked > frame->longest_sleep_ns) {
            frame->longest_sleep_ns = blocked;
            frame->blocked_reason = reason;
            frame->blocked_syscall = thread->wait.syscall < 0 ? 0xffff : thread->wait.syscall;
            frame->in_iowait = thread->wait.in_iowait;
            frame->waker_kind = thread->wait.waker_kind;
            frame->waker_tgid = thread->wait.waker_tgid;
            copy_comm(frame->waker_comm, thread->wait.waker_comm);
        }
        if (thread->wait.wait_preemptor_ns == 0) continue;
        if (frame->preemptor_ns != 0 && frame->preemptor_tgid == thread->wait.wait_preemptor_tgid) {
            frame->preemptor_ns += thread->wait.wait_preemptor_ns;
        } else if (thread->wait.wait_preemptor_ns > frame->preemptor_ns) {
            frame->preemptor_ns = thread->wait.wait_preemptor_ns;
            frame->preemptor_tgid = thread->wait.wait_preemptor_tgid;
            copy_comm(frame->preemptor_comm, thread->wait.wait_preemptor_comm);
        }
    }
}

/* By the kernel's count, which has the one under way. */
static __always_inline __u64 switches_of(struct task_struct *task) { return task->nvcsw + task->nivcsw; }

#define STATE_STOPPED 0x4
#define STATE_TRACED 0x8
#define STATE_FROZEN 0x8000 /* Linux 6.1 */
#define STATE_UNINTERRUPTIBLE 0x2
#define FLAG_FROZEN 0x10000 /* before Linux 6.1 */
#define JOBCTL_TRAP_FREEZE (1UL << 23)

/* Whatever it was about then goes on when somebody lets it. */
static __always_inline int is_stopped(struct task_struct *task) {
    if (task->__state & (STATE_STOPPED | STATE_TRACED | STATE_FROZEN)) return 1;
    if (task->jobctl & JOBCTL_TRAP_FREEZE) return 1;
    return (task->__state & STATE_UNINTERRUPTIBLE) && (task->flags & FLAG_FROZEN);
}

/* `task` is switched out. */
static __always_inline void leave_cpu(struct wait_state *wait, struct task_struct *task, int preempted, __u32 cpu,
                                      __u64 now) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

    wait->switches_seen++;
    wait->off_ns = now;
    wait->run_delay = task->sched_info.run_delay;
    wait->executed_ns = task->se.sum_exec_runtime;
    wait->switches_of_task = switches_of(task);
    wait->wait_preemptor_ns = 0;
    if (preempted || task->__state == 0) {
        wait->off_kind = OFF_RUNNABLE;
        start_waiting(wait, cpu, now);
        return;
    }
    wait->off_kind = OFF_BLOCKED;
    wait->stopped = is_stopped(task);
    wait->syscall = !wait->stopped && syscall_number(regs) >= 0 && syscall_number(regs) < 0x7fff
                        ? (__s32)syscall_number(regs)
                        : -1;
    wait->in_iowait = BPF_CORE_READ_BITFIELD(task, in_iowait);
}

/*
 * `task` is switched in: what it waited comes into the sums and charged_*. With no wake-up seen the whole interval
 * counts as sleep and the split is uncertain. `late`: it has run since, and its system call may be another by now.
 */
static __always_inline void enter_cpu(struct wait_state *wait, struct task_struct *task, struct cpu_slices *cpu,
                                      __u64 now, __u32 late) {
    __u64 off = wait->off_ns, wake = wait->wake_ns;

    now = off + positive_part(now - off);
    wait->charged_ns = 0;
    wait->charged_reason = INGERO_BLOCKED_NONE;
    wait->charged_uncertain = late;
    if (wait->off_kind == OFF_RUNNABLE) {
        wait->preempted_ns += now - off;
    } else if (wake >= off && wake <= now) {
        wait->charged_ns = wake - off;
    } else if (wake >= off || wake <= wait->in_ns) { /* else it was woken while it was still on its way out */
        wait->charged_ns = now - off;
        wait->charged_uncertain = 1;
        wait->waker_kind = INGERO_WAKER_UNKNOWN;
    }
    wait->charged_runnable_ns = now - off - wait->charged_ns;
    wait->runnable_ns += wait->charged_runnable_ns;
    wait->blocked_ns += wait->charged_ns;
    wait->off_ns = 0;
    wait->in_ns = now;
    stop_waiting(wait);
    /* Through memory the verifier forgets by which way these came, and walks what follows once and not once a way. */
    barrier();
    if (cpu && wait->charged_runnable_ns)
        charge_wait(wait, cpu, off + positive_part(wait->wait_from_ns - off), now, 0);
    barrier();
    if (wait->charged_ns) wait->charged_reason = blocked_reason(wait, task, late ? 0 : wait->charged_ns);
    barrier();
}

#define UNTOLD_SLACK_NS 20000 /* what it ran is by another clock, and has no interrupts in it */

/* It was woken before, and its switch-in was not reported: whoever wakes it now ends another sleep. */
static __always_inline int has_run_since(struct wait_state *wait) {
    return wait->off_ns && wait->off_kind == OFF_BLOCKED && wait->wake_ns >= wait->off_ns;
}

/*
 * When a thread that is switched out now was switched in, where that was not reported, as some kernels report no switch
 * out of certain threads: by the scheduler's own sum of the time that it waited for a CPU. 0: not known.
 */
static __always_inline __u64 untold_switch_in(struct wait_state *wait, struct task_struct *task, __u64 now) {
    __u64 from = wait->off_ns, waited = task->sched_info.run_delay - wait->run_delay;
    __u64 ran = task->se.sum_exec_runtime - wait->executed_ns;

    if (switches_of(task) != wait->switches_of_task + 1) return 0;
    if (wait->off_kind == OFF_BLOCKED) {
        if (wait->wake_ns >= from) from = wait->wake_ns;
        else if (wait->wake_ns <= wait->in_ns) return 0;
    }
    /* The sum may have sleep in it, of a sleeper that was moved to another CPU while still queued (Linux 6.12). */
    return waited && from + waited + ran <= now + UNTOLD_SLACK_NS ? from + waited : 0;
}

/* The same of a thread in the middle of a call, whose frames may each report it. */
static __always_inline void leave_cpu_in_call(struct thread_state *thread, struct task_struct *task, int preempted,
                                              __u32 cpu, __u64 now) {
    __u64 in_ns;

    if (thread->wait.off_ns) { /* neither its switch-in nor who ran before was reported */
        in_ns = untold_switch_in(&thread->wait, task, now);
        if (in_ns) enter_cpu(&thread->wait, task, 0, in_ns, 1);
        thread->wait.wait_preemptor_ns = 0;
        charge_frames(thread, 0, INGERO_BLOCKED_NONE, 1);
    }
    leave_cpu(&thread->wait, task, preempted, cpu, now);
}

static __always_inline void enter_cpu_in_call(struct thread_state *thread, struct task_struct *task,
                                              struct cpu_slices *cpu, __u64 now) {
    enter_cpu(&thread->wait, task, cpu, now, switches_of(task) != thread->wait.switches_of_task);
    charge_frames(thread, thread->wait.charged_ns, thread->wait.charged_reason, thread->wait.charged_uncertain);
}

/*
 * Whether this runs in an interrupt: either on an interrupt stack, or, when the interrupt came in user mode, on the
 * task's own stack with no system call in progress.
 *
 * From kernel 6.13 on a program whose stack takes 64 bytes has one of its own (BPF_PRIV_STACK_MIN_SIZE), and where its
 * variables lie says nothing: whoever calls this must keep below.
 */
static __always_inline int in_interrupt(struct task_struct *current) {
    __u64 here = 0, here_address = (__u64)&here, value = 0;
    __u64 stack = (__u64)current->stack;
    struct pt_regs *regs;

    if (current->pid == 0) return 1;
    bpf_probe_read_kernel(&value, sizeof(value), &here_address);
    if (value < stack) return 1;
    /* They lie at the stack's end, whose size depends on the architecture and on the size of a page. */
    regs = (struct pt_regs *)bpf_task_pt_regs(current);
    if (value >= (__u64)regs) return 1;
    if (!current->mm) return 0;
    return syscall_number(regs) < 0;
}

#endif
