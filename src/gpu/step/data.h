/* What a step is made of on the host: its block, the sets of its rows, its form. */
#ifndef EK_GPU_STEP_DATA_H
#define EK_GPU_STEP_DATA_H

#include <stdbool.h>

#include "base/err.h"
#include "cuda/api.h"
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
 * segments; those of prompts in one launch. Addresses are in the step's block. */
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

/* The form of a step, and the graph that was made of one (gpu/step/step.h). */

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

#endif
