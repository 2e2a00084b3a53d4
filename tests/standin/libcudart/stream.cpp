// Streams, events, what waits for them, and graphs.
#include "runtime.h"

using namespace ingero::standin;
using namespace ingero::standin::runtime;

STANDIN_RUNTIME_PTSZ(cudaStreamSynchronize, cuStreamSynchronize, (CUstream stream), told().on(stream), stream)
STANDIN_RUNTIME_PTSZ(cudaStreamQuery, cuStreamQuery, (CUstream stream), told().on(stream), stream)
STANDIN_RUNTIME_PTSZ(cudaStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
                     told(event).on(stream), stream, event, flags)
STANDIN_RUNTIME(cudaDeviceSynchronize, (void), told(), driver.cuCtxSynchronize())
STANDIN_RUNTIME(cudaStreamCreate, (CUstream * stream), told(), driver.cuStreamCreate(stream, 0))
STANDIN_RUNTIME(cudaStreamCreateWithFlags, (CUstream * stream, unsigned flags), told(),
                driver.cuStreamCreate(stream, flags))
STANDIN_RUNTIME(cudaStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority), told(),
                driver.cuStreamCreateWithPriority(stream, flags, priority))
STANDIN_RUNTIME(cudaStreamDestroy, (CUstream stream), told().on(stream), driver.cuStreamDestroy_v2(stream))

STANDIN_RUNTIME(cudaEventCreate, (CUevent * event), told(), driver.cuEventCreate(event, 0))
STANDIN_RUNTIME(cudaEventCreateWithFlags, (CUevent * event, unsigned flags), told(), driver.cuEventCreate(event, flags))
STANDIN_RUNTIME_PTSZ(cudaEventRecord, cuEventRecord, (CUevent event, CUstream stream), told().on(stream), event, stream)
STANDIN_RUNTIME_PTSZ(cudaEventRecordWithFlags, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
                     told().on(stream), event, stream, flags)
STANDIN_RUNTIME(cudaEventSynchronize, (CUevent event), told(event), driver.cuEventSynchronize(event))
STANDIN_RUNTIME(cudaEventQuery, (CUevent event), told(), driver.cuEventQuery(event))
STANDIN_RUNTIME(cudaEventElapsedTime, (float* milliseconds, CUevent from, CUevent to), told(),
                driver.cuEventElapsedTime(milliseconds, from, to))
STANDIN_RUNTIME(cudaEventDestroy, (CUevent event), told(), driver.cuEventDestroy_v2(event))

STANDIN_RUNTIME_PTSZ(cudaStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode),
                     told(0, 0, mode).on(stream), stream, mode)
STANDIN_RUNTIME_PTSZ(cudaStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph* graph),
                     told().gives(0, graph).on(stream), stream, graph)
STANDIN_RUNTIME_PTSZ(cudaStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, int* status), told().on(stream),
                     stream, status)
STANDIN_RUNTIME(cudaGraphCreate, (CUgraph * graph, unsigned flags), told(), driver.cuGraphCreate(graph, flags))
STANDIN_RUNTIME(cudaGraphInstantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                told(graph).gives(1, exec), driver.cuGraphInstantiateWithFlags(exec, graph, flags))
STANDIN_RUNTIME(cudaGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
                told(graph, 0, flags).gives(1, exec), driver.cuGraphInstantiateWithFlags(exec, graph, flags))
STANDIN_RUNTIME(cudaGraphInstantiateWithParams,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                told(graph, 0, parameters == nullptr ? 0 : parameters->flags).gives(1, exec),
                driver.cuGraphInstantiateWithParams(exec, graph, parameters))
STANDIN_RUNTIME(cudaGraphInstantiateWithParams_ptsz,
                (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                told(graph, 0, parameters == nullptr ? 0 : parameters->flags).gives(1, exec),
                driver.cuGraphInstantiateWithParams_ptsz(exec, graph, parameters))
STANDIN_RUNTIME(cudaGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
                told(graph, exec), driver.cuGraphExecUpdate_v2(exec, graph, info))
STANDIN_RUNTIME_PTSZ(cudaGraphUpload, cuGraphUpload, (CUgraphExec exec, CUstream stream), told(0, exec).on(stream),
                     exec, stream)
STANDIN_RUNTIME_PTSZ(cudaGraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream), told(0, exec).on(stream),
                     exec, stream)
STANDIN_RUNTIME(cudaGraphDestroy, (CUgraph graph), told(graph), driver.cuGraphDestroy(graph))
STANDIN_RUNTIME(cudaGraphExecDestroy, (CUgraphExec exec), told(0, exec), driver.cuGraphExecDestroy(exec))
