// Declarations of the driver functions that the runtime calls, so that both are built against the same, and what the
// files of libcuda share.
#pragma once

#include "abi.h"

#define CU_LAUNCH_PARAMETERS                                                                                     \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra)
#define CU_COOPERATIVE_PARAMETERS                                                                                \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters)

// X(name, parameters): what the runtime looks up when it loads the driver.
#define STANDIN_DRIVER_FUNCTIONS(X)                                                                                    \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDriverGetVersion, (int* version))                                                                              \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                                                   \
    X(cuDeviceGetCount, (int* count))                                                                                  \
    X(cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))                                              \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                \
    X(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags))                                                \
    X(cuCtxSetCurrent, (CUcontext context))                                                                            \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuLibraryLoadData, (CUlibrary * library, const void* code, void* jit, void** jit_values, unsigned jit_count,     \
                          void* options, void** option_values, unsigned option_count))                                 \
    X(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name))                                    \
    X(cuFuncGetName, (const char** name, CUfunction function))                                                         \
    X(cuLaunchKernel, CU_LAUNCH_PARAMETERS)                                                                            \
    X(cuLaunchKernel_ptsz, CU_LAUNCH_PARAMETERS)                                                                       \
    X(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))          \
    X(cuLaunchKernelEx_ptsz, (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))     \
    X(cuLaunchCooperativeKernel, CU_COOPERATIVE_PARAMETERS)                                                            \
    X(cuLaunchCooperativeKernel_ptsz, CU_COOPERATIVE_PARAMETERS)                                                       \
    X(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data))                                              \
    X(cuLaunchHostFunc_ptsz, (CUstream stream, CUhostFn function, void* data))                                         \
    X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                                            \
    X(cuMemAllocPitch_v2, (CUdeviceptr * pointer, size_t * pitch, size_t width, size_t height, unsigned element))      \
    X(cuMemFree_v2, (CUdeviceptr pointer))                                                                             \
    X(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream))                                         \
    X(cuMemAllocAsync_ptsz, (CUdeviceptr * pointer, size_t bytes, CUstream stream))                                    \
    X(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream))                                                          \
    X(cuMemFreeAsync_ptsz, (CUdeviceptr pointer, CUstream stream))                                                     \
    X(cuMemAllocFromPoolAsync, (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream))              \
    X(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream))         \
    X(cuMemAllocManaged, (CUdeviceptr * pointer, size_t bytes, unsigned flags))                                        \
    X(cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags))                                                  \
    X(cuMemFreeHost, (void* pointer))                                                                                  \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                                    \
    X(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                                      \
    X(cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                                 \
    X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes))                                               \
    X(cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void* from, size_t bytes))                                          \
    X(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes))                                                     \
    X(cuMemcpyDtoH_v2_ptds, (void* to, CUdeviceptr from, size_t bytes))                                                \
    X(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                               \
    X(cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                          \
    X(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                                \
    X(cuMemcpyAsync_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                         \
    X(cuMemcpyHtoDAsync_v2_ptsz, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                    \
    X(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                               \
    X(cuMemcpyDtoHAsync_v2_ptsz, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                          \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                         \
    X(cuMemcpyDtoDAsync_v2_ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                    \
    X(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy))                                                                      \
    X(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D* copy))                                                                 \
    X(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream))                                                \
    X(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D* copy, CUstream stream))                                           \
    X(cuMemcpyPeer, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes))    \
    X(cuMemcpyPeerAsync,                                                                                               \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)) \
    X(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count))                                              \
    X(cuMemsetD8_v2_ptds, (CUdeviceptr to, unsigned char value, size_t count))                                         \
    X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                           \
    X(cuMemsetD8Async_ptsz, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                      \
    X(cuMemsetD2D8_v2, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height))               \
    X(cuMemsetD2D8_v2_ptds, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height))          \
    X(cuMemsetD2D8Async,                                                                                               \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream))               \
    X(cuMemsetD2D8Async_ptsz,                                                                                          \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream))               \
    X(cuMemPrefetchAsync_v2, (CUdeviceptr to, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream))     \
    X(cuMemPrefetchAsync_v2_ptsz,                                                                                      \
      (CUdeviceptr to, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream))                            \
    X(cuStreamSynchronize, (CUstream stream))                                                                          \
    X(cuStreamSynchronize_ptsz, (CUstream stream))                                                                     \
    X(cuStreamQuery, (CUstream stream))                                                                                \
    X(cuStreamQuery_ptsz, (CUstream stream))                                                                           \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                             \
    X(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned flags))                                        \
    X(cuStreamCreate, (CUstream * stream, unsigned flags))                                                             \
    X(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))                                   \
    X(cuStreamDestroy_v2, (CUstream stream))                                                                           \
    X(cuEventSynchronize, (CUevent event))                                                                             \
    X(cuEventQuery, (CUevent event))                                                                                   \
    X(cuEventCreate, (CUevent * event, unsigned flags))                                                                \
    X(cuEventRecord, (CUevent event, CUstream stream))                                                                 \
    X(cuEventRecord_ptsz, (CUevent event, CUstream stream))                                                            \
    X(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags))                                        \
    X(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned flags))                                   \
    X(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to))                                             \
    X(cuEventDestroy_v2, (CUevent event))                                                                              \
    X(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                            \
    X(cuStreamBeginCapture_v2_ptsz, (CUstream stream, int mode))                                                       \
    X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                          \
    X(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph * graph))                                                     \
    X(cuStreamIsCapturing, (CUstream stream, int* status))                                                             \
    X(cuStreamIsCapturing_ptsz, (CUstream stream, int* status))                                                        \
    X(cuGraphCreate, (CUgraph * graph, unsigned flags))                                                                \
    X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                      \
    X(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * parameters))   \
    X(cuGraphInstantiateWithParams_ptsz,                                                                               \
      (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * parameters))                                 \
    X(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo * info))                     \
    X(cuGraphUpload, (CUgraphExec exec, CUstream stream))                                                              \
    X(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream))                                                         \
    X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                              \
    X(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream))                                                         \
    X(cuGraphDestroy, (CUgraph graph))                                                                                 \
    X(cuGraphExecDestroy, (CUgraphExec exec))

extern "C" {
#define STANDIN_DECLARE(name, parameters) CUresult name parameters;
STANDIN_DRIVER_FUNCTIONS(STANDIN_DECLARE)
#undef STANDIN_DECLARE
}
