/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The user stack of a call at its entry. Frames are followed by rows compiled from .eh_frame (unwind_row.h), or by frame
 * pointers in code that has none. A stack is known by a hash over process and addresses; only a new one is written out.
 */
#ifndef INGERO_STACKS_H
#define INGERO_STACKS_H

#include "registers.h"
#include "stack_event.h"
#include "thread_state.h"

#define RULE_CACHE_ENTRIES 16384
#define STACK_TABLE_ENTRIES 65536
#define STACK_TABLE_WAYS 4
#define MAPPING_STEPS 13 /* 2 to the 12 mappings a process */
#define ROW_STEPS 23     /* 2 to the 22 rows a table */
#define MIX 0x9e3779b97f4a7c15ULL

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct ingero_process_key);
    __type(value, struct ingero_mapping_list);
} mapping_lists SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, INGERO_MAX_MAPPINGS);
    __type(key, __u32);
    __type(value, struct ingero_mapping);
} mappings SEC(".maps");

struct unwind_table {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, __u64); /* a struct ingero_unwind_row, whose type would get lost behind the pointers here */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, INGERO_MAX_UNWIND_TABLES);
    __type(key, __u32);
    __array(values, struct unwind_table);
} unwind_tables SEC(".maps");

/*
 * The rule of a place in a process: 32 bits of hash above the row's 32, read and written in one go, so that no lock is
 * needed. Direct-mapped: a place that falls on another's entry takes it.
 */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, RULE_CACHE_ENTRIES);
    __type(key, __u32);
    __type(value, __u64);
} rule_cache SEC(".maps");

/* Stacks that have an id: 32 bits of hash above it. A stack that lost its entry gets a new id when it comes again. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, STACK_TABLE_ENTRIES);
    __type(key, __u32);
    __type(value, __u64);
} stack_table SEC(".maps");

/* When a process began another program, by pid: what it had mapped before is gone, and so are its lists. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192);
    __type(key, __u32);
    __type(value, __u64);
} exec_times SEC(".maps");

struct ingero_stack_control stack_control;

#define FEW_STACKS 64 /* of a user, in a tick */

/* What a user has of the ids. Root, whom nothing else holds back either, is not counted. */
struct stack_share {
    __u32 kept;
    __u32 tick;
    __u32 fresh; /* of these, in this tick */
    __u32 reserved;
};

/* By user. However many there have been, the next one gets a share: that of who had no new stack for longest goes. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, struct stack_share);
} stack_shares SEC(".maps");

/* Whose a uid is, where that is another user's: the loader stores it as it comes to know a process. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192);
    __type(key, __u32);
    __type(value, __u32);
} uid_owners SEC(".maps");

/* A rule as one word: the row without its address, or one of these. */
#define RULE(cfa, frame_pointer, return_address) \
    ((__u32)(cfa) | (__u32)(frame_pointer) << 16 | (__u32)(return_address) << 24)
#define RULE_KIND(rule) (((rule) >> 13) & 7)
#define RULE_FRAME_POINTER 6 /* kind: follow the frame pointer */
#define RULE_NO_TABLE 7      /* kind: the walk ends for want of a table */

static __always_inline __u32 rule_of_kind(__u32 kind) { return kind << 13; }

/* Of the row that holds at an address. */
__attribute__((noinline)) __u32 find_row_rule(__u32 table, __u32 rows, __u64 address) {
    void *map = bpf_map_lookup_elem(&unwind_tables, &table);
    __u32 low = 0, high = rows, rule = 0;

    if (!map) return rule_of_kind(RULE_NO_TABLE);
    /* The last row at or below the address; all before `low` are. */
    for (int i = 0; i < ROW_STEPS; i++) {
        struct ingero_unwind_row *row;
        __u32 middle = low + (high - low) / 2;
        if (low >= high) break;
        row = bpf_map_lookup_elem(map, &middle);
        if (!row) return rule_of_kind(RULE_NO_TABLE);
        if (row->address <= address) {
            rule = RULE(row->cfa, row->frame_pointer, row->return_address);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return rule;
}

/* Of a place in a process, looked up the long way. */
__attribute__((noinline)) __u32 find_rule(__u32 first, __u32 count, __u64 address) {
    __u32 low = 0, high = count;

    for (int i = 0; i < MAPPING_STEPS; i++) {
        struct ingero_mapping *mapping;
        __u32 middle = low + (high - low) / 2, index = first + middle;
        if (low >= high) break;
        mapping = bpf_map_lookup_elem(&mappings, &index);
        if (!mapping) break;
        if (address < mapping->start) {
            high = middle;
        } else if (address >= mapping->end) {
            low = middle + 1;
        } else {
            if (mapping->table == INGERO_TABLE_NONE) return rule_of_kind(RULE_NO_TABLE);
            if (mapping->table == INGERO_TABLE_FRAME_POINTER) return rule_of_kind(RULE_FRAME_POINTER);
            return find_row_rule(mapping->table - INGERO_TABLE_FIRST, mapping->rows,
                                 mapping->file_address + (address - mapping->start));
        }
    }
    return rule_of_kind(RULE_FRAME_POINTER); /* no file: code made at run time, which is compiled with them */
}

static __always_inline __u32 cached_rule(struct stack_walk *walk) {
    __u64 hash = (walk->address ^ walk->seed) * MIX, entry;
    __u32 slot = (hash >> 16) & (RULE_CACHE_ENTRIES - 1), tag = hash >> 32, rule;
    __u64 *cached = bpf_map_lookup_elem(&rule_cache, &slot);

    if (!cached) return rule_of_kind(RULE_NO_TABLE);
    entry = *(volatile __u64 *)cached;
    if (entry && (__u32)(entry >> 32) == tag) return (__u32)entry;
    rule = find_rule(walk->first, walk->count, walk->address);
    *(volatile __u64 *)cached = (__u64)tag << 32 | rule;
    return rule;
}

/* A signed return address carries its signature in the bits above the address. */
static __always_inline __u64 plain_address(__u64 address) { return address & 0x0000ffffffffffffULL; }

/*
 * A traced call further out returns by way of its return probe: where it went before is kept in its frame. A call that jumped to
 * another has its frame where that one has: all of those are passed at once, and return to the same place.
 */
static __always_inline void see_through_probe(struct thread_state *thread, struct stack_walk *walk, __u64 cfa) {
    for (int i = 0; i < INGERO_MAX_DEPTH; i++) {
        struct frame *frame;
        __u32 outer = walk->outer - 1;

        barrier_var(outer);
        if (outer >= INGERO_MAX_DEPTH) return;
        frame = &thread->frames[outer];
        if (cfa < frame->stack_pointer + RETURN_ADDRESS_BYTES) return;
        if (cfa == frame->stack_pointer + RETURN_ADDRESS_BYTES) walk->address = frame->return_address;
        walk->outer = outer;
    }
}

/* To the caller's frame. 1: there is one. Global, so that the verifier walks it once and not once a frame. */
__attribute__((noinline)) int step_to_caller(struct thread_state *thread) {
    struct stack_walk *walk = &thread->walk;
    __u64 offset, cfa, pair[2] = {}, saved;
    __u32 rule, kind, n;

    if (!thread) return 0;
    rule = cached_rule(walk);
    kind = RULE_KIND(rule);
    n = (rule >> 16) & 0xff;
    offset = (__u64)(rule & INGERO_UNWIND_MAX_CFA) * 8;
    walk->end = INGERO_STACK_NO_MEMORY;
    if (kind == RULE_FRAME_POINTER) {
        rule = RULE(0, 2, 1);
        n = 2;
        offset = 16;
        kind = INGERO_UNWIND_FP;
    }
    switch (kind) {
        case INGERO_UNWIND_SP: cfa = walk->stack_pointer + offset; break;
        case INGERO_UNWIND_FP: cfa = walk->frame_pointer + offset; break;
        case INGERO_UNWIND_PLT: cfa = walk->stack_pointer + ((walk->address & 15) >= 11 ? 16 : 8); break;
        case INGERO_UNWIND_FP_DEREF:
            if (bpf_probe_read_user(&cfa, sizeof(cfa), (void *)(walk->frame_pointer - offset))) return 0;
            break;
        case INGERO_UNWIND_OUTERMOST: walk->end = INGERO_STACK_WHOLE; return 0;
        case RULE_NO_TABLE: walk->end = INGERO_STACK_NO_TABLE; return 0;
        default: walk->end = INGERO_STACK_NO_RULE; return 0;
    }
    if (walk->frame_pointer_lost && kind != INGERO_UNWIND_SP && kind != INGERO_UNWIND_PLT) {
        walk->end = INGERO_STACK_NO_RULE;
        return 0;
    }
    /* Callers lie above: anything else would go round in circles. */
    if (cfa <= walk->stack_pointer) return 0;
#if defined(__TARGET_ARCH_x86)
    /* The frame pointer is most often saved right below the return address: then both in one. */
    if (bpf_probe_read_user(pair, sizeof(pair), (void *)(cfa - 16))) return 0;
    walk->address = pair[1];
#else
    saved = rule >> 24;
    if (saved == INGERO_UNWIND_UNCHANGED || saved == INGERO_UNWIND_LOST) {
        walk->end = INGERO_STACK_NO_RULE; /* only the innermost function has it in a register still */
        return 0;
    }
    if (bpf_probe_read_user(&walk->address, 8, (void *)(cfa - 8 * saved))) return 0;
    walk->address = plain_address(walk->address);
#endif
    see_through_probe(thread, walk, cfa);
    if (n == INGERO_UNWIND_LOST) {
        walk->frame_pointer_lost = 1;
    } else if (n != INGERO_UNWIND_UNCHANGED) {
        saved = n == INGERO_UNWIND_AT_FP ? walk->frame_pointer : cfa - 8 * n;
        if (REGISTER_PARAMETERS == 6 && n == 2)
            walk->frame_pointer = pair[0];
        else if (bpf_probe_read_user(&walk->frame_pointer, 8, (void *)saved))
            return 0;
    }
    walk->stack_pointer = cfa;
    if (!walk->address) {
        walk->end = INGERO_STACK_WHOLE; /* what musl and hand-written entry code leave there */
        return 0;
    }
    walk->address--;
    return 1;
}

/* The process's mapping list, kept in the thread's state until something changes. */
static __always_inline void find_mappings(struct thread_state *thread) {
    __u32 epoch = *(volatile __u32 *)&stack_control.epoch;
    struct ingero_process_key key = {};
    struct ingero_mapping_list *list;

    if (thread->walk.epoch == epoch) return;
    key.start = thread->process_start_ns / INGERO_START_UNIT_NS;
    key.tgid = thread->tgid;
    list = bpf_map_lookup_elem(&mapping_lists, &key);
    thread->walk.first = list ? list->first : 0;
    thread->walk.count = list ? list->count : 0;
    thread->walk.generation = list ? list->generation : 0;
    thread->walk.epoch = epoch;
    thread->walk.seed =
        (thread->process_start_ns ^ ((__u64)thread->tgid << 40) ^ ((__u64)thread->walk.generation << 20) ^
         ((__u64)thread->exec_id << 52)) *
        MIX;
}

/* A new program begins: what was mapped is gone, and the loader learns of it only in a while. */
static __always_inline void forget_mappings(struct task_struct *task) {
    struct ingero_process_key key = {};
    __u64 now = bpf_ktime_get_ns();

    key.start = task->group_leader->start_boottime / INGERO_START_UNIT_NS;
    key.tgid = process_id(task);
    /* In this order: the loader stores a list, and then asks whether it is still that of the program. */
    bpf_map_update_elem(&exec_times, &key.tgid, &now, BPF_ANY);
    bpf_map_delete_elem(&mapping_lists, &key);
}

static __always_inline struct stack_share *share_of_user(__u32 uid) {
    __u32 *owner = bpf_map_lookup_elem(&uid_owners, &uid), user = owner ? *owner : uid;
    struct stack_share *share = bpf_map_lookup_elem(&stack_shares, &user), none = {};

    if (share) return share;
    bpf_map_update_elem(&stack_shares, &user, &none, BPF_NOEXIST);
    return bpf_map_lookup_elem(&stack_shares, &user);
}

/* Writes a new stack out and returns its id; 0 where there is no room for it. */
static __always_inline __u32 announce_stack(struct thread_state *thread) {
    __u32 next = *(volatile __u32 *)&stack_control.next_stack, uid = bpf_get_current_uid_gid(), id;
    __s32 left_of_tick = stack_control.limit - next, left = stack_control.end - next;
    struct ingero_stack_record *record;
    struct stack_share *share = 0;

    if (left_of_tick <= 0 || left <= 0) return 0;
    if (uid) {
        share = share_of_user(uid);
        if (!share) return 0;
        if (share->tick != stack_control.tick) {
            share->tick = stack_control.tick;
            share->fresh = 0;
        }
        /* A user may have as many as are left to others: so there are always some left. */
        if (share->fresh >= (__u32)left_of_tick || share->kept >= (__u32)left) return 0;
        /* What is left of a ring that fills is for those who announce few. */
        if (share->fresh >= FEW_STACKS && is_ring_filling()) return 0;
    }
    record = reserve(sizeof(*record));
    if (!record) {
        __sync_fetch_and_add(&stack_control.lost_ring, 1);
        return 0;
    }
    if (share) {
        __sync_fetch_and_add(&share->kept, 1);
        __sync_fetch_and_add(&share->fresh, 1);
    }
    id = __sync_fetch_and_add(&stack_control.next_stack, 1);
    record->type = INGERO_RECORD_STACK;
    record->stack = id;
    record->time_ns = bpf_ktime_get_ns();
    record->process_start_ns = thread->process_start_ns;
    record->tgid = thread->tgid;
    record->generation = thread->walk.generation;
    record->frames = thread->walk.frames;
    record->end = thread->walk.end;
    __builtin_memset(record->reserved, 0, sizeof(record->reserved));
    __builtin_memcpy(record->address, thread->walk.stack, sizeof(record->address)); /* behind `frames`: older ones */
    submit(record);
    return id;
}

/* Global for the verifier's sake, as are the others. */
__attribute__((noinline)) __u32 id_of_stack(struct thread_state *thread, __u64 hash) {
    __u32 base = hash >> 40, tag = hash, free = STACK_TABLE_ENTRIES, slot, id;
    __u64 *entry;

    if (!thread) return 0;
    for (__u32 i = 0; i < STACK_TABLE_WAYS; i++) {
        __u64 known;
        slot = (base ^ i) & (STACK_TABLE_ENTRIES - 1);
        entry = bpf_map_lookup_elem(&stack_table, &slot);
        if (!entry) return 0;
        known = *(volatile __u64 *)entry;
        if (known && (__u32)(known >> 32) == tag) return (__u32)known;
        if (!known && free == STACK_TABLE_ENTRIES) free = slot;
    }
    id = announce_stack(thread);
    if (!id) {
        __sync_fetch_and_add(&stack_control.lost, 1);
        return 0;
    }
    slot = free != STACK_TABLE_ENTRIES ? free : (base ^ (id & (STACK_TABLE_WAYS - 1))) & (STACK_TABLE_ENTRIES - 1);
    entry = bpf_map_lookup_elem(&stack_table, &slot);
    if (entry) *(volatile __u64 *)entry = (__u64)tag << 32 | id;
    return id;
}

/* From the first return address outwards. Returns the hash of the stack. */
__attribute__((noinline)) __u64 walk_stack(struct thread_state *thread) {
    struct stack_walk *walk = &thread->walk;
    __u64 hash;
    __u32 frames = 1;

    if (!thread) return 0;
    find_mappings(thread);
    walk->end = INGERO_STACK_NO_MEMORY;
    walk->frame_pointer_lost = 0;
    hash = (walk->seed ^ walk->stack[0]) * MIX;
    if (walk->address--) {
        for (; frames < INGERO_MAX_STACK_FRAMES; frames++) {
            __u32 slot = frames;
            barrier_var(slot); /* or the compiler, which knows the bound, drops the mask that the verifier needs */
            walk->stack[slot & (INGERO_MAX_STACK_FRAMES - 1)] = walk->address + 1;
            hash = (hash ^ (hash >> 29) ^ walk->address) * MIX;
            if (!walk->generation) {
                walk->end = INGERO_STACK_NO_TABLE;
                frames++;
                break;
            }
            if (!step_to_caller(thread)) {
                frames++;
                break;
            }
            walk->end = INGERO_STACK_TOO_DEEP;
        }
    }
    walk->frames = frames;
    hash ^= hash >> 32;
    return hash * MIX + walk->end;
}

/* The call may have been jumped to by one whose return probe is already where the return address was. */
static __always_inline __u64 caller_address(struct call_context *ctx, struct thread_state *thread, struct frame *frame,
                                            __u32 depth) {
    __u32 outer = depth - 1;

    barrier_var(outer);
    if (outer < INGERO_MAX_DEPTH && thread->frames[outer].stack_pointer == frame->stack_pointer)
        return thread->frames[outer].return_address;
    return plain_address(return_address(ctx));
}

/* Id of the stack that the call was made on; 0 where it is not kept. `wanted`: not of a call that leaves no record. */
static __always_inline __u32 capture_stack(struct call_context *ctx, struct thread_state *thread, struct frame *frame,
                                           __u32 depth, int wanted) {
    __u64 begin = 0;
    __u32 id;

    if (!stack_control.enabled || thread->tgid == INGERO_PID_OUTSIDE) return 0;
    /* Whatever becomes of this call's stack: those of calls inside it lead through here. */
    frame->return_address = caller_address(ctx, thread, frame, depth);
    if (!wanted) return 0;
    if (ingero_is_walk_timed(&thread->walk.cost)) begin = bpf_ktime_get_ns();
    thread->walk.address = frame->return_address;
    thread->walk.stack_pointer = caller_stack_pointer(ctx);
    thread->walk.frame_pointer = entry_frame_pointer(ctx);
    thread->walk.outer = depth;
    thread->walk.stack[0] = entry_address(ctx);
    id = id_of_stack(thread, walk_stack(thread));
    if (begin) {
        ingero_note_walk(&thread->walk.cost, bpf_ktime_get_ns() - begin);
        stack_control.walk_ns = thread->walk.cost.ns;
    }
    return id;
}

#endif
