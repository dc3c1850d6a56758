/* Collects a whole answer from reply events; makes call ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "text/json.h"
#include "text/reply.h"

static void drop_last(ek_answer *a)
{
    ek_answer_call *c = &a->calls[--a->n_calls];
    free(c->name);
    ek_buf_fini(&c->args);
    a->open = false;
}

void ek_reply_collect(void *answer, const ek_reply_event *e)
{
    ek_answer *a = answer;
    switch (e->kind) {
    case EK_REPLY_CONTENT: ek_buf_add(&a->content, e->text, e->n); break;
    case EK_REPLY_REASONING: ek_buf_add(&a->reasoning, e->text, e->n); break;
    case EK_REPLY_CALL_START:
        if (a->n_calls == a->cap_calls) {
            a->cap_calls = a->cap_calls ? 2 * a->cap_calls : 4;
            a->calls = ek_realloc(a->calls, (size_t)a->cap_calls * sizeof *a->calls);
        }
        a->calls[a->n_calls++] = (ek_answer_call){.name = ek_strdup(e->text)};
        a->open = true;
        break;
    case EK_REPLY_CALL_ARGS: ek_buf_add(&a->calls[a->n_calls - 1].args, e->text, e->n); break;
    case EK_REPLY_CALL_END: a->open = false; break;
    case EK_REPLY_CALL_DROP: drop_last(a); break;
    case EK_REPLY_STOP: break;
    }
}

void ek_answer_fini(ek_answer *a)
{
    while (a->n_calls) drop_last(a);
    free(a->calls);
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
        if (a->open && i == a->n_calls - 1) break;
        json_t *args, *call = json_object();
        EK_ASSERT(ek_json_read(&args, ek_buf_text(&a->calls[i].args), a->calls[i].args.len, 0) == EK_OK);
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
