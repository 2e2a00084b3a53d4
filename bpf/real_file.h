/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The file behind a mapping of the loader's own: of a file on an overlay, the one in a layer, in which its probes lie.
 * What the mapping itself is said to be of is the overlay's, since Linux 6.8.
 */
#ifndef INGERO_REAL_FILE_H
#define INGERO_REAL_FILE_H

#include "kernel_types.h"
#include "real_file_part.h"

struct real_file {
    __u64 inode;
    __u32 device;
};

static long note_real_file(struct task_struct *task, struct vm_area_struct *vma, struct real_file *found) {
    struct inode *inode = BPF_CORE_READ(vma, vm_file, f_inode);

    found->inode = BPF_CORE_READ(inode, i_ino);
    found->device = BPF_CORE_READ(inode, i_sb, s_dev);
    return 0;
}

/* Run by the loader in its own context, of an address and the part that is asked for; 0: nothing is mapped there. */
SEC("raw_tp")
int find_real_file(struct bpf_raw_tracepoint_args *ctx) {
    struct real_file found = {};

    bpf_find_vma(bpf_get_current_task_btf(), ctx->args[0], note_real_file, &found, 0);
    if (ctx->args[1] == INGERO_REAL_FILE_DEVICE) return found.device;
    return ctx->args[1] == INGERO_REAL_FILE_INODE_LOW ? (__u32)found.inode : found.inode >> 32;
}

#endif
