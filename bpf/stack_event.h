/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Native stacks: the record of a stack that is new, and the tables that the loader fills so that stacks can be walked.
 */
#ifndef INGERO_BPF_STACK_EVENT_H
#define INGERO_BPF_STACK_EVENT_H

#include "event.h"
#include "unwind_row.h"

#define INGERO_RECORD_STACK 16 /* struct ingero_stack_record; the types below are of event.h */

#define INGERO_MAX_STACK_FRAMES 64
#define INGERO_MAX_MAPPINGS 65536      /* of all processes */
#define INGERO_MAX_PROCESS_MAPPINGS 4096
#define INGERO_MAX_UNWIND_TABLES 1024
#define INGERO_MAX_UNWIND_ROWS 4194304 /* of a table */

/* Why a stack ends. */
enum ingero_stack_end {
    INGERO_STACK_WHOLE = 0,     /* at a function that has no caller */
    INGERO_STACK_NO_TABLE = 1,  /* in code whose table is not there: too early, over the budget, unreadable */
    INGERO_STACK_NO_RULE = 2,   /* in code whose table has no rule for the place */
    INGERO_STACK_NO_MEMORY = 3, /* the stack memory was not there, or makes no sense */
    INGERO_STACK_TOO_DEEP = 4,  /* INGERO_MAX_STACK_FRAMES */
};

/*
 * Written once for each stack of a process, before a call refers to it. The first address is the function's entry, the
 * others are return addresses; which files they lie in is said by the mapping list of this generation.
 */
struct ingero_stack_record {
    ingero_u32 type;
    ingero_u32 stack; /* what calls refer to; from 1, unique since the store began */
    ingero_u64 time_ns;
    ingero_u64 process_start_ns;
    ingero_u32 tgid;
    ingero_u32 generation; /* of the process's mapping list; 0: it had none */
    ingero_u16 frames;
    ingero_u8 end; /* enum ingero_stack_end */
    ingero_u8 reserved[5];
    ingero_u64 address[INGERO_MAX_STACK_FRAMES];
};

/* A process, as the loader knows it: pid in its own namespace, and start in INGERO_START_UNIT_NS. */
struct ingero_process_key {
    ingero_u64 start;
    ingero_u32 tgid;
    ingero_u32 reserved;
};

/* Where a process's mappings stand in the array of all of them, by address. */
struct ingero_mapping_list {
    ingero_u32 first;
    ingero_u32 count;
    ingero_u32 generation; /* from 1, rises with each change */
    ingero_u32 reserved;
};

#define INGERO_TABLE_NONE 0          /* not there: the walk ends */
#define INGERO_TABLE_FRAME_POINTER 1 /* the file has no call frame information: frames are followed by pointers */
#define INGERO_TABLE_FIRST 2         /* from here on: number of the table plus 2 */

/* An executable mapping of a file. */
struct ingero_mapping {
    ingero_u64 start;
    ingero_u64 end;
    ingero_u64 file_address; /* of start, by the file's program headers: what rows are sorted by */
    ingero_u32 table;
    ingero_u32 rows;
};

/* What the two sides exchange, in memory that both map. */
struct ingero_stack_control {
    ingero_u32 epoch;      /* rises after each change of a mapping list, a table or a process */
    ingero_u32 enabled;
    ingero_u32 next_stack; /* id of the next new stack */
    ingero_u32 limit;      /* no new stacks from this id on: raised by the loader as time goes by */
    ingero_u32 end;        /* nor from this one, ever */
    ingero_u32 tick;       /* rises as the limit is raised */
    ingero_u32 walk_ns;    /* what a stack costs, of late */
    ingero_u32 reserved;
    ingero_u64 lost;       /* stacks without an id: over a limit, or no room in the ring */
    ingero_u64 lost_ring;  /* of these, no room in the ring: one needs more than the record of a call */
};

#endif
