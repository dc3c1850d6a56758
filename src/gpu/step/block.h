/* One step's data in pinned host memory and its copy on the device, at the same offsets: filled anew each step and
 * copied at once. */
#ifndef EK_GPU_STEP_BLOCK_H
#define EK_GPU_STEP_BLOCK_H

#include "base/err.h"
#include "cuda/api.h"

typedef struct ek_gpu_block {
    uint8_t *host;
    CUdeviceptr device;
    size_t bytes, used;
} ek_gpu_block;

/* n bytes at the end of the block: host and device address. ETOOLARGE: no room, which the sizes at open rule out. */
ek_err ek_gpu_block_take(ek_gpu_block *b, size_t bytes, void **host, CUdeviceptr *device);

#endif
