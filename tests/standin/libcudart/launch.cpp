// Launches: by symbol, by configuration, and by what the compiler puts in place of <<<>>>.
#include "runtime.h"

namespace ingero::standin::runtime {
namespace {

using Launch = decltype(&::cuLaunchKernel);
using CooperativeLaunch = decltype(&::cuLaunchCooperativeKernel);
using ConfiguredLaunch = decltype(&::cuLaunchKernelEx);

int launch(const Driver& driver, Launch entry, const void* symbol, dim3 grid, dim3 block, void** parameters,
           size_t shared_bytes, CUstream stream) {
    int result;
    const CUfunction function = find_kernel(driver, symbol, result);
    if (function == nullptr) return result;
    return entry(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, unsigned(shared_bytes), stream,
                 parameters, nullptr);
}

int launch(const Driver& driver, CooperativeLaunch entry, const void* symbol, dim3 grid, dim3 block, void** parameters,
           size_t shared_bytes, CUstream stream) {
    int result;
    const CUfunction function = find_kernel(driver, symbol, result);
    if (function == nullptr) return result;
    return entry(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, unsigned(shared_bytes), stream,
                 parameters);
}

int launch(const Driver& driver, ConfiguredLaunch entry, const cudaLaunchConfig_t* config, const void* symbol,
           void** parameters) {
    int result;
    if (config == nullptr) return invalid_value;
    const CUfunction function = find_kernel(driver, symbol, result);
    if (function == nullptr) return result;
    const CUlaunchConfig converted{config->gridDim.x,
                                   config->gridDim.y,
                                   config->gridDim.z,
                                   config->blockDim.x,
                                   config->blockDim.y,
                                   config->blockDim.z,
                                   unsigned(config->dynamicSmemBytes),
                                   config->stream,
                                   config->attrs,
                                   config->numAttrs};
    return entry(&converted, function, parameters, nullptr);
}

Arguments told_config(const void* symbol, const cudaLaunchConfig_t* config) {
    if (config == nullptr) return told(symbol);
    const dim3 &grid = config->gridDim, &block = config->blockDim;
    return told_launch(symbol, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, config->dynamicSmemBytes)
        .on(config->stream);
}

struct PushedConfiguration {
    dim3 grid, block;
    size_t shared_bytes;
    CUstream stream;
};
thread_local PushedConfiguration pushed;

int push(const PushedConfiguration& configuration) {
    pushed = configuration;
    return success;
}

int pop(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared_bytes = pushed.shared_bytes;
    *static_cast<CUstream*>(stream) = pushed.stream;
    return success;
}

}  // namespace
}  // namespace ingero::standin::runtime

using namespace ingero::standin;
using namespace ingero::standin::runtime;

#define CUDA_LAUNCH_PARAMETERS \
    (const void* symbol, dim3 grid, dim3 block, void** parameters, size_t shared_bytes, CUstream stream)

#define TOLD_LAUNCH told_launch(symbol, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes).on(stream)

#define LAUNCH_FORM(name, target)                              \
    STANDIN_RUNTIME(name, CUDA_LAUNCH_PARAMETERS, TOLD_LAUNCH, \
                    launch(driver, driver.target, symbol, grid, block, parameters, shared_bytes, stream))

LAUNCH_FORM(cudaLaunchKernel, cuLaunchKernel)
LAUNCH_FORM(cudaLaunchKernel_ptsz, cuLaunchKernel_ptsz)
LAUNCH_FORM(cudaLaunchCooperativeKernel, cuLaunchCooperativeKernel)
LAUNCH_FORM(cudaLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel_ptsz)

#define CONFIGURED_FORM(name, target)                                                                \
    STANDIN_RUNTIME(name, (const cudaLaunchConfig_t* config, const void* symbol, void** parameters), \
                    told_config(symbol, config), launch(driver, driver.target, config, symbol, parameters))

CONFIGURED_FORM(cudaLaunchKernelExC, cuLaunchKernelEx)
CONFIGURED_FORM(cudaLaunchKernelExC_ptsz, cuLaunchKernelEx_ptsz)

// Three calls deep: a runtime function that calls another.
STANDIN_RUNTIME(__cudaLaunchKernel, CUDA_LAUNCH_PARAMETERS, TOLD_LAUNCH,
                cudaLaunchKernel(symbol, grid, block, parameters, shared_bytes, stream))

// In the real runtime this one jumps to the other with the caller's frame, so that both are entered with one stack
// pointer and return once. It is not in the log: only what it jumps to is. In 12 it does
// something before, so that it is not another name of the other.
#if defined(__x86_64__)
#if STANDIN_CUDART_MAJOR >= 13
#define BEFORE_JUMP ""
#else
#define BEFORE_JUMP "nop"
#endif
asm(R"(
    .pushsection .text
    .globl __cudaLaunchKernel_ptsz
    .type __cudaLaunchKernel_ptsz, @function
    .p2align 4
__cudaLaunchKernel_ptsz:
    .cfi_startproc
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    movq %rsp, %rbp
    popq %rbp
    .cfi_adjust_cfa_offset -8
    )" BEFORE_JUMP R"(
    jmp cudaLaunchKernel_ptsz@PLT
    .cfi_endproc
    .size __cudaLaunchKernel_ptsz, . - __cudaLaunchKernel_ptsz
    .popsection
)");
#else
STANDIN_EXPORT int __cudaLaunchKernel_ptsz CUDA_LAUNCH_PARAMETERS {
    return cudaLaunchKernel_ptsz(symbol, grid, block, parameters, shared_bytes, stream);
}
#endif

STANDIN_RUNTIME_PTSZ(cudaLaunchHostFunc, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data),
                     told(reinterpret_cast<uintptr_t>(function)).on(stream), stream, function, data)

STANDIN_PLAIN(__cudaPushCallConfiguration, (dim3 grid, dim3 block, size_t shared_bytes, CUstream stream), told(),
              push({grid, block, shared_bytes, stream}))
STANDIN_PLAIN(__cudaPopCallConfiguration, (dim3 * grid, dim3* block, size_t* shared_bytes, void* stream), told(),
              pop(grid, block, shared_bytes, stream))
