/* A driver of a CUDA device that computes nothing, has no memory, and notes what is queued: kernels with their grids
 * and arguments, graphs. Addresses are noted as places in the memory that was taken, so that two runs that queue the
 * same have the same hash. */
#ifndef EK_TESTS_GPU_RECORD_H
#define EK_TESTS_GPU_RECORD_H

#include <stdbool.h>
#include <stdio.h>

#include "cuda/api.h"

typedef struct record {
    uint64_t hash; /* of all that was queued since it was last set to 0 */
    int launches;  /* likewise */
    FILE *out;     /* where each is printed, too; NULL: nowhere */
    bool off;      /* note nothing */
    int multiprocessors;
} record;

extern record recorded;

/* Begins anew: the functions, with so many multiprocessors. */
void record_reset(ek_cuda_api *api, int multiprocessors);
/* Memory at `second` counts as that at `first`: pairs of buffers which take turns. */
void record_alias(CUdeviceptr first, CUdeviceptr second, size_t bytes);

#endif
