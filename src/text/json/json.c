/* The JSON readers, strict and lenient: a recursive descent over bytes that builds jansson values itself. A repairing
 * pass before jansson's own reader would read the text twice, and could keep neither NUL in keys nor integers beyond 64
 * bits. */
#include "text/json/json.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/encoding.h"
#include "text/utf8.h"

typedef struct reader {
    const char *text;
    size_t n, at;
    bool lenient;
    ek_buf scratch; /* the string or number being read */
} reader;

static ek_err wrong(const reader *r, size_t at, const char *what)
{
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at; i++)
        if (r->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    return ek_fail(EK_EPARSE, "JSON, line %zu column %zu: %s", line, at - start + 1, what);
}

static int peek(const reader *r)
{
    return r->at < r->n ? (unsigned char)r->text[r->at] : -1;
}

static void skip_space(reader *r)
{
    while (r->at < r->n &&
           (r->text[r->at] == ' ' || r->text[r->at] == '\t' || r->text[r->at] == '\n' || r->text[r->at] == '\r'))
        r->at++;
}

static bool hex4(const reader *r, size_t at, uint32_t *value)
{
    if (r->n < 4 || at > r->n - 4) return false;
    *value = 0;
    for (size_t i = 0; i < 4; i++) {
        const int d = ek_hex_digit(r->text[at + i]);
        if (d < 0) return false;
        *value = *value << 4 | (uint32_t)d;
    }
    return true;
}

/* After `\u`: at stands on the first digit. */
static ek_err read_unicode_escape(reader *r)
{
    uint32_t c, low;
    if (!hex4(r, r->at, &c)) {
        if (!r->lenient) return wrong(r, r->at - 2, "\\u without four hexadecimal digits");
        ek_buf_add(&r->scratch, "\\u", 2);
        return EK_OK;
    }
    r->at += 4;
    if (c >= 0xD800 && c <= 0xDBFF && r->at + 1 < r->n && r->text[r->at] == '\\' && r->text[r->at + 1] == 'u' &&
        hex4(r, r->at + 2, &low) && low >= 0xDC00 && low <= 0xDFFF) {
        r->at += 6;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c >= 0xD800 && c <= 0xDFFF) c = 0xFFFD;
    ek_utf8_add(&r->scratch, c);
    return EK_OK;
}

/* Appends the bytes from `from` to at, which hold neither quote nor backslash. */
static ek_err add_plain(reader *r, size_t from)
{
    const char *s = r->text + from;
    size_t n = r->at - from;
    if (r->lenient) {
        ek_utf8_clean(&r->scratch, s, n);
        return EK_OK;
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20) return wrong(r, from + i, "a control character inside a string");
    if (!ek_utf8_valid(s, n)) return wrong(r, from, "this part of a string is not UTF-8");
    ek_buf_add(&r->scratch, s, n);
    return EK_OK;
}

/* Reads a string into scratch; at stands on its opening quote. */
static ek_err read_string(reader *r)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    size_t opened = r->at++;
    ek_buf_clear(&r->scratch);
    for (;;) {
        size_t from = r->at;
        while (r->at < r->n && r->text[r->at] != '"' && r->text[r->at] != '\\') r->at++;
        if (r->at >= r->n) return wrong(r, opened, "this string has no closing quote");
        EK_TRY(add_plain(r, from));
        if (r->text[r->at++] == '"') return EK_OK;
        int c = peek(r);
        const char *e = c > 0 ? strchr(escapes, c) : NULL;
        if (e) {
            ek_buf_char(&r->scratch, meant[e - escapes]);
            r->at++;
        } else if (c == 'u') {
            r->at++;
            EK_TRY(read_unicode_escape(r));
        } else if (r->lenient) {
            ek_buf_char(&r->scratch, '\\'); /* and the next character is literal */
        } else {
            return wrong(r, r->at - 1, "no such escape");
        }
    }
}

static json_t *odd_number(const char *spelling)
{
    ek_buf b = {0};
    ek_buf_char(&b, '\xFF');
    ek_buf_str(&b, spelling);
    json_t *v = json_stringn_nocheck(b.data, b.len);
    ek_buf_fini(&b);
    return v;
}

static size_t digits(const reader *r, size_t at)
{
    size_t n = 0;
    while (at + n < r->n && r->text[at + n] >= '0' && r->text[at + n] <= '9') n++;
    return n;
}

static ek_err read_number(reader *r, json_t **out)
{
    size_t from = r->at, at = from, n;
    bool integer = true;
    if (r->text[at] == '-') at++;
    n = digits(r, at);
    if (n == 0 || (n > 1 && r->text[at] == '0')) return wrong(r, from, "malformed number");
    at += n;
    if (at < r->n && r->text[at] == '.') {
        integer = false;
        if ((n = digits(r, at + 1)) == 0) return wrong(r, from, "malformed number");
        at += 1 + n;
    }
    if (at < r->n && (r->text[at] == 'e' || r->text[at] == 'E')) {
        integer = false;
        at++;
        if (at < r->n && (r->text[at] == '+' || r->text[at] == '-')) at++;
        if ((n = digits(r, at)) == 0) return wrong(r, from, "malformed number");
        at += n;
    }
    ek_buf_clear(&r->scratch);
    ek_buf_add(&r->scratch, r->text + from, at - from);
    r->at = at;
    errno = 0;
    if (integer) {
        long long v = strtoll(r->scratch.data, NULL, 10);
        *out = errno == ERANGE ? odd_number(r->scratch.data) : json_integer(v);
    } else {
        double v = strtod(r->scratch.data, NULL);
        *out = isinf(v) ? odd_number(v < 0 ? "-inf" : "inf") : json_real(v);
    }
    return EK_OK;
}

static bool skip_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    if (r->n - r->at < n || memcmp(r->text + r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static ek_err read_value(reader *r, json_t **out, int depth);

static ek_err read_object(reader *r, json_t *object, int depth)
{
    r->at++;
    skip_space(r);
    if (peek(r) == '}') {
        r->at++;
        return EK_OK;
    }
    for (;;) {
        if (peek(r) != '"') return wrong(r, r->at, "expected a key in quotes");
        EK_TRY(read_string(r));
        size_t n = r->scratch.len;
        char *key = ek_alloc(n + 1);
        if (n) memcpy(key, r->scratch.data, n);
        skip_space(r);
        json_t *value = NULL;
        ek_err e = EK_OK;
        if (peek(r) != ':') e = wrong(r, r->at, "expected ':' after a key");
        else {
            r->at++;
            e = read_value(r, &value, depth);
        }
        if (e == EK_OK) json_object_setn_new_nocheck(object, key, n, value);
        free(key);
        if (e != EK_OK) return e;
        skip_space(r);
        int c = peek(r);
        if (c != ',' && c != '}') return wrong(r, r->at, "expected ',' or '}' in an object");
        r->at++;
        if (c == '}') return EK_OK;
        skip_space(r);
    }
}

static ek_err read_array(reader *r, json_t *array, int depth)
{
    r->at++;
    skip_space(r);
    if (peek(r) == ']') {
        r->at++;
        return EK_OK;
    }
    for (;;) {
        json_t *value;
        EK_TRY(read_value(r, &value, depth));
        json_array_append_new(array, value);
        skip_space(r);
        int c = peek(r);
        if (c != ',' && c != ']') return wrong(r, r->at, "expected ',' or ']' in an array");
        r->at++;
        if (c == ']') return EK_OK;
    }
}

static ek_err read_value(reader *r, json_t **out, int depth)
{
    *out = NULL;
    skip_space(r);
    if (depth >= EK_JSON_DEPTH) return ek_fail(EK_ETOOLARGE, "JSON nested deeper than %d", EK_JSON_DEPTH);
    int c = peek(r);
    if (c == '{' || c == '[') {
        json_t *v = c == '{' ? json_object() : json_array();
        ek_err e = c == '{' ? read_object(r, v, depth + 1) : read_array(r, v, depth + 1);
        if (e != EK_OK) json_decref(v);
        else *out = v;
        return e;
    }
    if (c == '"') {
        EK_TRY(read_string(r));
        *out = json_stringn_nocheck(ek_buf_text(&r->scratch), r->scratch.len);
        return EK_OK;
    }
    if (skip_word(r, "true")) *out = json_true();
    else if (skip_word(r, "false")) *out = json_false();
    else if (skip_word(r, "null")) *out = json_null();
    else if (skip_word(r, "NaN")) *out = odd_number("nan");
    else if (skip_word(r, "Infinity")) *out = odd_number("inf");
    else if (skip_word(r, "-Infinity")) *out = odd_number("-inf");
    else if (c == '-' || (c >= '0' && c <= '9')) return read_number(r, out);
    else return wrong(r, r->at, c < 0 ? "the text ends where a value is expected" : "expected a value");
    return EK_OK;
}

static ek_err read_text(json_t **out, const char *text, size_t n, size_t max_bytes, bool lenient)
{
    *out = NULL;
    if (max_bytes == 0) max_bytes = EK_JSON_BYTES;
    if (n > max_bytes) return ek_fail(EK_ETOOLARGE, "JSON of %zu bytes, limit is %zu", n, max_bytes);
    reader r = {.text = text, .n = n, .lenient = lenient};
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) r.at = 3;
    ek_err e = read_value(&r, out, 0);
    if (e == EK_OK) {
        skip_space(&r);
        if (r.at < r.n) e = wrong(&r, r.at, "text after the value");
    }
    if (e != EK_OK) {
        json_decref(*out);
        *out = NULL;
    }
    ek_buf_fini(&r.scratch);
    return e;
}

ek_err ek_json_read(json_t **out, const char *text, size_t n, size_t max_bytes)
{
    return read_text(out, text, n, max_bytes, false);
}

ek_err ek_json_read_lenient(json_t **out, const char *text, size_t n, size_t max_bytes)
{
    return read_text(out, text, n, max_bytes, true);
}

ek_err ek_json_read_file(json_t **out, const char *path, size_t max_bytes)
{
    *out = NULL;
    ek_buf b = {0};
    ek_err e = ek_file_read(&b, path, max_bytes ? max_bytes : EK_JSON_BYTES);
    if (e == EK_OK) {
        e = ek_json_read(out, ek_buf_text(&b), b.len, max_bytes);
        if (e != EK_OK) e = ek_fail_in(EK_EFORMAT, "%s", path);
    }
    ek_buf_fini(&b);
    return e;
}

bool ek_json_is_text(const json_t *v)
{
    return json_is_string(v) && (uint8_t)json_string_value(v)[0] != 0xFF;
}

const char *ek_json_odd_number(const json_t *v)
{
    return json_is_string(v) && !ek_json_is_text(v) ? json_string_value(v) + 1 : NULL;
}

const json_t *ek_json_get(const json_t *obj, const char *key)
{
    return json_object_get(obj, key);
}

const char *ek_json_get_text(const json_t *obj, const char *key, size_t *n)
{
    const json_t *v = json_object_get(obj, key);
    if (!ek_json_is_text(v)) return NULL;
    if (n) *n = json_string_length(v);
    return json_string_value(v);
}

enum { CODED = 4096 };

/* The end of a string whose opening quote is before at. Adds the number of its control characters, and to `coded` its
 * bytes if they look like base64. */
static size_t skip_string(const char *text, size_t n, size_t at, size_t *controls, size_t *coded)
{
    size_t from = at;
    bool plain = true;
    for (; at < n && text[at] != '"'; at++) {
        unsigned char c = (unsigned char)text[at];
        *controls += c < 0x20;
        plain &= c > ' ' && c < 0x80 && c != '\\';
        if (c == '\\') at++;
    }
    if (at > n) at = n;
    if (plain && at - from >= CODED) *coded += at - from;
    return at < n ? at + 1 : n;
}

static bool ends_word(char c)
{
    return c == ',' || c == ':' || c == ']' || c == '}' || c == '[' || c == '{' || c == '"' || c == ' ' || c == '\n' ||
           c == '\t' || c == '\r';
}

void ek_json_scan(ek_json_size *out, const char *text, size_t n)
{
    ek_json_size s = {0};
    size_t depth = 0, objects = 0, controls = 0;
    for (size_t i = 0; i < n;) {
        char c = text[i++];
        if (c == '"') {
            s.values++;
            i = skip_string(text, n, i, &controls, &s.coded);
        } else if (c == '{' || c == '[') {
            s.values++;
            s.containers++;
            if (c == '{' && depth == 2) objects++;
            if (c == '[' && depth == 1) objects = 0;
            if (++depth > s.depth) s.depth = depth;
            if (objects > s.max_list) s.max_list = objects;
        } else if (c == '}' || c == ']') {
            if (depth > 0) depth--;
        } else if (!ends_word(c)) {
            s.values++;
            while (i < n && !ends_word(text[i])) i++;
        }
    }
    s.growth = 5 * controls;                        /* written as \u0001 */
    if (!ek_utf8_valid(text, n)) s.growth += 2 * n; /* each ill-formed byte may become U+FFFD */
    *out = s;
}

/* Measured with jansson 2.14 on glibc: an empty object is 240 bytes, an empty list 130, a string 48 and its bytes,
 * and each member of an object 70 and its key. */
size_t ek_json_cost(const ek_json_size *size, size_t n)
{
    return size->containers * 256 + (size->values - size->containers) * 128 + size->growth + n;
}
