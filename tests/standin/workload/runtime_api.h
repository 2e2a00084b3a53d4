// The part of the runtime's interface that the workloads and the self-tests call, as a table of pointers: filled from a
// library loaded by dlopen, or from the one that the program is linked with. Works with a real libcudart as well.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ingero::standin {

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

enum CopyKind : int { host_to_device = 1, device_to_host = 2 };

}  // namespace ingero::standin

// X(name, parameters)
#define STANDIN_RUNTIME_FUNCTIONS(X)                                                                               \
    X(cudaLaunchKernel, (const void* symbol, ingero::standin::Dim3 grid, ingero::standin::Dim3 block, void** args, \
                         size_t shared_bytes, void* stream))                                                       \
    X(cudaMalloc, (void** pointer, size_t bytes))                                                                  \
    X(cudaFree, (void* pointer))                                                                                   \
    X(cudaMallocHost, (void** pointer, size_t bytes))                                                              \
    X(cudaFreeHost, (void* pointer))                                                                               \
    X(cudaMemGetInfo, (size_t * free_bytes, size_t * total_bytes))                                                 \
    X(cudaMemcpy, (void* to, const void* from, size_t bytes, int kind))                                            \
    X(cudaMemcpyAsync, (void* to, const void* from, size_t bytes, int kind, void* stream))                         \
    X(cudaStreamSynchronize, (void* stream))                                                                       \
    X(cudaDeviceSynchronize, (void))                                                                               \
    X(cudaStreamCreateWithFlags, (void** stream, unsigned flags))                                                  \
    X(cudaStreamDestroy, (void* stream))                                                                           \
    X(cudaEventCreateWithFlags, (void** event, unsigned flags))                                                    \
    X(cudaEventRecord, (void* event, void* stream))                                                                \
    X(cudaEventSynchronize, (void* event))                                                                         \
    X(cudaEventDestroy, (void* event))                                                                             \
    X(cudaStreamWaitEvent, (void* stream, void* event, unsigned flags))                                            \
    X(cudaLaunchHostFunc, (void* stream, void (*function)(void*), void* data))                                     \
    X(cudaStreamBeginCapture, (void* stream, int mode))                                                            \
    X(cudaStreamEndCapture, (void* stream, void** graph))                                                          \
    X(cudaGraphInstantiate, (void** exec, void* graph, unsigned long long flags))                                  \
    X(cudaGraphLaunch, (void* exec, void* stream))                                                                 \
    X(cudaGraphDestroy, (void* graph))                                                                             \
    X(cudaGraphExecDestroy, (void* exec))                                                                          \
    X(cudaGetLastError, (void))

extern "C" {
#define STANDIN_DECLARE(name, parameters) int name parameters;
STANDIN_RUNTIME_FUNCTIONS(STANDIN_DECLARE)
#undef STANDIN_DECLARE
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFunction(void** handle, const char* symbol, char* device_function, const char* device_name,
                            int thread_limit, void* thread_id, void* block_id, ingero::standin::Dim3* block,
                            ingero::standin::Dim3* grid, int* warp_size);
}

namespace ingero::standin {

struct Runtime {
#define STANDIN_POINTER(name, parameters) decltype(&::name) name;
    STANDIN_RUNTIME_FUNCTIONS(STANDIN_POINTER)
#undef STANDIN_POINTER
    decltype(&::__cudaRegisterFatBinary) register_fat_binary;
    decltype(&::__cudaRegisterFunction) register_function;
    void (*prepare)(uint64_t records);  ///< null in a real library
    int (*load_driver)();               ///< likewise
    void* library;                      ///< in which functions can be looked up by name

    /// Nothing, with the reason in `error`, if the library or one of the functions is not there. `library` is what
    /// dlopen returned, or RTLD_DEFAULT for what the program is linked with.
    static std::optional<Runtime> from(void* library, std::string& error) {
        Runtime runtime{};
        runtime.library = library;
#define STANDIN_LOOK_UP(name, parameters) \
    if (!look_up(library, #name, runtime.name, error)) return std::nullopt;
        STANDIN_RUNTIME_FUNCTIONS(STANDIN_LOOK_UP)
#undef STANDIN_LOOK_UP
        if (!look_up(library, "__cudaRegisterFatBinary", runtime.register_fat_binary, error)) return std::nullopt;
        if (!look_up(library, "__cudaRegisterFunction", runtime.register_function, error)) return std::nullopt;
        std::string ignored;
        look_up(library, "standin_prepare", runtime.prepare, ignored);
        look_up(library, "standin_load_driver", runtime.load_driver, ignored);
        return runtime;
    }

    static std::optional<Runtime> load(const std::string& path, std::string& error) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            error = dlerror();
            return std::nullopt;
        }
        return from(library, error);
    }

  private:
    template <typename Pointer>
    static bool look_up(void* library, const char* name, Pointer& pointer, std::string& error) {
        pointer = reinterpret_cast<Pointer>(dlsym(library, name));
        if (pointer == nullptr) error = std::string("no function ") + name;
        return pointer != nullptr;
    }
};

}  // namespace ingero::standin
