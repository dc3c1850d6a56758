/* Steps between their beginning and their end, and graphs by which steps are queued. */
#ifndef EK_GPU_STEP_FLIGHTS_H
#define EK_GPU_STEP_FLIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/api.h"

/* What the host has of a step meanwhile, all pinned: two, for one may begin behind another; of several devices more,
 * for a step may be in pieces (gpu/several/microbatches.h). */
typedef struct ek_gpu_flight {
    uint8_t *block;  /* block.host while its step is begun: the copy to the device is queued behind the step in front */
    int32_t *result; /* of all rows of logits: digests (two int32 each), then bad, then token; with a cut what
                        control has: ready, then lost */
    CUevent ended;
    int n_draws;
    bool draws;     /* the device makes every draw of the step */
    bool disturbed; /* a step was begun behind it: what the run knows of its step, and the rows of logits, are of that
                       one */
} ek_gpu_flight;

enum { EK_GPU_FLIGHTS = 2, EK_GPU_MAX_FLIGHTS = 8 };

typedef struct ek_gpu_flights {
    ek_gpu_flight flight[EK_GPU_MAX_FLIGHTS];
    int n_flights;
    uint64_t n_begun, n_ended; /* steps; a step's flight is its number modulo the flights */
    int32_t *result;           /* pinned: of the step that ended last; of a drafter its tokens */
} ek_gpu_flights;

static inline ek_gpu_flight *ek_gpu_flight_of(ek_gpu_flights *f, uint64_t step)
{
    return &f->flight[step % (uint64_t)f->n_flights];
}

/* Behind the kernels of that step. */
static inline CUevent ek_gpu_ended(const ek_gpu_flights *f, uint64_t step)
{
    return f->flight[step % (uint64_t)f->n_flights].ended;
}

/* --- graphs (graph.c) */

enum { EK_GPU_GRAPHS = 96, EK_GPU_FORM = 32 };

/* All of a step that the arguments of its kernels hold. */
typedef struct ek_gpu_form {
    uint64_t value[EK_GPU_FORM];
    int n;
} ek_gpu_form;

typedef struct ek_gpu_graph {
    ek_gpu_form form;
    CUgraphExec exec; /* NULL: seen once */
    uint64_t used;    /* the step that used it last; 0: never */
} ek_gpu_graph;

typedef struct ek_gpu_graphs {
    ek_gpu_graph graph[EK_GPU_GRAPHS];
    uint64_t n_steps;
} ek_gpu_graphs;

#endif
