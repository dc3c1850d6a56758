/* Collects a whole answer from reply events; makes call ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/json/json.h"
#include "text/reply/reply.h"

static void drop_last(ek_answer *a)
{
    ek_answer_call *c = &a->calls[--a->n_calls];
    free(c->name);
    ek_buf_fini(&c->args);
    ek_buf_fini(&c->closing);
    a->open = false;
}

static void add_part(ek_answer *a, ek_reply_kind kind, size_t from, size_t n)
{
    ek_answer_part *last = a->n_parts ? &a->parts[a->n_parts - 1] : NULL;
    if (last && last->kind == kind && kind != EK_REPLY_CALL_START) {
        last->n += n;
        return;
    }
    if (a->n_parts == a->cap_parts) {
        a->cap_parts = a->cap_parts ? 2 * a->cap_parts : 4;
        a->parts = ek_realloc(a->parts, (size_t)a->cap_parts * sizeof *a->parts);
    }
    a->parts[a->n_parts++] = (ek_answer_part){kind, from, n};
}

static void add_text(ek_answer *a, ek_buf *text, const ek_reply_event *e)
{
    if (e->n > 0) add_part(a, e->kind, text->len, e->n);
    ek_buf_add(text, e->text, e->n);
}

static void add_call(ek_answer *a, const ek_reply_event *e)
{
    if (a->n_calls == a->cap_calls) {
        a->cap_calls = a->cap_calls ? 2 * a->cap_calls : 4;
        a->calls = ek_realloc(a->calls, (size_t)a->cap_calls * sizeof *a->calls);
    }
    add_part(a, EK_REPLY_CALL_START, (size_t)a->n_calls, 0);
    a->calls[a->n_calls++] = (ek_answer_call){.name = ek_strdup(e->text), .index = e->call};
    a->open = true;
}

void ek_reply_collect(void *answer, const ek_reply_event *e)
{
    ek_answer *a = answer;
    switch (e->kind) {
    case EK_REPLY_CONTENT: add_text(a, &a->content, e); break;
    case EK_REPLY_REASONING: add_text(a, &a->reasoning, e); break;
    case EK_REPLY_CALL_START: add_call(a, e); break;
    case EK_REPLY_CALL_ARGS: ek_buf_add(&a->calls[a->n_calls - 1].args, e->text, e->n); break;
    case EK_REPLY_CALL_END: a->open = false; break;
    case EK_REPLY_CALL_CUT:
        ek_buf_add(&a->calls[a->n_calls - 1].closing, e->text, e->n);
        a->open = false;
        break;
    case EK_REPLY_CALL_DROP: /* a call's events stand together: its part is the last */
        drop_last(a);
        a->n_parts--;
        break;
    case EK_REPLY_STOP: break;
    }
}

void ek_answer_fini(ek_answer *a)
{
    while (a->n_calls) drop_last(a);
    free(a->calls);
    free(a->parts);
    ek_buf_fini(&a->content);
    ek_buf_fini(&a->reasoning);
    *a = (ek_answer){0};
}

static json_t *text_or_null(const ek_buf *b)
{
    return b->len ? json_stringn_nocheck(b->data, b->len) : json_null();
}

json_t *ek_answer_json(const ek_answer *a)
{
    json_t *calls = json_array(), *v = json_object();
    for (int i = 0; i < a->n_calls; i++) {
        if ((a->open && i == a->n_calls - 1) || a->calls[i].closing.len) break;
        json_t *args, *call = json_object();
        const ek_err err = ek_json_read(&args, ek_buf_text(&a->calls[i].args), a->calls[i].args.len, 0);
        EK_ASSERT(err == EK_OK);
        json_object_set_new_nocheck(call, "name", json_string_nocheck(a->calls[i].name));
        json_object_set_new_nocheck(call, "arguments", args);
        json_array_append_new(calls, call);
    }
    json_object_set_new_nocheck(v, "content", text_or_null(&a->content));
    json_object_set_new_nocheck(v, "reasoning_content", text_or_null(&a->reasoning));
    json_object_set_new_nocheck(v, "tool_calls", calls);
    return v;
}

void ek_call_id(char *out, const char *prefix, const char *request, int index)
{
    size_t n = strlen(prefix);
    uint64_t key = ek_hash64((uint64_t)index + 1, request, strlen(request));
    memcpy(out, prefix, n);
    snprintf(out + n, 25, "%016llx%08llx", (unsigned long long)ek_mix64(key),
             (unsigned long long)(ek_mix64(~key) >> 32));
}
