/* Sends a session's written bytes to its client: small ones as they come, large ones alone, once the client has read
 * everything before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/routes.h"
#include "serve/session_state.h"

/* Maximum bytes of a stream, and of a whole reply, that are copied; larger ones are sent from their own memory. */
enum { COPIED = 256 << 10, COPIED_WHOLE = 64 << 10 };

static size_t buffer_of(const ek_session *s)
{
    return ek_exchange_max_unsent(s->x);
}

void ek_session_cut(ek_session *s, const char *text)
{
    ek_log(EK_LOG_INFO, "event=cut id=%s reason=\"%s\"", s->id, text);
    ek_buf_clear(&s->out);
    ek_session_end_with(s, 0, text);
    ek_session_leave_client(s, EK_OUTCOME_CUT);
}

/* Writes the omitted keywords of schemas; the log has all of them. */
void ek_session_put_ignored(ek_session *s)
{
    enum { MAX_VALUE = 1000 };
    const char *all = ek_grammar_ignored(s->req.grammar);
    size_t n = strnlen(all, MAX_VALUE + 1);
    if (n == 0) return;
    ek_buf value = {0};
    ek_buf_add(&value, all, n < MAX_VALUE ? n : MAX_VALUE);
    if (n > MAX_VALUE) ek_buf_str(&value, "...");
    ek_exchange_header(s->x, "x-evenkeel-ignored-keywords", value.data);
    ek_buf_fini(&value);
}

void ek_session_sum_outcomes(ek_session *s)
{
    for (int i = 0; i < s->n_opened; i++) {
        const ek_reply_outcome o = ek_turn_outcome(s->choices[i].turn);
        s->outcome = i == 0 || o == s->outcome ? o : EK_REPLY_PART;
    }
}

static void put_outcome(ek_session *s)
{
    static const char *const words[] = {[EK_REPLY_MISS] = "miss", [EK_REPLY_PART] = "part", [EK_REPLY_HIT] = "hit"};
    ek_session_sum_outcomes(s); /* a stored part that was wrong became a miss */
    if (s->outcome != EK_REPLY_UNASKED) ek_exchange_header(s->x, "x-evenkeel-reply-cache", words[s->outcome]);
}

/* Some APIs' replies have no id. */
static void put_receipt(ek_session *s)
{
    if (s->receipt_key) ek_exchange_header(s->x, "x-evenkeel-receipt", s->id);
}

/* For a whole reply: the first loop of its choices. */
static void put_loop(ek_session *s)
{
    char value[48];
    for (int i = 0; i < s->n_opened; i++) {
        const ek_turn_result *r = s->results[i];
        if (r->loop == EK_LOOP_NONE) continue;
        if (r->loop == EK_LOOP_OF_CALLS) snprintf(value, sizeof value, "call");
        else snprintf(value, sizeof value, "tokens; period=%d", r->loop_period);
        ek_exchange_header(s->x, "x-evenkeel-loop", value);
        return;
    }
}

static void open_stream(ek_session *s)
{
    if (ek_exchange_begun(s->x)) return;
    ek_exchange_header(s->x, "cache-control", "no-cache");
    ek_exchange_header(s->x, "x-accel-buffering", "no"); /* keeps nginx from buffering the stream */
    ek_session_put_ignored(s);
    if (s->dialect->step) ek_exchange_by_line(s->x);
    put_outcome(s);
    put_receipt(s);
    const char *type = s->dialect->stream_type;
    ek_exchange_begin(s->x, 200, type ? type : "text/event-stream; charset=utf-8");
}

/* The content of s->out, whose counted bytes are returned when it is sent. */
static ek_outgoing own_out(ek_session *s)
{
    ek_buf *b = &s->out;
    char *smaller = b->cap > 2 * b->len ? realloc(b->data, b->len + 1) : NULL;
    if (smaller) b->data = smaller, b->cap = b->len + 1;
    size_t from_held = s->promised < s->held ? s->promised : s->held, counted = s->counted + from_held;
    size_t excess = counted > b->cap ? counted - b->cap : 0; /* sizes are bounds */
    ek_request_memory_give(&s->server->memory, excess);
    s->held -= from_held;
    s->promised = s->counted = 0;
    return ek_outgoing_own(s->server, b, counted - excess);
}

/* Sends more bytes than are copied or fit the buffer: alone, when the client has read everything before. */
static void flush_large(ek_session *s)
{
    s->full = true;
    if (ek_exchange_unsent(s->x) > 0) return; /* on_drained comes */
    if (s->counted + s->promised == 0) {      /* a single event of this size */
        if (ek_request_memory_take(&s->server->memory, s->held, s->out.cap)) {
            ek_session_cut(s, ek_err_text());
            return;
        }
        s->counted = s->out.cap;
    }
    ek_outgoing bytes = own_out(s);
    ek_exchange_send_from(s->x, &bytes);
    s->last_sent = ek_now();
}

/* Sends the written bytes, in one piece or one piece per line. */
static bool send_out(ek_session *s)
{
    const char *at = s->out.data, *const end = at + s->out.len;
    while (at < end) {
        const char *line = s->dialect->step ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        const size_t n = line ? (size_t)(line + 1 - at) : (size_t)(end - at);
        if (!ek_exchange_send(s->x, at, n)) return false;
        at += n;
    }
    return true;
}

void ek_session_flush(ek_session *s)
{
    size_t n = s->out.len, buffer = buffer_of(s);
    if (n > 0) {
        open_stream(s);
        if (n > COPIED || n > buffer) {
            flush_large(s);
        } else if (!send_out(s)) {
            char text[100];
            snprintf(text, sizeof text, "the client left more than %zu bytes unread (--stream-buffer)", buffer);
            ek_session_cut(s, text);
        } else {
            if (s->out.cap > COPIED) ek_buf_fini(&s->out);
            ek_buf_clear(&s->out);
            ek_request_memory_give(&s->server->memory, s->counted);
            s->counted = s->promised = 0;
            s->last_sent = ek_now();
        }
    }
    if (!s->done || !s->x || s->out.len > 0) return;
    open_stream(s); /* the client of a resumed stream may have all events already */
    ek_exchange_end(s->x);
    ek_session_leave_client(s, EK_OUTCOME_DONE);
}

void ek_session_send_whole(ek_session *s)
{
    if (s->reply.digest) ek_exchange_header(s->x, "x-evenkeel-digest", s->reply.digest);
    ek_session_put_ignored(s);
    put_outcome(s);
    put_receipt(s);
    put_loop(s);
    const char *type = s->dialect->whole_type ? s->dialect->whole_type(&s->req) : NULL;
    if (!type) type = "application/json";
    if (s->out.len <= COPIED_WHOLE) {
        ek_exchange_reply(s->x, 200, type, ek_buf_text(&s->out), s->out.len);
    } else {
        ek_outgoing bytes = own_out(s);
        ek_exchange_reply_from(s->x, 200, type, &bytes);
    }
    ek_session_leave_client(s, EK_OUTCOME_DONE);
}

/* --- how far the prompt is read --- */

/* The reading of the first prompt. */
static ek_api_progress progress_of(const ek_session *s)
{
    ek_api_progress p = {.total = s->results[0]->n_prompt, .seconds = ek_now() - s->prepared};
    if (s->n_submitted > 0) ek_turn_reading(s->choices[0].turn, &p.cached, &p.read);
    return p;
}

static void put_progress(ek_session *s, const ek_api_progress *p)
{
    s->reply.marks = NULL; /* the event belongs to no token */
    s->dialect->progress(&s->out, &s->reply, p);
    s->reply.marks = s->marks.on ? &s->marks : NULL;
    s->read = p->read;
}

bool ek_session_put_progress(ek_session *s, bool again)
{
    const ek_api_progress p = progress_of(s);
    if (s->n_submitted == 0 || p.total == 0) return false;
    if (s->req.progress && s->dialect->progress) {
        if (p.read > s->read && (again || p.read > p.cached)) put_progress(s, &p);
        else return false;
    } else if (again && s->dialect->heartbeat_progress) {
        s->dialect->heartbeat_progress(&s->out, &p);
    } else {
        return false;
    }
    return true;
}

void ek_session_end_progress(ek_session *s)
{
    if (!s->req.progress || !s->dialect->progress) return;
    ek_api_progress p = progress_of(s);
    p.cached = s->results[0]->n_cached;
    p.read = p.total;
    put_progress(s, &p);
    s->req.progress = false;
}
