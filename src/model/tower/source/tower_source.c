#include "model/tower/source/tower_source.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "model/tower/source/tower_gguf.h"

/* ------------------------------------------------------------------ which container */

ek_err ek_tower_source_open(ek_tower_source **out, const char *path, const char *mmproj, const char *synthetic)
{
    *out = NULL;
    if (synthetic) return ek_tower_synthetic_open(out, synthetic);
    if (ek_is_dir(path) && !ek_gguf_is_folder(path)) {
        if (mmproj && strcmp(mmproj, "none") != 0)
            return ek_fail(EK_EINVAL, "%s is no GGUF: its towers lie in the folder, not in %s", path, mmproj);
        return ek_tower_folder_open(out, path);
    }
    return ek_tower_gguf_open(out, path, mmproj);
}

void ek_tower_source_close(ek_tower_source *s)
{
    if (s) s->ops->close(s);
}

/* ------------------------------------------------------------------ tensors */

bool ek_tower_source_has(ek_tower_source *s, const char *begin)
{
    return s->ops->has(s, begin);
}

ek_err ek_tower_source_check_unused(ek_tower_source *s, const char *const *begin)
{
    return s->ops->check_unused ? s->ops->check_unused(s, begin) : EK_OK;
}

bool ek_tower_source_find(ek_tower_source *s, const char *name, ek_tower_tensor *out)
{
    return s->ops->find(s, name, out);
}

static void shape_text(char *out, size_t room, int n_dims, const int64_t *dim)
{
    size_t used = (size_t)snprintf(out, room, "[");
    for (int d = 0; d < n_dims && used < room; d++)
        used += (size_t)snprintf(out + used, room - used, "%s%lld", d ? ", " : "", (long long)dim[d]);
    if (used < room) snprintf(out + used, room - used, "]");
}

ek_err ek_tower_source_need(ek_tower_source *s, const char *name, int n_dims, const int64_t *dim, ek_tower_tensor *out)
{
    char has[128], needs[128];
    if (!s->ops->find(s, name, out))
        return ek_fail(EK_EFORMAT, "%s: tensor %.200s of the towers is missing", s->path, name);
    if (!out->type || !out->type->load)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, it must be F32, F16 or BF16", out->file, out->name,
                       out->type ? out->type->name : "unknown");
    if (out->n_dims < 0) { /* synthetic */
        out->n_dims = n_dims;
        memcpy(out->dim, dim, sizeof *dim * (size_t)n_dims);
        return EK_OK;
    }
    if (out->n_dims == n_dims && memcmp(out->dim, dim, sizeof *dim * (size_t)n_dims) == 0) return EK_OK;
    shape_text(has, sizeof has, out->n_dims, out->dim);
    shape_text(needs, sizeof needs, n_dims, dim);
    return ek_fail(EK_EFORMAT, "%s: tensor %s has shape %s, %s needs %s", out->file, out->name, has, s->file, needs);
}

ek_err ek_tower_source_matrix(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out)
{
    EK_TRY(s->ops->matrix(s, name, n, k, out));
    out->n = n, out->k = k;
    return EK_OK;
}
