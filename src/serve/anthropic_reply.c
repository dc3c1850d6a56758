/* Writes replies of Anthropic's Messages API. The blocks of a stream and of a reply in one piece are the same: runs of
 * thinking and text, and calls, in the order in which the model wrote them. */
#include <string.h>

#include "base/rng.h"
#include "serve/anthropic.h"
#include "serve/sealed.h"
#include "text/json.h"
#include "text/utf8.h"

static const ek_anthropic *own_of(const ek_api_reply *r)
{
    return r->own;
}

static bool is_blank(const char *s, size_t n)
{
    ek_utf8_strip(&s, &n);
    return n == 0;
}

/* --- pieces --- */

static void put_stop(ek_buf *out, const ek_api_reply *r)
{
    static const char *const reasons[] = {
        [EK_END_NONE] = NULL,
        [EK_END_STOP] = "end_turn",
        [EK_END_CALLS] = "tool_use",
        [EK_END_STOP_STRING] = "stop_sequence",
        [EK_END_MAX_TOKENS] = "max_tokens",
        [EK_END_CONTEXT] = "model_context_window_exceeded",
        [EK_END_CANCELLED] = NULL,
        [EK_END_ERROR] = NULL,
    };
    const ek_turn_result *t = r->choices[0];
    ek_buf_str(out, "\"stop_reason\":");
    ek_put_string(out, reasons[t->end]);
    ek_buf_str(out, ",\"stop_sequence\":");
    if (t->end == EK_END_STOP_STRING) {
        ek_json_quote(out, r->turn->stop[t->stop_string], r->turn->stop_len[t->stop_string]);
    } else {
        ek_buf_str(out, "null");
    }
}

/* Clients add the three input counts to get the size of the prompt. */
static void put_usage(ek_buf *out, const ek_api_reply *r)
{
    const ek_turn_result *t = r->choices[0];
    ek_buf_fmt(out,
               "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,"
               "\"output_tokens\":%d}",
               t->n_prompt - t->n_cached, t->n_cached, t->n_tokens);
}

/* A thinking block's signature: opaque to clients, and what remains of the text where it is not shown. */
static void put_signature(ek_buf *out, const char *thinking, size_t n, bool omitted)
{
    ek_buf s = {0};
    if (omitted) ek_seal(&s, thinking, n);
    else ek_buf_fmt(&s, "ek0+%016llx", (unsigned long long)ek_hash64(1, thinking, n));
    ek_json_quote(out, s.data, s.len);
    ek_buf_fini(&s);
}

static void put_call_head(ek_buf *out, const ek_api_reply *r, int index, const char *name, size_t n)
{
    char id[32];
    ek_call_id(id, "toolu_", r->id, index);
    ek_buf_fmt(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", id);
    ek_json_quote(out, name, n);
    ek_buf_str(out, ",\"input\":");
}

/* {"id":… up to and without the member content. */
static void put_message_head(ek_buf *out, const ek_api_reply *r)
{
    ek_buf_str(out, "{\"id\":");
    ek_put_string(out, r->id);
    ek_buf_str(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    ek_put_string(out, r->model);
    ek_buf_char(out, ',');
}

/* --- a stream --- */

static void frame_open(ek_buf *out, const char *type)
{
    ek_buf_fmt(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void frame_close(ek_buf *out)
{
    ek_buf_str(out, "}\n\n");
}

void ek_anthropic_heartbeat(ek_buf *out)
{
    frame_open(out, "ping");
    frame_close(out);
}

void ek_anthropic_begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    const ek_turn_result *t = r->choices[choice];
    frame_open(out, "message_start");
    ek_buf_str(out, ",\"message\":");
    put_message_head(out, r);
    ek_buf_fmt(out,
               "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":%d,"
               "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,\"output_tokens\":0}}",
               t->n_prompt - t->n_cached, t->n_cached);
    frame_close(out);
    ek_anthropic_heartbeat(out);
}

static void put_delta(ek_buf *out, const ek_anthropic *o, const char *type, const char *member, const char *s, size_t n)
{
    frame_open(out, "content_block_delta");
    ek_buf_fmt(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", o->n_blocks - 1, type, member);
    ek_json_quote(out, s, n);
    ek_buf_char(out, '}');
    frame_close(out);
}

static void close_block(ek_buf *out, const ek_api_reply *r)
{
    ek_anthropic *o = r->own;
    ek_buf_clear(&o->blanks);
    if (o->open < 0) return;
    if (o->open == EK_REPLY_REASONING) {
        const ek_answer *a = &r->choices[0]->answer;
        int i = a->n_parts - 1;
        while (i > 0 && a->parts[i].kind != EK_REPLY_REASONING) i--;
        frame_open(out, "content_block_delta");
        ek_buf_fmt(out, ",\"index\":%d,\"delta\":{\"type\":\"signature_delta\",\"signature\":", o->n_blocks - 1);
        put_signature(out, a->reasoning.data + a->parts[i].from, a->parts[i].n, o->omit_thinking);
        ek_buf_char(out, '}');
        frame_close(out);
    }
    frame_open(out, "content_block_stop");
    ek_buf_fmt(out, ",\"index\":%d", o->n_blocks - 1);
    frame_close(out);
    o->open = -1;
}

static void open_block(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e)
{
    ek_anthropic *o = r->own;
    o->open = (int)e->kind;
    frame_open(out, "content_block_start");
    ek_buf_fmt(out, ",\"index\":%d,\"content_block\":", o->n_blocks++);
    if (e->kind == EK_REPLY_CONTENT) ek_buf_str(out, "{\"type\":\"text\",\"text\":\"\",\"citations\":null}");
    else if (e->kind == EK_REPLY_REASONING)
        ek_buf_str(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    else {
        put_call_head(out, r, e->call, e->text, e->n);
        ek_buf_str(out, "{}}");
    }
    frame_close(out);
}

static void on_text(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e)
{
    ek_anthropic *o = r->own;
    if (e->n == 0) return;
    if (o->open != EK_REPLY_CONTENT) {
        if (o->open >= 0) close_block(out, r);
        ek_buf_add(&o->blanks, e->text, e->n);
        if (is_blank(o->blanks.data, o->blanks.len)) return;
        open_block(out, r, e);
        put_delta(out, o, "text_delta", "text", o->blanks.data, o->blanks.len);
        ek_buf_clear(&o->blanks);
    } else {
        put_delta(out, o, "text_delta", "text", e->text, e->n);
    }
}

static void on_thinking(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e)
{
    ek_anthropic *o = r->own;
    if (e->n == 0) return;
    if (o->open != EK_REPLY_REASONING) {
        close_block(out, r);
        open_block(out, r, e);
    }
    if (!o->omit_thinking) put_delta(out, o, "thinking_delta", "thinking", e->text, e->n);
}

void ek_anthropic_event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    (void)choice;
    switch (e->kind) {
    case EK_REPLY_CONTENT: on_text(out, r, e); break;
    case EK_REPLY_REASONING: on_thinking(out, r, e); break;
    case EK_REPLY_CALL_START:
        close_block(out, r);
        open_block(out, r, e);
        break;
    case EK_REPLY_CALL_ARGS: put_delta(out, r->own, "input_json_delta", "partial_json", e->text, e->n); break;
    case EK_REPLY_CALL_CUT: /* clients parse the fragments strictly */
    case EK_REPLY_CALL_DROP:
        put_delta(out, r->own, "input_json_delta", "partial_json", e->text, e->n); /* fallthrough */
    case EK_REPLY_CALL_END: close_block(out, r); break;
    case EK_REPLY_STOP: break;
    }
}

void ek_anthropic_finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    (void)choice;
    close_block(out, r);
    frame_open(out, "message_delta");
    ek_buf_str(out, ",\"delta\":{");
    put_stop(out, r);
    ek_buf_str(out, "},");
    put_usage(out, r);
    ek_put_extension(out, r);
    frame_close(out);
}

void ek_anthropic_error(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"}};
    const char *type = status >= 500 ? "api_error" : "invalid_request_error";
    (void)param, (void)code;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == status) type = types[i].type;
    ek_buf_fmt(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    ek_put_string(out, text);
    ek_buf_str(out, "}}");
}

void ek_anthropic_failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    (void)r, (void)choice;
    ek_buf_str(out, "event: error\ndata: ");
    ek_anthropic_error(out, 500, text, NULL, NULL);
    ek_buf_str(out, "\n\n");
}

/* --- in one piece --- */

/* False for a part that is no block. */
static bool put_block(ek_buf *out, const ek_api_reply *r, const ek_answer_part *p, bool first)
{
    const ek_answer *a = &r->choices[0]->answer;
    if (p->kind == EK_REPLY_CONTENT && is_blank(a->content.data + p->from, p->n)) return false;
    if (!first) ek_buf_char(out, ',');
    if (p->kind == EK_REPLY_CONTENT) {
        ek_buf_str(out, "{\"type\":\"text\",\"text\":");
        ek_json_quote(out, a->content.data + p->from, p->n);
        ek_buf_str(out, ",\"citations\":null}");
    } else if (p->kind == EK_REPLY_REASONING) {
        const char *s = a->reasoning.data + p->from;
        bool omit = own_of(r)->omit_thinking;
        ek_buf_str(out, "{\"type\":\"thinking\",\"thinking\":");
        ek_json_quote(out, s, omit ? 0 : p->n);
        ek_buf_str(out, ",\"signature\":");
        put_signature(out, s, p->n, omit);
        ek_buf_char(out, '}');
    } else {
        const ek_answer_call *c = &a->calls[p->from];
        put_call_head(out, r, c->index, c->name, strlen(c->name));
        ek_buf_add(out, ek_buf_text(&c->args), c->args.len);
        ek_buf_add(out, ek_buf_text(&c->closing), c->closing.len);
        ek_buf_char(out, '}');
    }
    return true;
}

void ek_anthropic_end(ek_buf *out, const ek_api_reply *r)
{
    if (r->stream) {
        frame_open(out, "message_stop");
        frame_close(out);
        return;
    }
    const ek_answer *a = &r->choices[0]->answer;
    bool first = true;
    put_message_head(out, r);
    ek_buf_str(out, "\"content\":[");
    for (int i = 0; i < a->n_parts; i++)
        if (put_block(out, r, &a->parts[i], first)) first = false;
    ek_buf_str(out, "],");
    put_stop(out, r);
    ek_buf_char(out, ',');
    put_usage(out, r);
    ek_put_extension(out, r);
    ek_buf_char(out, '}');
}
