/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How many calls one stands for that is observed in a slice. The thread's other calls, which are all observed, show how
 * many it made: as many to each of them as in slices.
 */
#ifndef INGERO_BPF_SLICE_WORTH_H
#define INGERO_BPF_SLICE_WORTH_H

#include "event.h"

#define INGERO_LEAST_PACE 4 /* other calls in slices: of fewer nothing follows */

/* What a thread did in the latest slice. */
struct ingero_in_slice {
    ingero_u32 calls;
    ingero_u32 others;
    ingero_u32 calls_at_first_other; /* before it, and before the last one */
    ingero_u32 calls_at_last_other;
};

static inline __attribute__((always_inline)) void ingero_fade(ingero_u32 *sum) { *sum -= (*sum + 8) / 16; }

/* A slice has ended, and `slices` - 1 more in which the thread did not call; they had `us` us together. */
static inline __attribute__((always_inline)) void ingero_add_slice(struct ingero_pace *pace,
                                                                   const struct ingero_in_slice *latest,
                                                                   ingero_u32 slices, ingero_u32 us) {
    ingero_u64 calls = (ingero_u64)latest->calls * pace->slices;

    /* Four times as many calls as in those before, or a quarter: it does something else now. */
    if (calls / 4 > pace->calls || calls * 4 < pace->calls) __builtin_memset(pace, 0, sizeof(*pace));
    pace->squares -= pace->squares / 16;
    ingero_fade(&pace->slices);
    ingero_fade(&pace->calls);
    ingero_fade(&pace->others);
    ingero_fade(&pace->cycles);
    ingero_fade(&pace->in_cycles);
    ingero_fade(&pace->us);
    pace->squares += (ingero_u64)latest->others * latest->others * 16;
    pace->slices += slices * 16;
    pace->calls += latest->calls * 16;
    pace->others += latest->others * 16;
    pace->us += us;
    if (latest->others < 2) return;
    pace->cycles += (latest->others - 1) * 16;
    pace->in_cycles += (latest->calls_at_last_other - latest->calls_at_first_other) * 16;
}

/* How many other calls the slices held by how many calls a cycle has, in 16ths; 0: not known. */
static inline __attribute__((always_inline)) ingero_u64 ingero_others_by_cycles(const struct ingero_pace *pace) {
    return pace->in_cycles ? (ingero_u64)pace->calls * pace->cycles / pace->in_cycles : 0;
}

/*
 * Where a slice begins and ends decides on one other call more or less. If there are as many calls in each cycle, these say
 * in parts how many a slice held, which then agrees with what was counted. Where cycles differ, those that are whole in a
 * slice are rather the short ones.
 */
static inline __attribute__((always_inline)) int ingero_are_cycles_alike(const struct ingero_pace *pace) {
    ingero_u64 by_cycles = ingero_others_by_cycles(pace);
    ingero_u64 apart = by_cycles > pace->others ? by_cycles - pace->others : pace->others - by_cycles;

    return by_cycles && apart < 1ULL << 31 && apart * apart <= (ingero_u64)pace->slices * 16; /* one a slice, at random */
}

/*
 * What the program itself takes to get from one call of those in slices to the next, in ps: it made `others` other calls in
 * the `ns` before, and makes as many calls to one of them as in slices. 0: not known.
 */
static inline __attribute__((always_inline)) ingero_u64 ingero_own_ps(const struct ingero_pace *pace, ingero_u64 ns,
                                                                      ingero_u64 others) {
    ingero_u64 in_slices = ingero_are_cycles_alike(pace) ? ingero_others_by_cycles(pace) : pace->others;
    ingero_u64 product;

    if (pace->others < INGERO_LEAST_PACE * 16 || !pace->calls || !others || ns > 1ULL << 33 || in_slices > 1U << 28)
        return 0;
    product = ns * in_slices / others;
    return product < 1ULL << 53 ? product * 1000 / pace->calls : 0;
}

/*
 * Of a slice of `length` ns the program's own time: as long as it takes without probes for the calls that come in it. How
 * many these will be follows from those that came up to now, and at first from how often they came in the slices before.
 * By the price of a call where nothing else is known.
 */
static inline __attribute__((always_inline)) ingero_u64 ingero_own_time(const struct ingero_pace *pace, ingero_u64 own_ps,
                                                                        ingero_u64 length, ingero_u64 elapsed,
                                                                        ingero_u64 calls, ingero_u64 call_cost_ns) {
    ingero_u64 before = pace->calls ? 32 : 0, own;

    if (elapsed > length) elapsed = length;
    if (before) elapsed += (ingero_u64)pace->us * 1000 * 16 * before / pace->calls;
    calls = length * (calls + before) / (elapsed + 1);
    if (own_ps) own = calls * own_ps / 1000;
    else own = calls * call_cost_ns < length ? length - calls * call_cost_ns : 0;
    return own < length ? own : length;
}

/*
 * How many calls one in a slice of `length` ns stands for, of which `own` was the program's: for itself, and for as many as
 * come in the time that the slice stands for besides its own. By a random number, so that on average it is just the ratio.
 */
static inline __attribute__((always_inline)) ingero_u32 ingero_slice_worth(ingero_u64 length, ingero_u64 own,
                                                                           ingero_u64 stands_for, ingero_u32 random) {
    if (stands_for < length) return 1;
    if (own < length / 16) own = length / 16; /* what is left of less is no measure */
    if (own == 0) return 1;
    return (ingero_u32)(1 + (stands_for - length + random % (ingero_u32)own) / own);
}

#endif
