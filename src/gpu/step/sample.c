/* Draws on the device (cuda/kernels/sample/sample.cu, sample_sort.cu). */
#include "gpu/step/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/model_args.h"
#include "gpu/weights/weights.h"

enum { MAX_BIAS = 65536, MAX_COUNTS = 1 << 20 }; /* maximum entries per step; draws beyond these are made on the CPU */

static size_t mask_bytes(const ek_gpu_run *x)
{
    return sizeof(uint64_t) * (size_t)ek_mask_words(x->g->m->config.vocab_size) + 64;
}

/* Maximum counts of a step's rows of logits. */
static int max_counts(const ek_gpu_run *x)
{
    const int64_t all = (int64_t)x->z.max_logits * x->z.max_ctx;
    return all < MAX_COUNTS ? (int)all : MAX_COUNTS;
}

size_t ek_gpu_samples_bytes(const ek_gpu_run *x)
{
    return (size_t)x->z.max_logits * sizeof(ek_cuda_sample) + MAX_BIAS * sizeof(ek_cuda_bias) +
           (size_t)max_counts(x) * sizeof(ek_cuda_count) + (size_t)x->z.max_logits * (128 + mask_bytes(x)) + 4096;
}

static int by_token(const void *a, const void *b)
{
    const ek_logit_bias *x = *(const ek_logit_bias *const *)a, *y = *(const ek_logit_bias *const *)b;
    if (x->token != y->token) return (x->token > y->token) - (x->token < y->token);
    return (x > y) - (x < y); /* entries of a token keep their order, because they are added one after the other */
}

/* Puts the entries of a token side by side, in their order. */
static void put_bias(ek_cuda_bias *to, const ek_sampling *o)
{
    const ek_logit_bias **in = malloc(sizeof *in * (size_t)(o->n_bias + 1));
    EK_ASSERT(in);
    for (int i = 0; i < o->n_bias; i++) in[i] = &o->bias[i];
    qsort(in, (size_t)o->n_bias, sizeof *in, by_token);
    for (int i = 0; i < o->n_bias; i++) to[i] = (ek_cuda_bias){in[i]->token, in[i]->bias};
    free(in);
}

/* Puts each token of the history once; returns their number. */
static int put_counts(int32_t *seen, ek_cuda_count *to, const ek_draw *d)
{
    int n = 0;
    for (int i = 0; i < d->n_tokens; i++) {
        int32_t t = d->tokens[i];
        if (!seen[t]) {
            to[n] = (ek_cuda_count){t, 0};
            seen[t] = ++n;
        }
        if (i >= d->n_prompt) to[seen[t] - 1].replied++;
    }
    for (int i = 0; i < n; i++) seen[to[i].token] = 0;
    return n;
}

static bool fits(const ek_gpu_run *x, const ek_draw *d, const bool *taken, int bias, int counts)
{
    if (taken[d->logits]) return false; /* changed logits are stored in place, for the first draw of a row */
    if (d->sampling->n_bias > MAX_BIAS - bias) return false;
    return !ek_sampling_has_penalties(d->sampling) || d->n_tokens <= max_counts(x) - counts;
}

static bool limited(const ek_sampling *o, int vocab)
{
    return (o->top_k > 0 && o->top_k < vocab) || o->top_p < 1 || o->min_p > 0;
}

static void note_kernels(ek_gpu_now *now, const ek_sampling *o, const ek_config *c)
{
    const int vocab = c->vocab_size;
    bool greedy = o->temperature<EK_MIN_TEMPERATURE, cut_k = o->top_k> 0 && o->top_k < vocab;
    now->edits |= o->n_bias > 0 || ek_sampling_has_penalties(o) || c->n_suppress > 0;
    now->weighs |= !greedy && !cut_k && o->top_p < 1;
    now->chooses |= !greedy && limited(o, vocab);
    now->draws_all |= greedy || !limited(o, vocab);
    /* ek_sample_choose may lack candidates for this step. The step must not wait until the host sees that, because the
     * next step may have begun, so the sorting kernel is queued too */
    const bool few = cut_k && o->top_k <= EK_CUDA_MAX_CANDIDATES && o->top_k < (vocab + 63) / 64;
    now->sorts |= !greedy && limited(o, vocab) && !few;
}

/* Room for the masks, behind everything that the forward pass needs, because they may not be made yet. */
static ek_err place_masks(ek_gpu_run *x, const ek_step *s, ek_cuda_sample *row)
{
    const size_t bytes = sizeof(uint64_t) * (size_t)ek_mask_words(x->g->m->config.vocab_size);
    void *at = NULL;
    CUdeviceptr where = 0;
    x->now.first_mask = x->block.used;
    for (int i = 0; i < x->now.n_draws; i++) {
        if (!s->draw[x->lists.on_device[i]].allowed) continue;
        EK_TRY(ek_gpu_block_take(&x->block, bytes, &at, &where));
        row[i].allowed = where;
        x->lists.mask_at[i] = (size_t)((uint8_t *)at - x->block.host);
    }
    return EK_OK;
}

void ek_gpu_no_samples(ek_gpu_run *x)
{
    x->now.n_draws = 0, x->now.sample = 0;
    x->now.masks = x->now.edits = x->now.weighs = x->now.chooses = x->now.draws_all = x->now.sorts = false;
}

/* x->on_device[i]: whether the device makes draw i. Rows of draws that the CPU makes are marked as shown. */
ek_err ek_gpu_samples(ek_gpu_run *x, const ek_step *s, bool *shown)
{
    const int vocab = x->g->m->config.vocab_size;
    int bias = 0, counts = 0;
    void *to = NULL, *at = NULL;
    CUdeviceptr where = 0;
    ek_gpu_no_samples(x);
    if (s->n_draws == 0) return EK_OK;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_sample) * (size_t)s->n_draws, &to, &x->now.sample));
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
        ek_cuda_sample row = {.logits = x->buf.logits + sizeof(float) * (size_t)d->logits * (size_t)vocab,
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
        x->now.masks |= d->allowed != NULL;
        if (o->n_bias) {
            EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_bias) * (size_t)o->n_bias, &at, &where));
            put_bias(at, o);
            row.bias = where;
            bias += o->n_bias;
        }
        if (ek_sampling_has_penalties(o)) {
            EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_count) * (size_t)d->n_tokens, &at, &where));
            row.n_count = put_counts(x->lists.seen, at, d);
            row.count = where;
            counts += d->n_tokens;
        }
        note_kernels(&x->now, o, &x->g->m->config);
        ((ek_cuda_sample *)to)[x->now.n_draws] = row;
        x->lists.on_device[x->now.n_draws++] = i;
    }
    return place_masks(x, s, to);
}

ek_err ek_gpu_put_masks(ek_gpu_run *x, const ek_step *s)
{
    const size_t bytes = sizeof(uint64_t) * (size_t)ek_mask_words(x->g->m->config.vocab_size);
    for (int i = 0; i < x->now.n_draws; i++)
        if (s->draw[x->lists.on_device[i]].allowed)
            memcpy(x->block.host + x->lists.mask_at[i], s->draw[x->lists.on_device[i]].allowed, bytes);
    return ek_cuda_upload(x->g->c, x->block.device + x->now.first_mask, x->block.host + x->now.first_mask,
                          x->block.used - x->now.first_mask);
}

/* The tokens of this microbatch, behind those of earlier ones. */
static CUdeviceptr tokens_at(const ek_gpu_run *x)
{
    return x->buf.token + sizeof(int32_t) * (size_t)x->now.first_draw;
}

static ek_cuda_sample_args args_of(const ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    return (ek_cuda_sample_args){.rows = x->now.sample,
                                 .suppress = x->g->w.suppress,
                                 .best = x->buf.best,
                                 .draw = x->buf.draw,
                                 .block = x->buf.block_max,
                                 .leaf = x->buf.leaf_sums,
                                 .token = tokens_at(x),
                                 .sorted = x->buf.sorted,
                                 .n_suppress = c->n_suppress,
                                 .vocab_size = c->vocab_size,
                                 .n_rows = x->now.n_draws};
}

/* Sorts rows that need more ordered candidates than ek_sample_choose takes. It runs after all other kernels, because
 * they write every row's token. */
static void sort(ek_gpu_run *x, const ek_cuda_sample_args *a)
{
    const int blocks = x->now.n_draws < EK_CUDA_SORTERS ? x->now.n_draws : EK_CUDA_SORTERS;
    ek_gpu_launch(x->g, "ek_sample_sort", (ek_cuda_grid){.x = (unsigned)blocks, .threads = 1024}, a);
}

void ek_gpu_draw(ek_gpu_run *x)
{
    const unsigned rows = (unsigned)x->now.n_draws, wide = x->now.n_draws > 8 ? 16 : 64;
    if (!rows) return;
    const ek_cuda_sample_args a = args_of(x);
    const ek_cuda_grid each = {.x = wide, .y = rows, .threads = 256, .overlap = true};
    if (x->now.masks) ek_gpu_launch(x->g, "ek_sample_mask", each, &a);
    if (x->now.edits)
        ek_gpu_launch(x->g, "ek_sample_edit", (ek_cuda_grid){.x = rows, .threads = 256, .overlap = true}, &a);
    ek_gpu_launch(x->g, "ek_sample_scale", each, &a);
    if (x->now.weighs) ek_gpu_launch(x->g, "ek_sample_weights", each, &a);
    if (x->now.chooses)
        ek_gpu_launch(x->g, "ek_sample_choose", (ek_cuda_grid){.x = rows, .threads = 1024, .overlap = true}, &a);
    if (x->now.draws_all) ek_gpu_launch(x->g, "ek_sample_all", each, &a);
    if (x->now.sorts) sort(x, &a);
}

static int32_t *tokens_of(const ek_gpu_run *x, const ek_step *s)
{
    return x->flights.result + 3 * x->z.max_logits + s->first_draw; /* behind digests and flags of bad rows */
}

/* Sorts rows that are almost never undecided: those with ties at the end of top-k. */
static ek_err sort_undecided(ek_gpu_run *x, const ek_step *s, const ek_gpu_flight *f)
{
    int32_t *token = tokens_of(x, s);
    int undecided = 0;
    for (int i = 0; i < f->n_draws; i++) undecided += token[i] == EK_CUDA_UNDECIDED;
    if (!undecided) return EK_OK;
    if (f->disturbed) return ek_fail(EK_EBUSY, "%d draws need their logits, which the next step replaces", undecided);
    const ek_cuda_sample_args a = args_of(x);
    sort(x, &a);
    EK_TRY(x->g->err);
    EK_TRY(ek_cuda_download(x->g->c, token, tokens_at(x), sizeof *token * (size_t)x->now.n_draws));
    return ek_cuda_sync(x->g->c);
}

ek_err ek_gpu_deliver(ek_gpu_run *x, const ek_step *s, const ek_gpu_flight *f)
{
    const int vocab = x->g->m->config.vocab_size;
    const int32_t *bad = x->flights.result + 2 * x->z.max_logits, *token = tokens_of(x, s);
    int next = 0;
    EK_TRY(sort_undecided(x, s, f));
    for (int i = 0; i < s->n_draws; i++) {
        ek_draw *d = &s->draw[i];
        bool device = f->draws || (next < f->n_draws && x->lists.on_device[next] == i);
        int32_t drawn = device ? token[next++] : 0;
        if (bad[d->logits]) d->token = EK_DRAW_NOT_FINITE;
        else if (device) d->token = drawn;
        else
            d->token = ek_sample(x->lists.sampler, x->logits_host + (size_t)d->logits * (size_t)vocab, d->allowed,
                                 d->sampling, d->tokens, d->n_prompt, d->n_tokens);
    }
    return EK_OK;
}
