#include "serve/api/dialect.h"

#include "text/utf8.h"

void ek_blocks_init(ek_blocks *b)
{
    *b = (ek_blocks){.open = -1};
}

void ek_blocks_fini(ek_blocks *b)
{
    ek_buf_fini(&b->blanks);
}

static bool is_blank(const char *s, size_t n)
{
    ek_utf8_strip(&s, &n);
    return n == 0;
}

void ek_blocks_end(ek_blocks *b, const ek_block_writer *w, ek_buf *out, const ek_api_reply *r)
{
    ek_buf_clear(&b->blanks);
    if (b->open >= 0) w->close(out, r);
    b->open = -1;
}

static void open_block(ek_blocks *b, const ek_reply_event *e, const ek_block_writer *w, ek_buf *out,
                       const ek_api_reply *r)
{
    b->open = (int)e->kind;
    b->n++;
    w->open(out, r, e);
}

static void on_text(ek_blocks *b, const ek_reply_event *e, const ek_block_writer *w, ek_buf *out, const ek_api_reply *r)
{
    if (b->open == EK_REPLY_CONTENT) {
        w->piece(out, r, e->text, e->n);
        return;
    }
    if (b->open >= 0) ek_blocks_end(b, w, out, r);
    ek_buf_add(&b->blanks, e->text, e->n);
    if (is_blank(b->blanks.data, b->blanks.len)) return;
    open_block(b, e, w, out, r);
    w->piece(out, r, b->blanks.data, b->blanks.len);
    ek_buf_clear(&b->blanks);
}

static void on_thinking(ek_blocks *b, const ek_reply_event *e, const ek_block_writer *w, ek_buf *out,
                        const ek_api_reply *r)
{
    if (b->open != EK_REPLY_REASONING) {
        ek_blocks_end(b, w, out, r);
        open_block(b, e, w, out, r);
    }
    w->piece(out, r, e->text, e->n);
}

void ek_blocks_event(ek_blocks *b, const ek_reply_event *e, const ek_block_writer *w, ek_buf *out,
                     const ek_api_reply *r)
{
    switch (e->kind) {
    case EK_REPLY_CONTENT:
        if (e->n > 0) on_text(b, e, w, out, r);
        break;
    case EK_REPLY_REASONING:
        if (e->n > 0) on_thinking(b, e, w, out, r);
        break;
    case EK_REPLY_CALL_START:
        ek_blocks_end(b, w, out, r);
        open_block(b, e, w, out, r);
        break;
    case EK_REPLY_CALL_ARGS: w->piece(out, r, e->text, e->n); break;
    case EK_REPLY_CALL_CUT:
    case EK_REPLY_CALL_DROP: w->cut(out, r, e->text, e->n); /* fallthrough */
    case EK_REPLY_CALL_END: ek_blocks_end(b, w, out, r); break;
    case EK_REPLY_STOP: break;
    }
}

bool ek_blocks_has(const ek_answer *a, const ek_answer_part *p)
{
    return p->kind != EK_REPLY_CONTENT || !is_blank(a->content.data + p->from, p->n);
}

const ek_answer_part *ek_blocks_last(const ek_answer *a, ek_reply_kind kind)
{
    for (int i = a->n_parts - 1; i >= 0; i--)
        if (a->parts[i].kind == kind) return &a->parts[i];
    return NULL;
}
