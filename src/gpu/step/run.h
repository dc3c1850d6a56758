/* What an executor has: the memory of a step, the step's block, the pages, and what is known of the step at hand. */
#ifndef EK_GPU_STEP_RUN_H
#define EK_GPU_STEP_RUN_H

#include "cuda/exchange_args.h"
#include "engine/executor.h"
#include "engine/sample/sampler.h"
#include "gpu/step/data.h"
#include "gpu/weights/state.h"

typedef struct ek_gpu_run ek_gpu_run;
typedef struct ek_gpu_flight ek_gpu_flight;
typedef struct ek_gpu_host ek_gpu_host; /* gpu/step/step.h */

/* What the host has of a step between its beginning and its end: two, for one may begin behind another; of several
 * devices more, for a step may be in pieces (gpu/several/pieces.h). All pinned. */
struct ek_gpu_flight {
    uint8_t *block;  /* block.host while its step is begun: the copy to the device is queued behind the step in front */
    int32_t *result; /* of all rows of logits: digests (two int32 each), then bad, then token; with a cut what
                        control has: ready, then lost */
    CUevent ended;
    int n_draws;
    bool draws;     /* the device makes every draw of the step */
    bool disturbed; /* a step was begun behind it: what the run has of "this step" and the rows of logits are of that
                       one */
};

enum { EK_GPU_FLIGHTS = 2, EK_GPU_MAX_FLIGHTS = 8 };

struct ek_gpu_run {
    ek_gpu *g;
    ek_executor_sizes z;
    CUdeviceptr scratch; /* holds all buffers below */
    size_t scratch_bytes;
    CUdeviceptr h, x, y, q, k, v, o, gate, up, acts, acts2, per_layer_head, per_layer_tail, temp; /* f32 rows; acts,
                                                                                           acts2: records */
    CUdeviceptr route, pair_gate, pair_up, pair_out, expert, weight, pair_row, row_pair, jobs, n_jobs;
    CUdeviceptr h_between, route_acts, expert_acts; /* with experts: f32 rows behind attention; records */
    ek_gpu_host *host;                              /* with experts on the host; NULL else. Then: */
    CUdeviceptr host_pair, host_weight;             /* [max_rows]: int32 0, 1, ...; f32 1 */
    CUdeviceptr routed;                             /* int32, zero between launches */
    CUdeviceptr ended;                              /* int32 per tile of few queries, or leaf, zero between launches */
    CUdeviceptr operand[2]; /* rows as products by wgmma of one and of two limbs read them; with a gate the second is
                               written while the first is read, and becomes the first */
    CUdeviceptr logits, stack, segments, best, draw, digest, bad, token, block_max, leaf_sums, sorted;
    size_t segment_bytes, stack_bytes, operand_bytes;
    CUdeviceptr pages[EK_PAGE_KINDS];
    size_t page_bytes[EK_PAGE_KINDS];
    ek_gpu_block block;
    float *temp_host, *logits_host; /* pinned: per-layer embeddings of a step; shown rows of logits */
    ek_gpu_flight flight[EK_GPU_MAX_FLIGHTS];
    int n_flights;
    uint64_t n_begun, n_ended; /* steps; a step's flight is its number modulo the flights */
    int32_t *result;           /* pinned: of the step that ended last; of a drafter its tokens */
    ek_gpu_set all, tail;      /* tail: used where some rows want no logits */
    /* of this step */
    int n_want, first_logits, n_draws, first_draw;
    CUdeviceptr id, want, table[EK_KIND_COUNT], sample;
    const int32_t *table_host[EK_KIND_COUNT]; /* what `table` is a copy of */
    CUdeviceptr table_id,
        table_want;       /* rows of the table of per-layer embeddings, of all and of those that want logits */
    int64_t ld_table;     /* entries of a sequence in the tables of this step */
    int64_t max_ld_table; /* of any */
    bool masks, edits, weighs, chooses, draws_all, sorts; /* which kernels of sampling are needed */
    bool digests;                                         /* some row's is asked for */
    /* on the host */
    ek_scratch limits; /* for ek_pass_check */
    ek_attn_row *row[2][EK_KIND_COUNT];
    ek_cuda_attn_tile *tiles; /* of a list while it is made */
    ek_cuda_attn_item *items;
    int max_tiles, max_items;
    int *want_host, *on_device;  /* rows that want logits; the draw of each device sample */
    size_t *mask_at, first_mask; /* in the block: the mask of each device sample that has one; the first of all */
    ek_sampler *sampler;
    int32_t *seen; /* per token: its entry in the list of counts, + 1; zero between draws */
    bool *shown;   /* rows of logits to bring back; behind them, rows that a draw has */
    ek_gpu_graph graph[EK_GPU_GRAPHS];
    uint64_t n_steps;
    struct ek_gpu_recipes *recipes; /* gpu/recipe/recipe.h */
    ek_err pending;
    char pending_text[512];
    /* of a device of several: where rows come from, and who has tokens (gpu/several/state.h); NULL: it has all layers
     */
    struct ek_gpu_run *front, *behind, *last; /* the device that has the layers in front; behind; the last */
    const float *given;                       /* pinned: rows of the host's layers, in front of the first device */
    CUevent taken;                            /* the rows of the device in front were copied */
    uint64_t drawn; /* the step, or piece of one, by the last device's count, whose draws, and those of steps in front
                       of it, the rows of this step follow */
    /* of a device of several whose outputs are cut: those of all, itself included, in the order of their parts; who
     * brings logits and draws to the host; an ek_cuda_exchange_control; records of what all have made, of rows and of
     * pairs */
    struct ek_gpu_run *peer[EK_CUDA_EXCHANGE_RANKS];
    bool follower; /* another one does */
    CUdeviceptr control, gathered, pair_gathered;
    CUdeviceptr landing; /* EK_CUDA_LANDINGS of so many bytes each */
    size_t landing_bytes;
    uint32_t n_exchanged; /* steps whose numbers were used: the first word of a step's block */
    /* drafts */
    struct ek_gpu_run *drafter; /* NULL: none */
    CUdeviceptr hidden;         /* f32 [max_logits][hidden_size], with a drafter: the last x of the rows of logits */
    struct ek_gpu_run *target;  /* of a drafter's run, whose rows are requests; NULL else. The rest is its own: */
    CUdeviceptr fed, chosen;    /* f32 [rows][2 x backbone_hidden_size]: embedding and state; int32: centroids */
    ek_row *rows;               /* [max_rows] */
    ek_seq *seqs;
    CUdeviceptr from, n_token; /* in the block: int32 per row: its row of `hidden`; tokens drafted so far */
};

/* The heads of layers like l that are computed here. */
static inline ek_gpu_head_part ek_gpu_heads_of(const ek_gpu_run *x, const ek_layer_config *l)
{
    return ek_gpu_heads_here(&x->g->share.cut, &x->g->m->config, l);
}

/* Heads whose attention is one launch, in layers like l: the heads that are here. A drafter behind a target whose
 * outputs are cut reads keys that lie on several devices: it has a launch for each, of as many heads, or for each KV
 * head. */
static inline ek_gpu_head_part ek_gpu_heads_at_once(const ek_gpu_run *x, const ek_layer_config *l)
{
    const ek_gpu_head_part here = ek_gpu_heads_of(x, l);
    const int ranks = x->target ? x->target->g->share.cut.ranks : 0;
    if (!ranks) return here;
    const int n = here.kv.n % ranks == 0 ? here.kv.n / ranks : 1;
    return (ek_gpu_head_part){{0, here.q.n / here.kv.n * n}, {0, n}};
}

/* Where the rows' embeddings lie. Behind another device they are for per-layer inputs alone, and h has its rows. */
static inline CUdeviceptr ek_gpu_embedded(const ek_gpu_run *x)
{
    return x->g->share.first ? x->x : x->h;
}

#endif
