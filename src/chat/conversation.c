#include "chat/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "text/json/json.h"

ek_message *ek_conversation_add(ek_conversation *c, ek_role role)
{
    if (c->n_messages == c->cap_messages) {
        c->cap_messages = c->cap_messages ? 2 * c->cap_messages : 8;
        c->messages = ek_realloc(c->messages, (size_t)c->cap_messages * sizeof *c->messages);
    }
    ek_message *m = &c->messages[c->n_messages++];
    *m = (ek_message){.role = role};
    return m;
}

ek_block *ek_message_add(ek_message *m, ek_block_kind kind)
{
    if (m->n_blocks == m->cap_blocks) {
        m->cap_blocks = m->cap_blocks ? 2 * m->cap_blocks : 2;
        m->blocks = ek_realloc(m->blocks, (size_t)m->cap_blocks * sizeof *m->blocks);
    }
    ek_block *b = &m->blocks[m->n_blocks++];
    *b = (ek_block){.kind = kind};
    return b;
}

void ek_message_text(ek_message *m, ek_block_kind kind, const char *text, size_t n)
{
    ek_buf_add(&ek_message_add(m, kind)->text, text, n);
}

static int *count_of(ek_conversation *c, ek_part_kind kind)
{
    if (kind == EK_PART_SOUND) return &c->n_sounds;
    return kind == EK_PART_FRAME ? &c->n_frames : &c->n_images;
}

ek_block *ek_conversation_media(ek_conversation *c, ek_message *m, ek_part_kind kind, int n_files)
{
    ek_block *b = ek_message_add(m, EK_BLOCK_MEDIA);
    b->media = kind;
    b->files = ek_alloc((size_t)n_files * sizeof *b->files);
    b->n_files = n_files;
    for (int i = 0; i < n_files; i++) b->files[i].number = c->n_files++;
    *count_of(c, kind) += n_files;
    return b;
}

void ek_conversation_take(ek_conversation *c, ek_message *m)
{
    *ek_conversation_add(c, m->role) = *m;
    *m = (ek_message){0};
}

void ek_conversation_answer(ek_conversation *c, const ek_answer *a, const char *request)
{
    ek_message *m = ek_conversation_add(c, EK_ROLE_ASSISTANT);
    if (a->reasoning.len) ek_message_text(m, EK_BLOCK_REASONING, a->reasoning.data, a->reasoning.len);
    if (a->content.len) ek_message_text(m, EK_BLOCK_TEXT, a->content.data, a->content.len);
    for (int i = 0; i < a->n_calls; i++) {
        const ek_answer_call *call = &a->calls[i];
        char id[32];
        if (call->closing.len) break; /* the call was cut off, so it was never made */
        ek_call_id(id, "call_", request, i);
        ek_block *b = ek_message_add(m, EK_BLOCK_CALL);
        ek_buf_str(&b->id, id);
        ek_buf_str(&b->name, call->name);
        const ek_err err = ek_json_read(&b->value, ek_buf_text(&call->args), call->args.len, 0);
        EK_ASSERT(err == EK_OK); /* ek_reply guarantees a JSON object */
    }
}

void ek_message_fini(ek_message *m)
{
    for (int i = 0; i < m->n_blocks; i++) {
        ek_block *b = &m->blocks[i];
        for (int k = 0; k < b->n_files; k++) {
            ek_buf_fini(&b->files[k].bytes);
            ek_media_release(b->files[k].made);
        }
        free(b->files);
        ek_buf_fini(&b->text);
        ek_buf_fini(&b->id);
        ek_buf_fini(&b->name);
        json_decref(b->value);
    }
    free(m->blocks);
    ek_buf_fini(&m->call_id);
    ek_buf_fini(&m->name);
    *m = (ek_message){0};
}

/* Bytes of the template's own text, counted with the offsets of its control tokens: around a message or block, around a
 * text or a key, and for a number or a word. */
enum { MARKUP = 64, QUOTES = 24, SCALAR = 8 };

static size_t value_bytes(const json_t *v)
{
    size_t n = QUOTES;
    const char *key;
    json_t *one;
    if (json_is_string(v)) return n + json_string_length(v);
    for (size_t i = 0; i < json_array_size(v); i++) n += value_bytes(json_array_get(v, i));
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
    {
        n += QUOTES + strlen(key) + value_bytes(one);
    }
    return json_is_array(v) || json_is_object(v) ? n : SCALAR;
}

size_t ek_conversation_bytes(const ek_conversation *c, const json_t *tools)
{
    size_t n = tools ? value_bytes(tools) : 0;
    for (int i = 0; i < c->n_messages; i++) {
        n += MARKUP;
        for (int k = 0; k < c->messages[i].n_blocks; k++) {
            const ek_block *b = &c->messages[i].blocks[k];
            n += MARKUP + b->text.len + b->name.len + (b->value ? value_bytes(b->value) : 0);
        }
    }
    return n;
}

static void count_files(ek_conversation *c, const ek_message *m, int sign)
{
    for (int i = 0; i < m->n_blocks; i++)
        if (m->blocks[i].kind == EK_BLOCK_MEDIA) *count_of(c, m->blocks[i].media) += sign * m->blocks[i].n_files;
}

void ek_conversation_exchange(ek_conversation *c, int i, ek_message *other)
{
    const ek_message was = c->messages[i];
    count_files(c, &was, -1);
    count_files(c, other, 1);
    c->messages[i] = *other;
    *other = was;
}

void ek_conversation_cut(ek_conversation *c, int n_messages)
{
    while (c->n_messages > n_messages) {
        ek_message *m = &c->messages[--c->n_messages];
        count_files(c, m, -1);
        ek_message_fini(m);
    }
}

void ek_conversation_fini(ek_conversation *c)
{
    ek_conversation_cut(c, 0);
    free(c->messages);
    *c = (ek_conversation){0};
}
