/* A driver of a CUDA device made of host functions: memory is the host's, kernels compute nothing, and any call can be
 * told to fail. */
#ifndef EK_TESTS_SUPPORT_FAKE_CUDA_H
#define EK_TESTS_SUPPORT_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/api.h"

enum { FAKE_KERNELS = 256 };

typedef struct fake_cuda {
    size_t free, used, most;
    int blocks, host_blocks, graphs, events, graph_launches; /* live objects; launches */
    int launches, fail_at;                                   /* launch number fail_at returns fail_with */
    CUresult fail_with, sync;
    bool broken; /* every further call fails, as a driver does */
    struct {
        char name[32];
        int shared;
    } kernel[FAKE_KERNELS];
    int calls, fail_call; /* call number fail_call of any function fails with fail_with; 0: none */
} fake_cuda;

extern fake_cuda fake;

/* Begins anew, with 1 GiB of memory. */
void fake_cuda_reset(ek_cuda_api *api);

#endif
