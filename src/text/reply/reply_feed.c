/* Feeding a reply: token ids, or text in which markers are spelled out. */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "text/reply/reply_state.h"

static const struct {
    const char *text;
    ek_mark mark;
} names[] = {
    {"<eos>", EK_MARK_EOS},
    {"<turn|>", EK_MARK_TURN_CLOSE},
    {"<|tool_response>", EK_MARK_RESPONSE_OPEN},
    {"<tool_response|>", EK_MARK_RESPONSE_CLOSE},
    {"<|turn>", EK_MARK_TURN_OPEN},
    {"<|tool>", EK_MARK_TOOL_OPEN},
    {"<tool|>", EK_MARK_TOOL_CLOSE},
    {"<|tool_call>", EK_MARK_CALL_OPEN},
    {"<tool_call|>", EK_MARK_CALL_CLOSE},
    {"<|\"|>", EK_MARK_QUOTE},
    {"<|channel>", EK_MARK_CHANNEL_OPEN},
    {"<channel|>", EK_MARK_CHANNEL_CLOSE},
    {"<pad>", EK_MARK_OTHER},
    {"<bos>", EK_MARK_OTHER},
    {"<unk>", EK_MARK_OTHER},
    {"<mask>", EK_MARK_OTHER},
    {"<|think|>", EK_MARK_OTHER},
    {"<|image>", EK_MARK_OTHER},
    {"<image|>", EK_MARK_OTHER},
    {"<|image|>", EK_MARK_OTHER},
    {"<|audio>", EK_MARK_OTHER},
    {"<audio|>", EK_MARK_OTHER},
    {"<|audio|>", EK_MARK_OTHER},
    {"<|video|>", EK_MARK_OTHER},
};

#define N_NAMES (sizeof names / sizeof *names)

void ek_marks_find(ek_marks *m, const ek_tokenizer *t)
{
    for (int i = 0; i < EK_MARK_COUNT; i++) m->id[i] = -1;
    for (size_t i = 0; i < N_NAMES; i++)
        if (names[i].mark != EK_MARK_OTHER) m->id[names[i].mark] = ek_tokenizer_id(t, names[i].text);
}

const char *ek_mark_text(ek_mark m)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (names[i].mark == m && m != EK_MARK_OTHER) return names[i].text;
    return "";
}

/* True if s[0..n) starts with a marker: sets *m, and *used to its length. If false, *used is n if s could begin a
 * marker, else 0. */
static bool is_spelled(const char *s, size_t n, ek_mark *m, size_t *used)
{
    bool begins = false;
    for (size_t i = 0; i < N_NAMES; i++) {
        size_t len = strlen(names[i].text);
        if (memcmp(s, names[i].text, n < len ? n : len) != 0) continue;
        if (n < len) {
            begins = true;
            continue;
        }
        *m = names[i].mark;
        *used = len;
        return true;
    }
    *used = begins ? n : 0;
    return false;
}

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
        if (is_spelled(s + i, len - i, &m, &used)) {
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
