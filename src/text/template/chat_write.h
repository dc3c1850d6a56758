/* Output of the chat template: appends to the text of a prompt and records the offsets of control tokens. Inside
 * src/text. */
#ifndef EK_TEXT_CHAT_WRITE_H
#define EK_TEXT_CHAT_WRITE_H

#include "text/template/chat.h"
#include "text/json/pyvalue.h"

void ek_put_mark(ek_prompt *p, const char *marker); /* a control token */
void ek_put(ek_prompt *p, const char *s);
void ek_put_text(ek_prompt *p, const char *s, size_t n);
void ek_put_str(ek_prompt *p, const json_t *v);            /* as Python's str(v) */
void ek_put_quoted(ek_prompt *p, const char *s, size_t n); /* between <|"|> markers */
void ek_put_quoted_str(ek_prompt *p, const json_t *v);
void ek_put_quoted_upper(ek_prompt *p, const json_t *v);
void ek_put_media(ek_prompt *p, ek_media_kind kind, const json_t *part); /* its placeholder, or those of its frames */

/* A value in the notation of declarations (quoted_keys) or of calls and results. */
void ek_put_value(ek_prompt *p, const json_t *v, bool quoted_keys);
/* key:value,… in dictsort order, bare keys. */
void ek_put_members(ek_prompt *p, const json_t *object);

/* <|tool>declaration:…<tool|> of one element of tools. EINVAL where the template raises an error. */
ek_err ek_put_tool(ek_prompt *p, const json_t *tool);

#endif
