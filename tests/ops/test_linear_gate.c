/* Gates that go straight into quantised rows (ek_linear_gate): the same bytes as a product, a gate and a quantisation
 * one after the other. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "linear_case.h"
#include "ops/rows/rows.h"

enum { ROWS = 290, K = 128, MAX_N = 320 };

typedef struct bench {
    linear_case gate, up;
    linear_input in;
    float *factor; /* [ROWS][MAX_N] */
    ek_row_ops scalar;
} bench;

static void bench_open(bench *b, int n, int limbs)
{
    linear_shape s = {.form = EK_W_Q4,
                      .n = n,
                      .k = K,
                      .bits = 4,
                      .group = 64,
                      .scale_dtype = EK_BF16,
                      .biased = true,
                      .limbs = limbs};
    linear_case_open(&b->gate, &s, 1);
    s.limbs = 1;
    linear_case_open(&b->up, &s, 2);
    linear_input_open(&b->in, &b->gate, 0, ROWS, 3);
    b->factor = malloc(sizeof *b->factor * ROWS * MAX_N);
    check_fill(b->factor, ROWS * MAX_N, 4, 1);
    ek_row_init(&b->scalar, 0);
}

static void bench_close(bench *b)
{
    free(b->factor);
    linear_input_close(&b->in);
    linear_case_close(&b->up);
    linear_case_close(&b->gate);
}

/* The rows of x one step after the other, all scalar, as rows first, first + 1, ... of out. */
static void define(const bench *b, const ek_acts *x, bool with_up, ek_acts *out, int first, ek_act_form form)
{
    const int n = b->gate.w.n;
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    float *g = malloc(sizeof *g * (size_t)(x->rows * n)), *u = malloc(sizeof *u * (size_t)(x->rows * n));
    ops.run[EK_W_Q4](&b->gate.w, x, 0, x->rows, g, n, 0, b->gate.w.n_panels);
    ops.run[EK_W_Q4](&b->up.w, x, 0, x->rows, u, n, 0, b->up.w.n_panels);
    for (int r = 0; r < x->rows; r++) {
        float *row = g + r * n;
        b->scalar.gelu_mul(row, row, with_up ? u + r * n : b->factor + r * MAX_N, n);
        ek_acts_quantize_part(ops.quantize_row, out, first + r, 0, n, row, form);
    }
    free(g), free(u);
}

static void check_gate(const char *isa, unsigned cpu, bench *b, bool with_up, const int32_t *index, int rows,
                       int threads, ek_act_form form)
{
    const int n = b->gate.w.n, first = index ? 5 : 0;
    const size_t bytes = ek_acts_bytes(ROWS + 5, n);
    void *want_mem = check_alloc(bytes), *got_mem = check_alloc(bytes);
    memset(want_mem, 0x33, bytes), memset(got_mem, 0x33, bytes);
    ek_acts want, got, x = b->in.a, own;
    ek_acts_bind(&want, want_mem, NULL, 0, ROWS + 5, n);
    ek_acts_bind(&got, got_mem, NULL, 0, ROWS + 5, n);
    ek_acts view = ek_acts_pick(&x, index, rows);
    define(b, &view, with_up, &want, first, form);

    ek_linear_ops ops;
    ek_row_ops vector;
    ek_pool *pool;
    ek_linear_init(&ops, cpu);
    ek_row_init(&vector, cpu);
    assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
    ek_linear gate = b->gate.w, up = b->up.w;
    gate.run = up.run = ops.run[EK_W_Q4];
    void *mem = check_alloc(ek_acts_bytes(ROWS, K));
    ek_acts_bind(&own, mem, b->in.x, K, index ? ROWS : rows, K); /* not quantised yet: the run does that */
    if (index) {
        ek_acts_quantize_as(&ops, pool, &own, (ek_act_form){2, 64});
        own = ek_acts_pick(&own, index, rows);
    }
    const ek_linear_gate of = {.up = with_up ? &up : NULL,
                               .factor = b->factor,
                               .ldf = MAX_N,
                               .gelu_mul = vector.gelu_mul,
                               .out = &got,
                               .row = first,
                               .form = form,
                               .space = check_alloc((size_t)threads * EK_GATE_FLOATS * sizeof(float))};
    ek_linear_job job = {.w = &gate, .x = &own, .gate = &of};
    ek_linear_run(&ops, pool, 1, &job);
    assert_int_equal(got.a_group, form.group);
    assert_int_equal(got.limbs, form.limbs);
    check_bytes("gate", isa, want_mem, got_mem, bytes, "%d outputs, %d rows%s, %d threads, groups of %d, %d limbs, %s",
                n, rows, index ? " of a view" : "", threads, form.group, form.limbs, with_up ? "up" : "factors");
    ek_pool_close(pool);
    check_free(of.space, (size_t)threads * EK_GATE_FLOATS * sizeof(float));
    check_free(mem, ek_acts_bytes(ROWS, K));
    check_free(want_mem, bytes), check_free(got_mem, bytes);
}

static void gates(void **state)
{
    (void)state;
    static const int outputs[] = {64, 100, 320}, rows[] = {1, 33, ROWS};
    static const ek_act_form forms[] = {{1, 64}, {2, 64}, {1, 32}, {2, 16}};
    int32_t index[ROWS];
    for (int r = 0; r < ROWS; r++) index[r] = (r * 101 + 7) % ROWS;
    for (int i = 0; i < 3; i++) {
        bench b;
        bench_open(&b, outputs[i], 1 + i % 2);
        CHECK_ISAS(isa, cpu)
        {
            for (int j = 0; j < 3; j++)
                for (int f = 0; f < 4; f++) {
                    check_gate(isa, cpu, &b, f % 2, NULL, rows[j], 1 + f, forms[f]);
                    if (j < 2) check_gate(isa, cpu, &b, !(f % 2), index, rows[j], 4 - f, forms[f]);
                }
        }
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
