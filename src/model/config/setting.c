#include "model/config/setting.h"

#include <stdio.h>
#include <stdlib.h>

const json_t *ek_setting(const ek_settings *f, const char *key)
{
    const json_t *v = json_object_get(f->object, key);
    if (!v || json_is_null(v)) v = json_object_get(f->other, key);
    return v && !json_is_null(v) ? v : NULL;
}

ek_err ek_setting_wrong(const ek_settings *f, const char *key, const json_t *v, const char *must)
{
    char *text = json_is_array(v) || json_is_object(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);
    ek_err err = ek_fail(EK_EFORMAT, "%s: %s%.100s is %.60s, must be %s", f->file, f->in ? f->in : "", key,
                         text                ? text
                         : json_is_array(v)  ? "a list"
                         : json_is_object(v) ? "an object"
                                             : "unreadable",
                         must);
    free(text);
    return err;
}

static ek_err out_of_range(const ek_settings *f, const char *key, const json_t *v, const char *what, double min,
                           double max)
{
    char must[100];
    snprintf(must, sizeof must, "a %s from %.10g to %.10g", what, min, max);
    return ek_setting_wrong(f, key, v, must);
}

ek_err ek_setting_to_int(int *out, const ek_settings *f, const char *key, const json_t *v, int min, int max)
{
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return out_of_range(f, key, v, "whole number", min, max);
    *out = (int)json_integer_value(v);
    return EK_OK;
}

ek_err ek_setting_need_int(int *out, const ek_settings *f, const char *key, int min, int max)
{
    const json_t *v = ek_setting(f, key);
    if (!v) return ek_fail(EK_EFORMAT, "%s: %s%s is missing", f->file, f->in ? f->in : "", key);
    return ek_setting_to_int(out, f, key, v, min, max);
}

ek_err ek_setting_may_int(int *out, const ek_settings *f, const char *key, int absent, int min, int max)
{
    const json_t *v = ek_setting(f, key);
    *out = absent;
    return v ? ek_setting_to_int(out, f, key, v, min, max) : EK_OK;
}

ek_err ek_setting_may_number(double *out, const ek_settings *f, const char *key, double absent, double min, double max)
{
    const json_t *v = ek_setting(f, key);
    double d = v ? json_number_value(v) : absent;
    if (v && (!json_is_number(v) || !(d >= min && d <= max))) return out_of_range(f, key, v, "number", min, max);
    *out = d;
    return EK_OK;
}

ek_err ek_setting_may_float(float *out, const ek_settings *f, const char *key, double absent, double min, double max)
{
    double d = absent;
    EK_TRY(ek_setting_may_number(&d, f, key, absent, min, max));
    *out = (float)d;
    return EK_OK;
}

ek_err ek_setting_may_bool(bool *out, const ek_settings *f, const char *key, bool absent)
{
    const json_t *v = ek_setting(f, key);
    if (v && !json_is_boolean(v)) return ek_setting_wrong(f, key, v, "true or false");
    *out = v ? json_is_true(v) : absent;
    return EK_OK;
}

ek_err ek_setting_may_text(const char **out, const ek_settings *f, const char *key)
{
    const json_t *v = ek_setting(f, key);
    if (v && !json_is_string(v)) return ek_setting_wrong(f, key, v, "a string");
    *out = json_string_value(v);
    return EK_OK;
}

ek_err ek_setting_may_object(const json_t **out, const ek_settings *f, const char *key)
{
    const json_t *v = ek_setting(f, key);
    if (v && !json_is_object(v)) return ek_setting_wrong(f, key, v, "an object");
    *out = v;
    return EK_OK;
}
