#include "model/pass.h"

#include <string.h>

static void rotate(const ek_pass *p, float *head, int r)
{
    const ek_layer_config *l = ek_config_of(p);
    p->m->rows.rope(head, ek_at(&p->s->cos[l->kind], r), ek_at(&p->s->sin[l->kind], r), l->head_dim / 2,
                    p->m->n_rotated[l->kind]);
}

static void query_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_layer_config *l = ek_config_of(p);
    float *q = ek_at(&p->s->q, r);
    for (int j = 0; j < p->m->config.n_heads; j++, q += l->head_dim) {
        p->m->rows.rms_norm(q, q, ek_weights_of(p)->q_norm, l->head_dim, p->m->config.rms_norm_eps);
        rotate(p, q, r);
    }
}

static void key_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_layer_config *l = ek_config_of(p);
    const ek_row_ops *ops = &p->m->rows;
    float eps = p->m->config.rms_norm_eps, *k = ek_at(&p->s->k, r), *v = ek_at(&p->s->v, r);
    for (int j = 0; j < l->n_kv_heads; j++, k += l->head_dim, v += l->head_dim) {
        ops->rms_norm(v, l->k_eq_v ? k : v, NULL, l->head_dim, eps); /* values are k_proj's unchanged output */
        ops->rms_norm(k, k, ek_weights_of(p)->k_norm, l->head_dim, eps);
        rotate(p, k, r);
    }
}

static void all_row(const ek_pass *p, int r, int worker)
{
    query_row(p, r, worker);
    key_row(p, r, worker);
}

/* One thread stores all rows of a page, because a quantised format may pack two tokens into a byte. */
static void store_rows(const ek_pass *p, int first, int end)
{
    const ek_scratch *s = p->s;
    for (int r = first; r < end; r++)
        ek_attn_store(p->m->attn[ek_config_of(p)->kind], &s->view[s->row[EK_FULL][r].view], s->pos[r], ek_at(&s->k, r),
                      ek_at(&s->v, r));
}

static void store_task(void *arg, int task, int worker)
{
    (void)worker;
    const ek_pass *p = arg;
    store_rows(p, p->s->store[task], p->s->store[task + 1]);
}

static void store(const ek_pass *p)
{
    if (!ek_rows_worth_waking(p->m->pool, p->n)) store_rows(p, 0, p->n);
    else ek_pool_run(p->m->pool, store_task, (void *)p, p->n_store);
}

static void point_views(const ek_pass *p)
{
    ek_scratch *s = p->s;
    ek_layer_kind kind = ek_config_of(p)->kind, start = ek_kv_start_kind(kind);
    for (int i = 0; i < p->n_views; i++)
        s->view[i] = (ek_kv_view){.base = p->kv->base[kind] + p->m->kv_offset[p->layer],
                                  .stride = p->kv->stride[kind],
                                  .page = s->seq[i]->page[kind],
                                  .start_stride = p->kv->stride[start],
                                  .n_start = p->m->layout.n_start};
    for (int i = 0; i < p->n_views && p->m->layout.n_start > 0; i++)
        s->view[i].start_base = p->kv->base[start] + p->m->kv_start_offset[p->layer];
}

static void copy_row(const ek_buffer *b, int to, int from)
{
    memmove(ek_at(b, to), ek_at(b, from), sizeof(float) * (size_t)b->ld);
}

/* Drops rows without logits: later layers write no keys that other rows could read. */
static void drop_rows(ek_pass *p)
{
    ek_scratch *s = p->s;
    for (int i = 0; i < p->n_want; i++) {
        int from = s->want[i];
        if (from == i) continue;
        copy_row(&s->h, i, from);
        copy_row(&s->x, i, from);
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            copy_row(&s->cos[k], i, from);
            copy_row(&s->sin[k], i, from);
            s->row[k][i] = s->row[k][from];
        }
    }
    p->n = p->n_want;
}

/* q, k and v of all rows; in the last owner q only for rows that continue. */
static void project_heads(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_weights *w = ek_weights_of(p);
    bool owns = ek_config_of(p)->owns_kv, last = p->layer == ek_prompt_layers(&m->config) && p->n_want < p->n;
    ek_acts x = ek_read_put_rows(p, &s->x, m->config.hidden_size);
    ek_linear_job job[3];
    int n = 0;
    if (!last) job[n++] = (ek_linear_job){.w = &w->q, .x = &x, .y = s->q.at, .ldy = s->q.ld};
    if (owns) job[n++] = (ek_linear_job){.w = &w->k, .x = &x, .y = s->k.at, .ldy = s->k.ld};
    if (owns && w->v.n) job[n++] = (ek_linear_job){.w = &w->v, .x = &x, .y = s->v.at, .ldy = s->v.ld};
    ek_linear_run(&m->linear, m->pool, n, job);
    ek_each_row(p, last ? key_row : owns ? all_row : query_row);
    point_views(p);
    if (owns) store(p);
    if (!last) return;
    drop_rows(p);
    if (!p->n) return;
    x = ek_read_rows(p, &s->x, m->config.hidden_size);
    ek_project(p, &w->q, &x, &s->q);
    ek_each_row(p, query_row);
}

static void after_attention(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_row_ops *ops = &p->m->rows;
    int n = p->m->config.hidden_size;
    float eps = p->m->config.rms_norm_eps, *h = ek_at(&p->s->h, r), *y = ek_at(&p->s->y, r);
    ops->rms_norm(y, y, ek_weights_of(p)->post_attention_norm, n, eps);
    ops->add(h, y, n);
    ops->rms_norm(ek_at(&p->s->x, r), h, ek_weights_of(p)->pre_mlp_norm, n, eps);
    ek_put_row(p, &p->s->x, n, r);
}

static void attend(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_config *l = ek_config_of(p);
    ek_attn_run(m->attn[l->kind], m->pool, s->view, s->row[l->kind], p->n, s->q.at, s->q.ld, s->o.at, s->o.ld, s->attn);
    ek_acts o = ek_read_rows(p, &s->o, m->config.n_heads * l->head_dim);
    const ek_layer_weights *w = ek_weights_of(p);
    ek_project(p, &w->o, &o, &s->y);
    p->reads = ek_readers(&w->gate, &w->up, NULL);
    ek_each_row(p, after_attention);
}

void ek_run_attention(ek_pass *p)
{
    project_heads(p);
    if (p->n) attend(p);
}
