/* Mixture of experts with as many experts as 26B-A4B has, eight per token: which are chosen, with
 * what weight, and that their outputs are added in ascending id, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "model/pass.h"

enum { FEW = 11, MAX = 256 };

static float value_at(int row, int i)
{
    return (float)(ek_mix64((uint64_t)(row * MAX + i) + 17) >> 40) * 0x1p-23f - 1;
}

/* y = x w^T for one row. */
static void product(const ek_model *m, const ek_linear *w, const float *x, float *y)
{
    ek_acts a;
    void *mem = ek_alloc_big(ek_acts_bytes(1, w->k));
    ek_acts_bind(&a, mem, x, MAX, 1, w->k);
    ek_linear_forward(&m->linear, NULL, w, &a, y, MAX);
    ek_free_big(mem, ek_acts_bytes(1, w->k));
}

/* The row's experts by the definition: probabilities over all, the largest (ties to the lowest id),
 * each over the sum of the chosen in that order, times the expert's scale. */
static void choose(const ek_model *m, const ek_layer_weights *w, const float *h, int *id, float *weight)
{
    const ek_config *c = &m->config;
    float x[MAX], p[MAX], sum = 0;
    m->rows.rms_norm(x, h, w->router_scale, c->hidden_size, c->rms_norm_eps);
    m->rows.scale(x, (float)(1 / sqrt((double)c->hidden_size)), c->hidden_size);
    product(m, &w->router, x, p);
    ek_softmax(p, p, c->n_experts);
    bool taken[MAX] = {false};
    for (int j = 0; j < c->top_k_experts; j++) {
        id[j] = -1;
        for (int e = 0; e < c->n_experts; e++)
            if (!taken[e] && (id[j] < 0 || p[e] > p[id[j]])) id[j] = e;
        taken[id[j]] = true;
        sum += p[id[j]];
    }
    for (int j = 0; j < c->top_k_experts; j++) weight[j] = p[id[j]] / sum * w->expert_scale[id[j]];
}

static void reference(const ek_model *m, int layer, const float *h, float *sum, int *by_id, float *weight_by_id)
{
    const ek_config *c = &m->config;
    const ek_layer_weights *w = &m->w.layer[layer];
    int id[MAX], n = 0;
    float weight[MAX], x[MAX], gate[MAX], up[MAX], y[MAX];
    choose(m, w, h, id, weight);
    m->rows.rms_norm(x, h, w->pre_mlp_norm_2, c->hidden_size, c->rms_norm_eps);
    for (int i = 0; i < c->hidden_size; i++) sum[i] = 0;
    for (int e = 0; e < c->n_experts; e++)
        for (int j = 0; j < c->top_k_experts; j++) {
            if (id[j] != e) continue;
            by_id[n] = e, weight_by_id[n++] = weight[j];
            product(m, &w->expert_gate[e], x, gate);
            product(m, &w->expert_up[e], x, up);
            m->rows.gelu_mul(gate, gate, up, c->moe_intermediate_size);
            product(m, &w->expert_down[e], gate, y);
            for (int i = 0; i < c->hidden_size; i++) sum[i] = fmaf(weight[j], y[i], sum[i]);
        }
    assert_int_equal(n, c->top_k_experts);
}

/* many: so many rows per expert that gate and up are gated in the tasks of their products. */
static void check(const char *name, int bits, bool many)
{
    ek_config *c = ek_alloc(sizeof *c);
    ek_model *m;
    ek_scratch *s;
    assert_int_equal(ek_config_tiny(c, name), EK_OK);
    const int rows = many ? EK_ROWS_WORTH_GATING * c->n_experts / c->top_k_experts + 1 : FEW;

    ek_model_opts o = {.cpu = ek_cpu_detect()};
    if (ek_model_synthetic(&m, c, bits, 3, &o) || ek_scratch_open(&s, m, rows, rows, 64)) fail_msg("%s", ek_err_text());
    for (int layer = 0; layer < c->n_layers; layer++) {
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < c->hidden_size; i++) ek_at(&s->h, r)[i] = value_at(r, i);
        ek_pass p = {.m = m, .s = s, .n = rows, .layer = layer};
        ek_run_experts(&p);
        int all[MAX] = {0}, distinct = 0;
        for (int r = 0; r < rows; r++) {
            int id[MAX];
            float weight[MAX], sum[MAX], h[MAX];
            for (int i = 0; i < c->hidden_size; i++) h[i] = value_at(r, i);
            reference(m, layer, h, sum, id, weight);
            for (int j = 0; j < c->top_k_experts; j++) {
                int at = r * c->top_k_experts + j;
                if (s->expert[at] != id[j] || s->weight[at] != weight[j])
                    fail_msg("%s %d bits, layer %d row %d choice %d: expert %d with %a, should be %d with %a", name,
                             bits, layer, r, j, s->expert[at], (double)s->weight[at], id[j], (double)weight[j]);
                distinct += all[id[j]]++ == 0;
            }
            for (int i = 0; i < c->hidden_size; i++)
                if (ek_f32_bits(ek_at(&s->sum, r)[i]) != ek_f32_bits(sum[i]))
                    fail_msg("%s %d bits, layer %d row %d [%d]: %a, in ascending id %a", name, bits, layer, r, i,
                             (double)ek_at(&s->sum, r)[i], (double)sum[i]);
        }
        assert_true(distinct > c->top_k_experts); /* rows differ in what they choose */
    }
    ek_scratch_close(s);
    ek_model_close(m);
    free(c);
}

static void test_experts_of_published_number(void **state)
{
    (void)state;
    check("T7", 0, false);
    check("T2", 0, false);
    check("T6", 0, true);
}

static void test_quantised_experts(void **state)
{
    (void)state;
    check("Q2", 4, false);
    check("Q2", 4, true);
    check("Q2", 8, true);
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_experts_of_published_number),
                                       cmocka_unit_test(test_quantised_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
