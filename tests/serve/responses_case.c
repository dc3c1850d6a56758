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

static ek_api_limits limits_with(ek_response_store *store)
{
    return (ek_api_limits){.defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1},
                           .n_vocab = 1000,
                           .ctx_tokens = 512,
                           .responses = store,
                           .owner = responses_owner};
}

ek_err parse(ek_api_request *r, ek_response_store *store, const char *body)
{
    const ek_api_limits limits = limits_with(store);
    *r = (ek_api_request){0};
    return ek_api_parse(r, &ek_dialect_responses, body, strlen(body), &limits);
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
    const ek_api_limits limits = limits_with(store);
    open_scene(t, &ek_dialect_responses, body, &limits, id, stream);
    if (stream) t->d->begin(&t->out, &t->r, 0);
}
