/* The forward pass (transformers, modeling_gemma4.py, in float32), layer by layer over all rows.
 * Work that concerns one row alone is gathered into stages between the linear layers. */
#include <string.h>

#include "model/embed.h"
#include "model/moe.h"

static const ek_layer_config *config_of(const ek_pass *p)
{
    return &p->m->config.layer[p->layer];
}

static const ek_layer_weights *weights_of(const ek_pass *p)
{
    return &p->m->w.layer[p->layer];
}

/* --- attention */

static void rotate(const ek_pass *p, float *head, int r)
{
    const ek_layer_config *l = config_of(p);
    p->m->rows.rope(head, ek_at(&p->s->cos[l->kind], r), ek_at(&p->s->sin[l->kind], r), l->head_dim / 2,
                    p->m->n_rotated[l->kind]);
}

static void query_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_layer_config *l = config_of(p);
    float *q = ek_at(&p->s->q, r);
    for (int j = 0; j < p->m->config.n_heads; j++, q += l->head_dim) {
        p->m->rows.rms_norm(q, q, weights_of(p)->q_norm, l->head_dim, p->m->config.rms_norm_eps);
        rotate(p, q, r);
    }
}

static void key_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_layer_config *l = config_of(p);
    const ek_row_ops *ops = &p->m->rows;
    float eps = p->m->config.rms_norm_eps, *k = ek_at(&p->s->k, r), *v = ek_at(&p->s->v, r);
    for (int j = 0; j < l->n_kv_heads; j++, k += l->head_dim, v += l->head_dim) {
        ops->rms_norm(v, l->k_eq_v ? k : v, NULL, l->head_dim, eps); /* values are k_proj's output as it is */
        ops->rms_norm(k, k, weights_of(p)->k_norm, l->head_dim, eps);
        rotate(p, k, r);
    }
}

static void all_row(const ek_pass *p, int r, int worker)
{
    query_row(p, r, worker);
    key_row(p, r, worker);
}

/* Rows of one page go to one thread: a quantised format may pack two tokens into a byte. */
static void store_rows(const ek_pass *p, int first, int end)
{
    const ek_scratch *s = p->s;
    for (int r = first; r < end; r++)
        ek_attn_store(p->m->attn[config_of(p)->kind], &s->view[s->row[EK_FULL][r].view], s->pos[r], ek_at(&s->k, r),
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
    ek_layer_kind kind = config_of(p)->kind, start = ek_kv_start_kind(kind);
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

/* Rows that want no logits end here: the layers behind write no keys that others could read. */
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

/* q, k and v of all rows; of the last owner q only for rows that go on. */
static void project_heads(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_weights *w = weights_of(p);
    bool owns = config_of(p)->owns_kv, last = p->layer == ek_prompt_layers(&m->config) && p->n_want < p->n;
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
    ops->rms_norm(y, y, weights_of(p)->post_attention_norm, n, eps);
    ops->add(h, y, n);
    ops->rms_norm(ek_at(&p->s->x, r), h, weights_of(p)->pre_mlp_norm, n, eps);
    ek_put_row(p, &p->s->x, n, r);
}

static void attend(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_config *l = config_of(p);
    ek_attn_run(m->attn[l->kind], m->pool, s->view, s->row[l->kind], p->n, s->q.at, s->q.ld, s->o.at, s->o.ld, s->attn);
    ek_acts o = ek_read_rows(p, &s->o, m->config.n_heads * l->head_dim);
    const ek_layer_weights *w = weights_of(p);
    ek_project(p, &w->o, &o, &s->y);
    p->reads = ek_readers(&w->gate, &w->up, NULL);
    ek_each_row(p, after_attention);
}

/* --- feed-forward */

static void gate_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    float *g = ek_at(&p->s->gate, r);
    int n = config_of(p)->intermediate_size;
    p->m->rows.gelu_mul(g, g, ek_at(&p->s->up, r), n);
    ek_put_row(p, &p->s->gate, n, r);
}

/* The end of a layer, and the beginning of the next one. */
static void end_row(const ek_pass *p, int r)
{
    const ek_model *m = p->m;
    int n = m->config.hidden_size, next = p->layer + 1;
    float *h = ek_at(&p->s->h, r);
    m->rows.scale(h, *weights_of(p)->scalar, n);
    if (next == p->end && next < m->config.n_layers) return; /* what reads it is elsewhere */
    m->rows.rms_norm(ek_at(&p->s->x, r), h, next < m->config.n_layers ? m->w.layer[next].input_norm : m->w.norm, n,
                     m->config.rms_norm_eps);
    ek_put_row(p, &p->s->x, n, r);
}

static ek_act_form next_readers(const ek_pass *p)
{
    if (p->layer + 1 == p->end) return (ek_act_form){0}; /* the head quantises its few rows itself */
    const ek_layer_weights *w = weights_of(p) + 1;
    return ek_readers(&w->q, &w->k, &w->v);
}

static void after_mlp(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_row_ops *ops = &p->m->rows;
    const ek_layer_weights *w = weights_of(p);
    int n = p->m->config.hidden_size;
    float eps = p->m->config.rms_norm_eps, *y = ek_at(&p->s->y, r);
    if (p->m->config.n_experts) {
        float *sum = ek_at(&p->s->sum, r);
        ops->rms_norm(y, y, w->post_mlp_norm_1, n, eps);
        ops->rms_norm(sum, sum, w->post_mlp_norm_2, n, eps);
        ops->add(y, sum, n);
    }
    ops->rms_norm(y, y, w->post_mlp_norm, n, eps);
    ops->add(ek_at(&p->s->h, r), y, n);
    if (p->m->config.per_layer_size) ek_put_row(p, &p->s->h, n, r);
    else end_row(p, r);
}

/* The rows that down reads. */
static ek_acts run_gate_and_up(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_weights *w = weights_of(p);
    const int inter = config_of(p)->intermediate_size;
    ek_acts x = ek_read_put_rows(p, &s->x, m->config.hidden_size), gated;
    p->reads = ek_readers(&w->down, NULL, NULL);
    if (ek_gates(p->n, &w->gate, &w->up, p->reads)) {
        ek_acts_bind(&gated, s->gated, NULL, 0, p->n, inter);
        const ek_linear_gate gate = {
            .up = &w->up, .gelu_mul = m->rows.gelu_mul, .out = &gated, .form = p->reads, .space = s->gate_space};
        ek_linear_job job = {.w = &w->gate, .x = &x, .gate = &gate};
        ek_linear_run(&m->linear, m->pool, 1, &job);
        return gated;
    }
    ek_linear_job job[] = {{.w = &w->gate, .x = &x, .y = s->gate.at, .ldy = s->gate.ld},
                           {.w = &w->up, .x = &x, .y = s->up.at, .ldy = s->up.ld}};
    ek_linear_run(&m->linear, m->pool, 2, job);
    ek_each_row(p, gate_row);
    return ek_read_put_rows(p, &s->gate, inter);
}

static void run_mlp(ek_pass *p)
{
    const ek_layer_weights *w = weights_of(p);
    ek_acts gated = run_gate_and_up(p);
    ek_project(p, &w->down, &gated, &p->s->y);
    if (p->m->config.n_experts) ek_run_experts(p);
    p->reads = p->m->config.per_layer_size ? ek_readers(&w->per_layer_gate, NULL, NULL) : next_readers(p);
    ek_each_row(p, after_mlp);
}

/* --- per-layer inputs */

/* This layer's, from row 0 on. */
static ek_buffer per_layer_inputs(const ek_pass *p)
{
    int before = ek_prompt_layers(&p->m->config), size = p->m->config.per_layer_size;
    ek_buffer own = p->layer < before ? p->s->per_layer_head : p->s->per_layer_tail;
    own.at += (p->layer < before ? p->layer : p->layer - before) * size;
    return own;
}

static void per_layer_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_buffer own = per_layer_inputs(p);
    float *g = ek_at(&p->s->gate, r);
    p->m->rows.gelu_mul(g, g, ek_at(&own, r), p->m->config.per_layer_size);
    ek_put_row(p, &p->s->gate, p->m->config.per_layer_size, r);
}

static void add_per_layer(const ek_pass *p, int r, int worker)
{
    (void)worker;
    float *y = ek_at(&p->s->y, r);
    int n = p->m->config.hidden_size;
    p->m->rows.rms_norm(y, y, weights_of(p)->post_per_layer_norm, n, p->m->config.rms_norm_eps);
    p->m->rows.add(ek_at(&p->s->h, r), y, n);
    end_row(p, r);
}

/* The rows that the projection reads. */
static ek_acts gate_per_layer(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_weights *w = weights_of(p);
    const int size = m->config.per_layer_size;
    ek_acts h = ek_read_put_rows(p, &s->h, m->config.hidden_size), gated;
    p->reads = ek_readers(&w->per_layer_proj, NULL, NULL);
    if (ek_gates(p->n, &w->per_layer_gate, NULL, p->reads)) {
        const ek_buffer own = per_layer_inputs(p);
        ek_acts_bind(&gated, s->gated, NULL, 0, p->n, size);
        const ek_linear_gate gate = {.factor = own.at,
                                     .ldf = own.ld,
                                     .gelu_mul = m->rows.gelu_mul,
                                     .out = &gated,
                                     .form = p->reads,
                                     .space = s->gate_space};
        ek_linear_job job = {.w = &w->per_layer_gate, .x = &h, .gate = &gate};
        ek_linear_run(&m->linear, m->pool, 1, &job);
        return gated;
    }
    ek_project(p, &w->per_layer_gate, &h, &s->gate);
    ek_each_row(p, per_layer_row);
    return ek_read_put_rows(p, &s->gate, size);
}

static void run_per_layer(ek_pass *p)
{
    ek_acts gated = gate_per_layer(p);
    ek_project(p, &weights_of(p)->per_layer_proj, &gated, &p->s->y);
    p->reads = next_readers(p);
    ek_each_row(p, add_per_layer);
}

void ek_run_layers(ek_pass *p)
{
    p->reads = (ek_act_form){0}; /* the first layer's rows are quantised by their first reader */
    for (p->layer = 0; p->layer < p->end; p->layer++) {
        project_heads(p);
        if (!p->n) return;
        attend(p);
        run_mlp(p);
        if (p->m->config.per_layer_size) run_per_layer(p);
    }
}

/* --- head */

typedef struct cap_arg {
    const ek_pass *p;
    float *logits;
    ptrdiff_t ld;
    int per_row; /* tasks */
} cap_arg;

enum { CAP_TASK = 16384 };

static void cap_task(void *arg, int task, int worker)
{
    (void)worker;
    const cap_arg *t = arg;
    const ek_config *c = &t->p->m->config;
    int first = task % t->per_row * CAP_TASK, left = c->vocab_size - first;
    t->p->m->rows.soft_cap(t->logits + task / t->per_row * t->ld + first, c->final_logit_softcapping,
                           left < CAP_TASK ? left : CAP_TASK);
}

static void run_head(const ek_pass *p, float *logits, ptrdiff_t ld)
{
    const ek_model *m = p->m;
    ek_acts x = ek_read_rows(p, &p->s->x, m->config.hidden_size);
    ek_linear_forward(&m->linear, m->pool, &m->w.embed, &x, logits, ld);
    if (m->config.final_logit_softcapping == 0) return;
    cap_arg arg = {p, logits, ld, (m->config.vocab_size + CAP_TASK - 1) / CAP_TASK};
    ek_pool_run(m->pool, cap_task, &arg, arg.per_row * p->n);
}

/* --- the rows of a step */

static void load_rows(ek_pass *p, const ek_row *rows, int n_rows, const ek_seq *seqs)
{
    ek_scratch *s = p->s;
    for (int r = 0; r < n_rows; r++) {
        const ek_row *row = &rows[r];
        bool same = r > 0 && row->seq == row[-1].seq;
        if (!same) s->seq[p->n_views++] = &seqs[row->seq];
        if (!same || row->pos % EK_PAGE_TOKENS == 0) s->store[p->n_store++] = r;
        if (row->wants_logits) s->want[p->n_want++] = r;
        for (int k = 0; k < EK_KIND_COUNT; k++)
            s->row[k][r] = (ek_attn_row){p->n_views - 1, row->visible[k].lo, row->visible[k].end};
        s->pos[r] = row->pos;
        s->embedding[r] = row->embedding;
        s->id[r] = row->embedding ? p->m->config.pad : row->token;
    }
    s->store[p->n_store] = n_rows;
}

ek_err ek_model_forward(const ek_model *m, ek_scratch *s, const ek_kv_memory *kv, const ek_row *rows, int n_rows,
                        const ek_seq *seqs, int n_seqs, float *logits, ptrdiff_t ld)
{
    EK_ASSERT(s->m == m);
    EK_TRY(ek_pass_check(s, rows, n_rows, n_seqs));
    ek_pass pass = {.m = m, .s = s, .kv = kv, .n = n_rows, .end = m->config.n_layers}, *p = &pass;
    load_rows(p, rows, n_rows, seqs);
    ek_embed_rows(p);
    ek_run_layers(p);
    if (p->n) run_head(p, logits, ld);
    return EK_OK;
}

ek_err ek_model_forward_front(const ek_model *m, ek_scratch *s, const ek_kv_memory *kv, const ek_row *rows, int n_rows,
                              const ek_seq *seqs, int n_seqs, int end, float *h, ptrdiff_t ld)
{
    EK_ASSERT(s->m == m && end <= ek_prompt_layers(&m->config));
    EK_TRY(ek_pass_check(s, rows, n_rows, n_seqs));
    ek_pass pass = {.m = m, .s = s, .kv = kv, .n = n_rows, .end = end}, *p = &pass;
    load_rows(p, rows, n_rows, seqs);
    p->n_want = 0; /* nothing for the layers behind, and no row leaves */
    ek_embed_rows(p);
    ek_run_layers(p);
    for (int r = 0; r < n_rows; r++) memcpy(h + r * ld, ek_at(&s->h, r), sizeof *h * (size_t)m->config.hidden_size);
    return EK_OK;
}
