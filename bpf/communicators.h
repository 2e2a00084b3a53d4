/* SPDX-License-Identifier: GPL-2.0 */
/*
 * NCCL: which communicator a call uses, and the number of each collective within it. A communicator is known from the
 * call that made it, or, where that was before it was traced, from the first that uses it.
 *
 * Most functions are global: the verifier looks at each once and for itself, and not again for each way on which a call
 * of any library gets on from there. They are given no context, so what a call was made with is noted in the thread.
 */
#ifndef INGERO_COMMUNICATORS_H
#define INGERO_COMMUNICATORS_H

#include "arguments.h"
#include "devices.h"

#define MAX_INIT_ALL 16 /* communicators of one ncclCommInitAll: devices of a host */

struct communicator {
    __u64 id;
    __u64 hash;
    __u32 rank; /* as two's complement */
    __u32 ranks;
    __u32 collectives; /* made so far */
    __u32 messages;    /* sends and receives */
    __u32 splits;
    __u32 reserved;
};

/* By handle. The least used goes where there is no room, and is found anew. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct context_key);
    __type(value, struct communicator);
} communicators SEC(".maps");

__u64 communicators_told; /* those for which a ring had no room are counted in names_lost */

static __always_inline int is_nccl(__u64 cookie) { return shape_of(cookie) >= INGERO_SHAPE_COLLECTIVE; }

/* Never another's in its process, also after a restart of the daemon. */
static __always_inline __u64 new_communicator_id(__u64 now) {
    return (now & ~0xfffULL) | (__sync_fetch_and_add(&communicators_told, 1) & 0xfff);
}

/* As of splitmix64. */
static __always_inline __u64 mix(__u64 value) {
    value += 0x9e3779b97f4a7c15ULL;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

/* 0 says that there is none. */
static __always_inline __u64 nonzero(__u64 hash) { return hash ? hash : 1; }

static __always_inline __u64 hash_unique_id(struct thread_state *thread, __u64 address) {
    __u64 hash = 0;

    if (bpf_probe_read_user(thread->unique_id, sizeof(thread->unique_id), (void *)address) != 0) return 0;
    for (int i = 0; i < 16; i++) hash = mix(hash ^ thread->unique_id[i]);
    return nonzero(hash);
}

static __always_inline void tell_communicator(struct thread_state *thread, const struct made_communicator *made,
                                              __u64 handle, __u64 now) {
    struct ingero_communicator_record *record = reserve(sizeof(*record));

    if (!record) {
        __sync_fetch_and_add(&names_lost, 1);
        return;
    }
    record->type = INGERO_RECORD_COMMUNICATOR;
    record->tgid = thread->tgid;
    record->process_start_ns = thread->process_start_ns;
    record->time_ns = now;
    record->id = made->id;
    record->handle = handle;
    record->hash = made->hash;
    record->parent = made->parent;
    record->parent_hash = made->parent_hash;
    record->rank = made->rank;
    record->ranks = made->ranks;
    record->color = made->color;
    record->key = made->key;
    record->split = made->split;
    record->origin = made->origin;
    submit(record);
}

__noinline int keep_communicator(struct thread_state *thread, struct made_communicator *made, __u64 handle, __u64 now) {
    struct communicator fresh = {};
    struct context_key key;

    if (!thread || !made) return 0;
    key = key_of_context(thread, handle);
    fresh.id = made->id;
    fresh.hash = made->hash;
    fresh.rank = made->rank;
    fresh.ranks = made->ranks;
    if (handle) bpf_map_update_elem(&communicators, &key, &fresh, BPF_ANY);
    tell_communicator(thread, made, handle, now);
    return 0;
}

/*
 * Made within a group, or by a communicator that does not block: the handle is put where the program said only later. A
 * handle that is asked for is looked for there; at the outermost group's end (wanted 0) all are.
 */
__noinline int settle_pending(struct thread_state *thread, __u64 wanted, __u64 now) {
    if (!thread) return 0;
    for (int i = 0; i < MAX_PENDING_COMMUNICATORS; i++) {
        struct made_communicator *made = &thread->pending[i];
        __u64 handle = 0;
        if (!made->out) continue;
        bpf_probe_read_user(&handle, sizeof(handle), (void *)made->out);
        if (!handle || (wanted && handle != wanted)) continue;
        keep_communicator(thread, made, handle, now);
        made->out = 0;
    }
    return 0;
}

static __always_inline struct communicator *known_communicator(struct thread_state *thread, __u64 handle) {
    struct context_key key = key_of_context(thread, handle);
    return bpf_map_lookup_elem(&communicators, &key);
}

/* Makes one of a handle that is met for the first time. */
__noinline int meet_communicator(struct thread_state *thread, __u64 handle, __u64 now) {
    struct made_communicator *found;

    if (!thread) return 0;
    settle_pending(thread, handle, now);
    if (known_communicator(thread, handle)) return 0;
    found = &thread->made;
    __builtin_memset(found, 0, sizeof(*found));
    found->id = new_communicator_id(now);
    found->rank = -1;
    found->origin = INGERO_COMMUNICATOR_FOUND;
    return keep_communicator(thread, found, handle, now);
}

static __always_inline struct communicator *find_communicator(struct thread_state *thread, __u64 handle, __u64 now) {
    struct communicator *known = known_communicator(thread, handle);

    if (known || !handle) return known;
    meet_communicator(thread, handle, now);
    return known_communicator(thread, handle);
}

/* Before a call's enter_nccl_call(). */
static __always_inline void note_nccl_call(struct call_context *ctx, struct thread_state *thread) {
    struct parameters parameters;

    read_registers(ctx, &parameters);
    for (__u32 i = 0; i <= PARAMETER_MASK; i++) thread->nccl_call.parameters[i] = parameters.value[i];
    thread->nccl_call.stack = stack_parameters(ctx);
    thread->nccl_call.unique_id = unique_id_address(ctx);
}

static __always_inline __u64 parameter(struct thread_state *thread, __u32 number) {
    __u64 value = 0;

    if (number <= REGISTER_PARAMETERS) return thread->nccl_call.parameters[number & PARAMETER_MASK];
    bpf_probe_read_user(&value, sizeof(value),
                        (void *)(thread->nccl_call.stack + 8 * (number - REGISTER_PARAMETERS - 1)));
    return value;
}

/* Bytes by ncclDataType_t, from the lowest: int8, uint8, int32, uint32, int64, uint64, and floating point of 16, 32, 64, 16
 * (bfloat) and 8 bits twice. */
#define DATATYPE_BYTES 0x112842884411ULL
#define DATATYPES 12

static __always_inline __u64 pack_collective(struct thread_state *thread, __u32 datatype, __u32 reduction, __u64 peer,
                                             int nested) {
    __u64 group = thread->group_depth < 7 ? thread->group_depth : 7;

    return (__u64)(datatype < DATATYPES ? datatype : INGERO_DATATYPE_UNKNOWN) << INGERO_COLLECTIVE_DATATYPE_SHIFT |
           (__u64)reduction << INGERO_COLLECTIVE_REDUCTION_SHIFT | group << INGERO_COLLECTIVE_GROUP_SHIFT |
           (__u64)nested << INGERO_COLLECTIVE_NESTED_SHIFT | (peer & 0x1fffff) << INGERO_COLLECTIVE_PEER_SHIFT;
}

#define NCCL_SEND 7 /* core/model/op.h */
#define NCCL_RECV 8

static __always_inline __u32 *counter_of(struct communicator *communicator, __u64 cookie) {
    __u8 number = cookie;
    return number == NCCL_SEND || number == NCCL_RECV ? &communicator->messages : &communicator->collectives;
}

static __always_inline int is_inside_collective(struct thread_state *thread, __u32 depth) {
    __u32 below = depth - 1;
    return below < INGERO_MAX_DEPTH && shape_of(thread->frames[below].cookie) == INGERO_SHAPE_COLLECTIVE;
}

__noinline int enter_collective(struct thread_state *thread, __u32 depth) {
    __u32 count_at, at, peer_at, reduction_at, datatype, nested, reduction = INGERO_REDUCTION_NONE;
    struct communicator *communicator;
    __u64 cookie, count, peer = 0, now;
    struct frame *frame;

    if (!thread || depth >= INGERO_MAX_DEPTH) return 0;
    frame = &thread->frames[depth];
    cookie = frame->cookie;
    nested = is_inside_collective(thread, depth);
    count_at = (cookie >> 32) & INGERO_ARG_NUMBER;
    at = (cookie >> 40) & INGERO_ARG_NUMBER;
    peer_at = (cookie >> 48) & INGERO_ARG_NUMBER;
    reduction_at = (cookie >> 56) & INGERO_ARG_NUMBER;
    count = parameter(thread, count_at);
    datatype = parameter(thread, count_at + 1);
    if (reduction_at) {
        reduction = parameter(thread, reduction_at);
        if (reduction > INGERO_REDUCTION_OWN) reduction = INGERO_REDUCTION_OWN;
    }
    if (peer_at) peer = (__u64)(__u32)parameter(thread, peer_at) + 1;
    frame->communicator = parameter(thread, at);
    frame->stream = parameter(thread, at + 1);
    frame->args[0] = datatype < DATATYPES ? count * (DATATYPE_BYTES >> (4 * datatype) & 0xf) : 0;
    frame->args[1] = 0;
    frame->args[2] = pack_collective(thread, datatype, reduction, peer, nested);
    now = bpf_ktime_get_ns();
    communicator = find_communicator(thread, frame->communicator, now);
    if (!communicator) return 0;
    frame->args[1] = communicator->id;
    if (nested) return 0;
    frame->args[2] |= (__u64)(++*counter_of(communicator, cookie)) << INGERO_COLLECTIVE_SEQUENCE_SHIFT;
    return 0;
}

/* One that failed did not take place: the next has its number. */
static __always_inline int take_back_collective(struct thread_state *thread, struct frame *frame) {
    struct communicator *communicator = known_communicator(thread, frame->communicator);
    __u32 sequence = frame->args[2] >> INGERO_COLLECTIVE_SEQUENCE_SHIFT;
    __u32 *counter;

    frame->args[2] &= 0xffffffff;
    if (!communicator || !sequence) return 0;
    counter = counter_of(communicator, frame->cookie);
    if (*counter == sequence) *counter = sequence - 1;
    return 0;
}

__noinline int enter_communicator_call(struct thread_state *thread, __u32 depth) {
    __u32 out_at, at, rank_at;
    struct communicator *communicator;
    struct frame *frame;
    __u64 cookie, now;

    if (!thread || depth >= INGERO_MAX_DEPTH) return 0;
    frame = &thread->frames[depth];
    cookie = frame->cookie;
    out_at = (cookie >> 32) & INGERO_ARG_NUMBER;
    at = (cookie >> 40) & INGERO_ARG_NUMBER;
    rank_at = (cookie >> 48) & INGERO_ARG_NUMBER;
    now = bpf_ktime_get_ns();
    frame->stream = 0;
    frame->args[0] = frame->args[1] = frame->args[2] = 0;
    frame->communicator = parameter(thread, at);
    frame->out = out_at ? parameter(thread, out_at) : 0;
    switch (shape_of(cookie)) {
        case INGERO_SHAPE_COMMUNICATOR_INIT:
            frame->args[2] = parameter(thread, rank_at) << 32 | (__u32)frame->communicator;
            frame->communicator = hash_unique_id(thread, thread->nccl_call.unique_id);
            break;
        case INGERO_SHAPE_COMMUNICATOR_INIT_ALL:
            frame->args[2] = (__u32)frame->communicator;
            break;
        case INGERO_SHAPE_COMMUNICATOR_SPLIT:
            frame->args[2] = parameter(thread, at + 1) << 32 |
                             (__u32)parameter(thread, at + 2);
            find_communicator(thread, frame->communicator, now);
            break;
        case INGERO_SHAPE_COMMUNICATOR:
        case INGERO_SHAPE_COMMUNICATOR_END:
            frame->args[0] = frame->communicator;
            communicator = find_communicator(thread, frame->communicator, now);
            if (communicator) frame->args[1] = communicator->id;
            break;
        case INGERO_SHAPE_GROUP_END:
            frame->args[2] = thread->group_depth;
            break;
    }
    return 0;
}

/* `made` is the thread's own. In a group what lies at `out` may be anything until the group ends. */
__noinline int take_made(struct thread_state *thread, struct frame *frame, __u64 now) {
    struct made_communicator *made;
    __u64 handle = 0;

    if (!thread || !frame) return 0;
    made = &thread->made;
    if (!thread->group_depth) bpf_probe_read_user(&handle, sizeof(handle), (void *)frame->out);
    frame->args[0] = handle;
    frame->args[1] = made->id;
    if (!handle)
        for (int i = 0; i < MAX_PENDING_COMMUNICATORS; i++) {
            if (thread->pending[i].out && thread->pending[i].out != frame->out) continue;
            thread->pending[i] = *made;
            thread->pending[i].out = frame->out;
            break;
        }
    return keep_communicator(thread, made, handle, now);
}

__noinline int take_all_made(struct thread_state *thread, struct frame *frame, __u64 now) {
    struct made_communicator *made;
    __u32 ranks;

    if (!thread || !frame) return 0;
    made = &thread->made;
    ranks = frame->args[2];
    made->hash = nonzero(mix(mix(thread->process_start_ns ^ thread->tgid) ^ made->id));
    made->ranks = ranks;
    for (__u32 i = 0; i < MAX_INIT_ALL; i++) {
        __u64 handle = 0;
        if (i >= ranks) break;
        bpf_probe_read_user(&handle, sizeof(handle), (void *)(frame->out + 8 * i));
        if (i) made->id = new_communicator_id(now);
        else {
            frame->args[0] = handle;
            frame->args[1] = made->id;
        }
        made->rank = i;
        keep_communicator(thread, made, handle, now);
    }
    return 0;
}

__noinline int take_split(struct thread_state *thread, struct frame *frame, __u64 now) {
    struct made_communicator *made;
    struct communicator *parent;

    if (!thread || !frame) return 0;
    parent = known_communicator(thread, frame->communicator);
    made = &thread->made;
    made->color = frame->args[2] >> 32;
    made->key = frame->args[2];
    made->rank = -1;
    made->ranks = 0;
    made->hash = 0;
    if (parent) {
        made->split = ++parent->splits;
        made->parent = parent->id;
        made->parent_hash = parent->hash;
        if (parent->hash && made->color >= 0)
            made->hash = nonzero(mix(mix(parent->hash ^ made->split) ^ (__u32)made->color));
    }
    if (made->color >= 0) return take_made(thread, frame, now);
    frame->args[0] = frame->args[1] = 0;
    return keep_communicator(thread, made, 0, now);
}

/* Also where what was in the group failed. */
static __always_inline void leave_group(struct thread_state *thread, __u64 now) {
    if (thread->group_depth) thread->group_depth--;
    if (!thread->group_depth) settle_pending(thread, 0, now);
}

/* What a call of NCCL that has returned changed. */
__noinline int leave_nccl_call(struct thread_state *thread, __u32 depth, int failed) {
    struct made_communicator *made;
    struct context_key key;
    struct frame *frame;
    __u64 now;

    if (!thread || depth >= INGERO_MAX_DEPTH) return 0;
    frame = &thread->frames[depth];
    made = &thread->made;
    key = key_of_context(thread, frame->communicator);
    now = bpf_ktime_get_ns();
    if (shape_of(frame->cookie) == INGERO_SHAPE_GROUP_END) {
        leave_group(thread, now);
        return 0;
    }
    if (failed) {
        if (shape_of(frame->cookie) == INGERO_SHAPE_COLLECTIVE) take_back_collective(thread, frame);
        return 0;
    }
    __builtin_memset(made, 0, sizeof(*made));
    made->id = new_communicator_id(now);
    switch (shape_of(frame->cookie)) {
        case INGERO_SHAPE_COMMUNICATOR_INIT:
            made->hash = frame->communicator;
            made->rank = frame->args[2] >> 32;
            made->ranks = frame->args[2];
            made->origin = INGERO_COMMUNICATOR_INIT_RANK;
            return take_made(thread, frame, now);
        case INGERO_SHAPE_COMMUNICATOR_INIT_ALL:
            made->origin = INGERO_COMMUNICATOR_INIT_ALL;
            return take_all_made(thread, frame, now);
        case INGERO_SHAPE_COMMUNICATOR_SPLIT:
            made->origin = INGERO_COMMUNICATOR_SPLIT;
            return take_split(thread, frame, now);
        case INGERO_SHAPE_COMMUNICATOR_END:
            bpf_map_delete_elem(&communicators, &key);
            return 0;
        case INGERO_SHAPE_GROUP_START:
            frame->args[2] = ++thread->group_depth;
            return 0;
    }
    return 0;
}

#endif
