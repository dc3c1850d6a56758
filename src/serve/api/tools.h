/* Tools of a request and calls of a conversation. Inside src/serve.
 *
 * Some tools stand at the beginning of the prompt. Others become known later: when a result or a system message refers
 * to a tool, its declaration is placed there, so that all tokens before stay the same and cached. Until then the model
 * neither sees such a tool nor may call it. */
#ifndef EK_SERVE_TOOLS_H
#define EK_SERVE_TOOLS_H

#include <jansson.h>

#include "serve/api/dialect.h"

/* Adds a named declaration and takes over its reference. later: it is unknown until the conversation refers to it. */
void ek_tools_add(ek_api_request *r, json_t *tool, bool later);
/* Declare a tool at the end of m, the last message of r->conversation. ek_tools_refer names an added tool, whose text
 * is counted again: EINVAL for an unknown name, or an error of counting. ek_tools_bring takes over a declaration from
 * the conversation itself. */
ek_err ek_tools_refer(ek_api_request *r, ek_message *m, const char *name, const ek_api_limits *limits);
void ek_tools_bring(ek_api_request *r, ek_message *m, json_t *tool);
/* Forbids calls of a tool from here on. EINVAL for an unknown name. */
ek_err ek_tools_withdraw(ek_api_request *r, const char *name);
/* Call it after the conversation and before tool_choice: r->tools becomes the list of callable tools. */
void ek_tools_settle(ek_api_request *r);
/* The type of a tool's declaration, or "function" for an unknown name. tools: NULL or a list. Linear. */
const char *ek_tools_type(const json_t *tools, const char *name, size_t n);

/* Makes ek_block.value of a call from v, a member of the body: JSON text, a value, or NULL for absent. *out is a new
 * reference: an object, repaired if the text is damaged but clear (text/reply/reply.h), and empty for null, "" and [];
 * otherwise the JSON text itself. Nothing is refused, because the client would send it again with every later turn.
 * Errors of limits->count; *out is then NULL. */
ek_err ek_arguments_read(json_t **out, const json_t *v, const ek_api_limits *limits);

/* --- tools that clients run and whose schemas the APIs publish: a request has only their type; for the model they are
 * functions --- */

/* The declaration of a tool of Anthropic's API (bash_…, text_editor_…, memory_…) or of OpenAI's Responses (local_shell,
 * shell, apply_patch, tool_search), whose type decides the form of its calls. name: the request's; NULL: the tool's
 * own. A new reference; NULL for other types. */
json_t *ek_client_tool_anthropic(const char *type, const char *name);
json_t *ek_client_tool_openai(const char *type);

/* --- custom tools of OpenAI's APIs, whose input is a text. For the model such a tool is a function with one argument,
 * `input`, whose strict schema enforces the tool's format --- */

/* The declaration of a custom tool, a new reference; t: the object that has its description and format. name: as the
 * model knows it. A grammar in Lark's notation is turned into a pattern (text/regex/regex.h). EINVAL, ETOOLARGE with
 * r->param. */
ek_err ek_custom_tool(ek_api_request *r, const json_t *name, const json_t *description, const json_t *t, json_t **tool);
/* The arguments that represent an input, a new reference. */
json_t *ek_custom_arguments(const char *input, size_t n);

/* Extracts the input from a call's arguments, which may come in pieces. Zero-initialise. */
typedef struct ek_custom_input {
    int at;        /* bytes read before the text; -1: the text has ended */
    char held[16]; /* an incomplete escape */
    int n_held;
} ek_custom_input;
void ek_custom_input_add(ek_custom_input *c, ek_buf *out, const char *args, size_t n);
/* Extracts the input from complete arguments. */
void ek_custom_input_of(ek_buf *out, const ek_buf *args);

#endif
