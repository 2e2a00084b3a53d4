// The types of the driver interface, with the layout of the real ones: a tracer reads them from the caller's memory.
// Handles are the pointers that the real headers declare; ours point at nothing (engine/handles.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;  // an enum in the real headers, an int to callers
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUfunc_st* CUfunction;
typedef struct CUkern_st* CUkernel;
typedef struct CUmod_st* CUmodule;
typedef struct CUlib_st* CUlibrary;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphNode_st* CUgraphNode;
typedef struct CUgraphExec_st* CUgraphExec;
typedef struct CUmemPoolHandle_st* CUmemoryPool;
typedef void (*CUhostFn)(void* data);

typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    void* attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

typedef struct {
    size_t srcXInBytes, srcY;
    int srcMemoryType;
    const void* srcHost;
    CUdeviceptr srcDevice;
    void* srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    int dstMemoryType;
    void* dstHost;
    CUdeviceptr dstDevice;
    void* dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
    unsigned srcXInBytes, srcY;
    int srcMemoryType;
    const void* srcHost;
    CUdeviceptr_v1 srcDevice;
    void* srcArray;
    unsigned srcPitch;
    unsigned dstXInBytes, dstY;
    int dstMemoryType;
    void* dstHost;
    CUdeviceptr_v1 dstDevice;
    void* dstArray;
    unsigned dstPitch;
    unsigned WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;

typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    uint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    int result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct {
    int result;
    CUgraphNode errorNode;
    CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;

#if defined(__LP64__)
static_assert(sizeof(CUlaunchConfig) == 56 && offsetof(CUlaunchConfig, hStream) == 32, "as in the real header");
static_assert(sizeof(CUDA_MEMCPY2D) == 128, "as in the real header");
#endif
