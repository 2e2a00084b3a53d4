// What the programs of the runtime API share.
#pragma once

#include <cuda_runtime.h>

#include "counted.h"

/// What `kernel<<<...>>>` calls: from CUDA 13 on by another name, which only jumps there.
inline void note_launch() {
    counted::note("cudaLaunchKernel", cudaGetLastError());
}

/// Launches a kernel by `kernel<<<...>>>(...)` and counts it; the error, if there is one, is the launch's own.
#define COUNTED_LAUNCH(...)       \
    do {                          \
        (void)cudaGetLastError(); \
        __VA_ARGS__;              \
        note_launch();            \
    } while (false)

/// Waits at the gate before the first call, and once more when that has loaded the driver.
inline void begin(const counted::Options& options) {
    counted::ready(options);
    COUNTED(cudaSetDevice, 0);
    COUNTED(cudaFree, nullptr);
    (void)cudaGetLastError();
    counted::ready(options);
}
