#include "text/reply/reply.h"

#include <string.h>

#include "text/json/json.h"
#include "text/reply/call_args.h"

typedef struct reader {
    const char *s;
    size_t n, at;
    int depth, lists; /* open containers; lists among them */
    ek_buf scratch;
} reader;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(reader *r)
{
    while (r->at < r->n && is_space(r->s[r->at])) r->at++;
}

static int peek(const reader *r)
{
    return r->at < r->n ? (unsigned char)r->s[r->at] : -1;
}

/* A quote ends a string if the notation continues after it; otherwise it belongs to the text. */
static bool ends_string(const reader *r, size_t at)
{
    bool line = false;
    while (at < r->n && is_space(r->s[at])) line |= r->s[at++] == '\n';
    if (at == r->n) return true;
    char c = r->s[at];
    return c == ',' || c == '}' || c == ']' || c == ':' || (line && c == '"');
}

static bool is_high_half(const char *s, size_t n)
{
    return n >= 4 && (s[0] == 'd' || s[0] == 'D') && memchr("89abAB", s[1], 6);
}

/* Decodes the text between the quotes by the lenient reader; inner quotes are escaped for it. At the end of a truncated
 * string an incomplete escape is dropped, and so is half a character. */
static json_t *decode(reader *r, const char *s, size_t n, char quote, bool cut)
{
    ek_buf *b = &r->scratch;
    json_t *v = NULL;
    ek_buf_clear(b);
    ek_buf_char(b, '"');
    size_t half = 0; /* length of b before the first half of a character, if that was read last */
    for (size_t i = 0; i < n; i++) {
        size_t left = n - i - 1, before = b->len;
        bool escape = s[i] == '\\', unicode = escape && left > 0 && s[i + 1] == 'u';
        if (cut && escape && (left == 0 || (unicode && left < 5))) break;
        bool high = unicode && is_high_half(s + i + 2, left - 1);
        if (escape) i++;
        if (escape ? s[i] != '\'' || quote != '\'' : s[i] == '"') ek_buf_char(b, '\\'); /* \' is Python's */
        ek_buf_char(b, s[i]);
        if (high) half = before, ek_buf_add(b, s + i + 1, 4), i += 4;
        else half = 0;
    }
    if (cut && half > 0) b->len = half;
    ek_buf_char(b, '"');
    return ek_json_read_lenient(&v, b->data, b->len, 0) ? NULL : v;
}

/* Only values may contain quotes: a key ends at the first one. */
static json_t *read_string(reader *r, bool key, bool *cut)
{
    char quote = r->s[r->at++];
    size_t from = r->at;
    for (; r->at < r->n; r->at++) {
        if (r->s[r->at] == '\\') r->at++;
        else if (r->s[r->at] == quote && (key || ends_string(r, r->at + 1))) break;
    }
    *cut = r->at >= r->n;
    if (*cut) r->at = r->n;
    size_t to = *cut ? r->n : r->at++;
    return decode(r, r->s + from, to - from, quote, *cut);
}

/* The literal whose first letters these are, at the end of a truncated text. */
static const char *begun(const char *s, size_t n)
{
    static const char *const words[] = {"true", "false", "null", "True", "False", "None"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n > 0 && n <= strlen(words[i]) && !memcmp(words[i], s, n)) return words[i];
    return NULL;
}

/* Reads a word without quotes, up to the next character of the notation. */
static json_t *read_word(reader *r)
{
    size_t from = r->at;
    for (; r->at < r->n && !memchr(",}]\n", r->s[r->at], 4); r->at++)
        if (memchr("{[\"", r->s[r->at], 3)) return NULL; /* it may not be a word */
    const char *s = r->s + from;
    size_t n = r->at - from;
    while (n > 0 && is_space(s[n - 1])) n--;
    if (r->at == r->n) {
        const char *word = begun(s, n);
        if (word) s = word, n = strlen(word);
        else if (n > 0 && memchr("-0123456789", s[0], 11))
            while (n > 0 && memchr(".eE+-", s[n - 1], 5)) n--;
    }
    json_t *v = NULL;
    ek_buf_clear(&r->scratch);
    ek_bare_value(&r->scratch, s, n, NULL);
    return ek_json_read_lenient(&v, r->scratch.data, r->scratch.len, 0) ? NULL : v;
}

static json_t *read_value(reader *r);

/* Before a member: false if its container ends. A closer of another kind also ends it, if such a container is open.
 * *bad: nothing separates it from the member before. */
static bool goes_on(reader *r, char closer, bool first, bool *bad)
{
    bool divided = first;
    for (; r->at < r->n; r->at++) {
        char c = r->s[r->at];
        if (c == closer) {
            r->at++;
            return false;
        }
        if (c == '}' || (c == ']' && r->lists > 0)) return false; /* it closes an outer container */
        if (c == ',' || c == '\n') divided = true;
        else if (!is_space(c) && c != ']') break;
    }
    *bad |= r->at < r->n && !divided;
    return r->at < r->n && !*bad;
}

static json_t *read_list(reader *r)
{
    json_t *list = json_array();
    bool bad = false;
    r->lists++;
    while (goes_on(r, ']', json_array_size(list) == 0, &bad)) {
        json_t *v = read_value(r);
        bad = !v;
        if (bad) break;
        json_array_append_new(list, v);
    }
    r->lists--;
    if (!bad) return list;
    json_decref(list);
    return NULL;
}

/* NULL: there is no readable key. */
static json_t *read_key(reader *r, bool *cut)
{
    int c = peek(r);
    if (c == '"' || c == '\'') return read_string(r, true, cut);
    size_t from = r->at;
    while (r->at < r->n && !memchr(":,}]{[\"'\n", r->s[r->at], 10)) r->at++;
    size_t n = r->at - from;
    while (n > 0 && is_space(r->s[from + n - 1])) n--;
    *cut = r->at == r->n;
    return n > 0 && (*cut || r->s[r->at] == ':') ? json_stringn(r->s + from, n) : NULL;
}

static bool read_member(reader *r, json_t *object)
{
    bool cut = false;
    json_t *key = read_key(r, &cut), *value = NULL;
    skip_space(r);
    if (key && cut) { /* half a key is useless */
        json_decref(key);
        return true;
    }
    if (key && peek(r) < 0) value = json_null();
    else if (key && peek(r) == ':') {
        r->at++;
        skip_space(r);
        value = read_value(r);
    }
    if (value) json_object_setn_new_nocheck(object, json_string_value(key), json_string_length(key), value);
    json_decref(key);
    return value != NULL;
}

static json_t *read_object(reader *r)
{
    json_t *object = json_object();
    bool bad = false;
    for (bool first = true; !bad && goes_on(r, '}', first, &bad); first = false) bad = !read_member(r, object);
    if (!bad) return object;
    json_decref(object);
    return NULL;
}

static json_t *read_value(reader *r)
{
    bool cut;
    int c = peek(r);
    if (c == '"' || c == '\'') return read_string(r, false, &cut);
    if (c != '{' && c != '[') return read_word(r);
    if (r->depth == EK_JSON_DEPTH) return NULL;
    r->at++;
    r->depth++;
    json_t *v = c == '{' ? read_object(r) : read_list(r);
    r->depth--;
    return v;
}

static bool only_closers(const reader *r)
{
    for (size_t i = r->at; i < r->n; i++)
        if (!is_space(r->s[i]) && !memchr("}]),;", r->s[i], 5)) return false;
    return true;
}

void ek_call_repair_scan(ek_json_size *out, const char *text, size_t n)
{
    ek_json_scan(out, text, n);
    out->values = out->containers = 0;
    for (size_t i = 0; i < n; i++) {
        out->containers += text[i] == '{' || text[i] == '[';
        out->values += text[i] == ',' || text[i] == '\n' || text[i] == '"';
        out->values += text[i] == ':' ? 2 : 0;
    }
    out->values += 2 * out->containers + 2;
}

json_t *ek_call_repair(const char *text, size_t n)
{
    reader r = {.s = text, .n = n};
    json_t *v = NULL;
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) r.at = 3;
    skip_space(&r);
    if (peek(&r) == '{') v = read_value(&r);
    if (v && !only_closers(&r)) {
        json_decref(v);
        v = NULL;
    }
    ek_buf_fini(&r.scratch);
    return v;
}
