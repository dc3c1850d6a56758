/* Floats of 4 and 8 bits in safetensors against their formats' own dequantisation, written from the specifications in
 * float64: every element under every scale; then products of packed matrices on every instruction set. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "ops/weights/quantised_type.h"
#include "type_product.h"

static double e2m1(unsigned c)
{
    static const double value[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return c & 8 ? -value[c & 7] : value[c & 7];
}

/* OCP: exponent bias 7, no infinities; MLX reads 0x7f as the number that it would be. */
static double e4m3(unsigned c, bool mlx)
{
    int e = c >> 3 & 15, m = c & 7;
    double v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m, -9);
    if (e == 15 && m == 7 && !mlx) v = NAN;
    return c & 128 ? -v : v;
}

static double e5m2(unsigned c)
{
    int e = c >> 2 & 31, m = c & 3;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1 + m / 4.0, e - 15) : ldexp(m, -16);
    return c & 128 ? -v : v;
}

static double e8m0(unsigned c)
{
    return c == 255 ? NAN : ldexp(1, (int)c - 127);
}

static float bf16(double x) /* once to binary32, once to bf16, as torch multiplies and stores */
{
    return ek_bf16_f32(ek_f32_bf16((float)x));
}

static bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : a == b;
}

/* 256 groups, one per scale, of all 16 codes. */
static void fp4_codes(void **state)
{
    (void)state;
    static const ek_minifloat kinds[] = {EK_MINI_NVFP4, EK_MINI_NVFP4_MLX, EK_MINI_MXFP4};
    static const float gains[] = {0, 1, 0.25f, 1.0f / 2688, 0.0123456789f};
    for (int i = 0; i < 3; i++)
        for (size_t gain = 0; gain < sizeof gains / sizeof *gains; gain++) {
            const ek_weight_type *t = ek_weight_type_minifloat(kinds[i]);
            const int k = 256 * t->group;
            const bool nv = t->group == 16, mlx = kinds[i] == EK_MINI_NVFP4_MLX;
            uint8_t *codes = check_alloc((size_t)k / 2), *scales = check_alloc(256);
            static float got[256 * 32];
            ek_weight_data w = {.type = t, .n = 1, .k = k, .plane = {codes, scales}, .gain = nv ? gains[gain] : 0};
            for (int j = 0; j < k / 2; j++) codes[j] = (uint8_t)((2 * j & 15) | ((2 * j + 1) & 15) << 4);
            for (int s = 0; s < 256; s++) scales[s] = (uint8_t)s;
            ek_weight_row(&w, 0, 0, k, got);
            for (int j = 0; j < k; j++) {
                unsigned s = (unsigned)(j / t->group);
                double scale = nv ? e4m3(s, mlx) * (gains[gain] != 0 ? (double)gains[gain] : 1) : e8m0(s);
                float want = (float)((double)(float)scale * e2m1(j & 15));
                if (mlx && s == 255) scale = NAN; /* -480 is no scale: the mark of what is none */
                if (isnan(scale)) want = NAN;
                if (!same(got[j], want))
                    fail_msg("%s code %d, scale %u: %a, want %a", t->name, j & 15, s, (double)got[j], (double)want);
            }
            check_free(codes, (size_t)k / 2), check_free(scales, 256);
        }
}

static void mxfp8_codes(void **state)
{
    (void)state;
    for (int kind = EK_MINI_MXFP8; kind < EK_MINIFLOATS; kind++) {
        const ek_weight_type *t = ek_weight_type_minifloat((ek_minifloat)kind);
        enum { K = 256 * 256 };
        uint8_t *codes = check_alloc(K), *scales = check_alloc(K / 32);
        static float got[K];
        ek_weight_data w = {.type = t, .n = 1, .k = K, .plane = {codes, scales}};
        for (int j = 0; j < K; j++) codes[j] = (uint8_t)j, scales[j / 32] = (uint8_t)(j / 256);
        ek_weight_row(&w, 0, 0, K, got);
        for (int j = 0; j < K; j++) {
            unsigned c = j & 255;
            double x = kind == EK_MINI_MXFP8_E5M2 ? e5m2(c) : e4m3(c, kind == EK_MINI_MXFP8_MLX);
            double want = x * e8m0((unsigned)j / 256);
            if (!same(got[j], bf16(want)) ||
                (fabs(want) >= 0x1p-126 && fabs(want) < 0x1.fep127 && (double)got[j] != want))
                fail_msg("%s element %u, scale %d: %a, want %a", t->name, c, j / 256, (double)got[j], want);
        }
        for (int first = 0; first < 70; first++) { /* from anywhere */
            float part[77];
            ek_weight_row(&w, 0, 33000 + first, 77, part);
            for (int j = 0; j < 77; j++) assert_true(same(part[j], got[33000 + first + j]));
        }
        check_free(codes, K), check_free(scales, K / 32);
    }
}

/* Scales for the tensor, per row and per tile, the last of which is narrower. */
static void fp8_codes(void **state)
{
    (void)state;
    enum { N = 5, K = 700 };
    static const int tiles[][2] = {{0, 0}, {1, 0}, {2, 128}, {128, 128}, {1, 64}};
    static const ek_dtype dtypes[] = {EK_F32, EK_F16, EK_BF16};
    for (int e = 0; e < 2; e++)
        for (int d = 0; d < 3; d++)
            for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
                const int rows = tiles[i][0], wide = tiles[i][1], columns = wide ? (K + wide - 1) / wide : 1;
                const int n = (rows ? (N + rows - 1) / rows : 1) * columns;
                const ek_weight_type *t = ek_weight_type_fp8(e ? EK_F8_E5M2 : EK_F8_E4M3, dtypes[d]);
                uint8_t *codes = check_alloc(N * K), *scales = check_alloc((size_t)n * ek_dtype_size(dtypes[d]));
                float scale[64], got[K];
                for (int j = 0; j < n; j++) {
                    float s = 0.01f + 0.003f * (float)j;
                    uint16_t half = d == 1 ? ek_f32_f16(s) : ek_f32_bf16(s);
                    scale[j] = d == 0 ? s : d == 1 ? ek_f16_f32(half) : ek_bf16_f32(half);
                    memcpy(scales + (size_t)j * ek_dtype_size(dtypes[d]), d ? (void *)&half : (void *)&s,
                           ek_dtype_size(dtypes[d]));
                }
                for (int j = 0; j < N * K; j++) codes[j] = (uint8_t)(j * 37);
                ek_weight_data w = {
                    .type = t, .n = N, .k = K, .plane = {codes, scales}, .tile_rows = rows, .tile_k = wide};
                for (int r = 0; r < N; r++) {
                    ek_weight_row(&w, r, 0, K, got);
                    for (int j = 0; j < K; j++) {
                        float s = scale[(rows ? r / rows : 0) * columns + (wide ? j / wide : 0)];
                        unsigned c = codes[r * K + j];
                        float want = bf16((e ? e5m2(c) : e4m3(c, false)) * (double)s);
                        if (!same(got[j], want))
                            fail_msg("%s tiles %d x %d, [%d][%d]: %a, want %a", t->name, rows, wide, r, j,
                                     (double)got[j], (double)want);
                    }
                }
                check_free(codes, N * K), check_free(scales, (size_t)n * ek_dtype_size(dtypes[d]));
            }
    assert_null(ek_weight_type_fp8(EK_F8_E4M3, EK_F8_E8M0));
    assert_null(ek_weight_type_fp8(EK_I8, EK_F32));
}

/* Ordinary scales; elements that are numbers. */
static void fill(ek_weight_data *w, uint8_t *codes, uint8_t *scales, size_t n_codes, size_t n_scales)
{
    const ek_weight_type *t = w->type;
    check_fill_bytes(codes, (n_codes + 63) / 64 * 64, 3);
    for (size_t i = 0; t->load && i < n_codes; i++)
        if ((codes[i] & 0x7f) >= 0x78) codes[i] &= 0x8f;
    for (size_t i = 0; i < n_scales; i++) {
        float s = 0.01f + 0.002f * (float)(i % 50);
        if (t->scale_dtype == EK_F32) memcpy(scales + 4 * i, &s, 4);
        else scales[i] = (uint8_t)(t->group == 16 ? 20 + i % 80 : 118 + i % 12);
    }
    if (t->group == 16) w->gain = 0.037f;
}

static void products(void **state)
{
    (void)state;
    enum { N = 19, K = 1344 }; /* beyond one block of the sum, a panel and a bit */
    static float values[N * K];
    for (int i = 0; i < EK_MINIFLOAT_TYPES; i++) {
        const ek_weight_type *t = &ek_minifloat_types[i];
        if (i >= EK_MINIFLOATS && t->scale_dtype != EK_F32) continue;
        const size_t n_codes = t->bits == 4 ? N * K / 2 : N * K, n_scales = i >= EK_MINIFLOATS ? N : N * K / 16;
        uint8_t *codes = check_alloc(n_codes), *scales = check_alloc(n_scales * 4);
        ek_weight_data w = {.type = t, .n = N, .k = K, .plane = {codes, scales}, .tile_rows = 1};
        fill(&w, codes, scales, n_codes, n_scales);
        for (int r = 0; r < N; r++) ek_weight_row(&w, r, 0, K, values + r * K);
        check_type_product(&w, values, ek_weight_type_float(EK_F32)); /* exact mode */
        check_type_product(&w, values, t);
        if (t->load) { /* --weights 8 */
            const ek_weight_type *q = ek_weight_type_quantised(t, K);
            assert_non_null(q);
            w.type = q;
            for (int r = 0; r < N; r++) ek_weight_row(&w, r, 0, K, values + r * K);
            check_type_product(&w, values, q);
        }
        check_free(codes, n_codes), check_free(scales, n_scales * 4);
    }
}

/* A scale that is no number is refused where it is packed, whichever the group. */
static void scales_that_are_none(void **state)
{
    (void)state;
    static const ek_minifloat kinds[] = {EK_MINI_NVFP4, EK_MINI_NVFP4_MLX, EK_MINI_MXFP4};
    enum { K = 128 };
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < K / 32; at++) {
            ek_linear w;
            uint8_t codes[2 * K / 2] = {0}, scales[2 * K / 16] = {0};
            ek_weight_data data = {
                .type = ek_weight_type_minifloat(kinds[i]), .n = 2, .k = K, .plane = {codes, scales}};
            scales[K / data.type->group + at] = kinds[i] == EK_MINI_NVFP4 ? 0x7f : 255;
            assert_int_equal(ek_linear_plan(&w, 0, 2, K, data.type), EK_OK);
            w.data = check_alloc(w.bytes);
            assert_int_equal(ek_linear_pack(&w, 0, &data), EK_EFORMAT);
            assert_non_null(strstr(ek_err_text(), "row 1 has a"));
            check_free(w.data, w.bytes);
        }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(fp4_codes), CHECK_TEST(mxfp8_codes), CHECK_TEST(fp8_codes),
                                              CHECK_TEST(products), CHECK_TEST(scales_that_are_none)};
    return CHECK_RUN(argc, argv, tests);
}
