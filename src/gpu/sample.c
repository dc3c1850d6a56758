/* Draws on the device (cuda/kernels/sample.cu), and on the CPU those that the kernels do not decide. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/run.h"

enum { MAX_BIAS = 65536, MAX_COUNTS = 1 << 20 }; /* entries of a step; draws beyond are made on the CPU */

static size_t mask_bytes(const ek_gpu_run *x)
{
    return sizeof(uint64_t) * (size_t)ek_mask_words(x->g->m->config.vocab_size) + 64;
}

/* Of a step: what all rows of logits can have. */
static int most_counts(const ek_gpu_run *x)
{
    const int64_t all = (int64_t)x->z.max_logits * x->z.max_ctx;
    return all < MAX_COUNTS ? (int)all : MAX_COUNTS;
}

size_t ek_gpu_samples_bytes(const ek_gpu_run *x)
{
    return (size_t)x->z.max_logits * sizeof(ek_cuda_sample) + MAX_BIAS * sizeof(ek_cuda_bias) +
           (size_t)most_counts(x) * sizeof(ek_cuda_count) + (size_t)x->z.max_logits * (128 + mask_bytes(x)) + 4096;
}

static bool has_penalties(const ek_sampling *o)
{
    return o->repetition_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0;
}

static int by_token(const void *a, const void *b)
{
    const ek_logit_bias *x = *(const ek_logit_bias *const *)a, *y = *(const ek_logit_bias *const *)b;
    if (x->token != y->token) return (x->token > y->token) - (x->token < y->token);
    return (x > y) - (x < y); /* in their order: they are added one after the other */
}

/* Entries of a token adjacent and in their order. */
static void put_bias(ek_cuda_bias *to, const ek_sampling *o)
{
    const ek_logit_bias **in = malloc(sizeof *in * (size_t)(o->n_bias + 1));
    EK_ASSERT(in);
    for (int i = 0; i < o->n_bias; i++) in[i] = &o->bias[i];
    qsort(in, (size_t)o->n_bias, sizeof *in, by_token);
    for (int i = 0; i < o->n_bias; i++) to[i] = (ek_cuda_bias){in[i]->token, in[i]->bias};
    free(in);
}

/* Each token of the history once; returns how many. */
static int put_counts(ek_gpu_run *x, ek_cuda_count *to, const ek_draw *d)
{
    int n = 0;
    for (int i = 0; i < d->n_tokens; i++) {
        int32_t t = d->tokens[i];
        if (!x->seen[t]) {
            to[n] = (ek_cuda_count){t, 0};
            x->seen[t] = ++n;
        }
        if (i >= d->n_prompt) to[x->seen[t] - 1].replied++;
    }
    for (int i = 0; i < n; i++) x->seen[to[i].token] = 0;
    return n;
}

static bool fits(const ek_gpu_run *x, const ek_draw *d, const bool *taken, int bias, int counts)
{
    int cut = d->sampling->top_k;
    if (taken[d->logits]) return false; /* z replaces the logits, for the first draw of a row */
    if (cut > EK_CUDA_MAX_CANDIDATES && cut < x->g->m->config.vocab_size) return false;
    if (d->sampling->n_bias > MAX_BIAS - bias) return false;
    return !has_penalties(d->sampling) || d->n_tokens <= most_counts(x) - counts;
}

static bool limited(const ek_sampling *o, int vocab)
{
    return (o->top_k > 0 && o->top_k < vocab) || o->top_p < 1 || o->min_p > 0;
}

static void note_kernels(ek_gpu_run *x, const ek_sampling *o, int vocab)
{
    bool greedy = o->temperature<EK_MIN_TEMPERATURE, cut_k = o->top_k> 0 && o->top_k < vocab;
    x->edits |= o->n_bias > 0 || has_penalties(o) || x->g->m->config.n_suppress > 0;
    x->weighs |= !greedy && !cut_k && o->top_p < 1;
    x->chooses |= !greedy && limited(o, vocab);
    x->draws_all |= greedy || !limited(o, vocab);
}

/* x->on_device[i] is the draw of sample i; rows of draws left to the CPU are marked as shown. */
ek_err ek_gpu_samples(ek_gpu_run *x, const ek_step *s, bool *shown)
{
    const int vocab = x->g->m->config.vocab_size;
    int bias = 0, counts = 0;
    void *to = NULL, *at = NULL;
    CUdeviceptr where = 0;
    x->n_draws = 0;
    x->masks = x->edits = x->weighs = x->chooses = x->draws_all = false;
    if (s->n_draws == 0) return EK_OK;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_sample) * (size_t)s->n_draws, &to, &x->sample));
    bool *taken = shown + x->z.max_logits;
    memset(taken, 0, (size_t)x->z.max_logits);
    for (int i = 0; i < s->n_draws; i++) {
        const ek_draw *d = &s->draw[i];
        const ek_sampling *o = d->sampling;
        if (!fits(x, d, taken, bias, counts)) {
            shown[d->logits] = true;
            continue;
        }
        taken[d->logits] = true;
        ek_cuda_sample row = {.logits = x->logits + sizeof(float) * (size_t)d->logits * (size_t)vocab,
                              .seed = o->seed,
                              .n_bias = o->n_bias,
                              .temperature = o->temperature,
                              .top_p = o->top_p,
                              .min_p = o->min_p,
                              .repetition = o->repetition_penalty,
                              .presence = o->presence_penalty,
                              .frequency = o->frequency_penalty,
                              .top_k = o->top_k,
                              .pos = d->n_tokens};
        if (d->allowed) {
            size_t bytes = sizeof(uint64_t) * (size_t)ek_mask_words(vocab);
            EK_TRY(ek_gpu_block_take(&x->block, bytes, &at, &where));
            memcpy(at, d->allowed, bytes);
            row.allowed = where;
            x->masks = true;
        }
        if (o->n_bias) {
            EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_bias) * (size_t)o->n_bias, &at, &where));
            put_bias(at, o);
            row.bias = where;
            bias += o->n_bias;
        }
        if (has_penalties(o)) {
            EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_count) * (size_t)d->n_tokens, &at, &where));
            row.n_count = put_counts(x, at, d);
            row.count = where;
            counts += d->n_tokens;
        }
        note_kernels(x, o, vocab);
        ((ek_cuda_sample *)to)[x->n_draws] = row;
        x->on_device[x->n_draws++] = i;
    }
    return EK_OK;
}

void ek_gpu_draw(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const unsigned rows = (unsigned)x->n_draws, wide = x->n_draws > 8 ? 16 : 64;
    if (!rows) return;
    ek_cuda_sample_args a = {.rows = x->sample,
                             .suppress = x->g->w.suppress,
                             .best = x->best,
                             .draw = x->draw,
                             .block = x->block_max,
                             .leaf = x->leaf_sums,
                             .token = x->token,
                             .n_suppress = c->n_suppress,
                             .vocab_size = c->vocab_size};
    const ek_cuda_grid each = {.x = wide, .y = rows, .threads = 256, .overlap = true};
    if (x->masks) ek_gpu_launch(x->g, "ek_sample_mask", each, &a);
    if (x->edits) ek_gpu_launch(x->g, "ek_sample_edit", (ek_cuda_grid){.x = rows, .threads = 256, .overlap = true}, &a);
    ek_gpu_launch(x->g, "ek_sample_scale", each, &a);
    if (x->weighs) ek_gpu_launch(x->g, "ek_sample_weights", each, &a);
    if (x->chooses)
        ek_gpu_launch(x->g, "ek_sample_choose", (ek_cuda_grid){.x = rows, .threads = 1024, .overlap = true}, &a);
    if (x->draws_all) ek_gpu_launch(x->g, "ek_sample_all", each, &a);
}

/* The row's z as the kernels left it: after bias, penalties and temperature. */
static ek_err decide(ek_gpu_run *x, ek_draw *d)
{
    const ek_config *c = &x->g->m->config;
    const size_t bytes = sizeof(float) * (size_t)c->vocab_size;
    EK_TRY(ek_cuda_download(x->g->c, x->spare, x->logits + bytes * (size_t)d->logits, bytes));
    EK_TRY(ek_cuda_sync(x->g->c));
    ek_sampling o = *d->sampling;
    o.temperature = 1, o.repetition_penalty = 1, o.presence_penalty = o.frequency_penalty = 0, o.n_bias = 0;
    d->token = ek_sample(x->sampler, x->spare, &o, d->tokens, d->n_prompt, d->n_tokens);
    return EK_OK;
}

ek_err ek_gpu_deliver(ek_gpu_run *x, const ek_step *s)
{
    const int vocab = x->g->m->config.vocab_size;
    const int32_t *bad = x->result, *token = x->result + x->z.max_logits;
    int next = 0;
    for (int i = 0; i < s->n_draws; i++) {
        ek_draw *d = &s->draw[i];
        bool device = next < x->n_draws && x->on_device[next] == i;
        int32_t drawn = device ? token[next++] : EK_CUDA_UNDECIDED;
        if (bad[d->logits]) d->token = EK_DRAW_NOT_FINITE;
        else if (drawn != EK_CUDA_UNDECIDED) d->token = drawn;
        else if (device) EK_TRY(decide(x, d));
        else
            d->token = ek_sample_allowed(x->sampler, x->logits_host + (size_t)d->logits * (size_t)vocab, d->allowed,
                                         d->sampling, d->tokens, d->n_prompt, d->n_tokens);
    }
    return EK_OK;
}
