// The driver API alone: a context, a module from PTX, launches, copies. The library is loaded as programs do that run
// without a GPU too, and each function found by the name that the header gives it.
#include <cuda.h>
#include <dlfcn.h>

#include <vector>

#include "counted.h"

namespace {

constexpr unsigned count = 1 << 14;
constexpr unsigned block = 128;
constexpr size_t bytes = count * sizeof(unsigned);

constexpr char ptx[] = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry increment(.param .u64 values) {
    .reg .u32 %r<5>;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd1, [values];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u32 %r4, [%rd1];
    add.u32 %r4, %r4, 1;
    st.global.u32 [%rd1], %r4;
    ret;
}
)";

void* library = nullptr;

template <class Function>
Function* find(const char* name) {
    void* found = dlsym(library, name);
    if (!found) {
        printf("SKIPPED: the driver library has no %s\n", name);
        exit(77);
    }
    return reinterpret_cast<Function*>(found);
}

#define NAME_OF(function) #function
#define UNCOUNTED(function, ...) find<decltype(function)>(NAME_OF(function))(__VA_ARGS__)
// One macro more, so that the header's own, cuMemAlloc for cuMemAlloc_v2, are done with.
#define CALL(function, ...) counted::note(NAME_OF(function), UNCOUNTED(function, ##__VA_ARGS__))

bool run_round(CUfunction increment, CUstream stream) {
    std::vector<unsigned> host(count, 1);
    CUdeviceptr device = 0;
    CALL(cuMemAlloc, &device, bytes);
    CALL(cuMemsetD32, device, 5, count);
    CALL(cuMemcpyHtoD, device, host.data(), bytes);
    void* arguments[] = {&device};
    for (CUstream one : {static_cast<CUstream>(nullptr), stream}) {
        CALL(cuLaunchKernel, increment, count / block, 1, 1, block, 1, 1, 0, one, arguments, nullptr);
        CALL(cuStreamSynchronize, one);
    }
    CALL(cuMemcpyDtoHAsync, host.data(), device, bytes, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuCtxSynchronize);
    CALL(cuMemFree, device);
    return host[0] == 3 && host[count - 1] == 3;
}

}  // namespace

int main(int argc, char** argv) {
    const counted::Options options = counted::read_options(argc, argv);
    library = dlopen(options.driver.c_str(), RTLD_NOW);
    if (!library) {
        printf("SKIPPED: %s\n", dlerror());
        return 77;
    }
    counted::ready(options);
    UNCOUNTED(cuInit, 0);
    CUdevice device = 0;
    CUcontext context = nullptr;
    UNCOUNTED(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CUmodule module = nullptr;
    CUfunction increment = nullptr;
    const bool loaded = CALL(cuModuleLoadData, &module, ptx) == CUDA_SUCCESS;
    CALL(cuModuleGetFunction, &increment, module, "increment");
    CUstream stream = nullptr;
    UNCOUNTED(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    bool right = loaded;
    for (unsigned round = 0; round < options.rounds; ++round) right = run_round(increment, stream) && right;
    return counted::finish(right);
}
