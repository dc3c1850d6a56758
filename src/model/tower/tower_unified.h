/* Inside src/model/tower: pictures of the 12B, which has no tower (transformers, modeling_gemma4_unified.py,
 * Gemma4UnifiedVisionEmbedder), in f32. What is computed, to the bit: docs/numerics/media.md. */
#ifndef EK_MODEL_TOWER_UNIFIED_H
#define EK_MODEL_TOWER_UNIFIED_H

#include "model/config/setting.h"
#include "model/tower/tower_part.h"

extern const ek_tower_part_ops ek_unified_ops;

/* Fields of info that speak of pictures are set but for what is read here. */
ek_err ek_unified_open(ek_tower_part **out, const ek_towers_info *info, ek_tower_binder *b, const ek_settings *config);
ek_err ek_unified_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit);
ek_err ek_unified_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture);

#endif
