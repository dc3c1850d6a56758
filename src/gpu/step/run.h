/* An executor's data on one device: a struct per subject. */
#ifndef EK_GPU_STEP_RUN_H
#define EK_GPU_STEP_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cuda/api.h"
#include "cuda/attn_work.h"
#include "cuda/exchange_args.h"
#include "engine/executor.h"
#include "engine/sample/sampler.h"
#include "gpu/weights/weights.h"
#include "model/pass.h"
#include "ops/kv/kv.h"

typedef struct ek_gpu_run ek_gpu_run;

/* --- memory of a step on its device. All buffers except pages lie in `scratch` (gpu/fit/sizes.c). */

typedef struct ek_gpu_buffers {
    CUdeviceptr scratch;
    size_t scratch_bytes;
    CUdeviceptr h, x, y, q, k, v, o, gate, up;        /* f32 rows */
    CUdeviceptr acts, acts2;                          /* records */
    CUdeviceptr per_layer_head, per_layer_tail, temp; /* per-layer inputs */
    /* Rows in the order of products by wgmma, with one limb and with two. With a gate the second is written while the
     * first is read, and then becomes the first. */
    CUdeviceptr operand[2];
    CUdeviceptr stack, segments; /* of products; of attention */
    size_t operand_bytes, stack_bytes, segment_bytes;
    CUdeviceptr ended;  /* int32 per tile of few queries, or leaf, zero between launches */
    CUdeviceptr logits; /* logits, and the data of draws: */
    CUdeviceptr best, draw, digest, bad, token, block_max, leaf_sums, sorted;
    CUdeviceptr hidden; /* f32 [max_logits][hidden_size], with a drafter: the last x of rows with logits */
    /* For a drafter's run: f32 [rows][2 x backbone_hidden_size], embedding and state; int32: centroids. */
    CUdeviceptr fed, chosen;
    CUdeviceptr pages[EK_PAGE_KINDS];
    size_t page_bytes[EK_PAGE_KINDS];
} ek_gpu_buffers;

/* For a model with experts. A pair is a row and one of its chosen experts. */
typedef struct ek_gpu_expert_buffers {
    CUdeviceptr route, pair_gate, pair_up, pair_out, expert, weight, pair_row, row_pair, jobs, n_jobs;
    CUdeviceptr h_between;               /* f32 rows after attention */
    CUdeviceptr route_acts, expert_acts; /* their records */
    CUdeviceptr routed;                  /* int32, zero between launches */
    CUdeviceptr host_pair, host_weight;  /* with experts on the host, [max_rows]: int32 0, 1, ...; f32 1 */
} ek_gpu_expert_buffers;

/* --- the current step: its block, the sets of its rows, and the host memory in which it is made */

/* One step's data in pinned host memory and its copy on the device, at the same offsets: filled anew each step and
 * copied at once. */
typedef struct ek_gpu_block {
    uint8_t *host;
    CUdeviceptr device;
    size_t bytes, used;
} ek_gpu_block;

/* n bytes at the end of the block: host and device address. ETOOLARGE: no room, which the sizes at open rule out. */
static inline ek_err ek_gpu_block_take(ek_gpu_block *b, size_t bytes, void **host, CUdeviceptr *device)
{
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > b->bytes - b->used)
        return ek_fail(EK_ETOOLARGE, "a step needs %zu bytes of lists, there are %zu", b->used + bytes, b->bytes);
    *host = b->host + b->used, *device = b->device + b->used;
    b->used += bytes;
    return EK_OK;
}

/* The attention of a set of rows in layers of one kind. Tiles of few queries go in waves that fit the memory of the
 * segments; tiles of prompts go in one launch. Addresses are in the step's block. */
typedef struct ek_gpu_wave {
    CUdeviceptr tiles, items;
    int n_tiles, n_items;
} ek_gpu_wave;

typedef struct ek_gpu_list {
    CUdeviceptr rows;
    ek_gpu_wave *wave; /* [max_rows] */
    int n_waves, tile;
    bool whole;         /* its kernel joins segments and, without prompts, finishes queries itself */
    bool joined;        /* so few segments that an item is a record with all that a block begins with */
    bool deep;          /* segments by ek_attn_deep_DIM */
    bool single;        /* every view has one row in the step: then it stores their keys, too */
    CUdeviceptr prompt; /* tiles, or parts of 2^part segments of n_cut tiles at `cut` */
    CUdeviceptr cut;
    int n_prompt, levels, n_cut, part; /* n_cut 0: whole tiles */
} ek_gpu_list;

/* Rows that go through a layer together: all rows of a step, or those with logits. */
typedef struct ek_gpu_set {
    int n;
    CUdeviceptr place; /* ek_cuda_place */
    CUdeviceptr cos[EK_KIND_COUNT], sin[EK_KIND_COUNT];
    CUdeviceptr turns[EK_KIND_COUNT]; /* the buffer, if the host made both (lists.c) */
    ek_gpu_list list[EK_KIND_COUNT];
} ek_gpu_set;

/* A run's knowledge of the current step. Addresses are in its block. */
typedef struct ek_gpu_now {
    ek_gpu_set all, tail; /* tail: used if some rows want no logits */
    int n_want, first_logits, n_draws, first_draw;
    CUdeviceptr id, want, table[EK_KIND_COUNT], sample;
    const int32_t *table_host[EK_KIND_COUNT]; /* the source of the copy in `table` */
    int64_t ld_table;                         /* entries of a sequence in the tables */
    CUdeviceptr table_id, table_want; /* rows of per-layer embeddings, for all rows, and for those with logits */
    CUdeviceptr from, n_token;        /* for a draft: int32 per row: its row of `hidden`; tokens drafted so far */
    size_t first_mask;                /* offset of the masks */
    bool masks, edits, weighs, chooses, draws_all, sorts; /* the kernels of sampling that are needed */
    bool digests;                                         /* some row's digest is requested */
} ek_gpu_now;

/* Host memory in which lists and draws of a step are made. */
typedef struct ek_gpu_lists_memory {
    ek_scratch limits; /* for ek_pass_check */
    ek_attn_row *row[2][EK_KIND_COUNT];
    ek_cuda_attn_tile *tiles; /* for the list that is being made */
    ek_cuda_attn_item *items;
    int max_tiles, max_items;
    int64_t max_ld_table;       /* entries of a sequence in the tables of any step */
    int *want_host, *on_device; /* rows that want logits; the draw of each device sample */
    size_t *mask_at;            /* in the block: the mask of each device sample that has one */
    ek_sampler *sampler;
    int32_t *seen; /* per token: its entry in the list of counts, + 1; zero between draws */
    bool *shown;   /* rows of logits to bring back; after them, rows that a draw has */
    ek_row *rows;  /* [max_rows], for a drafter, whose rows are requests */
    ek_seq *seqs;
} ek_gpu_lists_memory;

/* --- steps between begin and end, and graphs that queue steps */

/* Host memory of a running step, pinned. There are two, because a step may begin after another; with several devices
 * there are more, because a step may be divided (gpu/several/state.h). */
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

/* --- the other devices: neighbours if devices have whole layers, or the devices with which it exchanges parts if they
 * have outputs of every layer */

/* For a device with whole layers: the source of its rows, and the receiver of tokens (gpu/several/executor.c). NULL: it
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

/* --- all of it */

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
