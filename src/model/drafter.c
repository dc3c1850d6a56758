#include "model/drafter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/pass.h"

struct ek_drafter {
    ek_model *m;
    const ek_model *target;
    ek_rope_position position;
    ek_scratch *s;
    int max_rows;
    float *block; /* the buffers below */
    size_t block_bytes;
    ek_buffer fed, state, score, logits; /* fed: embedding and state; score: of centroids; logits: of a dense head */
    float *embedding;                    /* of one token */
    int32_t *best;                       /* centroids */
    float *best_score;
};

static ek_err wrap(ek_drafter **out, ek_model *m, const ek_model *target)
{
    *out = ek_alloc(sizeof **out);
    **out = (ek_drafter){.m = m, .target = target};
    return EK_OK;
}

ek_err ek_drafter_open(ek_drafter **out, const char *dir, const ek_model *target, const ek_model_opts *opts)
{
    ek_model *m;
    EK_TRY(ek_model_open_drafter(&m, dir, NULL, 0, target, opts));
    return wrap(out, m, target);
}

ek_err ek_drafter_synthetic(ek_drafter **out, const ek_config *config, uint64_t seed, const ek_model *target,
                            const ek_model_opts *opts)
{
    ek_model *m;
    EK_TRY(ek_model_open_drafter(&m, NULL, config, seed, target, opts));
    return wrap(out, m, target);
}

void ek_drafter_close(ek_drafter *d)
{
    if (!d) return;
    ek_scratch_close(d->s);
    ek_free_big(d->block, d->block_bytes);
    free(d->best);
    free(d->best_score);
    ek_model_close(d->m);
    free(d);
}

void ek_drafter_set_position(ek_drafter *d, ek_rope_position position)
{
    d->position = position;
}

ek_rope_position ek_drafter_position(const ek_drafter *d)
{
    return d->position;
}

ek_model *ek_drafter_model(const ek_drafter *d)
{
    return d->m;
}

const ek_model *ek_drafter_target(const ek_drafter *d)
{
    return d->target;
}

double ek_drafter_cost(const ek_drafter *d)
{
    const ek_config *c = &d->m->config;
    double bytes = ek_model_bytes_per_token(d->m) + (double)d->m->w.pre_projection.bytes +
                   (double)d->m->w.post_projection.bytes;
    if (c->n_centroids)
        bytes -= (double)ek_weights_head(&d->m->w)->bytes * (1 - (double)c->top_k_centroids / c->n_centroids);
    return bytes / ek_model_bytes_per_token(d->target);
}

/* ------------------------------------------------------------------ memory */

static ptrdiff_t padded(int n)
{
    return ((ptrdiff_t)n + 15) / 16 * 16;
}

static ek_buffer cut(float **at, int rows, int width)
{
    ek_buffer b = {.at = *at, .ld = padded(width)};
    *at += rows * b.ld;
    return b;
}

ek_err ek_drafter_reserve(ek_drafter *d, int max_rows, int max_ctx)
{
    const ek_config *c = &d->m->config;
    int wide = 2 * c->backbone_hidden_size, dense = c->n_centroids ? 0 : c->vocab_size;
    EK_ASSERT(!d->s);
    EK_TRY(ek_scratch_open(&d->s, d->m, max_rows, max_rows, max_ctx));
    d->block_bytes = sizeof(float) * (size_t)(max_rows * (padded(wide) + padded(c->backbone_hidden_size) +
                                                          padded(c->n_centroids) + padded(dense)) +
                                              padded(c->hidden_size));
    d->block = ek_alloc_big(d->block_bytes);
    if (!d->block) return EK_ENOMEM;
    float *at = d->block;
    d->fed = cut(&at, max_rows, wide);
    d->state = cut(&at, max_rows, c->backbone_hidden_size);
    d->score = cut(&at, max_rows, c->n_centroids);
    d->logits = cut(&at, max_rows, dense);
    d->embedding = at;
    d->best = ek_alloc(sizeof *d->best * (size_t)(c->top_k_centroids + 1));
    d->best_score = ek_alloc(sizeof *d->best_score * (size_t)(c->top_k_centroids + 1));
    d->max_rows = max_rows;
    return EK_OK;
}

/* ------------------------------------------------------------------ a step */

static ek_err check(const ek_drafter *d, const ek_drafter_row *row, int n)
{
    if (n < 1 || n > d->max_rows)
        return ek_fail(EK_EINVAL, "a draft step of %d rows, there is memory for %d", n, d->max_rows);
    for (int r = 0; r < n; r++) {
        if (row[r].token < 0 || row[r].token >= d->m->config.vocab_size)
            return ek_fail(EK_EINVAL, "token id %d, the vocabulary has %d", row[r].token, d->m->config.vocab_size);
        if (row[r].n < 1 || row[r].n > d->s->max_ctx)
            return ek_fail(EK_EINVAL, "a draft behind %d tokens, the context is %d", row[r].n, d->s->max_ctx);
        if (row[r].seq->first[EK_SLIDING] * EK_PAGE_TOKENS >= row[r].n)
            return ek_fail(EK_EINVAL, "a draft behind %d tokens, none of which is held in sliding layers", row[r].n);
    }
    return EK_OK;
}

/* All rows of a draft see the verified positions, in sliding layers the last `window` of them. That is one more than
 * the target's next row sees, so the page of the first may be gone; the draft then does without it. */
static void load(ek_drafter *d, const ek_drafter_row *row, int r)
{
    ek_scratch *s = d->s;
    const ek_model *t = d->target;
    int wide = t->config.hidden_size, n = row->n, window = t->config.sliding_window;
    float *fed = ek_at(&d->fed, r);
    ek_linear_row(&t->w.embed, row->token, fed);
    t->rows.scale(fed, ek_config_embed_scale(&t->config, wide), wide);
    memcpy(fed + wide, row->state, sizeof *fed * (size_t)wide);
    s->seq[r] = row->seq;
    s->row[EK_FULL][r] = (ek_attn_row){r, 0, n};
    int held = row->seq->first[EK_SLIDING] * EK_PAGE_TOKENS, lo = n > window ? n - window : 0;
    s->row[EK_SLIDING][r] = (ek_attn_row){r, lo > held ? lo : held, n};
    s->pos[r] = d->position == EK_ROPE_N ? n : n - 1;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (d->m->n_rotated[k])
            ek_rope_row(ek_at(&s->cos[k], r), ek_at(&s->sin[k], r), d->m->rope[k], d->m->n_rotated[k], s->pos[r]);
}

float ek_drafter_score(const float *x, const float *y, int n)
{
    float lane[16] = {0}, sum = 0;
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += x[i + l] * y[i + l];
    for (; i < n; i++) sum += x[i] * y[i];
    for (int l = 0; l < 16; l++) sum += lane[l];
    return sum;
}

/* The best token among those of the best centroids; the lowest id among equal ones. */
static int32_t ordered_head(ek_drafter *d, int r, float *logits)
{
    const ek_config *c = &d->m->config;
    const float *y = ek_at(&d->s->x, r);
    int per = c->vocab_size / c->n_centroids;
    int32_t best = -1;
    float max = 0, min = INFINITY;
    ek_top_k(ek_at(&d->score, r), c->n_centroids, c->top_k_centroids, d->best, d->best_score);
    for (int pass = logits ? 0 : 1; pass < 2; pass++) { /* the first pass finds the smallest logit, the second writes */
        for (int v = 0; v < c->vocab_size && pass == 1 && logits; v++) logits[v] = min - 1;
        for (int i = 0; i < c->top_k_centroids; i++)
            for (int k = 0; k < per; k++) {
                int32_t token = d->m->w.token_ordering[d->best[i] * per + k];
                ek_linear_row(ek_weights_head(&d->m->w), token, d->embedding);
                float z = ek_drafter_score(y, d->embedding, c->hidden_size);
                if (z < min) min = z;
                if (pass == 1 && logits) logits[token] = z;
                if (best < 0 || z > max || (z == max && token < best)) best = token, max = z;
            }
    }
    return best;
}

static void run_head(ek_drafter *d, ek_pass *p, ek_drafter_row *row, float *logits, ptrdiff_t ld)
{
    const ek_model *m = d->m;
    const ek_config *c = &m->config;
    ek_acts x = ek_read_rows(p, &d->s->x, c->hidden_size);
    ek_project(p, &m->w.post_projection, &x, &d->state);
    for (int r = 0; r < p->n; r++)
        memcpy(row[r].state, ek_at(&d->state, r), sizeof(float) * (size_t)c->backbone_hidden_size);
    if (c->n_centroids) {
        ek_project(p, &m->w.centroids, &x, &d->score);
        for (int r = 0; r < p->n; r++) row[r].token = ordered_head(d, r, logits ? logits + r * ld : NULL);
        return;
    }
    ek_buffer out = logits ? (ek_buffer){logits, ld} : d->logits;
    ek_project(p, ek_weights_head(&m->w), &x, &out);
    for (int r = 0; r < p->n; r++) row[r].token = m->rows.argmax(ek_at(&out, r), c->vocab_size);
}

ek_err ek_drafter_step(ek_drafter *d, const ek_kv_memory *kv, ek_drafter_row *row, int n, float *logits, ptrdiff_t ld)
{
    const ek_model *m = d->m;
    const ek_config *c = &m->config;
    ek_pass pass = {.m = m, .s = d->s, .kv = kv, .n = n, .n_want = n, .n_views = n, .end = c->n_layers}, *p = &pass;
    EK_TRY(check(d, row, n));
    for (int r = 0; r < n; r++) load(d, &row[r], r);
    ek_acts fed = ek_read_rows(p, &d->fed, 2 * c->backbone_hidden_size);
    ek_project(p, &m->w.pre_projection, &fed, &d->s->h);
    for (int r = 0; r < n; r++)
        m->rows.rms_norm(ek_at(&d->s->x, r), ek_at(&d->s->h, r), m->w.layer[0].input_norm, c->hidden_size,
                         c->rms_norm_eps);
    ek_run_layers(p);
    run_head(d, p, row, logits, ld);
    return EK_OK;
}
