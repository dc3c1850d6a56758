/* What an executor has: the memory of a step, the step's block, and the pages. */
#ifndef EK_GPU_RUN_H
#define EK_GPU_RUN_H

#include "cuda/image_args.h"
#include "engine/sampler.h"
#include "gpu/state.h"

/* The attention of a set of rows in layers of one kind. Tiles of few queries go in waves that fit the memory of the
 * leaves; those of prompts in one launch. Addresses are in the step's block. */
typedef struct ek_gpu_wave {
    CUdeviceptr tiles, items;
    int n_tiles, n_items;
} ek_gpu_wave;

typedef struct ek_gpu_list {
    CUdeviceptr rows;
    ek_gpu_wave *wave; /* [max_rows] */
    int n_waves, tile;
    bool joined;        /* by ek_attn_half_N, which joins leaves and, without prompts, finishes queries itself */
    bool deep;          /* leaves by ek_attn_deep_DIM */
    bool single;        /* every view has one row in the step: then it stores their keys, too */
    CUdeviceptr prompt; /* tiles */
    int n_prompt, levels;
} ek_gpu_list;

/* Rows that go through a layer together: all of a step, or those that want logits. */
typedef struct ek_gpu_set {
    int n;
    CUdeviceptr place; /* ek_cuda_place */
    CUdeviceptr cos[EK_KIND_COUNT], sin[EK_KIND_COUNT];
    ek_gpu_list list[EK_KIND_COUNT];
} ek_gpu_set;

/* One step's data in pinned host memory and its copy on the device, at the same offsets: filled anew each step and
 * copied at once. */
typedef struct ek_gpu_block {
    uint8_t *host;
    CUdeviceptr device;
    size_t bytes, used;
} ek_gpu_block;

/* What the host has of a step between its beginning and its end: two, for one may begin behind another. All pinned. */
typedef struct ek_gpu_flight {
    uint8_t *block;  /* block.host while its step is begun: the copy to the device is queued behind the step in front */
    int32_t *result; /* of all rows of logits: digests (two int32 each), then bad, then token */
    CUevent ended;
    int n_draws;
    bool draws;     /* the device makes every draw of the step */
    bool disturbed; /* a step was begun behind it: what the run has of "this step" and the rows of logits are of that
                       one */
} ek_gpu_flight;
enum { EK_GPU_FLIGHTS = 2 };

enum { EK_GPU_GRAPHS = 96, EK_GPU_FORM = 32 };

typedef struct ek_gpu_form {
    uint64_t value[EK_GPU_FORM];
    int n;
} ek_gpu_form;

typedef struct ek_gpu_graph {
    ek_gpu_form form;
    CUgraphExec exec; /* NULL: seen once */
    uint64_t used;    /* the step that used it last; 0: never */
} ek_gpu_graph;

typedef struct ek_gpu_run {
    ek_gpu *g;
    ek_executor_sizes z;
    CUdeviceptr scratch; /* holds all buffers below */
    size_t scratch_bytes;
    CUdeviceptr h, x, y, q, k, v, o, gate, up, acts, acts2, per_layer_head, per_layer_tail, temp; /* f32 rows; acts,
                                                                                           acts2: records */
    CUdeviceptr route, pair_gate, pair_up, pair_out, expert, weight, pair_row, row_pair, jobs, n_jobs;
    CUdeviceptr h_between, route_acts, expert_acts; /* with experts: f32 rows behind attention; records */
    CUdeviceptr routed;                             /* int32, zero between launches */
    CUdeviceptr ended;                              /* int32 per tile of few queries, zero between launches */
    CUdeviceptr image[2]; /* rows as products by wgmma of one and of two limbs read them; with a gate the second is
                             written while the first is read, and becomes the first */
    uint64_t n_inputs, holds[2]; /* numbers given so far; whose rows the images are, */
    int held_group[2];           /* in groups of how many inputs */
    CUdeviceptr logits, stack, leaves, best, draw, digest, bad, token, block_max, leaf_sums, sorted;
    size_t leaf_bytes, stack_bytes, image_bytes;
    CUdeviceptr pages[EK_PAGE_KINDS];
    size_t page_bytes[EK_PAGE_KINDS];
    ek_gpu_block block;
    float *temp_host, *logits_host; /* pinned: per-layer embeddings of a step; shown rows of logits */
    ek_gpu_flight flight[EK_GPU_FLIGHTS];
    uint64_t n_begun, n_ended; /* steps; a step's flight is its number modulo the flights */
    int32_t *result;           /* pinned: of the step that ended last; of a drafter its tokens */
    ek_gpu_set all, tail;      /* tail: used where some rows want no logits */
    /* of this step */
    int n_want, first_logits, n_draws;
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
    ek_err pending;
    char pending_text[512];
    /* drafts */
    struct ek_gpu_run *drafter; /* NULL: none */
    CUdeviceptr hidden;         /* f32 [max_logits][hidden_size], with a drafter: the last x of the rows of logits */
    struct ek_gpu_run *target;  /* of a drafter's run, whose rows are requests; NULL else. The rest is its own: */
    CUdeviceptr fed, chosen;    /* f32 [rows][2 x backbone_hidden_size]: embedding and state; int32: centroids */
    ek_row *rows;               /* [max_rows] */
    ek_seq *seqs;
    CUdeviceptr from, n_token; /* in the block: int32 per row: its row of `hidden`; tokens drafted so far */
} ek_gpu_run;

/* ek_executor.open and close (gpu/memory.c), and draft (gpu/draft.c). */
ek_err ek_gpu_run_open(void *run, const ek_executor_sizes *z);
void ek_gpu_run_close(void *run);
ek_err ek_gpu_draft(void *run, ek_draft *draft, int n);

/* --- the block */

/* n bytes at the end of the block: host and device address. ETOOLARGE: no room, which the sizes at open rule out. */
ek_err ek_gpu_block_take(ek_gpu_block *b, size_t bytes, void **host, CUdeviceptr *device);

/* Rows, page tables and work lists of a step, into the block (gpu/lists.c). */
size_t ek_gpu_lists_bytes(const ek_gpu_run *x); /* room that any step needs */
ek_err ek_gpu_lists(ek_gpu_run *x, const ek_step *s);
/* Room for x->tiles and x->items, once leaf_bytes is known. */
void ek_gpu_lists_most(const ek_gpu_run *x, int *tiles, int *items);
/* Bytes for the leaves of attention: enough for one row, and for all within a limit. */
size_t ek_gpu_leaf_bytes(const ek_gpu_run *x);

/* Queues the forward pass of the rows in the block, up to the logits of the n_want rows (gpu/forward.c). */
void ek_gpu_forward(ek_gpu_run *x);
void ek_gpu_rope_tables(ek_gpu_run *x, const ek_gpu_set *set);
/* to[r] = factor times elements [first, first + width) of row id[r] of w. */
void ek_gpu_embed(ek_gpu_run *x, const ek_gpu_matrix *w, CUdeviceptr id, CUdeviceptr to, int64_t ld, int first,
                  int width, float factor, int n);
/* The fields of args that the matrix decides. */
ek_cuda_embed_args ek_gpu_rows_of(const ek_gpu_matrix *w);

/* Rows of a linear layer's input: f32, and quantised once a matrix needs it. */
typedef struct ek_gpu_input {
    CUdeviceptr f;
    int64_t ld;
    int n, k;
    ek_cuda_acts acts; /* q 0: not quantised yet */
    uint64_t number;   /* in x->holds where an image is of these rows; 0: none was */
} ek_gpu_input;

/* All layers of x->all.n rows, from h to the rows behind the last norm. */
ek_gpu_input ek_gpu_layers(ek_gpu_run *x);

ek_gpu_input ek_gpu_rows(CUdeviceptr f, int64_t ld, int n, int k);
/* The record that a stage shall write for w: q 0 for Form F. Notes it in `in`. */
ek_cuda_acts ek_gpu_acts_for(ek_gpu_run *x, ek_gpu_input *in, const ek_gpu_matrix *w);
void ek_gpu_quantize(ek_gpu_run *x, ek_gpu_input *in, const ek_gpu_matrix *w); /* unless it is already */
/* Arguments of product p of w, which reads `in`. */
ek_cuda_linear_args ek_gpu_linear_args(ek_gpu_run *x, const ek_gpu_matrix *w, const ek_gpu_input *in,
                                       const ek_cuda_product *p, CUdeviceptr y, int64_t ldy);
void ek_gpu_project(ek_gpu_run *x, const ek_gpu_matrix *w, ek_gpu_input *in, CUdeviceptr y, int64_t ldy);
/* Two matrices of one shape that read the same rows: in one launch where that is possible. */
void ek_gpu_project_two(ek_gpu_run *x, const ek_gpu_matrix *w, const ek_gpu_matrix *w2, ek_gpu_input *in, CUdeviceptr y,
                        CUdeviceptr y2, int64_t ldy);
/* Writes `in` as product p of w reads it, unless it is there: quantised, or an image, which comes straight from floats
 * where they are not quantised.
 * with: jobs and index of experts, or nothing. */
void ek_gpu_arrange(ek_gpu_run *x, const ek_gpu_matrix *w, ek_gpu_input *in, const ek_cuda_product *p,
                    ek_cuda_arrange_args with);
/* k and v of layer i, and q (with_q), of many rows in one launch by wgmma. False: it cannot, or three would be faster,
 * and nothing was queued. */
bool ek_gpu_heads_wide(ek_gpu_run *x, int i, bool with_q, ek_gpu_input *in, int64_t ldq, int64_t ldk);
/* Both products of a gate of many rows in one launch by wgmma, as the image of w, for rows or for jobs of experts up to
 * `tile` rows. False: it cannot, and nothing was queued. */
bool ek_gpu_gated_wide(ek_gpu_run *x, const ek_gpu_matrix *gate, const ek_gpu_matrix *upper, ek_cuda_products_args with,
                       int tile, int jobs, ek_gpu_input *in, int rows_out, const ek_gpu_matrix *w, ek_gpu_input *out);
/* Bytes of the stack and the image for any step: an image of all rows, and for each block that is at work at once nodes
 * of 128 outputs by 64 rows. */
void ek_gpu_size_products(ek_gpu_run *x);
/* Attention (gpu/attend.c). Whether rows that want no logits end at layer i, the last that owns keys. */
bool ek_gpu_drops(const ek_gpu_run *x, int i);
/* Layer i's keys and values, from x->k and x->v; its queries, in x->q; each unless attention does it. */
void ek_gpu_store(ek_gpu_run *x, int i, const ek_gpu_set *set);
void ek_gpu_finish_queries(ek_gpu_run *x, int i, const ek_gpu_set *set);
/* out: the rows that come of it, which it quantises for the layer's o where all are few queries. */
void ek_gpu_attend(ek_gpu_run *x, int i, const ek_gpu_set *set, ek_gpu_input *out);
enum { EK_GPU_PROMPT_ROWS = 256 }; /* from so many on stages have a kernel of their own */
/* The row-wise stage of n rows by ek_stage, or of prompts with images of what comes of it (gpu/stage.c). */
void ek_gpu_stage(ek_gpu_run *x, ek_cuda_stage_args *a, int n);
/* And behind what a says x = norm(h), ready for w. all: w's records are all that is read of x, which is then not
 * written as floats. */
ek_gpu_input ek_gpu_stage_to(ek_gpu_run *x, ek_cuda_stage_args a, CUdeviceptr norm, const ek_gpu_matrix *w, bool all,
                             int n);
/* The same for all that reads x in layer i: q, k and v (heads), or gate and up. */
ek_gpu_input ek_gpu_stage_for(ek_gpu_run *x, ek_cuda_stage_args a, int i, bool heads, int n);
/* Whether records of rows for q of a layer are what k and v read, too. */
bool ek_gpu_serves_heads(const ek_gpu_layer *w);
/* Images of n rows of a prompt that a stage shall write for layer i, whose readers are q, k and v, or gate and up.
 * Notes them in `in`. complete: nobody reads anything else of them. */
ek_cuda_images ek_gpu_images_for(ek_gpu_run *x, int i, bool heads, int n, ek_gpu_input *in, bool *complete);
/* A product with its gate in one launch, as the input of w (cuda/model_args.h, ek_products_leaf_*): gelu(gate) times
 * upper, or times the rows of u. jobs: of experts up to `tile` rows, with the rest of their fields in `with`; 0: none.
 * False: it cannot, and nothing was queued. */
bool ek_gpu_gated(ek_gpu_run *x, const ek_gpu_matrix *gate, const ek_gpu_matrix *upper, ek_cuda_leaf_args with,
                  int tile, int jobs, ek_gpu_input *in, int rows_out, const ek_gpu_matrix *w, ek_gpu_input *out);
/* The gate of g and u (ld n) as the input of w. */
ek_gpu_input ek_gpu_gate(ek_gpu_run *x, CUdeviceptr g, CUdeviceptr u, int64_t ldg, int64_t ldu, int n, int k,
                         const ek_gpu_matrix *w);

/* The dense MLP of layer i, from rows that its gate reads to x->y. */
void ek_gpu_mlp(ek_gpu_run *x, int i, ek_gpu_input *in, int n);
/* Experts of layer i for n rows (gpu/experts.c): from h to pair_out, row_pair and weight, which `end` then names. */
void ek_gpu_experts(ek_gpu_run *x, int i, int n, ek_cuda_stage_args *end);
/* These and the dense MLP from o's output in x->y, which they read together. False: they cannot, and nothing was
 * queued. */
bool ek_gpu_experts_beside(ek_gpu_run *x, int i, int n, ek_cuda_stage_args *end);

/* Queues what body queues, by a graph where one was made of a step of this form (gpu/graph.c). */
typedef ek_err ek_gpu_body(ek_gpu_run *x);
typedef enum ek_gpu_part { EK_GPU_ALL, EK_GPU_FORWARD, EK_GPU_DRAWS } ek_gpu_part; /* of a step, that body queues */
ek_err ek_gpu_replay(ek_gpu_run *x, ek_gpu_body *body, ek_gpu_part part);
void ek_gpu_graphs_fini(ek_gpu_run *x);

/* Sampling (gpu/sample.c): samples into the block, kernels, tokens from what came back. */
size_t ek_gpu_samples_bytes(const ek_gpu_run *x);
ek_err ek_gpu_samples(ek_gpu_run *x, const ek_step *s, bool *shown);
ek_err ek_gpu_put_masks(ek_gpu_run *x,
                        const ek_step *s); /* once they are made: into the places that samples gave them */
void ek_gpu_draw(ek_gpu_run *x);
/* Of a step that ended, whose flight is f. */
ek_err ek_gpu_deliver(ek_gpu_run *x, const ek_step *s, const ek_gpu_flight *f);

#endif
