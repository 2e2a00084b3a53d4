/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A call's parameters by number, return value and stack pointer, for each architecture.
 */
#ifndef INGERO_REGISTERS_H
#define INGERO_REGISTERS_H

#include "kernel_types.h"

/* The context of a uprobe program is read directly, at fixed offsets, so without CO-RE. */
#if defined(__TARGET_ARCH_x86)

struct call_context {
    __u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#define REGISTER_PARAMETERS 6
#define RETURN_ADDRESS_BYTES 8 /* that a call pushes */
#define PARAMETER_MASK 7

/* By number from 1; number 0 reads 0. Copied, since the context may only be read at constant offsets. */
struct parameters {
    __u64 value[8];
};

static __always_inline void read_registers(struct call_context *ctx, struct parameters *parameters) {
    parameters->value[0] = 0;
    parameters->value[1] = ctx->di;
    parameters->value[2] = ctx->si;
    parameters->value[3] = ctx->dx;
    parameters->value[4] = ctx->cx;
    parameters->value[5] = ctx->r8;
    parameters->value[6] = ctx->r9;
    parameters->value[7] = 0;
}

/* The first parameter in memory, at a function's entry, stands above the return address. */
static __always_inline __u64 stack_parameters(struct call_context *ctx) { return ctx->sp + 8; }

/* ncclUniqueId: 128 bytes by value, and so in memory, the first and only ones there. */
static __always_inline __u64 unique_id_address(struct call_context *ctx) { return stack_parameters(ctx); }

static __always_inline __u64 return_value(struct call_context *ctx) { return ctx->ax; }

static __always_inline __u64 entry_stack_pointer(struct call_context *ctx) { return ctx->sp; }
/* ret has popped the return address. */
static __always_inline __u64 return_stack_pointer(struct call_context *ctx) { return ctx->sp - 8; }

static __always_inline __u64 return_address(struct call_context *ctx) {
    __u64 address = 0;
    bpf_probe_read_user(&address, sizeof(address), (void *)ctx->sp);
    return address;
}

/* At a function's entry: where it starts, and the two pointers as its caller has them but for the pushed address. */
static __always_inline __u64 entry_address(struct call_context *ctx) { return ctx->ip; }
static __always_inline __u64 entry_frame_pointer(struct call_context *ctx) { return ctx->bp; }
static __always_inline __u64 caller_stack_pointer(struct call_context *ctx) { return ctx->sp + 8; }

static __always_inline long syscall_number(struct pt_regs *regs) { return (long)regs->orig_ax; }
static __always_inline __u64 syscall_first_argument(struct pt_regs *regs) { return regs->di; }

#elif defined(__TARGET_ARCH_arm64)

struct call_context {
    __u64 regs[31];
    __u64 sp;
    __u64 pc;
    __u64 pstate;
};

#define REGISTER_PARAMETERS 8
#define RETURN_ADDRESS_BYTES 0
#define PARAMETER_MASK 15

struct parameters {
    __u64 value[16];
};

static __always_inline void read_registers(struct call_context *ctx, struct parameters *parameters) {
    __builtin_memset(parameters, 0, sizeof(*parameters));
    for (int i = 0; i < 8; i++) parameters->value[1 + i] = ctx->regs[i];
}

static __always_inline __u64 stack_parameters(struct call_context *ctx) { return ctx->sp; }
/* The third parameter: more than 16 bytes are passed as the address of a copy. */
static __always_inline __u64 unique_id_address(struct call_context *ctx) { return ctx->regs[2]; }
static __always_inline __u64 return_value(struct call_context *ctx) { return ctx->regs[0]; }
static __always_inline __u64 entry_stack_pointer(struct call_context *ctx) { return ctx->sp; }
static __always_inline __u64 return_stack_pointer(struct call_context *ctx) { return ctx->sp; }
static __always_inline __u64 return_address(struct call_context *ctx) { return ctx->regs[30]; }
static __always_inline __u64 entry_address(struct call_context *ctx) { return ctx->pc; }
static __always_inline __u64 entry_frame_pointer(struct call_context *ctx) { return ctx->regs[29]; }
static __always_inline __u64 caller_stack_pointer(struct call_context *ctx) { return ctx->sp; }
static __always_inline long syscall_number(struct pt_regs *regs) { return regs->syscallno; }
static __always_inline __u64 syscall_first_argument(struct pt_regs *regs) { return regs->orig_x0; }

#endif
#endif
