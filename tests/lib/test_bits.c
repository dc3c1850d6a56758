/* Products, bit for bit: other rows, views, broadcasting and the like change nothing. */
/* tier: all */
#include <math.h>
#include <stdio.h>

#include "base/machine/cpu.h"
#include "lib/lib.h"
#include "ops/linear/linear.h"
#include "ref.h"

static const int BITS[] = {2, 3, 4, 5, 6, 8}, GROUPS[] = {32, 64, 128};

static const struct {
    ek_quant_mode mode;
    int bits, group;
} forms[] = {{EK_AFFINE, 2, 32}, {EK_AFFINE, 3, 64}, {EK_AFFINE, 4, 64}, {EK_AFFINE, 5, 128}, {EK_AFFINE, 6, 32},
             {EK_AFFINE, 8, 64}, {EK_MXFP4, 4, 32},  {EK_MXFP8, 8, 32},  {EK_NVFP4, 4, 16}};

/* ------------------------------------------------------------------ rows */

enum { ROWS = 65, INPUTS = 640 };

/* A product whose rows were computed one by one: y[m] from a call with x[m] alone. */
typedef struct row_case {
    char name[80];
    bool transpose;
    ek_precision precision;
    int n; /* outputs */
    ek_view x, y;
    ek_qview w;
} row_case;

static void multiply(const row_case *c, ek_view y, ek_view x)
{
    MUST(ek_quantized_matmul(y, x, &c->w, c->transpose, c->precision));
}

static row_case row_case_new(size_t form, bool transpose, ek_precision precision)
{
    row_case c = {.transpose = transpose, .precision = precision, .n = transpose ? 150 : 256};
    snprintf(c.name, sizeof c.name, "mode %d, %d bits, group %d, %s, precision %d", (int)forms[form].mode,
             forms[form].bits, forms[form].group, transpose ? "T" : "NT", (int)precision);
    ek_view w = transpose ? ref_normals(EK_TYPE_BF16, 2, 1, 2, c.n, INPUTS)
                          : ref_normals(EK_TYPE_BF16, 2, 1, 2, INPUTS, c.n);
    c.x = ref_normals(EK_TYPE_F32, 1, 1, 2, ROWS, INPUTS), c.y = ref_new(EK_TYPE_F32, 2, ROWS, c.n);
    c.w = ref_quantised(forms[form].mode, forms[form].bits, forms[form].group, &w);
    for (int m = 0; m < ROWS; m++) multiply(&c, ek_view_slice(c.y, 0, m, m + 1), ek_view_slice(c.x, 0, m, m + 1));
    return c;
}

static void check_rows_together(const row_case *c)
{
    for (int m = 2; m <= ROWS; m += ref_all ? 1 : m < 10 ? 1 : 11) {
        ek_view got = ref_new(EK_TYPE_F32, 2, m, c->n), want = ek_view_slice(c->y, 0, 0, m);
        multiply(c, got, ek_view_slice(c->x, 0, 0, m));
        ref_same(&want, &got, "%s: %d rows", c->name, m);
    }
}

static void check_rows_backwards(const row_case *c)
{
    ek_view got = ref_new(EK_TYPE_F32, 2, ROWS, c->n), want = ek_view_reverse(c->y, 0);
    multiply(c, got, ek_view_reverse(c->x, 0));
    ref_same(&want, &got, "%s: rows backwards", c->name);
}

static void check_strided_output(const row_case *c)
{
    ek_view got = ek_view_swap(ref_new(EK_TYPE_F32, 2, c->n, ROWS), 0, 1);
    multiply(c, got, c->x);
    ref_same(&c->y, &got, "%s: y turned", c->name);
}

static void check_threads(const row_case *c)
{
    ek_view got = ref_new(EK_TYPE_F32, 2, ROWS, c->n);
    for (int threads = 1; threads <= 5; threads += 2) {
        MUST(ek_set_threads(threads));
        multiply(c, got, c->x);
        ref_same(&c->y, &got, "%s: %d threads", c->name, threads);
    }
    MUST(ek_set_threads(0));
}

/* The other instruction sets; y is of the last one. Scalar code takes few rows, or the test would take minutes. */
static void check_isas(const row_case *c)
{
    const unsigned cpu = lib_cpu();
    for (const char *const *isa = ek_cpu_isas(); isa[0] && isa[1]; isa++) {
        unsigned mask;
        if (ek_cpu_mask(*isa, &mask) != EK_OK) continue;
        const int m = strcmp(*isa, "scalar") == 0 && !ref_all ? 7 : ROWS;
        ek_view want = ek_view_slice(c->y, 0, 0, m), got = ref_new(EK_TYPE_F32, 2, m, c->n);
        lib_force_cpu(mask);
        multiply(c, got, ek_view_slice(c->x, 0, 0, m));
        lib_force_cpu(cpu);
        ref_same(&want, &got, "%s: %s", c->name, *isa);
    }
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int t = 0; t < 2; t++)
            for (ek_precision p = EK_EXACT; p <= EK_BFLOAT16; p++) {
                if (p && (!t || forms[f].mode != EK_AFFINE)) continue;
                const row_case c = row_case_new(f, t, p);
                check_rows_together(&c);
                check_rows_backwards(&c);
                check_strided_output(&c);
                check_threads(&c);
                check_isas(&c);
                ref_free_all();
            }
}

/* ------------------------------------------------------------------ views */

/* [B, H, R, S, C] at b, h and the first of R, as [S, C]. */
static ek_view head(ek_view v, int64_t b, int64_t h)
{
    v = ek_view_slice(ek_view_slice(v, 0, b, b + 1), 1, h, h + 1);
    v.n_dims = 2;
    for (int i = 0; i < 2; i++) v.dim[i] = v.dim[i + 3], v.stride[i] = v.stride[i + 3];
    return v;
}

/* [B, H, S, C] -> [B, H, R of stride 0, S, C] */
static ek_view repeated(ek_view v, int r)
{
    return ek_view_expand(ek_view_insert(v, 2), 2, r);
}

/* One K/V head under R query heads by a stride of 0, in a cache longer than what is read. */
static void test_broadcast(void **state)
{
    (void)state;
    static const int rs[] = {1, 2, 4, 8}, ls[] = {1, 2, 3, 7, 8, 9, 13, 14, 17, 33};
    enum { B = 2, H = 2, ROOM = 256, S = 131, D = 128 };
    int number = 0;
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++)
            for (int t = 0; t < 2; t++) {
                ek_view whole = ref_normals(EK_TYPE_F32, 3, 1, 4, B, H, ROOM, D);
                ek_qview q = ref_quantised(EK_AFFINE, BITS[b], GROUPS[g], &whole);
                q.codes = ek_view_slice(q.codes, 2, 0, S), q.scales = ek_view_slice(q.scales, 2, 0, S),
                q.biases = ek_view_slice(q.biases, 2, 0, S);
                for (int r = 0; r < 4; r++)
                    for (int l = 0; l < 10; l++) {
                        if (!ref_all && number++ % 3) continue; /* thinned to a third */
                        int R = rs[r], L = ls[l], n = t ? S : D, k = t ? D : S;
                        ek_view x = ref_normals(EK_TYPE_F32, 4, 1, 5, B, H, R, L, k),
                                y = ref_new(EK_TYPE_F32, 5, B, H, R, L, n), y2 = ref_like(&y, EK_TYPE_F32);
                        ek_qview wide = q, copy = q;
                        wide.codes = repeated(q.codes, R), wide.scales = repeated(q.scales, R),
                        wide.biases = repeated(q.biases, R);
                        copy.codes = ref_dense(&wide.codes), copy.scales = ref_dense(&wide.scales),
                        copy.biases = ref_dense(&wide.biases);
                        MUST(ek_quantized_matmul(y, x, &wide, t, EK_EXACT));
                        MUST(ek_quantized_matmul(y2, x, &copy, t, EK_EXACT));
                        ref_same(&y2, &y, "%d bits, group %d, R %d, L %d, %s: copied", BITS[b], GROUPS[g], R, L,
                                 t ? "T" : "NT");
                        for (int64_t i = 0; i < B * H; i++) {
                            ek_qview one = wide;
                            one.codes = head(wide.codes, i / H, i % H), one.scales = head(wide.scales, i / H, i % H),
                            one.biases = head(wide.biases, i / H, i % H);
                            ek_view xh = head(x, i / H, i % H), yh = head(y, i / H, i % H),
                                    alone = ref_like(&yh, EK_TYPE_F32);
                            MUST(ek_quantized_matmul(alone, xh, &one, t, EK_EXACT));
                            ref_same(&alone, &yh, "%d bits, group %d, R %d, L %d: head alone", BITS[b], GROUPS[g], R,
                                     L);
                        }
                        ek_view values = ref_qvalues(&copy); /* and what it equals: the product with the float values */
                        MUST(ek_matmul(y2, x, values, t));
                        ref_same(&y2, &y, "%d bits, group %d: dequantised", BITS[b], GROUPS[g]);
                    }
                ref_free_all();
            }
}

/* The case behind founding report 4: few rows against many inputs on the side of the values. */
static void test_long_values(void **state)
{
    (void)state;
    for (int s = 1023; s <= 4097; s += 1537)
        for (int b = 2; b < 6; b++)
            for (int m = 2; m <= 8; m++) {
                ek_view x = ref_uniforms(EK_TYPE_F32, 5, 0, 1.0 / s, 4, 1, 2, m, s),
                        w = ref_normals(EK_TYPE_F32, 6, 1, 4, 1, 2, s, 128);
                ek_qview q = ref_quantised(EK_AFFINE, BITS[b], 64, &w);
                ek_view y = ref_new(EK_TYPE_F32, 4, 1, 2, m, 128);
                MUST(ek_quantized_matmul(y, x, &q, false, EK_EXACT));
                for (int r = 0; r < m; r++) {
                    ek_view alone = ref_new(EK_TYPE_F32, 4, 1, 2, 1, 128), row = ek_view_slice(y, 2, r, r + 1);
                    MUST(ek_quantized_matmul(alone, ek_view_slice(x, 2, r, r + 1), &q, false, EK_EXACT));
                    ref_same(&alone, &row, "%d values, %d bits, row %d of %d", s, BITS[b], r, m);
                }
                ref_free_all();
            }
}

/* A view of any kind is its dense copy. */
static void test_views(void **state)
{
    (void)state;
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++) {
        ek_view whole = ref_normals(t, 7, 1, 4, 4, 10, 6, 96), wbig = ref_normals(t, 8, 1, 3, 3, 100, 200);
        ek_view w = ek_view_slice(wbig, 0, 1, 2);
        w.n_dims = 2, w.dim[0] = w.dim[1], w.dim[1] = w.dim[2], w.stride[0] = w.stride[1], w.stride[1] = w.stride[2];
        w = ek_view_reverse(ek_view_slice(ek_view_slice(w, 0, 3, 99), 1, 4, 180), 0); /* [96, 176] */
        ek_view xs[] = {
            ek_view_swap(whole, 0, 2),
            ek_view_reverse(ek_view_slice(whole, 1, 2, 9), 3),
            ek_view_expand(ek_view_slice(whole, 2, 3, 4), 2, 5),
            ek_view_reverse(ek_view_reverse(whole, 0), 1),
            ek_view_swap(ek_view_slice(ek_view_slice(whole, 3, 0, 96), 3, 0, 96), 1, 2),
        };
        for (size_t i = 0; i < sizeof xs / sizeof *xs; i++)
            for (int tr = 0; tr < 2; tr++) {
                ek_view wt = tr ? ek_view_swap(w, 0, 1) : w, x = xs[i], xd = ref_dense(&x), wd = ref_dense(&wt);
                ek_view y = x, y2;
                y.dim[3] = 176;
                y = ref_like(&y, EK_TYPE_F32), y2 = ref_like(&y, EK_TYPE_F32);
                MUST(ek_matmul(y, x, wt, tr));
                MUST(ek_matmul(y2, xd, wd, tr));
                ref_same(&y2, &y, "view %d, type %d", (int)i, (int)t);
                ek_view half = ref_like(&y, t), want = ref_like(&y, t);
                MUST(ek_matmul(half, x, wt, tr)); /* one rounding of the same sums */
                MUST(ek_copy(want, y));
                ref_same(&want, &half, "view %d in type %d", (int)i, (int)t);
            }
        ref_free_all();
    }
}

/* Memory at any byte, and an output over an input. */
static void test_overlap(void **state)
{
    (void)state;
    enum { M = 9, K = 64 };
    float *mem = ref_take(4 * M * K * 4 + 8);
    ek_view w = ref_normals(EK_TYPE_F32, 9, 1, 2, K, K), x = ref_normals(EK_TYPE_F32, 10, 1, 2, M, K),
            y = ref_new(EK_TYPE_F32, 2, M, K);
    MUST(ek_matmul(y, x, w, true));
    for (int shift = 0; shift < 4; shift++)
        for (int apart = 0; apart <= 3 * M * K; apart += 37) {
            ek_view in = ek_view_2d((char *)mem + shift, EK_TYPE_F32, M, K),
                    out = ek_view_2d((char *)mem + shift + 4 * (apart % (2 * M * K)), EK_TYPE_F32, M, K);
            memcpy(in.data, x.data, 4 * M * K);
            MUST(ek_matmul(out, in, w, true));
            ref_same(&y, &out, "shifted by %d, output %d elements behind", shift, apart);
        }
    /* the weights themselves as the target */
    ek_view x64 = ref_normals(EK_TYPE_F32, 11, 1, 2, K, K), want = ref_new(EK_TYPE_F32, 2, K, K);
    MUST(ek_matmul(want, x64, w, false));
    MUST(ek_matmul(ek_view_swap(w, 0, 1), x64, w, false));
    ek_view got = ek_view_swap(w, 0, 1);
    ref_same(&want, &got, "the output is the turned weights");
    ref_free_all();
}

/* The library's products are the engine's. */
static void test_engine(void **state)
{
    (void)state;
    enum { N = 120, K = 640, M = 11 };
    for (size_t f = 0; f < 6; f++) {
        ek_view x = ref_normals(EK_TYPE_F32, 1, 1, 2, M, K), w = ref_normals(EK_TYPE_BF16, 2, 1, 2, N, K),
                y = ref_new(EK_TYPE_F32, 2, M, N), e = ref_new(EK_TYPE_F32, 2, M, N);
        ek_qview q = ref_quantised(EK_AFFINE, forms[f].bits, forms[f].group, &w);
        for (ek_precision p = EK_EXACT; p <= EK_INT8; p++) {
            ek_linear l;
            ek_linear_ops ops;
            ek_acts a;
            ek_linear_init(&ops, ek_cpu_detect());
            const ek_weight_type *type;
            assert_int_equal(ek_weight_type_affine(&type, forms[f].bits, forms[f].group, EK_BF16, true), EK_OK);
            const ek_weight_data data = {
                .type = type, .n = N, .k = K, .plane = {q.codes.data, q.scales.data, q.biases.data}};
            const bool exact = p == EK_EXACT;
            assert_int_equal(ek_linear_plan(&l, ek_cpu_detect(), N, K, exact ? ek_weight_type_float(EK_F32) : type),
                             EK_OK);
            if (!exact)
                assert_int_equal(ek_linear_set_acts(&l, (ek_act_form){p == EK_INT16 ? 2 : 1, l.a_group}), EK_OK);
            l.data = ref_take(l.bytes);
            assert_int_equal(ek_linear_pack(&l, 0, &data), EK_OK);
            ek_acts_bind(&a, ref_take(ek_acts_bytes(M, K)), x.data, K, M, K);
            ek_linear_forward(&ops, NULL, &l, &a, e.data, N);
            MUST(ek_quantized_matmul(y, x, &q, true, p));
            ref_same(&e, &y, "the engine's form, %d bits, precision %d", forms[f].bits, (int)p);
        }
        ref_free_all();
    }
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),  cmocka_unit_test(test_broadcast), cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_views), cmocka_unit_test(test_overlap),   cmocka_unit_test(test_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
