#include "fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

void fake_init(fake *f, int window, bool has_full, bool has_sliding)
{
    *f = (fake){0};
    f->config.vocab_size = FAKE_VOCAB;
    f->config.max_position_embeddings = 4096;
    f->config.sliding_window = window;
    f->config.stop[0] = FAKE_STOP;
    f->config.n_stop = 1;
    static const int32_t suppress[] = {7, FAKE_FAILS, FAKE_NAN}; /* only prompts hold the last two */
    memcpy(f->config.suppress, suppress, sizeof suppress);
    f->config.n_suppress = 3;
    f->layout.sliding_window = window;
    if (has_full) f->layout.page_bytes[EK_FULL] = EK_PAGE_TOKENS * sizeof(uint64_t);
    if (has_sliding) f->layout.page_bytes[EK_SLIDING] = EK_PAGE_TOKENS * sizeof(uint64_t);
}

static uint64_t key_of(ek_layer_kind kind, int32_t token, int pos)
{
    return ek_mix64((uint64_t)token << 34 ^ (uint64_t)pos << 2 ^ (uint64_t)kind);
}

static uint64_t fold(uint64_t h, uint64_t key)
{
    return ek_mix64(h ^ key);
}

static void logits_of(uint64_t h, float *logits)
{
    for (int v = 0; v < FAKE_VOCAB; v++) logits[v] = (float)(ek_mix64(h + (uint64_t)v) >> 40) * 0x1p-21f - 4;
}

static int first_key(const fake *f, ek_layer_kind kind, int pos)
{
    int lo = kind == EK_SLIDING ? pos - f->layout.sliding_window + 1 : 0;
    return lo > 0 ? lo : 0;
}

void fake_logits(const fake *f, const int32_t *tokens, int n, float *logits)
{
    uint64_t h = 1;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        for (int j = first_key(f, (ek_layer_kind)k, n - 1); f->layout.page_bytes[k] && j < n; j++)
            h = fold(h, key_of((ek_layer_kind)k, tokens[j], j));
    logits_of(h, logits);
}

int fake_reply(const fake *f, const int32_t *prompt, int n_prompt, const ek_sampling *o, bool ignore_eos, int most,
               int ctx, int32_t *out)
{
    static int32_t tokens[1 << 16];
    float logits[FAKE_VOCAB];
    ek_sampler *s;
    ek_sampler_open(&s, 0, FAKE_VOCAB, f->config.suppress, f->config.n_suppress);
    memcpy(tokens, prompt, sizeof *prompt * (size_t)n_prompt);
    int n = n_prompt;
    while (n < ctx && n - n_prompt < most) {
        fake_logits(f, tokens, n, logits);
        int32_t t = ek_sample(s, logits, o, tokens, n_prompt, n);
        out[n - n_prompt] = tokens[n] = t;
        n++;
        if (t == FAKE_STOP && !ignore_eos) break;
    }
    ek_sampler_close(s);
    return n - n_prompt;
}

static uint64_t *slot(const ek_seq *seq, ek_layer_kind kind, int pos)
{
    uint8_t *page = seq->page[kind][pos / EK_PAGE_TOKENS];
    EK_ASSERT(page);
    return (uint64_t *)(void *)page + pos % EK_PAGE_TOKENS;
}

/* Checks every promise of ek_model_forward's comment on the way. */
static ek_err forward(void *arg, const ek_row *rows, int n_rows, const ek_seq *seqs, int n_seqs, float *logits,
                      ptrdiff_t ld)
{
    fake *f = arg;
    int n_logits = 0;
    EK_ASSERT(n_rows >= 1);
    for (int i = 0; i < n_rows; i++) {
        EK_ASSERT(rows[i].seq >= 0 && rows[i].seq < n_seqs);
        if (i > 0 && rows[i].seq == rows[i - 1].seq) EK_ASSERT(rows[i].pos == rows[i - 1].pos + 1);
        if (i > 0 && rows[i].seq != rows[i - 1].seq) EK_ASSERT(rows[i].seq > rows[i - 1].seq);
        n_logits += rows[i].wants_logits;
    }
    f->steps++;
    if (n_rows > f->most_rows) f->most_rows = n_rows;
    if (n_logits > f->most_logits) f->most_logits = n_logits;
    for (int i = 0; i < n_rows; i++)
        if (rows[i].token == FAKE_FAILS) return ek_fail(EK_EINTERNAL, "token %d cannot be computed", FAKE_FAILS);
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++)
            if (f->layout.page_bytes[k])
                *slot(&seqs[rows[i].seq], (ek_layer_kind)k, rows[i].pos) = key_of((ek_layer_kind)k, rows[i].token,
                                                                                  rows[i].pos);
    for (int i = 0; i < n_rows; i++) {
        if (!rows[i].wants_logits) continue;
        uint64_t h = 1;
        for (int k = 0; k < EK_KIND_COUNT; k++)
            for (int j = first_key(f, (ek_layer_kind)k, rows[i].pos); f->layout.page_bytes[k] && j <= rows[i].pos; j++)
                h = fold(h, *slot(&seqs[rows[i].seq], (ek_layer_kind)k, j));
        logits_of(h, logits);
        if (rows[i].token == FAKE_NAN) logits[3] = NAN;
        logits += ld;
    }
    return EK_OK;
}

ek_backend fake_backend(fake *f, int full_pages, int sliding_pages)
{
    return (ek_backend){.config = &f->config,
                        .layout = &f->layout,
                        .arg = f,
                        .forward = forward,
                        .n_pages = {[EK_FULL] = full_pages, [EK_SLIDING] = sliding_pages},
                        .poison = true};
}
