#include "serve/dialect.h"

#include <stdlib.h>
#include <string.h>

const ek_dialect *const ek_dialects[] = {&ek_dialect_openai_chat, NULL};

ek_err ek_api_prepare(ek_api_request *r, ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m,
                      const char *body, size_t n, const ek_api_limits *limits)
{
    *r = (ek_api_request){0};
    *prompt = (ek_turn_prompt){0};
    EK_TRY(d->parse(r, body, n, limits));
    r->prompt.ctx_tokens = limits->ctx_tokens;
    r->turn.tools = r->tools;
    ek_err err = d->prompt ? d->prompt(prompt, m, r)
                           : ek_turn_prompt_make(prompt, m, &r->conversation, r->tools, &r->prompt);
    ek_conversation_fini(&r->conversation);
    if (err == EK_ETOOLONG || err == EK_EINVAL) r->param = d->prompt_param;
    return err;
}

void ek_api_request_fini(ek_api_request *r)
{
    ek_conversation_fini(&r->conversation);
    json_decref(r->tools);
    free(r->bias);
    for (int i = 0; i < EK_STOP_MAX; i++) free(r->stop[i]);
    free(r->model);
    free(r->own);
    *r = (ek_api_request){0};
}

void ek_drop_billing_line(ek_conversation *c)
{
    static const char start[] = "x-anthropic-billing-header:";
    const size_t len = sizeof start - 1;
    ek_message *m = c->n_messages ? &c->messages[0] : NULL;
    bool system = m && (m->role == EK_ROLE_SYSTEM || m->role == EK_ROLE_DEVELOPER);
    if (!system || m->n_blocks == 0 || m->blocks[0].kind != EK_BLOCK_TEXT) return;
    ek_buf *text = &m->blocks[0].text;
    if (text->len < len || memcmp(text->data, start, len) != 0) return;
    const char *newline = memchr(text->data, '\n', text->len);
    size_t skip = newline ? (size_t)(newline - text->data) + 1 : text->len;
    memmove(text->data, text->data + skip, text->len - skip + 1);
    text->len -= skip;
    if (text->len > 0 || !m->parts) return;
    ek_buf_fini(text); /* a part that is empty now is no part */
    m->n_blocks--;
    memmove(m->blocks, m->blocks + 1, (size_t)m->n_blocks * sizeof *m->blocks);
}

ek_api_usage ek_api_usage_of(const ek_api_reply *r)
{
    ek_api_usage u = {.prompt = r->choices[0]->n_prompt, .cached = r->choices[0]->n_cached};
    for (int i = 0; i < r->n; i++) {
        u.completion += r->choices[i]->n_tokens;
        u.reasoning += r->choices[i]->n_reasoning;
    }
    return u;
}
