/* Which tools the prompt begins with, and which a conversation makes known later: where a result or a system message
 * refers to one, its declaration stands, so that the tokens before it stay as they were and are found in the cache.
 * Before that the model neither sees it nor may call it. Inside src/serve. */
#ifndef EK_SERVE_TOOLS_H
#define EK_SERVE_TOOLS_H

#include "serve/api/dialect.h"

/* Adds a declaration that has a name, a new reference that is taken over. later: nothing knows it until the
 * conversation refers to it. */
void ek_tools_add(ek_api_request *r, json_t *tool, bool later);
/* Declares a tool at the end of m, the last message of r->conversation: one of those added, whose text is counted once
 * more, or, with ek_tools_bring, one that the conversation itself has, a new reference that is taken over. EINVAL for a
 * name that no tool has; what limits->count says. */
ek_err ek_tools_refer(ek_api_request *r, ek_message *m, const char *name, const ek_api_limits *limits);
void ek_tools_bring(ek_api_request *r, ek_message *m, json_t *tool);
/* From here on it may not be called. EINVAL for a name that no tool has. */
ek_err ek_tools_withdraw(ek_api_request *r, const char *name);
/* After the conversation was read, and before tool_choice: r->tools becomes what may be called now. */
void ek_tools_settle(ek_api_request *r);
/* The type of a tool's declaration: "function" where there is none of that name. tools: NULL or a list. Linear. */
const char *ek_tools_type(const json_t *tools, const char *name, size_t n);

#endif
