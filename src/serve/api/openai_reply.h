/* What the dialects of OpenAI's APIs share of their replies. Each appends to out. Inside src/serve. */
#ifndef EK_SERVE_OPENAI_REPLY_H
#define EK_SERVE_OPENAI_REPLY_H

#include "serve/api/dialect.h"

/* {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":… */
void ek_openai_head(ek_buf *out, const ek_api_reply *r, const char *object);
/* The frame of a chunk: data: {head,"choices":[ … a choice … ],"usage":null} where the stream has usage; the last one
 * with what ek_put_extension has. */
void ek_openai_chunk_open(ek_buf *out, const ek_api_reply *r, const char *object);
void ek_openai_chunk_close(ek_buf *out, const ek_api_reply *r, bool include_usage, bool last);
/* Closes a choice: ,"finish_reason":…} with null for NULL. */
void ek_openai_choice_close(ek_buf *out, const char *finish);
/* finish_reason of a choice that has ended. */
const char *ek_openai_finish_reason(const ek_turn_result *t);
/* The end of a stream: a chunk with the usage, where it was asked for, and [DONE]. */
void ek_openai_stream_end(ek_buf *out, const ek_api_reply *r, const char *object, bool include_usage);
/* Closes the last chunk of a stream that failed, and the stream: the error object beside the choices makes clients
 * raise it; a frame of its own has it once more, because parsers that know the members of a chunk do not see it there;
 * then [DONE]. */
void ek_openai_chunk_failed(ek_buf *out, bool include_usage, const char *text);
void ek_openai_heartbeat(ek_buf *out); /* serves as ek_dialect.heartbeat */

/* Appends a number of log-probability; minus infinity, which JSON does not have, as -9999. */
void ek_openai_logprob(ek_buf *out, float x);
/* Appends a token as OpenAI writes it: its text, or, where that is only a part of a character, its bytes behind a
 * prefix: "\\xf0\\x9f". */
void ek_openai_token(ek_buf *out, const ek_api_reply *r, int32_t token, const char *prefix);
void ek_openai_token_bytes(ek_buf *out, const ek_api_reply *r, int32_t token, const char *prefix); /* always bytes */
/* [{token, logprob, bytes, top_logprobs}, …] of the content tokens first .. end - 1. */
void ek_openai_logprobs(ek_buf *out, const ek_api_reply *r, int choice, int first, int end);
/* Index behind the last content token that begins in visible text, from index first on. */
int ek_openai_visible(const ek_turn_result *t, int first);

/* ,"usage":{…} */
void ek_openai_usage(ek_buf *out, const ek_api_reply *r);
/* Closes a reply in one piece behind its choices: ],"usage":{…} and what ek_put_extension has. */
void ek_openai_whole_close(ek_buf *out, const ek_api_reply *r);
/* "error":{message, type, param, code}; param and code may be NULL. */
void ek_openai_error_object(ek_buf *out, int status, const char *text, const char *param, const char *code);
/* The same as a whole body; serves as ek_dialect.error. */
void ek_openai_error(ek_buf *out, int status, const char *text, const char *param, const char *code);

#endif
