/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How the records of a footprint are put together: the paths and endpoints in them.
 */
#ifndef INGERO_FOOTPRINT_RECORD_H
#define INGERO_FOOTPRINT_RECORD_H

#include "footprint.h"
#include "footprint_types.h"

#define MAX_DIRECTORIES 48
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define S_IFMT 0170000
#define S_IFSOCK 0140000

struct ingero_footprint_losses losses;

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20);
} ring SEC(".maps");

/* A record is put together here: the base at most to its bounds, then the text. */
struct scratch {
    struct ingero_footprint_record record;
    char data[INGERO_FOOTPRINT_MAX_BASE + INGERO_FOOTPRINT_MAX_NAME + INGERO_FOOTPRINT_MAX_TEXT];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct scratch);
} scratches SEC(".maps");

#define LOSE(what) __sync_fetch_and_add(&losses.what, 1)

static __always_inline struct scratch *begin_record(struct task_struct *task, __u32 kind) {
    __u32 zero = 0;
    struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);

    if (!scratch) return 0;
    __builtin_memset(&scratch->record, 0, sizeof(scratch->record));
    scratch->record.kind = kind;
    scratch->record.tgid = task->tgid;
    scratch->record.tid = task->pid;
    return scratch;
}

static __always_inline void submit(struct scratch *scratch) {
    __u64 bytes = scratch->record.base_bytes + scratch->record.text_bytes;

    if (bytes > sizeof(scratch->data)) return;
    if (bpf_ringbuf_output(&ring, scratch, sizeof(scratch->record) + bytes, BPF_RB_NO_WAKEUP)) LOSE(records);
}

/* ---- Paths ---- */

struct walk {
    struct scratch *scratch;
    struct dentry *dentry;
    struct vfsmount *mnt;
    struct dentry *root_dentry;
    struct vfsmount *root_mnt;
    __u32 bytes;
    __u32 bits;
};

static long step_up(__u32 index, struct walk *walk) {
    struct dentry *dentry = walk->dentry, *parent;
    struct vfsmount *mnt = walk->mnt;
    long length;

    if (dentry == walk->root_dentry && mnt == walk->root_mnt) return 1;
    if (dentry == BPF_CORE_READ(mnt, mnt_root)) {
        struct mount *mount = (void *)mnt - bpf_core_field_offset(struct mount, mnt);
        struct mount *above = BPF_CORE_READ(mount, mnt_parent);
        if (!above || above == mount) return 1;
        walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
        walk->mnt = (void *)above + bpf_core_field_offset(struct mount, mnt);
        return 0;
    }
    parent = BPF_CORE_READ(dentry, d_parent);
    if (walk->bytes > INGERO_FOOTPRINT_MAX_BASE - INGERO_FOOTPRINT_MAX_NAME || index == MAX_DIRECTORIES - 1) {
        walk->bits |= INGERO_FOOTPRINT_BASE_CUT;
        return 1;
    }
    length = bpf_probe_read_kernel_str(&walk->scratch->data[walk->bytes & (INGERO_FOOTPRINT_MAX_BASE - 1)],
                                       INGERO_FOOTPRINT_MAX_NAME, BPF_CORE_READ(dentry, d_name.name));
    if (length <= 0 || length > INGERO_FOOTPRINT_MAX_NAME) return 1;
    walk->bytes += length;
    if (!parent || parent == dentry) {
        walk->bits |= INGERO_FOOTPRINT_DETACHED;
        return 1;
    }
    walk->dentry = parent;
    return 0;
}

/* As the task sees it, up to its root directory. */
static __always_inline void tell_base(struct scratch *scratch, struct task_struct *task, struct dentry *dentry,
                                      struct vfsmount *mnt) {
    struct walk walk = {.scratch = scratch, .dentry = dentry, .mnt = mnt};

    if (!dentry || !mnt) return;
    walk.root_dentry = BPF_CORE_READ(task, fs, root.dentry);
    walk.root_mnt = BPF_CORE_READ(task, fs, root.mnt);
    bpf_loop(MAX_DIRECTORIES, step_up, &walk, 0);
    scratch->record.base_bytes = walk.bytes & (2 * INGERO_FOOTPRINT_MAX_BASE - 1);
    scratch->record.bits |= walk.bits;
}

static __always_inline struct file *file_of(struct task_struct *task, int fd) {
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    struct file **files, *file = 0;

    if (fd < 0 || (unsigned int)fd >= BPF_CORE_READ(table, max_fds)) return 0;
    files = BPF_CORE_READ(table, fd);
    bpf_probe_read_kernel(&file, sizeof(file), &files[fd]);
    return file;
}

/* After the base. False where the memory cannot be read, now. */
static __always_inline int tell_text(struct scratch *scratch, const void *user) {
    __u32 at = scratch->record.base_bytes;
    long length;

    if (at > INGERO_FOOTPRINT_MAX_BASE) return 0;
    length = bpf_probe_read_user_str(&scratch->data[at], INGERO_FOOTPRINT_MAX_TEXT, user);
    if (length <= 0 || length > INGERO_FOOTPRINT_MAX_TEXT) return 0;
    if (length == INGERO_FOOTPRINT_MAX_TEXT) scratch->record.bits |= INGERO_FOOTPRINT_TEXT_CUT;
    scratch->record.text_bytes = length;
    return 1;
}

static __always_inline int is_relative(const void *user) {
    char first = '/';
    bpf_probe_read_user(&first, 1, user);
    return first != '/';
}

/* ---- Endpoints ---- */

static __always_inline struct sock *sock_of(struct task_struct *task, int fd) {
    struct file *file = file_of(task, fd);
    struct socket *socket;

    if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK) return 0;
    socket = BPF_CORE_READ(file, private_data);
    return BPF_CORE_READ(socket, sk);
}

static __always_inline void tell_socket(struct scratch *scratch, struct sock *sk) {
    if (!sk) return;
    scratch->record.socket_type = BPF_CORE_READ(sk, sk_type);
    scratch->record.protocol = BPF_CORE_READ(sk, sk_protocol);
}

static __always_inline int tell_address(struct scratch *scratch, const void *user, __u64 bytes) {
    if ((int)bytes <= 0) return 0;
    if (bytes > INGERO_FOOTPRINT_MAX_ADDRESS) bytes = INGERO_FOOTPRINT_MAX_ADDRESS;
    if (bpf_probe_read_user(scratch->data, bytes, user)) return 0;
    scratch->record.text_bytes = bytes;
    return 1;
}

/* Of an accepted connection: whose it is, or, of a Unix socket, where it was listened. */
static __always_inline void tell_peer(struct scratch *scratch, struct sock *sk) {
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
    __u16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);

    __builtin_memset(scratch->data, 0, INGERO_FOOTPRINT_MAX_ADDRESS);
    *(__u16 *)scratch->data = family;
    scratch->record.text_bytes = sizeof(family);
    if (family == AF_INET) {
        __u32 address = BPF_CORE_READ(sk, __sk_common.skc_daddr);
        *(__u16 *)(scratch->data + 2) = port;
        *(__u32 *)(scratch->data + 4) = address;
        scratch->record.text_bytes = 16;
    } else if (family == AF_INET6) {
        *(__u16 *)(scratch->data + 2) = port;
        BPF_CORE_READ_INTO((struct in6_addr *)(scratch->data + 8), sk, __sk_common.skc_v6_daddr);
        scratch->record.text_bytes = 28;
    } else if (family == AF_UNIX && bpf_core_type_exists(struct unix_sock)) {
        struct unix_address *address = BPF_CORE_READ((struct unix_sock *)sk, addr);
        __u32 length = address ? BPF_CORE_READ(address, len) : 0;
        if (length > INGERO_FOOTPRINT_MAX_ADDRESS) length = INGERO_FOOTPRINT_MAX_ADDRESS;
        if (length > 0 && !bpf_probe_read_kernel(scratch->data, length,
                                                 (void *)address + bpf_core_field_offset(struct unix_address, name)))
            scratch->record.text_bytes = length;
    }
}

#endif
