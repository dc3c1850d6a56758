#include "batch/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "base/hash/hash.h"
#include "text/json/json.h"

enum { MAX_VALUES = 1000000, MAX_OBJECTS = 65536 };

/* --- the members of the outermost object --- */

typedef struct span {
    const char *p; /* NULL: absent or null */
    size_t n;
} span;

typedef struct text {
    const char *at, *end;
} text;

static void skip_space(text *t)
{
    while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at) t->at++;
}

/* Moves past the quote that ends the string at t. */
static bool skip_string(text *t)
{
    for (t->at++; t->at < t->end; t->at++) {
        if (*t->at == '"') {
            t->at++;
            return true;
        }
        if (*t->at == '\\' && t->at + 1 < t->end) t->at++;
    }
    return false;
}

/* Checks only the order of brackets. The dialect's reader checks the rest. */
static bool skip_brackets(text *t)
{
    char open[EK_JSON_DEPTH];
    int depth = 0;
    do {
        const char c = *t->at;
        if (c == '"') {
            if (!skip_string(t)) return false;
            continue;
        }
        if (c == '{' || c == '[') {
            if (depth == EK_JSON_DEPTH) return false;
            open[depth++] = c;
        } else if (c == '}' || c == ']') {
            if (open[--depth] != (c == '}' ? '{' : '[')) return false;
        }
        t->at++;
    } while (depth > 0 && t->at < t->end);
    return depth == 0;
}

static bool skip_value(text *t)
{
    if (t->at == t->end) return false;
    if (*t->at == '"') return skip_string(t);
    if (*t->at == '{' || *t->at == '[') return skip_brackets(t);
    const char *from = t->at;
    while (t->at < t->end && *t->at && !strchr(",:{}[]\" \t\r\n", *t->at)) t->at++;
    return t->at > from;
}

enum { NAME, METHOD, URL, BODY, PARAMS, N_MEMBERS };
static const char *const members[N_MEMBERS] = {"custom_id", "method", "url", "body", "params"};

typedef struct spans {
    span at[N_MEMBERS];
} spans;

static bool is_null(const span *s)
{
    return s->n == 4 && !memcmp(s->p, "null", 4);
}

/* One member; false with why. */
static bool read_member(spans *out, text *t, char *why, size_t room)
{
    const char *key = t->at;
    if (t->at == t->end || *t->at != '"' || !skip_string(t)) {
        snprintf(why, room, "the line is no JSON: a name in quotes is needed");
        return false;
    }
    const size_t n_key = (size_t)(t->at - key) - 2;
    skip_space(t);
    const bool colon = t->at < t->end && *t->at == ':';
    if (colon) t->at++;
    skip_space(t);
    const char *from = t->at;
    if (!colon || !skip_value(t)) {
        snprintf(why, room, "the line is no JSON: it breaks off, or its brackets do not fit");
        return false;
    }
    const span value = {from, (size_t)(t->at - from)};
    for (int i = 0; i < N_MEMBERS; i++) {
        if (strlen(members[i]) != n_key || memcmp(members[i], key + 1, n_key) != 0) continue;
        if (out->at[i].p) {
            snprintf(why, room, "%s is there twice", members[i]);
            return false;
        }
        if (!is_null(&value)) out->at[i] = value;
    }
    return true;
}

static bool read_members(spans *out, const char *s, size_t n, char *why, size_t room)
{
    text t = {s, s + n};
    skip_space(&t);
    if (t.at == t.end || *t.at != '{') {
        snprintf(why, room, "the line is no JSON object");
        return false;
    }
    t.at++;
    skip_space(&t);
    bool more = !(t.at < t.end && *t.at == '}');
    if (!more) t.at++;
    while (more) {
        skip_space(&t);
        if (!read_member(out, &t, why, room)) return false;
        skip_space(&t);
        const char c = t.at < t.end ? *t.at++ : '\0';
        if (c != ',' && c != '}') {
            snprintf(why, room, "the line is no JSON: it breaks off, or a comma is missing");
            return false;
        }
        more = c == ',';
    }
    skip_space(&t);
    if (t.at == t.end) return true;
    snprintf(why, room, "the line has more than one JSON object");
    return false;
}

/* --- the request --- */

static bool equals(const span *s, const char *word)
{
    const size_t n = strlen(word);
    return s->n == n + 2 && *s->p == '"' && !memcmp(s->p + 1, word, n);
}

/* The part of the line that a sentence quotes: at most 60 bytes, only printable ASCII. */
static void show(char out[64], const span *s)
{
    size_t n = s->n < 60 ? s->n : 60;
    for (size_t i = 0; i < n; i++) out[i] = s->p[i] >= ' ' && s->p[i] < 0x7F ? s->p[i] : '?';
    out[n] = '\0';
}

static bool read_name(ek_batch_line *l, const span *s)
{
    json_t *v = NULL;
    if (!s->p || *s->p != '"' || s->n > 6 * EK_BATCH_NAME_MAX + 2 || ek_json_read(&v, s->p, s->n, 0)) {
        snprintf(l->why, sizeof l->why, "custom_id is needed, a text of 1 to %d bytes", EK_BATCH_NAME_MAX);
        return false;
    }
    l->n_name = json_string_length(v);
    const bool fits = l->n_name > 0 && l->n_name <= EK_BATCH_NAME_MAX && ek_json_is_text(v);
    if (fits) {
        l->name = ek_alloc(l->n_name + 1);
        memcpy(l->name, json_string_value(v), l->n_name);
    } else {
        snprintf(l->why, sizeof l->why, "custom_id has %zu bytes, 1 to %d are needed", l->n_name, EK_BATCH_NAME_MAX);
    }
    json_decref(v);
    return fits;
}

static const ek_dialect *find_dialect(ek_batch_line *l, const span *url)
{
    static const ek_dialect *const rows[] = {&ek_dialect_openai_chat, &ek_dialect_openai_completions,
                                             &ek_dialect_responses};
    char shown[64];
    for (size_t i = 0; url->p && i < sizeof rows / sizeof *rows; i++)
        if (equals(url, rows[i]->path)) return rows[i];
    if (url->p) show(shown, url);
    else snprintf(shown, sizeof shown, "nothing");
    snprintf(l->why, sizeof l->why, "url must be %s, %s or %s, not %s", rows[0]->path, rows[1]->path, rows[2]->path,
             shown);
    return NULL;
}

static const ek_dialect *read_request(ek_batch_line *l, const spans *s)
{
    const span *body = &s->at[l->anthropic ? PARAMS : BODY];
    char shown[64];
    const ek_dialect *d = &ek_dialect_anthropic;
    if (l->anthropic && (s->at[BODY].p || s->at[URL].p || s->at[METHOD].p)) {
        snprintf(l->why, sizeof l->why, "params is of Anthropic's form, method, url and body of OpenAI's: one of both");
        return NULL;
    }
    if (!l->anthropic && !(d = find_dialect(l, &s->at[URL]))) return NULL;
    if (!l->anthropic && (!s->at[METHOD].p || !equals(&s->at[METHOD], "POST"))) {
        if (s->at[METHOD].p) show(shown, &s->at[METHOD]);
        else snprintf(shown, sizeof shown, "nothing");
        snprintf(l->why, sizeof l->why, "method must be POST, not %s", shown);
        return NULL;
    }
    if (!body->p || *body->p != '{') {
        snprintf(l->why, sizeof l->why, "%s must be an object", l->anthropic ? "params" : "body");
        return NULL;
    }
    ek_json_size size = {0};
    ek_json_scan(&size, body->p, body->n);
    if (size.values > MAX_VALUES || size.max_list > MAX_OBJECTS) {
        snprintf(l->why, sizeof l->why,
                 "the body has %zu JSON values and keys and a list of %zu objects, at most %d and %d are allowed",
                 size.values, size.max_list, MAX_VALUES, MAX_OBJECTS);
        return NULL;
    }
    l->body = body->p;
    l->n_body = body->n;
    return d;
}

void ek_batch_line_read(ek_batch_line *out, const char *s, size_t n)
{
    spans found = {0};
    *out = (ek_batch_line){0};
    const bool whole = read_members(&found, s, n, out->why, sizeof out->why);
    out->anthropic = found.at[PARAMS].p != NULL;
    if (whole && read_name(out, &found.at[NAME])) out->dialect = read_request(out, &found);
}

void ek_batch_line_too_long(ek_batch_line *out, uint64_t n)
{
    *out = (ek_batch_line){0};
    snprintf(out->why, sizeof out->why, "the line has %llu bytes, at most %d are read", (unsigned long long)n,
             EK_BATCH_LINE_MAX);
}

void ek_batch_line_fini(ek_batch_line *l)
{
    free(l->name);
    *l = (ek_batch_line){0};
}

uint64_t ek_batch_sum(const char hex[65])
{
    char digits[17];
    memcpy(digits, hex, 16);
    digits[16] = '\0';
    return strtoull(digits, NULL, 16);
}

void ek_batch_line_id(char out[EK_BATCH_ID], const char *s, size_t n)
{
    char hex[65];
    ek_sha256_hex(hex, s, n);
    memcpy(out, hex, EK_BATCH_ID - 1);
    out[EK_BATCH_ID - 1] = '\0';
}

uint64_t ek_batch_line_seed(int64_t seed, const ek_batch_line *l)
{
    ek_buf b = {0};
    uint8_t hash[32];
    ek_buf_str(&b, "evenkeel.batch");
    ek_buf_le(&b, (uint64_t)seed, 8);
    ek_buf_add(&b, l->name, l->n_name);
    ek_sha256(hash, b.data, b.len);
    ek_buf_fini(&b);
    return ek_get_le(hash, 8) >> 11;
}

/* --- the result --- */

static void put_name(ek_buf *out, const ek_batch_line *l)
{
    ek_buf_str(out, "\"custom_id\":");
    if (l->name) ek_json_quote(out, l->name, l->n_name);
    else ek_buf_str(out, "null");
}

static void put_anthropic(ek_buf *out, const ek_batch_line *l, int status, const ek_buf *body)
{
    ek_buf_char(out, '{');
    put_name(out, l);
    ek_buf_str(out, status == 200 ? ",\"result\":{\"type\":\"succeeded\",\"message\":"
                                  : ",\"result\":{\"type\":\"errored\",\"error\":");
    ek_buf_add(out, ek_buf_text(body), body->len);
    ek_buf_str(out, "}}");
}

static void put_openai(ek_buf *out, const ek_batch_line *l, const char *id, int status, const ek_buf *body)
{
    ek_buf_fmt(out, "{\"id\":\"batch_req_%s\",", id);
    put_name(out, l);
    if (l->dialect) {
        ek_buf_fmt(out, ",\"response\":{\"status_code\":%d,\"request_id\":\"req_%s\",\"body\":", status, id);
        ek_buf_add(out, ek_buf_text(body), body->len);
        ek_buf_str(out, "},\"error\":null}");
        return;
    }
    ek_put_string_after(out, ",\"response\":null,\"error\":{\"code\":\"invalid_line\",\"message\":", l->why);
    ek_buf_str(out, "}}");
}

bool ek_batch_put(ek_buf *out, const ek_batch_line *l, const char id[EK_BATCH_ID], int status, const ek_buf *body)
{
    ek_buf error = {0};
    if (!l->dialect) status = 400;
    if (l->anthropic && !l->dialect) {
        ek_dialect_anthropic.error(&error, status, l->why, NULL, NULL);
        body = &error;
    }
    if (l->anthropic) put_anthropic(out, l, status, body);
    else put_openai(out, l, id, status, body);
    ek_buf_fini(&error);
    return status != 200;
}
