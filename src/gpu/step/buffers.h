/* The memory of a step on its device. All buffers except pages lie in `scratch` (gpu/fit/sizes.c). */
#ifndef EK_GPU_STEP_BUFFERS_H
#define EK_GPU_STEP_BUFFERS_H

#include "cuda/api.h"
#include "ops/kv/kv.h"

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

#endif
