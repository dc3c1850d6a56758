#include "model/tower/source/tower_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "model/config/config.h"
#include "model/tower/source/tower_gguf.h"

/* ------------------------------------------------------------------ random weights, made in memory */

/* Bounds that some normed values reach. */
static const float bound[] = {-2, 2};

/* A tensor of any requested shape, without values: packing makes them. */
static bool find(ek_tower_source *s, const char *name, ek_tower_tensor *out)
{
    (void)s;
    const bool min = ek_ends_with(name, "put_min"), max = ek_ends_with(name, "put_max");
    *out = (ek_tower_tensor){
        .name = "synthetic", .file = "memory", .n_dims = -1, .type = ek_weight_type_float(EK_BF16)};
    if (min || max)
        *out = (ek_tower_tensor){.name = "synthetic",
                                 .file = "memory",
                                 .type = ek_weight_type_float(EK_F32),
                                 .data = (const uint8_t *)(const void *)&bound[max]};
    return true;
}

static bool has(ek_tower_source *s, const char *begin)
{
    const json_t *v = json_object_get(s->config, "vision_config"), *a = json_object_get(s->config, "audio_config");
    const bool towers = json_object_get(v, "hidden_size") != NULL;
    if (strcmp(begin, "vision_tower.") == 0) return towers;
    if (strcmp(begin, "audio_tower.") == 0) return towers && a;
    return strcmp(begin, "embed_vision.") == 0 || (a && strcmp(begin, "embed_audio.") == 0);
}

static ek_err matrix(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out)
{
    (void)s, (void)name;
    *out = (ek_weight_data){.type = ek_weight_type_float(EK_BF16), .n = n, .k = k};
    return EK_OK;
}

static void drop_pages(ek_tower_source *s)
{
    (void)s;
}

static void close_synthetic(ek_tower_source *s)
{
    json_decref(s->config);
    free(s->path);
    free(s);
}

static json_t *vision_of(const char *name, const ek_config *c)
{
    if (c->per_layer_size)
        return json_pack("{s:i,s:i,s:i,s:i,s:b}", "hidden_size", 768, "num_hidden_layers", 16, "num_attention_heads",
                         12, "intermediate_size", 3072, "use_clipped_linears", 1);
    if (!strcmp(name, "12b")) return json_pack("{s:i}", "mm_embed_dim", c->hidden_size);
    return json_pack("{s:i,s:i,s:i,s:i,s:b}", "hidden_size", 1152, "num_hidden_layers", 27, "num_attention_heads", 16,
                     "intermediate_size", 4304, "standardize", 1);
}

/* Vision towers of the published shapes. name: e2b, e4b, 12b, 26b or 31b; ENOTFOUND lists them. They have no audio. */
static ek_err open_synthetic(ek_tower_source **out, const char *name)
{
    static const ek_tower_source_ops ops = {
        .find = find, .has = has, .matrix = matrix, .drop_pages = drop_pages, .close = close_synthetic};
    ek_config *c = ek_alloc(sizeof *c);
    ek_err err = ek_config_published(c, name, 0);
    if (!err) {
        ek_tower_source *s = ek_alloc(sizeof *s);
        *s = (ek_tower_source){.ops = &ops, .path = ek_strdup(name), .file = "config.json"};
        s->config = json_pack("{s:{s:i,s:i},s:o}", "text_config", "hidden_size", c->hidden_size, "vocab_size",
                              c->vocab_size, "vision_config", vision_of(name, c));
        EK_ASSERT(s->config);
        /* The published conformer has transformers' default values; 12B has none. */
        if (c->per_layer_size || !strcmp(name, "12b")) json_object_set_new(s->config, "audio_config", json_object());
        *out = s;
    }
    free(c);
    return err;
}

/* ------------------------------------------------------------------ which container */

ek_err ek_tower_source_open(ek_tower_source **out, const char *path, const char *mmproj, const char *synthetic)
{
    *out = NULL;
    if (synthetic) return open_synthetic(out, synthetic);
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
