/* Inside src/model/tower: the encoders of pictures, the vision tower (tower_vision.h) and the 12B's patches
 * (tower_unified.h). */
#ifndef EK_MODEL_TOWER_IMAGE_H
#define EK_MODEL_TOWER_IMAGE_H

#include "model/tower/tower_part.h"

/* Reads vision_config of b->from, binds all weights and allocates the part. *out NULL: the model takes no pictures.
 * Sets the fields of info that speak of pictures otherwise; info->hidden is set. */
ek_err ek_tower_image_open(ek_tower_part **out, ek_towers_info *info, ek_tower_binder *b, const ek_tower_ops *kernels);
/* EINVAL for a picture with more patches in a row or column than the model has positions. */
ek_err ek_tower_image_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit);
/* The weights are packed and ready, the picture is cut for them. ENOMEM. */
ek_err ek_tower_image_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture);

#endif
