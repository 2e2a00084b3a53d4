// Streams, events, what waits for them, and graphs.
#include "runtime.h"

using namespace ingero::standin;
using namespace ingero::standin::runtime;

#define RUNTIME_ON_STREAM(name, target_name, parameters, ...)                                                          \
    STANDIN_RUNTIME(name, parameters, call.stream = from_pointer(stream); return driver.target_name(__VA_ARGS__);)

#define RUNTIME_WITH_PTSZ(name, target_name, parameters, ...)              \
    RUNTIME_ON_STREAM(name, target_name, parameters, __VA_ARGS__)          \
    RUNTIME_ON_STREAM(name##_ptsz, target_name##_ptsz, parameters, __VA_ARGS__)

RUNTIME_WITH_PTSZ(cudaStreamSynchronize, cuStreamSynchronize, (CUstream stream), stream)
RUNTIME_WITH_PTSZ(cudaStreamQuery, cuStreamQuery, (CUstream stream), stream)
RUNTIME_WITH_PTSZ(cudaStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), stream,
                  event, flags)
STANDIN_RUNTIME(cudaDeviceSynchronize, (void), return driver.cuCtxSynchronize();)
STANDIN_RUNTIME(cudaStreamCreate, (CUstream * stream), return driver.cuStreamCreate(stream, 0);)
STANDIN_RUNTIME(cudaStreamCreateWithFlags, (CUstream * stream, unsigned flags),
                return driver.cuStreamCreate(stream, flags);)
STANDIN_RUNTIME(cudaStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),
                return driver.cuStreamCreateWithPriority(stream, flags, priority);)
RUNTIME_ON_STREAM(cudaStreamDestroy, cuStreamDestroy_v2, (CUstream stream), stream)

STANDIN_RUNTIME(cudaEventCreate, (CUevent * event), return driver.cuEventCreate(event, 0);)
STANDIN_RUNTIME(cudaEventCreateWithFlags, (CUevent * event, unsigned flags), return driver.cuEventCreate(event, flags);)
RUNTIME_WITH_PTSZ(cudaEventRecord, cuEventRecord, (CUevent event, CUstream stream), event, stream)
RUNTIME_WITH_PTSZ(cudaEventRecordWithFlags, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
                  event, stream, flags)
STANDIN_RUNTIME(cudaEventSynchronize, (CUevent event), return driver.cuEventSynchronize(event);)
STANDIN_RUNTIME(cudaEventQuery, (CUevent event), return driver.cuEventQuery(event);)
STANDIN_RUNTIME(cudaEventElapsedTime, (float* milliseconds, CUevent from, CUevent to),
                return driver.cuEventElapsedTime(milliseconds, from, to);)
STANDIN_RUNTIME(cudaEventDestroy, (CUevent event), return driver.cuEventDestroy_v2(event);)

RUNTIME_WITH_PTSZ(cudaStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode), stream, mode)
RUNTIME_WITH_PTSZ(cudaStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph* graph), stream, graph)
RUNTIME_WITH_PTSZ(cudaStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, int* status), stream, status)
STANDIN_RUNTIME(cudaGraphCreate, (CUgraph * graph, unsigned flags), return driver.cuGraphCreate(graph, flags);)
STANDIN_RUNTIME(cudaGraphInstantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                return driver.cuGraphInstantiateWithFlags(exec, graph, flags);)
STANDIN_RUNTIME(cudaGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                return driver.cuGraphInstantiateWithFlags(exec, graph, flags);)
STANDIN_RUNTIME(cudaGraphInstantiateWithParams,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                return driver.cuGraphInstantiateWithParams(exec, graph, parameters);)
STANDIN_RUNTIME(cudaGraphInstantiateWithParams_ptsz,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                return driver.cuGraphInstantiateWithParams_ptsz(exec, graph, parameters);)
STANDIN_RUNTIME(cudaGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
                return driver.cuGraphExecUpdate_v2(exec, graph, info);)
RUNTIME_WITH_PTSZ(cudaGraphUpload, cuGraphUpload, (CUgraphExec exec, CUstream stream), exec, stream)
RUNTIME_WITH_PTSZ(cudaGraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream), exec, stream)
STANDIN_RUNTIME(cudaGraphDestroy, (CUgraph graph), return driver.cuGraphDestroy(graph);)
STANDIN_RUNTIME(cudaGraphExecDestroy, (CUgraphExec exec), return driver.cuGraphExecDestroy(exec);)
