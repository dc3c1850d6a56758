#include "serve/chat_reply.h"

#include <stdio.h>
#include <string.h>

#include "text/json.h"

static void quoted(ek_buf *out, const char *s)
{
    ek_json_quote(out, s, strlen(s));
}

static void head(ek_buf *out, const ek_chat_head *h, const char *object)
{
    ek_buf_str(out, "{\"id\":");
    quoted(out, h->id);
    ek_buf_fmt(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object, (long long)h->created);
    quoted(out, h->model);
    ek_buf_str(out, ",\"system_fingerprint\":");
    quoted(out, h->fingerprint);
}

static void chunk_open(ek_buf *out, const ek_chat_head *h)
{
    ek_buf_str(out, "data: ");
    head(out, h, "chat.completion.chunk");
}

static void delta_open(ek_buf *out, const ek_chat_head *h, int choice)
{
    chunk_open(out, h);
    ek_buf_fmt(out, ",\"choices\":[{\"index\":%d,\"delta\":{", choice);
}

static void delta_close(ek_buf *out, const ek_chat_head *h, const char *finish)
{
    ek_buf_str(out, "},\"logprobs\":null,\"finish_reason\":");
    if (finish) quoted(out, finish);
    else ek_buf_str(out, "null");
    ek_buf_str(out, "}]");
    if (h->include_usage) ek_buf_str(out, ",\"usage\":null");
}

static void frame_end(ek_buf *out)
{
    ek_buf_str(out, "}\n\n");
}

void ek_chat_chunk_role(ek_buf *out, const ek_chat_head *h, int choice)
{
    delta_open(out, h, choice);
    ek_buf_str(out, "\"role\":\"assistant\",\"content\":\"\"");
    delta_close(out, h, NULL);
    frame_end(out);
}

/* Neither id nor name is repeated: accumulators that add strings up would double them. */
static void call_start(ek_buf *out, const ek_chat_head *h, const ek_reply_event *e, int choice)
{
    char id[32], request[128];
    snprintf(request, sizeof request, "%s.%d", h->id, choice);
    ek_call_id(id, "call_", request, e->call);
    ek_buf_fmt(
        out, "\"tool_calls\":[{\"index\":%d,\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", e->call, id);
    ek_json_quote(out, e->text, e->n);
    ek_buf_str(out, ",\"arguments\":\"\"}}]");
}

void ek_chat_chunk_delta(ek_buf *out, const ek_chat_head *h, int choice, const ek_reply_event *e)
{
    bool says = e->kind == EK_REPLY_CONTENT || e->kind == EK_REPLY_REASONING || e->kind == EK_REPLY_CALL_ARGS;
    if (e->kind != EK_REPLY_CALL_START && !(says && e->n > 0)) return;
    delta_open(out, h, choice);
    switch (e->kind) {
    case EK_REPLY_CONTENT:
        ek_buf_str(out, "\"content\":");
        ek_json_quote(out, e->text, e->n);
        break;
    case EK_REPLY_REASONING:
        ek_buf_str(out, "\"reasoning_content\":");
        ek_json_quote(out, e->text, e->n);
        break;
    case EK_REPLY_CALL_START: call_start(out, h, e, choice); break;
    default:
        ek_buf_fmt(out, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", e->call);
        ek_json_quote(out, e->text, e->n);
        ek_buf_str(out, "}}]");
    }
    delta_close(out, h, NULL);
    frame_end(out);
}

static void extension(ek_buf *out, const char *digest)
{
    if (digest) ek_buf_fmt(out, ",\"evenkeel\":{\"digest\":\"%s\"}", digest);
}

static void error_object(ek_buf *out, int status, const char *message, const char *param, const char *code)
{
    const char *type = status == 404   ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    ek_buf_str(out, "\"error\":{\"message\":");
    quoted(out, message);
    ek_buf_fmt(out, ",\"type\":\"%s\",\"param\":", type);
    if (param) quoted(out, param);
    else ek_buf_str(out, "null");
    ek_buf_str(out, ",\"code\":");
    if (code) quoted(out, code);
    else ek_buf_str(out, "null");
    ek_buf_char(out, '}');
}

void ek_chat_chunk_finish(ek_buf *out, const ek_chat_head *h, int choice, const char *reason, const char *digest,
                          const char *error)
{
    delta_open(out, h, choice);
    delta_close(out, h, reason);
    extension(out, digest);
    if (error) {
        ek_buf_char(out, ',');
        error_object(out, 500, error, NULL, NULL);
    }
    frame_end(out);
}

static void usage(ek_buf *out, const ek_chat_usage *u)
{
    ek_buf_fmt(
        out,
        ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%lld},\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
        (long long)u->prompt, (long long)u->completion, (long long)(u->prompt + u->completion), (long long)u->cached,
        (long long)u->reasoning);
}

void ek_chat_chunk_usage(ek_buf *out, const ek_chat_head *h, const ek_chat_usage *u)
{
    chunk_open(out, h);
    ek_buf_str(out, ",\"choices\":[]");
    usage(out, u);
    frame_end(out);
}

void ek_chat_done(ek_buf *out)
{
    ek_buf_str(out, "data: [DONE]\n\n");
}

static void message(ek_buf *out, const ek_chat_head *h, const ek_chat_choice *c, int choice)
{
    const ek_answer *a = c->answer;
    ek_buf_str(out, "{\"role\":\"assistant\",\"content\":");
    if (a->content.len == 0 && a->n_calls > 0) ek_buf_str(out, "null");
    else ek_json_quote(out, ek_buf_text(&a->content), a->content.len);
    ek_buf_str(out, ",\"refusal\":null");
    if (a->reasoning.len > 0) {
        ek_buf_str(out, ",\"reasoning_content\":");
        ek_json_quote(out, a->reasoning.data, a->reasoning.len);
    }
    for (int i = 0; i < a->n_calls; i++) {
        char id[32], request[128];
        snprintf(request, sizeof request, "%s.%d", h->id, choice);
        ek_call_id(id, "call_", request, i);
        ek_buf_fmt(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", i ? "," : ",\"tool_calls\":[",
                   id);
        quoted(out, a->calls[i].name);
        ek_buf_str(out, ",\"arguments\":");
        ek_json_quote(out, ek_buf_text(&a->calls[i].args), a->calls[i].args.len);
        ek_buf_str(out, "}}");
    }
    if (a->n_calls > 0) ek_buf_char(out, ']');
    ek_buf_char(out, '}');
}

void ek_chat_whole(ek_buf *out, const ek_chat_head *h, const ek_chat_choice *choices, int n, const ek_chat_usage *u,
                   const char *digest)
{
    head(out, h, "chat.completion");
    ek_buf_str(out, ",\"choices\":[");
    for (int i = 0; i < n; i++) {
        ek_buf_fmt(out, "%s{\"index\":%d,\"message\":", i ? "," : "", i);
        message(out, h, &choices[i], i);
        ek_buf_str(out, ",\"logprobs\":null,\"finish_reason\":");
        quoted(out, choices[i].finish);
        ek_buf_char(out, '}');
    }
    ek_buf_char(out, ']');
    usage(out, u);
    extension(out, digest);
    ek_buf_char(out, '}');
}

void ek_error_body(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    ek_buf_char(out, '{');
    error_object(out, status, text, param, code);
    ek_buf_char(out, '}');
}
