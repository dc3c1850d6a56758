/* What the choice of kernels must know of a device: how large it is, and which instructions its machine code may have.
 * No bit depends on it. */
#ifndef EK_CUDA_CHIP_H
#define EK_CUDA_CHIP_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/times.h"

typedef struct ek_cuda_chip {
    int features; /* compute capability, ten times: that of the device, or less if it is to do without some */
    int multiprocessors;
    size_t shared; /* bytes of shared memory of a multiprocessor, of which a block takes 1024 more than it asks for */
    size_t block_shared;     /* and may ask for, at most */
    bool wgmma;              /* tensor cores that read shared memory (kernels/mma.cuh) */
    bool bulk;               /* copies of whole pieces to shared memory by one thread */
    bool clusters;           /* blocks that write into each other's shared memory */
    bool overlap;            /* a launch may begin before the one in front has ended */
    const ek_cuda_times *us; /* by which families of products are compared (cuda/times.h) */
    bool timed;              /* they were measured on such chips, else they are guesses */
} ek_cuda_chip;

/* With the features of a capability: the nearest of those that there are, and not above it. */
ek_cuda_chip ek_cuda_chip_like(int capability, int multiprocessors);

#endif
