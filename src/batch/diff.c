/* The first difference of two files of results: line, token, log-probability. */
#include <stdio.h>
#include <string.h>

#include "batch/batch.h"
#include "text/json/json.h"

enum { AROUND = 24, SHOWN = 60, MAX_PATH = 512 };

/* --- tokens with their log-probabilities --- */

static bool same_number(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

static void put_number(ek_buf *out, const json_t *v)
{
    if (json_is_number(v)) ek_buf_fmt(out, "%.9g", json_number_value(v));
    else if (v) ek_json_write(out, v);
    else ek_buf_str(out, "nothing");
}

static void put_value(ek_buf *out, const json_t *v)
{
    ek_buf text = {0};
    if (v) ek_json_write(&text, v);
    else ek_buf_str(&text, "nothing");
    size_t n = text.len;
    if (n > SHOWN) {
        n = SHOWN;
        while (n > 0 && ((uint8_t)text.data[n] & 0xC0) == 0x80) n--;
    }
    ek_buf_add(out, text.data, n);
    if (n < text.len) ek_buf_str(out, "...");
    ek_buf_fini(&text);
}

static void put_token(ek_buf *out, size_t i, const json_t *ta, const json_t *tb, const json_t *la, const json_t *lb)
{
    ek_buf_fmt(out, "token %zu is ", i);
    put_value(out, ta);
    ek_buf_str(out, json_equal(ta, tb) ? " in both" : " and ");
    if (!json_equal(ta, tb)) put_value(out, tb);
    ek_buf_str(out, ", log-probability ");
    put_number(out, la);
    ek_buf_str(out, " and ");
    put_number(out, lb);
}

/* Compares lists of tokens and the lists of their log-probabilities beside them, as in /v1/completions. */
static bool diff_lists(ek_buf *out, const json_t *a, const json_t *b)
{
    const json_t *ta = ek_json_get(a, "tokens"), *tb = ek_json_get(b, "tokens");
    const json_t *la = ek_json_get(a, "token_logprobs"), *lb = ek_json_get(b, "token_logprobs");
    if (!json_is_array(ta) || !json_is_array(tb) || !json_is_array(la) || !json_is_array(lb)) return false;
    const size_t n = json_array_size(ta) > json_array_size(tb) ? json_array_size(ta) : json_array_size(tb);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(ta, i), *y = json_array_get(tb, i);
        const json_t *p = json_array_get(la, i), *q = json_array_get(lb, i);
        if (x && y && json_equal(x, y) && same_number(p, q)) continue;
        put_token(out, i, x, y, p, q);
        return true;
    }
    return false;
}

/* i: the position of the two in their list. */
static bool diff_tokens(ek_buf *out, const json_t *a, const json_t *b, size_t i)
{
    if (json_is_array(a) && json_is_array(b)) {
        const size_t n = json_array_size(a) < json_array_size(b) ? json_array_size(a) : json_array_size(b);
        for (size_t k = 0; k < n; k++)
            if (diff_tokens(out, json_array_get(a, k), json_array_get(b, k), k)) return true;
        return false;
    }
    if (!json_is_object(a) || !json_is_object(b)) return false;
    const json_t *ta = ek_json_get(a, "token"), *tb = ek_json_get(b, "token");
    const json_t *la = ek_json_get(a, "logprob"), *lb = ek_json_get(b, "logprob");
    if (ta && tb && la && lb) {
        if (!json_equal(ta, tb) || !same_number(la, lb)) {
            put_token(out, i, ta, tb, la, lb);
            return true;
        }
    }
    if (diff_lists(out, a, b)) return true;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)a, key, v)
    {
        if (diff_tokens(out, v, ek_json_get(b, key), 0)) return true;
    }
    return false;
}

/* --- the first member --- */

static void put_around(ek_buf *out, const char *s, size_t n, size_t at)
{
    size_t from = at > AROUND ? at - AROUND : 0, to = at + AROUND < n ? at + AROUND : n;
    while (from > 0 && ((uint8_t)s[from] & 0xC0) == 0x80) from--;
    while (to < n && ((uint8_t)s[to] & 0xC0) == 0x80) to++;
    ek_json_quote(out, s + from, to - from);
}

static void put_texts(ek_buf *out, const char *path, const json_t *a, const json_t *b)
{
    const char *x = json_string_value(a), *y = json_string_value(b);
    const size_t n = json_string_length(a), m = json_string_length(b);
    size_t at = 0;
    while (at < n && at < m && x[at] == y[at]) at++;
    ek_buf_fmt(out, "%s differs from byte %zu: ", path, at);
    put_around(out, x, n, at);
    ek_buf_str(out, " and ");
    put_around(out, y, m, at);
}

/* False: the values are equal. path: their place in the line, with room for MAX_PATH. */
static bool diff_values(ek_buf *out, char *path, const json_t *a, const json_t *b)
{
    const size_t n = strlen(path);
    char *end = path + n;
    const char *key;
    json_t *v;
    bool found = false;
    if (json_is_object(a) && json_is_object(b)) {
        json_object_foreach((json_t *)(uintptr_t)a, key, v)
        {
            snprintf(end, MAX_PATH - n, "%s%s", n ? "." : "", key);
            found = diff_values(out, path, v, ek_json_get(b, key));
            *end = '\0';
            if (found) return true;
        }
        json_object_foreach((json_t *)(uintptr_t)b, key, v)
        {
            if (ek_json_get(a, key)) continue;
            ek_buf_fmt(out, "%s%s%s is in the second one alone", path, n ? "." : "", key);
            return true;
        }
        return false;
    }
    if (json_is_array(a) && json_is_array(b)) {
        const size_t k = json_array_size(a) > json_array_size(b) ? json_array_size(a) : json_array_size(b);
        for (size_t i = 0; i < k && !found; i++) {
            snprintf(end, MAX_PATH - n, "[%zu]", i);
            found = diff_values(out, path, json_array_get(a, i), json_array_get(b, i));
            *end = '\0';
        }
        return found;
    }
    if (a && b && json_equal(a, b)) return false;
    if (ek_json_is_text(a) && ek_json_is_text(b)) {
        put_texts(out, path, a, b);
        return true;
    }
    ek_buf_fmt(out, "%s is ", path);
    put_value(out, a);
    ek_buf_str(out, " and ");
    put_value(out, b);
    return true;
}

static void cut_value(char out[200], const json_t *v)
{
    ek_buf text = {0};
    if (v) ek_json_write(&text, v);
    snprintf(out, 200, "%s", v ? ek_buf_text(&text) : "nothing");
    ek_buf_fini(&text);
}

static bool find_other(ek_batch_other *o, json_t *of, const json_t *there, const json_t *here)
{
    const char *key;
    json_t *v;
    json_object_foreach(of, key, v)
    {
        const json_t *x = ek_json_get(there, key), *y = ek_json_get(here, key);
        if (json_equal(x, y)) continue;
        snprintf(o->member, sizeof o->member, "%s", key);
        cut_value(o->there, x);
        cut_value(o->here, y);
        return true;
    }
    return false;
}

void ek_batch_find_other(ek_batch_other *o, const ek_buf *there, const ek_buf *here)
{
    json_t *a = NULL, *b = NULL;
    *o = (ek_batch_other){"JSON", "another", "this"};
    if (!ek_json_read(&a, ek_buf_text(there), there->len, 0) && !ek_json_read(&b, ek_buf_text(here), here->len, 0) &&
        !find_other(o, b, a, b))
        find_other(o, a, a, b); /* a member that only one of the two has */
    json_decref(a);
    json_decref(b);
}

void ek_batch_diff_line(ek_buf *out, const char *a, size_t n_a, const char *b, size_t n_b)
{
    json_t *x = NULL, *y = NULL;
    char path[MAX_PATH] = "";
    const bool no_a = ek_json_read_lenient(&x, a, n_a, SIZE_MAX), no_b = ek_json_read_lenient(&y, b, n_b, SIZE_MAX);
    if (no_a || no_b) {
        ek_buf_fmt(out, "the line of the %s is no JSON", no_a ? "first one" : "second one");
    } else {
        const json_t *name = ek_json_get(x, "custom_id");
        ek_buf_str(out, "custom_id ");
        put_value(out, name);
        ek_buf_str(out, ": ");
        const size_t at = out->len;
        if (!json_equal(name, ek_json_get(y, "custom_id"))) {
            ek_buf_str(out, "in the second one it is ");
            put_value(out, ek_json_get(y, "custom_id"));
        } else {
            if (diff_tokens(out, x, y, 0)) ek_buf_str(out, "; ");
            if (!diff_values(out, path, x, y) && out->len == at)
                ek_buf_str(out, "equal values are written in two ways");
        }
    }
    json_decref(x);
    json_decref(y);
}

ek_err ek_batch_diff(ek_buf *out, bool *same, const char *a, const char *b)
{
    ek_batch_input x = {.fd = -1}, y = {.fd = -1};
    ek_buf s = {0}, t = {0};
    ek_err err = ek_batch_input_open(&x, a, false);
    if (!err) err = ek_batch_input_open(&y, b, false);
    *same = true;
    for (size_t i = 0; i < x.n && i < y.n && !err && *same; i++) {
        const ek_batch_entry *p = &x.lines[i], *q = &y.lines[i];
        if (p->n == q->n && p->hash == q->hash) continue;
        *same = false;
        err = ek_batch_input_line(&x, i, &s);
        if (!err) err = ek_batch_input_line(&y, i, &t);
        if (err) break;
        ek_buf_fmt(out, "line %llu, ", (unsigned long long)p->number);
        ek_batch_diff_line(out, ek_buf_text(&s), s.len, ek_buf_text(&t), t.len);
    }
    if (!err && *same && x.n != y.n) {
        *same = false;
        ek_buf_fmt(out, "lines: %s has %zu, %s %zu; the first %zu are equal", a, x.n, b, y.n, x.n < y.n ? x.n : y.n);
    }
    ek_batch_input_close(&x);
    ek_batch_input_close(&y);
    ek_buf_fini(&s);
    ek_buf_fini(&t);
    return err;
}
