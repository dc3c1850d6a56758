#include "pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/err.h"

test_seq seq_open(const ek_model *m, int n_tokens)
{
    const ek_kv_layout *l = ek_model_kv_layout(m);
    test_seq s = {.n_pages = n_tokens / EK_PAGE_TOKENS + 1};
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        s.page[k] = ek_alloc(sizeof *s.page[k] * (size_t)s.n_pages);
        for (int i = 0; i < s.n_pages; i++) s.page[k][i] = s.n_pages - 1 - i;
        s.seq.page[k] = s.page[k];
        s.seq.end[k] = s.n_pages;
    }
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        size_t bytes = l->page_bytes[k] * (size_t)s.n_pages;
        s.kv.stride[k] = l->page_bytes[k];
        s.kv.base[k] = bytes ? memset(aligned_alloc(64, bytes), 0xff, bytes) : NULL;
    }
    return s;
}

void seq_close(test_seq *s)
{
    for (int k = 0; k < EK_PAGE_KINDS; k++) free(s->kv.base[k]);
    for (int k = 0; k < EK_KIND_COUNT; k++) free(s->page[k]);
}

ek_err run_tokens(const ek_model *m, const int32_t *ids, int n, const int *steps, float *logits)
{
    ek_scratch *s;
    EK_TRY(ek_scratch_open(&s, m, n, n, n));
    int vocab = ek_model_config(m)->vocab_size, window = ek_model_config(m)->sliding_window;
    test_seq q = seq_open(m, n);
    ek_row *row = ek_alloc(sizeof *row * (size_t)n);
    ek_err err = EK_OK;
    for (int at = 0, i = 0, take; at < n && !err; at += take) {
        take = steps ? steps[i++] : n;
        if (steps && steps[i] == 0) i = 0;
        if (take > n - at) take = n - at;
        for (int r = 0; r < take; r++) row[r] = ek_text_row(ids[at + r], at + r, 0, true, window);
        err = ek_model_forward(m, s, &q.kv, row, take, &q.seq, 1, logits + (size_t)at * (size_t)vocab, vocab);
    }
    free(row);
    seq_close(&q);
    ek_scratch_close(s);
    return err;
}

static float *logits_of_tokens(const ek_model *m, int n)
{
    const int vocab = ek_model_config(m)->vocab_size;
    int32_t *ids = ek_alloc(sizeof *ids * (size_t)n);
    float *out = ek_alloc(sizeof *out * (size_t)n * (size_t)vocab);
    for (int i = 0; i < n; i++) ids[i] = (i * 37 + 5) % vocab;
    ek_err err = run_tokens(m, ids, n, NULL, out);
    EK_ASSERT(!err);
    free(ids);
    return out;
}

ek_err open_folder(ek_model **m, const char *dir, bool exact)
{
    const ek_model_opts o = {.exact = exact, .k_format = EK_KV_F32, .v_format = EK_KV_F32, .cpu = ek_cpu_detect()};
    *m = NULL;
    return ek_model_open(m, dir, &o);
}

float *logits_of_folder(const char *dir, bool exact, int n)
{
    ek_model *m;
    if (open_folder(&m, dir, exact)) {
        fprintf(stderr, "%s\n", ek_err_text());
        abort();
    }
    float *out = logits_of_tokens(m, n);
    ek_model_close(m);
    return out;
}
