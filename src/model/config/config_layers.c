/* Layers that differ from each other. Until 5.14 transformers wrote the full layers' sizes as global_head_dim and
 * num_global_key_value_heads; since 5.15 it writes per_layer_config instead: a map from layer number to what differs
 * from the common value, {"05": {"head_dim": 512}}. Numbers are padded with zeros to the width of the largest one and
 * read back as numbers (transformers, heterogeneity/configuration_utils.py and configuration_gemma4.py). */
#include "model/config/setting.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

ek_err ek_config_kinds(ek_config *c, const ek_settings *p)
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

ek_err ek_config_layers(ek_config *c, const ek_settings *p)
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
