/* Inside src/model/tower: the vision tower of E2B, E4B, 26B-A4B and 31B (transformers, modeling_gemma4.py,
 * Gemma4VisionModel and Gemma4MultimodalEmbedder), in f32. The exact arithmetic: docs/numerics/media.md. Attention uses
 * floats (ops/attn/attn_tensors.h). A picture of EK_VISION_INTEGERS patches or more uses ops/attn/attn_int.h with i12
 * keys and values, where a patch's position is its number and it sees all patches. Only the picture's size decides. */
#ifndef EK_MODEL_TOWER_VISION_H
#define EK_MODEL_TOWER_VISION_H

#include "model/config/setting.h"
#include "model/tower/tower_part.h"
#include "ops/attn/attn.h"

enum { EK_VISION_INTEGERS = 4096 /* patches, 455 tokens of 3 x 3 */ };

typedef struct ek_vision_layer {
    ek_clipped q, k, v, o, gate, up, down;
    float *input_norm, *q_norm, *k_norm, *post_attention_norm, *pre_mlp_norm, *post_mlp_norm;
} ek_vision_layer;

typedef struct ek_vision {
    ek_tower_part part;
    ek_patching patching;
    int width, n_layers, heads, kv_heads, head_dim, inner; /* width: floats of a patch's row; inner: width of the MLP */
    int n_positions;                                       /* per row or column */
    bool clips;
    float eps;
    double theta;
    float *freq; /* [head_dim / 4] */
    ek_linear input;
    ek_embedding_table positions; /* [2][n_positions][width]: columns, then rows */
    ek_vision_layer *layer;
    float *std_bias, *std_scale; /* [width]; NULL: rows are not standardised */
    ek_linear projection;
} ek_vision;

/* info: the fields for pictures are set, except those that this function reads from config. */
ek_err ek_vision_open(ek_tower_part **out, const ek_towers_info *info, ek_tower_binder *b, const ek_settings *config);
const ek_vision *ek_vision_of(const ek_tower_part *p); /* NULL: another kind of encoder, or none */

/* Whether a picture of n patches uses attention in integers. */
static inline bool ek_vision_in_integers(const ek_vision *v, int n)
{
    return n >= v->part.kernels->integers_from;
}

ek_err ek_vision_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit);
ek_err ek_vision_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture);

/* --- the encoding of one picture, in blocks of rows. Attention needs the keys and values of all rows; all other work
 * needs one row. So a layer is two passes over the rows: heads (norm, q, k, v) and mix (attention, output projection,
 * MLP). A slice is some rows of one pass, so its end changes no bit. --- */

enum {
    EK_VISION_BLOCK = 256,   /* maximum rows of a pass at once */
    EK_VISION_INPUTS = 3,    /* matrices that read the same rows, each with its own clamp */
    EK_VISION_ATTN_ROWS = 64 /* rows per task */
};

typedef enum ek_vision_pass {
    EK_VISION_EMBED,
    EK_VISION_HEADS,
    EK_VISION_MIX,
    EK_VISION_POOL,
    EK_VISION_DONE
} ek_vision_pass;

typedef struct ek_vision_work {
    ek_tower_work work;
    const ek_vision *v;
    ek_picture picture;  /* a copy; its pixels lie in block */
    int n, across, down; /* patches */
    ek_vision_pass pass;
    int layer, row, m; /* the current block: rows [row, row + m), of patches, or (pool) of tokens */
    uint8_t *block;
    size_t bytes;
    ek_span h, q;                   /* of all patches */
    float *k, *val;                 /* [kv_heads][n][head_dim], n rounded up to 16; k in the order of ek_attn_operand */
    ek_span o, y, gate, up, kt, vt; /* of a block; kt, vt: keys and values as the products write them */
    ek_span x[EK_VISION_INPUTS];    /* inputs of products */
    float *cos, *sin;               /* [positions][head_dim / 4] */
    ek_span temp;                   /* two rows per thread */
    void *acts[EK_VISION_INPUTS], *acts_o; /* for quantised weights; NULL: none */
    uint8_t *attn;
    size_t attn_bytes; /* per thread; for integers, in all */
    /* Attention in integers. NULL: in floats, with k and val. */
    ek_attn *integers;
    ek_kv_view view;
    ek_attn_row *see; /* [EK_VISION_BLOCK] */
} ek_vision_work;

/* Floats of a head's reordered keys. */
static inline size_t ek_vision_key_floats(const ek_vision_work *w)
{
    return (size_t)(w->n + 15) / 16 * 16 * (size_t)w->v->head_dim;
}

/* Passes over the rows of the current block; heads and mix are of w->layer. */
void ek_vision_embed(ek_vision_work *w);
void ek_vision_heads(ek_vision_work *w);
void ek_vision_mix(ek_vision_work *w);
void ek_vision_pool(ek_vision_work *w);

/* Attention of rows [first, first + n) of the block, for the heads that read one KV head. */
ek_attn_tensors ek_vision_attention(const ek_vision_work *w, int kv_head, int first, int n);

#endif
