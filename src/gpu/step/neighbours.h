/* The other devices of a device: its neighbours if devices have whole layers, or the devices with which it exchanges
 * parts if they have outputs of every layer. */
#ifndef EK_GPU_STEP_NEIGHBOURS_H
#define EK_GPU_STEP_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/api.h"
#include "cuda/exchange_args.h"

typedef struct ek_gpu_run ek_gpu_run;

/* For a device with whole layers: the source of its rows, and the receiver of tokens (gpu/several/border.c). NULL: it
 * has all layers. */
typedef struct ek_gpu_neighbours {
    ek_gpu_run *front, *behind, *last; /* the devices with the previous layers, the next layers, the last layers */
    const float *given;                /* pinned: rows from the host's layers, before the first device */
    CUevent taken;                     /* recorded when the rows of the previous device are copied */
    uint64_t drawn; /* the last step or microbatch, by the last device's count, whose draws this step's rows follow */
} ek_gpu_neighbours;

/* For a device with some outputs of every layer (gpu/recipe/exchange.h, gpu/several/peers.c). */
typedef struct ek_gpu_exchanges {
    ek_gpu_run *peer[EK_CUDA_EXCHANGE_RANKS]; /* all devices, itself included, in the order of their parts */
    bool follower;                            /* another device brings logits and draws to the host */
    CUdeviceptr control;                      /* an ek_cuda_exchange_control */
    CUdeviceptr gathered, pair_gathered;      /* records of all devices' results, of rows and of pairs */
    CUdeviceptr landing;                      /* EK_CUDA_LANDINGS buffers of equal size */
    size_t landing_bytes;
    uint32_t n_exchanged; /* number of steps with used numbers: the first word of a step's block */
} ek_gpu_exchanges;

#endif
