/* Feeding a reply: token ids, or text in which markers are spelled out. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/reply/reply_marks.h"
#include "text/reply/reply_state.h"

ek_reply *ek_reply_open(const ek_tokenizer *t, const ek_reply_opts *opts)
{
    ek_reply *r = ek_alloc(sizeof *r);
    r->t = t;
    r->opts = *opts;
    r->fresh = true;
    if (t) ek_marks_find(&r->marks, t);
    return r;
}

void ek_reply_close(ek_reply *r)
{
    if (!r) return;
    ek_args_fini(&r->args);
    ek_buf *all[] = {&r->text, &r->lead, &r->header, &r->head, &r->raw, &r->spelled, &r->event};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ek_buf_fini(all[i]);
    free(r);
}

static ek_mark mark_of(const ek_reply *r, int32_t id)
{
    if (!ek_tokenizer_is_special(r->t, id)) return EK_MARK_TEXT;
    for (int m = 0; m < EK_MARK_COUNT; m++)
        if (r->marks.id[m] == id) return (ek_mark)m;
    return EK_MARK_OTHER;
}

void ek_reply_start(ek_reply *r, const int32_t *prompt, size_t n)
{
    size_t i = n;
    ek_mark m = EK_MARK_TEXT;
    while (i > 0) {
        m = mark_of(r, prompt[--i]);
        if (m == EK_MARK_CALL_OPEN || m == EK_MARK_RESPONSE_OPEN || m == EK_MARK_RESPONSE_CLOSE ||
            m == EK_MARK_CHANNEL_OPEN || m == EK_MARK_CHANNEL_CLOSE || m == EK_MARK_TURN_OPEN ||
            m == EK_MARK_TURN_CLOSE)
            break;
        m = EK_MARK_TEXT;
    }
    if (m == EK_MARK_CHANNEL_CLOSE && i + 1 == n) r->opts.lenient_start = true;
    if (m != EK_MARK_CHANNEL_OPEN) return;
    ek_reply_open_channel(r);
    for (i++; i < n; i++) {
        size_t len;
        const char *bytes = ek_tokenizer_bytes(r->t, prompt[i], &len);
        const char *end = memchr(bytes, '\n', len);
        ek_buf_add(&r->header, bytes, end ? (size_t)(end - bytes) : len);
        if (!end) continue;
        r->state = ek_reply_header_is_thought(r) ? REASONING : CONTENT;
        return;
    }
}

static ek_token_kind kind_of(const ek_reply *r)
{
    switch (r->state) {
    case CONTENT: return EK_TOKEN_CONTENT;
    case HEADER:
    case REASONING: return EK_TOKEN_REASONING;
    case CALL_HEAD:
    case CALL_ARGS:
    case CALL_BAD: return EK_TOKEN_CALL;
    default: return EK_TOKEN_MARKUP;
    }
}

ek_token_kind ek_reply_feed(ek_reply *r, int32_t token)
{
    if (r->state == STOPPED || r->ended) return EK_TOKEN_MARKUP;
    ek_mark m = mark_of(r, token);
    ek_token_kind before = kind_of(r);
    if (m == EK_MARK_TEXT) {
        size_t n;
        const char *bytes = ek_tokenizer_bytes(r->t, token, &n);
        ek_reply_on_bytes(r, bytes, n);
        /* The text that begins the visible part, or turns out to open the thought, is that. */
        return before == EK_TOKEN_MARKUP || before == EK_TOKEN_CONTENT ? kind_of(r) : before;
    }
    ek_reply_on_mark(r, m);
    ek_token_kind after = kind_of(r);
    if (m == EK_MARK_CHANNEL_OPEN || (m == EK_MARK_CHANNEL_CLOSE && before == EK_TOKEN_REASONING))
        return EK_TOKEN_REASONING;
    if (before == EK_TOKEN_CALL && !ek_reply_is_stop(r, m)) return EK_TOKEN_CALL;
    return m == EK_MARK_CALL_OPEN && after == EK_TOKEN_CALL ? EK_TOKEN_CALL : EK_TOKEN_MARKUP;
}

void ek_reply_feed_text(ek_reply *r, const char *text, size_t n)
{
    if (r->state == STOPPED || r->ended) return;
    ek_buf_add(&r->spelled, text, n);
    const char *s = ek_buf_text(&r->spelled);
    size_t len = r->spelled.len, done = 0, i = 0;
    while (i < len) {
        const char *open = memchr(s + i, '<', len - i);
        if (!open) {
            i = len;
            break;
        }
        i = (size_t)(open - s);
        size_t used;
        ek_mark m;
        if (ek_mark_spelled(s + i, len - i, &m, &used)) {
            ek_reply_on_bytes(r, s + done, i - done);
            ek_reply_on_mark(r, m);
            done = i += used;
        } else if (used) {
            break; /* more text could make it a marker */
        } else {
            i++;
        }
    }
    ek_reply_on_bytes(r, s + done, i - done);
    memmove(r->spelled.data, r->spelled.data + i, len - i);
    r->spelled.len = len - i;
}

void ek_reply_end(ek_reply *r, bool truncated)
{
    if (r->state == STOPPED || r->ended) return;
    if (r->spelled.len) ek_reply_on_bytes(r, r->spelled.data, r->spelled.len);
    ek_buf_clear(&r->spelled);
    ek_reply_drain(r);
    ek_reply_flush(r, truncated);
    r->ended = true;
}

bool ek_reply_stopped(const ek_reply *r)
{
    return r->state == STOPPED;
}

int ek_reply_calls(const ek_reply *r)
{
    return r->n_done;
}

int ek_reply_malformed(const ek_reply *r)
{
    return r->n_malformed;
}
