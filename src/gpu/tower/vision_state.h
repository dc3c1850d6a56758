/* Inside src/gpu/tower: the vision tower's weights on the device, and the picture at hand. */
#ifndef EK_GPU_TOWER_VISION_STATE_H
#define EK_GPU_TOWER_VISION_STATE_H

#include "gpu/weights/state.h"
#include "model/tower/tower_vision.h"

typedef struct ek_gpu_vision ek_gpu_vision;

typedef struct ek_gpu_vision_layer {
    ek_gpu_matrix q, k, v, o, gate, up, down;
    CUdeviceptr input_norm, q_norm, k_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
} ek_gpu_vision_layer;

enum { EK_GPU_VISION_INPUTS = 3 }; /* matrices that read the same rows, each clamped its way */

struct ek_gpu_vision {
    ek_gpu *g;
    const ek_vision *v;
    CUdeviceptr block; /* of all weights */
    ek_gpu_matrix input, projection;
    ek_gpu_vision_layer *layer;
    CUdeviceptr std_bias, std_scale;
    /* The picture; picture NULL: none. */
    const ek_picture *picture;
    float *to;                   /* the caller's */
    int n, across, down, tokens; /* patches, in a line and in a column; soft tokens */
    int next;                    /* layer; -1: nothing was done yet */
    uint8_t *host;               /* tables on their way */
    CUdeviceptr scratch;         /* of what follows */
    CUdeviceptr rgb, value, column, line, cos, sin;
    CUdeviceptr h, q, k, val, o, y, gate, up, x[EK_GPU_VISION_INPUTS], pooled, rows, stack;
};

#endif
