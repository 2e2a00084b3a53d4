/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A call's arguments, read as its cookie says: event.h has the shapes.
 */
#ifndef INGERO_ARGUMENTS_H
#define INGERO_ARGUMENTS_H

#include "registers.h"
#include "thread_state.h"

static __always_inline __u64 read_parameter(struct call_context *ctx, struct parameters *parameters, __u8 selector) {
    __u32 number = selector & INGERO_ARG_NUMBER;
    __u64 value = 0;
    if (number > REGISTER_PARAMETERS)
        bpf_probe_read_user(&value, sizeof(value),
                            (void *)(stack_parameters(ctx) + 8 * (number - REGISTER_PARAMETERS - 1)));
    else
        value = parameters->value[number & PARAMETER_MASK];
    /* Of an out parameter it is the word pointed to that has 32 bits. */
    return (selector & (INGERO_ARG_U32 | INGERO_ARG_OUT)) == INGERO_ARG_U32 ? (__u32)value : value;
}

struct launch_config {
    __u32 grid[3];
    __u32 block[3];
    __u64 shared_bytes;
    __u64 stream;
};

static __always_inline void pack_launch(struct frame *frame, __u64 function, const struct launch_config *config) {
    frame->args[0] = function;
    frame->args[1] = config->grid[0] | (__u64)config->grid[1] << 32 | (__u64)config->grid[2] << 48;
    frame->args[2] = (config->block[0] & 0x7ff) | (config->block[1] & 0x7ff) << 11 |
                     (__u64)(config->block[2] & 0x3ff) << 22 | config->shared_bytes << 32;
    frame->stream = config->stream;
}

/* dim3 by value takes two registers (x and y in the first, z in the second) on both architectures. */
static __always_inline void read_launch_runtime(struct call_context *ctx, struct parameters *parameters,
                                                struct frame *frame) {
    struct launch_config config = {};
    __u64 memory[2] = {};
    __u64 grid = parameters->value[2], block = parameters->value[4];

    config.grid[0] = grid;
    config.grid[1] = grid >> 32;
    config.grid[2] = parameters->value[3];
    config.block[0] = block;
    config.block[1] = block >> 32;
    config.block[2] = parameters->value[5];
    if (REGISTER_PARAMETERS >= 8) {
        memory[0] = parameters->value[7 & PARAMETER_MASK];
        memory[1] = parameters->value[8 & PARAMETER_MASK];
    } else {
        bpf_probe_read_user(memory, sizeof(memory), (void *)stack_parameters(ctx));
    }
    config.shared_bytes = memory[0];
    config.stream = memory[1];
    pack_launch(frame, parameters->value[1], &config);
}

static __always_inline void read_launch_driver(struct call_context *ctx, struct parameters *parameters,
                                               struct frame *frame) {
    struct launch_config config = {};
    __u64 memory[3] = {};

    config.grid[0] = parameters->value[2];
    config.grid[1] = parameters->value[3];
    config.grid[2] = parameters->value[4];
    config.block[0] = parameters->value[5];
    config.block[1] = parameters->value[6];
    if (REGISTER_PARAMETERS >= 8) {
        memory[0] = parameters->value[7 & PARAMETER_MASK];
        memory[1] = parameters->value[8 & PARAMETER_MASK];
        bpf_probe_read_user(&memory[2], sizeof(memory[2]), (void *)stack_parameters(ctx));
    } else {
        bpf_probe_read_user(memory, sizeof(memory), (void *)stack_parameters(ctx));
    }
    config.block[2] = memory[0];
    config.shared_bytes = (__u32)memory[1];
    config.stream = memory[2];
    pack_launch(frame, parameters->value[1], &config);
}

/* cudaLaunchConfig_t: grid, block, size_t shared, stream. CUlaunchConfig: the same with a 32-bit shared size. */
static __always_inline void read_launch_ex(struct parameters *parameters, struct frame *frame, int driver) {
    struct launch_config config = {};

    bpf_probe_read_user(&config, sizeof(config), (void *)parameters->value[1]);
    if (driver) config.shared_bytes = (__u32)config.shared_bytes;
    pack_launch(frame, parameters->value[2], &config);
}

/* CUDA_MEMCPY2D: width in bytes and height end it. */
static __always_inline __u64 copy_2d_bytes(__u64 structure, int old) {
    __u64 size[2] = {};
    __u32 old_size[2] = {};

    if (old) {
        bpf_probe_read_user(old_size, sizeof(old_size), (void *)(structure + 84));
        return (__u64)old_size[0] * old_size[1];
    }
    bpf_probe_read_user(size, sizeof(size), (void *)(structure + 112));
    return size[0] * size[1];
}

#define SELECTORS(flag) ((__u64)(flag) << 32 | (__u64)(flag) << 40 | (__u64)(flag) << 48)

static __always_inline void read_pointed_to(struct frame *frame, __u64 cookie) {
    for (int i = 0; i < 3; i++) {
        __u64 value = 0;
        if (!((cookie >> (32 + 8 * i)) & INGERO_ARG_IN)) continue;
        bpf_probe_read_user(&value, sizeof(value), (void *)frame->args[i]);
        frame->args[i] = value;
    }
}

static __always_inline void read_arguments(struct call_context *ctx, struct frame *frame, __u64 cookie) {
    struct parameters parameters;

    read_registers(ctx, &parameters);
    switch (shape_of(cookie)) {
        case INGERO_SHAPE_LAUNCH_RUNTIME: read_launch_runtime(ctx, &parameters, frame); return;
        case INGERO_SHAPE_LAUNCH_RUNTIME_EX: read_launch_ex(&parameters, frame, 0); return;
        case INGERO_SHAPE_LAUNCH_DRIVER: read_launch_driver(ctx, &parameters, frame); return;
        case INGERO_SHAPE_LAUNCH_DRIVER_EX: read_launch_ex(&parameters, frame, 1); return;
        case INGERO_SHAPE_PRODUCT:
            frame->args[0] = read_parameter(ctx, &parameters, cookie >> 32) *
                             read_parameter(ctx, &parameters, cookie >> 48);
            frame->args[1] = read_parameter(ctx, &parameters, cookie >> 40);
            frame->args[2] = 0;
            break;
        default:
            frame->args[0] = read_parameter(ctx, &parameters, cookie >> 32);
            frame->args[1] = read_parameter(ctx, &parameters, cookie >> 40);
            frame->args[2] = read_parameter(ctx, &parameters, cookie >> 48);
            switch (shape_of(cookie)) {
                case INGERO_SHAPE_ELEMENTS_2: frame->args[0] *= 2; break;
                case INGERO_SHAPE_ELEMENTS_4: frame->args[0] *= 4; break;
                case INGERO_SHAPE_COPY_2D_STRUCT: frame->args[0] = copy_2d_bytes(frame->args[0], 0); break;
                case INGERO_SHAPE_COPY_2D_STRUCT_OLD: frame->args[0] = copy_2d_bytes(frame->args[0], 1); break;
            }
    }
    if (cookie & SELECTORS(INGERO_ARG_IN)) read_pointed_to(frame, cookie);
    frame->stream = read_parameter(ctx, &parameters, cookie >> 56);
}

static __always_inline void read_out_arguments(struct frame *frame, int return_code) {
    __u64 cookie = frame->cookie;
    if (!(cookie & SELECTORS(INGERO_ARG_OUT))) return;
    for (int i = 0; i < 3; i++) {
        __u64 value = 0;
        if (!((cookie >> (32 + 8 * i)) & INGERO_ARG_OUT)) continue;
        if (return_code == 0) {
            if ((cookie >> (32 + 8 * i)) & INGERO_ARG_U32)
                bpf_probe_read_user(&value, sizeof(__u32), (void *)frame->args[i]);
            else
                bpf_probe_read_user(&value, sizeof(value), (void *)frame->args[i]);
        }
        frame->args[i] = value;
    }
}

#endif
