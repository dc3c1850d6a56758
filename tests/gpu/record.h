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
    /* What a launch must keep to where kernels is set: those kernels, a block's shared memory. lacks: the first that
     * did not, or "". */
    const char *const *kernels; /* ends with NULL */
    size_t block_shared;
    bool clusters;
    char lacks[96];
    char limit[96]; /* a launch of more blocks in y or z (a plain device: or x) than there can be; empty: none was */
    /* Jobs of experts and pairs, which a launch may read before the one in front has ended (known, cuda/model_args.h):
     * another held it until what wrote them had. early: one that read them so and was not held; empty: none was. */
    bool held;
    int known; /* that did read them so */
    char early[96];
} record;

extern record recorded;

/* Begins anew: the functions, with so many multiprocessors, of compute capability 9.0. */
void record_reset(ek_cuda_api *api, int multiprocessors);
/* From the next opening on: another capability, ten times. */
void record_capability(int capability);
/* Memory at `second` counts as that at `first`: pairs of buffers which take turns. */
void record_alias(CUdeviceptr first, CUdeviceptr second, size_t bytes);

#endif
