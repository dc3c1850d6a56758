/* Inside src/gpu/tower: the vision tower's weights on the device, and the picture at hand. */
#ifndef EK_GPU_TOWER_VISION_STATE_H
#define EK_GPU_TOWER_VISION_STATE_H

#include "gpu/tower/state.h"
#include "model/tower/tower_vision.h"

typedef struct ek_gpu_vision_layer {
    ek_gpu_group heads, gates; /* q, k, v; gate, up */
    ek_gpu_matrix o, down;
    CUdeviceptr input_norm, q_norm, k_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
} ek_gpu_vision_layer;

typedef struct ek_gpu_vision {
    ek_gpu_tower t;
    const ek_vision *v;
    ek_gpu_matrix input, projection;
    ek_gpu_vision_layer *layer;
    CUdeviceptr std_bias, std_scale;
    /* of the picture */
    int n, across, down;                            /* patches, in a line and in a column */
    CUdeviceptr rgb, value, column, line, cos, sin; /* tables for each column and line */
    CUdeviceptr h, y, qkv, o, gates, pooled;        /* rows of all patches; pooled: of tokens */
    CUdeviceptr codes;                              /* of attention in integers, where gates are later */
    CUdeviceptr x[EK_GPU_TOWER_INPUTS];             /* what products read; the first holds the patches first */
} ek_gpu_vision;

/* Queue the kernels of the patches' embedding, of a layer, of soft tokens. */
void ek_gpu_vision_embed(ek_gpu_vision *x);
void ek_gpu_vision_layer_of(ek_gpu_vision *x, int layer);
void ek_gpu_vision_tokens(ek_gpu_vision *x);
/* How attention is launched. */
ek_cuda_product ek_gpu_vision_attention(const ek_gpu_vision *x);

#endif
