/* Tools that clients run and whose schemas the APIs have published: a request has their type alone. To the model they
 * are functions. Inside src/serve. */
#ifndef EK_SERVE_CLIENT_TOOLS_H
#define EK_SERVE_CLIENT_TOOLS_H

#include <jansson.h>

/* The declaration of a tool of Anthropic's API (bash_…, text_editor_…, memory_…) or of OpenAI's Responses (local_shell,
 * shell, apply_patch, tool_search; the declaration's type is this one, and says how its calls are written). name: as
 * the request has it, NULL: the tool's own. A new reference; NULL for other types. */
json_t *ek_client_tool_anthropic(const char *type, const char *name);
json_t *ek_client_tool_openai(const char *type);

#endif
