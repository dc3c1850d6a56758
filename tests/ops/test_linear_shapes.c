/* Linear layers at the depths, formats and limbs of the published models: every ISA against the
 * scalar definition bit for bit, for every count of rows around a tile and for pieces of the rows;
 * the definition against float64, within what the limbs of the activations may cost. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "linear_case.h"

/* hidden_size, intermediate_size, moe_intermediate_size and heads x head_dim of E2B, E4B, 12B,
 * 26B-A4B and 31B: what the inputs of q, k, v, o, gate, up, down, router and head count. */
static const int depths[] = {256,  704,  1536, 2048,  2112,  2560,  2816,  3840, 4096,
                             5376, 6144, 8192, 10240, 12288, 15360, 16384, 21504};
enum { DEPTHS = sizeof depths / sizeof *depths };

/* The formats that people hold: MLX at 4, 8, 3 and 6 bits, and GGUF's groups of 32 with float32
 * scales, with and without biases. */
static const linear_shape formats[] = {
    {.form = EK_W_Q4, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true},
    {.form = EK_W_Q8, .bits = 8, .group = 64, .scale_dtype = EK_BF16, .biased = true},
    {.form = EK_W_Q4, .bits = 4, .group = 32, .scale_dtype = EK_F32, .biased = true},
    {.form = EK_W_Q8, .bits = 8, .group = 32, .scale_dtype = EK_F32, .biased = false},
    {.form = EK_W_Q4, .bits = 3, .group = 64, .scale_dtype = EK_BF16, .biased = true},
    {.form = EK_W_Q8, .bits = 6, .group = 64, .scale_dtype = EK_F16, .biased = true},
};

enum { N = 21, ROWS = 13, JUDGED = 2 }; /* a whole panel and a short one; rows compared with float64 */

/* The product with x as it is, in float64, and what the arithmetic may cost of it. A code is off by
 * at most half a step of its group, amax / 127 or amax / 32512, evenly spread: the variance of a sum
 * is the sum of w^2 step^2 / 12, and eight deviations are never seen. Rounding: a chain's partial
 * sums are of the size of its terms' root of squares; Form F rounds 256 times per leaf, Form Q 8. */
static void judge(const linear_case *c, const float *x, int row, int limbs, double *want, double *tol)
{
    const int k = c->shape.k, a_group = c->w.a_group;
    double top = limbs == 1 ? 127 : limbs == 2 ? 32512 : INFINITY;
    const float *at = x + (size_t)row * (size_t)k;
    for (int n = 0; n < c->shape.n; n++) {
        double sum = 0, steps = 0, terms = 0, step = 0;
        for (int i = 0; i < k; i++) {
            if (a_group && i % a_group == 0) {
                step = 0;
                for (int j = i; j < i + a_group; j++) step = fmax(step, fabs((double)at[j]) / top);
            }
            double w = linear_case_weight(c, n, i);
            double term = (limbs ? fabs(linear_case_scale(c, n, i)) * (1 << c->shape.bits) : w) * (double)at[i];
            sum += w * (double)at[i];
            steps += w * w * step * step / 12;
            terms += term * term;
        }
        want[n] = sum;
        tol[n] = 8 * sqrt(steps) + (limbs ? 16 : 48) * 0x1p-24 * sqrt(terms);
    }
}

static void compare_pieces(const linear_case *c, const ek_acts *a, int rows, const float *want, float *got)
{
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_linear_init(&ops, cpu);
        if (ops.run[c->w.form] == c->w.run) continue;
        for (int n = 1; n <= rows; n++)
            for (int pass = 0, r0 = 0; pass < 3; r0 = ++pass == 1 ? 1 : rows - n) {
                if (r0 + n > rows) continue;
                size_t count = (size_t)(n * c->shape.n), at = (size_t)(r0 * c->shape.n);
                memset(got, 0xff, sizeof *got * (size_t)(rows * c->shape.n));
                ops.run[c->w.form](&c->w, a, r0, r0 + n, got, c->shape.n, 0, c->w.n_panels);
                check_bits("linear", isa, want + at, got + at, count, "%s, rows %d..%d", c->name, r0, r0 + n);
            }
    }
}

static void quantised(linear_shape shape, int limbs, uint64_t seed)
{
    linear_case c;
    linear_input in;
    float want[ROWS * N], got[ROWS * N];
    shape.n = N, shape.limbs = limbs;
    linear_case_open(&c, &shape, seed);
    linear_input_open(&in, &c, 0, ROWS, seed + 1);
    c.w.run(&c.w, &in.a, 0, ROWS, want, N, 0, c.w.n_panels);
    for (int i = 0; i < JUDGED; i++) {
        int row = i ? ROWS - 1 : 0;
        double exact[N], tol[N];
        judge(&c, in.x, row, limbs, exact, tol);
        check_near("linear", "scalar", exact, want + row * N, N, tol, "%s, row %d", c.name, row);
    }
    compare_pieces(&c, &in.a, ROWS, want, got);
    linear_input_close(&in);
    linear_case_close(&c);
}

static void all_depths(int limbs)
{
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int d = 0; d < DEPTHS; d++) {
            linear_shape shape = formats[f];
            shape.k = depths[d];
            if (shape.k % shape.group == 0) quantised(shape, limbs, 100 * (uint64_t)d + f);
        }
}

static void one_limb(void **state)
{
    (void)state;
    all_depths(1);
}

static void two_limbs(void **state)
{
    (void)state;
    all_depths(2);
}

static void floats(void **state)
{
    (void)state;
    enum { FN = 71, FROWS = 9 }; /* four panels and a short one */
    static float want[FROWS * FN], got[FROWS * FN];
    for (int d = 0; d < DEPTHS; d++) {
        linear_case c;
        linear_input in;
        double exact[FN], tol[FN];
        linear_case_open(&c, &(linear_shape){.form = d % 3 ? EK_W_BF16 : EK_W_F16, .n = FN, .k = depths[d]}, 70);
        linear_input_open(&in, &c, 0, FROWS, 71);
        c.w.run(&c.w, &in.a, 0, FROWS, want, FN, 0, c.w.n_panels);
        judge(&c, in.x, FROWS - 1, 0, exact, tol);
        check_near("linear", "scalar", exact, want + (FROWS - 1) * FN, FN, tol, "%s", c.name);
        compare_pieces(&c, &in.a, FROWS, want, got);
        linear_input_close(&in);
        linear_case_close(&c);
    }
}

/* One limb where two are due is an error that the tolerance above sees at every depth: o_proj of
 * each model with the wrong number of limbs cannot pass for right. */
static void a_missing_limb_shows(void **state)
{
    (void)state;
    for (int d = 0; d < DEPTHS; d++) {
        linear_case c;
        linear_input in;
        linear_shape shape = formats[0];
        float got[N];
        double exact[N], tol[N];
        int off = 0;
        shape.n = N, shape.k = depths[d], shape.limbs = 1;
        linear_case_open(&c, &shape, 80);
        linear_input_open(&in, &c, 0, 1, 81);
        c.w.run(&c.w, &in.a, 0, 1, got, N, 0, c.w.n_panels);
        judge(&c, in.x, 0, 2, exact, tol);
        for (int n = 0; n < N; n++) off += fabs((double)got[n] - exact[n]) > tol[n];
        if (off < N / 2) fail_msg("depth %d: %d of %d outputs of one limb pass for two", depths[d], N - off, N);
        linear_input_close(&in);
        linear_case_close(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CHECK_TEST(one_limb),
        CHECK_TEST(two_limbs),
        CHECK_TEST(floats),
        CHECK_TEST(a_missing_limb_shows),
    };
    return CHECK_RUN(argc, argv, tests);
}
