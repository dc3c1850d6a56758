/* The body of POST /v1/chat/completions as one checked structure. Pure: bytes in, request out.
 * Fields the OpenAI API has and this server cannot honour are refused where ignoring them would
 * change what the client gets; the rest is ignored. null means absent. */
#ifndef EK_SERVE_CHAT_REQUEST_H
#define EK_SERVE_CHAT_REQUEST_H

#include <jansson.h>

#include "engine/engine.h"
#include "text/chat.h"
#include "text/stop.h"

enum { EK_CHAT_MAX_N = 64, EK_CHAT_MAX_BIAS = 4096 };

typedef struct ek_chat_request {
    json_t *body;        /* owned; what follows points into it */
    const char *model;   /* as the client wrote it; "" without */
    json_t *messages;    /* prepared for rendering, owned */
    const json_t *tools; /* NULL without */
    bool tools_active;   /* tools, and tool_choice is not none */
    bool one_call;       /* parallel_tool_calls false */
    bool stream, include_usage;
    bool digest; /* "evenkeel": {"digest": true} */
    bool ignore_eos;
    bool enable_thinking, preserve_thinking, continue_final, add_generation_prompt;
    int n;                /* choices */
    int max_tokens;       /* INT_MAX: no limit but the context */
    ek_sampling sampling; /* bias points to bias */
    bool has_seed;
    ek_logit_bias *bias; /* owned */
    const char *stop[EK_STOP_MAX];
    size_t stop_len[EK_STOP_MAX];
    int n_stop;
    const char *param; /* after a failure: the field that is wrong, or NULL */
} ek_chat_request;

/* defaults: what holds where the request says nothing; n_vocab bounds logit_bias. EPARSE for
 * a body that is no JSON, EINVAL else. ek_chat_request_fini also after a failure. */
ek_err ek_chat_request_parse(ek_chat_request *r, const char *body, size_t n, const ek_sampling *defaults, int n_vocab);
void ek_chat_request_fini(ek_chat_request *r);

#endif
