/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel structures that are read, with only the fields that are used. Offsets come from the running kernel's BTF.
 */
#ifndef INGERO_KERNEL_TYPES_H
#define INGERO_KERNEL_TYPES_H

typedef _Bool bool;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_local_storage;

struct super_block {
    __u32 s_dev;
    unsigned long s_magic;
};

struct inode {
    unsigned short i_mode;
    struct super_block *i_sb;
    unsigned long i_ino;
};

struct file {
    struct inode *f_inode;
    void *private_data;
};

struct vm_area_struct {
    struct file *vm_file;
};

typedef struct {
    __u32 val;
} kuid_t;

struct cred {
    kuid_t uid;
};

struct cfs_rq {
    int throttle_count;
};

struct sched_entity {
    struct cfs_rq *cfs_rq;
    unsigned long long sum_exec_runtime;
    unsigned long long nr_migrations;
};

struct gendisk {
    int major;
    int first_minor;
};

struct request_queue {
    struct gendisk *disk;
};

struct bio {
    void *bi_io_vec;
};

struct request {
    struct bio *bio;
    struct request_queue *q;
    __u32 cmd_flags;
    unsigned int __data_len;
    __u64 start_time_ns;
    __u64 io_start_time_ns;
};

struct in6_addr {
    __u64 words[2];
};

struct socket;
struct pid;

struct sock_common {
    __u32 skc_daddr;
    __u16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    unsigned char skc_state;
    struct in6_addr skc_v6_daddr;
};

struct sock {
    struct sock_common __sk_common;
    struct pid *sk_peer_pid;
    struct socket *sk_socket;
    kuid_t sk_uid;
    int sk_err;
};

struct inet_connection_sock {
    __u8 icsk_pending;
};

struct tcp_sock {
    __u64 delivered_mstamp;
    __u32 packets_out;
    __u32 snd_wnd;
};

struct socket {
    struct file *file;
    struct sock *sk;
};

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};

struct files_struct {
    struct fdtable *fdt;
};

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
    int group_exit_code;
};

struct sched_info {
    unsigned long long run_delay;
};

struct thread_info {
    __u32 cpu;
};

struct xol_area {
    unsigned long vaddr;
};

struct uprobes_state {
    struct xol_area *xol_area;
};

struct mm_struct {
    struct uprobes_state uprobes_state;
};

struct pid_namespace;

struct upid {
    int nr;
    struct pid_namespace *ns;
};

struct pid {
    unsigned int level;
    struct upid numbers[1];
};

/* A return that a return probe waits for, innermost first. */
struct return_instance {
    unsigned long func;
    unsigned long stack;
};
struct uprobe_task {
    struct return_instance *return_instances;
};

struct seccomp {
    int mode; /* 0: the thread is under no filter */
};

struct task_struct {
    struct thread_info thread_info;
    unsigned int __state;
    void *stack;
    struct sched_info sched_info;
    struct mm_struct *mm;
    int exit_code;
    unsigned in_iowait : 1;
    unsigned int flags;
    unsigned long jobctl;
    struct sched_entity se;
    const struct cred *cred;
    int pid;
    int tgid;
    struct task_struct *real_parent;
    struct task_struct *group_leader;
    struct pid *thread_pid;
    unsigned long nvcsw;
    unsigned long nivcsw;
    __u64 start_boottime;
    __u64 self_exec_id;
    char comm[16];
    struct files_struct *files;
    struct signal_struct *signal;
    struct bpf_local_storage *bpf_storage;
    struct uprobe_task *utask;
    unsigned long sas_ss_sp; /* of the stack that signals are handled on */
    unsigned long sas_ss_size;
    struct seccomp seccomp;
};

/* Before Linux 5.16 (bcf9033e5449) the CPU stood in the task itself. */
struct task_struct___before_5_16 {
    unsigned int cpu;
};

/* Since Linux 6.18 a task is throttled, and before its queue was. */
struct task_struct___throttled {
    bool throttled;
};

struct seq_file;

struct bpf_iter_meta {
    struct seq_file *seq;
};

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

#if defined(__TARGET_ARCH_x86)
/* Also the context of uprobe programs, whose layout is fixed: all fields, in the kernel's order. */
struct pt_regs {
    unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
    __u64 regs[31];
    __u64 sp;
    __u64 pc;
    __u64 pstate;
    __u64 orig_x0;
    __s32 syscallno;
};
#else
#error "no register layout for this architecture"
#endif

#pragma clang attribute pop

#endif
