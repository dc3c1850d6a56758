/* Every kernel of every instruction set against the plain definition, bit for bit. */
#include <stdio.h>

#include "base/cpu.h"
#include "lib/bf16.h"
#include "lib/product_bf16.h"
#include "lib/plain.h"
#include "ref.h"

static void fill(void *p, size_t n, uint64_t key)
{
    for (size_t i = 0; i < n; i++) ((uint8_t *)p)[i] = (uint8_t)(256 * ref_uniform(key, i));
}

static void fill_floats(float *x, size_t n, uint64_t key)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(ref_normal(key, i) * ldexp(1, (int)(i % 9) - 4));
}

static void same(const void *want, const void *got, size_t n, const char *what, int a, int b)
{
    if (memcmp(want, got, n)) fail_msg("%s differs at %d, %d", what, a, b);
}

#define EACH_ISA(k)                                                                     \
    for (const char *const *isa = ek_cpu_isas() + 1; *isa; isa++)                       \
        for (unsigned cpu = 0, once = ek_cpu_mask(*isa, &cpu) == EK_OK; once; once = 0) \
            for (lib_kernels k = (lib_kernels_init(&k, cpu), k), *go = &k; go; go = NULL)

static void test_conversions(void **state)
{
    (void)state;
    enum { N = 70 };
    uint16_t *h = ref_take(65536 * 2);
    float *x = ref_take(65536 * 4), *y = ref_take(65536 * 4);
    for (int i = 0; i < 65536; i++) h[i] = (uint16_t)i;
    EACH_ISA(k)
    for (ek_type t = EK_TYPE_F16; t <= EK_TYPE_BF16; t++) {
        plain_widen(x, (uint8_t *)h, t, 65536);
        k.widen(y, (uint8_t *)h, t, 65536);
        for (int i = 0; i < 65536; i++)
            if (memcmp(x + i, y + i, 4) && !(isnan(x[i]) && isnan(y[i]))) fail_msg("%s: widen %04x", *isa, i);
        for (int n = 0; n < N; n++) {
            float *z = ref_take(4 * N);
            uint16_t *a = ref_take(2 * N), *b = ref_take(2 * N);
            fill_floats(z, N, (uint64_t)n);
            if (n % 3 == 0) z[n / 2] = (float)INFINITY, z[n / 3] = 1e-7f;
            plain_narrow((uint8_t *)a, t, z, n);
            k.narrow((uint8_t *)b, t, z, n);
            same(a, b, 2 * N, "narrow", n, (int)t);
            plain_widen(x, (uint8_t *)a, t, n);
            k.widen(y, (uint8_t *)a, t, n);
            same(x, y, 4 * (size_t)n, "widen", n, (int)t);
        }
    }
    ref_free_all();
}

static void test_affine(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    uint8_t codes[128];
    float want[128], got[128];
    fill(codes, sizeof codes, 1);
    EACH_ISA(k)
    for (int b = 0; b < 6; b++)
        for (int n = 8; n <= 128; n += 8) {
            float s = (float)ref_normal(2, (uint64_t)n), o = (float)ref_normal(3, (uint64_t)n);
            plain_affine(want, codes, n, bits[b], s, o);
            k.affine(got, codes, n, bits[b], s, o);
            same(want, got, 4 * (size_t)n, "affine", bits[b], n);
        }
}

static void test_turn_and_madd(void **state)
{
    (void)state;
    static float rows[EK_PANEL * LIB_DEPTH], want[LIB_COLS * LIB_DEPTH], got[LIB_COLS * LIB_DEPTH], x[50 * 80];
    static float a[50 * LIB_COLS], b[50 * LIB_COLS];
    const float *xp[50];
    fill_floats(rows, EK_PANEL * LIB_DEPTH, 1);
    fill_floats(x, 50 * 80, 2);
    for (int r = 0; r < 50; r++) xp[r] = x + r * 80;
    EACH_ISA(k)
    {
        memset(want, 0, sizeof want), memset(got, 0, sizeof got);
        plain_turn(want + 16, rows);
        k.turn(got + 16, rows);
        same(want, got, sizeof want, "turn", 0, 0);
        fill_floats(want, LIB_COLS * LIB_DEPTH, 3);
        for (int n = 1; n <= 50; n += n < 8 ? 1 : 7)
            for (int depth = 1; depth <= LIB_DEPTH; depth += 9) {
                fill_floats(a, 50 * LIB_COLS, 4);
                memcpy(b, a, sizeof a);
                plain_madd(a, xp, 3, n, want, depth);
                k.madd(b, xp, 3, n, want, depth);
                same(a, b, sizeof a, "madd", n, depth);
            }
    }
}

static void test_affine_turned(void **state)
{
    (void)state;
    static float rows[EK_PANEL * LIB_DEPTH], want[LIB_COLS * LIB_DEPTH], got[LIB_COLS * LIB_DEPTH];
    uint8_t *codes = ref_take(EK_PANEL * 100);
    const uint8_t *row[EK_PANEL];
    float s[EK_PANEL], b[EK_PANEL];
    fill(codes, EK_PANEL * 100, 1), fill_floats(s, EK_PANEL, 2), fill_floats(b, EK_PANEL, 3);
    for (int i = 0; i < EK_PANEL; i++) row[i] = codes + i * 71 + 3;
    EACH_ISA(k)
    for (int bits = 4; bits <= 8 && k.affine_turned; bits += 4)
        for (int n = 32; n <= LIB_DEPTH; n += 32) {
            memset(rows, 0, sizeof rows), memset(want, 0, sizeof want), memset(got, 0, sizeof got);
            for (int i = 0; i < EK_PANEL; i++) plain_affine(rows + i * LIB_DEPTH, row[i], n, bits, s[i], b[i]);
            plain_turn(want, rows);
            k.affine_turned(got, row, n, bits, s, b);
            same(want, got, sizeof want, "affine, turned", bits, n);
        }
    ref_free_all();
}

static void test_unpack(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    static float want[LIB_COLS * LIB_DEPTH], got[LIB_COLS * LIB_DEPTH];
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++)
            for (int bf = 0; bf < 2; bf++) {
                enum { N = 90, K = 384 };
                ek_linear w;
                const ek_weight_type *type;
                assert_int_equal(ek_weight_type_affine(&type, bits[b], groups[g], bf ? EK_BF16 : EK_F32, true), EK_OK);
                assert_int_equal(ek_linear_plan(&w, 0, N, K, type), EK_OK);
                w.data = ref_take(w.bytes);
                uint8_t *codes = ref_take(N * K);
                float *s = ref_take(N * K * 4), *o = ref_take(N * K * 4), value[K];
                fill(codes, N * K, 5);
                fill_floats(s, N * K / 32, 6), fill_floats(o, N * K / 32, 7);
                const ek_weight_data data = {
                    .type = type, .n = N, .k = K, .plane = {codes, (uint8_t *)s, (uint8_t *)o}};
                assert_int_equal(ek_linear_pack(&w, 0, &data), EK_OK);
                for (int k0 = 0; k0 < K; k0 += LIB_DEPTH)
                    for (int p0 = 0; p0 < w.n_panels; p0 += 4) {
                        memset(want, 0, sizeof want);
                        plain_unpack(want, &w, p0, k0, LIB_DEPTH);
                        for (int n = 0; n < LIB_COLS && p0 * 16 + n < N;
                             n++) { /* the definition against the engine's */
                            ek_linear_row(&w, p0 * 16 + n, value);
                            for (int k = 0; k < LIB_DEPTH; k++)
                                assert_memory_equal(&want[k * LIB_COLS + n], &value[k0 + k], 4);
                        }
                        EACH_ISA(k)
                        {
                            memset(got, 0, sizeof got);
                            k.unpack(got, &w, p0, k0, LIB_DEPTH);
                            same(want, got, sizeof want, "unpack", bits[b], groups[g]);
                            for (int rows = 1; rows <= LIB_FEW && k.madd_few && (p0 + 4) * 16 <= N; rows++) {
                                float x[LIB_FEW * K], a[LIB_FEW * LIB_COLS], m[LIB_FEW * LIB_COLS];
                                const float *xp[LIB_FEW] = {x, x + K, x + 2 * K};
                                fill_floats(x, LIB_FEW * K, 8), fill_floats(a, LIB_FEW * LIB_COLS, 9),
                                    fill_floats(m, LIB_FEW * LIB_COLS, 9);
                                plain_madd(a, xp, k0, rows, want, LIB_DEPTH);
                                k.madd_few(m, xp, rows, &w, p0, k0, LIB_DEPTH);
                                same(a, m, sizeof a, "madd of codes", bits[b], rows);
                            }
                        }
                    }
                ref_free_all();
            }
}

static void test_attention(void **state)
{
    (void)state;
    static const int dims[] = {1, 3, 8, 17, 33, 64, 72, 96, 100, 128, 250, 256, 257, 288, 512};
    static float q[EK_TILE * EK_Q_STRIDE], e[EK_TILE * EK_SEGMENT], e2[EK_TILE * EK_SEGMENT];
    static float o[EK_TILE * 512], o2[EK_TILE * 512];
    uint8_t *rows = ref_take(40 * 512 * 4 + 64);
    for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_BF16; t++) {
        ek_view v = {.data = rows, .type = t, .n_dims = 1, .dim = {40 * 512}, .stride = {1}};
        for (int i = 0; i < 40 * 512; i++) ref_set(&v, i, ref_normal(8, (uint64_t)i));
        size_t size = t == EK_TYPE_F32 ? 4 : 2;
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (int nq = 1; nq <= EK_TILE; nq++) {
                int dim = dims[d];
                memset(q, 0, sizeof q);
                for (int i = 0; i < nq; i++) fill_floats(q + i * EK_Q_STRIDE, (size_t)dim, (uint64_t)i);
                lib_score_block b = {.type = t, .dim = dim, .q = q, .n_q = nq, .e = e};
                for (int j = 0; j < LIB_KEYS; j++) b.key[j] = rows + (size_t)(j * 5 % 13 * dim) * size;
                plain_scores(&b);
                EACH_ISA(k)
                {
                    lib_score_block c = b;
                    c.e = e2;
                    k.scores(&c);
                    for (int i = 0; i < nq; i++)
                        for (int j = 0; j < LIB_KEYS; j++)
                            if (e[i * EK_SEGMENT + j] != e2[i * EK_SEGMENT + j])
                                fail_msg("%s scores: dim %d, %d queries", *isa, dim, nq);
                }
                EACH_ISA(k)
                {
                    fill_floats(o, 512, 11), fill_floats(o2, 512, 11), fill_floats(e, 512, 12);
                    plain_combine(o, e, 0x1p-3f, 0x1p-120f, dim);
                    k.combine(o2, e, 0x1p-3f, 0x1p-120f, dim);
                    same(o, o2, 512 * 4, "combine", dim, 0);
                }
                for (int n = 1; n <= 40; n += 13) {
                    fill_floats(e, EK_TILE * EK_SEGMENT, 9);
                    lib_value_run r = {.v = rows,
                                       .stride = (ptrdiff_t)((size_t)dim * size),
                                       .n_keys = n,
                                       .type = t,
                                       .dim = dim,
                                       .n_q = nq,
                                       .e = e + 5,
                                       .o = o,
                                       .ldo = (dim + 15) / 16 * 16};
                    fill_floats(o, EK_TILE * 512, 10);
                    plain_values(&r);
                    EACH_ISA(k)
                    {
                        r.o = o2;
                        fill_floats(o2, EK_TILE * 512, 10);
                        k.values(&r);
                        for (int i = 0; i < nq; i++)
                            same(o + i * r.ldo, o2 + i * r.ldo, (size_t)dim * 4, "values", dim, nq);
                    }
                }
            }
    }
    ref_free_all();
}

/* Numbers around every bound of Form B among ordinary ones: zeros, what counts as zero, the least that
 * does not, and what cancels. */
static uint16_t bf16_of(uint64_t key, uint64_t i)
{
    static const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x2000, 0x9f80, 0x3f80, 0xbf80};
    double u = ref_uniform(key, 2 * i);
    if (u < 0.3) return odd[(size_t)(u / 0.3 * 10)];
    return ek_f32_bf16((float)ldexp(ref_normal(key, 2 * i + 1), u < 0.5 ? -64 : 0));
}

/* Form B by every instruction set, with and without the instruction for it. */
static void test_bf16(void **state)
{
    (void)state;
    static const unsigned masks[] = {EK_CPU_AVX2, EK_CPU_AVX2 | EK_CPU_AVX512,
                                     EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16};
    static const int dims[] = {1, 2, 7, 16, 31, 32, 33, 64, 72, 96, 130, 256, 290, 511, 512};
    static _Alignas(64) uint16_t q[EK_TILE * EK_MAX_HEAD_DIM], p[EK_TILE * EK_SEGMENT], p2[EK_TILE * EK_SEGMENT];
    static float e[EK_TILE * EK_SEGMENT], e2[EK_TILE * EK_SEGMENT], o[EK_TILE * 512], o2[EK_TILE * 512];
    enum { ROWS = 150 };
    uint16_t *rows = ref_take(ROWS * 512 * 2 + 64);
    for (int i = 0; i < ROWS * 512; i++) rows[i] = bf16_of(1, (uint64_t)i);
    for (size_t c = 0; c < sizeof masks / sizeof *masks; c++) {
        if ((ek_cpu_detect() & masks[c]) != masks[c]) continue;
        lib_kernels k;
        lib_kernels_init(&k, masks[c]);
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (int nq = 1; nq <= EK_TILE; nq++) {
                int dim = dims[d];
                memset(q, 0, sizeof q);
                for (int i = 0; i < nq; i++)
                    for (int n = 0; n < dim; n++) q[lib_q16(i, n)] = bf16_of(2, (uint64_t)(i * 512 + n));
                lib_score_block b = {
                    .type = EK_TYPE_BF16, .dim = dim, .q16 = q, .scale = nq % 2 ? 1 : 0x1.3p-3f, .n_q = nq, .e = e};
                for (int j = 0; j < LIB_KEYS; j++) b.key[j] = (uint8_t *)(rows + j * 5 % 13 * dim);
                plain_scores_bf16(&b);
                b.e = e2;
                k.scores_bf16(&b);
                for (int i = 0; i < nq; i++)
                    same(e + i * EK_SEGMENT, e2 + i * EK_SEGMENT, LIB_KEYS * 4, "scores of bf16", dim, nq);

                for (int i = 0; i < EK_TILE * EK_SEGMENT; i++) p[i] = bf16_of(3, (uint64_t)i) & 0x7fff;
                for (int i = 0; i < EK_TILE * EK_SEGMENT; i++) e[i] = ek_bf16_f32(p[i]);
                for (int slot = 0; slot < 3; slot++)
                    for (int n = 1; n < ROWS; n += n < 4 ? 1 : n < 40 ? 29 : 60) {
                        lib_value_run r = {.v = (uint8_t *)rows,
                                           .stride = 2 * dim,
                                           .n_keys = n,
                                           .slot = slot,
                                           .type = EK_TYPE_BF16,
                                           .dim = dim,
                                           .n_q = nq,
                                           .e = e + slot,
                                           .p = p + slot,
                                           .o = o,
                                           .ldo = (dim + 31) / 32 * 32};
                        memset(o, 0, sizeof o), memset(o2, 0, sizeof o2);
                        plain_values_bf16(&r);
                        r.o = o2;
                        k.values_bf16(&r);
                        for (int i = 0; i < nq; i++) {
                            if (k.order_bf16) k.order_bf16(o2 + i * r.ldo, dim);
                            same(o + i * r.ldo, o2 + i * r.ldo, (size_t)dim * 4, "values of bf16", dim, n);
                        }
                    }
            }
        for (int from = 0; from < 40; from += 13)
            for (int to = from + 1; to <= EK_SEGMENT; to += 51) {
                float want, got;
                memset(p, 0, sizeof p), memset(p2, 0, sizeof p2);
                for (int j = 0; j < EK_SEGMENT; j++)
                    e[j] = e2[j] = j < from || j >= to ? 0 : (float)ldexp(ref_uniform(4, (uint64_t)j), -(j * 7 % 120));
                plain_round_bf16(e, p, from, to, &want);
                k.round_bf16(e2, p2, from, to, &got);
                same(e, e2, EK_SEGMENT * 4, "rounded weights", from, to);
                same(p, p2, EK_SEGMENT * 2, "rounded weights in bf16", from, to);
                same(&want, &got, 4, "sum of rounded weights", from, to);
            }
        for (int from = 0; k.weights_bf16 && from < 40; from += 8)
            for (int to = from + 1; to <= EK_SEGMENT; to += to % 16 ? 3 : 23) {
                float want, got;
                int m;
                ek_attn_leaf leaf = {.n_q = 1, .from = {from}, .to = {to}, .e = e};
                memset(p, 0, sizeof p), memset(p2, 0, sizeof p2);
                for (int j = 0; j < EK_SEGMENT; j++)
                    e[j] = e2[j] = j % 29 == 3 ? -INFINITY
                                               : (float)ref_normal(5, (uint64_t)(j + to)) * (from % 16 ? 3 : 60);
                k.weights(&leaf);
                plain_round_bf16(e, p, from, to, &want);
                k.weights_bf16(e2, p2, from, to, &m, &got);
                assert_int_equal(leaf.m[0], m);
                same(e, e2, EK_SEGMENT * 4, "weights in one pass", from, to);
                same(p, p2, EK_SEGMENT * 2, "weights in one pass, in bf16", from, to);
                same(&want, &got, 4, "sum of weights in one pass", from, to);
            }
    }
    ref_free_all();
}

/* Products in bf16 by every instruction set: x around every bound of the steps, scales and biases below
 * those bounds too, where they must not be flushed. */
static void test_pairs(void **state)
{
    (void)state;
    static const unsigned masks[] = {EK_CPU_AVX2, EK_CPU_AVX2 | EK_CPU_AVX512,
                                     EK_CPU_AVX2 | EK_CPU_AVX512 | EK_CPU_BF16};
    static const int bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128}, depths[] = {128, 640, 1152};
    enum { N = 40, M = LIB_PAIR_ROWS + 1, K = 1152, LDX = 4 * K + 64, LDS = K / 32 };
    static float x[M * K], sum[M * LDS], sum2[M * LDS], want[LIB_PAIR_ROWS * EK_PANEL], got[LIB_PAIR_ROWS * EK_PANEL];
    for (int b = 0; b < 6; b++)
        for (int g = 0; g < 3; g++)
            for (int d = 0; d < 3; d++)
                for (int bf = 0; bf < 2; bf++) {
                    ek_linear w;
                    const int depth = depths[d], all = depth / groups[g];
                    const ek_weight_type *type;
                    assert_int_equal(ek_weight_type_affine(&type, bits[b], groups[g], bf ? EK_BF16 : EK_F32, true),
                                     EK_OK);
                    assert_int_equal(ek_linear_plan(&w, 0, N, depth, type), EK_OK);
                    w.data = ref_take(w.bytes);
                    uint8_t *codes = ref_take(N * K), *mem = ref_take(M * LDX + 64), *mem2 = ref_take(M * LDX + 64);
                    float *s = ref_take(N * LDS * 4), *o = ref_take(N * LDS * 4);
                    fill(codes, N * K, 5);
                    for (int i = 0; i < N * LDS; i++) /* some of the least numbers: no flushing outside of the steps */
                        s[i] = (float)ldexp(ref_normal(6, (uint64_t)i), i % 5 ? 0 : -120),
                        o[i] = (float)ldexp(ref_normal(7, (uint64_t)i), i % 7 ? 0 : -140);
                    uint16_t *s16 = ref_take(N * LDS * 2), *o16 = ref_take(N * LDS * 2);
                    plain_narrow((uint8_t *)s16, EK_TYPE_BF16, s, N * LDS),
                        plain_narrow((uint8_t *)o16, EK_TYPE_BF16, o, N * LDS);
                    const ek_weight_data data = {
                        .type = type,
                        .n = N,
                        .k = depth,
                        .plane = {codes, bf ? (uint8_t *)s16 : (uint8_t *)s, bf ? (uint8_t *)o16 : (uint8_t *)o}};
                    assert_int_equal(ek_linear_pack(&w, 0, &data), EK_OK);
                    for (int i = 0; i < M * K; i++) { /* in one row of three all is near the bound of flushing */
                        x[i] = ek_bf16_f32(bf16_of(2, (uint64_t)i)) * (float)(i / K % 3 == 1 ? 0x1p-124 : 1);
                        if (i % 3 == 0) x[i] *= 1.00390625f; /* halfway between two numbers of bf16, for many */
                    }
                    lib_pair_rows rows = {mem, sum, LDX, LDS}, rows2 = {mem2, sum2, LDX, LDS};
                    rows.x += -(uintptr_t)mem % 64, rows2.x += -(uintptr_t)mem2 % 64;
                    for (int r = 0; r < M; r++)
                        plain_pair_row(rows.x + r * LDX, sum + r * LDS, x + r * K, depth, groups[g]);
                    for (size_t c = 0; c < sizeof masks / sizeof *masks; c++) {
                        if ((ek_cpu_detect() & masks[c]) != masks[c]) continue;
                        lib_kernels k;
                        lib_kernels_init(&k, masks[c]);
                        for (int r = 0; r < M; r++) {
                            k.pair_row(rows2.x + r * LDX, sum2 + r * LDS, x + r * K, depth, groups[g]);
                            same(sum + r * LDS, sum2 + r * LDS, (size_t)all * 4, "sums of groups", (int)c, groups[g]);
                        }
                        for (int p = 0; p < w.n_panels; p++)
                            for (int n = 1; n <= LIB_PAIR_ROWS; n++)
                                for (int r0 = 0; r0 < 2; r0++) {
                                    plain_pair_panel(want, EK_PANEL, &rows, r0, n, &w, p, false);
                                    k.pair_panel(got, EK_PANEL, &rows2, r0, n, &w, p, (r0 + n) % 2);
                                    same(want, got, (size_t)n * EK_PANEL * 4, "product in bf16", bits[b], n);
                                }
                    }
                    ref_free_all();
                }
}

/* The step itself against exact arithmetic: integers, where nothing rounds twice. */
static void test_bf16_step(void **state)
{
    (void)state;
    const float least = 0x1p-126f;
    assert_true(plain_step(0, 0x1p-63f, 0x1p-63f) == least);
    assert_true(plain_step(0, 0x1p-64f, 0x1p-63f) == 0); /* below: zero */
    assert_true(signbit(plain_step(0, -0x1p-64f, 0x1p-63f)));
    assert_true(plain_step(1, 0x1p-130f, 0x1p127f) == 1);             /* a factor that counts as zero */
    assert_true(plain_step(0x1p-126f, 0x1p-63f, -0x1p-73f) == 0);     /* 2^-126 - 2^-136 */
    assert_true(plain_step(0x1p-126f, 0x1p-75f, -0x1p-75f) == 0);     /* 2^-126 - 2^-150: 24 bits hold it */
    assert_true(plain_step(0x1p-126f, 0x1p-76f, -0x1p-76f) == least); /* 2^-126 - 2^-152: rounds up again */
    assert_true(plain_step(-0x1p-126f, 0x1p-76f, 0x1p-76f) == -least);
    assert_true(plain_step(0x1p24f, 1, 1) == 0x1p24f && plain_step(0x1p24f, 1, 3) == 0x1p24f + 4);
    assert_true(plain_pair(0x1p24f, -0x1p24f, 1, 1, 1) == 0); /* the second first: the 1 is lost */
    assert_true(isnan(plain_step(0, INFINITY, 0)) && isinf(plain_step(0, 0x1p127f, 2)));
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversions),   cmocka_unit_test(test_affine), cmocka_unit_test(test_turn_and_madd),
        cmocka_unit_test(test_affine_turned), cmocka_unit_test(test_unpack), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_pairs),         cmocka_unit_test(test_bf16),   cmocka_unit_test(test_bf16_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
