/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which device is current for a thread: by the context that it has set, pushed or popped.
 */
#ifndef INGERO_DEVICES_H
#define INGERO_DEVICES_H

#include "thread_state.h"

static __always_inline struct context_key key_of_context(struct thread_state *thread, __u64 context) {
    struct context_key key = {.context = context,
                              .process_start_ns = thread->process_start_ns,
                              .tgid = thread->tgid,
                              .exec_id = thread->exec_id};
    return key;
}

static __always_inline __u32 device_of_context(struct thread_state *thread, __u64 context) {
    struct context_key key = key_of_context(thread, context);
    __u32 *device = context ? bpf_map_lookup_elem(&contexts, &key) : 0;
    return device ? *device : INGERO_DEVICE_UNKNOWN;
}

static __always_inline void use_context(struct thread_state *thread, __u64 context) {
    thread->context = context;
    thread->device = device_of_context(thread, context);
}

static __always_inline void push_context(struct thread_state *thread, __u64 context) {
    __u32 pushed = thread->contexts_pushed;

    if (pushed < MAX_CONTEXTS) thread->below[pushed] = thread->context;
    thread->contexts_pushed = pushed + 1;
    use_context(thread, context);
}

/* Of a stack deeper than what is kept, the lower contexts are not known. */
static __always_inline void pop_context(struct thread_state *thread) {
    __u32 pushed = thread->contexts_pushed;
    __u64 context = 0;

    if (pushed) thread->contexts_pushed = --pushed;
    else return use_context(thread, 0);
    if (pushed < MAX_CONTEXTS) context = thread->below[pushed];
    use_context(thread, context);
}

#endif
