/* Inside src/gpu/tower: the audio tower's weights on the device, and the clip at hand. */
#ifndef EK_GPU_TOWER_CONFORMER_STATE_H
#define EK_GPU_TOWER_CONFORMER_STATE_H

#include "gpu/tower/state.h"
#include "model/tower/tower_audio_state.h"

typedef struct ek_gpu_ffw {
    ek_gpu_group up;
    ek_gpu_matrix down;
    CUdeviceptr pre, post;
} ek_gpu_ffw;

typedef struct ek_gpu_conformer_layer {
    ek_gpu_ffw ffw[2];
    ek_gpu_group heads, start; /* q, k, v; the convolution's */
    ek_gpu_matrix post, end;
    CUdeviceptr pre_attn, post_attn, out, conv_pre, conv_norm, tap, q_scale, rel_row;
} ek_gpu_conformer_layer;

typedef struct ek_gpu_conformer {
    ek_gpu_tower t;
    const ek_audio *a;
    ek_gpu_matrix conv[2], input, output, embed;
    CUdeviceptr conv_norm[2], bias;
    ek_gpu_conformer_layer *layer;
    /* of the clip: n rows, one per token */
    int frames, half, n;                            /* half: rows behind the first convolution */
    CUdeviceptr mel, window[2], map[2];             /* [frames][bins]; windows of the convolutions and what they give */
    CUdeviceptr h, y, heads, o, wide;               /* rows; wide: four times as wide */
    CUdeviceptr gate, last, x[EK_GPU_TOWER_INPUTS]; /* last: [n][output] */
} ek_gpu_conformer;

/* Queue the kernels of the convolutions, of a layer, of soft tokens. */
void ek_gpu_conformer_begin(ek_gpu_conformer *x);
void ek_gpu_conformer_layer_of(ek_gpu_conformer *x, int layer);
void ek_gpu_conformer_tokens(ek_gpu_conformer *x);

#endif
