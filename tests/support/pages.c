#include "pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* Pages for n tokens, filled with 0xff: NaN in every format, should anything unwritten be read. */
test_seq seq_open(const ek_model *m, int n_tokens)
{
    const ek_kv_layout *l = ek_model_kv_layout(m);
    test_seq s = {.n_pages = n_tokens / EK_PAGE_TOKENS + 1};
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        s.page[k] = ek_alloc(sizeof *s.page[k] * (size_t)s.n_pages);
        for (int i = 0; i < s.n_pages && l->page_bytes[k]; i++) {
            s.page[k][i] = aligned_alloc(64, l->page_bytes[k]);
            memset(s.page[k][i], 0xff, l->page_bytes[k]);
        }
        s.seq.page[k] = s.page[k];
    }
    return s;
}

void seq_close(test_seq *s)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        for (int i = 0; i < s->n_pages; i++) free(s->page[k][i]);
        free(s->page[k]);
    }
}

/* Logits of all n positions of one sequence, in steps of the given sizes (repeated; 0 ends the
 * list; NULL: one step). */
ek_err run_tokens(const ek_model *m, const int32_t *ids, int n, const int *steps, float *logits)
{
    ek_scratch *s;
    EK_TRY(ek_scratch_open(&s, m, n, n, n));
    int vocab = ek_model_config(m)->vocab_size;
    test_seq q = seq_open(m, n);
    ek_row *row = ek_alloc(sizeof *row * (size_t)n);
    ek_err err = EK_OK;
    for (int at = 0, i = 0, take; at < n && !err; at += take) {
        take = steps ? steps[i++] : n;
        if (steps && steps[i] == 0) i = 0;
        if (take > n - at) take = n - at;
        for (int r = 0; r < take; r++) row[r] = (ek_row){ids[at + r], at + r, 0, true};
        err = ek_model_forward(m, s, row, take, &q.seq, 1, logits + (size_t)at * (size_t)vocab, vocab);
    }
    free(row);
    seq_close(&q);
    ek_scratch_close(s);
    return err;
}
