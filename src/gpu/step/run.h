/* An executor's data on one device: a struct per subject. */
#ifndef EK_GPU_STEP_RUN_H
#define EK_GPU_STEP_RUN_H

#include "engine/executor.h"
#include "gpu/step/buffers.h"
#include "gpu/step/flights.h"
#include "gpu/step/neighbours.h"
#include "gpu/step/now.h"
#include "gpu/weights/state.h"

typedef struct ek_gpu_run ek_gpu_run;
typedef struct ek_gpu_host ek_gpu_host; /* gpu/step/host.c */

struct ek_gpu_run {
    ek_gpu *g;
    ek_executor_sizes z;
    ek_gpu_buffers buf;
    ek_gpu_expert_buffers experts;
    ek_gpu_host *host; /* with experts on the host; NULL else */
    ek_gpu_block block;
    float *temp_host, *logits_host; /* pinned: per-layer embeddings of a step; shown rows of logits */
    ek_gpu_now now;
    ek_gpu_lists_memory lists;
    ek_gpu_flights flights;
    ek_gpu_graphs graphs;
    struct ek_gpu_recipes *recipes; /* gpu/recipe/recipe.h */
    ek_gpu_neighbours near;
    ek_gpu_exchanges exchange;
    ek_gpu_run *drafter; /* NULL: none */
    ek_gpu_run *target;  /* for a drafter's run, whose rows are requests; else NULL */
    ek_err pending;      /* no step begins any more */
    char pending_text[512];
};

/* The heads of layers like l that are computed here. */
static inline ek_gpu_head_part ek_gpu_heads_of(const ek_gpu_run *x, const ek_layer_config *l)
{
    return ek_gpu_heads_here(&x->g->share.shard, &x->g->m->config, l);
}

/* Heads of one launch of attention in layers like l: all heads of this device. A drafter whose target has its outputs
 * divided over several devices reads keys on each of them. It has a launch per device, each with as many heads, or one
 * per KV head. */
static inline ek_gpu_head_part ek_gpu_heads_at_once(const ek_gpu_run *x, const ek_layer_config *l)
{
    const ek_gpu_head_part here = ek_gpu_heads_of(x, l);
    const int ranks = x->target ? x->target->g->share.shard.ranks : 0;
    if (!ranks) return here;
    const int n = here.kv.n % ranks == 0 ? here.kv.n / ranks : 1;
    return (ek_gpu_head_part){{0, here.q.n / here.kv.n * n}, {0, n}};
}

/* The rows' embeddings. On devices after the first they serve per-layer inputs alone, and lie in h. */
static inline CUdeviceptr ek_gpu_embedded(const ek_gpu_run *x)
{
    return x->g->share.first ? x->buf.x : x->buf.h;
}

#endif
