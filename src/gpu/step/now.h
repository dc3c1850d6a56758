/* The current step: its block, the sets of its rows, other state of a run, and the host memory in which the step is
 * made. */
#ifndef EK_GPU_STEP_NOW_H
#define EK_GPU_STEP_NOW_H

#include <stdbool.h>

#include "base/err.h"
#include "cuda/api.h"
#include "cuda/attn_work.h"
#include "engine/executor.h"
#include "engine/sample/sampler.h"
#include "model/pass.h"
#include "ops/kv/kv.h"

/* One step's data in pinned host memory and its copy on the device, at the same offsets: filled anew each step and
 * copied at once. */

typedef struct ek_gpu_block {
    uint8_t *host;
    CUdeviceptr device;
    size_t bytes, used;
} ek_gpu_block;

/* n bytes at the end of the block: host and device address. ETOOLARGE: no room, which the sizes at open rule out. */
ek_err ek_gpu_block_take(ek_gpu_block *b, size_t bytes, void **host, CUdeviceptr *device);

/* The rows of a step that go through a layer together, and the work lists of their attention (gpu/step/step.h). */

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
    CUdeviceptr turns[EK_KIND_COUNT]; /* the buffer, if the host made both (ek_gpu_make_turns) */
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

#endif
