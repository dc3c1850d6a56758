/* Writes responses. Their items are the blocks of the reply: reasoning, messages and calls in the model's order. A
 * stream opens, fills and closes one item after the other, between the events of the response. */
#include <string.h>

#include "base/alloc.h"
#include "serve/api/context.h"
#include "serve/api/openai.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

static bool is_limited(const ek_turn_result *t)
{
    return t->end == EK_END_MAX_TOKENS || t->end == EK_END_CONTEXT || t->end == EK_END_UNCACHED ||
           t->end == EK_END_LOOP;
}

/* --- items --- */

static const char *prefix_of(int kind)
{
    return kind == EK_REPLY_CONTENT ? "msg_" : kind == EK_REPLY_REASONING ? "rs_" : "fc_";
}

/* {"type":"output_text","text":…,"annotations":[],"logprobs":[…]} */
static void put_text_part(ek_buf *out, const char *s, size_t n, const ek_buf *logprobs)
{
    ek_put_text_after(out, "{\"type\":\"output_text\",\"text\":", s, n);
    ek_buf_fmt(out, ",\"annotations\":[],\"logprobs\":%s}", logprobs && logprobs->len ? logprobs->data : "[]");
}

static void put_reasoning_part(ek_buf *out, const ek_api_reply *r, const char *s, size_t n)
{
    const ek_responses *o = r->own;
    ek_buf_fmt(out, "{\"type\":\"%s\",\"text\":", o->summary ? "summary_text" : "reasoning_text");
    ek_json_quote(out, s, n);
    ek_buf_char(out, '}');
}

static void put_message(ek_buf *out, const ek_api_reply *r, int index, const char *s, size_t n, const ek_buf *logprobs,
                        const char *status)
{
    ek_buf_str(out, "{\"id\":");
    ek_responses_put_id(out, r, "msg_", index);
    ek_buf_fmt(out, ",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[", status);
    if (s) put_text_part(out, s, n, logprobs);
    ek_buf_str(out, "]}");
}

static void put_reasoning(ek_buf *out, const ek_api_reply *r, int index, const char *s, size_t n)
{
    const ek_responses *o = r->own;
    ek_buf_str(out, "{\"id\":");
    ek_responses_put_id(out, r, "rs_", index);
    ek_buf_str(out, ",\"type\":\"reasoning\",\"summary\":[");
    if (s && o->summary) put_reasoning_part(out, r, s, n);
    ek_buf_str(out, "],\"content\":[");
    if (s && !o->summary) put_reasoning_part(out, r, s, n);
    ek_buf_char(out, ']');
    if (s && o->encrypt) {
        ek_buf_str(out, ",\"encrypted_content\":\"");
        ek_seal(out, s, n);
        ek_buf_char(out, '"');
    }
    ek_buf_char(out, '}');
}

/* written: with the summary. A summary that a limit cut is left out, so that it replaces nothing. A response then has
 * status incomplete; a response.compaction has no such status and contains the beginning. */
static void put_compaction(ek_buf *out, const ek_api_reply *r, int index, bool written)
{
    const ek_responses *o = r->own;
    const char *text = o->stands_for ? ek_buf_text(&o->stands_for->text) : NULL;
    size_t n = o->stands_for ? o->stands_for->text.len : 0;
    ek_buf_str(out, "{\"id\":");
    ek_responses_put_id(out, r, "cmp_", index);
    ek_buf_str(out, ",\"type\":\"compaction\",\"encrypted_content\":\"");
    const bool whole = o->stands_for || ek_compaction_of(r->choices[0], &text, &n);
    if (written) ek_seal(out, text, whole || o->compact ? n : 0);
    ek_buf_str(out, "\"}");
}

/* Writes a text part's log-probabilities: of the tokens that begin in it. from: index of the first, which moves on. */
static void write_logprobs(ek_buf *out, const ek_api_reply *r, const ek_answer_part *p, int *from)
{
    const ek_turn_result *t = r->choices[0];
    if (!r->turn->logprobs) return;
    int end = *from;
    while (end < t->n_logprobs && t->logprobs[end].from < p->from + p->n) end++;
    ek_openai_logprobs(out, r, 0, *from, end);
    *from = end;
}

static void put_part(ek_buf *out, const ek_api_reply *r, int index, const ek_answer_part *p, bool last, int *logprob)
{
    const ek_turn_result *t = r->choices[0];
    const ek_answer *a = &t->answer;
    if (p->kind == EK_REPLY_CONTENT) {
        ek_buf logprobs = {0};
        write_logprobs(&logprobs, r, p, logprob);
        put_message(out, r, index, a->content.data + p->from, p->n, &logprobs,
                    last && is_limited(t) ? "incomplete" : "completed");
        ek_buf_fini(&logprobs);
    } else if (p->kind == EK_REPLY_REASONING) {
        put_reasoning(out, r, index, a->reasoning.data + p->from, p->n);
    } else {
        const ek_answer_call *c = &a->calls[p->from];
        const ek_buf name = {.data = c->name, .len = strlen(c->name)};
        ek_responses_put_call(out, r, &(ek_responses_call){index, c->index, &name, &c->args, &c->closing});
    }
}

/* Notes the item that was just written, for a stored response: its id comes first. */
static void note_item(ek_responses *o, const ek_buf *out, size_t from)
{
    static const char head[] = "{\"id\":\"";
    const char *id = out->data + from + sizeof head - 1;
    ek_stored_item where = {.from = from, .n = out->len - from, .output = true};
    if (where.n < sizeof head || memcmp(out->data + from, head, sizeof head - 1) != 0) return;
    ek_response_store *store = o->store ? o->store : o->conversations;
    if (store) ek_response_store_note(store, o->owner, &o->items, id, strcspn(id, "\""), where);
}

static void put_output(ek_buf *out, const ek_api_reply *r)
{
    const ek_answer *a = &r->choices[0]->answer;
    ek_responses *o = r->own;
    int index = 0, logprob = 0;
    o->items.n = o->n_inputs;
    ek_buf_char(out, '[');
    if (o->compacting || o->stands_for) {
        const size_t at = out->len;
        put_compaction(out, r, index++, true);
        note_item(o, out, at);
    }
    if (o->compacting) {
        ek_buf_char(out, ']');
        return;
    }
    for (int i = 0; i < a->n_parts; i++) {
        if (!ek_blocks_has(a, &a->parts[i])) continue;
        if (index > 0) ek_buf_char(out, ',');
        size_t from = out->len;
        put_part(out, r, index++, &a->parts[i], i + 1 == a->n_parts, &logprob);
        note_item(o, out, from);
    }
    ek_buf_char(out, ']');
}

/* --- the response --- */

static void put_usage(ek_buf *out, const ek_api_reply *r)
{
    const ek_turn_result *t = r->choices[0];
    const ek_api_usage u = ek_api_usage_of(r);
    ek_buf_fmt(out, "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0",
               t->n_prompt, t->n_cached);
    ek_put_media_usage(out, &u);
    ek_buf_fmt(out, "},\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d}",
               t->n_tokens, t->n_reasoning, t->n_prompt + t->n_tokens);
}

void ek_responses_put(ek_buf *out, const ek_api_reply *r, const char *status, const char *error)
{
    ek_responses *o = r->own;
    const ek_turn_result *t = r->choices[0];
    bool running = !strcmp(status, "in_progress") || !strcmp(status, "queued"), ended = !strcmp(status, "cancelled");
    bool incomplete = !strcmp(status, "incomplete");
    ek_put_string_after(out, "{\"id\":", r->id);
    ek_buf_fmt(out, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":", (long long)r->created,
               status);
    ek_put_string(out, r->model);
    ek_buf_str(out, ",\"error\":");
    if (error) {
        ek_put_string_after(out, "{\"code\":\"server_error\",\"message\":", error);
        ek_buf_char(out, '}');
    } else {
        ek_buf_str(out, "null");
    }
    ek_buf_fmt(out, ",\"incomplete_details\":%s",
               !incomplete                 ? "null"
               : t->end == EK_END_UNCACHED ? "{\"reason\":\"cache_threshold\"}"
                                           : "{\"reason\":\"max_output_tokens\"}");
    ek_buf_add(out, ek_buf_text(&o->echo), o->echo.len);
    ek_buf_str(out, ",\"output\":");
    o->output_from = out->len;
    if (running || ended || error) ek_buf_str(out, "[]"); /* events have sent the items already */
    else put_output(out, r);
    o->n_output = out->len - o->output_from;
    ek_buf_str(out, ",\"usage\":");
    if (running || ended || t->end == EK_END_ERROR) ek_buf_str(out, "null");
    else put_usage(out, r);
    ek_put_string_after(out, ",\"system_fingerprint\":", r->fingerprint);
    if (!running) ek_put_extension(out, r);
    ek_buf_char(out, '}');
}

/* --- a stream --- */

void ek_responses_frame_open(ek_buf *out, const ek_api_reply *r, const char *type)
{
    ek_responses *o = r->own;
    ek_event_begin(out, r);
    ek_buf_fmt(out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%d", type, type,
               o->n_events++);
}

void ek_responses_frame_close(ek_buf *out, const ek_api_reply *r)
{
    ek_event_extend(out, r, false);
    ek_buf_str(out, "}\n\n");
    ek_event_end(out, r);
}

/* Whether the open item is a thought that is sent as its summary. */
static bool is_summary(const ek_responses *o)
{
    return o->summary && o->blocks.open == EK_REPLY_REASONING;
}

void ek_responses_item_open(ek_buf *out, const ek_api_reply *r, const char *type, const char *prefix)
{
    const ek_responses *o = r->own;
    ek_responses_frame_open(out, r, type);
    ek_buf_str(out, ",\"item_id\":");
    ek_responses_put_id(out, r, prefix, o->blocks.n - 1);
    ek_buf_fmt(out, ",\"output_index\":%d", o->blocks.n - 1);
}

static void item_frame_open(ek_buf *out, const ek_api_reply *r, const char *type)
{
    const ek_responses *o = r->own;
    ek_responses_item_open(out, r, type, prefix_of(o->blocks.open));
    ek_buf_fmt(out, ",\"%s\":0", is_summary(o) ? "summary_index" : "content_index");
}

/* A frame about the open item's only part. */
static void part_frame_open(ek_buf *out, const ek_api_reply *r, bool done)
{
    static const char *const types[2][2] = {{"content_part.added", "content_part.done"},
                                            {"reasoning_summary_part.added", "reasoning_summary_part.done"}};
    item_frame_open(out, r, types[is_summary(r->own)][done]);
    ek_buf_str(out, ",\"part\":");
}

/* Opens a frame about the text of the open item's part. */
static void text_frame_open(ek_buf *out, const ek_api_reply *r, bool done)
{
    ek_responses *o = r->own;
    static const char *const types[3][2] = {{"output_text.delta", "output_text.done"},
                                            {"reasoning_text.delta", "reasoning_text.done"},
                                            {"reasoning_summary_text.delta", "reasoning_summary_text.done"}};
    item_frame_open(out, r, types[o->blocks.open == EK_REPLY_CONTENT ? 0 : 1 + is_summary(o)][done]);
}

static void put_state(ek_buf *out, const ek_api_reply *r, const char *type, const char *status, const char *error)
{
    ek_responses_frame_open(out, r, type);
    ek_buf_str(out, ",\"response\":");
    ek_responses_put(out, r, status, error);
    ek_responses_frame_close(out, r);
}

static void open_item(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e)
{
    ek_responses *o = r->own;
    int index = o->blocks.n - 1;
    if (e->kind == EK_REPLY_CALL_START) {
        ek_responses_open_call(out, r, e);
        return;
    }
    ek_responses_frame_open(out, r, "output_item.added");
    ek_buf_fmt(out, ",\"output_index\":%d,\"item\":", index);
    if (e->kind == EK_REPLY_CONTENT) put_message(out, r, index, NULL, 0, NULL, "in_progress");
    else put_reasoning(out, r, index, NULL, 0);
    ek_responses_frame_close(out, r);
    part_frame_open(out, r, false);
    if (e->kind == EK_REPLY_CONTENT) put_text_part(out, "", 0, NULL);
    else put_reasoning_part(out, r, "", 0);
    ek_responses_frame_close(out, r);
}

static void put_piece(ek_buf *out, const ek_api_reply *r, const char *s, size_t n)
{
    ek_responses *o = r->own;
    int kind = o->blocks.open;
    if (kind == EK_REPLY_CALL_START) {
        ek_responses_call_piece(out, r, s, n);
        return;
    }
    text_frame_open(out, r, false);
    ek_put_text_after(out, ",\"delta\":", s, n);
    if (kind == EK_REPLY_CONTENT) {
        ek_buf logprobs = {0};
        const ek_answer_part all = {.n = r->choices[0]->answer.content.len};
        write_logprobs(&logprobs, r, &all, &o->n_logprobs);
        ek_buf_fmt(out, ",\"logprobs\":%s", logprobs.len ? logprobs.data : "[]");
        ek_buf_fini(&logprobs);
    }
    ek_responses_frame_close(out, r);
}

/* Closes an item of text, whose part of the answer is complete. */
static void close_text(ek_buf *out, const ek_api_reply *r)
{
    ek_responses *o = r->own;
    const ek_answer *a = &r->choices[0]->answer;
    bool content = o->blocks.open == EK_REPLY_CONTENT;
    const ek_answer_part *p = ek_blocks_last(a, content ? EK_REPLY_CONTENT : EK_REPLY_REASONING);
    const char *s = p ? (content ? a->content.data : a->reasoning.data) + p->from : "";
    size_t n = p ? p->n : 0;
    ek_buf logprobs = {0};
    int index = o->blocks.n - 1, from = 0;
    while (p && content && from < r->choices[0]->n_logprobs && r->choices[0]->logprobs[from].from < p->from) from++;
    int first = from;
    if (p && content) write_logprobs(&logprobs, r, p, &from);
    text_frame_open(out, r, true);
    ek_put_text_after(out, ",\"text\":", s, n);
    if (content) ek_buf_fmt(out, ",\"logprobs\":%s", logprobs.len ? logprobs.data : "[]");
    ek_responses_frame_close(out, r);
    part_frame_open(out, r, true);
    if (content) put_text_part(out, s, n, &logprobs);
    else put_reasoning_part(out, r, s, n);
    if (is_summary(o) && is_limited(r->choices[0])) ek_buf_str(out, ",\"status\":\"incomplete\"");
    ek_responses_frame_close(out, r);
    ek_responses_frame_open(out, r, "output_item.done");
    ek_buf_fmt(out, ",\"output_index\":%d,\"item\":", index);
    if (p) put_part(out, r, index, p, p == &a->parts[a->n_parts - 1], &first);
    ek_responses_frame_close(out, r);
    ek_buf_fini(&logprobs);
}

static void close_item(ek_buf *out, const ek_api_reply *r)
{
    ek_responses *o = r->own;
    if (o->blocks.open == EK_REPLY_CALL_START) ek_responses_close_call(out, r);
    else close_text(out, r);
    o->cut = false;
}

/* The written part of the call stays. */
static void cut_item(ek_buf *out, const ek_api_reply *r, const char *closing, size_t n)
{
    ek_responses *o = r->own;
    (void)out;
    ek_buf_add(&o->closing, closing, n);
    o->cut = true;
}

static const ek_block_writer block_writer = {open_item, put_piece, cut_item, close_item};

/* The item of a summary, the first of its response. */
static void put_summary_frames(ek_buf *out, const ek_api_reply *r)
{
    for (int done = 0; done < 2; done++) {
        ek_responses_frame_open(out, r, done ? "output_item.done" : "output_item.added");
        ek_buf_str(out, ",\"output_index\":0,\"item\":");
        put_compaction(out, r, 0, done);
        ek_responses_frame_close(out, r);
    }
}

static void begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    ek_responses *o = r->own;
    (void)choice;
    o->begun = true;
    if (!o->queued) put_state(out, r, "created", "in_progress", NULL);
    put_state(out, r, "in_progress", "in_progress", NULL);
    if (!o->stands_for) return;
    put_summary_frames(out, r);
    o->blocks.n++;
}

static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    ek_responses *o = r->own;
    (void)choice;
    if (o->compacting) return;
    ek_blocks_event(&o->blocks, e, &block_writer, out, r);
}

static void finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    ek_responses *o = r->own;
    (void)choice;
    if (o->compacting) put_summary_frames(out, r);
    else ek_blocks_end(&o->blocks, &block_writer, out, r);
}

static void failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    ek_responses *o = r->own;
    if (!o->begun) begin(out, r, choice);
    put_state(out, r, "failed", "failed", text);
    if (!o->background) return;
    ek_buf response = {0};
    ek_responses_put(&response, r, "failed", text);
    ek_responses_keep(r, &response);
    ek_buf_fini(&response);
}

static void end(ek_buf *out, const ek_api_reply *r)
{
    ek_responses *o = r->own;
    const char *status = is_limited(r->choices[0]) ? "incomplete" : "completed";
    ek_buf response = {0};
    ek_responses_put(&response, r, status, NULL);
    if (r->stream) {
        ek_responses_frame_open(out, r, status);
        ek_buf_str(out, ",\"response\":");
    }
    ek_buf_add(out, response.data, response.len);
    if (r->stream) ek_responses_frame_close(out, r);
    ek_responses_extend(o, &response);
    ek_responses_keep(r, &response);
    ek_buf_fini(&response);
}

static void compact_end(ek_buf *out, const ek_api_reply *r)
{
    const ek_responses *o = r->own;
    ek_put_string_after(out, "{\"id\":", r->id);
    ek_buf_fmt(out, ",\"object\":\"response.compaction\",\"created_at\":%lld,\"model\":", (long long)r->created);
    ek_put_string(out, r->model);
    ek_buf_str(out, ",\"output\":[");
    ek_buf_add(out, ek_buf_text(&o->users), o->users.len);
    put_compaction(out, r, 0, true);
    ek_buf_str(out, "],\"usage\":");
    put_usage(out, r);
    ek_put_extension(out, r);
    ek_buf_char(out, '}');
}

#define REPLIES                                                                                              \
    .id_prefix = EK_RESPONSES_ID, .prompt_param = "input", .begin = begin, .event = event, .finish = finish, \
    .failed = failed, .heartbeat = ek_openai_heartbeat, .error = ek_openai_error

const ek_dialect ek_dialect_responses = {.path = "/v1/responses",
                                         .repeats = true,
                                         .read = ek_responses_read,
                                         .end = end,
                                         .queued = ek_responses_queued,
                                         .cancelled = ek_responses_cancelled,
                                         REPLIES};

const ek_dialect ek_dialect_responses_compact = {
    .path = "/v1/responses/compact", .read = ek_responses_read_compact, .end = compact_end, REPLIES};
