/* Writes replies of Anthropic's Messages API. The blocks of a stream and of a reply in one piece are the same: runs of
 * thinking and text, and calls, in the order in which the model wrote them. */
#include <string.h>

#include "base/hash/rng.h"
#include "serve/anthropic/anthropic.h"
#include "serve/api/context.h"
#include "text/json/json.h"

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
        [EK_END_LOOP] = "max_tokens",
        [EK_END_UNCACHED] = "cache_threshold",
        [EK_END_CANCELLED] = NULL,
        [EK_END_ERROR] = NULL,
    };
    const ek_turn_result *t = r->choices[0];
    const ek_anthropic *own = r->own;
    ek_put_string_after(out, "\"stop_reason\":", ek_anthropic_compacts(own) ? "compaction" : reasons[t->end]);
    ek_buf_str(out, ",\"stop_sequence\":");
    if (t->end == EK_END_STOP_STRING) {
        ek_json_quote(out, r->turn->stop[t->stop_string], r->turn->stop_len[t->stop_string]);
    } else {
        ek_buf_str(out, "null");
    }
}

static void put_iteration(ek_buf *out, const char *type, int n_prompt, int n_cached, int n_tokens)
{
    ek_buf_fmt(out,
               "{\"type\":\"%s\",\"input_tokens\":%d,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":%d,\"cache_creation\":null,\"output_tokens\":%d}",
               type, n_prompt - n_cached, n_cached, n_tokens);
}

/* The message's own counts do not include the tokens of a summary before it. */
static void put_iterations(ek_buf *out, const ek_api_reply *r, int n_tokens)
{
    const ek_turn_result *t = r->choices[0];
    const ek_anthropic *own = r->own;
    const ek_api_summary *s = own->summary;
    if (!s) return;
    ek_buf_str(out, ",\"iterations\":[");
    put_iteration(out, "compaction", s->n_prompt, s->n_cached, s->n_tokens);
    ek_buf_char(out, ',');
    put_iteration(out, "message", t->n_prompt, t->n_cached, n_tokens);
    ek_buf_char(out, ']');
}

/* Clients add the three input counts to get the size of the prompt. */
static void put_usage(ek_buf *out, const ek_api_reply *r, int n_tokens)
{
    const ek_turn_result *t = r->choices[0];
    const ek_api_usage u = ek_api_usage_of(r);
    ek_buf_fmt(out,
               "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,"
               "\"output_tokens\":%d",
               t->n_prompt - t->n_cached, t->n_cached, n_tokens);
    ek_put_media_usage(out, &u);
    put_iterations(out, r, n_tokens);
    ek_buf_char(out, '}');
}

/* A thinking block's signature: opaque to clients; if the text is not shown, the signature has it. */
static void write_signature(ek_buf *out, const char *thinking, size_t n, bool omitted)
{
    if (omitted) ek_seal(out, thinking, n);
    else ek_buf_fmt(out, "ek0+%016llx", (unsigned long long)ek_hash64(1, thinking, n));
}

static void put_call_head(ek_buf *out, const ek_api_reply *r, int index, const char *name, size_t n)
{
    char id[32];
    ek_call_id(id, "toolu_", r->id, index);
    ek_buf_fmt(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", id);
    ek_json_quote(out, name, n);
    ek_buf_str(out, ",\"input\":");
}

/* The members of a summary, in a block or in a delta; null if there is none. */
static void put_summary(ek_buf *out, const ek_api_reply *r)
{
    const char *text;
    size_t n;
    const ek_anthropic *own = r->own;
    bool any;
    if (own->summary) text = ek_buf_text(&own->summary->text), n = own->summary->text.len, any = n > 0;
    else any = ek_compaction_of(r->choices[0], &text, &n);
    ek_buf_str(out, "\"content\":");
    if (any) ek_json_quote(out, text, n);
    else ek_buf_str(out, "null");
    ek_buf_str(out, ",\"encrypted_content\":null");
    if (any) ek_buf_fmt(out, ",\"signature\":\"ek0+%016llx\"", (unsigned long long)ek_hash64(1, text, n));
}

/* Writes {"id":… up to the member content, which follows. */
static void put_message_head(ek_buf *out, const ek_api_reply *r)
{
    ek_put_string_after(out, "{\"id\":", r->id);
    ek_put_string_after(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":", r->model);
    ek_buf_char(out, ',');
}

/* --- a stream --- */

static void frame_open(ek_buf *out, const ek_api_reply *r, const char *type)
{
    ek_event_begin(out, r);
    ek_buf_fmt(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

/* whole: the extension is that of a whole reply. */
static void frame_close(ek_buf *out, const ek_api_reply *r, bool whole)
{
    ek_event_extend(out, r, whole);
    ek_buf_str(out, "}\n\n");
    ek_event_end(out, r);
}

static void heartbeat(ek_buf *out)
{
    ek_buf_str(out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static void ping(ek_buf *out, const ek_api_progress *p)
{
    ek_buf_str(out, "event: ping\ndata: {\"type\":\"ping\",");
    ek_put_progress(out, p);
    ek_buf_str(out, "}\n\n");
}

/* Writes the block of a summary: the only block of its reply, or the first. */
static void stream_summary(ek_buf *out, const ek_api_reply *r)
{
    frame_open(out, r, "content_block_start");
    ek_buf_str(out,
               ",\"index\":0,\"content_block\":{\"type\":\"compaction\",\"content\":null,\"encrypted_content\":null}");
    frame_close(out, r, false);
    frame_open(out, r, "content_block_delta");
    ek_buf_str(out, ",\"index\":0,\"delta\":{\"type\":\"compaction_delta\",");
    put_summary(out, r);
    ek_buf_char(out, '}');
    frame_close(out, r, false);
    frame_open(out, r, "content_block_stop");
    ek_buf_str(out, ",\"index\":0");
    frame_close(out, r, false);
}

static void begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    (void)choice;
    frame_open(out, r, "message_start");
    ek_buf_str(out, ",\"message\":");
    put_message_head(out, r);
    ek_buf_str(out, "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(out, r, 0);
    ek_buf_char(out, '}');
    frame_close(out, r, false);
    frame_open(out, r, "ping");
    frame_close(out, r, false);
    ek_anthropic *own = r->own;
    if (!own->summary) return;
    stream_summary(out, r);
    own->blocks.n++;
}

static void put_delta(ek_buf *out, const ek_api_reply *r, const char *type, const char *member, const char *s, size_t n)
{
    const ek_anthropic *own = r->own;
    frame_open(out, r, "content_block_delta");
    ek_buf_fmt(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", own->blocks.n - 1, type, member);
    ek_json_quote(out, s, n);
    ek_buf_char(out, '}');
    frame_close(out, r, false);
}

static void open_block(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e)
{
    const ek_anthropic *own = r->own;
    frame_open(out, r, "content_block_start");
    ek_buf_fmt(out, ",\"index\":%d,\"content_block\":", own->blocks.n - 1);
    if (e->kind == EK_REPLY_CONTENT) {
        ek_buf_str(out, "{\"type\":\"text\",\"text\":\"\"}");
    } else if (e->kind == EK_REPLY_REASONING) {
        ek_buf_str(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        put_call_head(out, r, e->call, e->text, e->n);
        ek_buf_str(out, "{}}");
    }
    frame_close(out, r, false);
}

static void put_piece(ek_buf *out, const ek_api_reply *r, const char *s, size_t n)
{
    const ek_anthropic *own = r->own;
    if (own->blocks.open == EK_REPLY_CONTENT) put_delta(out, r, "text_delta", "text", s, n);
    else if (own->blocks.open == EK_REPLY_CALL_START) put_delta(out, r, "input_json_delta", "partial_json", s, n);
    else if (!own->omit_thinking) put_delta(out, r, "thinking_delta", "thinking", s, n);
}

static void close_block(ek_buf *out, const ek_api_reply *r)
{
    const ek_anthropic *own = r->own;
    const ek_answer *a = &r->choices[0]->answer;
    const ek_answer_part *p = ek_blocks_last(a, EK_REPLY_REASONING);
    if (own->blocks.open == EK_REPLY_REASONING && p) {
        ek_buf signature = {0};
        write_signature(&signature, a->reasoning.data + p->from, p->n, own->omit_thinking);
        put_delta(out, r, "signature_delta", "signature", signature.data, signature.len);
        ek_buf_fini(&signature);
    }
    frame_open(out, r, "content_block_stop");
    ek_buf_fmt(out, ",\"index\":%d", own->blocks.n - 1);
    frame_close(out, r, false);
}

/* Clients parse the fragments of a call strictly, so put_piece completes a call that was cut. */
static const ek_block_writer block_writer = {open_block, put_piece, put_piece, close_block};

static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    ek_anthropic *own = r->own;
    (void)choice;
    if (ek_anthropic_compacts(own)) return;
    ek_blocks_event(&own->blocks, e, &block_writer, out, r);
}

static void finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    ek_anthropic *own = r->own;
    (void)choice;
    if (ek_anthropic_compacts(own)) stream_summary(out, r);
    else ek_blocks_end(&own->blocks, &block_writer, out, r);
    frame_open(out, r, "message_delta");
    ek_buf_str(out, ",\"delta\":{");
    put_stop(out, r);
    ek_buf_str(out, "},");
    put_usage(out, r, r->choices[0]->n_tokens);
    ek_anthropic_put_edits(out, own);
    frame_close(out, r, true);
}

void ek_anthropic_error(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"}};
    const char *type = status >= 500 ? "api_error" : "invalid_request_error";
    (void)param;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == status) type = types[i].type;
    ek_buf_fmt(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    ek_put_string(out, text);
    if (code && !strncmp(code, "thread_", 7)) { /* the SDK and Claude Code then send the whole conversation */
        const bool unsupported = !strcmp(code, "thread_unsupported_request");
        ek_buf_fmt(out, ",\"details\":{\"error_code\":\"%s\"%s}", code,
                   unsupported ? ",\"unsupported\":[\"thread\"]" : "");
    }
    ek_buf_str(out, "}}");
}

static void failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    (void)r, (void)choice;
    ek_buf_str(out, "event: error\ndata: ");
    ek_anthropic_error(out, 500, text, NULL, NULL);
    ek_buf_str(out, "\n\n");
}

/* --- in one piece --- */

static void put_block(ek_buf *out, const ek_api_reply *r, const ek_answer_part *p)
{
    const ek_answer *a = &r->choices[0]->answer;
    const ek_anthropic *own = r->own;
    if (p->kind == EK_REPLY_CONTENT) {
        ek_put_text_after(out, "{\"type\":\"text\",\"text\":", a->content.data + p->from, p->n);
        ek_buf_char(out, '}');
    } else if (p->kind == EK_REPLY_REASONING) {
        const char *s = a->reasoning.data + p->from;
        ek_put_text_after(out, "{\"type\":\"thinking\",\"thinking\":", s, own->omit_thinking ? 0 : p->n);
        ek_buf_str(out, ",\"signature\":\"");
        write_signature(out, s, p->n, own->omit_thinking);
        ek_buf_str(out, "\"}");
    } else {
        const ek_answer_call *c = &a->calls[p->from];
        put_call_head(out, r, c->index, c->name, strlen(c->name));
        ek_buf_add(out, ek_buf_text(&c->args), c->args.len);
        ek_buf_add(out, ek_buf_text(&c->closing), c->closing.len);
        ek_buf_char(out, '}');
    }
}

void ek_anthropic_put_content(ek_buf *out, const ek_api_reply *r)
{
    const ek_answer *a = &r->choices[0]->answer;
    const ek_anthropic *own = r->own;
    bool first = true;
    const bool alone = ek_anthropic_compacts(own);
    ek_buf_char(out, '[');
    if (alone || own->summary) {
        ek_buf_str(out, "{\"type\":\"compaction\",");
        put_summary(out, r);
        ek_buf_char(out, '}');
        first = false;
    }
    if (alone) {
        ek_buf_char(out, ']');
        return;
    }
    for (int i = 0; i < a->n_parts; i++) {
        if (!ek_blocks_has(a, &a->parts[i])) continue;
        if (!first) ek_buf_char(out, ',');
        put_block(out, r, &a->parts[i]);
        first = false;
    }
    ek_buf_char(out, ']');
}

static void end(ek_buf *out, const ek_api_reply *r)
{
    ek_anthropic_thread_keep(r);
    if (r->stream) {
        frame_open(out, r, "message_stop");
        frame_close(out, r, false);
        return;
    }
    put_message_head(out, r);
    ek_buf_str(out, "\"content\":");
    ek_anthropic_put_content(out, r);
    ek_buf_char(out, ',');
    put_stop(out, r);
    ek_buf_char(out, ',');
    put_usage(out, r, r->choices[0]->n_tokens);
    ek_anthropic_put_edits(out, r->own);
    ek_put_extension(out, r);
    ek_buf_char(out, '}');
}

const ek_dialect ek_dialect_anthropic = {
    .vendor = EK_API_ANTHROPIC,
    .path = "/v1/messages",
    .id_prefix = EK_ANTHROPIC_ID,
    .prompt_param = "messages",
    .read = ek_anthropic_read,
    .begin = begin,
    .event = event,
    .finish = finish,
    .end = end,
    .failed = failed,
    .heartbeat = heartbeat,
    .heartbeat_progress = ping,
    .refused = ek_anthropic_refused,
    .error = ek_anthropic_error,
};
