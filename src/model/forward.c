/* The forward pass (transformers, modeling_gemma4.py, in float32), layer by layer over all rows. Work on single rows is
 * gathered into stages between the linear layers. */
#include "model/pass.h"

#include <string.h>

/* --- feed-forward */

static void gate_row(const ek_pass *p, int r, int worker)
{
    (void)worker;
    float *g = ek_at(&p->s->gate, r);
    int n = ek_config_of(p)->intermediate_size;
    p->m->rows.gelu_mul(g, g, ek_at(&p->s->up, r), n);
    ek_put_row(p, &p->s->gate, n, r);
}

/* The end of a layer, and the beginning of the next one. */
static void end_row(const ek_pass *p, int r)
{
    const ek_model *m = p->m;
    int n = m->config.hidden_size, next = p->layer + 1;
    float *h = ek_at(&p->s->h, r);
    m->rows.scale(h, *ek_weights_of(p)->scalar, n);
    if (next == p->end && next < m->config.n_layers) return; /* the next layer is on another device */
    m->rows.rms_norm(ek_at(&p->s->x, r), h, next < m->config.n_layers ? m->w.layer[next].input_norm : m->w.norm, n,
                     m->config.rms_norm_eps);
    ek_put_row(p, &p->s->x, n, r);
}

static ek_act_form next_readers(const ek_pass *p)
{
    if (p->layer + 1 == p->end) return (ek_act_form){0}; /* the head quantises its few rows itself */
    const ek_layer_weights *w = ek_weights_of(p) + 1;
    return ek_readers(&w->q, &w->k, &w->v);
}

static void after_mlp(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_row_ops *ops = &p->m->rows;
    const ek_layer_weights *w = ek_weights_of(p);
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

/* Returns the rows that down reads. */
static ek_acts run_gate_and_up(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_weights *w = ek_weights_of(p);
    const int inter = ek_config_of(p)->intermediate_size;
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
    const ek_layer_weights *w = ek_weights_of(p);
    ek_acts gated = run_gate_and_up(p);
    ek_project(p, &w->down, &gated, &p->s->y);
    if (p->m->config.n_experts) ek_run_experts(p);
    p->reads = p->m->config.per_layer_size ? ek_readers(&w->per_layer_gate, NULL, NULL) : next_readers(p);
    ek_each_row(p, after_mlp);
}

/* --- per-layer inputs */

/* The inputs of this layer, from row 0 on. */
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
    p->m->rows.rms_norm(y, y, ek_weights_of(p)->post_per_layer_norm, n, p->m->config.rms_norm_eps);
    p->m->rows.add(ek_at(&p->s->h, r), y, n);
    end_row(p, r);
}

/* Returns the rows that the projection reads. */
static ek_acts gate_per_layer(ek_pass *p)
{
    const ek_model *m = p->m;
    ek_scratch *s = p->s;
    const ek_layer_weights *w = ek_weights_of(p);
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
    ek_project(p, &ek_weights_of(p)->per_layer_proj, &gated, &p->s->y);
    p->reads = next_readers(p);
    ek_each_row(p, add_per_layer);
}

void ek_run_layers(ek_pass *p)
{
    p->reads = (ek_act_form){0}; /* the first reader quantises the first layer's rows */
    for (p->layer = 0; p->layer < p->end; p->layer++) {
        ek_run_attention(p);
        if (!p->n) return;
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
    ek_linear_forward(&m->linear, m->pool, ek_weights_head(&m->w), &x, logits, ld);
    if (m->config.final_logit_softcapping == 0) return;
    cap_arg arg = {p, logits, ld, (m->config.vocab_size + CAP_TASK - 1) / CAP_TASK};
    ek_pool_run(m->pool, cap_task, &arg, arg.per_row * p->n);
}

/* --- the rows of a step */

/* Checks that the row sees itself and only written positions of its sequence: those from before the step and those of
 * its rows up to `written`. */
static ek_err check_visible(const ek_model *m, const ek_row *row, int r, int written)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        ek_range v = row->visible[k];
        if (m->attn[k] && (v.lo < 0 || v.lo > row->pos || v.end <= row->pos || v.end > written))
            return ek_fail(EK_EINVAL, "row %d at position %d sees [%d, %d), written is [0, %d)", r, row->pos, v.lo,
                           v.end, written);
    }
    return EK_OK;
}

static ek_err check_row(const ek_scratch *s, const ek_row *rows, int r, int n_seqs)
{
    const ek_config *c = &s->m->config;
    const ek_row *row = &rows[r];
    if (row->token < 0 || row->token >= c->vocab_size)
        return ek_fail(EK_EINVAL, "token id %d, the vocabulary has %d", row->token, c->vocab_size);
    if (row->seq < 0 || row->seq >= n_seqs)
        return ek_fail(EK_EINVAL, "row %d is of sequence %d, there are %d", r, row->seq, n_seqs);
    if (row->pos < 0 || row->pos >= s->max_ctx)
        return ek_fail(EK_EINVAL, "row %d is at position %d, the context is %d", r, row->pos, s->max_ctx);
    if (r > 0 && row->seq == row[-1].seq && row->pos != row[-1].pos + 1)
        return ek_fail(EK_EINVAL, "row %d is at position %d, the row before it at %d", r, row->pos, row[-1].pos);
    if (row->embedding && c->per_layer_size && (c->pad < 0 || c->pad >= c->vocab_size_per_layer))
        return ek_fail(EK_EINVAL,
                       "row %d is an embedding and takes the per-layer inputs of the pad token %d, there are %d", r,
                       c->pad, c->vocab_size_per_layer);
    return EK_OK;
}

ek_err ek_pass_check(const ek_scratch *s, const ek_row *rows, int n_rows, int n_seqs)
{
    int wanted = 0, written = 0;
    if (n_rows < 1 || n_rows > s->max_rows)
        return ek_fail(EK_EINVAL, "a step of %d rows, scratch memory is for 1 to %d", n_rows, s->max_rows);
    for (int r = 0; r < n_rows; r++) {
        EK_TRY(check_row(s, rows, r, n_seqs));
        wanted += rows[r].wants_logits;
    }
    for (int r = n_rows - 1; r >= 0; r--) {
        if (r == n_rows - 1 || rows[r].seq != rows[r + 1].seq) written = rows[r].pos + 1;
        EK_TRY(check_visible(s->m, &rows[r], r, written));
    }
    if (wanted > s->max_logits)
        return ek_fail(EK_EINVAL, "%d rows want logits, scratch memory is for %d", wanted, s->max_logits);
    return EK_OK;
}

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
    p->n_want = 0; /* later layers have no rows, and no row is dropped */
    ek_embed_rows(p);
    ek_run_layers(p);
    for (int r = 0; r < n_rows; r++) memcpy(h + r * ld, ek_at(&s->h, r), sizeof *h * (size_t)m->config.hidden_size);
    return EK_OK;
}

/* How the work on the rows of a pass is spread over the pool. */

typedef struct row_arg {
    const ek_pass *p;
    ek_row_fn *fn;
    int per_task;
} row_arg;

static void row_task(void *arg, int task, int worker)
{
    const row_arg *t = arg;
    for (int r = task * t->per_task; r < (task + 1) * t->per_task && r < t->p->n; r++) t->fn(t->p, r, worker);
}

void ek_each_row(const ek_pass *p, ek_row_fn *fn)
{
    enum { TASKS_PER_THREAD = 4 };
    int threads = ek_pool_threads(p->m->pool);
    row_arg arg = {p, fn, 1 + (p->n - 1) / (threads * TASKS_PER_THREAD)};
    if (!ek_rows_worth_waking(p->m->pool, p->n)) arg.per_task = p->n;
    ek_pool_run(p->m->pool, row_task, &arg, (p->n + arg.per_task - 1) / arg.per_task);
}
