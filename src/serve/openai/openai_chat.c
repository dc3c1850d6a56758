/* The dialect of OpenAI's chat completions. Unsupported fields are refused if ignoring them would change the reply, and
 * ignored otherwise. Chunks come in the order that strict clients require. */

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "serve/api/tools.h"
#include "text/json/json.h"

/* ek_api_request.own. */
typedef struct ek_openai_chat {
    ek_openai_stream stream;
    bool whole_calls;                      /* in streams a call is one delta */
    int n_logprobs[EK_OPENAI_CHOICES_MAX]; /* per choice: number of log-probabilities that the stream has sent */
    bool custom[EK_OPENAI_CHOICES_MAX];    /* per choice: whether the open call is a custom tool's, and its input */
    ek_custom_input input[EK_OPENAI_CHOICES_MAX];
} ek_openai_chat;

/* --- the body --- */

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

/* Refuses fields that would change the answer's form and are not supported. */
static ek_err refuse_unsupported(ek_api_request *r, const json_t *body)
{
    const json_t *modalities = ek_field(body, "modalities");
    if (modalities && !json_is_array(modalities)) return ek_field_wrong(r, "modalities", "a list is needed");
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
    o->stream = (ek_openai_stream){.object = "chat.completion.chunk", .nothing = "\"delta\":{}"};
    o->whole_calls = limits->whole_calls;
    EK_TRY(ek_field_bool(r, body, "ignore_eos", &r->turn.ignore_eos));
    EK_TRY(ek_field_bool(r, body, "stream", &r->stream));
    EK_TRY(ek_field_bool(r, body, "return_progress", &r->progress));
    EK_TRY(ek_openai_include_usage(r, body, &o->stream.include_usage));
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

/* --- replies --- */

static const ek_openai_stream *stream_of(const ek_api_reply *r)
{
    const ek_openai_chat *o = r->own;
    return &o->stream;
}

static void delta_open(ek_buf *out, const ek_api_reply *r, int choice)
{
    ek_openai_choice_open(out, r, stream_of(r), choice);
    ek_buf_str(out, "\"delta\":{");
}

/* Writes a choice's log-probabilities from index first on; returns the next index. */
static int put_logprobs(ek_buf *out, const ek_api_reply *r, int choice, int first)
{
    ek_buf_str(out, "\"logprobs\":");
    if (!r->turn->logprobs) {
        ek_buf_str(out, "null");
        return 0;
    }
    ek_buf_str(out, "{\"content\":");
    int next = ek_openai_visible(r->choices[choice], first);
    ek_openai_logprobs(out, r, choice, first, next);
    ek_buf_str(out, ",\"refusal\":null}");
    return next;
}

/* Closes a delta without log-probabilities, and its chunk. */
static void delta_close(ek_buf *out, const ek_api_reply *r)
{
    ek_buf_str(out, "},\"logprobs\":null");
    ek_openai_choice_close(out, r, stream_of(r), NULL);
}

/* Closes a delta of content, or the last one, with the log-probabilities of newly visible tokens. */
static void delta_close_content(ek_buf *out, const ek_api_reply *r, int choice, const char *finish)
{
    ek_openai_chat *o = r->own;
    ek_buf_str(out, "},");
    o->n_logprobs[choice] = put_logprobs(out, r, choice, o->n_logprobs[choice]);
    ek_openai_choice_close(out, r, &o->stream, finish);
}

/* As OpenAI: content is null if a call may come first, because any text, even an empty one, begins a text part in
 * clients. The answer already has the first event. */
static void begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    bool text = r->choices[choice]->answer.content.len > 0;
    delta_open(out, r, choice);
    ek_buf_fmt(out, "\"role\":\"assistant\",\"content\":%s", text ? "\"\"" : "null");
    delta_close(out, r);
}

static void call_id(char id[32], const ek_api_reply *r, int choice, int call)
{
    char request[128];
    snprintf(request, sizeof request, "%s.%d", r->id, choice);
    ek_call_id(id, "call_", request, call);
}

static bool is_custom(const ek_api_reply *r, const char *name, size_t n)
{
    return !strcmp(ek_tools_type(r->turn->tools, name, n), "custom");
}

/* "type":"function","function":{…}, or the same for a custom tool. args NULL: not known yet. */
static void put_called(ek_buf *out, const ek_api_reply *r, const char *name, size_t n, const ek_buf *args)
{
    const ek_buf none = {0};
    ek_buf input = {0};
    bool custom = is_custom(r, name, n);
    const char *type = custom ? "custom" : "function";
    if (!args) args = &none;
    if (custom) ek_custom_input_of(&input, args);
    ek_buf_fmt(out, "\"type\":\"%s\",\"%s\":{\"name\":", type, type);
    ek_json_quote(out, name, n);
    ek_buf_str(out, custom ? ",\"input\":" : ",\"arguments\":");
    if (custom) args = &input;
    ek_json_quote(out, ek_buf_text(args), args->len);
    ek_buf_char(out, '}');
    ek_buf_fini(&input);
}

/* Neither id nor name is repeated, because accumulators that concatenate strings would double them. */
static void put_call(ek_buf *out, const ek_api_reply *r, int choice, int call, const char *name, size_t n,
                     const ek_buf *args)
{
    char id[32];
    call_id(id, r, choice, call);
    ek_buf_fmt(out, "\"tool_calls\":[{\"index\":%d,\"id\":\"%s\",", call, id);
    put_called(out, r, name, n, args);
    ek_buf_str(out, "}]");
}

static void call_start(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    ek_openai_chat *o = r->own;
    o->custom[choice] = is_custom(r, e->text, e->n);
    o->input[choice] = (ek_custom_input){0};
    put_call(out, r, choice, e->call, e->text, e->n, NULL);
}

/* Writes a piece of a custom tool's input, if the piece of its arguments has any. */
static void input_piece(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    ek_openai_chat *o = r->own;
    ek_buf piece = {0};
    ek_custom_input_add(&o->input[choice], &piece, e->text, e->n);
    if (piece.len > 0) {
        delta_open(out, r, choice);
        ek_buf_fmt(out, "\"tool_calls\":[{\"index\":%d,\"custom\":{\"input\":", e->call);
        ek_json_quote(out, piece.data, piece.len);
        ek_buf_str(out, "}}]");
        delta_close(out, r);
    }
    ek_buf_fini(&piece);
}

/* Writes e's call in one delta once it has ended, for clients that need id, type and name in every delta. */
static void whole_call(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    if (e->kind != EK_REPLY_CALL_END && e->kind != EK_REPLY_CALL_CUT) return;
    const ek_answer *a = &r->choices[choice]->answer;
    for (int i = 0; i < a->n_calls; i++) {
        const ek_answer_call *call = &a->calls[i];
        if (call->index != e->call) continue;
        delta_open(out, r, choice);
        put_call(out, r, choice, call->index, call->name, strlen(call->name), &call->args);
        delta_close(out, r);
    }
}

/* OpenAI's API has no member for reasoning. Clients read DeepSeek's member, or that of OpenRouter and vLLM; clients
 * that know both use one. */
static void put_reasoning(ek_buf *out, const char *s, size_t n)
{
    ek_put_text_after(out, "\"reasoning_content\":", s, n);
    ek_put_text_after(out, ",\"reasoning\":", s, n);
}

/* Content, reasoning and calls; other events write nothing. */
static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    const ek_openai_chat *o = r->own;
    const bool text = e->kind == EK_REPLY_CONTENT || e->kind == EK_REPLY_REASONING || e->kind == EK_REPLY_CALL_ARGS;
    if (o->whole_calls && e->kind != EK_REPLY_CONTENT && e->kind != EK_REPLY_REASONING) {
        whole_call(out, r, choice, e);
        return;
    }
    if (e->kind != EK_REPLY_CALL_START && !(text && e->n > 0)) return;
    if (e->kind == EK_REPLY_CALL_ARGS && o->custom[choice]) {
        input_piece(out, r, choice, e);
        return;
    }
    delta_open(out, r, choice);
    switch (e->kind) {
    case EK_REPLY_CONTENT: ek_put_text_after(out, "\"content\":", e->text, e->n); break;
    case EK_REPLY_REASONING: put_reasoning(out, e->text, e->n); break;
    case EK_REPLY_CALL_START: call_start(out, r, choice, e); break;
    default:
        ek_buf_fmt(out, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", e->call);
        ek_json_quote(out, e->text, e->n);
        ek_buf_str(out, "}}]");
    }
    if (e->kind == EK_REPLY_CONTENT) delta_close_content(out, r, choice, NULL);
    else delta_close(out, r);
}

static void finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    delta_open(out, r, choice);
    delta_close_content(out, r, choice, ek_openai_finish_reason(r->choices[choice]));
}

static void progress_event(ek_buf *out, const ek_api_reply *r, const ek_api_progress *p)
{
    ek_openai_progress(out, r, stream_of(r), p);
}

static void failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    ek_openai_stream_failed(out, r, stream_of(r), choice, text);
}

static void message(ek_buf *out, const ek_api_reply *r, int choice)
{
    const ek_answer *a = &r->choices[choice]->answer;
    ek_buf_str(out, "{\"role\":\"assistant\",\"content\":");
    if (a->content.len == 0 && a->n_calls > 0) ek_buf_str(out, "null");
    else ek_json_quote(out, ek_buf_text(&a->content), a->content.len);
    ek_buf_str(out, ",\"refusal\":null");
    if (a->reasoning.len > 0) {
        ek_buf_char(out, ',');
        put_reasoning(out, a->reasoning.data, a->reasoning.len);
    }
    for (int i = 0; i < a->n_calls; i++) {
        char id[32];
        call_id(id, r, choice, a->calls[i].index);
        ek_buf_fmt(out, "%s{\"id\":\"%s\",", i ? "," : ",\"tool_calls\":[", id);
        put_called(out, r, a->calls[i].name, strlen(a->calls[i].name), &a->calls[i].args);
        ek_buf_char(out, '}');
    }
    if (a->n_calls > 0) ek_buf_char(out, ']');
    ek_buf_char(out, '}');
}

static void whole(ek_buf *out, const ek_api_reply *r)
{
    ek_openai_head(out, r, "chat.completion");
    ek_buf_str(out, ",\"choices\":[");
    for (int i = 0; i < r->n; i++) {
        ek_buf_fmt(out, "%s{\"index\":%d,\"message\":", i ? "," : "", i);
        message(out, r, i);
        ek_buf_char(out, ',');
        put_logprobs(out, r, i, 0);
        ek_openai_finish(out, ek_openai_finish_reason(r->choices[i]));
    }
    ek_openai_whole_close(out, r);
}

static void end(ek_buf *out, const ek_api_reply *r)
{
    if (r->stream) ek_openai_stream_end(out, r, stream_of(r));
    else whole(out, r);
}

const ek_dialect ek_dialect_openai_chat = {
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .prompt_param = "messages",
    .read = read_body,
    .begin = begin,
    .event = event,
    .finish = finish,
    .end = end,
    .failed = failed,
    .progress = progress_event,
    .heartbeat = ek_openai_heartbeat,
    .error = ek_openai_error,
};
