#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "responses_case.h"
#include "template_gets.h"

uint64_t responses_owner;

ek_err parse(ek_api_request *r, ek_response_store *store, const char *body)
{
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1},
                            .n_vocab = 1000,
                            .ctx_tokens = 512,
                            .responses = store,
                            .owner = responses_owner};
    *r = (ek_api_request){0};
    return ek_dialect_responses.parse(r, body, strlen(body), &limits);
}

void gives(ek_response_store *store, const char *members, const char *want)
{
    ek_api_request r;
    ek_buf body = {0};
    ek_buf_fmt(&body, "{%s}", members);
    if (parse(&r, store, body.data)) fail_msg("%s in %s", ek_err_text(), members);
    template_gets(&r, want);
    ek_buf_fini(&body);
}

void open_reply(scene *t, ek_response_store *store, const char *id, const char *body, bool stream)
{
    *t = (scene){0};
    if (parse(&t->req, store, body)) fail_msg("%s", ek_err_text());
    t->choices[0] = &t->result;
    t->r = (ek_api_reply){.id = id,
                          .model = "m",
                          .fingerprint = "f",
                          .created = 17,
                          .stream = stream,
                          .n = 1,
                          .n_prompts = 1,
                          .choices = t->choices,
                          .own = t->req.own,
                          .turn = &t->req.turn};
    if (stream) ek_dialect_responses.begin(&t->out, &t->r, 0);
}

void say(scene *t, ek_reply_kind kind, const char *text, int call)
{
    ek_reply_event e = {.kind = kind, .text = text, .n = strlen(text), .call = call};
    ek_reply_collect(&t->result.answer, &e);
    if (t->r.stream) ek_dialect_responses.event(&t->out, &t->r, 0, &e);
}

void close_reply(scene *t)
{
    ek_buf_fini(&t->out);
    ek_answer_fini(&t->result.answer);
    ek_api_request_fini(&t->req);
}
