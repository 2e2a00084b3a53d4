/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel structures that footprint.bpf.c reads, with only the fields that are used. Offsets come from the running
 * kernel's BTF.
 */
#ifndef INGERO_FOOTPRINT_TYPES_H
#define INGERO_FOOTPRINT_TYPES_H

#include <linux/in6.h>
#include <linux/un.h>

typedef _Bool bool;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr {
    const unsigned char *name;
};

struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
};

struct vfsmount {
    struct dentry *mnt_root;
};

struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
};

struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
};

struct inode {
    unsigned short i_mode;
};

struct file {
    struct path f_path;
    struct inode *f_inode;
    void *private_data;
};

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};

struct files_struct {
    struct fdtable *fdt;
};

struct fs_struct {
    struct path root;
    struct path pwd;
};

struct sock_common {
    unsigned short skc_family;
    unsigned short skc_dport;
    unsigned int skc_daddr;
    struct in6_addr skc_v6_daddr;
};

struct sock {
    struct sock_common __sk_common;
    unsigned short sk_type;
    unsigned short sk_protocol;
};

struct socket {
    struct sock *sk;
};

struct unix_address {
    int len;
    struct sockaddr_un name[0];
};

struct unix_sock {
    struct unix_address *addr;
};

struct kuid {
    unsigned int val;
};

struct cred {
    struct kuid uid, suid, euid;
};

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
};

struct thread_info {
    unsigned long flags;
    unsigned int status;
};

struct mm_struct {
    unsigned long arg_start;
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

struct task_struct {
    struct thread_info thread_info;
    struct mm_struct *mm;
    int pid;
    int tgid;
    struct task_struct *group_leader;
    struct pid *thread_pid;
    __u64 start_boottime;
    const struct cred *cred;
    char comm[16];
    struct fs_struct *fs;
    struct files_struct *files;
    struct signal_struct *signal;
};

struct linux_binprm {
    unsigned int secureexec : 1;
    struct file *file;
    const char *filename;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long r10, r9, r8, dx, si, di;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
    __u64 regs[31];
};
#else
#error "no register layout for this architecture"
#endif

#pragma clang attribute pop

#endif
