/* config.json and generation_config.json (transformers, configuration_gemma4.py). The class defaults of transformers
 * describe no published model, so a missing size is an error. */
#include "model/config/config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/config/setting.h"
#include "tensor/dtype.h"

/* Features that the engine does not compute are refused by name, never approximated. */
static ek_err check_kind(ek_config *c, const ek_settings *p)
{
    const char *type, *act;
    bool bias, tied;
    static const char *const known[] = {"gemma4",           "gemma4_text",
                                        "gemma4_unified",   "gemma4_unified_text",
                                        "gemma4_assistant", "gemma4_unified_assistant"};
    EK_TRY(ek_setting_may_text(&type, &(ek_settings){p->file, NULL, p->other, p->object}, "model_type"));
    if (!type) return ek_fail(EK_EFORMAT, "config.json: model_type is missing");
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(type, known[i]) != 0) i++;
    if (i == sizeof known / sizeof *known)
        return ek_fail(EK_EUNSUPPORTED,
                       "config.json: model_type is %.60s; gemma4, gemma4_text, gemma4_unified and "
                       "gemma4_unified_text can be run, and their drafters, gemma4_assistant",
                       type);
    snprintf(c->model_type, sizeof c->model_type, "%s", type);
    if (strstr(type, "_assistant"))
        EK_TRY(ek_setting_need_int(&c->backbone_hidden_size, p, "backbone_hidden_size", 1, EK_MAX_WIDTH));

    EK_TRY(ek_setting_may_text(&act, p, "hidden_activation"));
    if (act && strcmp(act, "gelu_pytorch_tanh") != 0)
        return ek_fail(EK_EUNSUPPORTED, "config.json: hidden_activation is %.60s, gelu_pytorch_tanh can be run", act);
    const json_t *mask = ek_setting(p, "use_bidirectional_attention");
    if (mask && !json_is_false(mask) && !json_is_string(mask))
        return ek_setting_wrong(p, "use_bidirectional_attention", mask, "null, false or a string");
    if (json_is_string(mask) && strcmp(json_string_value(mask), "vision") != 0)
        return ek_fail(EK_EUNSUPPORTED, "config.json: use_bidirectional_attention is %.60s, \"vision\" can be run",
                       json_string_value(mask));
    c->mutual = json_is_string(mask);
    EK_TRY(ek_setting_may_bool(&bias, p, "attention_bias", false));
    if (bias) return ek_fail(EK_EUNSUPPORTED, "config.json: attention_bias is true, layers with a bias cannot be run");
    EK_TRY(ek_setting_may_bool(&tied, p, "tie_word_embeddings", true));
    c->own_head = !tied;
    return EK_OK;
}

/* --- layers --- */

/* Layers that differ from each other. Until 5.14 transformers wrote the full layers' sizes as global_head_dim and
 * num_global_key_value_heads; since 5.15 it writes per_layer_config instead: a map from layer number to what differs
 * from the common value, {"05": {"head_dim": 512}}. Numbers are padded with zeros to the width of the largest one and
 * read back as numbers (transformers, heterogeneity/configuration_utils.py and configuration_gemma4.py). */

/* Reads layer_types into layer[].kind; n_layers is set. */
static ek_err read_kinds(ek_config *c, const ek_settings *p)
{
    const json_t *types = ek_setting(p, "layer_types");
    if (!types) return ek_fail(EK_EFORMAT, "config.json: layer_types is missing");
    if (!json_is_array(types)) return ek_setting_wrong(p, "layer_types", types, "a list");
    if (json_array_size(types) != (size_t)c->n_layers)
        return ek_fail(EK_EFORMAT, "config.json: layer_types has %zu entries, num_hidden_layers is %d",
                       json_array_size(types), c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        const char *s = json_string_value(json_array_get(types, (size_t)i));
        if (s && strcmp(s, "sliding_attention") == 0) c->layer[i].kind = EK_SLIDING;
        else if (s && strcmp(s, "full_attention") == 0) c->layer[i].kind = EK_FULL;
        else
            return ek_fail(EK_EFORMAT,
                           "config.json: layer_types[%d] is %.60s, must be sliding_attention or "
                           "full_attention",
                           i, s ? s : "no string");
    }
    return EK_OK;
}

/* The number that a key spells, of any width; -1: none below n. */
static int layer_number(const char *key, int n)
{
    int number = 0;
    for (const char *s = key; *s; s++) {
        if (*s < '0' || *s > '9') return -1;
        number = 10 * number + (*s - '0');
        if (number >= n) return -1;
    }
    return *key ? number : -1;
}

/* Checks a member that differs from the common value, which changes the computation of a layer. */
static ek_err check_member(const ek_settings *own, const ek_settings *p, const char *key, const json_t *v)
{
    static const char *const read[] = {"head_dim", "num_key_value_heads", "intermediate_size"};
    char name[EK_PLAIN_NAME];
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (strcmp(key, read[i]) == 0) return EK_OK;
    const json_t *common = ek_setting(p, key);
    if (json_is_null(v) ? !common : common && json_equal(v, common)) return EK_OK;
    if (strncmp(key, "skip", 4) == 0 && (json_is_false(v) || (json_is_array(v) && !json_array_size(v)))) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED,
                   "config.json: %s%s differs from the other layers; head_dim, num_key_value_heads and "
                   "intermediate_size of single layers can be read",
                   own->in, ek_plain_name(name, key));
}

static ek_err read_layer(ek_layer_config *l, const ek_settings *p, const char *key, const json_t *entry)
{
    char in[48];
    ek_settings own = {.file = p->file, .in = in, .object = entry};
    const char *member;
    json_t *v;
    snprintf(in, sizeof in, "per_layer_config.%.20s.", key);
    if (json_is_null(entry)) return EK_OK;
    if (!json_is_object(entry))
        return ek_setting_wrong(&(ek_settings){.file = p->file, .in = "per_layer_config."}, key, entry, "an object");
    json_object_foreach((json_t *)entry, member, v) EK_TRY(check_member(&own, p, member, v));
    EK_TRY(ek_setting_may_int(&l->head_dim, &own, "head_dim", l->head_dim, 2, 4096));
    EK_TRY(ek_setting_may_int(&l->n_kv_heads, &own, "num_key_value_heads", l->n_kv_heads, 1, 4096));
    return ek_setting_may_int(&l->intermediate_size, &own, "intermediate_size", l->intermediate_size, 1, EK_MAX_WIDTH);
}

static ek_err read_overrides(ek_config *c, const ek_settings *p, const json_t *all)
{
    const char *key, *was[EK_MAX_LAYERS] = {NULL};
    char name[EK_PLAIN_NAME], first[EK_PLAIN_NAME];
    json_t *entry;
    json_object_foreach((json_t *)all, key, entry)
    {
        int i = layer_number(key, c->n_layers);
        if (i < 0)
            return ek_fail(EK_EFORMAT,
                           "config.json: per_layer_config has an entry \"%s\", must be a layer from 0 to %d",
                           ek_plain_name(name, key), c->n_layers - 1);
        if (was[i])
            return ek_fail(EK_EFORMAT, "config.json: per_layer_config has layer %d twice, as \"%s\" and \"%s\"", i,
                           ek_plain_name(first, was[i]), ek_plain_name(name, key));
        was[i] = key;
        EK_TRY(read_layer(&c->layer[i], p, key, entry));
    }
    return EK_OK;
}

/* Reads layer[].head_dim, n_kv_heads, intermediate_size and k_eq_v; kinds and first_shared are set. */
static ek_err read_layers(ek_config *c, const ek_settings *p)
{
    int inter, kv, global_kv, dim, global_dim;
    bool k_eq_v = false, wide = false;
    const json_t *own = NULL;
    EK_TRY(ek_setting_may_object(&own, p, "per_layer_config"));
    EK_TRY(ek_setting_need_int(&inter, p, "intermediate_size", 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_need_int(&kv, p, "num_key_value_heads", 1, 4096));
    EK_TRY(ek_setting_need_int(&dim, p, "head_dim", 2, 4096));
    EK_TRY(ek_setting_may_int(&global_dim, p, "global_head_dim", 0, 2, 4096));
    EK_TRY(ek_setting_may_int(&global_kv, p, "num_global_key_value_heads", 0, 1, 4096));
    EK_TRY(ek_setting_may_bool(&k_eq_v, p, "attention_k_eq_v", false));
    EK_TRY(ek_setting_may_bool(&wide, p, "use_double_wide_mlp", false));
    for (int i = 0; i < c->n_layers; i++) {
        ek_layer_config *l = &c->layer[i];
        bool full = l->kind == EK_FULL;
        l->k_eq_v = full && k_eq_v;
        l->head_dim = dim;
        l->n_kv_heads = kv;
        l->intermediate_size = inter;
        if (own || !full) continue; /* per_layer_config decides alone, as in transformers */
        if (!global_dim)
            return ek_fail(EK_EFORMAT, "config.json: global_head_dim is missing, and so is per_layer_config");
        l->head_dim = global_dim;
        if (k_eq_v && global_kv) l->n_kv_heads = global_kv;
    }
    if (own) EK_TRY(read_overrides(c, p, own));
    for (int i = c->first_shared; wide && i < c->n_layers; i++) c->layer[i].intermediate_size *= 2;
    return EK_OK;
}

/* --- the model --- */

static ek_err read_drafter(ek_config *c, const ek_settings *p)
{
    bool ordered = false;
    if (c->n_kv_shared_layers != c->n_layers)
        return ek_fail(EK_EFORMAT, "config.json: num_kv_shared_layers is %d, a drafter of %d layers shares all",
                       c->n_kv_shared_layers, c->n_layers);
    if (c->per_layer_size)
        return ek_fail(EK_EUNSUPPORTED, "config.json: hidden_size_per_layer_input is %d, a drafter has none",
                       c->per_layer_size);
    EK_TRY(ek_setting_may_bool(&ordered, p, "use_ordered_embeddings", false));
    if (!ordered) return EK_OK;
    EK_TRY(ek_setting_need_int(&c->n_centroids, p, "num_centroids", 1, c->vocab_size));
    EK_TRY(ek_setting_need_int(&c->top_k_centroids, p, "centroid_intermediate_top_k", 1, c->n_centroids));
    if (c->vocab_size % c->n_centroids)
        return ek_fail(EK_EFORMAT, "config.json: %d tokens cannot be split over %d centroids evenly", c->vocab_size,
                       c->n_centroids);
    return EK_OK;
}

static ek_err read_sizes(ek_config *c, const ek_settings *p)
{
    bool moe = false;
    EK_TRY(ek_setting_need_int(&c->vocab_size, p, "vocab_size", 1, EK_MAX_VOCAB));
    EK_TRY(ek_setting_need_int(&c->hidden_size, p, "hidden_size", 1, EK_MAX_WIDTH));
    EK_TRY(ek_setting_need_int(&c->n_layers, p, "num_hidden_layers", 1, EK_MAX_LAYERS));
    EK_TRY(ek_setting_need_int(&c->n_heads, p, "num_attention_heads", 1, 4096));
    EK_TRY(ek_setting_need_int(&c->max_position_embeddings, p, "max_position_embeddings", 1, EK_MAX_CONTEXT));
    EK_TRY(ek_setting_may_int(&c->per_layer_size, p, "hidden_size_per_layer_input", 0, 0, 1 << 16));
    EK_TRY(ek_setting_may_int(&c->vocab_size_per_layer, p, "vocab_size_per_layer_input", c->vocab_size,
                              c->backbone_hidden_size ? 0 : 1, EK_MAX_VOCAB));
    EK_TRY(ek_setting_may_int(&c->n_kv_shared_layers, p, "num_kv_shared_layers", 0, 0,
                              c->backbone_hidden_size ? c->n_layers : c->n_layers - 1));
    EK_TRY(ek_setting_may_float(&c->rms_norm_eps, p, "rms_norm_eps", 1e-6, 1e-12, 1));
    EK_TRY(ek_setting_may_float(&c->final_logit_softcapping, p, "final_logit_softcapping", 0, 1e-3, 1e6));
    EK_TRY(ek_setting_may_bool(&moe, p, "enable_moe_block", false));
    c->first_shared = c->n_layers - c->n_kv_shared_layers;
    if (c->backbone_hidden_size) EK_TRY(read_drafter(c, p));
    if (c->per_layer_size && c->vocab_size_per_layer < c->vocab_size)
        return ek_fail(EK_EFORMAT, "config.json: vocab_size_per_layer_input is %d, vocab_size is %d",
                       c->vocab_size_per_layer, c->vocab_size);
    if (!moe) return EK_OK;
    EK_TRY(ek_setting_need_int(&c->n_experts, p, "num_experts", 1, 4096));
    EK_TRY(ek_setting_need_int(&c->top_k_experts, p, "top_k_experts", 1, c->n_experts));
    return ek_setting_need_int(&c->moe_intermediate_size, p, "moe_intermediate_size", 1, EK_MAX_WIDTH);
}

/* Reads the rotation of the layers of one kind. */
static ek_err read_rope_of(ek_config *c, ek_layer_kind k, const ek_settings *p)
{
    const char *type;
    c->rope_partial[k] = c->rope_factor[k] = 1;
    if (!ek_setting(p, "rope_theta")) return ek_fail(EK_EFORMAT, "config.json: %srope_theta is missing", p->in);
    EK_TRY(ek_setting_may_number(&c->rope_theta[k], p, "rope_theta", 0, 1e-3, 1e12));
    EK_TRY(ek_setting_may_text(&type, p, "rope_type"));
    if (!type || strcmp(type, "default") == 0) return EK_OK;
    if (strcmp(type, "proportional") != 0)
        return ek_fail(EK_EUNSUPPORTED, "config.json: rope_type is %.60s, default and proportional can be run", type);
    EK_TRY(ek_setting_may_number(&c->rope_partial[k], p, "partial_rotary_factor", 1, 0, 1));
    return ek_setting_may_number(&c->rope_factor[k], p, "factor", 1, 1e-6, 1e6);
}

static ek_err read_rope(ek_config *c, const ek_settings *p)
{
    static const struct {
        const char *key, *in;
    } kind[] = {[EK_SLIDING] = {"sliding_attention", "rope_parameters.sliding_attention."},
                [EK_FULL] = {"full_attention", "rope_parameters.full_attention."}};
    ek_settings all = {.file = p->file, .in = "rope_parameters."};
    EK_TRY(ek_setting_may_object(&all.object, p, "rope_parameters"));
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        int used = 0;
        ek_settings one = {.file = p->file, .in = kind[k].in};
        while (used < c->n_layers && c->layer[used].kind != (ek_layer_kind)k) used++;
        if (used == c->n_layers) continue;
        EK_TRY(ek_setting_may_object(&one.object, &all, kind[k].key));
        if (!one.object) return ek_fail(EK_EFORMAT, "config.json: rope_parameters has no %s", kind[k].key);
        EK_TRY(read_rope_of(c, (ek_layer_kind)k, &one));
    }
    return EK_OK;
}

/* Appends the ids of a key, an integer or a list, each once. */
static ek_err add_ids(int32_t *ids, int *n, const ek_settings *f, const char *key, int vocab)
{
    const json_t *v = ek_setting(f, key);
    size_t count = json_is_array(v) ? json_array_size(v) : v != NULL;
    for (size_t i = 0; i < count; i++) {
        int id = 0, at = 0;
        EK_TRY(ek_setting_to_int(&id, f, key, json_is_array(v) ? json_array_get(v, i) : v, 0, vocab - 1));
        while (at < *n && ids[at] != id) at++;
        if (at < *n) continue;
        if (*n == EK_MAX_STOP) return ek_fail(EK_EFORMAT, "%s: %s has more than %d ids", f->file, key, EK_MAX_STOP);
        ids[(*n)++] = id;
    }
    return EK_OK;
}

/* Reads the ids of a kind's soft tokens and of the tokens around them; an id outside the vocabulary counts as
 * absent. */
static ek_err read_media_id(int32_t *out, const ek_config *c, const ek_settings *p, const char *key)
{
    EK_TRY(ek_setting_may_int(out, p, key, 0, 0, INT32_MAX));
    if (*out >= c->vocab_size) *out = 0;
    return EK_OK;
}

static ek_err read_media(ek_config *c, const ek_settings *p)
{
    ek_media_ids *m = &c->media;
    EK_TRY(read_media_id(&m->soft[EK_PART_IMAGE], c, p, "image_token_id"));
    EK_TRY(read_media_id(&m->soft[EK_PART_FRAME], c, p, "video_token_id"));
    EK_TRY(read_media_id(&m->soft[EK_PART_SOUND], c, p, "audio_token_id"));
    EK_TRY(read_media_id(&m->begin[EK_PART_IMAGE], c, p, "boi_token_id"));
    EK_TRY(read_media_id(&m->end[EK_PART_IMAGE], c, p, "eoi_token_id"));
    EK_TRY(read_media_id(&m->begin[EK_PART_SOUND], c, p, "boa_token_id"));
    EK_TRY(read_media_id(&m->end[EK_PART_SOUND], c, p, "eoa_token_index"));
    if (m->end[EK_PART_SOUND] == 0) EK_TRY(read_media_id(&m->end[EK_PART_SOUND], c, p, "eoa_token_id"));
    m->begin[EK_PART_FRAME] = m->begin[EK_PART_IMAGE];
    m->end[EK_PART_FRAME] = m->end[EK_PART_IMAGE];
    return EK_OK;
}

static ek_err read_tokens(ek_config *c, const ek_settings *p, const ek_settings *generation)
{
    const ek_settings top = {.file = p->file, .object = p->other}, text = {.file = p->file, .object = p->object};
    const ek_settings *const from[] = {&top, &text, generation};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        EK_TRY(add_ids(c->stop, &c->n_stop, from[i], "eos_token_id", c->vocab_size));
        EK_TRY(add_ids(c->suppress, &c->n_suppress, from[i], "suppress_tokens", c->vocab_size));
    }
    EK_TRY(ek_setting_may_int(&c->bos, p, "bos_token_id", 2, 0, EK_MAX_VOCAB));
    EK_TRY(ek_setting_may_int(&c->pad, p, "pad_token_id", 0, 0, EK_MAX_VOCAB));
    EK_TRY(read_media(c, p));
    EK_TRY(ek_setting_may_float(&c->temperature, generation, "temperature", 1, 0, 1000));
    EK_TRY(ek_setting_may_float(&c->top_p, generation, "top_p", 1, 0, 1));
    return ek_setting_may_int(&c->top_k, generation, "top_k", 0, 0, EK_MAX_VOCAB);
}

ek_err ek_config_finish(ek_config *c)
{
    int first[EK_KIND_COUNT] = {-1, -1}, last[EK_KIND_COUNT] = {-1, -1};
    for (int i = 0; i < c->n_layers; i++) {
        ek_layer_config *l = &c->layer[i];
        if (first[l->kind] < 0) first[l->kind] = i;
        if (c->backbone_hidden_size) last[l->kind] = i; /* the donor layer is in the target: ek_model_open_drafter */
        l->owns_kv = i < c->first_shared;
        if (l->owns_kv) last[l->kind] = i;
        l->donor = last[l->kind];
        if (l->donor < 0)
            return ek_fail(EK_EFORMAT,
                           "layer %d shares keys and values, but none of the first %d "
                           "layers is of its kind",
                           i, c->first_shared);
        const ek_layer_config *d = &c->layer[first[l->kind]];
        if (l->head_dim % 2) return ek_fail(EK_EFORMAT, "head_dim of layer %d is %d, must be even", i, l->head_dim);
        if (c->n_heads % l->n_kv_heads)
            return ek_fail(EK_EFORMAT, "%d heads of layer %d cannot share %d key-value heads evenly", c->n_heads, i,
                           l->n_kv_heads);
        if (l->head_dim != d->head_dim || l->n_kv_heads != d->n_kv_heads)
            return ek_fail(EK_EFORMAT,
                           "layer %d has %d key-value heads of %d, layer %d, of the same "
                           "kind, has %d of %d",
                           i, l->n_kv_heads, l->head_dim, first[l->kind], d->n_kv_heads, d->head_dim);
        if ((int64_t)c->n_heads * l->head_dim > EK_MAX_WIDTH)
            return ek_fail(EK_EFORMAT, "%d heads of %d are more than %d values", c->n_heads, l->head_dim, EK_MAX_WIDTH);
    }
    if (last[EK_SLIDING] >= 0 && c->sliding_window < 1) return ek_fail(EK_EFORMAT, "sliding_window is missing");
    if ((int64_t)c->per_layer_size * c->n_layers > EK_MAX_WIDTH)
        return ek_fail(EK_EFORMAT, "%d layers with hidden_size_per_layer_input %d are more than %d values", c->n_layers,
                       c->per_layer_size, EK_MAX_WIDTH);
    return EK_OK;
}

float ek_config_embed_scale(const ek_config *c, int size)
{
    const float root = sqrtf((float)size);
    return c->exact_scale ? root : ek_bf16_f32(ek_f32_bf16(root));
}

/* transformers runs a model in its file's dtype and rounds the scale to that; the file's own dtype comes before that of
 * its text_config. Other types than float32, or none, count as bfloat16: no model was trained in another, and mlx-lm
 * rounds to bf16 in any case. */
static ek_err read_dtype(ek_config *c, const ek_settings *p)
{
    static const char *const key[] = {"dtype", "torch_dtype"};
    const ek_settings top = {.file = p->file, .object = p->other}, text = {.file = p->file, .object = p->object};
    const ek_settings *const from[] = {&top, &text};
    const char *dtype = NULL;
    for (int i = 0; i < 4 && !dtype; i++) EK_TRY(ek_setting_may_text(&dtype, from[i / 2], key[i % 2]));
    c->exact_scale = dtype && strcmp(dtype, "float32") == 0;
    return EK_OK;
}

static ek_err read_all(ek_config *c, const json_t *top, const json_t *generation_top)
{
    ek_settings p = {.file = "config.json", .other = top};
    const ek_settings generation = {.file = "generation_config.json", .object = generation_top};
    EK_TRY(ek_setting_may_object(&p.object, &p, "text_config"));
    if (!p.object) p.object = top;
    EK_TRY(check_kind(c, &p));
    EK_TRY(read_dtype(c, &p));
    EK_TRY(read_sizes(c, &p));
    EK_TRY(ek_setting_may_int(&c->sliding_window, &p, "sliding_window", 0, 1, EK_MAX_CONTEXT));
    EK_TRY(read_kinds(c, &p));
    EK_TRY(read_rope(c, &p));
    EK_TRY(read_layers(c, &p));
    EK_TRY(read_tokens(c, &p, &generation));
    ek_err err = ek_config_finish(c);
    return err ? ek_fail_in(err, "config.json") : EK_OK;
}

static ek_err load(json_t **out, const char *text, const char *file)
{
    json_error_t why;
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!*out) return ek_fail(EK_EFORMAT, "%s: line %d: %s", file, why.line, why.text);
    return json_is_object(*out) ? EK_OK : ek_fail(EK_EFORMAT, "%s: is not a JSON object", file);
}

ek_err ek_config_parse(ek_config *c, const char *config_json, const char *generation_json)
{
    json_t *top = NULL, *generation = NULL;
    *c = (ek_config){0};
    ek_err err = load(&top, config_json, "config.json");
    if (!err && generation_json) err = load(&generation, generation_json, "generation_config.json");
    if (!err) err = read_all(c, top, generation);
    json_decref(top);
    json_decref(generation);
    return err;
}
