/* Inside src/model/tower: pictures of the 12B, which has no tower (transformers, modeling_gemma4_unified.py,
 * Gemma4UnifiedVisionEmbedder), in f32. The exact arithmetic: docs/numerics/media.md. */
#ifndef EK_MODEL_TOWER_UNIFIED_H
#define EK_MODEL_TOWER_UNIFIED_H

#include "model/config/setting.h"
#include "model/tower/tower_part.h"

/* Norms with a bias use PyTorch's epsilon, not the model's. */
#define EK_UNIFIED_LAYER_NORM_EPS 1e-5f

typedef struct ek_unified {
    ek_tower_part part;
    ek_patching patching;
    int width, floats, n_positions; /* floats: per patch */
    float eps;
    ek_linear input, projection;
    float *bias, *ln1[2], *ln2[2], *ln3[2]; /* weight, bias */
    ek_embedding_table positions;           /* [n_positions][2][width]: columns and lines */
    bool apart;                             /* the order in GGUF: [2][n_positions][width] */
} ek_unified;

const ek_unified *ek_unified_of(const ek_tower_part *p); /* NULL: another kind of encoder, or none */
/* Write the position row of column i, and of line i: width floats. */
void ek_unified_column(const ek_unified *u, int i, float *row);
void ek_unified_line(const ek_unified *u, int i, float *row);

ek_err ek_unified_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit);

/* --- the encoders of pictures: the vision tower (tower_vision.h) and the 12B's patches --- */

/* Reads vision_config of b->from, binds all weights and allocates the part. *out NULL: the model takes no pictures;
 * otherwise the fields of info for pictures are set. info->hidden is set before. */
ek_err ek_tower_image_open(ek_tower_part **out, ek_towers_info *info, ek_tower_binder *b, const ek_tower_ops *kernels);
/* EINVAL for a picture with more patches per row or column than the model has positions. */
ek_err ek_tower_image_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit);
/* The weights are packed and ready, and the picture is cut for them. ENOMEM. */
ek_err ek_tower_image_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture);

#endif
