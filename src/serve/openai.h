/* What the dialects of OpenAI's APIs share: fields of a body, and pieces of replies. Inside src/serve. */
#ifndef EK_SERVE_OPENAI_H
#define EK_SERVE_OPENAI_H

#include "serve/dialect.h"

enum { EK_OPENAI_CHOICES_MAX = 64 };

/* temperature, top_p, …, seed and logit_bias, into r->turn.sampling; absent fields come from limits. */
ek_err ek_openai_sampling(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
/* max_tokens, max_completion_tokens and n. -1 is no limit, as of other servers; 0: the prompt is read and nothing is
 * written. */
ek_err ek_openai_counts(ek_api_request *r, const json_t *body);
/* Stop strings, a text or a list of texts, under this key; empty ones are no stop strings. */
ek_err ek_openai_stop(ek_api_request *r, const json_t *body, const char *key);
/* The list `messages` as r->conversation. Arguments given as text are parsed, leniently; the legacy forms
 * (role function, function_call) become tool messages and calls. EINVAL "messages[I]: …" with r->param
 * "messages" for an element that is not a valid message. */
ek_err ek_openai_messages(ek_api_request *r, const json_t *list);

/* Appends a number of log-probability; minus infinity, which JSON does not have, as -9999. */
void ek_openai_logprob(ek_buf *out, float x);
/* Appends the bytes of a token as text: "…". */
void ek_openai_token(ek_buf *out, const ek_api_reply *r, int32_t token);
/* [{token, logprob, bytes, top_logprobs}, …] of the visible content tokens from index `first` on; returns the index
 * behind the last one. */
int ek_openai_logprobs(ek_buf *out, const ek_api_reply *r, int choice, int first);

/* ,"usage":{…} */
void ek_openai_usage(ek_buf *out, const ek_api_reply *r);
/* "error":{message, type, param, code}; param and code may be NULL. */
void ek_openai_error_object(ek_buf *out, int status, const char *text, const char *param, const char *code);
/* The same as a whole body; serves as ek_dialect.error. */
void ek_openai_error(ek_buf *out, int status, const char *text, const char *param, const char *code);

#endif
