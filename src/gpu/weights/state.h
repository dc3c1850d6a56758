/* The state of a model on a device, shared by the files of src/gpu. */
#ifndef EK_GPU_WEIGHTS_STATE_H
#define EK_GPU_WEIGHTS_STATE_H

#include "cuda/memory.h"
#include "cuda/product/launch.h"
#include "cuda/product/layout.h"
#include "gpu/weights/shard.h"
#include "model/drafter.h"
#include "model/pass.h"

typedef struct ek_gpu ek_gpu;

typedef struct ek_gpu_matrix {
    ek_cuda_linear l; /* n 0: the layer has none */
    CUdeviceptr at;
    bool invented; /* a synthetic model's table: values are computed from seed (model/embed.c); l has only its shape */
    uint64_t seed;
} ek_gpu_matrix;

typedef struct ek_gpu_layer {
    ek_gpu_matrix q, k, v, o, gate, up, down, router, per_layer_gate, per_layer_proj;
    ek_gpu_matrix o_part;                              /* the device's outputs of o: a part of o, or all of it */
    ek_gpu_matrix expert_gate, expert_up, expert_down; /* of expert 0; the others follow, l.bytes apart */
    CUdeviceptr input_norm, q_norm, k_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
    CUdeviceptr post_mlp_norm_1, pre_mlp_norm_2, post_mlp_norm_2, router_scale, expert_scale;
    CUdeviceptr post_per_layer_norm, scalar;
} ek_gpu_layer;

typedef struct ek_gpu_weights {
    ek_gpu_matrix embed, per_layer_head, per_layer_tail;
    ek_gpu_matrix own_head; /* a head besides embed; l.n 0: none */
    ek_gpu_matrix head;     /* the device's outputs of ek_gpu_head, a part of it */
    ek_gpu_matrix table;    /* per-layer embeddings, in memory of their own or synthetic; n 0: they stay on the host */
    ek_gpu_matrix pre_projection, post_projection, centroids; /* of a drafter */
    CUdeviceptr ordering;
    CUdeviceptr norm, per_layer_norm, rope[EK_KIND_COUNT], suppress;
    ek_gpu_layer layer[EK_MAX_LAYERS];
} ek_gpu_weights;

/* The whole matrix for logits. */
static inline const ek_gpu_matrix *ek_gpu_head(const ek_gpu_weights *w)
{
    return w->own_head.l.n ? &w->own_head : &w->embed;
}

/* A device's part of the model: its layers, and their part of a page, which is contiguous because the layers are. With
 * several devices a part of the layers; for a drafter the part is the target's. With shards it has some outputs of all
 * layers, and its KV heads of a page, layer by layer. */
typedef struct ek_gpu_share {
    int first, end;
    bool embed;       /* it looks up embeddings */
    bool head;        /* it computes logits */
    int host_experts; /* layers [first, host_experts) have router and experts on the host (gpu/step/step.h) */
    ek_gpu_shard shard;
    size_t kv_at[EK_PAGE_KINDS], kv_bytes[EK_PAGE_KINDS];
} ek_gpu_share;

static inline bool ek_gpu_experts_are_here(const ek_gpu_share *s, int layer)
{
    return layer >= s->host_experts;
}

enum { EK_GPU_KERNELS = 512, EK_GPU_BLOCKS = 128 }; /* upper bounds */

typedef struct ek_gpu_kernel {
    char name[EK_CUDA_NAME]; /* empty: the entry is free */
    ek_cuda_kernel kernel;   /* function NULL: not looked up yet, or not allowed that much shared memory */
    size_t shared;
} ek_gpu_kernel;

struct ek_gpu {
    ek_cuda *c;
    ek_model *m;
    ek_gpu_share share;
    ek_gpu_weights w;
    CUdeviceptr block[EK_GPU_BLOCKS]; /* all weights, in one block, or in several if the device bounds a block */
    size_t block_bytes[EK_GPU_BLOCKS], bytes;
    int n_blocks;
    double max_bytes;                     /* maximum bytes of the device; 0: the free memory */
    double kept_step, kept_keys;          /* bytes planned besides the weights; 0: unknown */
    double kept_rest;                     /* bytes for a drafter's weights and towers */
    int levels, float_levels;             /* depths of the stacks of ek_product_*_tile and of ek_product_*_many */
    ek_gpu_kernel kernel[EK_GPU_KERNELS]; /* hash table by name */
    ek_err err;                           /* the first error of queuing; later launches do nothing */
    double reserved;                      /* bytes that executors leave to towers */
    ek_gpu *drafter;                      /* NULL: none */
    ek_gpu *target;                       /* of a drafter, on the same device */
    ek_err (*prove)(ek_gpu *g, const ek_model *m); /* ek_gpu_driver.prove */
    ek_rope_position position;                     /* of a drafter */
    float draft_cost;
};

#endif
