/* The other devices of a device: its neighbours by layers, or the devices that it exchanges parts with by outputs. */
#ifndef EK_GPU_STEP_NEIGHBOURS_H
#define EK_GPU_STEP_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/api.h"
#include "cuda/exchange_args.h"

typedef struct ek_gpu_run ek_gpu_run;

/* Of a device that has whole layers: where rows come from, and who has tokens (gpu/several/border.c). NULL: it has all
 * layers. */
typedef struct ek_gpu_neighbours {
    ek_gpu_run *front, *behind, *last; /* the device that has the layers in front; behind; the last */
    const float *given;                /* pinned: rows of the host's layers, in front of the first device */
    CUevent taken;                     /* the rows of the device in front were copied */
    uint64_t drawn; /* the step, or piece of one, by the last device's count, whose draws, and those of steps in front
                       of it, the rows of this step follow */
} ek_gpu_neighbours;

/* Of a device that has some outputs of every layer (gpu/recipe/exchange.h, gpu/several/peers.c). */
typedef struct ek_gpu_exchanges {
    ek_gpu_run *peer[EK_CUDA_EXCHANGE_RANKS]; /* all devices, itself included, in the order of their parts */
    bool follower;                            /* another one brings logits and draws to the host */
    CUdeviceptr control;                      /* an ek_cuda_exchange_control */
    CUdeviceptr gathered, pair_gathered;      /* records of what all have made, of rows and of pairs */
    CUdeviceptr landing;                      /* EK_CUDA_LANDINGS of so many bytes each */
    size_t landing_bytes;
    uint32_t n_exchanged; /* steps whose numbers were used: the first word of a step's block */
} ek_gpu_exchanges;

#endif
