// The types of the runtime interface, with the layout of the real ones. Handles are the driver's, as they are in
// reality.
#pragma once

#include "../libcuda/abi.h"

struct dim3 {
    unsigned x, y, z;
};

typedef struct {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    CUstream stream;
    void* attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;

#if defined(__LP64__)
static_assert(sizeof(cudaLaunchConfig_t) == 56 && offsetof(cudaLaunchConfig_t, stream) == 32, "as in the real header");
#endif
