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
    if (result != success && result != not_ready) [[unlikely]] thread_state.last_error = result;
    return result;
}

/// The driver's handle of the kernel that the program knows by a pointer: what was registered under it, a handle itself,
/// or, since programs that register nothing are useful in tests, a kernel with no name. Null with `result` set if none.
CUfunction find_kernel(const Driver& driver, const void* symbol, int& result);

void register_kernel(const void* symbol, const char* name);

}  // namespace ingero::standin::runtime

// A function that needs no driver.
#define STANDIN_PLAIN(name, parameters, ...) \
    STANDIN_FUNCTION_AS(::ingero::standin::runtime::remember, name, parameters, __VA_ARGS__)

// The body sees `driver`, and the thread has a context.
#define STANDIN_RUNTIME(name, parameters, ...)                                                         \
    STANDIN_PLAIN(name, parameters,                                                                    \
                  const auto* const loaded = ::ingero::standin::runtime::load_driver();                \
                  if (loaded == nullptr) return ::ingero::standin::insufficient_driver;                \
                  const auto& driver = *loaded;                                                        \
                  if (!::ingero::standin::thread_state.has_context) [[unlikely]] {                     \
                      const int entered = ::ingero::standin::runtime::enter_context(driver);           \
                      if (entered != ::ingero::standin::success) return entered;                       \
                  } __VA_ARGS__)
