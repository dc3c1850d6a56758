/* Ollama's dialect from inside. Inside src/serve. */
#ifndef EK_SERVE_OLLAMA_H
#define EK_SERVE_OLLAMA_H

#include "serve/api/dialect.h"
#include "serve/api/model_card.h"

/* The followed version of Ollama's API. Clients ask for it and avoid newer features. */
#define EK_OLLAMA_VERSION "0.33.0"

/* A request's data for its prompt and its reply: ek_api_request.own. */
typedef struct ek_ollama {
    bool generate;      /* /api/generate: the reply is a text; otherwise a message */
    bool raw;           /* the prompt is `text`, unchanged */
    bool render;        /* the reply is the prompt's text */
    bool unload;        /* keep_alive is 0 */
    const char *loaded; /* "load" or "unload": the whole reply to a request without prompt. NULL: there is a prompt */
    ek_buf text;
    int n_logprobs; /* sent by the stream so far */
    ek_buf held;    /* the stream's text that is in no line yet */
    bool thoughts;  /* held is reasoning */
    int64_t now;    /* seconds since 1970 */
    const ek_model_card *card;
} ek_ollama;

/* Reads `options` into r->turn. EINVAL "options: KEY: …" with r->param. */
ek_err ek_ollama_options(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
/* Reads keep_alive: a number of seconds or a text such as "5m"; *zero: it is 0. */
ek_err ek_ollama_keep_alive(ek_api_request *r, const json_t *body, bool *zero);
/* Reads `model` (formerly `name`) into r->model. EINVAL without it. */
ek_err ek_ollama_model(ek_api_request *r, const json_t *body);

/* As in ek_dialect. */
ek_err ek_ollama_read_chat(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
ek_err ek_ollama_read_generate(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
void ek_ollama_error(ek_buf *out, int status, const char *text, const char *param, const char *code);

/* Replies of paths without a body. */
void ek_ollama_version(ek_buf *out);
void ek_ollama_tags(ek_buf *out, const ek_model_card *card);
void ek_ollama_ps(ek_buf *out, const ek_model_card *card);

/* Appends a time, seconds since 1970, as a JSON text of RFC 3339. */
void ek_ollama_time(ek_buf *out, int64_t seconds);

#endif
