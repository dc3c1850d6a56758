/* Checks of a step's rows. */
#include "model/pass.h"

/* Checks that the row sees itself and only written positions of its sequence: those from before the step and those of
 * its rows up to `written`. */
static ek_err check_visible(const ek_model *m, const ek_row *row, int r, int written)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_range v = row->visible[k];
        if (m->attn[k] && (v.lo < 0 || v.lo > row->pos || v.end <= row->pos || v.end > written))
            return ek_fail(EK_EINVAL, "row %d at position %d sees [%d, %d), written is [0, %d)", r, row->pos, v.lo,
                           v.end, written);
    }
    return EK_OK;
}

static ek_err check_row(const ek_scratch *s, const ek_row *rows, int r, int n_seqs)
{
    const ek_config *c = &s->m->config;
    const ek_row *row = &rows[r];
    if (row->token < 0 || row->token >= c->vocab_size)
        return ek_fail(EK_EINVAL, "token id %d, the vocabulary has %d", row->token, c->vocab_size);
    if (row->seq < 0 || row->seq >= n_seqs)
        return ek_fail(EK_EINVAL, "row %d is of sequence %d, there are %d", r, row->seq, n_seqs);
    if (row->pos < 0 || row->pos >= s->max_ctx)
        return ek_fail(EK_EINVAL, "row %d is at position %d, the context is %d", r, row->pos, s->max_ctx);
    if (r > 0 && row->seq == row[-1].seq && row->pos != row[-1].pos + 1)
        return ek_fail(EK_EINVAL, "row %d is at position %d, the row before it at %d", r, row->pos, row[-1].pos);
    if (row->embedding && c->per_layer_size && (c->pad < 0 || c->pad >= c->vocab_size_per_layer))
        return ek_fail(EK_EINVAL,
                       "row %d is an embedding and takes the per-layer inputs of the pad token %d, there are %d", r,
                       c->pad, c->vocab_size_per_layer);
    return EK_OK;
}

ek_err ek_pass_check(const ek_scratch *s, const ek_row *rows, int n_rows, int n_seqs)
{
    int wanted = 0, written = 0;
    if (n_rows < 1 || n_rows > s->max_rows)
        return ek_fail(EK_EINVAL, "a step of %d rows, scratch memory is for 1 to %d", n_rows, s->max_rows);
    for (int r = 0; r < n_rows; r++) {
        EK_TRY(check_row(s, rows, r, n_seqs));
        wanted += rows[r].wants_logits;
    }
    for (int r = n_rows - 1; r >= 0; r--) {
        if (r == n_rows - 1 || rows[r].seq != rows[r + 1].seq) written = rows[r].pos + 1;
        EK_TRY(check_visible(s->m, &rows[r], r, written));
    }
    if (wanted > s->max_logits)
        return ek_fail(EK_EINVAL, "%d rows want logits, scratch memory is for %d", wanted, s->max_logits);
    return EK_OK;
}
