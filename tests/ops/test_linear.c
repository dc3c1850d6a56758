/* Linear layers: the scalar definition against float64, every ISA against the scalar
 * definition bit for bit, for every split into rows, panels and threads. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "linear_case.h"

enum { ROWS = 33, CANARY = 0x7fa5a5a5 };

static ek_linear_fn *kernel(unsigned cpu, ek_wform form)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, cpu);
    return ops.run[form];
}

/* y with `pad` canaries behind every row. */
typedef struct output {
    float *y;
    int rows, n, ldy;
} output;

static output output_open(int rows, int n)
{
    output o = {.rows = rows, .n = n, .ldy = n + 3};
    o.y = malloc(sizeof(float) * (size_t)(rows * o.ldy));
    return o;
}

static void output_clear(output *o)
{
    for (int i = 0; i < o->rows * o->ldy; i++) o->y[i] = ek_bits_f32(CANARY);
}

/* Exactly the outputs [n0, n1) of rows [r0, r1) have want's bits, all others are untouched. */
static void output_check(const output *o, const float *want, const char *isa, const char *name, int r0, int r1, int n0,
                         int n1)
{
    for (int r = 0; r < o->rows; r++)
        for (int n = 0; n < o->ldy; n++) {
            bool in = r >= r0 && r < r1 && n >= n0 && n < n1;
            float expect = in ? want[r * o->n + n] : ek_bits_f32(CANARY);
            check_bits("linear", isa, &expect, &o->y[r * o->ldy + n], 1, "%s, rows %d..%d, outputs %d..%d, at [%d][%d]",
                       name, r0, r1, n0, n1, r, n);
        }
}

static void compare(const linear_shape *shape, uint64_t seed, int rows)
{
    linear_case c;
    linear_input in;
    linear_case_open(&c, shape, seed);
    linear_input_open(&in, &c, 0, rows, seed + 10);
    size_t count = (size_t)rows * (size_t)shape->n;
    float *want = malloc(sizeof *want * count);
    double *exact = malloc(sizeof *exact * count), *tol = malloc(sizeof *tol * count);
    c.w.run(&c.w, &in.a, 0, rows, want, shape->n, 0, c.w.n_panels);
    linear_case_reference(&c, &in.a, exact, tol);
    check_near("linear", "scalar", exact, want, count, tol, "%s", c.name);

    output o = output_open(rows, shape->n);
    ek_linear_fn *done = c.w.run;
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_fn *run = kernel(cpu, shape->form);
        if (run == done) continue;
        done = run;
        for (int some = 1; some <= rows; some = some < 9 ? some + 1 : some < rows ? rows : rows + 1)
            for (int r0 = 0; r0 + some <= rows; r0 += some < 4 ? 1 : 3) {
                output_clear(&o);
                run(&c.w, &in.a, r0, r0 + some, o.y, o.ldy, 0, c.w.n_panels);
                output_check(&o, want, isa, c.name, r0, r0 + some, 0, shape->n);
            }
        for (int p0 = 0; p0 < c.w.n_panels; p0++)
            for (int p1 = p0 + 1; p1 <= c.w.n_panels; p1++) {
                output_clear(&o);
                run(&c.w, &in.a, 1, rows, o.y, o.ldy, p0, p1);
                output_check(&o, want, isa, c.name, 1, rows, p0 * EK_PANEL,
                             p1 * EK_PANEL < shape->n ? p1 * EK_PANEL : shape->n);
            }
    }
    free(o.y), free(want), free(exact), free(tol);
    linear_input_close(&in);
    linear_case_close(&c);
}

static const int ns[] = {1, 16, 23, 48, 71};

static void affine(void **state)
{
    (void)state;
    static const int all_bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128},
                     lengths[] = {1, 3, 5, 9, 11}; /* of groups */
    static const ek_dtype scales[] = {EK_BF16, EK_F32, EK_F16};
    int i = 0;
    for (int b = 0; b < 12; b++) /* with one limb, then with two */
        for (int g = 0; g < 3; g++)
            for (int s = 0; s < 3; s++)
                for (int biased = 0; biased < 2; biased++)
                    for (int l = 0; l < 5; l++, i++) {
                        linear_shape shape = {.form = all_bits[b % 6] <= 4 ? EK_W_Q4 : EK_W_Q8,
                                              .n = ns[(i + i / 5) % 5],
                                              .k = groups[g] * lengths[l],
                                              .bits = all_bits[b % 6],
                                              .group = groups[g],
                                              .scale_dtype = scales[s],
                                              .biased = biased,
                                              .limbs = 1 + b / 6};
                        compare(&shape, 100 + (uint64_t)i, 12);
                    }
}

static void floats(void **state)
{
    (void)state;
    static const int ks[] = {1, 3, 255, 256, 257, 300, 777};
    for (int form = EK_W_F32; form <= EK_W_BF16; form++)
        for (int i = 0; i < 7; i++) {
            linear_shape shape = {.form = (ek_wform)form, .n = ns[(i + form) % 5], .k = ks[i]};
            compare(&shape, 500 + (uint64_t)i, 12);
        }
}

/* Enough rows for every tile and its rest, long rows for every level of the tree. */
static void many_rows_and_long_rows(void **state)
{
    (void)state;
    const linear_shape shapes[] = {
        {.form = EK_W_Q4, .n = 39, .k = 320, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true},
        {.form = EK_W_Q8, .n = 39, .k = 320, .bits = 8, .group = 32, .scale_dtype = EK_BF16, .biased = true},
        {.form = EK_W_Q4,
         .n = 39,
         .k = 320,
         .bits = 4,
         .group = 64,
         .scale_dtype = EK_BF16,
         .biased = true,
         .limbs = 2},
        {.form = EK_W_Q8,
         .n = 39,
         .k = 320,
         .bits = 8,
         .group = 32,
         .scale_dtype = EK_BF16,
         .biased = true,
         .limbs = 2},
        {.form = EK_W_BF16, .n = 39, .k = 320},
        {.form = EK_W_F32, .n = 71, .k = 300},
    };
    for (int i = 0; i < 6; i++) compare(&shapes[i], 700 + (uint64_t)i, ROWS);
    const linear_shape deep[] = {
        {.form = EK_W_Q4, .n = 3, .k = 256 * 23 + 64, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true},
        {.form = EK_W_F16, .n = 3, .k = 256 * 7 + 100},
    };
    for (int i = 0; i < 2; i++) compare(&deep[i], 800 + (uint64_t)i, 3);
}

/* Any cut of the work over threads, several matrices at once, and rows through an index. */
static void forward(void **state)
{
    (void)state;
    const linear_shape shapes[] = {
        {.form = EK_W_Q4, .n = 301, .k = 192, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true},
        {.form = EK_W_Q8, .n = 55, .k = 192, .bits = 6, .group = 32, .scale_dtype = EK_F32, .biased = false},
        {.form = EK_W_BF16, .n = 130, .k = 192},
        {.form = EK_W_Q4, .n = 64, .k = 192, .bits = 3, .group = 64, .scale_dtype = EK_F16, .biased = true, .limbs = 2},
        {.form = EK_W_Q8,
         .n = 33,
         .k = 192,
         .bits = 8,
         .group = 64,
         .scale_dtype = EK_BF16,
         .biased = true,
         .limbs = 2},
    };
    enum { JOBS = 5 };
    static const int32_t index[] = {7, 2, 2, 30, 0, 19, 11};
    enum { PICKED = 7 };
    linear_case c[JOBS];
    float *want[JOBS];
    output o[JOBS], picked = output_open(PICKED, shapes[0].n);
    linear_input in;
    for (int j = 0; j < JOBS; j++) {
        linear_case_open(&c[j], &shapes[j], 900 + (uint64_t)j);
        linear_input_open(&in, &c[j], 0, ROWS, 950);
        want[j] = malloc(sizeof(float) * (size_t)(ROWS * shapes[j].n));
        c[j].w.run(&c[j].w, &in.a, 0, ROWS, want[j], shapes[j].n, 0, c[j].w.n_panels);
        o[j] = output_open(ROWS, shapes[j].n);
        if (j < JOBS - 1) linear_input_close(&in);
    }
    float *want_picked = malloc(sizeof(float) * (size_t)(PICKED * shapes[0].n));
    for (int r = 0; r < PICKED; r++)
        memcpy(want_picked + r * shapes[0].n, want[0] + index[r] * shapes[0].n, sizeof(float) * (size_t)shapes[0].n);

    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_linear_init(&ops, cpu);
        for (int threads = 1; threads <= 5; threads += 2) {
            ek_pool *pool;
            assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
            ek_acts a;
            ek_acts_bind(&a, in.mem, in.x, shapes[0].k, ROWS, shapes[0].k);
            ek_linear_job all[JOBS];
            for (int j = 0; j < JOBS; j++) {
                c[j].w.run = ops.run[c[j].w.form];
                all[j] = (ek_linear_job){.w = &c[j].w, .x = &a, .y = o[j].y, .ldy = o[j].ldy};
                output_clear(&o[j]);
            }
            ek_linear_run(&ops, pool, JOBS, all);
            for (int j = 0; j < JOBS; j++) output_check(&o[j], want[j], isa, c[j].name, 0, ROWS, 0, shapes[j].n);

            ek_acts_quantize_for(&ops, pool, &a, &c[0].w);
            ek_acts view = ek_acts_pick(&a, index, PICKED), none = ek_acts_pick(&a, index, 0);
            output_clear(&picked);
            output_clear(&o[2]);
            ek_linear_job job[] = {{.w = &c[2].w, .x = &none, .y = o[2].y, .ldy = o[2].ldy},
                                   {.w = &c[0].w, .x = &view, .y = picked.y, .ldy = picked.ldy},
                                   {.w = &c[2].w, .x = &none, .y = o[2].y, .ldy = o[2].ldy}};
            ek_linear_run(&ops, pool, 3, job);
            output_check(&picked, want_picked, isa, "picked rows", 0, PICKED, 0, shapes[0].n);
            output_check(&o[2], want[2], isa, "no rows", 0, 0, 0, 0);
            ek_pool_close(pool);
        }
    }
    for (int j = 0; j < JOBS; j++) {
        free(want[j]), free(o[j].y);
        linear_case_close(&c[j]);
    }
    free(want_picked), free(picked.y);
    linear_input_close(&in);
}

/* More rows than one task takes. */
static void forward_of_many_rows(void **state)
{
    (void)state;
    enum { MANY = 300 };
    const linear_shape shape = {
        .form = EK_W_Q4, .n = 37, .k = 64, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true, .limbs = 2};
    linear_case c;
    linear_input in;
    linear_case_open(&c, &shape, 960);
    linear_input_open(&in, &c, 0, MANY, 961);
    float *want = malloc(sizeof(float) * MANY * 37);
    c.w.run(&c.w, &in.a, 0, MANY, want, 37, 0, c.w.n_panels);
    output o = output_open(MANY, 37);
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_linear_init(&ops, cpu);
        c.w.run = ops.run[shape.form];
        for (int threads = 1; threads <= 4; threads++) {
            ek_pool *pool;
            assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
            for (int rows = 127; rows <= MANY; rows += rows == 129 ? MANY - 129 : 1) {
                ek_acts a;
                ek_acts_bind(&a, in.mem, in.x, 64, rows, 64);
                output_clear(&o);
                ek_linear_forward(&ops, pool, &c.w, &a, o.y, o.ldy);
                output_check(&o, want, isa, c.name, 0, rows, 0, 37);
            }
            ek_pool_close(pool);
        }
    }
    free(want), free(o.y);
    linear_input_close(&in);
    linear_case_close(&c);
}

/* Denormal, huge and cancelling values go the same way everywhere; infinities and NaN show. */
static void extremes(void **state)
{
    (void)state;
    const linear_shape shapes[] = {
        {.form = EK_W_Q4, .n = 19, .k = 512, .bits = 4, .group = 64, .scale_dtype = EK_F32, .biased = true},
        {.form = EK_W_Q8, .n = 19, .k = 512, .bits = 8, .group = 32, .scale_dtype = EK_F32, .biased = false},
        {.form = EK_W_Q4, .n = 19, .k = 512, .bits = 4, .group = 64, .scale_dtype = EK_F32, .biased = true, .limbs = 2},
        {.form = EK_W_Q8,
         .n = 19,
         .k = 512,
         .bits = 8,
         .group = 32,
         .scale_dtype = EK_F32,
         .biased = false,
         .limbs = 2},
        {.form = EK_W_F32, .n = 19, .k = 512},
    };
    static const float sizes[] = {1e-45f, 1e-38f, 0x1p-101f, 0x1p-100f, 1e-20f, 1e20f, 3e38f};
    enum { N_ROWS = 7 };
    for (int i = 0; i < 5; i++) {
        linear_case c;
        linear_input in;
        linear_case_open(&c, &shapes[i], 1000 + (uint64_t)i);
        if (c.scales) /* scales over the whole range, both signs */
            for (int g = 0; g < (int)c.scale_bytes / 4; g++)
                ((float *)c.scales)[g] = ldexpf(check_uniform(7, (uint64_t)g), g * 37 % 160 - 140);
        if (c.scales) assert_int_equal(ek_linear_pack(&c.w, 0, &c.data), EK_OK);
        linear_input_open(&in, &c, 0, N_ROWS, 1100);
        for (int r = 0; r < N_ROWS; r++)
            for (int k = 0; k < 512; k++)
                in.x[r * 512 + k] = sizes[k < 64 ? 0 : r] * check_uniform(9, (uint64_t)(r * 512 + k));
        float want[N_ROWS * 19], got[N_ROWS * 19];
        CHECK_ISAS(isa, cpu)
        {
            ek_linear_ops ops;
            ek_linear_init(&ops, cpu);
            in.a.a_group = 0;
            ek_acts_quantize_for(&ops, NULL, &in.a, &c.w);
            ops.run[c.w.form](&c.w, &in.a, 0, N_ROWS, cpu ? got : want, 19, 0, 2);
            if (cpu) check_bits("linear", isa, want, got, N_ROWS * 19, "extremes of %s", c.name);
        }
        int finite = 0;
        for (int k = 0; k < N_ROWS * 19; k++) finite += isfinite(want[k]) && want[k] != 0;
        assert_true(finite > N_ROWS);
        linear_input_close(&in);
        linear_case_close(&c);
    }
}

/* The zero point alone, codes at both ends: the largest sums an integer path can meet. */
static void saturation(void **state)
{
    (void)state;
    for (int i = 4; i < 18; i++) {
        int bits = i / 2, limbs = 1 + i % 2;
        if (bits == 7) continue;
        linear_shape shape = {.form = bits <= 4 ? EK_W_Q4 : EK_W_Q8,
                              .n = 16,
                              .k = 256,
                              .bits = bits,
                              .group = 64,
                              .scale_dtype = EK_BF16,
                              .biased = true,
                              .limbs = limbs};
        linear_case c;
        linear_case_open(&c, &shape, 1200);
        for (int fill = 0; fill < 2; fill++)
            for (int sign = -1; sign <= 1; sign += 2) {
                memset(c.codes, fill ? 0xff : 0, c.code_bytes);
                assert_int_equal(ek_linear_pack(&c.w, 0, &c.data), EK_OK);
                linear_input in;
                linear_input_open(&in, &c, 0, 5, 1);
                /* row 1 ends in 0x..80: the low limb is -128 */
                for (int k = 0; k < 5 * 256; k++)
                    in.x[k] = (float)sign * (k / 256 == 1 && k % 32 ? 128.0f / 32512 * 201 : 1.0f);
                float want[5 * 16], got[5 * 16];
                CHECK_ISAS(isa, cpu)
                {
                    ek_linear_ops ops;
                    ek_linear_init(&ops, cpu);
                    in.a.a_group = 0;
                    ek_acts_quantize_for(&ops, NULL, &in.a, &c.w);
                    ops.run[shape.form](&c.w, &in.a, 0, 5, cpu ? got : want, 16, 0, 1);
                    if (cpu)
                        check_bits("linear", isa, want, got, 5 * 16, "codes all %d, x all %d: %s", fill, sign, c.name);
                }
                double exact[5 * 16], tol[5 * 16];
                linear_case_reference(&c, &in.a, exact, tol);
                check_near("linear", "scalar", exact, want, 5 * 16, tol, "codes all %d, %s", fill, c.name);
                linear_input_close(&in);
            }
        linear_case_close(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CHECK_TEST(affine),
        CHECK_TEST(floats),
        CHECK_TEST(many_rows_and_long_rows),
        CHECK_TEST(forward),
        CHECK_TEST(forward_of_many_rows),
        CHECK_TEST(extremes),
        CHECK_TEST(saturation),
    };
    return CHECK_RUN(argc, argv, tests);
}
