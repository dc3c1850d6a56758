/* Form PLANES at the depths of the published models: every weight type that is packed so, one limb and two, every ISA
 * against the scalar definition bit for bit, for every count of rows around a tile and for pieces of the rows; the
 * definition against float64 over the weights as their type reads them and the activations as they were quantised. And
 * what loading costs in memory. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "ops/linear/planes.h"

/* hidden_size, intermediate_size, moe_intermediate_size and heads x head_dim of E2B to 31B. */
static const int depths[] = {96, 256, 704, 1536, 2048, 2112, 2560, 2816, 3840, 5376, 15360, 21504};
enum { DEPTHS = sizeof depths / sizeof *depths, N = 21, ROWS = 25 };

/* Blocks of random bytes whose 16-bit scales are of ordinary size: every code and sub-scale there is. */
static ek_weight_data random_matrix(const ek_weight_type *t, int n, int k, uint64_t seed)
{
    const size_t bytes = (size_t)n * ek_weight_row_bytes(t, k), block = t->block_bytes[0];
    uint8_t *p = check_alloc(bytes);
    check_fill_bytes(p, (bytes + 63) / 64 * 64, seed);
    for (size_t at = 0; at < bytes; at += block) {
        const ek_f16 d = ek_f32_f16(0.02f * check_uniform(seed + 1, at)), m = ek_f32_f16(check_uniform(seed + 2, at));
        const bool last = !strcmp(t->name, "q6_k") || !strcmp(t->name, "q3_k"), q2 = !strcmp(t->name, "q2_k");
        if (t->scale == EK_SCALE_E8M0) p[at] = (uint8_t)(120 + seed % 7 + at % 11);
        else memcpy(p + at + (last ? block - 2 : q2 ? block - 4 : 0), &d, 2);
        if (t->biased) memcpy(p + at + (q2 ? block - 2 : 2), &m, 2);
    }
    return (ek_weight_data){.type = t, .n = n, .k = k, .plane = {p}};
}

static void judge(const ek_weight_data *data, const ek_linear *w, const ek_acts *a, int r, const float *got)
{
    static float row[21504];
    const ek_act_group *groups = ek_acts_groups(a, r, w->limbs);
    for (int n = 0; n < N; n++) {
        double want = 0, size = 0;
        ek_weight_row(data, n, 0, w->k, row);
        for (int k = 0; k < w->k; k++) {
            double term = (double)row[k] * ek_acts_code(a, r, k, w->limbs) * (double)groups[k / w->a_group].sx;
            want += term, size += fabs(term);
        }
        double tol = size * 256 * 0x1p-24 + 1e-30; /* a bias cancels most of a product: terms are not the sum's size */
        check_near("planes", "scalar", &want, &got[n], 1, &tol, "%s, %d limbs, k %d, [%d][%d]", data->type->name,
                   w->limbs, w->k, r, n);
    }
}

/* The kernel of AMX with tiles in memory, and that of AVX-VNNI in another encoding, on any machine with AVX-512:
 * linear_amx_avx512.c, planes_vnni_avx512.c. */
ek_linear_fn check_linear_planes_amx, check_linear_planes_vnni;

static void pieces_by(ek_linear_fn *run, const char *isa, const ek_linear *w, const ek_acts *a, const char *name,
                      const float *want, float *got)
{
    for (int n = 1; n <= ROWS; n += n < 14 ? 1 : 11)
        for (int pass = 0, r0 = 0; pass < 2; pass++, r0 = ROWS - n) {
            size_t count = (size_t)(n * N), at = (size_t)(r0 * N);
            memset(got, 0xff, sizeof *got * ROWS * N);
            run(w, a, r0, r0 + n, got, N, 0, w->n_panels);
            check_bits("planes", isa, want + at, got + at, count, "%s, %d limbs, k %d, rows %d..%d", name, w->limbs,
                       w->k, r0, r0 + n);
        }
}

static void pieces(const ek_linear *w, const ek_acts *a, const char *name, const float *want, float *got)
{
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_linear_init(&ops, cpu);
        if (ops.run[EK_W_PLANES] != w->run) pieces_by(ops.run[EK_W_PLANES], isa, w, a, name, want, got);
    }
#ifdef __x86_64__
    if (!(ek_cpu_detect() & EK_CPU_AVX512)) return;
    pieces_by(check_linear_planes_amx, "amx, tiles in memory", w, a, name, want, got);
    pieces_by(check_linear_planes_vnni, "avxvnni, as avx512", w, a, name, want, got);
    pieces_by(ek_linear_planes_avx512, "avx512", w, a, name, want, got); /* a processor takes one of both */
    pieces_by(ek_linear_planes_avx512_zen4, "avx512, Zen 4", w, a, name, want, got);
#endif
}

/* seed 0: the largest sums there are: codes of all ones and of zeros, limbs of -128 and -127 throughout. */
static void product(const ek_weight_type *t, int k, int limbs, uint64_t seed)
{
    static float want[ROWS * N], got[ROWS * N];
    ek_weight_data data = random_matrix(t, N, k, seed);
    uint8_t *bytes = (uint8_t *)data.plane[0];
    const int halves = t->biased ? 4 : 2; /* of random_matrix, in front or at the end */
    for (size_t i = 0, size = t->block_bytes[0]; i < (size_t)N * ek_weight_row_bytes(t, k) && !seed; i++)
        if (i % size >= (size_t)halves && i % size < size - (size_t)halves) bytes[i] = i / size % 3 ? 0xff : 0;
    ek_linear w;
    ek_linear_ops scalar;
    ek_acts a;
    if (ek_linear_plan(&w, 0, N, k, t) != EK_OK) fail_msg("%s", ek_err_text());
    assert_int_equal(ek_linear_set_acts(&w, (ek_act_form){limbs, w.a_group}), EK_OK);
    w.data = check_alloc(w.bytes);
    memset(w.data, 0xa5, w.bytes); /* packing must not rely on zeroed memory */
    ek_weight_data head = ek_weight_rows(&data, 0, 10), tail = ek_weight_rows(&data, 10, N - 10);
    assert_int_equal(ek_linear_pack(&w, 10, &tail), EK_OK);
    assert_int_equal(ek_linear_pack(&w, 0, &head), EK_OK);

    const size_t count = (size_t)ROWS * (size_t)k;
    float *x = check_alloc(count * sizeof *x);
    void *mem = check_alloc(ek_acts_bytes(ROWS, k));
    check_fill_wide(x, count, seed + 3);
    for (size_t i = 0; i < count && !seed; i++)
        x[i] = i % 16 == 5 ? -1 : i / (size_t)k % 2 ? -32384.0f / 32512 : -1 + 0x1p-20f * (float)(i % 7);
    ek_linear_init(&scalar, 0);
    ek_acts_bind(&a, mem, x, k, ROWS, k);
    ek_acts_quantize_for(&scalar, NULL, &a, &w);
    w.run(&w, &a, 0, ROWS, want, N, 0, w.n_panels);
    if (k < 4096) judge(&data, &w, &a, ROWS - 1, want + (ROWS - 1) * N);
    pieces(&w, &a, t->name, want, got);
    check_free(mem, ek_acts_bytes(ROWS, k));
    check_free(x, count * sizeof *x);
    check_free(w.data, w.bytes);
    check_free((void *)data.plane[0], (size_t)N * ek_weight_row_bytes(t, k));
}

static void all_depths(int limbs)
{
    int count;
    const ek_weight_type *t = ek_weight_types(&count);
    for (int i = 0; i < count; i++, t++)
        for (int d = 0; d < DEPTHS && t->form == EK_W_PLANES; d++)
            if (depths[d] % t->block == 0 && (depths[d] < 4096 || d % 2 == i % 2))
                product(t, depths[d], limbs, 1 + 7 * (uint64_t)i + (uint64_t)d);
}

static void extremes(void **state)
{
    (void)state;
    int count;
    const ek_weight_type *t = ek_weight_types(&count);
    for (int i = 0; i < 2 * count; i++)
        if (t[i / 2].form == EK_W_PLANES) product(&t[i / 2], 1280, 1 + i % 2, 0);
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

/* Rows enough for kernels that decode scales once for all of them, panels enough for several lots of scales, and an odd
 * one at the end. */
static void many_rows(void **state)
{
    (void)state;
    enum { MANY = 74, OUTPUTS = 69 };
    static const int ks[] = {768, 12288};
    static float want[MANY * OUTPUTS], got[MANY * OUTPUTS];
    int count;
    const ek_weight_type *t = ek_weight_types(&count);
    for (int i = 0; i < 2 * count; i++) {
        const ek_weight_type *type = &t[i / 2];
        const int k = ks[i % 2];
        if (type->form != EK_W_PLANES) continue;
        ek_weight_data data = random_matrix(type, OUTPUTS, k, 50 + (uint64_t)i);
        ek_linear w;
        ek_linear_ops ops;
        ek_acts a;
        assert_int_equal(ek_linear_plan(&w, 0, OUTPUTS, k, type), EK_OK);
        w.data = check_alloc(w.bytes);
        assert_int_equal(ek_linear_pack(&w, 0, &data), EK_OK);
        const size_t floats = (size_t)MANY * (size_t)k;
        float *x = check_alloc(floats * sizeof *x);
        void *mem = check_alloc(ek_acts_bytes(MANY, k));
        check_fill_wide(x, floats, 60 + (uint64_t)i);
        ek_linear_init(&ops, 0);
        ek_acts_bind(&a, mem, x, k, MANY, k);
        ek_acts_quantize_for(&ops, NULL, &a, &w);
        w.run(&w, &a, 0, MANY, want, OUTPUTS, 0, w.n_panels);
        CHECK_ISAS(isa, cpu)
        {
            ek_linear_init(&ops, cpu);
            for (int rows = 63; rows <= 71; rows += rows == 63 ? 1 : 7)
                for (int p1 = 2; p1 <= w.n_panels; p1 += 3) {
                    const int r0 = (MANY - rows) / 2, outputs = p1 * EK_PANEL < OUTPUTS ? p1 * EK_PANEL : OUTPUTS;
                    memset(got, 0xff, sizeof got);
                    ops.run[EK_W_PLANES](&w, &a, r0, r0 + rows, got, OUTPUTS, 0, p1);
                    for (int r = r0; r < r0 + rows; r++)
                        check_bits("planes", isa, want + r * OUTPUTS, got + r * OUTPUTS, (size_t)outputs,
                                   "%s, k %d, row %d of %d..%d, %d panels", type->name, k, r, r0, r0 + rows, p1);
                }
        }
        check_free(mem, ek_acts_bytes(MANY, k));
        check_free(x, floats * sizeof *x);
        check_free(w.data, w.bytes);
        check_free((void *)data.plane[0], (size_t)OUTPUTS * ek_weight_row_bytes(type, k));
    }
}

/* Quantising in groups of 16: every ISA as the definition, and nothing is written past a row. */
static void groups_of_16(void **state)
{
    (void)state;
    enum { K = 80 };
    float x[K];
    check_fill_wide(x, K, 3);
    x[17] = INFINITY;
    for (int k = 1; k <= K; k++) {
        const int groups = (k + 15) / 16;
        struct {
            int8_t h[K + 64], l[K + 64];
            ek_act_group one[K / 16], two[K / 16];
        } want, got;
        CHECK_ISAS(isa, cpu)
        {
            ek_linear_ops ops;
            ek_linear_init(&ops, cpu);
            memset(&got, 0x5a, sizeof got);
            ops.quantize_row(x, k, 16, got.h, got.l, got.one, got.two);
            if (!cpu) want = got;
            check_bytes("quantize_row", isa, &want, &got, sizeof got, "%d inputs in groups of 16", k);
            for (int i = 16 * groups; i < K + 64; i++) assert_true(got.h[i] == 0x5a && got.l[i] == 0x5a);
        }
    }
}

/* A loaded matrix takes at most 1.05 times its bytes in the file. */
static void memory(void **state)
{
    (void)state;
    int count, seen = 0;
    const ek_weight_type *t = ek_weight_types(&count);
    for (int i = 0; i < count; i++, t++) {
        ek_linear w;
        if (t->form != EK_W_PLANES) continue;
        assert_int_equal(ek_linear_plan(&w, 0, 5376, 21504, t), EK_OK);
        double ratio = (double)w.bytes / (double)(5376 * ek_weight_row_bytes(t, 21504));
        if (!(ratio >= 1 && ratio <= 1.05)) fail_msg("%s: %.4f times the file", t->name, ratio);
        assert_int_equal(ek_linear_set_acts(&w, (ek_act_form){1, 64}), EK_EINVAL);
        seen++;
    }
    assert_int_equal(seen, 14);
}

/* What no kernel reads is refused by name, and can still be widened. */
static void refusals(void **state)
{
    (void)state;
    ek_linear w;
    ek_weight_type t = *ek_weight_type_named("q6_k");
    t.name = "q6_32", t.group = 32;
    assert_int_equal(ek_linear_plan(&w, 0, 16, 256, &t), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "q6_32"));
    assert_int_equal(ek_linear_plan(&w, 0, 16, 128, ek_weight_type_named("q6_k")), EK_EINVAL);
    assert_int_equal(ek_linear_plan(&w, 0, 16, 256, ek_weight_type_named("q4_k")), EK_OK);
    ek_weight_data other = random_matrix(ek_weight_type_named("q5_k"), 16, 256, 1);
    w.data = check_alloc(w.bytes);
    assert_int_equal(ek_linear_pack(&w, 0, &other), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "q5_k"));
    check_free(w.data, w.bytes);
    check_free((void *)other.plane[0], 16 * ek_weight_row_bytes(other.type, 256));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(one_limb),  CHECK_TEST(two_limbs),    CHECK_TEST(extremes),
                                              CHECK_TEST(many_rows), CHECK_TEST(groups_of_16), CHECK_TEST(memory),
                                              CHECK_TEST(refusals)};
    return CHECK_RUN(argc, argv, tests);
}
