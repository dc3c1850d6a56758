#include "fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"

void fake_init(fake *f, int window, bool has_full, bool has_sliding)
{
    *f = (fake){.draft_max = 8};
    f->config.vocab_size = FAKE_VOCAB;
    f->config.hidden_size = FAKE_HIDDEN;
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

static uint64_t key_of(ek_layer_kind kind, int32_t token, const float *embedding, int pos)
{
    uint64_t what = embedding ? ek_hash64(77, embedding, sizeof *embedding * FAKE_HIDDEN) : (uint64_t)token << 34;
    return ek_mix64(what ^ (uint64_t)pos << 2 ^ (uint64_t)kind);
}

static uint64_t fold(uint64_t h, uint64_t key)
{
    return ek_mix64(h ^ key);
}

static void logits_of(uint64_t h, float *logits)
{
    for (int v = 0; v < FAKE_VOCAB; v++) logits[v] = (float)(ek_mix64(h + (uint64_t)v) >> 40) * 0x1p-21f - 4;
}

/* What a slot holds, as in a real model, depends on everything its row has seen: on the slot before it, and with that
 * on all tokens before, and on the rest of a span whose positions see each other. A page of the same tokens behind
 * other ones is the wrong page. */
static uint64_t value_of(uint64_t key, uint64_t span, const uint64_t *before)
{
    return ek_mix64(ek_mix64(key ^ span) + (before ? *before : 0));
}

/* --- the right answer */

static const ek_prompt_span *span_of(const fake_prompt *p, int pos)
{
    for (int i = 0; i < p->n_spans; i++)
        if (pos >= p->span[i].first && pos < p->span[i].end) return &p->span[i];
    return NULL;
}

static uint64_t key_at(const fake_prompt *p, ek_layer_kind kind, int pos)
{
    const ek_prompt_span *s = span_of(p, pos);
    const float *e = s && s->embedding ? s->embedding + (pos - s->first) * FAKE_HIDDEN : NULL;
    return key_of(kind, p->tokens[pos], e, pos);
}

static bool is_whole(const ek_prompt_span *s)
{
    return s && (s->mutual[EK_FULL] || s->mutual[EK_SLIDING]);
}

uint64_t fake_value(const fake *f, ek_layer_kind kind, int32_t token, int pos, uint64_t before)
{
    bool alone = kind == EK_SLIDING && f->layout.sliding_window == 1;
    return value_of(key_of(kind, token, NULL, pos), 0, pos == 0 || alone ? NULL : &before);
}

void fake_logits(const fake *f, const fake_prompt *p, int pos, float *logits)
{
    uint64_t h = 1, value = 0;
    const ek_prompt_span *own = span_of(p, pos);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        int lo = k == EK_SLIDING && pos >= f->layout.sliding_window ? pos - f->layout.sliding_window + 1 : 0;
        int end = own && own->mutual[k] ? own->end : pos + 1;
        if (own && own->mutual[k] && own->uncut && lo > own->first) lo = own->first;
        bool alone = k == EK_SLIDING && f->layout.sliding_window == 1; /* sees nothing before it */
        for (int j = 0; f->layout.page_bytes[k] && j < end; j++) {
            const ek_prompt_span *s = span_of(p, j);
            uint64_t rest = 0;
            for (int i = j + 1; is_whole(s) && i < s->end; i++) rest = fold(rest, key_at(p, EK_FULL, i));
            value = value_of(key_at(p, (ek_layer_kind)k, j), rest, j == 0 || alone ? NULL : &value);
            if (j >= lo) h = fold(h, value);
        }
    }
    logits_of(h, logits);
}

bool fake_allows(int32_t last, int32_t token)
{
    return (token * 7 + last * 13) % 5 < 2;
}

int fake_reply(const fake *f, const fake_prompt *p, const ek_sampling *o, bool ignore_eos, int max, int ctx,
               int32_t *out)
{
    static int32_t tokens[1 << 16];
    float logits[FAKE_VOCAB];
    ek_sampler *s;
    fake_prompt all = *p;
    ek_sampler_open(&s, 0, FAKE_VOCAB, f->config.suppress, f->config.n_suppress);
    memcpy(tokens, p->tokens, sizeof *tokens * (size_t)p->n_prompt);
    all.tokens = tokens;
    int n = p->n_prompt;
    while (n < ctx && n - p->n_prompt < max) {
        fake_logits(f, &all, n - 1, logits);
        for (int v = 0; v < FAKE_VOCAB && p->masked; v++)
            if (!fake_allows(n > p->n_prompt ? tokens[n - 1] : -1, v)) logits[v] = -INFINITY;
        int32_t t = ek_sample(s, logits, NULL, o, tokens, p->n_prompt, n);
        out[n - p->n_prompt] = tokens[n] = t;
        n++;
        if (t == FAKE_STOP && !ignore_eos) break;
    }
    ek_sampler_close(s);
    return n - p->n_prompt;
}

void fake_set_start(fake *f, int n_start, int start_pages)
{
    f->layout.n_start = n_start;
    f->start_pages = start_pages;
    for (int k = 0; k < EK_KIND_COUNT; k++) f->layout.page_bytes[EK_KIND_COUNT + k] = 2 * f->layout.page_bytes[k];
}

/* --- the executor */

static ek_err fake_open(void *arg, const ek_executor_sizes *sizes)
{
    fake *f = arg;
    EK_ASSERT(f->opened++ == 0);
    f->sizes = *sizes;
    for (int k = 0; k < EK_PAGE_KINDS; k++)
        f->page[k] = calloc((size_t)sizes->n_pages[k] + 1, EK_PAGE_TOKENS * sizeof(uint64_t));
    f->logits = calloc((size_t)sizes->max_logits, FAKE_VOCAB * sizeof *f->logits);
    ek_sampler_open(&f->sampler, 0, FAKE_VOCAB, f->config.suppress, f->config.n_suppress);
    return EK_OK;
}

static uint64_t *slot(const fake *f, const ek_seq *seq, ek_layer_kind kind, int pos)
{
    int i = pos / EK_PAGE_TOKENS;
    EK_ASSERT(i >= seq->first[kind] && i < seq->end[kind]);
    int32_t page = seq->page[kind][i];
    ek_layer_kind pages = ek_kv_page_kind(&f->layout, kind, i);
    EK_ASSERT(page >= 0 && page < f->sizes.n_pages[pages]);
    return f->page[pages] + (size_t)page * EK_PAGE_TOKENS + pos % EK_PAGE_TOKENS;
}

/* Every promise of executor.h and of ek_model_forward's comment. */
static void check_step(const fake *f, const ek_step *s)
{
    EK_ASSERT(s->n_rows >= 1 && s->n_rows <= f->sizes.max_rows && s->n_seqs <= f->sizes.max_requests);
    int written = 0;
    for (int i = s->n_rows - 1; i >= 0; i--) {
        const ek_row *row = &s->row[i];
        EK_ASSERT(row->seq >= 0 && row->seq < s->n_seqs && row->pos < f->sizes.max_ctx);
        if (i > 0 && row->seq == row[-1].seq) EK_ASSERT(row->pos == row[-1].pos + 1);
        if (i > 0 && row->seq != row[-1].seq) EK_ASSERT(row->seq > row[-1].seq);
        if (i == s->n_rows - 1 || row->seq != row[1].seq) written = row->pos + 1;
        for (int k = 0; k < EK_KIND_COUNT; k++)
            EK_ASSERT(row->visible[k].lo >= 0 && row->visible[k].lo <= row->pos && row->visible[k].end > row->pos &&
                      row->visible[k].end <= written);
    }
    for (int i = 0; i < s->n_seqs; i++) {
        EK_ASSERT(s->seq[i].slot >= 0 && s->seq[i].slot < f->sizes.max_requests);
        for (int j = 0; j < i; j++) EK_ASSERT(s->seq[i].slot != s->seq[j].slot);
    }
}

static ek_err fake_step(void *arg, const ek_step *s)
{
    fake *f = arg;
    check_step(f, s);
    f->steps++;
    f->rows += (uint64_t)s->n_rows;
    f->time += f->base_seconds + f->row_seconds * s->n_rows;
    if (s->n_rows > f->max_rows) f->max_rows = s->n_rows;
    if (f->steps % 2) ek_masks_wait(s->masks); /* an early wait is right too */
    for (int i = 0; i < s->n_rows; i++)
        if (s->row[i].token == FAKE_FAILS) return ek_fail(EK_EINTERNAL, "token %d cannot be computed", FAKE_FAILS);
    for (int i = 0; i < s->n_rows; i++) {
        const ek_row *row = &s->row[i];
        const ek_seq *seq = &s->seq[row->seq];
        int end = row->visible[EK_FULL].end > row->visible[EK_SLIDING].end ? row->visible[EK_FULL].end
                                                                           : row->visible[EK_SLIDING].end;
        uint64_t rest = 0;
        for (const ek_row *r = row + 1; r < row + (end - row->pos); r++)
            rest = fold(rest, key_of(EK_FULL, r->token, r->embedding, r->pos));
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            ek_layer_kind kind = (ek_layer_kind)k;
            if (!f->layout.page_bytes[k]) continue;
            uint64_t *before = row->visible[k].lo < row->pos ? slot(f, seq, kind, row->pos - 1) : NULL;
            *slot(f, seq, kind, row->pos) = value_of(key_of(kind, row->token, row->embedding, row->pos), rest, before);
        }
    }
    int at = s->first_logits;
    for (int i = 0; i < s->n_rows; i++) {
        const ek_row *row = &s->row[i];
        if (!row->wants_logits) continue;
        uint64_t h = 1;
        for (int k = 0; k < EK_KIND_COUNT; k++)
            for (int j = row->visible[k].lo; f->layout.page_bytes[k] && j < row->visible[k].end; j++)
                h = fold(h, *slot(f, &s->seq[row->seq], (ek_layer_kind)k, j));
        EK_ASSERT(at < f->sizes.max_logits);
        logits_of(h, f->logits + at * FAKE_VOCAB);
        if (f->text) f->logits[at * FAKE_VOCAB + f->text[row->pos + 1]] = 1e6f;
        if (row->token == FAKE_NAN || (f->nan_at > 0 && row->pos == f->nan_at)) f->logits[at * FAKE_VOCAB + 3] = NAN;
        at++;
    }
    if (at - s->first_logits > f->max_logits) f->max_logits = at - s->first_logits;
    ek_masks_wait(s->masks);
    for (int i = 0; i < s->n_draws; i++) {
        ek_draw *d = &s->draw[i];
        const float *row = f->logits + d->logits * FAKE_VOCAB;
        EK_ASSERT(d->logits >= s->first_logits && d->logits < at);
        d->token = EK_DRAW_NOT_FINITE;
        if (ek_logits_finite(row, FAKE_VOCAB))
            d->token = ek_sample(f->sampler, row, d->allowed, d->sampling, d->tokens, d->n_prompt, d->n_tokens);
    }
    for (int i = s->first_logits; i < at; i++)
        for (int v = 0; v < FAKE_VOCAB && !s->shown[i]; v++) f->logits[i * FAKE_VOCAB + v] = NAN;
    return EK_OK;
}

static const float *fake_row(void *arg, int row)
{
    const fake *f = arg;
    EK_ASSERT(row >= 0 && row < f->sizes.max_logits);
    return f->logits + row * FAKE_VOCAB;
}

static uint64_t fake_digest(void *arg, int row)
{
    return ek_logits_digest(fake_row(arg, row), FAKE_VOCAB);
}

static void fake_copy(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    const fake *f = arg;
    memcpy(f->page[kind] + (size_t)to * EK_PAGE_TOKENS, f->page[kind] + (size_t)from * EK_PAGE_TOKENS,
           EK_PAGE_TOKENS * sizeof(uint64_t));
}

static void fake_read(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    const fake *f = arg;
    memcpy(out, f->page[kind] + (size_t)page * EK_PAGE_TOKENS, EK_PAGE_TOKENS * sizeof(uint64_t));
}

static void fake_write(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    const fake *f = arg;
    memcpy(f->page[kind] + (size_t)page * EK_PAGE_TOKENS, in, EK_PAGE_TOKENS * sizeof(uint64_t));
}

static void fake_poison(void *arg, ek_layer_kind kind, int32_t page)
{
    const fake *f = arg;
    memset(f->page[kind] + (size_t)page * EK_PAGE_TOKENS, 0xff, EK_PAGE_TOKENS * sizeof(uint64_t));
}

static void fake_close(void *arg)
{
    fake *f = arg;
    for (int k = 0; k < EK_PAGE_KINDS; k++) free(f->page[k]);
    free(f->logits);
    ek_sampler_close(f->sampler);
    f->closed++;
}

double fake_now(void *arg)
{
    const fake *f = arg;
    return f->time;
}

ek_executor fake_executor(fake *f, int full_pages, int sliding_pages)
{
    return (ek_executor){.config = &f->config,
                         .layout = &f->layout,
                         .leaves_host = full_pages % 2,
                         .arg = f,
                         .open = fake_open,
                         .step = fake_step,
                         .logits = fake_row,
                         .digest = fake_digest,
                         .draft = f->guess,
                         .draft_arg = f,
                         .row_cost = f->row_cost,
                         .draft_cost = f->draft_cost,
                         .copy_page = fake_copy,
                         .read_page = fake_read,
                         .write_page = fake_write,
                         .poison_page = fake_poison,
                         .close = fake_close,
                         .n_pages = {[EK_FULL] = full_pages,
                                     [EK_SLIDING] = sliding_pages,
                                     [EK_FULL_START] = f->start_pages,
                                     [EK_SLIDING_START] = f->start_pages},
                         .poison = true,
                         .now = f->base_seconds > 0 ? fake_now : NULL,
                         .now_arg = f};
}
