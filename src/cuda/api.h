/* The used part of the CUDA driver's interface, declared here so that the C program builds without a CUDA toolkit.
 * Names and layouts are those of the driver's ABI since 12.0; constants carry their CUDA name in the comment. */
#ifndef EK_CUDA_API_H
#define EK_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

typedef struct CUlaunchAttribute {
    int id;
    char pad[8 - sizeof(int)];
    union {
        char room[64];
        struct {
            unsigned x, y, z;
        } clusterDim;
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

enum {
    EK_CU_OK = 0,
    EK_CU_OUT_OF_MEMORY = 2,         /* CUDA_ERROR_OUT_OF_MEMORY */
    EK_CU_NO_DEVICE = 100,           /* CUDA_ERROR_NO_DEVICE */
    EK_CU_NO_BINARY = 209,           /* CUDA_ERROR_NO_BINARY_FOR_GPU */
    EK_CU_ECC = 214,                 /* CUDA_ERROR_ECC_UNCORRECTABLE */
    EK_CU_NO_PEER = 217,             /* CUDA_ERROR_PEER_ACCESS_UNSUPPORTED */
    EK_CU_NOT_FOUND = 500,           /* CUDA_ERROR_NOT_FOUND */
    EK_CU_NOT_READY = 600,           /* CUDA_ERROR_NOT_READY */
    EK_CU_ENABLED = 704,             /* CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED */
    EK_CU_TOO_MANY_PEERS = 711,      /* CUDA_ERROR_TOO_MANY_PEERS */
    EK_CU_MISMATCH = 803,            /* CUDA_ERROR_SYSTEM_DRIVER_MISMATCH */
    EK_CU_UNKNOWN = 999,             /* CUDA_ERROR_UNKNOWN */
    EK_CU_ATTR_MULTIPROCESSORS = 16, /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
    EK_CU_ATTR_MAJOR = 75,           /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    EK_CU_ATTR_MINOR = 76,           /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR */
    EK_CU_FUNC_SHARED = 8,           /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    EK_CU_FUNC_LARGE_CLUSTER = 14,   /* CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED */
    EK_CU_LAUNCH_CLUSTER = 4,        /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */
    EK_CU_LAUNCH_OVERLAP = 6,        /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    EK_CU_CAPTURE_RELAXED = 2,       /* CU_STREAM_CAPTURE_MODE_RELAXED */
    EK_CU_STREAM_NON_BLOCKING = 1,   /* CU_STREAM_NON_BLOCKING */
    EK_CU_EVENT_NO_TIMING = 2,       /* CU_EVENT_DISABLE_TIMING */
    EK_CU_ABI = 12000                /* the version whose signatures are written below */
};

/* CU(name, parameters): every function of the table; all return a CUresult. */
#define EK_CUDA_FUNCTIONS(CU)                                                                         \
    CU(cuInit, (unsigned flags))                                                                      \
    CU(cuDriverGetVersion, (int *version))                                                            \
    CU(cuDeviceGetCount, (int *count))                                                                \
    CU(cuDeviceGet, (CUdevice * device, int ordinal))                                                 \
    CU(cuDeviceGetName, (char *name, int room, CUdevice device))                                      \
    CU(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                            \
    CU(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                              \
    CU(cuDevicePrimaryCtxRelease, (CUdevice device))                                                  \
    CU(cuCtxSetCurrent, (CUcontext context))                                                          \
    CU(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer))                             \
    CU(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                                       \
    CU(cuMemGetInfo, (size_t * free, size_t * total))                                                 \
    CU(cuMemAlloc, (CUdeviceptr * p, size_t bytes))                                                   \
    CU(cuMemFree, (CUdeviceptr p))                                                                    \
    CU(cuMemHostAlloc, (void **p, size_t bytes, unsigned flags))                                      \
    CU(cuMemFreeHost, (void *p))                                                                      \
    CU(cuMemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))          \
    CU(cuMemcpyDtoHAsync, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                \
    CU(cuMemcpyDtoDAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))          \
    CU(cuMemcpyPeerAsync,                                                                             \
       (CUdeviceptr to, CUcontext at, CUdeviceptr from, CUcontext of, size_t bytes, CUstream stream)) \
    CU(cuMemsetD8Async, (CUdeviceptr p, unsigned char value, size_t n, CUstream stream))              \
    CU(cuStreamCreate, (CUstream * stream, unsigned flags))                                           \
    CU(cuStreamDestroy, (CUstream stream))                                                            \
    CU(cuStreamSynchronize, (CUstream stream))                                                        \
    CU(cuEventCreate, (CUevent * event, unsigned flags))                                              \
    CU(cuEventDestroy, (CUevent event))                                                               \
    CU(cuEventRecord, (CUevent event, CUstream stream))                                               \
    CU(cuEventQuery, (CUevent event))                                                                 \
    CU(cuEventSynchronize, (CUevent event))                                                           \
    CU(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                           \
    CU(cuEventElapsedTime, (float *ms, CUevent from, CUevent to))                                     \
    CU(cuModuleLoadData, (CUmodule * module, const void *image))                                      \
    CU(cuModuleUnload, (CUmodule module))                                                             \
    CU(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))               \
    CU(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                           \
    CU(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **args, void **extra))     \
    CU(cuStreamBeginCapture, (CUstream stream, int mode))                                             \
    CU(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                        \
    CU(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))    \
    CU(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                            \
    CU(cuGraphDestroy, (CUgraph graph))                                                               \
    CU(cuGraphExecDestroy, (CUgraphExec exec))                                                        \
    CU(cuGetErrorName, (CUresult error, const char **name))                                           \
    CU(cuGetErrorString, (CUresult error, const char **text))

typedef struct ek_cuda_api {
#define CU(name, args) CUresult(*name) args;
    EK_CUDA_FUNCTIONS(CU)
#undef CU
    /* Prefix of devices' names; NULL: cuda. Other drivers stand behind this table too (vulkan/vulkan.h). */
    const char *maker;
    ek_err (*check)(int ordinal);                          /* EUNSUPPORTED names what `ordinal` lacks; NULL: none */
    CUresult (*max_block)(size_t *bytes, CUdevice device); /* maximum bytes of one allocation; NULL: unbounded */
} ek_cuda_api;

/* Fills the table from the library ("libcuda.so.1"), which stays loaded. EUNSUPPORTED: it is missing, or lacks a
 * function of driver 12. */
ek_err ek_cuda_load(ek_cuda_api *api, const char *library);

#endif
