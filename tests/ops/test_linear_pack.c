/* Everything around the products: packing, one row back, quantised activations, refusals. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "linear_case.h"

/* The only float32 value a weight may have: one rounding of the exact one. */
static float weight_f32(const linear_case *c, int n, int k)
{
    if (c->shape.bits == 0) return (float)linear_case_weight(c, n, k);
    float s = (float)linear_case_scale(c, n, k);
    if (!c->shape.biased) return s * (float)(linear_case_code(c, n, k) - (1 << (c->shape.bits - 1)));
    return fmaf(s, (float)linear_case_code(c, n, k), (float)linear_case_bias(c, n, k));
}

static void rows_come_back(void **state)
{
    (void)state;
    const linear_shape shapes[] = {
        {.form = EK_W_F32, .n = 19, .k = 33},
        {.form = EK_W_F16, .n = 19, .k = 33},
        {.form = EK_W_BF16, .n = 32, .k = 7},
        {.form = EK_W_Q4, .n = 19, .k = 128, .bits = 2, .group = 128, .scale_dtype = EK_F16, .biased = true},
        {.form = EK_W_Q4, .n = 19, .k = 96, .bits = 3, .group = 32, .scale_dtype = EK_F32, .biased = false},
        {.form = EK_W_Q4, .n = 5, .k = 192, .bits = 4, .group = 64, .scale_dtype = EK_BF16, .biased = true},
        {.form = EK_W_Q8, .n = 16, .k = 64, .bits = 5, .group = 64, .scale_dtype = EK_BF16, .biased = false},
        {.form = EK_W_Q8, .n = 33, .k = 64, .bits = 6, .group = 32, .scale_dtype = EK_F16, .biased = true},
        {.form = EK_W_Q8, .n = 19, .k = 256, .bits = 8, .group = 128, .scale_dtype = EK_BF16, .biased = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const linear_shape *s = &shapes[i];
        linear_case c;
        linear_case_open(&c, s, 40 + i);
        float want[256], got[256];
        ek_linear wide;
        assert_int_equal(ek_linear_plan(&wide, 0, s->n, s->k, ek_weight_type_float(EK_F32)), EK_OK);
        wide.data = check_alloc(wide.bytes);
        assert_int_equal(ek_linear_pack(&wide, 0, &c.data), EK_OK);
        for (int n = 0; n < s->n; n++) {
            for (int k = 0; k < s->k; k++) want[k] = weight_f32(&c, n, k);
            ek_linear_row(&c.w, n, got);
            check_bits("linear_row", "scalar", want, got, (size_t)s->k, "%s row %d", c.name, n);
            ek_linear_row(&wide, n, got);
            check_bits("pack widened", "scalar", want, got, (size_t)s->k, "%s row %d", c.name, n);
            for (int first = 0; first < s->k; first += 1 + first / 3) { /* any piece of a row, as the file has it */
                int some = (s->k - first) * (n + 1) / (s->n + 1) + 1;
                if (some > s->k - first) some = s->k - first;
                ek_weight_row(&c.data, n, first, some, got);
                check_bits("weight_row", "scalar", want + first, got, (size_t)some, "%s row %d from %d", c.name, n,
                           first);
            }
        }
        check_free(wide.data, wide.bytes);
        linear_case_close(&c);
    }
}

/* Packing by rows in any order leaves the same bytes, padding included. */
static void order_of_packing_is_free(void **state)
{
    (void)state;
    linear_shape s = {
        .form = EK_W_Q4, .n = 37, .k = 64, .bits = 4, .group = 32, .scale_dtype = EK_BF16, .biased = false};
    linear_case c;
    linear_case_open(&c, &s, 60);
    ek_linear w = c.w;
    w.data = check_alloc(w.bytes);
    memset(w.data, 0x11, w.bytes);
    for (int i = 0; i < s.n; i++) {
        int row = (i * 23 + 5) % s.n;
        ek_weight_data one = ek_weight_rows(&c.data, row, 1);
        assert_int_equal(ek_linear_pack(&w, row, &one), EK_OK);
    }
    check_bytes("linear_pack", "scalar", c.w.data, w.data, w.bytes, "%s", c.name);
    check_free(w.data, w.bytes);
    linear_case_close(&c);
}

enum { QUANTIZED = 384 /* elements of a row and rounding up to groups, at most */ };

typedef struct quantized_row {
    int8_t h[QUANTIZED], l[QUANTIZED];
    ek_act_group one[QUANTIZED / 32], two[QUANTIZED / 32];
} quantized_row;

/* One row, every ISA against the scalar definition, that against what the header says. */
static void quantize_one(const float *row, int k, int a_group, double size)
{
    quantized_row got, want;
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_linear_init(&ops, cpu);
        memset(&got, 77, sizeof got); /* nothing behind the last group is written */
        ops.quantize_row(row, k, a_group, got.h, got.l, got.one, got.two);
        if (cpu == 0) want = got;
        check_bytes("quantize_row", isa, &want, &got, sizeof got, "size %g k %d groups of %d", size, k, a_group);
        for (int from = 0; from < k; from += 64) { /* one limb alone, and a row in parts */
            const int n = k - from < 64 ? k - from : 64;
            memset(got.h + from, 77, 64);
            memset(&got.one[from / a_group], 77, (size_t)(64 / a_group) * sizeof *got.one);
            ops.quantize_row(row + from, n, a_group, got.h + from, NULL, &got.one[from / a_group], NULL);
        }
        check_bytes("quantize_row", isa, &want, &got, sizeof got, "parts: size %g k %d groups of %d", size, k, a_group);
        memset(&got.h, 77, sizeof got.h);
        memset(&got.one, 77, sizeof got.one);
        ops.quantize_row(row, k, a_group, got.h, NULL, got.one, NULL);
        check_bytes("quantize_row", isa, &want, &got, sizeof got, "one limb: size %g k %d groups of %d", size, k,
                    a_group);
    }
    int groups = (k + a_group - 1) / a_group;
    for (int g = 0, j = 0; g < groups; g++) {
        const ek_act_group *one = &want.one[g], *two = &want.two[g];
        int sum_h = 0, sum_q = 0, h_of[2] = {0}, l_of[2] = {0};
        float amax = 0;
        for (int i = j; i < (g + 1) * a_group && i < k; i++) amax = fmaxf(amax, fabsf(row[i]));
        for (; j < (g + 1) * a_group && j < k; j++) {
            int h = want.h[j], q = 256 * h + want.l[j];
            sum_h += h, sum_q += q;
            h_of[j / 2 % 2] += h, l_of[j / 2 % 2] += want.l[j];
            assert_true(h >= -127 && q >= -32512 && q <= 32512);
            if (amax < 0x1p-100f) assert_true(q == 0 && two->sx == 0);
            else assert_true(fabs((double)row[j] - q * (double)two->sx) <= (0.5 + 1e-7 * 32512) * (double)two->sx);
        }
        assert_true(one->sx == 256 * two->sx && one->sum == (float)sum_h && two->sum == (float)sum_q);
        assert_true(one->start == -8 * sum_h && two->start == -8 * sum_q);
        for (int i = 0; i < 2; i++) {
            assert_true((uint16_t)((uint32_t)one->starts >> 16 * i) == (uint16_t)(-8 * h_of[i]));
            assert_true((uint16_t)((uint32_t)two->starts >> 16 * i) == (uint16_t)(-8 * l_of[i] - EK_ACT_LOWER));
        }
    }
    for (int j = k; j < groups * a_group; j++) assert_true(want.h[j] == 0 && want.l[j] == 0);
}

static void quantized_rows(void **state)
{
    (void)state;
    enum { K = 330 };
    static const float sizes[] = {1, 1e-30f, 0x1p-101f, 0x1.fffffep-101f, 0x1p-100f, 1e-42f, 3.4e38f, 0};
    float *x = check_alloc(K * sizeof *x);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int a_group = 32; a_group <= 64; a_group *= 2)
            for (int k = K - 9; k <= K; k++) {
                float *row = x + (K - k); /* ends where the guard page starts */
                for (int j = 0; j < k; j++) row[j] = sizes[i] * (j % 7 ? check_uniform(i, (uint64_t)j) : -1);
                quantize_one(row, k, a_group, (double)sizes[i]);
            }
    /* many maxima: an inverse that is a rounding off moves a code now and then */
    for (uint64_t seed = 0; seed < 200; seed++) {
        check_fill(x, K, 5000 + seed, 1 + (float)seed / 64);
        quantize_one(x, K, seed % 2 ? 32 : 64, (double)seed);
    }
    /* every 16-bit code, among them those whose low limb is -128 */
    for (int v = -32512; v <= 32512; v += 63) {
        for (int j = 0; j < 64; j++) x[j] = (float)(v + j < 32512 ? v + j : 32512);
        x[0] = 32512;
        quantize_one(x, 64, 64, 32512);
    }
    check_free(x, K * sizeof *x);
}

static void infinities_and_nan_show(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_linear_init(&ops, cpu);
        for (int i = 0; i < 3 * 64; i++) {
            float x[128];
            quantized_row q;
            check_fill(x, 128, 3, 1);
            x[i / 3 + 32] = bad[i % 3];
            ops.quantize_row(x, 128, 32, q.h, q.l, q.one, q.two);
            const int at = (i / 3 + 32) / 32;
            for (int g = 0; g < 4; g++)
                assert_true(!isnan(q.one[g].sx) == (g != at) && !isnan(q.two[g].sx) == (g != at));
            for (int j = 32 * at; j < 32 * at + 32; j++) assert_true(q.h[j] == 0 && q.l[j] == 0);
        }
    }
}

static const ek_weight_type *affine_type(int bits, int group, ek_dtype scales, bool biased)
{
    const ek_weight_type *t;
    if (ek_weight_type_affine(&t, bits, group, scales, biased) != EK_OK) fail_msg("%s", ek_err_text());
    return t;
}

static void refusals(void **state)
{
    (void)state;
    ek_linear w;
    const ek_weight_type *t, *bf16 = ek_weight_type_float(EK_BF16), *q4 = affine_type(4, 64, EK_BF16, true);
    uint8_t memory[4096];
    assert_int_equal(ek_linear_plan(&w, 0, 40, 100, q4), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "40 x 100"));
    assert_non_null(strstr(ek_err_text(), "64"));
    assert_int_equal(ek_weight_type_affine(&t, 7, 64, EK_BF16, true), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "7-bit"));
    assert_int_equal(ek_weight_type_affine(&t, 4, 16, EK_BF16, true), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "groups of 16"));
    assert_int_equal(ek_weight_type_affine(&t, 4, 64, EK_U8, true), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "U8 scales"));
    assert_null(ek_weight_type_float(EK_F64));
    assert_int_equal(ek_linear_plan(&w, 0, 0, 128, q4), EK_EINVAL);
    assert_int_equal(ek_linear_plan(&w, 0, 16, -1, bf16), EK_EINVAL);
    assert_int_equal(ek_linear_plan(&w, 0, EK_LINEAR_MAX + 1, 1, bf16), EK_EINVAL);

    ek_weight_data src = {.type = bf16, .n = 16, .k = 16, .plane = {memory, memory, memory}};
    assert_int_equal(ek_linear_plan(&w, 0, 16, 16, bf16), EK_OK);
    w.data = memory;
    assert_int_equal(ek_linear_pack(&w, 1, &src), EK_EINVAL);
    assert_int_equal(ek_linear_pack(&w, -1, &src), EK_EINVAL);
    src.k = 15;
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    src.k = 16;
    src.type = ek_weight_type_float(EK_F32);
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    src.type = ek_weight_type_float(EK_F16);
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    assert_int_equal(ek_linear_set_acts(&w, (ek_act_form){2, 64}), EK_EINVAL);
    assert_int_equal(ek_linear_plan(&w, 0, 16, 64, bf16), EK_OK);
    w.data = memory;
    src.k = 64, src.type = q4;
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);

    assert_int_equal(ek_linear_plan(&w, 0, 16, 64, q4), EK_OK);
    static const ek_act_form wrong[] = {{0, 64}, {3, 64}, {1, 16}, {1, 128}, {1, 48}};
    for (int i = 0; i < 5; i++) assert_int_equal(ek_linear_set_acts(&w, wrong[i]), EK_EINVAL);
    assert_true(w.limbs == 1 && w.a_group == 64);
    w.data = memory;
    src.type = affine_type(4, 64, EK_BF16, false);
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    src.type = affine_type(4, 64, EK_F32, true);
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    src.type = affine_type(3, 64, EK_BF16, true);
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    src.type = affine_type(4, 32, EK_BF16, true);
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    src.type = bf16;
    assert_int_equal(ek_linear_pack(&w, 0, &src), EK_EINVAL);
    assert_int_equal(ek_linear_plan(&w, 0, 16, 32, affine_type(4, 32, EK_BF16, true)), EK_OK);
    assert_int_equal(ek_linear_set_acts(&w, (ek_act_form){1, 64}), EK_EINVAL); /* wider than the weights' group */
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        CHECK_TEST(rows_come_back), CHECK_TEST(order_of_packing_is_free),
        CHECK_TEST(quantized_rows), CHECK_TEST(infinities_and_nan_show),
        CHECK_TEST(refusals),
    };
    return CHECK_RUN(argc, argv, tests);
}
