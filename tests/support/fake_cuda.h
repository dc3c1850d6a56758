/* A driver of CUDA devices, one at first, made of host functions: memory is the host's, kernels compute nothing, and
 * any call can be told to fail. */
#ifndef EK_TESTS_SUPPORT_FAKE_CUDA_H
#define EK_TESTS_SUPPORT_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/api.h"

enum { FAKE_KERNELS = 256, FAKE_DEVICES = 4 };

typedef struct fake_cuda {
    size_t free, used, max;
    int blocks, host_blocks, graphs, events, graph_launches; /* live objects; launches */
    int launches, fail_at;                                   /* launch number fail_at returns fail_with */
    CUresult fail_with, sync;
    bool broken;                    /* every further call to the device that failed fails, as a driver does */
    int devices;                    /* 1 to FAKE_DEVICES */
    int current;                    /* whose context the thread has */
    unsigned down;                  /* bits of the devices that failed */
    bool apart;                     /* devices do not reach each other's memory */
    CUresult enable_error;          /* of reaching it */
    int queries;                    /* of events: every fifth says "not yet" */
    unsigned reached[FAKE_DEVICES]; /* bits of the devices whose memory was enabled for each */
    struct {
        char name[32];
        int shared[FAKE_DEVICES];
    } kernel[FAKE_KERNELS];
    int calls, fail_call; /* call number fail_call of any function fails with fail_with; 0: none */
} fake_cuda;

extern fake_cuda fake;

/* Begins anew, with one device and 1 GiB of memory, which all devices share. */
void fake_cuda_reset(ek_cuda_api *api);
/* Fails the test unless all memory, graphs and events were given back. */
void fake_cuda_is_empty(void);

#endif
