#include "chat/turn.h"

enum { BEFORE = 6, AFTER = 10 }; /* tokens around the place */

/* Writes tokens [from, to) as a quoted line. Bytes that are not printable ASCII become \xNN, so that different tokens
 * never look alike. */
static void quote(ek_buf *out, const ek_tokenizer *t, const int32_t *token, int from, int to)
{
    ek_buf_char(out, '"');
    for (int i = from; i < to; i++) {
        size_t n;
        const char *s = ek_tokenizer_bytes(t, token[i], &n);
        for (size_t k = 0; k < n; k++) {
            unsigned char c = (unsigned char)s[k];
            if (c == '\n') ek_buf_str(out, "\\n");
            else if (c == '"' || c == '\\') ek_buf_fmt(out, "\\%c", c);
            else if (c < 32 || c > 126) ek_buf_fmt(out, "\\x%02x", c);
            else ek_buf_char(out, (char)c);
        }
    }
    ek_buf_char(out, '"');
}

static int at_most(int n, int max)
{
    return n < max ? n : max;
}

void ek_cache_note(ek_buf *out, const ek_chat_model *m, const ek_cache_report *r)
{
    ek_buf_fmt(out, "cache: %d of %d prompt tokens cached, %d of them used", r->n_found, r->n_prompt, r->n_used);
    int here = r->n_found, turns = 0;
    if (here >= r->n_prompt || !r->other) return;
    int32_t open = m->marks.id[EK_MARK_TURN_OPEN];
    for (int i = 0; i <= here; i++) turns += r->tokens[i] == open;
    int at = here - r->other_first, from = here - at_most(BEFORE, here), back = at_most(at, BEFORE);
    ek_buf_fmt(out, "; first difference at position %d, message %d: token %d here, %d cached; here ", here, turns,
               r->tokens[here], r->other[at]);
    quote(out, m->tokenizer, r->tokens, from, here);
    ek_buf_str(out, " then ");
    quote(out, m->tokenizer, r->tokens, here, at_most(here + AFTER, r->n_prompt));
    ek_buf_str(out, ", cached ");
    quote(out, m->tokenizer, r->other, at - back, at);
    ek_buf_str(out, " then ");
    quote(out, m->tokenizer, r->other, at, at_most(at + AFTER, r->n_other));
}
