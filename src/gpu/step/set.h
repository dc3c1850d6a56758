/* The rows of a step that go through a layer together, and the work lists of their attention (gpu/step/lists.h). */
#ifndef EK_GPU_STEP_SET_H
#define EK_GPU_STEP_SET_H

#include <stdbool.h>

#include "cuda/api.h"
#include "ops/kv/kv.h"

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

#endif
