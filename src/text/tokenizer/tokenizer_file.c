#include "text/tokenizer/tokenizer_file.h"

#include <string.h>

#include "text/json/json.h"

ek_err ek_cursor_fail(const ek_cursor *c, const char *what)
{
    return ek_fail(EK_EPARSE, "byte %zu: %s", c->at, what);
}

int ek_cursor_peek(ek_cursor *c)
{
    while (c->at < c->n &&
           (c->text[c->at] == ' ' || c->text[c->at] == '\n' || c->text[c->at] == '\t' || c->text[c->at] == '\r'))
        c->at++;
    return c->at < c->n ? (unsigned char)c->text[c->at] : -1;
}

ek_err ek_cursor_expect(ek_cursor *c, char expected)
{
    if (ek_cursor_peek(c) != expected) return ek_fail(EK_EPARSE, "byte %zu: expected '%c'", c->at, expected);
    c->at++;
    return EK_OK;
}

/* at stands on the opening quote; moves behind the closing one. A raw control character, which
 * JSON does not allow, is a damaged file here and not a sloppy client. */
static ek_err skip_string(ek_cursor *c, bool *plain)
{
    *plain = true;
    for (c->at++; c->at < c->n; c->at++) {
        if (c->text[c->at] == '"') {
            c->at++;
            return EK_OK;
        }
        if ((unsigned char)c->text[c->at] < 0x20) return ek_cursor_fail(c, "a raw control character in a string");
        if (c->text[c->at] == '\\') {
            *plain = false;
            c->at++;
        }
    }
    return ek_cursor_fail(c, "a string has no closing quote");
}

ek_err ek_cursor_string(ek_cursor *c, ek_buf *out)
{
    if (ek_cursor_peek(c) != '"') return ek_cursor_fail(c, "expected a string");
    size_t from = c->at;
    bool plain;
    EK_TRY(skip_string(c, &plain));
    if (plain) {
        ek_buf_add(out, c->text + from + 1, c->at - from - 2);
        return EK_OK;
    }
    json_t *v;
    EK_TRY(ek_json_read(&v, c->text + from, c->at - from, 0));
    ek_buf_add(out, json_string_value(v), json_string_length(v));
    json_decref(v);
    return EK_OK;
}

ek_err ek_cursor_int(ek_cursor *c, int64_t *out)
{
    int64_t v = 0;
    int p = ek_cursor_peek(c), digits = 0;
    for (; p >= '0' && p <= '9' && digits < 18; digits++) {
        v = v * 10 + (p - '0');
        p = ++c->at < c->n ? c->text[c->at] : -1;
    }
    if (digits == 0 || p == '.' || p == 'e' || p == 'E' || (p >= '0' && p <= '9'))
        return ek_cursor_fail(c, "expected a whole number from 0 on");
    *out = v;
    return EK_OK;
}

ek_err ek_cursor_skip(ek_cursor *c, const char **from, size_t *n)
{
    int p = ek_cursor_peek(c);
    size_t start = c->at, depth = 0;
    if (p < 0 || p == ',' || p == ']' || p == '}') return ek_cursor_fail(c, "expected a value");
    bool plain;
    for (;;) {
        if (c->at >= c->n) {
            if (depth) return ek_cursor_fail(c, "the text ends inside a value");
            break;
        }
        char ch = c->text[c->at];
        if (ch == '"') {
            EK_TRY(skip_string(c, &plain));
            if (depth == 0) break;
            continue;
        }
        if (depth == 0 && (ch == ',' || ch == '}' || ch == ']')) break;
        if (ch == '{' || ch == '[') depth++;
        bool closes = ch == '}' || ch == ']';
        c->at++;
        if (closes && --depth == 0) break;
    }
    *from = c->text + start;
    *n = c->at - start;
    return EK_OK;
}

ek_err ek_cursor_tree(ek_cursor *c, json_t **out)
{
    const char *from;
    size_t n;
    *out = NULL;
    EK_TRY(ek_cursor_skip(c, &from, &n));
    return ek_json_read(out, from, n, 0);
}

ek_err ek_cursor_next(ek_cursor *c, char close, bool *first, bool *more)
{
    int p = ek_cursor_peek(c);
    *more = p != close;
    if (p == close) c->at++;
    else if (!*first) EK_TRY(ek_cursor_expect(c, ','));
    *first = false;
    return EK_OK;
}
