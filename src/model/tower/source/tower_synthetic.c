#include "model/tower/source/tower_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/config/config.h"

/* Bounds that some normed values reach. */
static const float bound[] = {-2, 2};

static bool ends(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* A tensor of any requested shape, without values: packing makes them. */
static bool find(ek_tower_source *s, const char *name, ek_tower_tensor *out)
{
    (void)s;
    const bool min = ends(name, "put_min"), max = ends(name, "put_max");
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

ek_err ek_tower_synthetic_open(ek_tower_source **out, const char *name)
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
