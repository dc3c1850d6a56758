/* The state of a rendering, shared by the files of the chat template. Inside src/text. */
#ifndef EK_TEXT_CHAT_STATE_H
#define EK_TEXT_CHAT_STATE_H

#include "text/json/json.h"
#include "text/template/chat.h"

#include <string.h>

/* --- output: appends to the text of a prompt and records the offsets of control tokens; inside src/text --- */

void ek_put_mark(ek_prompt *p, const char *marker); /* a control token */
void ek_put(ek_prompt *p, const char *s);
void ek_put_text(ek_prompt *p, const char *s, size_t n);
void ek_put_str(ek_prompt *p, const json_t *v);            /* Python's str(v) */
void ek_put_quoted(ek_prompt *p, const char *s, size_t n); /* between <|"|> markers */
void ek_put_quoted_str(ek_prompt *p, const json_t *v);
void ek_put_quoted_upper(ek_prompt *p, const json_t *v);
void ek_put_media(ek_prompt *p, ek_media_kind kind, const json_t *part); /* a placeholder, or those of its frames */

/* A value in the notation of declarations (quoted_keys) or in that of calls and results. */
void ek_put_value(ek_prompt *p, const json_t *v, bool quoted_keys);
/* key:value,… in dictsort order, with bare keys. */
void ek_put_members(ek_prompt *p, const json_t *object);

/* <|tool>declaration:…<tool|> for one element of tools. EINVAL if the template raises an error. */
ek_err ek_put_tool(ek_prompt *p, const json_t *tool);

typedef enum ek_chat_last { EK_LAST_OTHER, EK_LAST_CALL, EK_LAST_RESPONSE } ek_chat_last;

typedef struct ek_renderer {
    ek_prompt *p;
    const json_t *messages;
    size_t from, n;      /* messages[from..n) are rendered, without the system message */
    ptrdiff_t last_user; /* index of the last user message; -1: none */
    ek_chat_opts opts;
    ek_chat_last last;
} ek_renderer;

static inline const json_t *ek_chat_message(const ek_renderer *r, size_t i)
{
    return json_array_get(r->messages, i);
}

static inline bool ek_chat_text_is(const json_t *v, const char *s)
{
    return ek_json_is_text(v) && json_string_length(v) == strlen(s) && strcmp(json_string_value(v), s) == 0;
}

static inline bool ek_chat_role_is(const json_t *message, const char *role)
{
    return ek_chat_text_is(ek_json_get(message, "role"), role);
}

/* --- chat_tools.c: calls and results --- */

/* Whether the part declares a tool. */
static inline bool ek_chat_is_tool(const json_t *part)
{
    return ek_chat_text_is(ek_json_get(part, "type"), "tool_reference");
}

/* Whether the part is media, and its kind. */
bool ek_chat_media_kind(const json_t *part, ek_media_kind *kind);
ek_err ek_chat_put_calls(ek_renderer *r, const json_t *calls);
/* Writes a message's own tool_responses. *responded: there was one. */
ek_err ek_chat_put_given_responses(ek_renderer *r, const json_t *responses, bool *responded);
/* Writes the tool messages after message i, which made the calls. */
ek_err ek_chat_put_tool_messages(ek_renderer *r, const json_t *calls, size_t i, bool *responded);

#endif
