/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The overhead budget. A thread whose calls cost it more than its share has the records of its hottest ops thinned: one
 * in so many is kept and says how many it stands for, so that sums over the records stay what they were. What failed,
 * waited or took long is always kept, and so is every call of an op that has no slot. A ring that fills, because the
 * reader is held up, keeps its last quarter for those, but for waits of a few us, of which a busy CPU makes thousands:
 * the next record of the others stands for what found no room. In its last eighth those of a hot op that did not fail
 * are counted lost, so that failures have room. So is what is left out when a thread ends.
 *
 * Each thread decides for itself, ten times a second: nobody's storm thins the calls of another.
 */
#ifndef INGERO_THINNING_H
#define INGERO_THINNING_H

#include "slices.h"
#include "stacks.h"
#include "thread_state.h"

#define BUDGET_WINDOW_NS 100000000ULL
#define SLOW_CALL_NS 50000
#define MAX_UNKEPT 4096

/* Set by the loader, also while the programs run. */
struct ingero_overhead_budget overhead_budget;
/* By symbol: 0 for ops that are never thinned; and, of each slot, the symbol that is charged for its op. */
__u8 thin_slots[INGERO_MAX_SYMBOLS];
__u8 thin_symbols[INGERO_THIN_SLOTS];

static __always_inline int is_entry_timed(struct thread_state *thread) {
    if (overhead_budget.time_all) return 1;
    if (thread->entry_cost.until_next) {
        thread->entry_cost.until_next--;
        return 0;
    }
    thread->entry_cost.until_next = bpf_get_prandom_u32() % (2 * INGERO_ENTRIES_A_SAMPLE - 1);
    return 1;
}

static __always_inline __u32 slot_of(__u64 cookie) {
    return thin_slots[(cookie >> 16) & 0xff] & (INGERO_THIN_SLOTS - 1);
}

/* A call of the thread that began at `start` has returned. Returns what it is worth: more than 1 in a slice. */
static __always_inline struct ingero_worth count_call(struct thread_state *thread, __u64 cookie, __u64 start, __u64 now) {
    __u64 elapsed = now - thread->window_from_ns;
    __u32 stack_ns = stack_control.enabled ? thread->walk.cost.ns : 0;
    __u32 unkept_ns = ingero_unkept_price(&overhead_budget, &thread->entry_cost);
    __u32 call_ns = unkept_ns + ingero_record_price(&overhead_budget, &thread->entry_cost) + stack_ns;
    int tells_pace = !slot_of(cookie) && !thread->depth;
    struct ingero_worth worth = count_in_slice(thread, cookie, start, now, tells_pace, call_ns);

    thread->window_calls++;
    thread->window_worth += worth.calls;
    thread->slot_worth[slot_of(cookie)] += worth.calls;
    if (overhead_budget.keep_one_in) thread->keep_one_in = overhead_budget.keep_one_in;
    if (elapsed < BUDGET_WINDOW_NS) return worth;
    thread->keep_one_in = 1;
    if (overhead_budget.permille)
        thread->keep_one_in =
            ingero_choose_keep_one_in(&overhead_budget, &thread->entry_cost, thread->window_calls, elapsed, stack_ns);
    tell_storm(thread, &overhead_budget, elapsed, now);
    __builtin_memset(thread->slot_worth, 0, sizeof(thread->slot_worth));
    thread->window_worth = 0;
    thread->window_calls = 0;
    thread->window_from_ns = now;
    return worth;
}

/* As far as is known at its entry: one that fails or takes long gets a record all the same, without a stack. */
static __always_inline int is_to_be_left_out(struct thread_state *thread, __u64 cookie) {
    __u32 slot = slot_of(cookie);

    return slot && !is_sliced(cookie) && thread->keep_one_in > 1 && thread->unkept[slot] < thread->keep_after[slot];
}

static __always_inline int is_any_budget(void) { return overhead_budget.permille || overhead_budget.keep_one_in; }

/*
 * What the record of this call, which is worth so much itself, stands for; 0 calls where it is left out. `ret_thinned` of
 * them were counted as thinned.
 */
static __always_inline struct ingero_worth weigh_call(struct thread_state *thread, __u64 cookie, __u64 duration_ns,
                                                      int waited, struct ingero_worth worth, __u32 *ret_thinned) {
    __u32 slot = slot_of(cookie), keep_one_in = thread->keep_one_in, unkept;
    struct ingero_worth alone = {1, 1}, none = {0, 0};

    *ret_thinned = 0;
    if (slot == 0 || duration_ns >= SLOW_CALL_NS) return alone;
    unkept = thread->unkept[slot];
    if (is_sliced(cookie)) {
        if (waited) return alone;
        thread->unkept[slot] = 0;
        *ret_thinned = unkept;
        worth.calls += unkept;
        worth.times += unkept;
        return worth;
    }
    if ((keep_one_in > 1 && unkept < thread->keep_after[slot] && !waited) ||
        (unkept < MAX_UNKEPT && is_any_budget() && is_ring_filling())) {
        thread->unkept[slot] = unkept + 1;
        return none;
    }
    if (waited || (keep_one_in <= 1 && unkept == 0)) return alone; /* its waits are its own */
    thread->unkept[slot] = 0;
    /* At random, so that a loop's own period does not decide which of its calls is seen. */
    thread->keep_after[slot] = bpf_get_prandom_u32() % (2 * (keep_one_in & 0xff) - 1 ?: 1);
    *ret_thinned = unkept;
    alone.calls = alone.times = unkept + 1;
    return alone;
}

/* Whether a call that did not fail is to leave its room in the ring to those that do. */
static __always_inline int is_to_make_room(__u64 cookie, __u64 duration_ns, int waited) {
    return slot_of(cookie) && (waited || duration_ns >= SLOW_CALL_NS) && is_any_budget() && is_ring_almost_full();
}

/* The thread ends: no record will come to stand for those left out since the last. */
static __always_inline void lose_unkept(struct thread_state *thread) {
    for (__u32 slot = 1; slot < INGERO_THIN_SLOTS; slot++) {
        __u32 index = thin_symbols[slot], unkept = thread->unkept[slot];
        struct ingero_call_counters *counters;

        if (unkept == 0) continue;
        counters = bpf_map_lookup_elem(&call_counters, &index);
        COUNT_BY(counters, lost_ring, unkept);
        COUNT_BY(counters, thinned, -(__s64)unkept);
        thread->unkept[slot] = 0;
    }
}

#endif
