/* Bodies of OpenAI's chat completions. Fields of the API that this server does not support are refused where ignoring
 * them would change the reply; the rest is ignored. */
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/api/members.h"
#include "serve/openai/openai_chat.h"
#include "text/json/json.h"

static ek_err read_tool(ek_api_request *r, const json_t *t)
{
    const char *type = ek_json_get_text(t, "type", NULL);
    bool custom = type && !strcmp(type, "custom");
    if (!custom && (!type || strcmp(type, "function")))
        return ek_field_wrong_text(r, "tools",
                                   "each must be {\"type\": \"function\", \"function\": {…}}, or custom, not of type",
                                   type ? type : "", "");
    const json_t *f = ek_json_get(t, type);
    size_t n = 0;
    if (!ek_json_get_text(f, "name", &n) || n == 0) return ek_field_wrong(r, "tools", "each function needs a name");
    json_t *tool = custom ? NULL : json_incref((json_t *)(uintptr_t)t);
    if (custom) EK_TRY(ek_custom_tool(r, ek_json_get(f, "name"), ek_field(f, "description"), f, &tool));
    json_array_append_new(r->tools, tool);
    return EK_OK;
}

static ek_err read_tools(ek_api_request *r, const json_t *body)
{
    const json_t *tools = ek_field(body, "tools");
    if (ek_field(body, "functions") || ek_field(body, "function_call"))
        return ek_field_wrong(r, "functions", "the legacy form is not taken; use tools and tool_choice");
    if (tools && !json_is_array(tools)) return ek_field_wrong(r, "tools", "a list is needed");
    if (json_array_size(tools) > 0) r->tools = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) EK_TRY(read_tool(r, json_array_get(tools, i)));
    return EK_OK;
}

static ek_thinking on_or_off(bool on)
{
    return on ? EK_THINKING_ON : EK_THINKING_OFF;
}

static ek_err read_thinking(ek_api_request *r, const json_t *body)
{
    const json_t *effort = ek_field(body, "reasoning_effort"), *kwargs = ek_field(body, "chat_template_kwargs");
    if (effort) {
        if (!ek_json_is_text(effort))
            return ek_field_wrong(r, "reasoning_effort", "a text is needed, such as \"none\" or \"medium\"");
        const char *e = json_string_value(effort);
        r->prompt.thinking = on_or_off(strcmp(e, "none") && strcmp(e, "minimal"));
    }
    if (kwargs && !json_is_object(kwargs)) return ek_field_wrong(r, "chat_template_kwargs", "an object is needed");
    bool on = false;
    EK_TRY(ek_field_thinking(r, body, "thinking_budget", "thinking_budget"));
    EK_TRY(ek_field_bool(r, kwargs, "enable_thinking", &on));
    if (ek_field(kwargs, "enable_thinking")) r->prompt.thinking = on_or_off(on);
    return ek_field_bool(r, kwargs, "preserve_thinking", &r->prompt.preserve_thinking);
}

ek_err ek_openai_chat_prompt(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    EK_TRY(read_tools(r, body));
    EK_TRY(ek_openai_messages(r, ek_field(body, "messages"), limits));
    ek_drop_billing_line(&r->conversation);
    EK_TRY(read_thinking(r, body));
    r->prompt.add_generation_prompt = true;
    EK_TRY(ek_field_bool(r, body, "add_generation_prompt", &r->prompt.add_generation_prompt));
    return ek_field_bool(r, body, "continue_final_message", &r->prompt.continue_final);
}

/* What would change the answer's form and does not exist here yet. */
static ek_err refuse_unsupported(ek_api_request *r, const json_t *body)
{
    const json_t *modalities = ek_field(body, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const json_t *m = json_array_get(modalities, i);
        if (!ek_json_is_text(m) || strcmp(json_string_value(m), "text"))
            return ek_field_wrong(r, "modalities", "only \"text\" is supported");
    }
    return EK_OK;
}

static ek_err read_logprobs(ek_api_request *r, const json_t *body)
{
    int64_t v;
    bool found;
    EK_TRY(ek_field_bool(r, body, "logprobs", &r->turn.logprobs));
    EK_TRY(ek_field_int(r, body, "top_logprobs", 0, EK_LOGPROBS_MAX, &v, &found));
    if (found && v > 0 && !r->turn.logprobs) return ek_field_wrong(r, "top_logprobs", "logprobs must be true with it");
    if (found) r->turn.n_top = (int)v;
    return EK_OK;
}

static ek_err read_delivery(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_openai_chat *o = r->own = ek_alloc(sizeof *o);
    o->whole_calls = limits->whole_calls;
    EK_TRY(ek_field_bool(r, body, "ignore_eos", &r->turn.ignore_eos));
    EK_TRY(ek_field_bool(r, body, "stream", &r->stream));
    EK_TRY(ek_openai_include_usage(r, body, &o->include_usage));
    EK_TRY(ek_field_ours(r, body, limits));
    return ek_field_bool(r, ek_field(body, "evenkeel"), "whole_calls", &o->whole_calls);
}

static ek_err read_body(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_CHAT));
    EK_TRY(ek_field_model(r, body));
    EK_TRY(refuse_unsupported(r, body));
    EK_TRY(ek_openai_chat_prompt(r, body, limits));
    EK_TRY(ek_openai_calls(r, body));
    EK_TRY(ek_openai_format(r, ek_field(body, "response_format"), "response_format"));
    EK_TRY(ek_openai_guided(r, body, limits));
    EK_TRY(ek_openai_counts(r, body));
    EK_TRY(ek_openai_stop(r, body, "stop"));
    EK_TRY(ek_openai_sampling(r, body, limits));
    EK_TRY(read_logprobs(r, body));
    return read_delivery(r, body, limits);
}

ek_err ek_openai_chat_parse(ek_api_request *r, const char *text, size_t n, const ek_api_limits *limits)
{
    return ek_field_body(r, text, n, limits, read_body);
}
