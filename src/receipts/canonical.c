#include "receipts/canonical.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { DEPTH = 8 };
static const json_int_t LIMIT = (json_int_t)1 << 53;

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_plain(const char *key, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (key[i] < ' ' || key[i] > '~') return false;
    return true;
}

static ek_err write_members(ek_buf *out, const json_t *v)
{
    json_t *o = (json_t *)(uintptr_t)v; /* jansson needs a non-const object, but iterating does not change it */
    const size_t n = json_object_size(v);
    const char **key = ek_alloc((n + 1) * sizeof *key);
    ek_err err = EK_OK;
    size_t i = 0;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        if (!is_plain(json_object_iter_key(it), json_object_iter_key_len(it)))
            err = ek_fail(EK_EFORMAT, "a key has other characters than those of ASCII");
        key[i++] = json_object_iter_key(it);
    }
    qsort(key, n, sizeof *key, by_bytes);
    ek_buf_char(out, '{');
    for (i = 0; !err && i < n; i++) {
        if (i) ek_buf_char(out, ',');
        ek_json_quote(out, key[i], strlen(key[i]));
        ek_buf_char(out, ':');
        err = ek_canonical_write(out, json_object_get(v, key[i]));
    }
    ek_buf_char(out, '}');
    free(key);
    return err;
}

ek_err ek_canonical_write(ek_buf *out, const json_t *v)
{
    if (json_is_object(v)) return write_members(out, v);
    if (json_is_array(v)) {
        ek_buf_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) ek_buf_char(out, ',');
            EK_TRY(ek_canonical_write(out, json_array_get(v, i)));
        }
        ek_buf_char(out, ']');
        return EK_OK;
    }
    const json_int_t x = json_is_integer(v) ? json_integer_value(v) : LIMIT;
    if (ek_json_is_text(v)) ek_json_quote(out, json_string_value(v), json_string_length(v));
    else if (json_is_boolean(v)) ek_buf_str(out, json_is_true(v) ? "true" : "false");
    else if (x > -LIMIT && x < LIMIT) ek_buf_fmt(out, "%lld", (long long)x);
    else return ek_fail(EK_EFORMAT, "a value is null, or a number that is no integer below 2^53");
    return EK_OK;
}

ek_err ek_canonical_read(json_t **out, const char *text, size_t n, size_t max)
{
    ek_json_size size;
    ek_buf again = {0};
    *out = NULL;
    ek_json_scan(&size, text, n);
    if (size.depth > DEPTH || size.values > max)
        return ek_fail(EK_EFORMAT, "%zu values in a depth of %zu, at most %zu in %d are taken", size.values, size.depth,
                       max, DEPTH);
    if (ek_json_read(out, text, n, n + 1)) return EK_EFORMAT; /* the sentence is the reader's */
    ek_err err = ek_canonical_write(&again, *out);
    if (!err && (again.len != n || memcmp(again.data, text, n) != 0)) {
        size_t at = 0;
        while (at < n && at < again.len && again.data[at] == text[at]) at++;
        err = ek_fail(EK_EFORMAT, "not in canonical form from byte %zu on: it can be read in two ways", at);
    }
    ek_buf_fini(&again);
    if (err) json_decref(*out), *out = NULL;
    return err;
}
