/* Chat completions: what a body says (openai_chat_body.c) of its replies (openai_chat.c). Inside src/serve. */
#ifndef EK_SERVE_OPENAI_CHAT_H
#define EK_SERVE_OPENAI_CHAT_H

#include "serve/api/custom.h"
#include "serve/api/openai.h"

/* ek_api_request.own. */
typedef struct ek_openai_chat {
    bool include_usage;                    /* of a stream: every chunk then has a usage member */
    bool whole_calls;                      /* of a stream: a call is one delta, once it has ended */
    int n_logprobs[EK_OPENAI_CHOICES_MAX]; /* per choice: how many the stream has sent */
    bool custom[EK_OPENAI_CHOICES_MAX];    /* per choice: the open call is of a custom tool, with this input so far */
    ek_custom_input input[EK_OPENAI_CHOICES_MAX];
} ek_openai_chat;

/* Serves as ek_dialect.parse. */
ek_err ek_openai_chat_parse(ek_api_request *r, const char *text, size_t n, const ek_api_limits *limits);

#endif
