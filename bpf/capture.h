/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which processes are recorded: what the daemon has decided of each by [capture]. Without a policy this costs one load
 * a call. With one, a process that nothing is decided of is not recorded, and the daemon is told that it called.
 */
#ifndef INGERO_CAPTURE_H
#define INGERO_CAPTURE_H

#include "thread_state.h"

/* 0: every process is recorded. Else the generation of the policy that holds. Mapped by the loader. */
__u32 capture_policy;

/* By process id, as the daemon sees it. The oldest goes where there is no room, and is then decided anew. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, __u32);
    __type(value, struct ingero_decision);
} decisions SEC(".maps");

/* Processes that called before anything was decided of them, for the daemon to fetch. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, struct ingero_undecided);
} undecided SEC(".maps");

#define START_UNIT_NS 10000000 /* of a start time in /proc */

static __always_inline __u64 told_start(struct task_struct *task) {
    __u64 start = task->group_leader->start_boottime;
    return start - start % START_UNIT_NS;
}

static __always_inline __u32 policy_now(void) { return *(volatile __u32 *)&capture_policy; }

static __always_inline void ask_for_decision(__u32 process, __u64 start, __u32 recorded) {
    struct ingero_undecided asked = {.process_start_ns = start, .recorded = recorded};
    struct ingero_undecided *known = bpf_map_lookup_elem(&undecided, &process);
    if (known && known->process_start_ns == start) return;
    asked.time_ns = bpf_ktime_get_ns();
    bpf_map_update_elem(&undecided, &process, &asked, BPF_ANY);
}

#define CAPTURE_NO 0
#define CAPTURE_YES 1        /* by the decision on its parent */
#define CAPTURE_CONFIRMED 2  /* by a decision on the process itself */

static __always_inline int decision_on(struct task_struct *task, __u32 policy) {
    __u32 process = process_id(task);
    struct ingero_decision *decision = bpf_map_lookup_elem(&decisions, &process);
    __u64 start = told_start(task);

    /* While a new policy is being applied its decisions hold already. */
    if (!decision || decision->process_start_ns != start || decision->generation - policy > 1) {
        ask_for_decision(process, start, 0);
        return CAPTURE_NO;
    }
    if (decision->inherited) ask_for_decision(process, start, decision->captured);
    if (!decision->captured) return CAPTURE_NO;
    return decision->inherited ? CAPTURE_YES : CAPTURE_CONFIRMED;
}

/* What was decided is kept in the thread: the look-up is made once a thread and policy. */
static __always_inline int is_captured(struct task_struct *task, struct thread_state *thread) {
    __u32 policy = policy_now();
    int captured;

    if (!policy || (thread && thread->policy == policy)) return 1;
    captured = decision_on(task, policy);
    if (thread && captured == CAPTURE_CONFIRMED) thread->policy = policy;
    return captured != CAPTURE_NO;
}

static __always_inline void inherit_decision(struct task_struct *parent, struct task_struct *child) {
    __u32 from = process_id(parent), to = process_id(child);
    struct ingero_decision *known, decision;

    if (!policy_now() || child->tgid == parent->tgid) return;
    known = bpf_map_lookup_elem(&decisions, &from);
    if (!known || known->process_start_ns != told_start(parent)) return;
    decision = *known;
    decision.process_start_ns = told_start(child);
    decision.inherited = 1;
    bpf_map_update_elem(&decisions, &to, &decision, BPF_ANY);
}

static __always_inline void forget_decision(struct task_struct *task) {
    __u32 process = process_id(task);
    if (policy_now()) bpf_map_delete_elem(&decisions, &process);
}

#endif
