/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory that a watched thread had to make room for itself, for the host's sake or its control group's, and processes
 * that were killed for want of it.
 */
#ifndef INGERO_MEMORY_EVENTS_H
#define INGERO_MEMORY_EVENTS_H

#include "watch.h"

static __always_inline int begin_reclaim(void) {
    struct task_struct *current = bpf_get_current_task_btf();
    struct watched *watched = is_watched(current) ? find_watched(current) : 0;

    if (watched && !watched->reclaim_from_ns) watched->reclaim_from_ns = bpf_ktime_get_ns();
    return 0;
}

static __always_inline int end_reclaim(unsigned long pages) {
    struct task_struct *current = bpf_get_current_task_btf();
    struct watched *watched = is_watched(current) ? find_watched(current) : 0;
    __u64 now;

    if (!watched || !watched->reclaim_from_ns) return 0;
    now = bpf_ktime_get_ns();
    if (!watched->reclaims) watched->reclaimed_from_ns = watched->reclaim_from_ns;
    watched->reclaimed_ns += now - watched->reclaim_from_ns;
    watched->reclaimed_pages += pages;
    watched->reclaims++;
    if (!is_ring_filling() && has_record_left(watched, now)) tell_reclaims(watched, current);
    watched->reclaim_from_ns = 0;
    return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(on_reclaim) { return begin_reclaim(); }

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_reclaimed, unsigned long pages) { return end_reclaim(pages); }

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(on_group_reclaim) { return begin_reclaim(); }

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_group_reclaimed, unsigned long pages) { return end_reclaim(pages); }

static __always_inline struct ingero_wait_record *begin_victim(void) {
    struct ingero_wait_record *record = reserve(sizeof(*record));

    if (!record) {
        __sync_fetch_and_add(&waits_lost, 1);
        return 0;
    }
    __builtin_memset(record, 0, sizeof(*record));
    record->type = INGERO_RECORD_WAIT;
    record->op = INGERO_OP_OOM_KILL;
    record->start_ns = bpf_ktime_get_ns();
    record->blocked_syscall = 0xffff;
    record->cpu = bpf_get_smp_processor_id();
    return record;
}

/* Of whatever process: who goes short may be another than who took it all. */
static __always_inline int tell_victim(struct task_struct *victim) {
    struct ingero_wait_record *record = begin_victim();

    if (!record) return 0;
    record->process_start_ns = BPF_CORE_READ(victim, group_leader, start_boottime);
    record->tgid = pid_level == 0 ? (__u32)BPF_CORE_READ(victim, tgid)
                                  : pid_in_namespace(BPF_CORE_READ(victim, group_leader));
    record->tid = record->tgid;
    record->uid = BPF_CORE_READ(victim, cred, uid.val);
    record->level = INGERO_LEVEL_NOT_WATCHED;
    bpf_probe_read_kernel(record->comm, sizeof(record->comm), victim->comm);
    submit(record);
    return 0;
}

/* By the id that the thread has in the kernel: of others than watched threads nothing more is known. */
static __always_inline int tell_watched_victim(__u32 pid) {
    struct watched *watched = bpf_map_lookup_elem(&watched_threads, &pid);
    struct ingero_wait_record *record;

    if (!watched) return 0;
    record = begin_victim();
    if (!record) return 0;
    record->process_start_ns = watched->process_start_ns;
    record->tgid = watched->tgid;
    record->tid = watched->tgid;
    record->uid = watched->uid;
    record->level = watched->level;
    submit(record);
    return 0;
}

SEC("raw_tp/mark_victim")
int on_victim(struct bpf_raw_tracepoint_args *ctx) {
    __u64 victim = ctx->args[0];

    if (!wait_floor_ns) return 0;
    /* Before Linux 6.8 (72ba14deb40a) the tracepoint passed its pid, not the task. */
    if (victim < WATCHED_PIDS) return tell_watched_victim(victim);
    return tell_victim((struct task_struct *)victim);
}

#endif
