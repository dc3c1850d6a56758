/* Mixture of experts: every row has experts of its own. Rows are grouped by expert so that an expert's
 * weights are read once; a row's outputs are then added in ascending expert id, so the other rows
 * of a group cannot change it. A pair is one (row, chosen expert). */
#include <math.h>
#include <string.h>

#include "model/pass.h"

static void route_input(const ek_pass *p, int r, int worker)
{
    (void)worker;
    int n = p->m->config.hidden_size;
    float *x = ek_at(&p->s->x, r);
    p->m->rows.rms_norm(x, ek_at(&p->s->h, r), ek_weights_of(p)->router_scale, n, p->m->config.rms_norm_eps);
    p->m->rows.scale(x, (float)(1 / sqrt((double)n)), n);
    ek_put_row(p, &p->s->x, n, r);
}

/* Softmax over all experts; the k largest, renormalised in descending order and scaled; then sorted by ascending id. */
static void choose(const ek_pass *p, int r, int worker)
{
    (void)worker;
    const ek_config *c = &p->m->config;
    ek_scratch *s = p->s;
    int k = c->top_k_experts;
    int32_t *id = s->expert + (ptrdiff_t)r * k;
    float *w = s->weight + (ptrdiff_t)r * k, *route = ek_at(&s->route, r), sum = 0;
    ek_softmax(route, route, c->n_experts);
    ek_top_k(route, c->n_experts, k, id, w);
    for (int i = 0; i < k; i++) sum += w[i];
    for (int i = 0; i < k; i++) w[i] = w[i] / sum * ek_weights_of(p)->expert_scale[id[i]];
    for (int i = 1; i < k; i++)
        for (int j = i; j > 0 && id[j] < id[j - 1]; j--) {
            int32_t t = id[j];
            float u = w[j];
            id[j] = id[j - 1], w[j] = w[j - 1];
            id[j - 1] = t, w[j - 1] = u;
        }
}

static void group_pairs(const ek_pass *p)
{
    const ek_config *c = &p->m->config;
    ek_scratch *s = p->s;
    int k = c->top_k_experts, n_pairs = p->n * k, before = 0;
    for (int e = 0; e <= c->n_experts; e++) s->first[e] = 0;
    for (int i = 0; i < n_pairs; i++) s->first[s->expert[i]]++;
    for (int e = 0; e <= c->n_experts; e++) {
        int n = s->first[e];
        s->first[e] = before;
        before += n;
    }
    for (int i = 0; i < n_pairs; i++) {
        int at = s->first[s->expert[i]]++;
        s->pair_row[at] = i / k;
        s->pair_self[i] = i;
        s->row_pair[i] = at;
    }
    for (int e = c->n_experts; e > 0; e--) s->first[e] = s->first[e - 1];
    s->first[0] = 0;
}

static void expert_input(const ek_pass *p, int r, int worker)
{
    (void)worker;
    int n = p->m->config.hidden_size;
    p->m->rows.rms_norm(ek_at(&p->s->x, r), ek_at(&p->s->h, r), ek_weights_of(p)->pre_mlp_norm_2, n,
                        p->m->config.rms_norm_eps);
    ek_put_row(p, &p->s->x, n, r);
}

/* Adds one job per chosen expert: its pairs' rows of x through its matrix into y. The experts' matrices of one role
 * have one format, so x is quantised once. */
static int add_jobs(const ek_pass *p, const ek_linear *experts, ek_acts *x, const int32_t *index, const ek_buffer *y,
                    int n)
{
    ek_scratch *s = p->s;
    for (int e = 0; e < p->m->config.n_experts; e++) {
        int first = s->first[e], rows = s->first[e + 1] - first;
        if (rows == 0) continue;
        s->pick[e] = ek_acts_pick(x, index + first, rows);
        s->job[n++] = (ek_linear_job){.w = &experts[e], .x = &s->pick[e], .y = ek_at(y, first), .ldy = y->ld};
    }
    return n;
}

static void run_jobs(const ek_pass *p, int n)
{
    ek_linear_run(&p->m->linear, p->m->pool, n, p->s->job);
}

static void gate_pair(const ek_pass *p, int pair, int worker)
{
    (void)worker;
    float *g = ek_at(&p->s->pair_gate, pair);
    int n = p->m->config.moe_intermediate_size;
    p->m->rows.gelu_mul(g, g, ek_at(&p->s->pair_up, pair), n);
    ek_put_row(p, &p->s->pair_gate, n, pair);
}

static void add_experts(const ek_pass *p, int r, int worker)
{
    (void)worker;
    ek_scratch *s = p->s;
    int n = p->m->config.hidden_size, k = p->m->config.top_k_experts;
    float *sum = ek_at(&s->sum, r);
    for (int i = 0; i < n; i++) sum[i] = 0;
    for (int i = r * k; i < (r + 1) * k; i++)
        p->m->rows.axpy(sum, s->weight[i], ek_at(&s->pair_out, s->row_pair[i]), n);
}

/* The same for gate and up, whose outputs are the rows that down reads. */
static int add_gated_jobs(const ek_pass *p, ek_acts *x, ek_acts *gated)
{
    ek_scratch *s = p->s;
    const ek_layer_weights *w = ek_weights_of(p);
    int n = 0;
    for (int e = 0; e < p->m->config.n_experts; e++) {
        int first = s->first[e], rows = s->first[e + 1] - first;
        if (rows == 0) continue;
        s->pick[e] = ek_acts_pick(x, s->pair_row + first, rows);
        s->job_gate[e] = (ek_linear_gate){.up = &w->expert_up[e],
                                          .gelu_mul = p->m->rows.gelu_mul,
                                          .out = gated,
                                          .row = first,
                                          .form = p->reads,
                                          .space = s->gate_space};
        s->job[n++] = (ek_linear_job){.w = &w->expert_gate[e], .x = &s->pick[e], .gate = &s->job_gate[e]};
    }
    return n;
}

/* From x, the tokens' rows, through gate and up to the pairs' rows that down reads. */
static ek_acts run_gate_and_up(ek_pass *p, ek_acts *x)
{
    const ek_model *m = p->m;
    const ek_layer_weights *w = ek_weights_of(p);
    ek_scratch *s = p->s;
    const int inter = m->config.moe_intermediate_size;
    ek_pass pairs = *p;
    pairs.n = p->n * m->config.top_k_experts;
    pairs.reads = ek_readers(w->expert_down, NULL, NULL);
    if (ek_gates(pairs.n / m->config.n_experts, w->expert_gate, w->expert_up, pairs.reads)) {
        ek_acts gated;
        ek_acts_bind(&gated, s->pair_gated, NULL, 0, pairs.n, inter);
        run_jobs(p, add_gated_jobs(&pairs, x, &gated));
        return gated;
    }
    int n = add_jobs(p, w->expert_gate, x, s->pair_row, &s->pair_gate, 0);
    if (w->expert_up->a_group != w->expert_gate->a_group) {
        run_jobs(p, n);
        n = 0;
        ek_acts_quantize_for(&m->linear, m->pool, x, w->expert_up);
    }
    run_jobs(p, add_jobs(p, w->expert_up, x, s->pair_row, &s->pair_up, n));
    ek_each_row(&pairs, gate_pair);
    return ek_read_put_rows(&pairs, &s->pair_gate, inter);
}

void ek_run_experts(ek_pass *p)
{
    const ek_model *m = p->m;
    const ek_layer_weights *w = ek_weights_of(p);
    ek_scratch *s = p->s;

    p->reads = ek_readers(&w->router, NULL, NULL);
    ek_each_row(p, route_input);
    ek_acts x = ek_read_put_rows(p, &s->x, m->config.hidden_size);
    ek_linear_forward(&m->linear, m->pool, &w->router, &x, s->route.at, s->route.ld);
    ek_each_row(p, choose);
    group_pairs(p);

    p->reads = ek_readers(w->expert_gate, w->expert_up, NULL);
    ek_each_row(p, expert_input);
    x = ek_read_put_rows(p, &s->x, m->config.hidden_size);
    x = run_gate_and_up(p, &x);
    run_jobs(p, add_jobs(p, w->expert_down, &x, s->pair_self, &s->pair_out, 0));
    ek_each_row(p, add_experts);
}

void ek_model_run_experts(const ek_model *m, ek_scratch *s, int i, const float *h, int n, float *sum)
{
    const size_t hidden = (size_t)m->config.hidden_size, bytes = sizeof(float) * hidden;
    ek_pass pass = {.m = m, .s = s, .n = n, .layer = i, .end = m->config.n_layers};
    EK_ASSERT(s->m == m && n <= s->max_rows);
    for (int r = 0; r < n; r++) memcpy(ek_at(&s->h, r), h + hidden * (size_t)r, bytes);
    ek_run_experts(&pass);
    for (int r = 0; r < n; r++) memcpy(sum + hidden * (size_t)r, ek_at(&s->sum, r), bytes);
}
