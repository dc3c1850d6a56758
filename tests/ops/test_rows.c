/* Row operators: float64 checks the values, memcmp checks that instruction sets agree, for
 * every length around the vector and block sizes and for operands that are not aligned. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "check.h"
#include "ops/math.h"
#include "ops/rows/rows.h"

enum { MAX = 2600, SLACK = 16 };
static const int lengths[] = {1,   2,   3,   4,   7,   8,   9,    12,   15,   16,   17,  20,  24,
                              31,  32,  33,  63,  64,  65,  100,  128,  255,  256,  257, 271, 272,
                              273, 300, 511, 512, 513, 768, 1023, 1025, 1536, 2560, MAX};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static float a[MAX + SLACK], b[MAX + SLACK], c[MAX + SLACK], want[MAX + SLACK], got[MAX + SLACK];

static ek_row_ops ops_of(unsigned cpu)
{
    ek_row_ops ops;
    ek_row_init(&ops, cpu);
    return ops;
}

/* Values of every size and sign, zeros of both signs, and what overflows. */
static void fill_nasty(float *x, int n, uint64_t seed)
{
    static const float odd[] = {0.0f,   -0.0f,   1e-40f, -1e-40f, 1e20f,    -1e20f,   0.625f, -0.625f, 9.0f, -9.0f,
                                9.001f, -9.001f, 3e38f,  -3e38f,  INFINITY, 0.62499f, 88.0f,  -88.0f,  1.0f, -1.0f};
    check_fill_wide(x, (size_t)n, seed);
    for (int i = 0; i < n; i++)
        if (i % 11 == 3) x[i] = odd[(unsigned)(i / 11 + (int)seed) % (sizeof odd / sizeof *odd)];
}

/* The sum that the header describes, written once more in another way. */
static float sum_as_described(const float *x, int n, int squares)
{
    float leaf[16], sum;
    int n_leaves = 0;
    for (int first = 0; first < n; first += 256) {
        float lane[16];
        for (int l = 0; l < 16; l++) {
            lane[l] = 0;
            for (int i = first + l; i < n && i < first + 256; i += 16)
                lane[l] = squares ? fmaf(x[i], x[i], lane[l]) : lane[l] + x[i];
        }
        for (int l = 0; l < 8; l++) lane[l] = lane[l] + lane[l + 8];
        for (int l = 0; l < 4; l++) lane[l] = lane[l] + lane[l + 4];
        leaf[n_leaves++] = (lane[0] + lane[2]) + (lane[1] + lane[3]);
    }
    /* T: split at the largest power of two below n */
    struct span {
        int at, n;
    } todo[32];
    float value[32];
    int n_todo = 0, n_value = 0;
    todo[n_todo++] = (struct span){0, n_leaves};
    while (n_todo) { /* right halves first, so that values pop in order; n < 0: add two */
        struct span s = todo[--n_todo];
        if (s.n < 0) {
            n_value--;
            value[n_value - 1] = value[n_value] + value[n_value - 1];
        } else if (s.n == 1) {
            value[n_value++] = leaf[s.at];
        } else {
            int half = 1;
            while (2 * half < s.n) half *= 2;
            todo[n_todo++] = (struct span){0, -1};
            todo[n_todo++] = (struct span){s.at, half};
            todo[n_todo++] = (struct span){s.at + half, s.n - half};
        }
    }
    sum = value[0];
    return sum;
}

static void test_norm(void **state)
{
    (void)state;
    for (int i = 0; i < N_LENGTHS; i++) {
        int n = lengths[i];
        check_fill_wide(a, (size_t)n, 1);
        check_fill(b, (size_t)n, 2, 2.0f);
        float r = 1.0f / sqrtf(sum_as_described(a, n, 1) / (float)n + 1e-6f);
        double ss = 0;
        for (int k = 0; k < n; k++) ss += (double)a[k] * a[k];
        assert_true(fabs(r * sqrt(ss / n + 1e-6) - 1) < 1e-6);
        for (int k = 0; k < n; k++) want[k] = a[k] * r * b[k], c[k] = a[k] * r;
        CHECK_ISAS(isa, cpu)
        {
            ek_row_ops ops = ops_of(cpu);
            ops.rms_norm(got, a, b, n, 1e-6f);
            check_bits("rms_norm", isa, want, got, (size_t)n, "n %d", n);
            memcpy(got, a, sizeof(float) * (size_t)n);
            ops.rms_norm(got, got, NULL, n, 1e-6f);
            check_bits("rms_norm without weight, in place", isa, c, got, (size_t)n, "n %d", n);
        }
    }
}

/* y and operands at odd addresses; one element past the end must stay. */
static void test_elementwise(void **state)
{
    (void)state;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int off = 0; off < 3; off++) {
            int n = lengths[i];
            fill_nasty(a, n + SLACK, 3 + (uint64_t)off);
            fill_nasty(b, n + SLACK, 40);
            for (int op = 0; op < 13; op++) {
                CHECK_ISAS(isa, cpu)
                {
                    static const char *name[] = {
                        "add",   "scale",     "gelu_mul",    "soft_cap", "axpy",    "add_scale", "gelu_mul in place",
                        "clamp", "rectified", "sigmoid_mul", "silu",     "mul_add", "mul"};
                    ek_row_ops ops = ops_of(cpu);
                    float *y = cpu ? got : want;
                    memcpy(y, a, sizeof(float) * (size_t)(n + SLACK));
                    switch (op) {
                    case 0: ops.add(y + off, b, n); break;
                    case 1: ops.scale(y + off, 1.7f, n); break;
                    case 2: ops.gelu_mul(y + off, a + 1, b + off, n); break;
                    case 3: ops.soft_cap(y + off, 30.0f, n); break;
                    case 4: ops.axpy(y + off, -0.3f, b + 1, n); break;
                    case 5: ops.add_scale(y + off, a + 2, b, 0.70710677f, n); break;
                    case 6: ops.gelu_mul(y + off, y + off, b + off, n); break;
                    case 7: ops.clamp(y + off, y + off, -2.5f, 1.25f, n); break;
                    case 8: ops.clamp(y + off, b + 1, 0.0f, INFINITY, n); break;
                    case 9: ops.sigmoid_mul(y + off, a + 1, b + off, n); break;
                    case 10: ops.sigmoid_mul(y + off, y + off, y + off, n); break;
                    case 11: ops.mul_add(y + off, a + 1, b + off, n); break;
                    case 12: ops.mul(y + off, b + 1, n); break;
                    }
                    for (int k = 0; k < off; k++) assert_memory_equal(&y[k], &a[k], sizeof *y);
                    assert_memory_equal(&y[n + off], &a[n + off], sizeof *y);
                    for (int k = 0; k < n + off; k++)
                        if (isnan(y[k])) y[k] = NAN; /* which NaN is not defined */
                    if (cpu) check_bits(name[op], isa, want, got, (size_t)(n + off), "n %d at %d", n, off);
                }
            }
        }
}

static void test_layer_norm(void **state)
{
    (void)state;
    for (int i = 0; i < N_LENGTHS; i++) {
        const int n = lengths[i];
        static float bias[MAX];
        check_fill_wide(a, (size_t)n, 51);
        check_fill(b, (size_t)n, 52, 2.0f);
        check_fill(bias, (size_t)n, 53, 2.0f);
        const float mean = sum_as_described(a, n, 0) / (float)n;
        for (int k = 0; k < n; k++) c[k] = a[k] - mean;
        const float r = 1.0f / sqrtf(sum_as_described(c, n, 1) / (float)n + 1e-5f);
        double m = 0, ss = 0;
        for (int k = 0; k < n; k++) m += (double)a[k] / n;
        for (int k = 0; k < n; k++) ss += ((double)a[k] - m) * ((double)a[k] - m);
        assert_true(fabs(r * sqrt(ss / n + 1e-5) - 1) < 1e-5);
        for (int k = 0; k < n; k++) want[k] = fmaf(c[k] * r, b[k], bias[k]), c[k] = c[k] * r * b[k];
        CHECK_ISAS(isa, cpu)
        {
            ek_row_ops ops = ops_of(cpu);
            ops.layer_norm(got, a, b, bias, n, 1e-5f);
            check_bits("layer_norm", isa, want, got, (size_t)n, "n %d", n);
            memcpy(got, a, sizeof(float) * (size_t)n);
            ops.layer_norm(got, got, b, NULL, n, 1e-5f);
            check_bits("layer_norm without bias, in place", isa, c, got, (size_t)n, "n %d", n);
        }
    }
}

/* Every kind of argument of tanh and gelu: a stride through all float32 values. */
static void test_functions(void **state)
{
    (void)state;
    enum { N = 2048, STEP = 1003 };
    for (uint32_t u = 0; u < 0xffffffffu - N * STEP; u += N * STEP) {
        for (uint32_t k = 0; k < N; k++) {
            uint32_t bits = u + k * STEP;
            memcpy(&a[k], &bits, sizeof bits);
            b[k] = 1.0f;
        }
        CHECK_ISAS(isa, cpu)
        {
            ek_row_ops ops = ops_of(cpu);
            float *y = cpu ? got : want;
            ops.gelu_mul(y, a, b, N);
            for (int k = 0; k < N; k++) y[k] = isnan(y[k]) ? NAN : y[k];
            if (cpu) check_bits("gelu", isa, want, got, N, "from %08x", u);
        }
        CHECK_ISAS(isa, cpu)
        {
            ek_row_ops ops = ops_of(cpu);
            float *y = cpu ? got : want;
            ops.sigmoid_mul(y, b, a, N);
            for (int k = 0; k < N; k++) assert_int_equal(isnan(y[k]) != 0, isnan(a[k]) != 0);
            for (int k = 0; k < N; k++) y[k] = isnan(y[k]) ? NAN : y[k];
            if (cpu) check_bits("sigmoid", isa, want, got, N, "from %08x", u);
        }
        CHECK_ISAS(isa, cpu)
        {
            ek_row_ops ops = ops_of(cpu);
            float *y = cpu ? got : want;
            memcpy(y, a, sizeof(float) * N);
            ops.soft_cap(y, 1.0f, N);
            for (int k = 0; k < N; k++) assert_int_equal(isnan(y[k]) != 0, isnan(a[k]) != 0);
            for (int k = 0; k < N; k++) y[k] = isnan(y[k]) ? NAN : y[k];
            if (cpu) check_bits("tanh", isa, want, got, N, "from %08x", u);
        }
    }
}

static void test_meaning(void **state)
{
    (void)state;
    ek_row_ops ops = ops_of(0);
    check_fill(a, 100, 5, 60.0f);
    check_fill(b, 100, 6, 3.0f);
    memcpy(got, a, sizeof(float) * 100);
    ops.soft_cap(got, 30.0f, 100);
    for (int i = 0; i < 100; i++) assert_true(fabs((double)got[i] - 30 * tanh((double)a[i] / 30)) < 6e-6);
    ops.add_scale(got, a, b, 0.5f, 100);
    for (int i = 0; i < 100; i++) assert_true(got[i] == (a[i] + b[i]) * 0.5f);
    ops.sigmoid_mul(got, b, a, 100);
    for (int i = 0; i < 100; i++) assert_true(fabs((double)got[i] - (double)b[i] / (1 + exp(-(double)a[i]))) < 1e-6);
    ops.clamp(got, a, -1.5f, 7.0f, 100);
    for (int i = 0; i < 100; i++) assert_true(got[i] == (a[i] < -1.5f ? -1.5f : a[i] > 7.0f ? 7.0f : a[i]));
    memcpy(got, a, sizeof(float) * 100);
    ops.axpy(got, 2.0f, b, 100);
    for (int i = 0; i < 100; i++) assert_true(got[i] == fmaf(2.0f, b[i], a[i]));
}

static void test_rope(void **state)
{
    (void)state;
    static const int shape[][2] = {{128, 128}, {256, 64}, {6, 6}, {10, 2}, {18, 4}, {24, 6}, {8, 1}, {32, 31}, {16, 0}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        int half = shape[i][0], rotated = shape[i][1];
        float cs[256], sn[256];
        for (int j = 0; j < rotated; j++) cs[j] = cosf(0.1f * (float)j), sn[j] = sinf(0.1f * (float)j);
        check_fill(a, (size_t)(2 * half), 8, 3.0f);
        CHECK_ISAS(isa, cpu)
        {
            ek_row_ops ops = ops_of(cpu);
            memcpy(got, a, sizeof(float) * (size_t)(2 * half));
            ops.rope(got, cs, sn, half, rotated);
            for (int j = 0; j < half; j++) {
                float x0 = a[j], x1 = a[j + half];
                want[j] = j < rotated ? fmaf(-x1, sn[j], x0 * cs[j]) : x0;
                want[j + half] = j < rotated ? fmaf(x0, sn[j], x1 * cs[j]) : x1;
            }
            check_bits("rope", isa, want, got, (size_t)(2 * half), "half %d rotated %d", half, rotated);
        }
    }
}

static void test_argmax(void **state)
{
    (void)state;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int trial = 0; trial < 12; trial++) {
            int n = lengths[i], best = 0;
            check_fill(a, (size_t)n, (uint64_t)trial, 1.0f);
            if (trial & 1) /* ties */
                for (int k = 0; k < n; k++) a[k] = roundf(3 * a[k]);
            if (trial & 2)
                for (int k = 0; k < n; k += 3) a[k] = NAN;
            if (trial == 4)
                for (int k = 0; k < n; k++) a[k] = k % 2 ? 0.0f : -0.0f;
            if (trial == 8)
                for (int k = 0; k < n; k++) a[k] = -INFINITY;
            if (trial == 10) a[n - 1] = INFINITY;
            for (int k = 0; k < n; k++)
                if (isnan(a[best]) ? a[k] > -INFINITY : a[k] > a[best]) best = k;
            if (isnan(a[best])) best = 0;
            CHECK_ISAS(isa, cpu)
            {
                int index = ops_of(cpu).argmax(a, n);
                if (index != best) fail_msg("argmax, %s, n %d, trial %d: want %d, got %d", isa, n, trial, best, index);
            }
        }
}

static void test_sum_exp(void **state)
{
    (void)state;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int trial = 0; trial < 6; trial++) {
            int n = lengths[i];
            float top = trial % 2 ? 88.0f : -3.0f;
            double exact = 0;
            check_fill(a, (size_t)n, 31 + (uint64_t)trial, 1.0f);
            for (int k = 0; k < n; k++) { /* weights down to denormals and below them */
                float down = fabsf(a[k]) * (k % 31 == 3 || trial >= 4 ? 120 : 12);
                a[k] = k % 97 == 5 ? -INFINITY : top - down;
                c[k] = ek_exp(a[k] - top);
                exact += exp((double)a[k] - top);
            }
            want[0] = sum_as_described(c, n, 0);
            assert_true(fabs(want[0] - exact) <= 1e-5 * exact + 1e-40);
            CHECK_ISAS(isa, cpu)
            {
                got[0] = ops_of(cpu).sum_exp(a, n, top);
                check_bits("sum_exp", isa, want, got, 1, "n %d, trial %d", n, trial);
            }
        }
    for (float s = 0; s > -120; s -= 0.37f) { /* each step of the way down by itself */
        want[0] = ek_exp(s);
        CHECK_ISAS(isa, cpu)
        {
            got[0] = ops_of(cpu).sum_exp(&s, 1, 0);
            check_bits("sum_exp", isa, want, got, 1, "s %a", (double)s);
        }
    }
}

static void test_softmax(void **state)
{
    (void)state;
    for (int i = 0; i < N_LENGTHS; i++) {
        int n = lengths[i];
        check_fill(a, (size_t)n, 11, 20.0f);
        double total = 0, max = -INFINITY;
        for (int k = 0; k < n; k++) max = fmax(max, (double)a[k]);
        for (int k = 0; k < n; k++) total += exp((double)a[k] - max), b[k] = ek_exp(a[k] - (float)max);
        float sum = sum_as_described(b, n, 0);
        ek_softmax(got, a, n);
        for (int k = 0; k < n; k++) {
            assert_true(got[k] == b[k] / sum);
            assert_true(fabs((double)got[k] - exp((double)a[k] - max) / total) <
                        4e-6 * exp((double)a[k] - max) / total);
        }
    }
}

static void test_top_k(void **state)
{
    (void)state;
    int32_t id[MAX];
    for (int trial = 0; trial < 60; trial++) {
        int n = lengths[trial % N_LENGTHS], k = trial % 4 == 0 ? n : 1 + (trial * 37) % n;
        check_fill(a, (size_t)n, (uint64_t)trial, 1.0f);
        if (trial & 1)
            for (int i = 0; i < n; i++) a[i] = roundf(4 * a[i]);
        ek_top_k(a, n, k, id, got);
        char taken[MAX] = {0};
        for (int r = 0; r < k; r++) { /* the best that is left, lowest index first */
            int best = -1;
            for (int i = 0; i < n; i++)
                if (!taken[i] && (best < 0 || a[i] > a[best])) best = i;
            taken[best] = 1;
            assert_int_equal(id[r], best);
            assert_true(got[r] == a[best]);
        }
    }
    ek_top_k(a, 5, 0, id, got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),       cmocka_unit_test(test_elementwise), cmocka_unit_test(test_functions),
        cmocka_unit_test(test_meaning),    cmocka_unit_test(test_rope),        cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_softmax),    cmocka_unit_test(test_sum_exp),     cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_layer_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
