/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a stack walk costs its thread, by timing a few of them. */
#ifndef INGERO_BPF_WALK_COST_H
#define INGERO_BPF_WALK_COST_H

#include "event.h"

#define INGERO_WALKS_A_SAMPLE 128
#define INGERO_WALKS_A_FIRST_SAMPLE 16 /* of the first two; and the first walks of all look everything up */

struct ingero_walk_cost {
    ingero_u32 ns; /* of a walk, the median of the latest three samples; 0: there are fewer than two */
    ingero_u32 walks;
    ingero_u32 last_ns; /* samples */
    ingero_u32 second_last_ns;
};

/* A walk begins: whether it is to be timed. */
static inline __attribute__((always_inline)) int ingero_is_walk_timed(struct ingero_walk_cost *cost) {
    cost->walks++;
    return cost->walks % (cost->second_last_ns ? INGERO_WALKS_A_SAMPLE : INGERO_WALKS_A_FIRST_SAMPLE) == 0;
}

/* A walk in the middle of which the thread was preempted says nothing of what walks cost. Of two the lower counts. */
static inline __attribute__((always_inline)) void ingero_note_walk(struct ingero_walk_cost *cost, ingero_u64 took_ns) {
    ingero_u32 last = cost->last_ns, second = cost->second_last_ns;
    ingero_u32 low = last < second ? last : second, high = last < second ? second : last;
    ingero_u32 now = took_ns < 0xffffffff ? (ingero_u32)took_ns : 0xffffffff;

    cost->second_last_ns = last;
    cost->last_ns = now;
    if (!last) return;
    if (second) cost->ns = now < low ? low : now < high ? now : high;
    else cost->ns = now < last ? now : last;
}

#endif
