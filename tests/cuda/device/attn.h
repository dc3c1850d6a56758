/* A call of attention on a device, for bits (attn.c) and timings (attn_speed.c). */
#ifndef EK_TESTS_CUDA_ATTN_H
#define EK_TESTS_CUDA_ATTN_H

#include "cuda/product/layout.h"
#include "scene.h"

typedef struct call { /* arguments of a launch, and what they hold */
    ek_cuda_attn_args a;
    ek_cuda_attn_work w;
    CUdeviceptr tiles, items, starts, rows, o, leaf_o, leaf_l, leaf_m, ended;
    CUdeviceptr codes;        /* of queries, where a kernel of its own writes them; else 0 */
    CUdeviceptr parts, nodes; /* of tiles of prompts that are cut into n_parts of 2^part segments */
    size_t out_bytes;
    int tile, n_parts, part;
} call;

typedef struct kernels {
    ek_cuda_kernel leaf, join, prompt;
    size_t shared;
    unsigned threads, blocks, join_z, join_threads;
    int slots;
} kernels;

void call_prepare(call *c, const scene *s, const ek_attn_row *rows, int n_rows, CUdeviceptr q, int tile, int blocks);
void call_cut(call *c, dev *d, int part, int blocks); /* in parts of 2^part segments */
void call_finish(call *c, dev *d);
kernels kernels_find(dev *d, const ek_attn_shape *shape, int tile, bool whole, int n_items);
kernels kernels_find_deep(dev *d, int head_dim);
void call_run(dev *d, const kernels *k, const call *c);

#endif
