#include "model/tower/tower_image.h"

#include <string.h>

#include "model/tower/tower_unified.h"
#include "model/tower/tower_vision.h"

ek_err ek_tower_image_open(ek_tower_part **out, ek_towers_info *info, ek_tower_binder *b, const ek_tower_ops *kernels)
{
    ek_tower_source *from = b->from;
    const ek_settings top = {.file = from->file, .object = from->config};
    ek_settings vision = {.file = from->file, .in = "vision_config."};
    *out = NULL;
    EK_TRY(ek_setting_may_object(&vision.object, &top, "vision_config"));
    const bool tower = ek_tower_source_has(from, "vision_tower.");
    if (!vision.object ||
        (!tower && !ek_tower_source_has(from, "embed_vision.") && !ek_tower_source_has(from, "vision_embedder.")))
        return EK_OK; /* some programs drop the tensors and leave the configuration */
    info->image_kind = tower ? EK_PATCH_TOWER : EK_PATCH_UNIFIED;
    EK_TRY(ek_setting_may_int(&info->patching.side, &vision, "patch_size", 16, 1, EK_MAX_CELL));
    EK_TRY(ek_setting_may_int(&info->patching.pool, &vision, "pooling_kernel_size", 3, 1, EK_MAX_CELL));
    if (info->patching.side * info->patching.pool > EK_MAX_CELL)
        return ek_fail(EK_EUNSUPPORTED, "%s: %d x %d patches of %d pixels in a token; %d pixels on a side can be run",
                       from->file, info->patching.pool, info->patching.pool, info->patching.side, EK_MAX_CELL);
    ek_err err = tower ? ek_vision_open(out, info, b, &vision) : ek_unified_open(out, info, b, &vision);
    if (!err) (*out)->kernels = kernels, (*out)->hidden = info->hidden;
    return err;
}

ek_err ek_tower_image_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit)
{
    return ek_unified_of(p) ? ek_unified_cost(out, p, fit) : ek_vision_cost(out, p, fit);
}

ek_err ek_tower_image_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture)
{
    return ek_unified_of(p) ? ek_unified_begin(out, p, picture) : ek_vision_begin(out, p, picture);
}
