#include <stdlib.h>
#include <string.h>

#include "../../support/device_pack.h"
#include "experts.h"
#include "linear.h"
#include "ops/rows/rows.h"

static float *floats(int n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) x[i] = uniform(seed, (uint64_t)i);
    return x;
}

/* bits 0: floats */
static void open_matrix(dev *d, matrix *m, int n, int k, int bits, int limbs, int copies)
{
    shape s = {n, k, bits, 64, 64, limbs, bits ? EK_BF16 : EK_F32, true};
    uint8_t *packed = NULL;
    for (int i = 0; i < copies; i++) {
        open_weights(&m->w[i], &s, (uint64_t)(n * 7 + k + i * 1000));
        must(ek_cuda_linear_plan(&m->l, &m->w[i]));
        if (!packed) packed = calloc((size_t)copies, m->l.bytes);
        device_pack(&m->l, &m->w[i], packed + (size_t)i * m->l.bytes, 0, m->l.n_panels);
    }
    m->at = up(d, packed, m->l.bytes * (size_t)copies);
    free(packed);
}

static void close_matrix(dev *d, matrix *m, int copies)
{
    for (int i = 0; i < copies; i++) free(m->w[i].data);
    drop(d, m->at);
}

void open_rows(rows *r, int n, int k)
{
    r->f = malloc(sizeof(float) * (size_t)n * (size_t)k);
    r->mem = aligned_alloc(64, ek_acts_bytes(n, k));
    ek_acts_bind(&r->acts, r->mem, r->f, k, n, k);
}

/* y = m r, which are quantised. */
static void forward(layer *e, const matrix *m, rows *r, float *y)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    if (m->l.units) quantize_both(e->d, &r->acts, &m->w[0]);
    ek_linear_forward(&ops, e->d->pool, &m->w[0], &r->acts, y, m->l.n);
}

static void choose(layer *e, const float *route, int32_t *id, float *weight)
{
    float *prob = malloc(sizeof *prob * (size_t)e->experts), sum = 0;
    ek_softmax(prob, route, e->experts);
    ek_top_k(prob, e->experts, e->top, id, weight);
    for (int i = 0; i < e->top; i++) sum += weight[i];
    for (int i = 0; i < e->top; i++) weight[i] = weight[i] / sum * e->scale[id[i]];
    for (int i = 1; i < e->top; i++)
        for (int j = i; j > 0 && id[j] < id[j - 1]; j--) {
            const int32_t t = id[j];
            const float u = weight[j];
            id[j] = id[j - 1], weight[j] = weight[j - 1], id[j - 1] = t, weight[j - 1] = u;
        }
    free(prob);
}

static void run_experts(layer *e)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    const int inter = e->expert_inter;
    float *g = malloc(sizeof *g * (size_t)inter * 2);
    ek_row_ops row;
    ek_row_init(&row, 0);
    quantize_both(e->d, &e->in[2].acts, &e->expert_gate.w[0]);
    for (int i = 0; i < ROWS * e->top; i++) {
        const int32_t r = i / e->top;
        ek_acts one = ek_acts_pick(&e->in[2].acts, &r, 1);
        ek_linear_forward(&ops, e->d->pool, &e->expert_gate.w[e->id[i]], &one, g, inter);
        ek_linear_forward(&ops, e->d->pool, &e->expert_up.w[e->id[i]], &one, g + inter, inter);
        row.gelu_mul(e->pair.f + i * inter, g, g + inter, inter);
    }
    quantize_both(e->d, &e->pair.acts, &e->expert_down.w[0]);
    for (int32_t i = 0; i < ROWS * e->top; i++) {
        ek_acts one = ek_acts_pick(&e->pair.acts, &i, 1);
        ek_linear_forward(&ops, e->d->pool, &e->expert_down.w[e->id[i]], &one, e->out + i * e->k, e->k);
    }
    free(g);
}

/* What the CPU makes of ROWS rows. */
static void expect(layer *e)
{
    const int k = e->k;
    const size_t all = sizeof(float) * ROWS * (size_t)k;
    float *route = malloc(sizeof *route * ROWS * (size_t)e->experts), *t = malloc(all), *sum = malloc(all);
    float *g = malloc(sizeof *g * ROWS * (size_t)e->inter * 2), *u = g + ROWS * e->inter;
    ek_row_ops row;
    ek_row_init(&row, 0);
    memcpy(e->h_between, e->h, all);
    for (int r = 0; r < ROWS; r++) {
        float *h = e->h_between + r * k;
        row.rms_norm(t, e->y + r * k, e->norm[AFTER_ATTENTION], k, EPS);
        row.add(h, t, k);
        for (int i = 0; i < 3; i++) row.rms_norm(e->in[i].f + r * k, h, e->norm[BEFORE_MLP + i], k, EPS);
        row.scale(e->in[1].f + r * k, ROUTER_FACTOR, k);
    }
    forward(e, &e->gate, &e->in[0], g), forward(e, &e->up, &e->in[0], u);
    row.gelu_mul(e->gated.f, g, u, ROWS * e->inter);
    forward(e, &e->down, &e->gated, e->dense);
    forward(e, &e->router, &e->in[1], route);
    for (int r = 0; r < ROWS; r++) choose(e, route + r * e->experts, e->id + r * e->top, e->weight + r * e->top);
    run_experts(e);
    memset(sum, 0, all);
    memcpy(e->h_end, e->h_between, all);
    for (int r = 0; r < ROWS; r++) {
        float *s = sum + r * k, *h = e->h_end + r * k;
        for (int i = r * e->top; i < (r + 1) * e->top; i++) row.axpy(s, e->weight[i], e->out + i * k, k);
        row.rms_norm(t, e->dense + r * k, e->norm[BEHIND_MLP], k, EPS);
        row.rms_norm(s, s, e->norm[BEHIND_EXPERTS], k, EPS);
        row.add(t, s, k);
        row.rms_norm(t, t, e->norm[BEHIND], k, EPS);
        row.add(h, t, k);
        row.scale(h, e->scalar, k);
        row.rms_norm(e->x.f + r * k, h, e->norm[NEXT], k, EPS);
    }
    forward(e, &e->next, &e->x, sum);
    free(route), free(t), free(sum), free(g);
}

layer *layer_open(dev *d, const layer *of, bool odd)
{
    layer *e = malloc(sizeof *e);
    *e = *of, e->d = d, e->scalar = 0.4375f;
    const int k = e->k, all = e->experts;
    open_matrix(d, &e->router, all, k, e->router_bits, 2, 1);
    gguf = e->type;
    open_matrix(d, &e->gate, e->inter, k, 4, 1, 1), open_matrix(d, &e->up, e->inter, k, 4, 1, 1);
    open_matrix(d, &e->down, k, e->inter, 4, 1, 1);
    open_matrix(d, &e->expert_gate, e->expert_inter, k, 4, 1, all);
    open_matrix(d, &e->expert_up, e->expert_inter, k, 4, 1, all);
    open_matrix(d, &e->expert_down, k, e->expert_inter, 4, 1, all), open_matrix(d, &e->next, 16, k, 4, 1, 1);
    gguf = NULL;
    for (int i = 0; i < NORMS; i++)
        e->norm[i] = floats(k, 40 + (uint64_t)i), e->at[i] = up(d, e->norm[i], sizeof(float) * (size_t)k);
    e->scale = floats(all, 50), e->scale_at = up(d, e->scale, sizeof(float) * (size_t)all);
    e->scalar_at = up(d, &e->scalar, sizeof e->scalar);
    e->h = make_rows(ROWS, k, odd), e->y = make_rows(ROWS, k, false);
    for (int i = 0; i < 3; i++) open_rows(&e->in[i], ROWS, k);
    open_rows(&e->gated, ROWS, e->inter), open_rows(&e->pair, ROWS * e->top, e->expert_inter),
        open_rows(&e->x, ROWS, k);
    const size_t row = sizeof(float) * (size_t)k;
    e->dense = malloc(ROWS * row), e->h_between = malloc(ROWS * row), e->h_end = malloc(ROWS * row),
    e->out = malloc(MOST_PAIRS * row);
    e->weight = malloc(sizeof(float) * MOST_PAIRS), e->id = malloc(sizeof(int32_t) * MOST_PAIRS);
    expect(e);
    return e;
}

void layer_close(layer *e)
{
    dev *d = e->d;
    const int all = e->experts;
    close_matrix(d, &e->gate, 1), close_matrix(d, &e->up, 1), close_matrix(d, &e->down, 1),
        close_matrix(d, &e->router, 1);
    close_matrix(d, &e->expert_gate, all), close_matrix(d, &e->expert_up, all), close_matrix(d, &e->expert_down, all);
    close_matrix(d, &e->next, 1);
    for (int i = 0; i < NORMS; i++) free(e->norm[i]), drop(d, e->at[i]);
    rows *const r[] = {&e->in[0], &e->in[1], &e->in[2], &e->gated, &e->pair, &e->x};
    for (int i = 0; i < 6; i++) free(r[i]->f), free(r[i]->mem);
    drop(d, e->scale_at), drop(d, e->scalar_at);
    free(e->scale), free(e->h), free(e->y), free(e->dense), free(e->h_between), free(e->h_end), free(e->out);
    free(e->weight), free(e->id), free(e);
}
