/* Steps between begin and end, and graphs that queue steps. */
#ifndef EK_GPU_STEP_FLIGHTS_H
#define EK_GPU_STEP_FLIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/api.h"

/* Host memory of a running step, pinned. There are two, because a step may begin after another; with several devices
 * there are more, because a step may be divided (gpu/several/microbatches.h). */
typedef struct ek_gpu_flight {
    uint8_t *block; /* block.host while its step is begun; the copy to the device is queued after the step before */
    /* For all rows of logits: digests (two int32 each), then bad, then token; with shards also the control's ready,
     * then lost. */
    int32_t *result;
    CUevent ended;
    int n_draws;
    bool draws; /* the device makes every draw of the step */
    /* A later step was begun: the run's knowledge of its step, and the rows of logits, are then those of the later
     * step. */
    bool disturbed;
} ek_gpu_flight;

enum { EK_GPU_FLIGHTS = 2, EK_GPU_MAX_FLIGHTS = 8 };

typedef struct ek_gpu_flights {
    ek_gpu_flight flight[EK_GPU_MAX_FLIGHTS];
    int n_flights;
    uint64_t n_begun, n_ended; /* number of steps; a step's flight is its number modulo the flights */
    int32_t *result;           /* pinned: of the latest ended step; for a drafter its tokens */
} ek_gpu_flights;

static inline ek_gpu_flight *ek_gpu_flight_of(ek_gpu_flights *f, uint64_t step)
{
    return &f->flight[step % (uint64_t)f->n_flights];
}

/* The event after the kernels of that step. */
static inline CUevent ek_gpu_ended(const ek_gpu_flights *f, uint64_t step)
{
    return f->flight[step % (uint64_t)f->n_flights].ended;
}

/* --- graphs (graph.c) */

enum { EK_GPU_GRAPHS = 96, EK_GPU_FORM = 32 };

/* Everything of a step that its kernels' arguments hold. */
typedef struct ek_gpu_form {
    uint64_t value[EK_GPU_FORM];
    int n;
} ek_gpu_form;

typedef struct ek_gpu_graph {
    ek_gpu_form form;
    CUgraphExec exec; /* NULL: the form was seen once */
    uint64_t used;    /* the latest step that used it; 0: none */
} ek_gpu_graph;

typedef struct ek_gpu_graphs {
    ek_gpu_graph graph[EK_GPU_GRAPHS];
    uint64_t n_steps;
} ek_gpu_graphs;

#endif
