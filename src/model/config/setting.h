/* Typed settings in a model's JSON files. null counts as absent, because transformers writes it so. A value of another
 * type or out of range is EFORMAT with file, field, value and requirement: "config.json: head_dim is "x", must be a
 * whole number from 2 to 4096". */
#ifndef EK_MODEL_SETTING_H
#define EK_MODEL_SETTING_H

#include "base/err.h"
#include "model/config/config.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct ek_settings {
    const char *file;
    const char *in; /* prefix of the object, with a final dot: "per_layer_config.4."; NULL: the file itself */
    const json_t *object, *other; /* a key is looked up in object, then in other; NULL: empty */
} ek_settings;

const json_t *ek_setting(const ek_settings *f, const char *key); /* NULL if absent or null */

/* Numbers in [min, max]. may: a missing key gives `absent`. need: a missing key is EFORMAT, "is missing". */
ek_err ek_setting_may_int(int *out, const ek_settings *f, const char *key, int absent, int min, int max);
ek_err ek_setting_need_int(int *out, const ek_settings *f, const char *key, int min, int max);
ek_err ek_setting_may_number(double *out, const ek_settings *f, const char *key, double absent, double min, double max);
ek_err ek_setting_may_float(float *out, const ek_settings *f, const char *key, double absent, double min, double max);
ek_err ek_setting_may_bool(bool *out, const ek_settings *f, const char *key, bool absent);

/* Borrowed from the file; NULL if absent. */
ek_err ek_setting_may_text(const char **out, const ek_settings *f, const char *key);
ek_err ek_setting_may_object(const json_t **out, const ek_settings *f, const char *key);

/* v is the value of key, or an element of its list. */
ek_err ek_setting_to_int(int *out, const ek_settings *f, const char *key, const json_t *v, int min, int max);

/* EFORMAT: "FILE: KEY is V, must be MUST". */
ek_err ek_setting_wrong(const ek_settings *f, const char *key, const json_t *v, const char *must);

#endif
