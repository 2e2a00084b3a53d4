/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which processes are recorded: what the daemon has decided of each by [capture]. Without a policy this costs one load
 * a call. With one, a process without a decision is not recorded, and the daemon is notified that it called.
 */
#ifndef INGERO_CAPTURE_H
#define INGERO_CAPTURE_H

#include "thread_state.h"

/*
 * 0: every process is recorded. Else the generation of the policy that holds, above 32 bits that change each time a process
 * that was recorded is to be recorded no more: threads keep what was decided for as long as all of it is the same. Mapped by
 * the loader.
 */
__u64 capture_policy;

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

static __always_inline __u64 told_start(struct task_struct *task) {
    __u64 start = task->group_leader->start_boottime;
    return start - start % INGERO_START_UNIT_NS;
}

static __always_inline __u64 policy_now(void) { return *(volatile __u64 *)&capture_policy; }

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

static __always_inline int decision_on(struct task_struct *task, __u64 policy) {
    __u32 process = process_id(task), generation = policy >> 32;
    struct ingero_decision *decision = bpf_map_lookup_elem(&decisions, &process);
    __u64 start = told_start(task);

    /* While a new policy is being applied its decisions hold already. */
    if (!decision || decision->process_start_ns != start || decision->generation - generation > 1) {
        ask_for_decision(process, start, 0);
        return CAPTURE_NO;
    }
    if (decision->inherited) ask_for_decision(process, start, decision->captured);
    if (!decision->captured) return CAPTURE_NO;
    return decision->inherited ? CAPTURE_YES : CAPTURE_CONFIRMED;
}

/*
 * A decision is stored first, and the policy's word changes after it. Looked up behind this, it is therefore at least as new as
 * the word that was read before: an exchange orders all that is read.
 */
static __always_inline void look_up_behind_policy(__u64 *kept_policy) { __sync_lock_test_and_set(kept_policy, 0); }

/* What was decided is kept in the thread: the look-up is made once a thread and policy. */
static __always_inline int is_captured(struct task_struct *task, struct thread_state *thread) {
    __u64 policy = policy_now();
    int captured;

    if (!policy || (thread && thread->policy == policy)) return 1;
    if (thread) look_up_behind_policy(&thread->policy);
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
