/* JSON output of a call's arguments: values, commas and keys of the open containers. */
#include "text/reply/call_frames.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/reply/call_value.h"
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

void ek_args_pop(ek_args *a)
{
    ek_args_emit_char(a, ek_args_top(a)->closer == ']' ? ']' : '}');
    a->n_keys = ek_args_top(a)->first_key;
    a->depth--;
    if (a->depth == 0) a->state = DONE;
    else ek_args_end_value(a);
}

/* A closer closes the nearest container it fits, and those inside that; one that fits none is
 * dropped. */
void ek_args_close_with(ek_args *a, char c)
{
    int fits = a->depth;
    while (fits > 0 && a->stack[fits - 1].closer != c) fits--;
    if (fits == 0) return;
    while (a->depth >= fits) ek_args_pop(a);
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

/* A key is known and its value comes next. Of equal keys the first counts: what was sent
 * cannot be taken back. */
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
