/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What footprint.bpf.c reports of a process tree: tables that it counts in, and records in a ring buffer.
 */
#ifndef INGERO_FOOTPRINT_H
#define INGERO_FOOTPRINT_H

#include <linux/types.h>

#include "start_unit.h"

/* How a system call was made; each way has numbers of its own. */
enum ingero_footprint_abi {
    INGERO_FOOTPRINT_NATIVE = 0,
    INGERO_FOOTPRINT_COMPAT = 1, /* 32-bit */
    INGERO_FOOTPRINT_X32 = 2,
};

/* The row of a table. tgid 0: of whoever had no room for rows of their own. */
struct ingero_footprint_call {
    __u32 tgid;
    __u16 number;
    __u16 abi;
};

struct ingero_footprint_calls {
    __u64 entered;
    __u64 returned;
    __u64 total_ns; /* of those that returned */
};

struct ingero_footprint_error {
    __u16 number;
    __u16 abi;
    __u32 error; /* a positive errno */
};

/* What could not be counted or reported. */
struct ingero_footprint_losses {
    __u64 calls;            /* system calls without a row */
    __u64 untimed;          /* calls whose time and outcome are not known, since too many threads were inside one */
    __u64 errors;           /* outcomes without a row */
    __u64 records;          /* no room in the ring */
    __u64 processes;        /* forked and not followed: too many */
    __u64 unreadable;       /* paths and addresses in memory that could not be read */
    __u64 other_users;      /* processes no longer followed, since they became another user's */
    __u64 live;             /* processes that are followed */
    __u64 compat;           /* 32-bit and x32 calls, of which nothing but their number is seen */
};

enum ingero_footprint_kind {
    INGERO_FOOTPRINT_START = 1, /* a process is followed: result is its parent, text its command */
    INGERO_FOOTPRINT_END,       /* and no more: flags 1: it became another user's */
    INGERO_FOOTPRINT_EXEC,      /* base: its file; text: the path as it was named, and the first argument */
    INGERO_FOOTPRINT_OPEN,      /* flags: as of open(2); text: the path */
    INGERO_FOOTPRINT_LIBRARY,   /* the file of an executable mapping */
    INGERO_FOOTPRINT_ENDPOINT,  /* text: a struct sockaddr */
    INGERO_FOOTPRINT_RESULT,    /* how the call with this sequence number ended */
};

enum ingero_footprint_bits {
    INGERO_FOOTPRINT_HAS_RESULT = 1,
    INGERO_FOOTPRINT_TEXT_CUT = 2,
    INGERO_FOOTPRINT_BASE_CUT = 4,  /* the directory has more components above */
    INGERO_FOOTPRINT_DETACHED = 8,  /* the directory, or file, is in no tree: of memfd_create, say */
    INGERO_FOOTPRINT_UNREADABLE = 16,
};

#define INGERO_FOOTPRINT_MAX_TEXT 1024 /* with its NUL, which each text but an address has */
#define INGERO_FOOTPRINT_MAX_BASE 2048
#define INGERO_FOOTPRINT_MAX_NAME 256
#define INGERO_FOOTPRINT_MAX_ADDRESS 128

struct ingero_footprint_record {
    __u32 kind;
    __u32 tgid;     /* as the kernel counts it */
    __u32 pid;      /* as the daemon's pid namespace does; 0: it does not */
    __u32 tid;
    __u32 sequence; /* of the thread's calls that are reported */
    __u16 number;
    __u16 bits;
    __s64 result;
    __u64 flags;
    __u16 socket_type; /* SOCK_STREAM and so on; 0: not known */
    __u16 protocol;
    __u16 base_bytes; /* names of directories, innermost first, each with its NUL */
    __u16 text_bytes;
};

/* Base and text follow. */

#endif
