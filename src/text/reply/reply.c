#define _GNU_SOURCE /* memmem */
/* The state machine: tokens or spelled-out text in, events out. */
#include "text/reply/reply_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/reply/call_args.h"

static void send(ek_reply *r, ek_reply_kind kind, const char *text, size_t n)
{
    ek_buf_clear(&r->event);
    ek_buf_add(&r->event, text, n);
    ek_reply_event e = {.kind = kind, .text = r->event.data, .n = n, .call = r->n_started - 1, .mark = EK_MARK_TEXT};
    if (r->opts.sink) r->opts.sink(r->opts.arg, &e);
}

static void send_content(ek_reply *r, const char *s, size_t n)
{
    if (n) send(r, EK_REPLY_CONTENT, s, n);
}

static void stop(ek_reply *r, ek_mark mark)
{
    r->state = STOPPED;
    ek_reply_event e = {.kind = EK_REPLY_STOP, .text = "", .call = -1, .mark = mark};
    if (r->opts.sink) r->opts.sink(r->opts.arg, &e);
}

/* --- text ------------------------------------------------------------------------------- */

static void on_text(ek_reply *r, const char *s, size_t n);

static void flush_lead(ek_reply *r)
{
    send_content(r, ek_buf_text(&r->lead), r->lead.len);
    ek_buf_clear(&r->lead);
    r->fresh = false;
}

static void on_content(ek_reply *r, const char *s, size_t n)
{
    static const char opening[] = "thought\n";
    const size_t len = sizeof opening - 1;
    if (!r->fresh || !r->opts.lenient_start) {
        r->fresh = false;
        send_content(r, s, n);
        return;
    }
    size_t had = r->lead.len, take = n < len - had ? n : len - had;
    ek_buf_add(&r->lead, s, take);
    if (memcmp(r->lead.data, opening, r->lead.len) != 0) {
        ek_buf_add(&r->lead, s + take, n - take); /* the last character may be incomplete */
        flush_lead(r);
    } else if (r->lead.len == len) {
        ek_buf_clear(&r->lead);
        r->fresh = false;
        r->state = REASONING;
        r->newline = false;
        if (n > take) on_text(r, s + take, n - take);
    }
}

bool ek_reply_header_is_thought(const ek_reply *r)
{
    const char *s = ek_buf_text(&r->header);
    size_t n = r->header.len;
    ek_utf8_strip(&s, &n);
    return n == 7 && memcmp(s, "thought", 7) == 0;
}

static void on_header(ek_reply *r, const char *s, size_t n)
{
    const char *end = memchr(s, '\n', n);
    ek_buf_add(&r->header, s, end ? (size_t)(end - s) : n);
    if (!end) return;
    r->state = ek_reply_header_is_thought(r) ? REASONING : CONTENT;
    r->newline = false;
    size_t used = (size_t)(end - s) + 1;
    if (n > used) on_text(r, s + used, n - used);
}

static void on_reasoning(ek_reply *r, const char *s, size_t n)
{
    if (r->newline) send(r, EK_REPLY_REASONING, "\n", 1);
    r->newline = s[n - 1] == '\n';
    if (r->newline) n--;
    if (n) send(r, EK_REPLY_REASONING, s, n);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* After a call white space is dropped, except blanks at the beginning of a line of text. */
static void on_after_call(ek_reply *r, const char *s, size_t n)
{
    ek_buf_add(&r->lead, s, n);
    size_t start = 0, i = 0;
    for (; i < r->lead.len && is_space(r->lead.data[i]); i++)
        if (r->lead.data[i] == '\n') start = i + 1;
    if (i == r->lead.len) return;
    r->state = CONTENT;
    r->fresh = false;
    send_content(r, r->lead.data + start, r->lead.len - start);
    ek_buf_clear(&r->lead);
}

/* --- calls ------------------------------------------------------------------------------ */

static void open_call(ek_reply *r)
{
    r->state = CALL_HEAD;
    ek_buf_clear(&r->lead);
    ek_buf_clear(&r->head);
    ek_buf_clear(&r->raw);
    ek_buf_str(&r->raw, ek_mark_text(EK_MARK_CALL_OPEN));
}

/* The name in the text before the arguments: "call:name", ":name" or "name". Another form that some models produce,
 * "call:name:BEGIN_ARG…", has its arguments elsewhere. */
static bool call_name(const ek_reply *r, const char **name, size_t *n)
{
    const char *s = ek_buf_text(&r->head);
    size_t len = r->head.len;
    ek_utf8_strip(&s, &len);
    if (len >= 5 && memcmp(s, "call:", 5) == 0) s += 5, len -= 5;
    else if (len > 0 && s[0] == ':') s++, len--;
    ek_utf8_strip(&s, &len);
    if (len == 0 || s[len - 1] == ':' || memmem(s, len, ":BEGIN_ARG", 10)) return false;
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)s[i] < ' ' || s[i] == 0x7F || strchr("\"'`<>()[]}=,;\\", s[i])) return false;
    *name = s;
    *n = len;
    return true;
}

/* The current call has a name, so it starts. */
static void start_call(ek_reply *r)
{
    const char *name;
    size_t len;
    const bool named = call_name(r, &name, &len);
    EK_ASSERT(named);
    r->n_started++;
    send(r, EK_REPLY_CALL_START, name, len);
}

static void send_args(ek_reply *r)
{
    if (r->args.out.len == 0) return;
    send(r, EK_REPLY_CALL_ARGS, r->args.out.data, r->args.out.len);
    ek_buf_clear(&r->args.out);
}

static void stream_args(ek_reply *r)
{
    if (r->opts.stream_calls) send_args(r);
}

static void on_call_head(ek_reply *r, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] != '{' && s[i] != '(') i++;
    ek_buf_add(&r->head, s, i);
    ek_buf_add(&r->raw, s, i);
    if (i == n) return;
    const char *name;
    size_t len;
    if (!call_name(r, &name, &len)) {
        r->state = CALL_BAD;
        ek_buf_add(&r->raw, s + i, n - i);
        return;
    }
    char *copy = ek_alloc(len + 1);
    memcpy(copy, name, len);
    ek_args_begin(&r->args, s[i], ek_schema_of_tool(r->opts.tools, copy));
    free(copy);
    if (r->opts.stream_calls) start_call(r);
    r->state = CALL_ARGS;
    ek_buf_char(&r->raw, s[i]);
    if (i + 1 < n) on_text(r, s + i + 1, n - i - 1);
    else stream_args(r);
}

static void send_closing(ek_reply *r, ek_reply_kind kind)
{
    ek_buf closing = {0};
    send_args(r);
    ek_args_closing(&r->args, &closing);
    send(r, kind, ek_buf_text(&closing), closing.len);
    ek_buf_fini(&closing);
}

/* The limit came inside the current call. Its sent part stays; without a name nothing was sent. */
static void cut_call(ek_reply *r)
{
    if (r->state == CALL_ARGS) {
        if (!r->opts.stream_calls) start_call(r);
        send_closing(r, EK_REPLY_CALL_CUT);
    }
    r->state = AFTER_CALL;
    ek_buf_clear(&r->lead);
}

/* The call in hand ended and could not be understood. It comes back as content. */
static void call_failed(ek_reply *r)
{
    if (r->state == CALL_ARGS && r->opts.stream_calls) send_closing(r, EK_REPLY_CALL_DROP);
    r->state = CONTENT;
    r->fresh = false;
    r->n_malformed++;
    send_content(r, ek_buf_text(&r->raw), r->raw.len);
}

/* closed: by its marker; otherwise something else came in its place. */
static void end_call(ek_reply *r, bool closed)
{
    bool good = r->state == CALL_ARGS && (closed ? ek_args_close(&r->args) : ek_args_cut(&r->args));
    if (closed) ek_buf_str(&r->raw, ek_mark_text(EK_MARK_CALL_CLOSE));
    if (!good) {
        call_failed(r);
    } else {
        if (!r->opts.stream_calls) start_call(r);
        send_args(r);
        r->n_done++;
        send(r, EK_REPLY_CALL_END, "", 0);
    }
    r->state = AFTER_CALL;
    ek_buf_clear(&r->lead);
    if (good && r->opts.one_call) stop(r, EK_MARK_CALL_CLOSE);
}

static void on_text(ek_reply *r, const char *s, size_t n)
{
    if (n == 0) return;
    switch (r->state) {
    case CONTENT: on_content(r, s, n); break;
    case HEADER: on_header(r, s, n); break;
    case REASONING: on_reasoning(r, s, n); break;
    case CALL_HEAD: on_call_head(r, s, n); break;
    case CALL_ARGS:
        ek_buf_add(&r->raw, s, n);
        ek_args_text(&r->args, s, n);
        stream_args(r);
        break;
    case CALL_BAD: ek_buf_add(&r->raw, s, n); break;
    case AFTER_CALL: on_after_call(r, s, n); break;
    case STOPPED: break;
    }
}

/* --- markers ---------------------------------------------------------------------------- */

bool ek_reply_is_stop(const ek_reply *r, ek_mark m)
{
    return !r->opts.ignore_eos && (m == EK_MARK_EOS || m == EK_MARK_TURN_CLOSE || m == EK_MARK_RESPONSE_OPEN);
}

void ek_reply_open_channel(ek_reply *r)
{
    r->state = HEADER;
    r->fresh = false;
    ek_buf_clear(&r->lead);
    ek_buf_clear(&r->header);
}

/* CONTENT, HEADER and AFTER_CALL differ in what they do with text, hardly with markers. */
static void mark_in_content(ek_reply *r, ek_mark m)
{
    if (r->state == CONTENT && r->lead.len) flush_lead(r);
    if (ek_reply_is_stop(r, m)) stop(r, m);
    else if (m == EK_MARK_CHANNEL_OPEN) ek_reply_open_channel(r);
    else if (m == EK_MARK_CALL_OPEN && r->opts.tools_active) open_call(r);
    else if (m == EK_MARK_CHANNEL_CLOSE && r->state == HEADER) r->state = CONTENT;
}

static void mark_in_reasoning(ek_reply *r, ek_mark m)
{
    bool call = m == EK_MARK_CALL_OPEN && r->opts.tools_active;
    bool closes = m == EK_MARK_CHANNEL_CLOSE || call;
    if (r->newline && (ek_reply_is_stop(r, m) || m == EK_MARK_CHANNEL_OPEN)) send(r, EK_REPLY_REASONING, "\n", 1);
    if (closes || ek_reply_is_stop(r, m) || m == EK_MARK_CHANNEL_OPEN) r->newline = false;
    if (ek_reply_is_stop(r, m)) stop(r, m);
    else if (m == EK_MARK_CHANNEL_OPEN) ek_reply_open_channel(r);
    else if (call) open_call(r);
    else if (closes) r->state = CONTENT;
}

static bool only_space(const ek_buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        if (!is_space(b->data[i])) return false;
    return true;
}

static void mark_in_call(ek_reply *r, ek_mark m)
{
    if (ek_reply_is_stop(r, m)) {
        end_call(r, false);
        if (r->state != STOPPED) stop(r, m);
    } else if (m == EK_MARK_CALL_CLOSE) {
        end_call(r, true);
    } else if (m == EK_MARK_CALL_OPEN && !(r->state == CALL_ARGS && ek_args_in_text(&r->args))) {
        if (!(r->state == CALL_HEAD && only_space(&r->head))) end_call(r, false);
        if (r->state != STOPPED) open_call(r);
    } else {
        ek_buf_str(&r->raw, ek_mark_text(m));
        if (m != EK_MARK_QUOTE) return;
        if (r->state == CALL_HEAD) r->state = CALL_BAD;
        if (r->state == CALL_ARGS) {
            ek_args_quote(&r->args);
            stream_args(r);
        }
    }
}

void ek_reply_drain(ek_reply *r)
{
    ek_buf_clear(&r->text);
    ek_utf8_stream_end(&r->utf8, &r->text);
    on_text(r, ek_buf_text(&r->text), r->text.len);
}

void ek_reply_on_mark(ek_reply *r, ek_mark m)
{
    ek_reply_drain(r);
    switch (r->state) {
    case CONTENT:
    case HEADER:
    case AFTER_CALL: mark_in_content(r, m); break;
    case REASONING: mark_in_reasoning(r, m); break;
    case CALL_HEAD:
    case CALL_ARGS:
    case CALL_BAD: mark_in_call(r, m); break;
    case STOPPED: break;
    }
}

void ek_reply_on_bytes(ek_reply *r, const char *s, size_t n)
{
    ek_buf_clear(&r->text);
    ek_utf8_stream_add(&r->utf8, &r->text, s, n);
    /* on_text may run the machine through several states but never comes back here. */
    on_text(r, ek_buf_text(&r->text), r->text.len);
}

void ek_reply_flush(ek_reply *r, bool truncated)
{
    switch (r->state) {
    case CONTENT: flush_lead(r); break;
    case REASONING:
        if (r->newline) send(r, EK_REPLY_REASONING, "\n", 1);
        break;
    case CALL_HEAD:
    case CALL_ARGS:
    case CALL_BAD: {
        bool whole = r->state == CALL_BAD || (r->state == CALL_ARGS && (r->args.bad || ek_args_done(&r->args)));
        if (truncated && !whole) cut_call(r);
        else end_call(r, false);
        break;
    }
    default: break;
    }
}
