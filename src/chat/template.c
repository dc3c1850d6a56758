#include "chat/template.h"

#include <string.h>

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

/* Does this block write anything that is not white space? */
static bool visible(const ek_block *b)
{
    if (b->kind == EK_BLOCK_MEDIA) return true;
    if (b->kind != EK_BLOCK_TEXT) return false;
    const char *s = ek_buf_text(&b->text);
    size_t n = b->text.len;
    ek_utf8_strip(&s, &n);
    return n > 0;
}

/* One message for the template, while blocks are added to it. */
typedef struct writer {
    json_t *list;                   /* all messages */
    json_t *at;                     /* borrowed from list */
    const ek_message *from, *first; /* the message being written, the first of the conversation */
    bool calls, visible;            /* already in at */
} writer;

static void open_message(writer *w)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    w->at = json_object();
    w->calls = w->visible = false;
    set(w->at, "role", json_string_nocheck(roles[w->from->role]));
    json_array_append_new(w->list, w->at);
}

/* What the template would write before what is already there begins a message of its own. */
static void keep_order(writer *w, const ek_block *b)
{
    if (w->from->role != EK_ROLE_ASSISTANT) return;
    bool late_text = w->calls && visible(b);
    bool late_call = b->kind == EK_BLOCK_CALL && w->visible;
    bool late_thought = b->kind == EK_BLOCK_REASONING &&
                        (w->calls || w->visible || json_object_get(w->at, "reasoning_content"));
    if (late_text || late_call || late_thought) open_message(w);
}

/* Makes the content a list; a text that is there already becomes its first part. */
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

static void put_media(writer *w, ek_media_kind kind)
{
    static const char *const types[] = {"image", "audio", "video"};
    json_t *part = json_object();
    make_parts(w);
    set(part, "type", json_string_nocheck(types[kind]));
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
    w->visible |= visible(b);
    switch (b->kind) {
    case EK_BLOCK_TEXT: put_text(w, ek_buf_text(&b->text), b->text.len); break;
    case EK_BLOCK_MEDIA: put_media(w, b->media); break;
    case EK_BLOCK_REASONING: set(w->at, "reasoning_content", string(&b->text)); break;
    case EK_BLOCK_CALL: put_call(w, b); break;
    case EK_BLOCK_RESULT: put_result(w, b); break;
    }
}

/* A documented convenience: <|think|> at the start of the system text asks for thinking. Gives the
 * text behind it, stripped. */
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

static void put_message(writer *w, bool *think_mark)
{
    const ek_message *m = w->from;
    const char *s;
    size_t n;
    int from = 0;
    open_message(w);
    if (m->parts) set(w->at, "content", json_array());
    if (m->call_id.len) set(w->at, "tool_call_id", string(&m->call_id));
    if (m->name.len) set(w->at, "name", string(&m->name));
    if (m == w->first && after_think_mark(m, &s, &n)) {
        *think_mark = true;
        if (n > 0 || !m->parts) put_text(w, s, n);
        from = 1;
    }
    for (int i = from; i < m->n_blocks; i++) put_block(w, &m->blocks[i]);
}

json_t *ek_template_messages(const ek_conversation *c, bool *think_mark)
{
    writer w = {.list = json_array(), .first = c->messages};
    *think_mark = false;
    for (int i = 0; i < c->n_messages; i++) {
        w.from = &c->messages[i];
        put_message(&w, think_mark);
    }
    return w.list;
}
