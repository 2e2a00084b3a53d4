// What the files of libcudart share: the driver, loaded when the first call needs it, and the kernels of the program.
#pragma once

#include "../engine/call.h"
#include "../engine/device.h"
#include "../engine/handles.h"
#include "../engine/results.h"
#include "../libcuda/driver.h"
#include "abi.h"

namespace ingero::standin::runtime {

struct Driver {
#define STANDIN_POINTER(name, parameters) decltype(&::name) name;
    STANDIN_DRIVER_FUNCTIONS(STANDIN_POINTER)
#undef STANDIN_POINTER
};

/// Null when there is no libcuda.so.1, as on a machine without a GPU.
const Driver* load_driver();

/// Makes the device's context the thread's, as the real runtime does in the first call of a thread.
int enter_context(const Driver& driver);

/// cudaGetLastError gives it out. "Not ready" is an answer, not an error.
inline int remember(int result) {
    if (result != success && result != not_ready) [[unlikely]]
        thread_state.last_error = result;
    return result;
}

/// The driver's handle of the kernel that the program knows by a pointer: what was registered under it, a handle
/// itself, or, since programs that register nothing are useful in tests, a kernel with no name. Null with `result` set
/// if none.
CUfunction find_kernel(const Driver& driver, const void* symbol, int& result);

void register_kernel(const void* symbol, const char* name);

/// What `body` makes of the driver, with a context for the thread.
template <typename Body>
[[gnu::always_inline]] inline int with_driver(const Body& body) {
    const Driver* driver = load_driver();
    if (driver == nullptr) [[unlikely]]
        return insufficient_driver;
    if (!thread_state.has_context) [[unlikely]] {
        if (const int entered = enter_context(*driver); entered != success) return entered;
    }
    return body(*driver);
}

/// For frees: how much it was, only the driver knows.
inline int with_nested_bytes(Call& call, int result) {
    call.bytes = thread_state.nested_bytes;
    return result;
}

}  // namespace ingero::standin::runtime

// A function that needs no driver.
#define STANDIN_PLAIN(name, parameters, told, ...) \
    STANDIN_FUNCTION_AS(::ingero::standin::runtime::remember, name, parameters, told, __VA_ARGS__)

// `told` is what the log says of the arguments. The last argument is an expression that sees `driver` and `call`: the
// result.
#define STANDIN_RUNTIME(name, parameters, told, ...) \
    STANDIN_PLAIN(                                   \
        name, parameters, told,                      \
        ::ingero::standin::runtime::with_driver(     \
            [&]([[maybe_unused]] const ::ingero::standin::runtime::Driver& driver) -> int { return __VA_ARGS__; }))

// NAME calls the driver's TARGET, NAME_ptsz its TARGET_ptsz; what follows are the arguments.
#define STANDIN_RUNTIME_PTSZ(name, target_name, parameters, told, ...)       \
    STANDIN_RUNTIME(name, parameters, told, driver.target_name(__VA_ARGS__)) \
    STANDIN_RUNTIME(name##_ptsz, parameters, told, driver.target_name##_ptsz(__VA_ARGS__))

// The same for functions that take no stream.
#define STANDIN_RUNTIME_PTDS(name, target_name, parameters, told, ...)       \
    STANDIN_RUNTIME(name, parameters, told, driver.target_name(__VA_ARGS__)) \
    STANDIN_RUNTIME(name##_ptds, parameters, told, driver.target_name##_ptds(__VA_ARGS__))
