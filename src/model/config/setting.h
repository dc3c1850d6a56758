/* Settings in a model's JSON files, by the type they must have. null is as good as absent, as
 * transformers writes it. Anything else that is not of the type or out of range is EFORMAT and told with file, field,
 * value and what it must be: "config.json: head_dim is "x", must be a whole number from 2 to 4096". */
#ifndef EK_MODEL_SETTING_H
#define EK_MODEL_SETTING_H

#include "base/err.h"
#include "model/config/config.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct ek_settings {
    const char *file;
    const char *in;               /* the object inside it, with a dot behind: "per_layer_config.4."; NULL: the file */
    const json_t *object, *other; /* a key is looked up in object, then in other; NULL is empty */
} ek_settings;

const json_t *ek_setting(const ek_settings *f, const char *key); /* NULL if absent or null */

/* Numbers of [min, max]. may: absent gives that value; need: EFORMAT, "is missing". */
ek_err ek_setting_may_int(int *out, const ek_settings *f, const char *key, int absent, int min, int max);
ek_err ek_setting_need_int(int *out, const ek_settings *f, const char *key, int min, int max);
ek_err ek_setting_may_number(double *out, const ek_settings *f, const char *key, double absent, double min, double max);
ek_err ek_setting_may_float(float *out, const ek_settings *f, const char *key, double absent, double min, double max);
ek_err ek_setting_may_bool(bool *out, const ek_settings *f, const char *key, bool absent);

/* Borrowed from the file; NULL if absent. */
ek_err ek_setting_may_text(const char **out, const ek_settings *f, const char *key);
ek_err ek_setting_may_object(const json_t **out, const ek_settings *f, const char *key);

/* v is the value of key, or an element of the list that it is. */
ek_err ek_setting_to_int(int *out, const ek_settings *f, const char *key, const json_t *v, int min, int max);

/* EFORMAT: "FILE: KEY is V, must be MUST". */
ek_err ek_setting_wrong(const ek_settings *f, const char *key, const json_t *v, const char *must);

/* What config.json says of single layers: their kinds, heads and widths. Parts of ek_config_parse. */

/* layer_types to layer[].kind; n_layers stands. */
ek_err ek_config_kinds(ek_config *c, const ek_settings *p);

/* layer[].head_dim, n_kv_heads, intermediate_size and k_eq_v; kinds and first_shared stand. Takes both forms of
 * writing full layers: global_head_dim with num_global_key_value_heads, and per_layer_config. */
ek_err ek_config_layers(ek_config *c, const ek_settings *p);

#endif
