#include "text/reply/call_args.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"

void ek_args_end_bare_key(ek_args *a, size_t n)
{
    size_t from = 0;
    while (from < n && ek_args_is_space(a->held.data[from])) from++;
    while (n > from && ek_args_is_space(a->held.data[n - 1])) n--;
    if (n == from) ek_args_fail(a);
    else ek_args_end_key(a, a->held.data + from, n - from);
}

/* Ends a bare key without ':': it is `k=v`, or not understandable. */
void ek_args_end_without_colon(ek_args *a)
{
    if (a->equals == 0) {
        ek_args_fail(a);
        return;
    }
    ek_buf rest = {0};
    ek_buf_add(&rest, a->held.data + a->equals, a->held.len - a->equals);
    ek_args_end_bare_key(a, a->equals - 1);
    for (size_t i = 0; i < rest.len; i++) ek_args_step(a, rest.data[i]);
    ek_buf_fini(&rest);
}

/* Whether a comma or a closer belongs to a key such as filter[status] or f(a, b), which closes what it opened. */
static bool is_inside_key(const ek_args *a, char c)
{
    if (a->equals) return false;
    if (c == '}') return a->braces > 0;
    if (c == ',' || c == ')') return a->nested > 0;
    return true; /* here it is no list's bracket */
}

static void in_bare_key(ek_args *a, char c)
{
    bool after_equals = a->equals && a->equals == a->held.len;
    if (c == ':') {
        ek_args_end_bare_key(a, a->held.len);
    } else if (c == '=' && (a->in_call || (!a->equals && ek_schema_property(ek_args_top(a)->schema,
                                                                            ek_buf_text(&a->held), a->held.len)))) {
        ek_args_end_bare_key(a, a->held.len);
    } else if (c == '=' && !a->equals) {
        ek_buf_char(&a->held, c);
        a->equals = a->held.len;
    } else if (after_equals && (c == '"' || c == '\'' || c == '[' || c == '{')) {
        ek_args_end_bare_key(a, a->equals - 1);
        ek_args_step(a, c);
    } else if ((c == ',' || ek_args_is_closer(a, c)) && !is_inside_key(a, c)) {
        ek_args_end_without_colon(a);
        if (!a->bad) ek_args_step(a, c);
    } else {
        a->braces += (c == '{') - (c == '}');
        if (c == '(' || c == '[') a->nested++;
        if ((c == ')' || c == ']') && a->nested > 0) a->nested--;
        ek_buf_char(&a->held, c);
    }
}

/* held has the text between JSON quotes; decodes it in place. */
void ek_args_decode_json(ek_args *a)
{
    ek_buf b = {0};
    json_t *v;
    ek_buf_char(&b, '"');
    ek_buf_add(&b, ek_buf_text(&a->held), a->held.len);
    if (a->escaped) ek_buf_char(&b, '\\'); /* a backslash was the last character */
    ek_buf_char(&b, '"');
    ek_buf_clear(&a->held);
    if (ek_json_read_lenient(&v, b.data, b.len, 0) == EK_OK) {
        ek_buf_add(&a->held, json_string_value(v), json_string_length(v));
        json_decref(v);
    } else {
        ek_args_fail(a);
    }
    ek_buf_fini(&b);
}

void ek_args_end_text(ek_args *a)
{
    ek_args_begin_value(a);
    ek_args_emit_text(a, ek_buf_text(&a->held), a->held.len);
    ek_args_end_value(a);
}

void ek_args_begin_held(ek_args *a, int state)
{
    ek_buf_clear(&a->held);
    a->equals = 0;
    a->braces = a->nested = 0;
    a->escaped = a->quote_pending = false;
    a->state = state;
}

static void in_json_text(ek_args *a, char c)
{
    if (!a->escaped && c == '"') {
        bool key = a->state == KEY_JSON;
        ek_args_decode_json(a);
        if (key) a->state = COLON;
        else ek_args_end_text(a);
        return;
    }
    a->escaped = !a->escaped && c == '\\';
    ek_buf_char(&a->held, c);
}

static void in_single(ek_args *a, char c)
{
    if (a->quote_pending && (c == ',' || ek_args_is_closer(a, c))) {
        ek_args_end_text(a);
        ek_args_step(a, c);
        return;
    }
    if (a->quote_pending) ek_buf_char(&a->held, '\'');
    a->quote_pending = c == '\'';
    if (!a->quote_pending) ek_buf_char(&a->held, c);
}

static void in_text(ek_args *a, char c)
{
    /* if the closing <|"|> is missing, the end of the text belongs to the containers */
    if (ek_args_is_closer(a, c) || (a->held.len > 0 && ek_args_is_space(c))) {
        ek_buf_char(&a->held, c);
        return;
    }
    if (a->held.len) {
        ek_args_emit_escaped(a, a->held.data, a->held.len);
        ek_buf_clear(&a->held);
    }
    if ((signed char)c < 0) ek_args_emit_char(a, c); /* part of a longer character, which is never escaped */
    else ek_args_emit_escaped(a, &c, 1);
}

void ek_args_emit_bare(ek_args *a, const char *s, size_t n)
{
    ek_buf b = {0};
    ek_bare_value(&b, s, n, a->value_schema);
    ek_args_begin_value(a);
    ek_args_emit(a, b.data, b.len);
    ek_args_end_value(a);
    ek_buf_fini(&b);
}

static void in_bare(ek_args *a, char c)
{
    if ((c == ',' || ek_args_is_closer(a, c)) &&
        ek_bare_is_literal(ek_buf_text(&a->held), a->held.len, a->value_schema)) {
        ek_args_emit_bare(a, a->held.data, a->held.len);
        ek_args_step(a, c);
        return;
    }
    if (c == ',' || ek_args_is_closer(a, c)) a->state = HOLD;
    ek_buf_char(&a->held, c);
}

static void before_value(ek_args *a, char c)
{
    bool list = ek_args_top(a)->closer == ']';
    if (ek_args_is_space(c)) return;
    if (c == '{' || c == '[') {
        ek_args_push(a, c);
    } else if (c == '"') {
        ek_args_begin_held(a, JSON);
    } else if (c == '\'') {
        ek_args_begin_held(a, SINGLE);
    } else if (c == ',' || ek_args_is_closer(a, c)) {
        if (!list) ek_args_emit_bare(a, "", 0);
        if (!list || c != ',') {
            a->state = AFTER;
            ek_args_step(a, c);
        }
    } else {
        ek_args_begin_held(a, BARE);
        ek_buf_char(&a->held, c);
    }
}

/* The held text became a name and perhaps more, or no name. */
void ek_args_end_named(ek_args *a)
{
    ek_buf b = a->held;
    size_t from = a->match;
    a->held = (ek_buf){0};
    a->state = KEY_START;
    if (from > 0) ek_args_end_key(a, b.data, from - 1);
    else a->unnamed = true;
    for (size_t i = from; i < b.len; i++) ek_args_step(a, b.data[i]);
    ek_buf_fini(&b);
}

/* Known names are tried before anything else: the longest one. */
static void in_named(ek_args *a, char c)
{
    bool whole;
    if (!ek_call_names_narrow(ek_args_known_names(a), &a->lo, &a->hi, (uint32_t)a->held.len, c, &whole)) {
        ek_args_end_named(a);
        ek_args_step(a, c);
        return;
    }
    ek_buf_char(&a->held, c);
    if (whole) a->match = a->held.len;
    if (whole && a->hi - a->lo == 1) ek_args_end_named(a);
}

static bool begins_named(ek_args *a, char c)
{
    bool whole, named = !a->unnamed && ek_args_known_names(a)->n > 0;
    a->unnamed = false;
    a->lo = 0, a->hi = ek_args_known_names(a)->n;
    if (!named || !ek_call_names_narrow(ek_args_known_names(a), &a->lo, &a->hi, 0, c, &whole)) return false;
    ek_args_begin_held(a, KEY_NAMED);
    a->lo = 0, a->hi = ek_args_known_names(a)->n;
    a->match = 0;
    in_named(a, c);
    return true;
}

static void before_key(ek_args *a, char c)
{
    if (begins_named(a, c)) return;
    if (ek_args_is_space(c) || c == ',') return;
    if (ek_args_is_closer(a, c)) ek_args_close_with(a, c);
    else if (c == '"') ek_args_begin_held(a, KEY_JSON);
    else if (c == '\'') ek_args_begin_held(a, KEY_SINGLE);
    else {
        ek_args_begin_held(a, KEY_BARE);
        in_bare_key(a, c);
    }
}

void ek_args_step(ek_args *a, char c)
{
    if (a->bad) return;
    switch (a->state) {
    case KEY_START: before_key(a, c); break;
    case KEY_NAMED: in_named(a, c); break;
    case KEY_BARE: in_bare_key(a, c); break;
    case KEY_QUOTED: ek_buf_char(&a->held, c); break;
    case KEY_SINGLE:
        if (c == '\'') a->state = COLON;
        else ek_buf_char(&a->held, c);
        break;
    case KEY_JSON:
    case JSON: in_json_text(a, c); break;
    case COLON:
        if (c == ':' || c == '=') ek_args_end_key(a, ek_buf_text(&a->held), a->held.len);
        else if (!ek_args_is_space(c)) ek_args_fail(a);
        break;
    case VALUE: before_value(a, c); break;
    case BARE: in_bare(a, c); break;
    case HOLD: ek_buf_char(&a->held, c); break;
    case TEXT: in_text(a, c); break;
    case SINGLE: in_single(a, c); break;
    case AFTER:
        if (c == ',') a->state = ek_args_top(a)->closer == ']' ? VALUE : KEY_START;
        else if (ek_args_is_closer(a, c)) ek_args_close_with(a, c);
        else if (!ek_args_is_space(c)) ek_args_fail(a);
        break;
    default: break; /* DONE: everything after the arguments is dropped */
    }
}

static int find_names(ek_args *a, const json_t *schema)
{
    for (int i = 0; i < a->n_known; i++)
        if (a->known[i].schema == schema) return i;
    if (a->n_known == a->cap_known) {
        a->cap_known = a->cap_known ? 2 * a->cap_known : 4;
        a->known = ek_realloc(a->known, (size_t)a->cap_known * sizeof *a->known);
    }
    a->known[a->n_known].schema = schema;
    ek_call_names_init(&a->known[a->n_known].names, schema, false);
    return a->n_known++;
}

void ek_args_begin(ek_args *a, char opener, const json_t *schema)
{
    ek_buf_clear(&a->out);
    ek_buf_clear(&a->held);
    ek_buf_clear(&a->key_names);
    a->bad = a->quote_pending = a->escaped = false;
    a->depth = a->mute_depth = a->n_keys = 0;
    a->equals = 0;
    a->in_call = opener == '(';
    a->unnamed = false;
    a->names = find_names(a, schema);
    a->value_schema = schema;
    ek_args_push(a, opener);
}

void ek_args_fini(ek_args *a)
{
    ek_buf_fini(&a->out);
    ek_buf_fini(&a->held);
    ek_buf_fini(&a->key_names);
    for (int i = 0; i < a->n_known; i++) ek_call_names_fini(&a->known[i].names);
    free(a->known);
    free(a->keys);
}

void ek_args_text(ek_args *a, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) ek_args_step(a, s[i]);
}

bool ek_args_in_text(const ek_args *a)
{
    return a->state == TEXT && !a->bad;
}

bool ek_args_done(const ek_args *a)
{
    return a->state == DONE && !a->bad;
}
