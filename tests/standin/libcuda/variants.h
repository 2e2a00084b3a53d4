// For the files of libcuda: the variants that differ only in what stream 0 means.
#pragma once

#include "../engine/call.h"
#include "../engine/device.h"
#include "../engine/handles.h"
#include "../engine/results.h"
#include "driver.h"

namespace ingero::standin {

/// What `body` makes of the Stream behind the handle.
template <typename Body>
[[gnu::always_inline]] inline int on_stream(Call& call, const void* handle, bool per_thread, const Body& body) {
    Devices& devices = Devices::instance();
    Stream* stream = devices.find_stream(from_pointer(handle), per_thread);
    if (stream == nullptr) return invalid_handle;
    if (const int fault = devices.fault(stream->device(), call.note)) return fault;
    return body(*stream);
}

}  // namespace ingero::standin

// The last argument is an expression that sees `call`, and `stream`: the Stream behind `handle`.
#define STANDIN_ON_STREAM(name, parameters, handle, per_thread, told, ...) \
    STANDIN_FUNCTION(name, parameters, (told).on(handle),                  \
                     ::ingero::standin::on_stream(                         \
                         call, handle, per_thread,                         \
                         [&]([[maybe_unused]] ::ingero::standin::Stream& stream) -> int { return __VA_ARGS__; }))

// NAME uses the legacy default stream for stream 0, NAME_ptsz the thread's own.
#define STANDIN_WITH_PTSZ(name, parameters, handle, told, ...)            \
    STANDIN_ON_STREAM(name, parameters, handle, false, told, __VA_ARGS__) \
    STANDIN_ON_STREAM(name##_ptsz, parameters, handle, true, told, __VA_ARGS__)

// The same for functions that take no stream, and work on stream 0.
#define STANDIN_WITH_PTDS(name, parameters, told, ...)                     \
    STANDIN_ON_STREAM(name, parameters, nullptr, false, told, __VA_ARGS__) \
    STANDIN_ON_STREAM(name##_ptds, parameters, nullptr, true, told, __VA_ARGS__)
