/* Inside src/model/tower: the vision tower of E2B, E4B, 26B-A4B and 31B (transformers, modeling_gemma4.py,
 * Gemma4VisionModel and Gemma4MultimodalEmbedder), in f32. What is computed, to the bit: docs/numerics/media.md.
 *
 * Attention is that of floats (ops/attn/attn_tensors.h), but of a picture of EK_VISION_INTEGERS patches or more that of
 * ops/attn/attn_int.h with keys and values in i12, each patch at the position of its number and seeing all: a function
 * of the picture's size alone. */
#ifndef EK_MODEL_TOWER_VISION_H
#define EK_MODEL_TOWER_VISION_H

#include "model/config/setting.h"
#include "model/tower/tower_part.h"

enum { EK_VISION_INTEGERS = 4096 /* patches, 455 tokens of 3 x 3 */ };

typedef struct ek_vision_layer {
    ek_clipped q, k, v, o, gate, up, down;
    float *input_norm, *q_norm, *k_norm, *post_attention_norm, *pre_mlp_norm, *post_mlp_norm;
} ek_vision_layer;

typedef struct ek_vision {
    ek_tower_part part;
    ek_patching patching;
    int width, n_layers, heads, kv_heads, head_dim, inner; /* width: floats of a patch's row; inner: of the MLP */
    int n_positions;                                       /* in a row or column */
    bool clips;
    float eps;
    double theta;
    float *freq; /* [head_dim / 4] */
    ek_linear input;
    ek_embedding_table positions; /* [2][n_positions][width]: of columns, then of rows */
    ek_vision_layer *layer;
    float *std_bias, *std_scale; /* [width]; NULL: not standardised */
    ek_linear projection;
} ek_vision;

/* Fields of info that speak of pictures are set but for what is read here. */
ek_err ek_vision_open(ek_tower_part **out, const ek_towers_info *info, ek_tower_binder *b, const ek_settings *config);
const ek_vision *ek_vision_of(const ek_tower_part *p); /* NULL: an encoder of another kind, or none */

/* Whether attention of a picture of n patches is in integers. */
static inline bool ek_vision_in_integers(const ek_vision *v, int n)
{
    return n >= v->part.kernels->integers_from;
}

ek_err ek_vision_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit);
ek_err ek_vision_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture);

#endif
