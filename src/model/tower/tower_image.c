#include "model/tower/tower_image.h"

/* Pictures are not encoded yet: a model with a vision tower opens as one without. */
ek_err ek_tower_image_open(ek_tower_part **out, ek_towers_info *info, ek_tower_binder *b, const ek_tower_ops *kernels)
{
    (void)info, (void)b, (void)kernels;
    *out = NULL;
    return EK_OK;
}

void ek_tower_image_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit)
{
    (void)p;
    *out = (ek_tower_cost){.rows = fit->tokens};
}

ek_err ek_tower_image_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture)
{
    (void)p, (void)picture;
    *out = NULL;
    return ek_fail(EK_EUNSUPPORTED, "images cannot be encoded yet");
}
