/* Attention's kernels of every instruction set against the plain definition, bit for bit. */
#include <math.h>

#include "base/cpu.h"
#include "lib/attn_kernels.h"
#include "ref.h"
#include "tensor/dtype.h"

/* Instruction sets, the last with the bf16 instruction; a machine runs what it has. */
static const struct {
    const char *isa;
    unsigned cpu;
} sets[] = {{"avx2", EK_CPU_AVX2},
            {"avx512", EK_CPU_AVX2 | EK_CPU_AVX512},
            {"avx512 with bf16", EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16}};
enum { N_SETS = sizeof sets / sizeof *sets };

static bool has(int set)
{
    return !(sets[set].cpu & ~ek_cpu_detect());
}

static lib_attn_ops ops_of(unsigned cpu)
{
    lib_attn_ops ops;
    lib_attn_init(&ops, cpu);
    return ops;
}

static void fill(float *x, size_t n, uint64_t key)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(ref_normal(key, i) * ldexp(1, (int)(i % 9) - 4));
}

/* ------------------------------------------------------------------ f32, f16 and bf16 in f32 */

static const int dims[] = {1, 3, 8, 17, 33, 64, 72, 96, 100, 128, 250, 256, 257, 288, 512};
enum { N_DIMS = sizeof dims / sizeof *dims, ROWS = 40 };

/* Rows of keys or values in type t, with room for a vector behind the last. */
static uint8_t *rows_of(ek_type t)
{
    uint8_t *rows = ref_take(ROWS * 512 * 4 + 64);
    ek_view v = {.data = rows, .type = t, .n_dims = 1, .dim = {ROWS * 512}, .stride = {1}};
    for (int i = 0; i < ROWS * 512; i++) ref_set(&v, i, ref_normal(8, (uint64_t)i));
    return rows;
}

static size_t size_of(ek_type t)
{
    return t == EK_TYPE_F32 ? 4 : 2;
}

static void test_scores(void **state)
{
    (void)state;
    static float q[EK_TILE * EK_Q_STRIDE], want[EK_TILE * EK_SEGMENT], got[EK_TILE * EK_SEGMENT];
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++) {
        const uint8_t *rows = rows_of(t);
        for (int d = 0; d < N_DIMS; d++)
            for (int nq = 1; nq <= EK_TILE; nq++) {
                const int dim = dims[d];
                memset(q, 0, sizeof q);
                for (int i = 0; i < nq; i++) fill(q + i * EK_Q_STRIDE, (size_t)dim, (uint64_t)i);
                lib_score_block b = {.type = t, .dim = dim, .q = q, .n_q = nq, .e = want};
                for (int j = 0; j < LIB_KEYS; j++) b.key[j] = rows + (size_t)(j * 5 % 13 * dim) * size_of(t);
                ops_of(0).scores(&b);
                b.e = got;
                for (int s = 0; s < N_SETS; s++) {
                    if (!has(s)) continue;
                    ops_of(sets[s].cpu).scores(&b);
                    for (int i = 0; i < nq; i++)
                        ref_floats("scores", sets[s].isa, want + i * EK_SEGMENT, got + i * EK_SEGMENT, LIB_KEYS,
                                   "type %d, head size %d, query %d of %d", (int)t, dim, i, nq);
                }
            }
        ref_free_all();
    }
}

static void test_values(void **state)
{
    (void)state;
    static float e[EK_TILE * EK_SEGMENT], want[EK_TILE * 512], got[EK_TILE * 512];
    fill(e, EK_TILE * EK_SEGMENT, 9);
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++) {
        const uint8_t *rows = rows_of(t);
        for (int d = 0; d < N_DIMS; d++)
            for (int nq = 1; nq <= EK_TILE; nq++)
                for (int n = 1; n <= ROWS; n += 13) {
                    const int dim = dims[d];
                    lib_value_run r = {.v = rows,
                                       .stride = (ptrdiff_t)((size_t)dim * size_of(t)),
                                       .n_keys = n,
                                       .type = t,
                                       .dim = dim,
                                       .n_q = nq,
                                       .e = e + 5,
                                       .o = want,
                                       .ldo = (dim + 15) / 16 * 16};
                    fill(want, EK_TILE * 512, 10);
                    ops_of(0).values(&r);
                    r.o = got;
                    for (int s = 0; s < N_SETS; s++) {
                        if (!has(s)) continue;
                        fill(got, EK_TILE * 512, 10);
                        ops_of(sets[s].cpu).values(&r);
                        for (int i = 0; i < nq; i++)
                            ref_floats("values", sets[s].isa, want + i * r.ldo, got + i * r.ldo, (size_t)dim,
                                       "type %d, head size %d, %d keys, query %d of %d", (int)t, dim, n, i, nq);
                    }
                }
        ref_free_all();
    }
}

static void test_combine(void **state)
{
    (void)state;
    float a[512], want[512], got[512];
    fill(a, 512, 12);
    for (int n = 16; n <= 512; n += 16) {
        fill(want, 512, 11);
        ops_of(0).combine(want, a, 0x1p-3f, 0x1p-120f, n);
        for (int s = 0; s < N_SETS; s++) {
            if (!has(s)) continue;
            fill(got, 512, 11);
            ops_of(sets[s].cpu).combine(got, a, 0x1p-3f, 0x1p-120f, n);
            ref_floats("combine", sets[s].isa, want, got, 512, "%d of 512 elements", n);
        }
    }
}

/* ------------------------------------------------------------------ Form B */

static const int dims_b[] = {1, 2, 7, 16, 31, 32, 33, 64, 72, 96, 130, 256, 290, 511, 512};
enum { N_DIMS_B = sizeof dims_b / sizeof *dims_b, ROWS_B = 150 };

/* Numbers around every bound of Form B among ordinary ones: zeros, what counts as zero, the least that
 * does not, and what cancels. */
static uint16_t odd_bf16(uint64_t key, uint64_t i)
{
    static const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x2000, 0x9f80, 0x3f80, 0xbf80};
    double u = ref_uniform(key, 2 * i);
    if (u < 0.3) return odd[(size_t)(u / 0.3 * 10)];
    return ek_f32_bf16((float)ldexp(ref_normal(key, 2 * i + 1), u < 0.5 ? -64 : 0));
}

static uint16_t *rows_b(void)
{
    uint16_t *rows = ref_take(ROWS_B * 512 * 2 + 64);
    for (int i = 0; i < ROWS_B * 512; i++) rows[i] = odd_bf16(1, (uint64_t)i);
    return rows;
}

static void test_scores_bf16(void **state)
{
    (void)state;
    static _Alignas(64) uint16_t q[EK_TILE * EK_MAX_HEAD_DIM];
    static float want[EK_TILE * EK_SEGMENT], got[EK_TILE * EK_SEGMENT];
    const uint16_t *rows = rows_b();
    for (int d = 0; d < N_DIMS_B; d++)
        for (int nq = 1; nq <= EK_TILE; nq++) {
            const int dim = dims_b[d];
            memset(q, 0, sizeof q);
            for (int i = 0; i < nq; i++)
                for (int n = 0; n < dim; n++) q[lib_q16(i, n)] = odd_bf16(2, (uint64_t)(i * 512 + n));
            lib_score_block b = {
                .type = EK_TYPE_BF16, .dim = dim, .q16 = q, .scale = nq % 2 ? 1 : 0x1.3p-3f, .n_q = nq, .e = want};
            for (int j = 0; j < LIB_KEYS; j++) b.key[j] = (const uint8_t *)(rows + j * 5 % 13 * dim);
            ops_of(0).scores_bf16(&b);
            b.e = got;
            for (int s = 0; s < N_SETS; s++) {
                if (!has(s)) continue;
                ops_of(sets[s].cpu).scores_bf16(&b);
                for (int i = 0; i < nq; i++)
                    ref_floats("scores_bf16", sets[s].isa, want + i * EK_SEGMENT, got + i * EK_SEGMENT, LIB_KEYS,
                               "head size %d, query %d of %d", dim, i, nq);
            }
        }
    ref_free_all();
}

static void test_values_bf16(void **state)
{
    (void)state;
    static uint16_t p[EK_TILE * EK_SEGMENT];
    static float e[EK_TILE * EK_SEGMENT], want[EK_TILE * 512], got[EK_TILE * 512];
    const uint16_t *rows = rows_b();
    for (int i = 0; i < EK_TILE * EK_SEGMENT; i++) p[i] = odd_bf16(3, (uint64_t)i) & 0x7fff, e[i] = ek_bf16_f32(p[i]);
    for (int d = 0; d < N_DIMS_B; d++)
        for (int nq = 1; nq <= EK_TILE; nq++)
            for (int slot = 0; slot < 3; slot++)
                for (int n = 1; n < ROWS_B; n += n < 4 ? 1 : n < 40 ? 29 : 60) {
                    const int dim = dims_b[d];
                    lib_value_run r = {.v = (const uint8_t *)rows,
                                       .stride = 2 * dim,
                                       .n_keys = n,
                                       .slot = slot,
                                       .type = EK_TYPE_BF16,
                                       .dim = dim,
                                       .n_q = nq,
                                       .e = e + slot,
                                       .p = p + slot,
                                       .o = want,
                                       .ldo = (dim + 31) / 32 * 32};
                    memset(want, 0, sizeof want);
                    ops_of(0).values_bf16(&r);
                    r.o = got;
                    for (int s = 0; s < N_SETS; s++) {
                        if (!has(s)) continue;
                        const lib_attn_ops ops = ops_of(sets[s].cpu);
                        memset(got, 0, sizeof got);
                        ops.values_bf16(&r);
                        for (int i = 0; i < nq; i++) {
                            if (ops.order_bf16) ops.order_bf16(got + i * r.ldo, dim);
                            ref_floats("values_bf16", sets[s].isa, want + i * r.ldo, got + i * r.ldo, (size_t)dim,
                                       "head size %d, %d keys from slot %d, query %d of %d", dim, n, slot, i, nq);
                        }
                    }
                }
    ref_free_all();
}

static void test_round_bf16(void **state)
{
    (void)state;
    uint16_t want_p[EK_SEGMENT], got_p[EK_SEGMENT];
    float want[EK_SEGMENT], got[EK_SEGMENT], want_l, got_l;
    for (int s = 0; s < N_SETS; s++)
        for (int from = 0; has(s) && from < 40; from += 13)
            for (int to = from + 1; to <= EK_SEGMENT; to += 51) {
                const char *isa = sets[s].isa;
                memset(want_p, 0, sizeof want_p), memset(got_p, 0, sizeof got_p);
                for (int j = 0; j < EK_SEGMENT; j++)
                    want[j] = got[j] = j < from || j >= to ? 0
                                                           : (float)ldexp(ref_uniform(4, (uint64_t)j), -(j * 7 % 120));
                ops_of(0).round_bf16(want, want_p, from, to, &want_l);
                ops_of(sets[s].cpu).round_bf16(got, got_p, from, to, &got_l);
                ref_floats("round_bf16", isa, want, got, EK_SEGMENT, "slots %d to %d", from, to);
                ref_floats("round_bf16's sum", isa, &want_l, &got_l, 1, "slots %d to %d", from, to);
                if (memcmp(want_p, got_p, sizeof got_p)) fail_msg("%s: weights in bf16, slots %d to %d", isa, from, to);
            }
}

/* The weights in one pass are the engine's weights, then rounded. */
static void test_weights_bf16(void **state)
{
    (void)state;
    uint16_t want_p[EK_SEGMENT], got_p[EK_SEGMENT];
    float want[EK_SEGMENT], got[EK_SEGMENT], want_l, got_l;
    for (int s = 0; s < N_SETS; s++) {
        if (!has(s)) continue;
        const lib_attn_ops ops = ops_of(sets[s].cpu);
        const char *isa = sets[s].isa;
        for (int from = 0; ops.weights_bf16 && from < 40; from += 8)
            for (int to = from + 1; to <= EK_SEGMENT; to += to % 16 ? 3 : 23) {
                int m;
                ek_attn_leaf leaf = {.n_q = 1, .from = {from}, .to = {to}, .e = want};
                memset(want_p, 0, sizeof want_p), memset(got_p, 0, sizeof got_p);
                for (int j = 0; j < EK_SEGMENT; j++)
                    want[j] = got[j] = j % 29 == 3 ? -INFINITY
                                                   : (float)ref_normal(5, (uint64_t)(j + to)) * (from % 16 ? 3 : 60);
                ops.weights(&leaf);
                ops_of(0).round_bf16(want, want_p, from, to, &want_l);
                ops.weights_bf16(got, got_p, from, to, &m, &got_l);
                assert_int_equal(leaf.m[0], m);
                ref_floats("weights_bf16", isa, want, got, EK_SEGMENT, "slots %d to %d", from, to);
                ref_floats("weights_bf16's sum", isa, &want_l, &got_l, 1, "slots %d to %d", from, to);
                if (memcmp(want_p, got_p, sizeof got_p)) fail_msg("%s: weights in bf16, slots %d to %d", isa, from, to);
            }
    }
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),       cmocka_unit_test(test_values),      cmocka_unit_test(test_combine),
        cmocka_unit_test(test_scores_bf16),  cmocka_unit_test(test_values_bf16), cmocka_unit_test(test_round_bf16),
        cmocka_unit_test(test_weights_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
