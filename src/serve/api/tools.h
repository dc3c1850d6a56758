/* Tools of a request and calls of a conversation. Inside src/serve.
 *
 * Which tools the prompt begins with, and which a conversation makes known later: where a result or a system message
 * refers to one, its declaration stands, so that the tokens before it stay as they were and are found in the cache.
 * Before that the model neither sees it nor may call it. */
#ifndef EK_SERVE_TOOLS_H
#define EK_SERVE_TOOLS_H

#include <jansson.h>

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

/* What ek_block.value of a call becomes: v is a member of the body, a text that holds JSON or a value; NULL: absent.
 * *out is a new reference: an object, repaired where the text is damaged but clear (text/reply/reply.h), and
 * empty for null, "", and []; or else a JSON text, as it is: nothing is refused, because the client would send it again
 * with every later turn. What limits->count says; *out is then NULL. */
ek_err ek_arguments_read(json_t **out, const json_t *v, const ek_api_limits *limits);

/* --- tools that clients run and whose schemas the APIs have published: a request has their type alone; to the model
 * they are functions --- */

/* The declaration of a tool of Anthropic's API (bash_…, text_editor_…, memory_…) or of OpenAI's Responses (local_shell,
 * shell, apply_patch, tool_search; the declaration's type is this one, and says how its calls are written). name: as
 * the request has it, NULL: the tool's own. A new reference; NULL for other types. */
json_t *ek_client_tool_anthropic(const char *type, const char *name);
json_t *ek_client_tool_openai(const char *type);

/* --- custom tools of OpenAI's APIs, whose input is a text: to the model a function with the one argument `input`,
 * which a strict schema keeps to the tool's format --- */

/* The declaration of a custom tool, a new reference; t: the object that has its description and format. name: as the
 * model knows it. A grammar in Lark's notation is turned into a pattern (text/regex/regex.h). EINVAL, ETOOLARGE with
 * r->param. */
ek_err ek_custom_tool(ek_api_request *r, const json_t *name, const json_t *description, const json_t *t, json_t **tool);
/* The arguments that stand for an input, a new reference. */
json_t *ek_custom_arguments(const char *input, size_t n);

/* Takes the input out of a call's arguments, which may come in pieces. Zero-initialise. */
typedef struct ek_custom_input {
    int at;        /* bytes of what stands before the text that were read; behind it: -1 */
    char held[16]; /* an escape that is not complete */
    int n_held;
} ek_custom_input;
void ek_custom_input_add(ek_custom_input *c, ek_buf *out, const char *args, size_t n);
/* The same for all of it. */
void ek_custom_input_of(ek_buf *out, const ek_buf *args);

#endif
