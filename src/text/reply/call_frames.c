/* JSON output of a call's arguments: values, commas and keys of the open containers. */
#include "text/reply/call_args.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/json/json.h"

ek_args_frame *ek_args_top(ek_args *a)
{
    return &a->stack[a->depth - 1];
}

bool ek_args_is_closer(const ek_args *a, char c)
{
    return c == '}' || c == ']' || (c == ')' && a->in_call);
}

void ek_args_emit(ek_args *a, const char *s, size_t n)
{
    if (a->mute_depth > 0 || a->bad || n == 0) return;
    ek_buf_add(&a->out, s, n);
    a->last = s[n - 1];
}

void ek_args_emit_char(ek_args *a, char c)
{
    ek_args_emit(a, &c, 1);
}

void ek_args_emit_escaped(ek_args *a, const char *s, size_t n)
{
    if (a->mute_depth == 0 && !a->bad) ek_json_escape(&a->out, s, n);
}

void ek_args_emit_text(ek_args *a, const char *s, size_t n)
{
    ek_args_emit_char(a, '"');
    ek_args_emit_escaped(a, s, n);
    ek_args_emit_char(a, '"');
}

void ek_args_fail(ek_args *a)
{
    a->bad = true;
}

/* Before a value: the comma of a list. An object's commas come with its keys. */
void ek_args_begin_value(ek_args *a)
{
    if (ek_args_top(a)->closer == ']' && ek_args_top(a)->n_members++ > 0) ek_args_emit_char(a, ',');
}

void ek_args_end_value(ek_args *a)
{
    if (a->mute_depth == a->depth) a->mute_depth = 0;
    a->value_schema = ek_args_top(a)->closer == ']' ? ek_schema_items(ek_args_top(a)->schema) : NULL;
    a->state = AFTER;
}

void ek_args_push(ek_args *a, char opener)
{
    if (a->depth == EK_ARGS_DEPTH) {
        ek_args_fail(a);
        return;
    }
    if (a->depth > 0) ek_args_begin_value(a);
    a->stack[a->depth++] = (ek_args_frame){.closer = opener == '['   ? ']'
                                                     : opener == '{' ? '}'
                                                                     : ')',
                                           .first_key = a->n_keys,
                                           .schema = a->value_schema};
    ek_args_emit_char(a, opener == '[' ? '[' : '{');
    a->value_schema = opener == '[' ? ek_schema_items(a->value_schema) : NULL;
    a->state = opener == '[' ? VALUE : KEY_START;
}

static void args_pop(ek_args *a)
{
    ek_args_emit_char(a, ek_args_top(a)->closer == ']' ? ']' : '}');
    a->n_keys = ek_args_top(a)->first_key;
    a->depth--;
    if (a->depth == 0) a->state = DONE;
    else ek_args_end_value(a);
}

/* Closes the nearest container that fits the closer, and those inside it; a closer that fits none is dropped. */
void ek_args_close_with(ek_args *a, char c)
{
    int fits = a->depth;
    while (fits > 0 && a->stack[fits - 1].closer != c) fits--;
    if (fits == 0) return;
    while (a->depth >= fits) args_pop(a);
}

static bool is_new_key(ek_args *a, const char *key, size_t n)
{
    uint64_t hash = ek_hash64(0, key, n);
    for (int i = ek_args_top(a)->first_key; i < a->n_keys; i++)
        if (a->keys[i].hash == hash && a->keys[i].n == n &&
            memcmp(ek_buf_text(&a->key_names) + a->keys[i].at, key, n) == 0)
            return false;
    if (a->n_keys == a->cap_keys) {
        a->cap_keys = a->cap_keys ? 2 * a->cap_keys : 16;
        a->keys = ek_realloc(a->keys, (size_t)a->cap_keys * sizeof *a->keys);
    }
    a->keys[a->n_keys++] = (ek_args_key){hash, a->key_names.len, n};
    ek_buf_add(&a->key_names, key, n);
    return true;
}

/* A key is complete, and its value comes next. Of equal keys the first one counts, because sent text cannot be taken
 * back. */
void ek_args_end_key(ek_args *a, const char *key, size_t n)
{
    bool is_new = is_new_key(a, key, n);
    if (is_new) {
        if (ek_args_top(a)->n_members++ > 0) ek_args_emit_char(a, ',');
        ek_args_emit_text(a, key, n);
        ek_args_emit_char(a, ':');
    } else if (a->mute_depth == 0) {
        a->mute_depth = a->depth;
    }
    a->value_schema = ek_schema_property(ek_args_top(a)->schema, key, n);
    a->state = VALUE;
}

/* The end of a value of a call's arguments, or of all of them: a quote of the notation, or the end of the call, whether
 * or not open parts were closed. */

/* Reads held text again when all of it is known: a bare word ends where the notation says. */
static void replay(ek_args *a)
{
    ek_buf b = a->held;
    a->held = (ek_buf){0};
    a->state = VALUE;
    for (size_t i = 0; i < b.len && !a->bad;) {
        char c = b.data[i];
        if (a->state == VALUE && !ek_args_is_space(c) && !memchr("{[\"',", c, 5) && !ek_args_is_closer(a, c)) {
            size_t n = ek_bare_extent(b.data + i, b.len - i, ek_args_top(a)->closer == ']', a->in_call,
                                      ek_args_known_names(a));
            ek_args_emit_bare(a, b.data + i, n);
            i += n;
        } else {
            ek_args_step(a, c);
            i++;
        }
    }
    ek_buf_fini(&b);
}

/* `a=x, b=y` holds the text after the next '=' again, so one pass may not be enough; every pass takes at least one
 * character. */
static void settle(ek_args *a)
{
    while (!a->bad && (a->state == BARE || a->state == HOLD)) replay(a);
}

void ek_args_quote(ek_args *a)
{
    if (a->state == KEY_NAMED && !a->bad) ek_args_end_named(a);
    if (a->bad) return;
    if (a->state == BARE || a->state == HOLD) {
        if (!ek_bare_opens_text(ek_buf_text(&a->held), a->held.len, ek_args_known_names(a))) {
            ek_args_end_text(a); /* its opening quote is missing */
            return;
        }
        settle(a);
    }
    if (a->state == KEY_BARE && a->equals && a->equals == a->held.len) ek_args_end_bare_key(a, a->equals - 1);
    switch (a->state) {
    case KEY_START: ek_args_begin_held(a, KEY_QUOTED); break;
    case KEY_QUOTED: a->state = COLON; break;
    case VALUE:
        ek_args_begin_value(a);
        ek_args_emit_char(a, '"');
        ek_args_begin_held(a, TEXT);
        break;
    case TEXT:
        ek_args_emit_escaped(a, ek_buf_text(&a->held), a->held.len);
        ek_args_emit_char(a, '"');
        ek_args_end_value(a);
        break;
    default: break; /* a stray one */
    }
}

/* Without a closing quote, one closer per open container is removed from the end of the text, the outermost last. */
static size_t without_closers(const ek_args *a, const char *s, size_t n)
{
    for (int i = 0; i < a->depth; i++) {
        size_t k = n;
        while (k > 0 && ek_args_is_space(s[k - 1])) k--;
        if (k == 0 || s[k - 1] != a->stack[i].closer) break;
        n = k - 1;
    }
    return n;
}

static void close_value(ek_args *a)
{
    switch (a->state) {
    case BARE:
    case HOLD: settle(a); break;
    case TEXT:
        ek_args_emit_escaped(a, ek_buf_text(&a->held), without_closers(a, ek_buf_text(&a->held), a->held.len));
        ek_args_emit_char(a, '"');
        ek_args_end_value(a);
        break;
    case JSON:
        a->held.len = without_closers(a, ek_buf_text(&a->held), a->held.len);
        ek_args_decode_json(a);
        ek_args_end_text(a);
        break;
    case SINGLE:
        if (!a->quote_pending) a->held.len = without_closers(a, ek_buf_text(&a->held), a->held.len);
        ek_args_end_text(a);
        break;
    case KEY_NAMED: ek_args_end_named(a); break;
    case KEY_BARE: ek_args_end_without_colon(a); break;
    case KEY_QUOTED:
    case KEY_JSON:
    case KEY_SINGLE:
    case COLON: ek_args_fail(a); break;
    default: break;
    }
}

/* Whether the machine is inside a key or a value. */
static bool is_open(const ek_args *a)
{
    return a->state != KEY_START && a->state != VALUE && a->state != AFTER && a->state != DONE;
}

bool ek_args_close(ek_args *a)
{
    while (!a->bad && is_open(a)) close_value(a);
    if (!a->bad && a->state == VALUE && ek_args_top(a)->closer != ']') ek_args_emit_bare(a, "", 0);
    while (a->depth > 0 && !a->bad) args_pop(a);
    return !a->bad;
}

void ek_args_closing(const ek_args *a, ek_buf *out)
{
    if (a->depth == 0) return;
    int depth = a->mute_depth ? a->mute_depth : a->depth; /* nothing of a repeated key's value was written */
    if (!a->mute_depth && a->state == TEXT) ek_buf_char(out, '"');
    else if (a->last == ':') ek_buf_str(out, "null"); /* a key without its value */
    while (depth > 0) ek_buf_char(out, a->stack[--depth].closer == ']' ? ']' : '}');
}

bool ek_args_cut(ek_args *a)
{
    if (a->state == KEY_NAMED && !a->bad) ek_args_end_named(a);
    settle(a);
    return ek_args_done(a);
}
