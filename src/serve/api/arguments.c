#include "serve/api/arguments.h"

#include "serve/api/field.h"
#include "text/json/json.h"
#include "text/reply/reply.h"
#include "text/utf8.h"

/* *out: any value, or NULL where the text is beyond repair. */
static ek_err read_text(json_t **out, const char *s, size_t n, const ek_api_limits *limits)
{
    ek_json_size size;
    ek_err err = ek_field_json(out, s, n, limits);
    if (err != EK_EINVAL) return err;
    ek_call_repair_scan(&size, s, n);
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &size, n, 0));
    *out = ek_call_repair(s, n);
    return EK_OK;
}

/* Some clients write the object as a text twice. */
static ek_err read_inner(json_t **out, const ek_api_limits *limits)
{
    json_t *outer = *out;
    const char *s = json_string_value(outer);
    size_t n = json_string_length(outer);
    ek_utf8_strip(&s, &n);
    if (n == 0 || *s != '{') return EK_OK;
    ek_err err = read_text(out, s, n, limits);
    if (!err && json_is_object(*out)) {
        json_decref(outer);
        return EK_OK;
    }
    json_decref(*out);
    *out = outer;
    return err;
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

/* No object: what the client wrote. */
static json_t *as_text(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (ek_json_is_text(v)) {
        ek_utf8_strip(&s, &n);
        return json_stringn_nocheck(s, n);
    }
    ek_buf b = {0};
    ek_json_write(&b, v);
    json_t *text = json_stringn_nocheck(ek_buf_text(&b), b.len);
    ek_buf_fini(&b);
    return text;
}

ek_err ek_arguments_read(json_t **out, const json_t *v, const ek_api_limits *limits)
{
    json_t *read = NULL;
    ek_err err = EK_OK;
    *out = NULL;
    if (ek_json_is_text(v)) {
        const char *s = json_string_value(v);
        size_t n = json_string_length(v);
        ek_utf8_strip(&s, &n);
        if (n == 0) read = json_null();
        else err = read_text(&read, s, n, limits);
        if (!err && ek_json_is_text(read)) err = read_inner(&read, limits);
    } else {
        read = v ? json_incref((json_t *)(uintptr_t)v) : json_null();
    }
    if (err) {
        json_decref(read);
        return err;
    }
    if (json_is_object(read)) {
        *out = read;
        return EK_OK;
    }
    *out = read && is_empty(read) ? json_object() : as_text(v);
    json_decref(read);
    return EK_OK;
}
