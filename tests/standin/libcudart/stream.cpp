// Streams, events, what waits for them, and graphs.
#include "runtime.h"

using namespace ingero::standin;
using namespace ingero::standin::runtime;

STANDIN_RUNTIME_PTSZ(cudaStreamSynchronize, cuStreamSynchronize, (CUstream stream), 0, stream, stream)
STANDIN_RUNTIME_PTSZ(cudaStreamQuery, cuStreamQuery, (CUstream stream), 0, stream, stream)
STANDIN_RUNTIME_PTSZ(cudaStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), 0,
                     stream, stream, event, flags)
STANDIN_RUNTIME(cudaDeviceSynchronize, (void), 0, nullptr, driver.cuCtxSynchronize())
STANDIN_RUNTIME(cudaStreamCreate, (CUstream * stream), 0, nullptr, driver.cuStreamCreate(stream, 0))
STANDIN_RUNTIME(cudaStreamCreateWithFlags, (CUstream * stream, unsigned flags), 0, nullptr,
                driver.cuStreamCreate(stream, flags))
STANDIN_RUNTIME(cudaStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority), 0, nullptr,
                driver.cuStreamCreateWithPriority(stream, flags, priority))
STANDIN_RUNTIME(cudaStreamDestroy, (CUstream stream), 0, stream, driver.cuStreamDestroy_v2(stream))

STANDIN_RUNTIME(cudaEventCreate, (CUevent * event), 0, nullptr, driver.cuEventCreate(event, 0))
STANDIN_RUNTIME(cudaEventCreateWithFlags, (CUevent * event, unsigned flags), 0, nullptr,
                driver.cuEventCreate(event, flags))
STANDIN_RUNTIME_PTSZ(cudaEventRecord, cuEventRecord, (CUevent event, CUstream stream), 0, stream, event, stream)
STANDIN_RUNTIME_PTSZ(cudaEventRecordWithFlags, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
                     0, stream, event, stream, flags)
STANDIN_RUNTIME(cudaEventSynchronize, (CUevent event), 0, nullptr, driver.cuEventSynchronize(event))
STANDIN_RUNTIME(cudaEventQuery, (CUevent event), 0, nullptr, driver.cuEventQuery(event))
STANDIN_RUNTIME(cudaEventElapsedTime, (float* milliseconds, CUevent from, CUevent to), 0, nullptr,
                driver.cuEventElapsedTime(milliseconds, from, to))
STANDIN_RUNTIME(cudaEventDestroy, (CUevent event), 0, nullptr, driver.cuEventDestroy_v2(event))

STANDIN_RUNTIME_PTSZ(cudaStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode), 0, stream, stream,
                     mode)
STANDIN_RUNTIME_PTSZ(cudaStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph* graph), 0, stream, stream,
                     graph)
STANDIN_RUNTIME_PTSZ(cudaStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, int* status), 0, stream, stream,
                     status)
STANDIN_RUNTIME(cudaGraphCreate, (CUgraph * graph, unsigned flags), 0, nullptr, driver.cuGraphCreate(graph, flags))
STANDIN_RUNTIME(cudaGraphInstantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags), 0, nullptr,
                driver.cuGraphInstantiateWithFlags(exec, graph, flags))
STANDIN_RUNTIME(cudaGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags), 0,
                nullptr, driver.cuGraphInstantiateWithFlags(exec, graph, flags))
STANDIN_RUNTIME(cudaGraphInstantiateWithParams,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters), 0, nullptr,
                driver.cuGraphInstantiateWithParams(exec, graph, parameters))
STANDIN_RUNTIME(cudaGraphInstantiateWithParams_ptsz,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters), 0, nullptr,
                driver.cuGraphInstantiateWithParams_ptsz(exec, graph, parameters))
STANDIN_RUNTIME(cudaGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info), 0, nullptr,
                driver.cuGraphExecUpdate_v2(exec, graph, info))
STANDIN_RUNTIME_PTSZ(cudaGraphUpload, cuGraphUpload, (CUgraphExec exec, CUstream stream), 0, stream, exec, stream)
STANDIN_RUNTIME_PTSZ(cudaGraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream), 0, stream, exec, stream)
STANDIN_RUNTIME(cudaGraphDestroy, (CUgraph graph), 0, nullptr, driver.cuGraphDestroy(graph))
STANDIN_RUNTIME(cudaGraphExecDestroy, (CUgraphExec exec), 0, nullptr, driver.cuGraphExecDestroy(exec))
