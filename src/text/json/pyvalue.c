#include "text/json/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

bool ek_py_truthy(const json_t *v)
{
    if (!v || json_is_null(v) || json_is_false(v)) return false;
    if (json_is_string(v)) return json_string_length(v) > 0;
    if (json_is_integer(v)) return json_integer_value(v) != 0;
    if (json_is_real(v)) return json_real_value(v) != 0;
    if (json_is_array(v)) return json_array_size(v) > 0;
    if (json_is_object(v)) return json_object_size(v) > 0;
    return true;
}

static bool is_number(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v);
}

static double number(const json_t *v)
{
    return json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
}

bool ek_py_equal(const json_t *a, const json_t *b)
{
    if (!a || json_is_null(a)) return !b || json_is_null(b);
    if (json_is_integer(a) && json_is_integer(b)) return json_integer_value(a) == json_integer_value(b);
    if (b && is_number(a) && is_number(b)) return number(a) == number(b);
    return b && json_equal(a, b);
}

static void repr_text(ek_buf *out, const char *s, size_t n)
{
    char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
    ek_buf_char(out, quote);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = ek_utf8_next(s + i, n - i, &cp);
        if (len < 0) len = -len;
        if (cp == (uint32_t)quote || cp == '\\') ek_buf_fmt(out, "\\%c", (char)cp);
        else if (cp == '\t' || cp == '\n' || cp == '\r')
            ek_buf_fmt(out, "\\%c", cp == '\t' ? 't' : cp == '\n' ? 'n' : 'r');
        else if (ek_utf8_is_printable(cp)) ek_buf_add(out, s + i, (size_t)len);
        else ek_buf_fmt(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        i += (size_t)len;
    }
    ek_buf_char(out, quote);
}

static void repr(ek_buf *out, const json_t *v)
{
    if (ek_json_is_text(v)) {
        repr_text(out, json_string_value(v), json_string_length(v));
    } else if (json_is_array(v)) {
        ek_buf_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) ek_buf_str(out, ", ");
            repr(out, json_array_get(v, i));
        }
        ek_buf_char(out, ']');
    } else if (json_is_object(v)) {
        json_t *o = (json_t *)v; /* jansson iterates without changing it */
        ek_buf_char(out, '{');
        for (void *i = json_object_iter(o), *first = i; i; i = json_object_iter_next(o, i)) {
            if (i != first) ek_buf_str(out, ", ");
            repr_text(out, json_object_iter_key(i), json_object_iter_key_len(i));
            ek_buf_str(out, ": ");
            repr(out, json_object_iter_value(i));
        }
        ek_buf_char(out, '}');
    } else if (json_is_integer(v)) {
        ek_buf_fmt(out, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        ek_json_double(out, json_real_value(v));
    } else if (ek_json_odd_number(v)) {
        ek_buf_str(out, ek_json_odd_number(v));
    } else {
        ek_buf_str(out, json_is_true(v) ? "True" : json_is_false(v) ? "False" : "None");
    }
}

void ek_py_str(ek_buf *out, const json_t *v)
{
    if (!v) return;
    if (ek_json_is_text(v)) ek_buf_add(out, json_string_value(v), json_string_length(v));
    else repr(out, v);
}

void ek_py_upper(ek_buf *out, const json_t *v)
{
    ek_buf b = {0};
    ek_py_str(&b, v);
    ek_utf8_upper(out, ek_buf_text(&b), b.len);
    ek_buf_fini(&b);
}

static int by_key(const void *pa, const void *pb)
{
    const ek_member *a = pa, *b = pb;
    size_t n = a->n_lowered < b->n_lowered ? a->n_lowered : b->n_lowered;
    int order = n ? memcmp(a->lowered, b->lowered, n) : 0;
    if (order) return order;
    if (a->n_lowered != b->n_lowered) return a->n_lowered < b->n_lowered ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

void ek_members_init(ek_members *m, const json_t *object)
{
    *m = (ek_members){.at = ek_alloc((json_object_size(object) + 1) * sizeof *m->at)};
    json_t *o = (json_t *)object;
    for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i)) {
        ek_member *e = &m->at[m->n];
        *e = (ek_member){.key = json_object_iter_key(i),
                         .n = json_object_iter_key_len(i),
                         .value = json_object_iter_value(i),
                         .place = m->n};
        size_t from = m->lowered.len;
        ek_utf8_lower(&m->lowered, e->key, e->n);
        e->n_lowered = m->lowered.len - from;
        m->n++;
    }
    size_t from = 0;
    for (size_t i = 0; i < m->n; i++) {
        m->at[i].lowered = ek_buf_text(&m->lowered) + from;
        from += m->at[i].n_lowered;
    }
    qsort(m->at, m->n, sizeof *m->at, by_key);
}

void ek_members_fini(ek_members *m)
{
    free(m->at);
    ek_buf_fini(&m->lowered);
}
