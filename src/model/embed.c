/* Per-layer inputs (E2B, E4B): a vector per layer and token. */
#include "model/pass.h"

#include <math.h>
#include <string.h>

#include "base/hash/rng.h"
#include "model/weights/weights.h"

static void embed_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    float *h = ek_at(&s->h, r);
    if (s->embedding[r]) {
        memcpy(h, s->embedding[r], sizeof *h * (size_t)m->config.hidden_size);
    } else {
        ek_linear_row(&m->w.embed, s->id[r], h);
        m->rows.scale(h, ek_config_embed_scale(&m->config, m->config.hidden_size), m->config.hidden_size);
    }
    m->rows.rms_norm(ek_at(&s->x, r), h, m->w.layer[0].input_norm, m->config.hidden_size, m->config.rms_norm_eps);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (m->n_rotated[k])
            ek_rope_row(ek_at(&s->cos[k], r), ek_at(&s->sin[k], r), m->rope[k], m->n_rotated[k], s->pos[r]);
}

/* Layers [first, first + n) of one token's inputs: ctx holds their projections. */
static void per_layer_inputs(const ek_pass *p, float *ctx, int token, int first, int n, float *temp)
{
    const ek_model *m = p->m;
    int size = m->config.per_layer_size;
    ek_embedding_row(&m->w.per_layer_embed, token, first * size, n * size, temp);
    m->rows.scale(temp, ek_config_embed_scale(&m->config, size), n * size);
    m->rows.scale(ctx, (float)(1 / sqrt((double)m->config.hidden_size)), n * size);
    for (int i = 0; i < n; i++)
        m->rows.rms_norm(ctx + i * size, ctx + i * size, m->w.per_layer_norm, size, m->config.rms_norm_eps);
    m->rows.add_scale(ctx, ctx, temp, (float)(1 / sqrt(2.0)), n * size);
}

static void per_layer_head_row(const ek_pass *p, int r, int worker)
{
    ek_scratch *s = p->s;
    per_layer_inputs(p, ek_at(&s->per_layer_head, r), s->id[r], 0, ek_prompt_layers(&p->m->config),
                     ek_at(&s->token, worker));
}

static void per_layer_tail_row(const ek_pass *p, int r, int worker)
{
    ek_scratch *s = p->s;
    int first = ek_prompt_layers(&p->m->config);
    per_layer_inputs(p, ek_at(&s->per_layer_tail, r), s->id[s->want[r]], first, p->m->config.n_layers - first,
                     ek_at(&s->token, worker));
}

void ek_embed_rows(const ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    ek_each_row(p, embed_row);
    if (!m->config.per_layer_size) return;
    ek_acts all = ek_read_rows(p, &s->h, m->config.hidden_size);
    if (m->w.per_layer_head.n) {
        ek_project(p, &m->w.per_layer_head, &all, &s->per_layer_head);
        ek_each_row(p, per_layer_head_row);
    }
    if (!p->n_want) return;
    ek_acts_quantize_for(&m->linear, m->pool, &all, &m->w.per_layer_tail);
    ek_acts wanted = ek_acts_pick(&all, s->want, p->n_want);
    ek_project(p, &m->w.per_layer_tail, &wanted, &s->per_layer_tail);
    ek_pass few = *p;
    few.n = p->n_want;
    ek_each_row(&few, per_layer_tail_row);
}

/* Rows of an embedding table, decoded from the file's bytes. */

static void invented_row(const ek_embedding_table *t, int row, int first, int n, float *out)
{
    uint64_t at = (uint64_t)row * (uint64_t)t->data.k + (uint64_t)first;
    for (int i = 0; i < n; i++) out[i] = (float)(ek_mix64(t->seed ^ (at + (uint64_t)i)) >> 40) * 0x1p-24f - 0.5f;
}

void ek_embedding_row(const ek_embedding_table *t, int row, int first, int n, float *out)
{
    if (t->data.plane[0]) ek_weight_row(&t->data, row, first, n, out);
    else invented_row(t, row, first, n, out);
}
