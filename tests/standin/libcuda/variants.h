// For the files of libcuda: the variants that differ only in what stream 0 means.
#pragma once

#include "../engine/call.h"
#include "../engine/device.h"
#include "../engine/handles.h"
#include "../engine/results.h"
#include "driver.h"

#define CUDA_EXPORT STANDIN_EXPORT

// The text after the parameters is the body. It sees `call`, and `stream`: the Stream behind `handle`, never null.
#define STANDIN_ON_STREAM(name, parameters, handle, per_thread, ...)                                             \
    STANDIN_FUNCTION(name, parameters, call.stream = ::ingero::standin::from_pointer(handle);                    \
                     auto* const found = ::ingero::standin::Devices::instance().find_stream(call.stream, per_thread); \
                     if (found == nullptr) return ::ingero::standin::invalid_handle;                             \
                     [[maybe_unused]] auto& stream = *found; __VA_ARGS__)

// NAME uses the legacy default stream for stream 0, NAME_ptsz the thread's own.
#define STANDIN_WITH_PTSZ(name, parameters, handle, ...)             \
    STANDIN_ON_STREAM(name, parameters, handle, false, __VA_ARGS__) \
    STANDIN_ON_STREAM(name##_ptsz, parameters, handle, true, __VA_ARGS__)

// The same for functions that take no stream, and work on stream 0.
#define STANDIN_WITH_PTDS(name, parameters, ...)                                              \
    STANDIN_ON_STREAM(name, parameters, static_cast<void*>(nullptr), false, __VA_ARGS__)     \
    STANDIN_ON_STREAM(name##_ptds, parameters, static_cast<void*>(nullptr), true, __VA_ARGS__)
