/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How to step from a function's frame to its caller's: what core/symbols/unwind_table.h compiles .eh_frame to, and what
 * the walk in the kernel reads. A row holds from its address up to the next row's.
 */
#ifndef INGERO_BPF_UNWIND_ROW_H
#define INGERO_BPF_UNWIND_ROW_H

#include "event.h"

/*
 * CFA is the canonical frame address of DWARF: the stack pointer before the call. All offsets count 8 bytes, so a
 * row fits in a word.
 */
enum ingero_unwind_kind {
    INGERO_UNWIND_NONE = 0,      /* not known, or a rule that is not followed: the walk ends short */
    INGERO_UNWIND_SP = 1,        /* CFA = stack pointer + 8 * cfa */
    INGERO_UNWIND_FP = 2,        /* CFA = frame pointer + 8 * cfa */
    INGERO_UNWIND_PLT = 3,       /* CFA = stack pointer + 8, or + 16 from the 11th of a stub's 16 bytes on */
    INGERO_UNWIND_FP_DEREF = 4,  /* CFA = *(frame pointer - 8 * cfa): a realigned stack */
    INGERO_UNWIND_OUTERMOST = 5, /* has no caller: the stack is whole */
};

/* Where the caller's frame pointer and the return address are: at CFA - 8 * n, or one of these. */
#define INGERO_UNWIND_UNCHANGED 0
#define INGERO_UNWIND_AT_FP 254 /* at the address in the frame pointer */
#define INGERO_UNWIND_LOST 255

#define INGERO_UNWIND_MAX_CFA 0x1fff

struct ingero_unwind_row {
    ingero_u32 address; /* as in the file's program headers */
    ingero_u16 cfa;     /* kind << 13 | offset in 8 bytes */
    ingero_u8 frame_pointer;
    ingero_u8 return_address; /* unchanged: still in the link register (aarch64) */
};

#endif
