// Launches, and what waits for the device.
#include "variants.h"

namespace ingero::standin {
namespace {

int launch(Call& call, Stream& stream, CUfunction function, unsigned blocks, unsigned threads) {
    Devices& devices = Devices::instance();
    Kernel* kernel = devices.find_function(from_pointer(function));
    if (kernel == nullptr) return invalid_handle;
    if (blocks == 0 || threads == 0) return invalid_value;
    return devices.launch(*kernel, stream, call.note);
}

// The real library runs the function on a thread of its own when the stream gets there. Ours runs it in the call: this
// is where a test can leave a call by longjmp or by ending the thread.
int run_host_function(CUhostFn function, void* data) {
    if (function == nullptr) return invalid_value;
    function(data);
    return success;
}

Wait event_wait(const Event& event) { return event.blocking_sync ? Wait::block : Devices::instance().wait_mode(); }

int record_event(CUevent handle, Stream& stream) {
    Event* event = Devices::instance().find_event(from_pointer(handle));
    if (event == nullptr) return invalid_handle;
    event->done_ns.store(stream.done_at(), std::memory_order_release);
    return success;
}

int query(uint64_t done_ns) { return now_ns() >= done_ns ? success : not_ready; }

int synchronize(Call& call, Stream& stream) {
    if (stream.capturing()) return capture_unsupported;
    wait_until(stream.done_at(), Devices::instance().wait_mode(), call.note);
    return success;
}

int wait_event(Stream& stream, CUevent handle) {
    Event* event = Devices::instance().find_event(from_pointer(handle));
    if (event == nullptr) return invalid_handle;
    stream.delay_until(event->done_ns.load(std::memory_order_acquire));
    return success;
}

int create_stream(CUstream* stream, unsigned flags) {
    const bool blocking = (flags & 1) == 0;  // CU_STREAM_NON_BLOCKING
    if (stream == nullptr) return invalid_value;
    *stream = to_pointer<CUstream>(Devices::instance().create_stream(blocking));
    return *stream == nullptr ? out_of_memory : success;
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

// The parameters that a launch does not look at are named all the same: the interface's headers name them.
#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_WITH_PTSZ(cuLaunchKernel, CU_LAUNCH_PARAMETERS, stream,
                  return launch(call, stream, function, grid_x * grid_y * grid_z, block_x * block_y * block_z);)

STANDIN_WITH_PTSZ(cuLaunchCooperativeKernel, CU_COOPERATIVE_PARAMETERS, stream,
                  return launch(call, stream, function, grid_x * grid_y * grid_z, block_x * block_y * block_z);)

STANDIN_WITH_PTSZ(cuLaunchKernelEx,
                  (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra),
                  config == nullptr ? nullptr : config->hStream, if (config == nullptr) return invalid_value;
                  return launch(call, stream, function, config->gridDimX * config->gridDimY * config->gridDimZ,
                                config->blockDimX * config->blockDimY * config->blockDimZ);)

STANDIN_WITH_PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data), stream,
                  stream.enqueue(0, call.note);
                  return run_host_function(function, data);)

STANDIN_WITH_PTSZ(cuStreamSynchronize, (CUstream stream), stream, return synchronize(call, stream);)

STANDIN_WITH_PTSZ(cuStreamQuery, (CUstream stream), stream, return query(stream.done_at());)

STANDIN_WITH_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), stream,
                  return wait_event(stream, event);)

STANDIN_FUNCTION(cuCtxSynchronize, (void), Devices::instance().synchronize(call.note); return success;)

STANDIN_FUNCTION(cuStreamCreate, (CUstream * stream, unsigned flags), return create_stream(stream, flags);)

STANDIN_FUNCTION(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),
                 return create_stream(stream, flags);)

STANDIN_FUNCTION(cuStreamDestroy_v2, (CUstream stream), call.stream = from_pointer(stream);
                 return Devices::instance().destroy_stream(call.stream) ? success : invalid_handle;)

STANDIN_FUNCTION(cuEventCreate, (CUevent * event, unsigned flags), if (event == nullptr) return invalid_value;
                 *event = to_pointer<CUevent>(Devices::instance().create_event((flags & 1) != 0));  // CU_EVENT_BLOCKING_SYNC
                 return *event == nullptr ? out_of_memory : success;)

STANDIN_WITH_PTSZ(cuEventRecord, (CUevent event, CUstream stream), stream, return record_event(event, stream);)

STANDIN_WITH_PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), stream,
                  return record_event(event, stream);)

STANDIN_FUNCTION(cuEventQuery, (CUevent handle), Event* event = Devices::instance().find_event(from_pointer(handle));
                 if (event == nullptr) return invalid_handle; return query(event->done_ns);)

STANDIN_FUNCTION(cuEventSynchronize, (CUevent handle),
                 Event* event = Devices::instance().find_event(from_pointer(handle));
                 if (event == nullptr) return invalid_handle;
                 wait_until(event->done_ns, event_wait(*event), call.note); return success;)

STANDIN_FUNCTION(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to),
                 const Event* first = Devices::instance().find_event(from_pointer(from));
                 const Event* last = Devices::instance().find_event(from_pointer(to));
                 if (first == nullptr || last == nullptr || milliseconds == nullptr) return invalid_handle;
                 *milliseconds = float(double(int64_t(last->done_ns - first->done_ns)) / 1e6);
                 return query(last->done_ns);)

STANDIN_FUNCTION(cuEventDestroy_v2, (CUevent event),
                 return Devices::instance().destroy_event(from_pointer(event)) ? success : invalid_handle;)

// Aliases, as exported names at one address: a tracer must count a call through either once.
CUDA_EXPORT CUresult cuStreamDestroy(CUstream stream) __attribute__((alias("cuStreamDestroy_v2")));
CUDA_EXPORT CUresult cuEventDestroy(CUevent event) __attribute__((alias("cuEventDestroy_v2")));
