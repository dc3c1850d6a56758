#include "chat/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

static json_t *string(const ek_buf *b)
{
    return json_stringn_nocheck(ek_buf_text(b), b->len);
}

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new_nocheck(object, key, value);
}

static void append_to(json_t *object, const char *key, json_t *value)
{
    json_t *list = json_object_get(object, key);
    if (!list) set(object, key, list = json_array());
    json_array_append_new(list, value);
}

/* Builds the messages for the template, adding blocks to one message at a time. */
typedef struct writer {
    json_t *list;                   /* all messages */
    json_t *at;                     /* borrowed from list */
    const ek_message *from, *first; /* from: the message being written; first: the first message of the conversation */
    bool calls, visible;            /* already in at */
    const ek_pairs *pairs;
    int *slot;  /* for each call: the template's message that contains it; -1: none */
    int *group; /* the calls in `at`, which their results follow */
    int n_group;
} writer;

static void open_message(writer *w)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    w->at = json_object();
    w->calls = w->visible = false;
    set(w->at, "role", json_string_nocheck(roles[w->from->role]));
    json_array_append_new(w->list, w->at);
}

/* Begins a new message for a block that the template would otherwise write before the present ones. */
static void keep_order(writer *w, const ek_block *b)
{
    if (w->from->role != EK_ROLE_ASSISTANT) return;
    bool late_text = w->calls && ek_block_shows(b);
    bool late_call = b->kind == EK_BLOCK_CALL && w->visible;
    bool late_thought = b->kind == EK_BLOCK_REASONING &&
                        (w->calls || w->visible || json_object_get(w->at, "reasoning_content"));
    if (late_text || late_call || late_thought) open_message(w);
}

/* Makes the content a list. An existing text becomes its first part. */
static void make_parts(writer *w)
{
    json_t *content = json_object_get(w->at, "content");
    if (!json_is_string(content)) return;
    json_t *first = json_object();
    set(first, "type", json_string_nocheck("text"));
    json_object_set_nocheck(first, "text", content);
    set(w->at, "content", json_array());
    append_to(w->at, "content", first);
}

static void put_text(writer *w, const char *s, size_t n)
{
    if (!w->from->parts && !json_object_get(w->at, "content")) {
        set(w->at, "content", json_stringn_nocheck(s, n));
        return;
    }
    json_t *part = json_object();
    make_parts(w);
    set(part, "type", json_string_nocheck("text"));
    set(part, "text", json_stringn_nocheck(s, n));
    append_to(w->at, "content", part);
}

/* Minutes and seconds as in transformers' processor: at least two digits of minutes, and seconds without their
 * fraction. */
static json_t *time_of(double seconds)
{
    char text[32];
    long long s = (long long)seconds;
    snprintf(text, sizeof text, "%02lld:%02lld", s / 60, s % 60);
    return json_string_nocheck(text);
}

static void put_media(writer *w, const ek_block *b)
{
    static const char *const types[] = {"image", "video", "audio"};
    json_t *part = json_object();
    make_parts(w);
    set(part, "type", json_string_nocheck(types[b->media]));
    if (b->media != EK_PART_FRAME && b->n_files == 1) set(part, "file", json_integer(b->files[0].number));
    for (int i = 0; b->media == EK_PART_FRAME && i < b->n_files; i++) {
        json_t *frame = json_object();
        set(frame, "time", time_of(b->files[i].seconds));
        set(frame, "file", json_integer(b->files[i].number));
        append_to(part, "frames", frame);
    }
    append_to(w->at, "content", part);
}

static void put_tool(writer *w, json_t *tool)
{
    json_t *part = json_object();
    make_parts(w);
    set(part, "type", json_string_nocheck("tool_reference"));
    json_object_set_nocheck(part, "tool", tool);
    append_to(w->at, "content", part);
}

static void put_call(writer *w, const ek_block *b)
{
    json_t *call = json_object(), *function = json_object();
    if (b->id.len) set(call, "id", string(&b->id));
    set(call, "type", json_string_nocheck("function"));
    set(function, "name", string(&b->name));
    json_object_set_nocheck(function, "arguments", b->value);
    set(call, "function", function);
    append_to(w->at, "tool_calls", call);
    w->calls = true;
}

static void put_result(writer *w, const ek_block *b)
{
    json_t *result = json_object();
    if (b->name.len) set(result, "name", string(&b->name));
    if (b->value) json_object_set_nocheck(result, "response", b->value);
    append_to(w->at, "tool_responses", result);
}

static void put_block(writer *w, const ek_block *b)
{
    keep_order(w, b);
    w->visible |= ek_block_shows(b);
    switch (b->kind) {
    case EK_BLOCK_TEXT: put_text(w, ek_buf_text(&b->text), b->text.len); break;
    case EK_BLOCK_MEDIA: put_media(w, b); break;
    case EK_BLOCK_TOOL: put_tool(w, b->value); break;
    case EK_BLOCK_REASONING: set(w->at, "reasoning_content", string(&b->text)); break;
    case EK_BLOCK_CALL: put_call(w, b); break;
    case EK_BLOCK_RESULT: put_result(w, b); break;
    }
}

/* A documented convenience: <|think|> at the start of the system text asks for thinking. Returns the text after it,
 * stripped. */
static bool after_think_mark(const ek_message *m, const char **s, size_t *n)
{
    static const char mark[] = "<|think|>";
    const size_t len = sizeof mark - 1;
    bool system = m->role == EK_ROLE_SYSTEM || m->role == EK_ROLE_DEVELOPER;
    if (!system || m->n_blocks == 0 || m->blocks[0].kind != EK_BLOCK_TEXT) return false;
    *s = ek_buf_text(&m->blocks[0].text);
    *n = m->blocks[0].text.len;
    ek_utf8_strip(s, n);
    if (*n < len || memcmp(*s, mark, len) != 0) return false;
    *s += len;
    *n -= len;
    return true;
}

/* --- messages --- */

static void begin_message(writer *w)
{
    open_message(w);
    if (w->from->parts) set(w->at, "content", json_array());
}

static void put_message(writer *w, bool *think_mark)
{
    const ek_message *m = w->from;
    const char *s;
    size_t n;
    int from = 0;
    begin_message(w);
    if (m == w->first && after_think_mark(m, &s, &n)) {
        *think_mark = true;
        if (n > 0 || !m->parts) put_text(w, s, n);
        from = 1;
    }
    for (int i = from; i < m->n_blocks; i++) put_block(w, &m->blocks[i]);
}

/* --- results --- */

static bool in_slot(const writer *w, int call, int slot)
{
    return call >= 0 && w->slot[call] == slot;
}

/* Whether the id names one call of its message. If several calls have it, the template takes the last one. */
static bool is_clear(const writer *w, int call)
{
    const ek_pair_call *k = &w->pairs->calls[call];
    int n_without = 0;
    if (k->block->id.len) return !in_slot(w, k->before, w->slot[call]) && !in_slot(w, k->after, w->slot[call]);
    for (int i = 0; i < w->n_group && n_without < 2; i++) n_without += w->pairs->calls[w->group[i]].block->id.len == 0;
    return n_without < 2;
}

/* Adds a separate message. If the id is not clear, the message gets an id that no call has, and the name of its
 * function. */
static void put_result_message(writer *w, const ek_message *m, int call)
{
    const ek_block *b = w->pairs->calls[call].block;
    bool clear = is_clear(w, call);
    w->from = m;
    begin_message(w);
    if (!clear) set(w->at, "tool_call_id", json_string_nocheck(""));
    else if (b->id.len) set(w->at, "tool_call_id", string(&b->id));
    if (!clear) set(w->at, "name", string(&b->name));
    else if (m->name.len) set(w->at, "name", string(&m->name));
    for (int i = 0; i < m->n_blocks; i++) put_block(w, &m->blocks[i]);
}

/* Adds the result to the list in the call's own message, because the template then ignores other messages with results.
 * Parts that are not text follow all results, as in the template. */
static void put_own_result(writer *w, json_t *list, const ek_message *m, const ek_block *call)
{
    json_t *result = json_object();
    ek_buf text = {0};
    for (int i = 0; i < m->n_blocks; i++) {
        const ek_block *b = &m->blocks[i];
        if (b->kind == EK_BLOCK_MEDIA) put_media(w, b);
        else ek_buf_add(&text, ek_buf_text(&b->text), b->text.len);
    }
    set(result, "name", string(&call->name));
    set(result, "response", string(&text));
    json_array_append_new(list, result);
    ek_buf_fini(&text);
}

typedef struct result {
    int message, call;
} result;

static int by_message(const void *a, const void *b)
{
    const result *x = a, *y = b;
    return x->message - y->message;
}

/* The results of the calls of this message, in the order of their arrival. */
static void put_results(writer *w, const ek_conversation *c)
{
    const ek_pairs *p = w->pairs;
    int n = 0;
    for (int i = 0; i < w->n_group; i++)
        for (int m = p->calls[w->group[i]].first; m >= 0; m = p->next[m]) n++;
    result *all = ek_alloc((size_t)(n + 1) * sizeof *all);
    n = 0;
    for (int i = 0; i < w->n_group; i++)
        for (int m = p->calls[w->group[i]].first; m >= 0; m = p->next[m]) all[n++] = (result){m, w->group[i]};
    qsort(all, (size_t)n, sizeof *all, by_message);
    json_t *own = json_object_get(w->at, "tool_responses");
    for (int i = 0; i < n; i++) {
        const ek_message *m = &c->messages[all[i].message];
        if (own) put_own_result(w, own, m, p->calls[all[i].call].block);
        else put_result_message(w, m, all[i].call);
    }
    free(all);
    w->n_group = 0;
    if (n > 0) w->at = NULL; /* the next block begins a new message */
}

/* Notes a call of the message being written, because its results follow that message. */
static void note_call(writer *w, int call)
{
    w->slot[call] = (int)json_array_size(w->list);
    w->group[w->n_group++] = call;
}

static void put_step(writer *w, const ek_conversation *c, const ek_order_step *s)
{
    bool goes_on = w->at && (s->joins || w->from == s->message);
    if (w->from != s->message && !goes_on) {
        w->from = s->message;
        begin_message(w);
    } else if (!goes_on) {
        open_message(w);
    }
    w->from = s->message;
    if (s->block) put_block(w, s->block);
    if (s->call >= 0) note_call(w, s->call);
    if (s->closes) put_results(w, c);
}

/* For roles other than assistant, which may also have made calls. */
static void put_other(writer *w, const ek_conversation *c, int message, bool *think_mark)
{
    const ek_pairs *p = w->pairs;
    put_message(w, think_mark);
    for (int k = p->first_call[message]; k < p->n_calls && p->calls[k].message == message; k++) note_call(w, k);
    put_results(w, c);
}

static void put_messages(writer *w, const ek_conversation *c, bool *think_mark)
{
    ek_steps steps = {0};
    for (int i = 0; i < c->n_messages;) {
        w->from = &c->messages[i];
        w->at = NULL;
        if (w->from->role != EK_ROLE_ASSISTANT) {
            if (w->from->role != EK_ROLE_TOOL) put_other(w, c, i, think_mark);
            i++;
            continue;
        }
        w->from = NULL;
        i = ek_order_run(&steps, c, w->pairs, i);
        for (int k = 0; k < steps.n; k++) put_step(w, c, &steps.at[k]);
    }
    ek_steps_fini(&steps);
}

ek_err ek_template_messages(json_t **out, const ek_conversation *c, bool *think_mark)
{
    ek_pairs pairs = {0};
    *out = NULL;
    *think_mark = false;
    ek_err err = ek_pairs_make(&pairs, c);
    if (!err) {
        size_t n = (size_t)(pairs.n_calls + 1);
        writer w = {.list = json_array(),
                    .first = c->messages,
                    .pairs = &pairs,
                    .slot = ek_alloc(n * sizeof *w.slot),
                    .group = ek_alloc(n * sizeof *w.group)};
        for (size_t i = 0; i < n; i++) w.slot[i] = -1;
        put_messages(&w, c, think_mark);
        free(w.slot);
        free(w.group);
        *out = w.list;
    }
    ek_pairs_fini(&pairs);
    return err;
}
