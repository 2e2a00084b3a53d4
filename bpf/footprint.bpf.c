// SPDX-License-Identifier: GPL-2.0
/*
 * What one process tree touches: system calls, files, endpoints, programs, libraries. Loaded only while somebody
 * records it, since each system call of the host then passes here. Nothing is held back or changed; the arguments that
 * are reported of a call are read as it is entered, before the kernel reads them.
 */
#include <linux/bpf.h>

#include <asm/unistd.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "footprint_record.h"

char LICENSE[] SEC("license") = "GPL";

#define MAX_ERRNO 4095
#define AT_FDCWD -100
#define PROT_EXEC 4
#define MAP_ANONYMOUS 0x20
#define O_CREAT_WRONLY_TRUNC 01101

/* Set by the loader. The tree's first process, as the daemon's pid namespace counts. */
const volatile __u32 root_pid;
const volatile __u64 root_start; /* in INGERO_START_UNIT_NS: the number may be used again */
/* The tree stays within processes of this user, and of programs that give no other rights. */
const volatile __u32 only_owner;
const volatile __u32 owner_uid;

/* The daemon's pid namespace, found by find_pid_namespace. */
__u32 pid_level;
__u64 pid_namespace;

__u32 root_is_found;

/* A bit for each tgid that is in the tree: a look-up there, by every system call of the host, would cost more. */
#define MAX_PIDS (4 << 20) /* PID_MAX_LIMIT of 64-bit kernels */
__u64 followed[MAX_PIDS / 64];

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32); /* tgid */
    __type(value, __u32);
} tree SEC(".maps");

/* A thread of the tree, inside a call or not. By number, not in the task: that storage refuses when two meet. */
struct thread {
    __u64 entered_ns; /* 0: in no call that was seen to begin */
    __u32 sequence;
    __u16 number;
    __u16 abi;
    __u64 told;  /* the kind of record that was sent at the entry, or is to be sent at the exit */
    __u64 retry; /* it could not be read at the entry */
    __u64 argument[3];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, __u32); /* tid */
    __type(value, struct thread);
} threads SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 32768);
    __type(key, struct ingero_footprint_call);
    __type(value, struct ingero_footprint_calls);
} calls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct ingero_footprint_error);
    __type(value, __u64);
} errors SEC(".maps");

static __always_inline __u64 *word_of(__u32 tgid) { return &followed[tgid / 64 % (MAX_PIDS / 64)]; }

static __always_inline int is_followed(__u32 tgid) { return *word_of(tgid) >> tgid % 64 & 1; }

static __always_inline __u32 pid_of(struct task_struct *leader) {
    struct pid *pid = BPF_CORE_READ(leader, thread_pid);
    struct upid number = {};
    __u64 offset = bpf_core_field_offset(struct pid, numbers) + pid_level * bpf_core_type_size(struct upid);

    if (!pid || BPF_CORE_READ(pid, level) < pid_level) return 0;
    bpf_probe_read_kernel(&number, bpf_core_type_size(struct upid) <= sizeof(number) ? sizeof(number) : 0,
                          (void *)pid + offset);
    return (__u64)number.ns == pid_namespace ? (__u32)number.nr : 0;
}

static __always_inline __u32 process_id(struct task_struct *task) {
    return pid_level == 0 ? (__u32)task->tgid : pid_of(task->group_leader);
}

static __always_inline int is_root(struct task_struct *task) {
    return process_id(task) == root_pid &&
           BPF_CORE_READ(task, group_leader, start_boottime) / INGERO_START_UNIT_NS == root_start;
}

/* ---- The tree ---- */

static __always_inline void tell_start(struct task_struct *task, __u32 parent) {
    struct scratch *scratch = begin_record(task, INGERO_FOOTPRINT_START);

    if (!scratch) return;
    scratch->record.pid = process_id(task);
    scratch->record.result = parent;
    scratch->record.text_bytes = sizeof(task->comm);
    bpf_probe_read_kernel(scratch->data, sizeof(task->comm), task->comm);
    submit(scratch);
}

static __always_inline void follow(struct task_struct *task, __u32 parent) {
    __u32 tgid = task->tgid;

    if (bpf_map_update_elem(&tree, &tgid, &parent, BPF_NOEXIST)) {
        LOSE(processes);
        return;
    }
    __sync_fetch_and_or(word_of(tgid), 1ULL << tgid % 64);
    __sync_fetch_and_add(&losses.live, 1);
    tell_start(task, parent);
}

static __always_inline void leave(struct task_struct *task, int other_user) {
    __u32 tgid = task->tgid;
    struct scratch *scratch;

    if (bpf_map_delete_elem(&tree, &tgid)) return;
    __sync_fetch_and_and(word_of(tgid), ~(1ULL << tgid % 64));
    __sync_fetch_and_add(&losses.live, -1);
    if (other_user) LOSE(other_users);
    scratch = begin_record(task, INGERO_FOOTPRINT_END);
    if (!scratch) return;
    scratch->record.flags = other_user;
    submit(scratch);
}

static __always_inline int is_owners(struct task_struct *task) {
    const struct cred *cred = BPF_CORE_READ(task, cred);

    return !only_owner || (BPF_CORE_READ(cred, uid.val) == owner_uid && BPF_CORE_READ(cred, euid.val) == owner_uid &&
                           BPF_CORE_READ(cred, suid.val) == owner_uid);
}

/* ---- System calls ---- */

static __always_inline __u16 abi_of(struct task_struct *task, long id) {
#if defined(__TARGET_ARCH_x86)
    if (task->thread_info.status & 2) return INGERO_FOOTPRINT_COMPAT; /* TS_COMPAT */
    if (id & 0x40000000) return INGERO_FOOTPRINT_X32;
#else
    if (task->thread_info.flags & (1UL << 22)) return INGERO_FOOTPRINT_COMPAT; /* TIF_32BIT */
#endif
    return INGERO_FOOTPRINT_NATIVE;
}

#if defined(__TARGET_ARCH_x86)
#define ARGUMENT_0(regs) ((regs)->di)
#define ARGUMENT_1(regs) ((regs)->si)
#define ARGUMENT_2(regs) ((regs)->dx)
#define ARGUMENT_3(regs) ((regs)->r10)
#define ARGUMENT_4(regs) ((regs)->r8)
#define ARGUMENT_5(regs) ((regs)->r9)
#else
#define ARGUMENT_0(regs) ((regs)->regs[0])
#define ARGUMENT_1(regs) ((regs)->regs[1])
#define ARGUMENT_2(regs) ((regs)->regs[2])
#define ARGUMENT_3(regs) ((regs)->regs[3])
#define ARGUMENT_4(regs) ((regs)->regs[4])
#define ARGUMENT_5(regs) ((regs)->regs[5])
#endif

static __always_inline struct ingero_footprint_calls *row_of(__u32 tgid, __u16 number, __u16 abi) {
    struct ingero_footprint_call key = {.tgid = tgid, .number = number, .abi = abi};
    struct ingero_footprint_calls none = {}, *row = bpf_map_lookup_elem(&calls, &key);

    if (row) return row;
    bpf_map_update_elem(&calls, &key, &none, BPF_NOEXIST);
    row = bpf_map_lookup_elem(&calls, &key);
    if (row || tgid == 0) return row;
    key.tgid = 0;
    row = bpf_map_lookup_elem(&calls, &key);
    if (row) return row;
    bpf_map_update_elem(&calls, &key, &none, BPF_NOEXIST);
    return bpf_map_lookup_elem(&calls, &key);
}

static __always_inline void count_error(struct thread *thread, __s64 result) {
    struct ingero_footprint_error key = {.number = thread->number, .abi = thread->abi, .error = (__u32)-result};
    __u64 one = 1, *count = bpf_map_lookup_elem(&errors, &key);

    if (!count) {
        if (!bpf_map_update_elem(&errors, &key, &one, BPF_NOEXIST)) return;
        count = bpf_map_lookup_elem(&errors, &key);
    }
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        LOSE(errors);
}

/* Path at argument[0], relative to argument[1], flags argument[2]. False where it cannot be read now. */
static __noinline int tell_open(struct task_struct *task, struct thread *thread, struct scratch *scratch) {
    const void *path = (const void *)thread->argument[0];
    int directory = (int)thread->argument[1];

    scratch->record.flags = thread->argument[2];
    if (is_relative(path)) {
        if (directory == AT_FDCWD) {
            tell_base(scratch, task, BPF_CORE_READ(task, fs, pwd.dentry), BPF_CORE_READ(task, fs, pwd.mnt));
        } else {
            struct file *file = file_of(task, directory);
            if (file) tell_base(scratch, task, BPF_CORE_READ(file, f_path.dentry), BPF_CORE_READ(file, f_path.mnt));
        }
    }
    return tell_text(scratch, path);
}

/* Descriptor argument[0], address argument[1] of argument[2] bytes. */
static __noinline int tell_endpoint(struct task_struct *task, struct thread *thread, struct scratch *scratch) {
    tell_socket(scratch, sock_of(task, (int)thread->argument[0]));
    return tell_address(scratch, (const void *)thread->argument[1], thread->argument[2]);
}

static __always_inline int tell_call(struct task_struct *task, struct thread *thread, int at_exit, __s64 result) {
    struct scratch *scratch = begin_record(task, thread->told);

    if (!scratch) return 1;
    scratch->record.number = thread->number;
    scratch->record.sequence = thread->sequence;
    scratch->record.result = result;
    if (at_exit) scratch->record.bits |= INGERO_FOOTPRINT_HAS_RESULT;
    if (!(thread->told == INGERO_FOOTPRINT_OPEN ? tell_open(task, thread, scratch)
                                                : tell_endpoint(task, thread, scratch))) {
        if (!at_exit) return 0;
        LOSE(unreadable);
        scratch->record.base_bytes = 0;
        scratch->record.text_bytes = 0;
        scratch->record.bits |= INGERO_FOOTPRINT_UNREADABLE;
    }
    submit(scratch);
    return 1;
}

#define SET_ARGUMENTS(thread, kind, first, second, third) \
    do {                                                  \
        (thread)->told = (kind);                          \
        (thread)->argument[0] = (__u64)(first);           \
        (thread)->argument[1] = (__u64)(second);          \
        (thread)->argument[2] = (__u64)(third);           \
    } while (0)

/* Which record a call gets, and where its arguments lie. */
static __always_inline void look_at(struct pt_regs *regs, struct thread *thread) {
    struct {
        __u64 flags, mode, resolve;
    } how = {};
    struct {
        void *name;
        int bytes;
    } message = {};

    switch (thread->number) {
#ifdef __NR_open
        case __NR_open:
            SET_ARGUMENTS(thread, INGERO_FOOTPRINT_OPEN, ARGUMENT_0(regs), AT_FDCWD, (__u32)ARGUMENT_1(regs));
            break;
        case __NR_creat:
            SET_ARGUMENTS(thread, INGERO_FOOTPRINT_OPEN, ARGUMENT_0(regs), AT_FDCWD, O_CREAT_WRONLY_TRUNC);
            break;
#endif
        case __NR_openat:
            SET_ARGUMENTS(thread, INGERO_FOOTPRINT_OPEN, ARGUMENT_1(regs), ARGUMENT_0(regs), (__u32)ARGUMENT_2(regs));
            break;
        case __NR_openat2:
            bpf_probe_read_user(&how, sizeof(how), (void *)ARGUMENT_2(regs));
            SET_ARGUMENTS(thread, INGERO_FOOTPRINT_OPEN, ARGUMENT_1(regs), ARGUMENT_0(regs), how.flags);
            break;
        case __NR_connect:
        case __NR_bind:
            SET_ARGUMENTS(thread, INGERO_FOOTPRINT_ENDPOINT, ARGUMENT_0(regs), ARGUMENT_1(regs), ARGUMENT_2(regs));
            break;
        case __NR_sendto:
            if (ARGUMENT_4(regs))
                SET_ARGUMENTS(thread, INGERO_FOOTPRINT_ENDPOINT, ARGUMENT_0(regs), ARGUMENT_4(regs), ARGUMENT_5(regs));
            break;
        case __NR_sendmsg:
        case __NR_sendmmsg:
            bpf_probe_read_user(&message, sizeof(message), (void *)ARGUMENT_1(regs));
            if (message.name)
                SET_ARGUMENTS(thread, INGERO_FOOTPRINT_ENDPOINT, ARGUMENT_0(regs), message.name, message.bytes);
            break;
        case __NR_mmap:
            if ((ARGUMENT_2(regs) & PROT_EXEC) && !(ARGUMENT_3(regs) & MAP_ANONYMOUS))
                SET_ARGUMENTS(thread, INGERO_FOOTPRINT_LIBRARY, ARGUMENT_4(regs), 0, 0);
            break;
    }
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long id) {
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 tgid = task->tgid, tid = task->pid;
    struct ingero_footprint_calls *row;
    struct thread *thread;
    __u16 abi;

    if (!is_followed(tgid)) {
        if (root_is_found || !is_root(task)) return 0;
        if (__sync_lock_test_and_set(&root_is_found, 1)) return 0;
        follow(task, 0);
    }
    if (!is_owners(task)) {
        leave(task, 1);
        return 0;
    }
    abi = abi_of(task, id);
    if (abi != INGERO_FOOTPRINT_NATIVE) LOSE(compat);
    row = row_of(tgid, id, abi);
    if (row)
        __sync_fetch_and_add(&row->entered, 1);
    else
        LOSE(calls);
    thread = bpf_map_lookup_elem(&threads, &tid);
    if (!thread) {
        struct thread fresh = {};
        bpf_map_update_elem(&threads, &tid, &fresh, BPF_NOEXIST);
        thread = bpf_map_lookup_elem(&threads, &tid);
        if (!thread) {
            LOSE(untimed);
            return 0;
        }
    }
    thread->number = id;
    thread->abi = abi;
    thread->told = 0;
    thread->retry = 0;
    if (abi == INGERO_FOOTPRINT_NATIVE) look_at(regs, thread);
    if (thread->told) thread->sequence++;
    if (thread->told == INGERO_FOOTPRINT_OPEN || thread->told == INGERO_FOOTPRINT_ENDPOINT)
        thread->retry = !tell_call(task, thread, 0, 0);
    thread->entered_ns = bpf_ktime_get_ns();
    return 0;
}

static __always_inline void tell_result(struct task_struct *task, struct thread *thread, __s64 result) {
    struct scratch *scratch = begin_record(task, INGERO_FOOTPRINT_RESULT);

    if (!scratch) return;
    scratch->record.sequence = thread->sequence;
    scratch->record.number = thread->number;
    scratch->record.bits = INGERO_FOOTPRINT_HAS_RESULT;
    scratch->record.result = result;
    submit(scratch);
}

static __noinline int tell_library(struct task_struct *task, struct thread *thread) {
    struct scratch *scratch = begin_record(task, INGERO_FOOTPRINT_LIBRARY);
    struct file *file = file_of(task, (int)thread->argument[0]);

    if (!scratch || !file) return 0;
    scratch->record.bits = INGERO_FOOTPRINT_HAS_RESULT;
    tell_base(scratch, task, BPF_CORE_READ(file, f_path.dentry), BPF_CORE_READ(file, f_path.mnt));
    submit(scratch);
    return 0;
}

static __noinline int tell_accepted(struct task_struct *task, struct thread *thread, __s64 result) {
    struct scratch *scratch = begin_record(task, INGERO_FOOTPRINT_ENDPOINT);
    struct sock *sk = sock_of(task, (int)result);

    if (!scratch || !sk) return 0;
    scratch->record.number = thread->number;
    scratch->record.bits = INGERO_FOOTPRINT_HAS_RESULT;
    tell_socket(scratch, sk);
    tell_peer(scratch, sk);
    submit(scratch);
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long result) {
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 now = bpf_ktime_get_ns();
    __u32 tgid = task->tgid, tid = task->pid;
    struct ingero_footprint_calls *row;
    struct thread *thread;

    if (!is_followed(tgid)) return 0;
    thread = bpf_map_lookup_elem(&threads, &tid);
    if (!thread || !thread->entered_ns) return 0;
    row = row_of(tgid, thread->number, thread->abi);
    if (row) {
        __sync_fetch_and_add(&row->returned, 1);
        __sync_fetch_and_add(&row->total_ns, now - thread->entered_ns);
    }
    thread->entered_ns = 0;
    if (thread->abi != INGERO_FOOTPRINT_NATIVE) result = (__s32)result;
    if (result < 0 && result >= -MAX_ERRNO) count_error(thread, result);
    if (thread->told == INGERO_FOOTPRINT_LIBRARY) {
        if (result >= 0 || result < -MAX_ERRNO) tell_library(task, thread);
    } else if (thread->told && thread->retry) {
        tell_call(task, thread, 1, result);
    } else if (thread->told) {
        tell_result(task, thread, result);
    } else if (thread->abi == INGERO_FOOTPRINT_NATIVE && result >= 0 &&
               (thread->number == __NR_accept || thread->number == __NR_accept4)) {
        tell_accepted(task, thread, result);
    }
    return 0;
}

/* ---- Processes ---- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child) {
    __u32 tgid = parent->tgid;

    if (child->tgid != parent->tgid && is_followed(tgid)) follow(child, tgid);
    return 0;
}

/* Never more of the command line than its first argument: the others may be secrets. */
static __always_inline void tell_program(struct scratch *scratch, const void *named, const void *first_argument) {
    __u32 at = scratch->record.base_bytes;
    long length, more;

    if (at > INGERO_FOOTPRINT_MAX_BASE) return;
    length = bpf_probe_read_kernel_str(&scratch->data[at], INGERO_FOOTPRINT_MAX_TEXT / 2, named);
    if (length <= 0 || length > INGERO_FOOTPRINT_MAX_TEXT / 2) return;
    if (length == INGERO_FOOTPRINT_MAX_TEXT / 2) scratch->record.bits |= INGERO_FOOTPRINT_TEXT_CUT;
    at += length;
    more = bpf_probe_read_user_str(&scratch->data[at], INGERO_FOOTPRINT_MAX_TEXT / 2, first_argument);
    if (more > 0 && more <= INGERO_FOOTPRINT_MAX_TEXT / 2) length += more;
    scratch->record.text_bytes = length;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_tid, struct linux_binprm *program) {
    __u32 tgid = task->tgid, tid = task->pid, old = old_tid;
    struct scratch *scratch;
    struct file *file;

    if (!is_followed(tgid)) return 0;
    if (old != tid) { /* the thread that called execve now has the id of the first one */
        struct thread *thread = bpf_map_lookup_elem(&threads, &old);
        if (thread) {
            struct thread copy = *thread;
            bpf_map_update_elem(&threads, &tid, &copy, BPF_ANY);
            bpf_map_delete_elem(&threads, &old);
        }
    }
    scratch = begin_record(task, INGERO_FOOTPRINT_EXEC);
    file = BPF_CORE_READ(program, file);
    if (scratch && file) {
        tell_base(scratch, task, BPF_CORE_READ(file, f_path.dentry), BPF_CORE_READ(file, f_path.mnt));
        tell_program(scratch, BPF_CORE_READ(program, filename), (const void *)BPF_CORE_READ(task, mm, arg_start));
        submit(scratch);
    }
    if (only_owner && (!is_owners(task) || BPF_CORE_READ_BITFIELD_PROBED(program, secureexec))) leave(task, 1);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_end, struct task_struct *task) {
    __u32 tgid = task->tgid, tid = task->pid;

    bpf_map_delete_elem(&threads, &tid); /* also of a process that is no longer followed */
    if (!is_followed(tgid)) return 0;
    if (BPF_CORE_READ(task, signal, live.counter) == 0) leave(task, 0);
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
    pid_level = level;
    pid_namespace = (__u64)number.ns;
    return 0;
}
