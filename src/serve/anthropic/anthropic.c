/* The dialect of Anthropic's Messages API, and count_tokens. Reads the body; anthropic_messages.c reads its messages,
 * anthropic_reply.c writes replies. Fields: docs/API.md. */
#include "serve/anthropic/anthropic.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/tools.h"
#include "serve/api/context.h"
#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "text/json/json.h"

/* Tools that the client runs and the API describes become functions with the published schema. Tools that the API's own
 * servers run are refused by their type. */
ek_err ek_anthropic_tool(ek_api_request *r, const json_t *t, json_t **tool)
{
    const char *type = ek_json_get_text(t, "type", NULL);
    size_t n = 0;
    if (type && strcmp(type, "custom")) *tool = ek_client_tool_anthropic(type, ek_json_get_text(t, "name", NULL));
    if (type && *tool) return EK_OK;
    if (type && strcmp(type, "custom"))
        return ek_field_wrong_text(r, "tools", "this server runs no tools; there is none of type", type, "");
    if (!ek_json_get_text(t, "name", &n) || n == 0) return ek_field_wrong(r, "tools", "each needs a name");
    *tool = ek_openai_function(ek_json_get(t, "name"), ek_field(t, "description"), ek_field(t, "input_schema"),
                               ek_field(t, "strict"));
    return EK_OK;
}

static ek_err read_tools(ek_api_request *r, const json_t *body)
{
    const json_t *tools = ek_field(body, "tools");
    if (tools && !json_is_array(tools)) return ek_field_wrong(r, "tools", "a list is needed");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i);
        json_t *tool = NULL;
        bool later = false;
        EK_TRY(ek_field_bool(r, t, "defer_loading", &later));
        EK_TRY(ek_anthropic_tool(r, t, &tool));
        ek_tools_add(r, tool, later);
    }
    return EK_OK;
}

/* The same choice in OpenAI's form. A new reference; NULL for an invalid choice. */
static json_t *openai_choice(const json_t *choice)
{
    const char *type = ek_json_get_text(choice, "type", NULL);
    if (!type) return NULL;
    if (!strcmp(type, "auto") || !strcmp(type, "none")) return json_string_nocheck(type);
    if (!strcmp(type, "any")) return json_string_nocheck("required");
    if (strcmp(type, "tool")) return NULL;
    json_t *named = json_object();
    json_object_set_new_nocheck(named, "type", json_string_nocheck("function"));
    const json_t *name = ek_json_get(choice, "name");
    if (name) json_object_set_nocheck(named, "name", (json_t *)(uintptr_t)name);
    return named;
}

static ek_err read_tool_choice(ek_api_request *r, const json_t *body)
{
    const json_t *choice = ek_field(body, "tool_choice");
    bool one_call = false;
    json_t *theirs = openai_choice(choice), *as_body = json_object();
    if (choice && !theirs) {
        json_decref(as_body);
        return ek_field_wrong(r, "tool_choice", "an object of type auto, any, tool or none is needed");
    }
    if (theirs) json_object_set_new_nocheck(as_body, "tool_choice", theirs);
    ek_err err = ek_openai_tool_choice(r, as_body);
    json_decref(as_body);
    if (!err) err = ek_field_bool(r, choice, "disable_parallel_tool_use", &one_call);
    if (one_call) r->turn.one_call = true;
    return err;
}

static ek_err read_thinking(ek_api_request *r, const json_t *body)
{
    static const struct {
        const char *type;
        ek_thinking thinking;
    } types[] = {{"enabled", EK_THINKING_ON},
                 {"adaptive", EK_THINKING_ON},
                 {"between_tools", EK_THINKING_ON},
                 {"disabled", EK_THINKING_OFF}};
    ek_anthropic *own = r->own;
    const json_t *v = ek_field(body, "thinking");
    if (!v) return EK_OK;
    const char *type = ek_json_get_text(v, "type", NULL), *display = ek_json_get_text(v, "display", NULL);
    own->omit_thinking = display && !strcmp(display, "omitted");
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].type)) {
            r->prompt.thinking = types[i].thinking;
            return ek_field_thinking(r, v, "budget_tokens", "thinking");
        }
    return ek_field_wrong(r, "thinking", "its type must be enabled, adaptive, between_tools or disabled");
}

/* Reads output_config.format, or output_format, its old name. */
static ek_err read_format(ek_api_request *r, const json_t *body)
{
    const json_t *config = ek_field(body, "output_config"), *format = ek_field(config, "format");
    if (config && !json_is_object(config)) return ek_field_wrong(r, "output_config", "an object is needed");
    if (!format) format = ek_field(body, "output_format");
    return ek_openai_format(r, format, "output_config");
}

/* Refuses fields that would change the reply and are not supported. */
static ek_err refuse_unsupported(ek_api_request *r, const json_t *body)
{
    if (json_array_size(ek_field(body, "mcp_servers")) > 0)
        return ek_field_wrong(r, "mcp_servers", "this server connects to no others");
    return EK_OK;
}

static ek_err read_max_tokens(ek_api_request *r, const json_t *body)
{
    int64_t v;
    bool found;
    EK_TRY(ek_field_int(r, body, "max_tokens", 0, INT64_MAX, &v, &found));
    if (!found) return ek_field_wrong(r, "max_tokens", "field required");
    r->turn.max_tokens = v < INT_MAX ? (int)v : INT_MAX;
    return EK_OK;
}

static void free_own(void *p)
{
    ek_anthropic *own = p;
    ek_blocks_fini(&own->blocks);
    ek_buf_fini(&own->input);
    ek_api_summary_free(own->summary);
    free(own->previous);
    free(own);
}

/* compaction: {"type": "summarize", "instructions"}: the whole reply is a summary. */
static ek_err read_compaction(ek_api_request *r, const json_t *body)
{
    ek_anthropic *own = r->own;
    const json_t *v = ek_field(body, "compaction");
    const char *type = ek_json_get_text(v, "type", NULL);
    size_t n = 0;
    if (!v) return EK_OK;
    if (!type || strcmp(type, "summarize") != 0) return ek_field_wrong(r, "compaction", "its type must be summarize");
    if (ek_field(body, "context_management"))
        return ek_field_wrong(r, "compaction", "it cannot be combined with context_management");
    const json_t *ask = ek_field(v, "instructions");
    if (ask && !ek_json_is_text(ask)) return ek_field_wrong(r, "compaction", "its instructions must be a text");
    own->compacting = true;
    const char *text = ek_json_get_text(v, "instructions", &n);
    ek_err err = ek_compaction_ask(r, text, n);
    if (err) r->param = "compaction";
    return err;
}

static ek_err read_conversation(ek_api_request *r, const json_t *body, const ek_api_limits *limits, bool compacts)
{
    EK_TRY(read_tools(r, body));
    EK_TRY(ek_anthropic_messages(r, body, limits));
    ek_tools_settle(r);
    EK_TRY(read_tool_choice(r, body));
    EK_TRY(ek_anthropic_context(r, body, limits, compacts));
    ek_anthropic *own = r->own;
    if (limits->summary) own->summary = ek_context_take(r, limits->summary, false);
    return compacts ? read_compaction(r, body) : EK_OK;
}

/* compacts: the prompt asks for a summary if `compaction` does; a token count is that of the messages as they are. */
static ek_err read_prompt(ek_api_request *r, const json_t *body, const ek_api_limits *limits, bool compacts)
{
    ek_anthropic *own = r->own = ek_alloc(sizeof *own);
    json_t *whole = NULL;
    r->free_own = free_own;
    ek_blocks_init(&own->blocks);
    r->n = 1;
    r->turn.max_tokens = INT_MAX;
    r->turn.sampling = limits->defaults;
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_ANTHROPIC));
    EK_TRY(ek_field_model(r, body));
    EK_TRY(refuse_unsupported(r, body));
    EK_TRY(read_format(r, body));
    EK_TRY(read_thinking(r, body));
    ek_err err = ek_anthropic_thread(r, body, limits, &whole);
    if (!err) err = read_conversation(r, whole, limits, compacts);
    json_decref(whole);
    r->own_bytes = own->input.cap;
    return err;
}

/* Sampling fields that this API lacks (seed, min_p, …) are read as in OpenAI's. */
ek_err ek_anthropic_read(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    EK_TRY(read_prompt(r, body, limits, true));
    EK_TRY(read_max_tokens(r, body));
    EK_TRY(ek_openai_stop(r, body, "stop_sequences"));
    EK_TRY(ek_openai_sampling(r, body, limits));
    EK_TRY(ek_field_bool(r, body, "stream", &r->stream));
    EK_TRY(ek_field_ours(r, body, limits));
    if (r->context && r->context->compact_at > 0 && r->resume.tokens.len > 0)
        return ek_field_wrong(r, "context_management", "a stream that continues is not compacted");
    return EK_OK;
}

static ek_err read_count(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    return read_prompt(r, body, limits, false);
}

static ek_err count(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const ek_anthropic *own = r->own;
    (void)m;
    ek_buf_fmt(out, "{\"input_tokens\":%zu", prompt->ids.len);
    if (own->managed)
        ek_buf_fmt(out, ",\"context_management\":{\"original_input_tokens\":%zu}",
                   own->context ? (size_t)own->context->original : prompt->ids.len);
    ek_buf_char(out, '}');
    return EK_OK;
}

const ek_dialect ek_dialect_anthropic_count = {
    .vendor = EK_API_ANTHROPIC,
    .path = "/v1/messages/count_tokens",
    .id_prefix = "",
    .prompt_param = "messages",
    .read = read_count,
    .answer = count,
    .refused = ek_anthropic_refused,
    .error = ek_anthropic_error,
};
