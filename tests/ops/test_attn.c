/* Attention over pages: an independent float64 softmax checks the values, memcmp checks
 * that instruction sets equal the contract to the bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_scene.h"
#include "base/machine/cpu.h"
#include "ops/attn/attn_kernels.h"

static const int edges[] = {0,   1,   14,  15,  16,  17,  62,  63,  64,  65,   127,  128, 254,
                            255, 256, 257, 300, 511, 512, 513, 767, 768, 1023, 1024, 1025};
enum { N_EDGES = sizeof edges / sizeof *edges, LONGEST = 1026 };

static void test_right(void **state)
{
    (void)state;
    double o[512], tol[512];
    for (int i = 0; i < N_CASES; i++) {
        const ek_attn_shape *sh = &cases[i].shape;
        scene s;
        scene_open(&s, sh, LONGEST, 0, 100 + (uint64_t)i);
        float *q = queries(sh, N_EDGES, 7);
        ek_attn_row rows[N_EDGES];
        for (int r = 0; r < N_EDGES; r++) rows[r] = row_at(&cases[i], 0, edges[r]);
        float *got = attend(0, NULL, sh, &s.view, rows, N_EDGES, q);
        for (int r = 0; r < N_EDGES; r++)
            for (int h = 0; h < sh->n_heads; h++) {
                size_t at = (size_t)r * q_width(sh) + (size_t)h * (size_t)sh->head_dim;
                reference(&s, &rows[r], q + at, h, o, tol);
                check_near("attn", "scalar", o, got + at, (size_t)sh->head_dim, tol, "%s pos %d head %d",
                           case_text(&cases[i]), edges[r], h);
            }
        free(got);
        free(q);
        scene_close(&s);
    }
}

/* Every edge position in one run, one after the other, with all kinds of garbage around. */
static void test_isas(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        const ek_attn_shape *sh = &cases[i].shape;
        float *q = queries(sh, N_EDGES, 7);
        for (int garbage = 0; garbage < 4; garbage++)
            for (int n_keys = garbage ? 1 : LONGEST; n_keys <= LONGEST; n_keys += 205) {
                scene s;
                scene_open(&s, sh, n_keys, garbage, 100 + (uint64_t)i);
                ek_attn_row rows[N_EDGES];
                int n = 0;
                for (int r = 0; r < N_EDGES && edges[r] < n_keys; r++) rows[n++] = row_at(&cases[i], 0, edges[r]);
                float *want = attend(0, NULL, sh, &s.view, rows, n, q);
                CHECK_ISAS(isa, cpu)
                {
                    if (!cpu) continue; /* the definition itself, the slowest of all */
                    float *got = attend(cpu, NULL, sh, &s.view, rows, n, q);
                    check_bits("attn", isa, want, got, q_width(sh) * (size_t)n, "%s, %d keys, garbage %d",
                               case_text(&cases[i]), n_keys, garbage);
                    free(got);
                }
                free(want);
                scene_close(&s);
            }
        free(q);
    }
}

static void test_contract(void **state)
{
    (void)state;
    enum { N = 5, LONG = 3000 };
    static const int at[N] = {0, 700, 1279, 2047, LONG - 1};
    for (int i = 0; i < N_CASES; i++)
        for (int steep = 0; steep < 2; steep++) {
            const ek_attn_shape *sh = &cases[i].shape;
            int n = sh->head_dim > 100 ? 3 : N;
            scene s;
            scene_open(&s, sh, at[n - 1] + 1, 1, 300 + (uint64_t)i);
            float *q = queries(sh, n, 8), *want = malloc(sizeof *want * q_width(sh) * (size_t)n);
            if (steep) scene_make_steep(&s, q, q_width(sh) * (size_t)n);
            ek_attn_row rows[N];
            for (int r = 0; r < n; r++) {
                rows[r] = row_at(&cases[i], 0, at[r]);
                for (int h = 0; h < sh->n_heads; h++) {
                    size_t o = (size_t)r * q_width(sh) + (size_t)h * (size_t)sh->head_dim;
                    contract(&s, &rows[r], q + o, h, want + o);
                }
            }
            CHECK_ISAS(isa, cpu)
            {
                float *got = attend(cpu, NULL, sh, &s.view, rows, n, q);
                check_bits("attn", isa, want, got, q_width(sh) * (size_t)n, "%s, steep %d", case_text(&cases[i]),
                           steep);
                free(got);
            }
            free(q);
            free(want);
            scene_close(&s);
        }
}

/* One key at score 0 with a tiny value, one about 2^-125 below with a huge one: it counts down to
 * exactly n - m = -125, within a segment and across two, first or last. */
static void test_cutoff(void **state)
{
    (void)state;
    static const int place[][2] = {{0, 1}, {1, 0}, {0, 256}, {256, 0}, {300, 900}, {900, 300}};
    ek_attn_shape sh = {EK_FULL, EK_KV_F32, EK_KV_F32, 1, 1, 4, 0};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        for (int n = -123; n >= -128; n--) {
            int near = place[i][0], far = place[i][1], pos = near > far ? near : far;
            scene s;
            scene_open(&s, &sh, pos + 1, 1, 1);
            for (int p = 0; p <= pos; p++) {
                float *k = s.k + 4 * p, *v = s.v + 4 * p;
                for (int d = 0; d < 4; d++) k[d] = v[d] = 0;
                k[0] = p == near ? 0.0f : p == far ? (float)n * 0.6931472f : -1000.0f;
                v[0] = p == near ? 0x1p-100f : p == far ? 0x1p60f : 0.0f;
                scene_store(&s, p, k, v);
            }
            float q[4] = {1, 0, 0, 0}, want[4];
            ek_attn_row row = {0, 0, pos + 1};
            contract(&s, &row, q, 0, want);
            assert_true((want[0] > 0x1p-99f) == (n >= -125));
            CHECK_ISAS(isa, cpu)
            {
                float *got = attend(cpu, NULL, &sh, &s.view, &row, 1, q);
                check_bits("attn", isa, want, got, 4, "2^%d below, keys %d and %d", n, near, far);
                free(got);
            }
            scene_close(&s);
        }
}

static void test_plan(void **state)
{
    (void)state;
    ek_attn *a;
    ek_attn_shape sh = {EK_FULL, EK_KV_BF16, EK_KV_BF16, 8, 3, 64, 0};
    assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "8 query heads"));
    sh.n_kv_heads = 2;
    static const int dims[] = {0, -4, 2, 6, 63, 516, 1024};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        sh.head_dim = dims[i];
        char text[32];
        snprintf(text, sizeof text, "head_dim %d", dims[i]);
        assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_EUNSUPPORTED);
        assert_non_null(strstr(ek_err_text(), text));
        assert_non_null(strstr(ek_err_text(), "full"));
        assert_non_null(strstr(ek_err_text(), "bf16"));
        assert_int_equal(ek_kv_block_bytes(EK_KV_BF16, EK_KV_BF16, 1, dims[i]), 0);
    }
    sh = (ek_attn_shape){EK_FULL, EK_KV_Q4, EK_KV_Q4, 8, 2, 64, 64}; /* a segment has one format */
    assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "the first 64 positions"));
    ek_attn_free(NULL);
}

/* An instruction set without a load for a format has no kernel for it: refused by name, never computed otherwise. */
static void test_missing_kernel(void **state)
{
    (void)state;
    ek_attn *a;
    ek_attn_ops ops;
    ek_attn_init(&ops, 0);
    const ek_attn_shape sh = {EK_SLIDING, EK_KV_I16, EK_KV_Q4, 8, 1, 256, 0};
    assert_int_equal(ek_attn_plan_ops(&a, &ops, &sh), EK_OK);
    ek_attn_free(a);
    ops.values[EK_KV_Q4] = NULL;
    assert_int_equal(ek_attn_plan_ops(&a, &ops, &sh), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "sliding layers with keys in 16, values in 4 and head_dim 256"));
    ek_attn_init(&ops, 0);
    ops.scores[EK_KV_I16] = NULL;
    assert_int_equal(ek_attn_plan_ops(&a, &ops, &sh), EK_EUNSUPPORTED);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(test_right),    CHECK_TEST(test_isas),
                                              CHECK_TEST(test_contract), CHECK_TEST(test_cutoff),
                                              CHECK_TEST(test_plan),     CHECK_TEST(test_missing_kernel)};
    return CHECK_RUN(argc, argv, tests);
}
