/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a probed call costs in the program that makes it. A loop of calls has the caches to itself; the work of a program
 * takes them from the probes, which then cost two and three times as much. A first part of the entry, which is the same
 * for every call, is timed now and then: what it takes says how far the price lies from that in a loop to that amid work.
 */
#ifndef INGERO_BPF_CALL_PRICE_H
#define INGERO_BPF_CALL_PRICE_H

#include "event.h"

#define INGERO_ENTRIES_A_SAMPLE 64 /* on average, at random: a loop's own period does not decide which */
#define INGERO_MAX_KEEP_ONE_IN 100

/* Of a thread. */
struct ingero_entry_cost {
    ingero_u32 ns_16; /* moving mean over some 16 samples, in sixteenths of a ns; 0: none yet */
    ingero_u32 until_next;
};

/* One that was interrupted counts as the dearest that there is. Returns what counts. */
static inline __attribute__((always_inline)) ingero_u32
ingero_note_entry(struct ingero_entry_cost *cost, const struct ingero_overhead_budget *budget, ingero_u64 took_ns) {
    ingero_u32 most = budget->entry_ns + budget->entry_way_ns + budget->entry_way_ns / 2;
    ingero_u32 ns = !budget->time_all && took_ns > most ? most : (ingero_u32)took_ns;

    cost->ns_16 = cost->ns_16 ? cost->ns_16 - cost->ns_16 / 16 + ns : ns * 16;
    return ns;
}

/* How far from the price in a loop to that amid work, in 256ths; up to half as far again. */
static inline __attribute__((always_inline)) ingero_u32
ingero_price_256(const struct ingero_overhead_budget *budget, const struct ingero_entry_cost *cost) {
    ingero_u32 ns = cost->ns_16 / 16, far;

    if (!budget->entry_way_ns || ns <= budget->entry_ns) return 0;
    far = (ns - budget->entry_ns) * 256 / budget->entry_way_ns;
    return far < 384 ? far : 384;
}

/* Of a call that leaves no record, and of a record besides. */
static inline __attribute__((always_inline)) ingero_u64
ingero_unkept_price(const struct ingero_overhead_budget *costs, const struct ingero_entry_cost *entry) {
    return costs->unkept_ns + (ingero_u64)costs->unkept_more_ns * ingero_price_256(costs, entry) / 256;
}

static inline __attribute__((always_inline)) ingero_u64
ingero_record_price(const struct ingero_overhead_budget *costs, const struct ingero_entry_cost *entry) {
    return costs->record_ns + (ingero_u64)costs->record_more_ns * ingero_price_256(costs, entry) / 256;
}

/*
 * Whether calls cost more than the budget although none leaves a record: `calls` in `elapsed` ns. Of a thread in slices
 * those that they stand for, of `stands_for` ns, which may be longer; and half of the budget is enough.
 */
static inline __attribute__((always_inline)) int ingero_is_storm(const struct ingero_overhead_budget *costs,
                                                                 const struct ingero_entry_cost *entry,
                                                                 ingero_u64 calls, ingero_u64 elapsed,
                                                                 ingero_u64 stands_for) {
    ingero_u64 time = elapsed < stands_for ? stands_for : elapsed;
    ingero_u64 limit = time / 1000 * costs->permille;

    if (stands_for) limit /= 2;
    return costs->permille && calls * ingero_unkept_price(costs, entry) > limit;
}

/* One in how many calls is recorded, where so many were made in `elapsed` ns and a native stack costs `stack_ns`. */
static inline __attribute__((always_inline)) ingero_u32
ingero_choose_keep_one_in(const struct ingero_overhead_budget *costs, const struct ingero_entry_cost *entry,
                          ingero_u64 calls, ingero_u64 elapsed, ingero_u32 stack_ns) {
    ingero_u64 budget = elapsed / 1000 * costs->permille;
    ingero_u64 unkept = calls * ingero_unkept_price(costs, entry);
    ingero_u64 keeping = calls * (ingero_record_price(costs, entry) + stack_ns);
    ingero_u64 keep_one_in;

    if (unkept + keeping <= budget) return 1;
    /* Where the probes alone cost more, leaving out records does not help: those kept may cost a tenth of that. */
    if (budget < unkept + unkept / 10) budget = unkept + unkept / 10;
    if (unkept + keeping <= budget) return 1;
    keep_one_in = keeping / (budget - unkept + 1) + 1;
    return (ingero_u32)(keep_one_in < INGERO_MAX_KEEP_ONE_IN ? keep_one_in : INGERO_MAX_KEEP_ONE_IN);
}

#endif
