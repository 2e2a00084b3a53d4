// Launches, and what waits for the device.
#include "../engine/options.h"
#include "variants.h"

namespace ingero::standin {
namespace {

uint64_t volume(unsigned x, unsigned y, unsigned z) {
    return uint64_t(x) * y * z;
}

int launch(Call& call, Stream& stream, CUfunction function, uint64_t blocks, uint64_t threads) {
    Devices& devices = Devices::instance();
    Kernel* kernel = devices.find_function(from_pointer(function));
    if (kernel == nullptr) return invalid_handle;
    if (blocks == 0 || threads == 0) return invalid_value;
    return devices.launch(*kernel, stream, call.note);
}

int launch(Call& call, Stream& stream, CUfunction function, const CUlaunchConfig* config) {
    if (config == nullptr) return invalid_value;
    return launch(call, stream, function, volume(config->gridDimX, config->gridDimY, config->gridDimZ),
                  volume(config->blockDimX, config->blockDimY, config->blockDimZ));
}

Arguments told_config(CUfunction function, const CUlaunchConfig* config) {
    if (config == nullptr) return told(function);
    return told_launch(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                       {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes);
}

// The real library runs the function on a thread of its own when the stream gets there. Ours runs it in the call: this
// is where a test can leave a call by longjmp or by ending the thread.
int run_host_function(Call& call, Stream& stream, CUhostFn function, void* data) {
    if (function == nullptr) return invalid_value;
    stream.enqueue(0, call.note);
    function(data);
    return success;
}

int query(uint64_t done_ns) {
    return now_ns() >= done_ns ? success : not_ready;
}

// What the device had to do may have ended in a fault, which whoever waits for it is told.
int wait_for(Call& call, uint64_t done_ns, Wait wait, int device) {
    wait_until(done_ns, wait, call.note);
    return Devices::instance().fault(device, call.note);
}

int synchronize(Call& call, Stream& stream) {
    if (stream.capturing()) return capture_unsupported;
    stream.external().wait(call.note);
    return wait_for(call, stream.done_at(), Devices::instance().wait_mode(), stream.device());
}

int synchronize_device(Call& call) {
    Devices::instance().synchronize(call.note);
    return Devices::instance().fault(thread_state.device, call.note);
}

// A context is its device. None: the thread's.
int synchronize_context(Call& call, CUcontext context) {
    const uint32_t index = handle_index(HandleKind::context, from_pointer(context));
    const int device = int((index - 1) % 16);
    if (context != nullptr && (index == 0 || uint32_t(device) >= options().devices)) return invalid_context;
    const int own = thread_state.device;
    if (context != nullptr) thread_state.device = device;
    const int result = synchronize_device(call);
    thread_state.device = own;
    return result;
}

int create_stream(CUstream* stream, unsigned flags) {
    const bool blocking = (flags & 1) == 0;  // CU_STREAM_NON_BLOCKING
    return give_handle(stream, stream == nullptr ? 0 : Devices::instance().create_stream(blocking));
}

int destroy_stream(CUstream stream) {
    return Devices::instance().destroy_stream(from_pointer(stream)) ? success : invalid_handle;
}

int create_event(CUevent* event, unsigned flags) {
    const bool blocking_sync = (flags & 1) != 0;  // CU_EVENT_BLOCKING_SYNC
    return give_handle(event, event == nullptr ? 0 : Devices::instance().create_event(blocking_sync));
}

Event* find_event(CUevent event) {
    return Devices::instance().find_event(from_pointer(event));
}

int record_event(CUevent handle, Stream& stream) {
    Event* event = find_event(handle);
    if (event == nullptr) return invalid_handle;
    event->done_ns.store(stream.done_at(), std::memory_order_release);
    return success;
}

int wait_event(Stream& stream, CUevent handle) {
    const Event* event = find_event(handle);
    if (event == nullptr) return invalid_handle;
    stream.delay_until(event->done_ns.load(std::memory_order_acquire));
    return success;
}

int query_event(CUevent handle) {
    const Event* event = find_event(handle);
    return event == nullptr ? int(invalid_handle) : query(event->done_ns);
}

int synchronize_event(Call& call, CUevent handle) {
    const Event* event = find_event(handle);
    if (event == nullptr) return invalid_handle;
    return wait_for(call, event->done_ns, event->blocking_sync ? Wait::block : Devices::instance().wait_mode(),
                    thread_state.device);
}

int elapsed_time(float* milliseconds, CUevent from, CUevent to) {
    const Event* first = find_event(from);
    const Event* last = find_event(to);
    if (first == nullptr || last == nullptr || milliseconds == nullptr) return invalid_handle;
    *milliseconds = float(double(int64_t(last->done_ns - first->done_ns)) / 1e6);
    return query(last->done_ns);
}

int destroy_event(CUevent event) {
    return Devices::instance().destroy_event(from_pointer(event)) ? success : invalid_handle;
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

// The parameters that a function does not look at are named all the same: the interface's headers name them.
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TOLD_LAUNCH told_launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes)
STANDIN_WITH_PTSZ(cuLaunchKernel, CU_LAUNCH_PARAMETERS, stream, TOLD_LAUNCH,
                  launch(call, stream, function, volume(grid_x, grid_y, grid_z), volume(block_x, block_y, block_z)))
STANDIN_WITH_PTSZ(cuLaunchCooperativeKernel, CU_COOPERATIVE_PARAMETERS, stream, TOLD_LAUNCH,
                  launch(call, stream, function, volume(grid_x, grid_y, grid_z), volume(block_x, block_y, block_z)))
STANDIN_WITH_PTSZ(cuLaunchKernelEx,
                  (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra),
                  config == nullptr ? nullptr : config->hStream, told_config(function, config),
                  launch(call, stream, function, config))
STANDIN_WITH_PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data), stream,
                  told(reinterpret_cast<uintptr_t>(function)), run_host_function(call, stream, function, data))

STANDIN_WITH_PTSZ(cuStreamSynchronize, (CUstream stream), stream, told(), synchronize(call, stream))
STANDIN_WITH_PTSZ(cuStreamQuery, (CUstream stream), stream, told(), query(stream.done_at()))
STANDIN_WITH_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), stream, told(event),
                  wait_event(stream, event))
STANDIN_FUNCTION(cuCtxSynchronize, (void), told(), synchronize_device(call))
STANDIN_FUNCTION(cuCtxSynchronize_v2, (CUcontext context), told(), synchronize_context(call, context))
STANDIN_FUNCTION(cuStreamCreate, (CUstream * stream, unsigned flags), told(), create_stream(stream, flags))
STANDIN_FUNCTION(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority), told(),
                 create_stream(stream, flags))
STANDIN_FUNCTION(cuStreamDestroy_v2, (CUstream stream), told().on(stream), destroy_stream(stream))

STANDIN_FUNCTION(cuEventCreate, (CUevent * event, unsigned flags), told(), create_event(event, flags))
STANDIN_WITH_PTSZ(cuEventRecord, (CUevent event, CUstream stream), stream, told(), record_event(event, stream))
STANDIN_WITH_PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), stream, told(),
                  record_event(event, stream))
STANDIN_FUNCTION(cuEventQuery, (CUevent event), told(), query_event(event))
STANDIN_FUNCTION(cuEventSynchronize, (CUevent event), told(event), synchronize_event(call, event))
STANDIN_FUNCTION(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to), told(),
                 elapsed_time(milliseconds, from, to))
STANDIN_FUNCTION(cuEventElapsedTime_v2, (float* milliseconds, CUevent from, CUevent to), told(),
                 elapsed_time(milliseconds, from, to))
STANDIN_FUNCTION(cuEventDestroy_v2, (CUevent event), told(), destroy_event(event))

// Aliases, as exported names at one address: a tracer must count a call through either once.
STANDIN_EXPORT int cuStreamDestroy(CUstream stream) __attribute__((alias("cuStreamDestroy_v2")));
STANDIN_EXPORT int cuEventDestroy(CUevent event) __attribute__((alias("cuEventDestroy_v2")));
