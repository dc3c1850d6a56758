/* GGUF's block formats against their own dequantisation, written element by element from the layouts of
 * ggml-common.h in float64, where it is exact: every byte value at every place of a block, random blocks,
 * embedding rows from anywhere; then the products of packed matrices, exact and quantised, on every ISA. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "type_product.h"

static double f16_at(const uint8_t *p)
{
    return (double)ek_f16_f32((ek_f16)(p[0] | p[1] << 8));
}

static int lo_hi(const uint8_t *qs, int j) /* 16 bytes: low nibbles first */
{
    return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
}

static int bit(const uint8_t *p, int i)
{
    return p[i / 8] >> i % 8 & 1;
}

static double q4_0(const uint8_t *p, int j)
{
    return (lo_hi(p + 2, j) - 8) * f16_at(p);
}

static double q4_1(const uint8_t *p, int j)
{
    return lo_hi(p + 4, j) * f16_at(p) + f16_at(p + 2);
}

static double q5_0(const uint8_t *p, int j)
{
    return ((lo_hi(p + 6, j) | bit(p + 2, j) << 4) - 16) * f16_at(p);
}

static double q5_1(const uint8_t *p, int j)
{
    return (lo_hi(p + 8, j) | bit(p + 4, j) << 4) * f16_at(p) + f16_at(p + 2);
}

static double q8_0(const uint8_t *p, int j)
{
    return (int8_t)p[2 + j] * f16_at(p);
}

static double q2_k(const uint8_t *p, int j)
{
    int q = p[16 + j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3, scale = p[j / 16];
    return f16_at(p + 80) * (scale & 15) * q - f16_at(p + 82) * (scale >> 4);
}

static double q3_k(const uint8_t *p, int j)
{
    const uint8_t *s = p + 96;
    int low = p[32 + j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3, high = p[j % 32] >> j / 32 & 1, g = j / 16;
    int scale = (g < 8 ? s[g] & 15 : s[g - 8] >> 4) + 16 * (s[8 + g % 4] >> 2 * (g / 4) & 3);
    return f16_at(p + 108) * (scale - 32) * (low - (high ? 0 : 4));
}

static double q45_k(const uint8_t *p, int j, bool five)
{
    const uint8_t *s = p + 4, *qs = p + (five ? 48 : 16);
    int t = j / 32, byte = qs[32 * (t / 2) + j % 32], q = t % 2 ? byte >> 4 : byte & 15, sc, m;
    if (five) q += 16 * (p[16 + j % 32] >> t & 1);
    if (t < 4) sc = s[t] & 63, m = s[t + 4] & 63;
    else sc = (s[t + 4] & 0xf) | (s[t - 4] >> 6) << 4, m = s[t + 4] >> 4 | (s[t] >> 6) << 4;
    return f16_at(p) * sc * q - f16_at(p + 2) * m;
}

static double q4_k(const uint8_t *p, int j)
{
    return q45_k(p, j, false);
}

static double q5_k(const uint8_t *p, int j)
{
    return q45_k(p, j, true);
}

static double q6_k(const uint8_t *p, int j) /* as ggml walks it */
{
    int h = j / 128, l = j % 32, is = l / 16;
    const uint8_t *ql = p + 64 * h, *qh = p + 128 + 32 * h;
    const int8_t *sc = (const int8_t *)p + 192 + 8 * h;
    double d = f16_at(p + 208);
    switch (j % 128 / 32) {
    case 0: return d * sc[is] * (((ql[l] & 15) | (qh[l] & 3) << 4) - 32);
    case 1: return d * sc[is + 2] * (((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4) - 32);
    case 2: return d * sc[is + 4] * ((ql[l] >> 4 | (qh[l] >> 4 & 3) << 4) - 32);
    default: return d * sc[is + 6] * ((ql[l + 32] >> 4 | (qh[l] >> 6) << 4) - 32);
    }
}

static const int nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static double iq4_nl(const uint8_t *p, int j)
{
    return f16_at(p) * nl[lo_hi(p + 2, j)];
}

static double iq4_xs(const uint8_t *p, int j)
{
    int t = j / 32, high = p[2] + 256 * p[3];
    int ls = (t % 2 ? p[4 + t / 2] >> 4 : p[4 + t / 2] & 15) + 16 * (high >> 2 * t & 3);
    return f16_at(p) * (ls - 32) * nl[lo_hi(p + 8 + 16 * t, j % 32)];
}

static double mxfp4(const uint8_t *p, int j)
{
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int q = lo_hi(p + 1, j);
    return ldexp(q & 8 ? -e2m1[q & 7] : e2m1[q & 7], p[0] - 127);
}

static double nvfp4(const uint8_t *p, int j)
{
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int g = j / 16, q = p[4 + 8 * g + j % 8] >> j % 16 / 8 * 4 & 15, e = p[g] >> 3 & 15, m = p[g] & 7;
    double scale = p[g] == 0x7f ? 0 : e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return (q & 8 ? -e2m1[q & 7] : e2m1[q & 7]) * scale;
}

static const struct {
    const char *name;
    int block, bytes, halves[2]; /* where f16 scales lie; -1: none */
    double (*value)(const uint8_t *block, int j);
} formats[] = {
    {"q4_0", 32, 18, {0, -1}, q4_0},     {"q4_1", 32, 20, {0, 2}, q4_1},      {"q5_0", 32, 22, {0, -1}, q5_0},
    {"q5_1", 32, 24, {0, 2}, q5_1},      {"q8_0", 32, 34, {0, -1}, q8_0},     {"q2_k", 256, 84, {80, 82}, q2_k},
    {"q3_k", 256, 110, {108, -1}, q3_k}, {"q4_k", 256, 144, {0, 2}, q4_k},    {"q5_k", 256, 176, {0, 2}, q5_k},
    {"q6_k", 256, 210, {208, -1}, q6_k}, {"iq4_nl", 32, 18, {0, -1}, iq4_nl}, {"iq4_xs", 256, 136, {0, -1}, iq4_xs},
    {"mxfp4", 32, 17, {-1, -1}, mxfp4},  {"nvfp4", 64, 36, {-1, -1}, nvfp4},
};
enum { FORMATS = sizeof formats / sizeof *formats, N = 19, K = 1280 };

static const ek_weight_type *type_of(int f)
{
    const ek_weight_type *t = ek_weight_type_named(formats[f].name);
    assert_non_null(t);
    assert_int_equal(t->block, formats[f].block);
    assert_int_equal(t->block_bytes[0], formats[f].bytes);
    assert_true(!t->load && t->unpack && t->block_bytes[1] == 0);
    return t;
}

/* Values of a matrix of format f, as float32: exact, or rounded once where a bias is added. */
static float value_of(int f, const ek_weight_data *w, int row, int i)
{
    size_t block = (size_t)row * (size_t)(w->k / formats[f].block) + (size_t)(i / formats[f].block);
    return (float)formats[f].value(w->plane[0] + block * (size_t)formats[f].bytes, i % formats[f].block);
}

/* Halves of ordinary size and of both signs; for MXFP4 exponents near 1. */
static void set_scales(int f, uint8_t *block, uint64_t seed)
{
    for (int h = 0; h < 2; h++)
        if (formats[f].halves[h] >= 0) {
            ek_f16 d = ek_f32_f16(0.05f * check_uniform(seed, (uint64_t)h));
            memcpy(block + formats[f].halves[h], &d, 2);
        }
    if (formats[f].value == mxfp4) block[0] = (uint8_t)(120 + seed % 16);
}

static void compare_rows(int f, const ek_weight_data *w)
{
    static float got[K];
    for (int n = 0; n < w->n; n++)
        for (int first = 0; first < w->k; first += 97) {
            ek_weight_row(w, n, first, w->k - first, got);
            for (int k = first; k < w->k; k++) {
                float want = value_of(f, w, n, k);
                if (!(got[k - first] == want))
                    fail_msg("%s [%d][%d] from %d: %a, want %a", formats[f].name, n, k, first, (double)got[k - first],
                             (double)want);
            }
        }
}

static void every_byte_at_every_place(void **state)
{
    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        const ek_weight_type *t = type_of(f);
        uint8_t *p = check_alloc((size_t)formats[f].bytes); /* guarded: nothing may read past a row */
        p += (64 - formats[f].bytes % 64) % 64;
        ek_weight_data w = {.type = t, .n = 1, .k = t->block, .plane = {p}};
        for (int byte = 0; byte < 256; byte++) {
            memset(p, byte, (size_t)formats[f].bytes);
            set_scales(f, p, (uint64_t)byte + 1);
            if (formats[f].value == mxfp4) p[0] = (uint8_t)(byte < 250 ? byte : 250); /* no infinities */
            compare_rows(f, &w);
        }
        p -= (64 - formats[f].bytes % 64) % 64;
        check_free(p, (size_t)formats[f].bytes);
    }
}

static ek_weight_data random_matrix(int f, int n, int k, uint64_t seed)
{
    size_t blocks = (size_t)n * (size_t)(k / formats[f].block), bytes = blocks * (size_t)formats[f].bytes;
    uint8_t *p = check_alloc(bytes);
    check_fill_bytes(p, (bytes + 63) / 64 * 64, seed);
    for (size_t i = 0; i < blocks; i++) set_scales(f, p + i * (size_t)formats[f].bytes, seed + 1 + i);
    return (ek_weight_data){.type = type_of(f), .n = n, .k = k, .plane = {p}};
}

static void close_matrix(const ek_weight_data *w)
{
    check_free((void *)w->plane[0], (size_t)w->n * ek_weight_row_bytes(w->type, w->k));
}

static void random_blocks(void **state)
{
    (void)state;
    for (int f = 0; f < FORMATS; f++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            ek_weight_data w = random_matrix(f, N, K, 1000 * seed);
            compare_rows(f, &w);
            close_matrix(&w);
        }
}

static void products(void **state)
{
    (void)state;
    static float values[N * K];
    for (int f = 0; f < FORMATS; f++) {
        ek_weight_data w = random_matrix(f, N, K, 77);
        for (int i = 0; i < N * K; i++) values[i] = value_of(f, &w, i / K, i % K);
        check_type_product(&w, values, ek_weight_type_float(EK_F32)); /* exact mode */
        check_type_product(&w, values, w.type);
        close_matrix(&w);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(every_byte_at_every_place), CHECK_TEST(random_blocks),
                                              CHECK_TEST(products)};
    return CHECK_RUN(argc, argv, tests);
}
