/* Code that the dialects of OpenAI's APIs share: fields of bodies, and pieces of replies. Inside src/serve. */
#ifndef EK_SERVE_OPENAI_H
#define EK_SERVE_OPENAI_H

#include "serve/api/dialect.h"

enum { EK_OPENAI_CHOICES_MAX = 64 };

/* temperature, top_p, …, seed and logit_bias, into r->turn.sampling; absent fields come from limits. */
ek_err ek_openai_sampling(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
/* max_tokens, max_completion_tokens and n. -1 means no limit, as in other servers. 0: the prompt is read and nothing is
 * generated. */
ek_err ek_openai_counts(ek_api_request *r, const json_t *body);
/* Stop strings under this key: a string or a list of strings. Empty ones are ignored. */
ek_err ek_openai_stop(ek_api_request *r, const json_t *body, const char *key);
/* A function in the template's form, a new reference. NULL parts are left out. */
json_t *ek_openai_function(const json_t *name, const json_t *description, const json_t *parameters,
                           const json_t *strict);
/* tool_choice and parallel_tool_calls, as chat completions and Responses spell them. */
ek_err ek_openai_calls(ek_api_request *r, const json_t *body);
/* tool_choice, as chat completions and Responses spell it: a word, a function, or allowed_tools. After r->tools; sets
 * turn.tools_active, form.calls_required and only. A named function is called once. */
ek_err ek_openai_tool_choice(ek_api_request *r, const json_t *body);
/* Reads a response format into r->form: {"type": "text" | "json_object" | "json_schema", …}. The schema stands in a
 * member json_schema (chat completions) or beside the type (Responses, Anthropic's output_config.format); json_object
 * may have one too. Without "strict": true unsupported keywords of the schema are left out. param: the field's name, a
 * literal. NULL: text. */
ek_err ek_openai_format(ek_api_request *r, const json_t *format, const char *param);
/* Reads other servers' fields for the same purpose: vLLM's guided_json, guided_choice and structured_outputs,
 * llama.cpp's json_schema. Unsupported forms (grammars, regular expressions) are refused by name. Call after
 * ek_openai_format. */
ek_err ek_openai_guided(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
/* Reads the list `messages` into r->conversation. Arguments given as text are counted and parsed leniently; the legacy
 * forms (role function, function_call) become tool messages and calls. EINVAL for an invalid message, as "messages[I]:
 * …" with r->param "messages"; errors of counting. */
ek_err ek_openai_messages(ek_api_request *r, const json_t *list, const ek_api_limits *limits);
/* Appends one message to c. EINVAL without r->param; errors of counting. */
ek_err ek_openai_message(ek_conversation *c, const json_t *v, const ek_api_limits *limits);

/* stream_options.include_usage. */
ek_err ek_openai_include_usage(ek_api_request *r, const json_t *body, bool *out);
/* Reads everything that makes the prompt of a chat: tools, messages, thinking and the flags of the template.
 * tool_choice is not read. */
ek_err ek_openai_chat_prompt(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
/* Appends the tokens of a text. Special tokens spelled out in the text become these tokens. bos: <bos> comes first,
 * unless the text begins with it. Stops soon after max ids. */
ek_err ek_openai_encode(ek_ids *out, const ek_chat_model *m, const char *text, size_t n, bool bos, size_t max);

/* Makes a prompt of a bare text; *out is zeroed. bos as above. ETOOLONG if it does not fit. */
ek_err ek_openai_text_prompt(ek_turn_prompt *out, const ek_chat_model *m, const char *text, size_t n, bool bos,
                             const ek_prompt_opts *opts);

/* --- pieces of replies; each appends to out --- */

/* {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":… */
void ek_openai_head(ek_buf *out, const ek_api_reply *r, const char *object);
/* A stream of chunks. */
typedef struct ek_openai_stream {
    const char *object, *nothing; /* object of a chunk; member of its choice if it has no content: "delta":{} */
    bool include_usage;           /* every chunk has a usage member: null, except in a last one */
} ek_openai_stream;

/* A chunk around a choice: data: {head,"choices":[{"index":N, … ,"finish_reason":…}],"usage":null}. finish: NULL before
 * the end. */
void ek_openai_choice_open(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, int choice);
void ek_openai_choice_close(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, const char *finish);
/* Closes a choice of a reply in one piece: ,"finish_reason":…}; NULL is written as null. */
void ek_openai_finish(ek_buf *out, const char *finish);
/* The finish_reason of a choice that has ended. */
const char *ek_openai_finish_reason(const ek_turn_result *t);
/* ek_dialect.progress: a chunk with an empty choice. */
void ek_openai_progress(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, const ek_api_progress *p);
/* The end of a stream: a chunk with the usage, if it was requested, and [DONE]. s NULL: the stream has no chunks. */
void ek_openai_stream_end(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s);
/* The end of a failed stream. The error object beside the choices makes clients raise it. An event of its own repeats
 * the error for parsers that know only the members of a chunk. [DONE] follows. */
void ek_openai_stream_failed(ek_buf *out, const ek_api_reply *r, const ek_openai_stream *s, int choice,
                             const char *text);
void ek_openai_heartbeat(ek_buf *out); /* serves as ek_dialect.heartbeat */

/* Appends a log-probability; minus infinity, which JSON lacks, as -9999. */
void ek_openai_logprob(ek_buf *out, float x);
/* Appends a token as OpenAI writes it: its text, or, for an incomplete character, its bytes after a prefix:
 * "\\xf0\\x9f". */
void ek_openai_token(ek_buf *out, const ek_api_reply *r, int32_t token, const char *prefix);
void ek_openai_token_bytes(ek_buf *out, const ek_api_reply *r, int32_t token, const char *prefix); /* always bytes */
/* [{token, logprob, bytes, top_logprobs}, …] of the content tokens first .. end - 1. */
void ek_openai_logprobs(ek_buf *out, const ek_api_reply *r, int choice, int first, int end);
/* The index after the last content token that begins in visible text, from index first on. */
int ek_openai_visible(const ek_turn_result *t, int first);

/* Closes a reply in one piece after its choices: ],"usage":{…} and the members of ek_put_extension. */
void ek_openai_whole_close(ek_buf *out, const ek_api_reply *r);
/* {"error":{message, type, param, code}}; param and code may be NULL. Serves as ek_dialect.error. */
void ek_openai_error(ek_buf *out, int status, const char *text, const char *param, const char *code);

/* --- transcriptions: a form with a sound; the reply is the speech as text. The served model hears the sound in an
 * ordinary prompt. --- */

typedef enum ek_transcription_form {
    EK_TRANSCRIPTION_JSON,
    EK_TRANSCRIPTION_TEXT,
    EK_TRANSCRIPTION_VERBOSE
} ek_transcription_form;

/* ek_api_request.own of a transcription. */
typedef struct ek_transcription {
    ek_transcription_form form;
    double seconds;    /* duration of the sound */
    char language[40]; /* the client's; "": none given */
} ek_transcription;

#endif
