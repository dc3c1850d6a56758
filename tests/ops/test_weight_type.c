/* Weight types: every row of the table against its format read bit by bit, and formats that the
 * table does not have yet, each added as one row and one unpack function: block formats with
 * sub-scales, groups of 16, a codebook, powers of two. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "linear_case.h"

/* ------------------------------------------------------------------ the table */

static int code_of(const ek_weight_data *w, int row, int i)
{
    const ek_weight_type *t = w->type;
    size_t bit = (size_t)row * (size_t)w->k * (size_t)t->bits + (size_t)i * (size_t)t->bits;
    int u = 0;
    for (int j = 0; j < t->bits; j++, bit++) u |= (w->plane[0][bit / 8] >> bit % 8 & 1) << j;
    return u;
}

static float element_of(const uint8_t *p, size_t i, ek_dtype t)
{
    if (t == EK_F32)
        return ek_bits_f32((uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 |
                           (uint32_t)p[4 * i + 3] << 24);
    uint16_t h = (uint16_t)(p[2 * i] | p[2 * i + 1] << 8);
    return t == EK_BF16 ? ek_bf16_f32(h) : ek_f16_f32(h);
}

static void check_row(const ek_weight_data *w, int row)
{
    const ek_weight_type *t = w->type;
    float want[384], got[384];
    uint8_t u[384 + 8];
    float s[384 / 16], b[384 / 16];
    for (int i = 0; i < w->k; i++) {
        if (t->load) {
            want[i] = element_of(w->plane[0], (size_t)row * (size_t)w->k + (size_t)i, t->stored);
            continue;
        }
        size_t group = (size_t)row * (size_t)(w->k / t->group) + (size_t)(i / t->group);
        int code = code_of(w, row, i);
        float scale = element_of(w->plane[1], group, t->stored);
        want[i] = t->biased ? fmaf(scale, (float)code, element_of(w->plane[2], group, t->stored))
                            : scale * (float)(code - (1 << (t->bits - 1)));
        int first = i / t->block * t->block;
        if (i % t->block == 0) t->unpack(w, row, first, t->block, u, s, b);
        assert_int_equal(u[i - first], code);
        assert_true(s[(i - first) / t->group] == scale);
        assert_true(!t->biased || b[(i - first) / t->group] == element_of(w->plane[2], group, t->stored));
    }
    ek_weight_row(w, row, 0, w->k, got);
    check_bits(t->name, "scalar", want, got, (size_t)w->k, "row %d", row);
}

static void every_row_of_the_table(void **state)
{
    (void)state;
    enum { N = 3, K = 384 };
    int count;
    const ek_weight_type *t = ek_weight_types(&count);
    assert_int_equal(count, 3 + 6 * 3 * 3 * 2);
    for (int i = 0; i < count; i++, t++) {
        assert_true(!t->unpack != !t->load);
        assert_true(EK_UNPACK_WEIGHTS % t->block == 0 && (!t->group || t->block % t->group == 0));
        assert_true(t->load || (t->zero == 1 << (t->bits - 1) && t->form == (t->bits <= 4 ? EK_W_Q4 : EK_W_Q8)));
        ek_weight_data w = {.type = t, .n = N, .k = K};
        size_t all = 0;
        void *plane[EK_WEIGHT_PLANES] = {0};
        for (int p = 0; p < EK_WEIGHT_PLANES && t->block_bytes[p]; p++) { /* guarded: nothing may read past a row */
            size_t bytes = (size_t)(N * K / t->block) * t->block_bytes[p];
            w.plane[p] = plane[p] = check_alloc(bytes);
            check_fill_bytes(plane[p], (bytes + 63) / 64 * 64, (uint64_t)(40 + p));
            if (t->load || p)
                for (size_t e = 0; e < bytes / ek_dtype_size(t->stored); e++) { /* no infinities */
                    uint8_t *top = (uint8_t *)plane[p] + (e + 1) * ek_dtype_size(t->stored) - 1;
                    *top &= 0xbf;
                }
            all += bytes;
        }
        assert_int_equal(all, N * ek_weight_row_bytes(t, K));
        for (int row = 0; row < N; row++) check_row(&w, row);
        ek_weight_data tail = ek_weight_rows(&w, 1, N - 1), last = ek_weight_rows(&tail, N - 2, 1); /* of a piece */
        float a[K], b[K];
        ek_weight_row(&w, N - 1, 0, K, a), ek_weight_row(&last, 0, 0, K, b);
        check_bits(t->name, "scalar", a, b, K, "the last row as a piece");
        for (int p = 0; p < EK_WEIGHT_PLANES && t->block_bytes[p]; p++)
            check_free(plane[p], (size_t)(N * K / t->block) * t->block_bytes[p]);
    }
}

/* ------------------------------------------------------------------ formats to come (ggml-common.h) */

static float f16_at(const uint8_t *p)
{
    return ek_f16_f32((ek_f16)(p[0] | p[1] << 8));
}

/* {half d, dmin; u8 scales[12]; u8 qs[128]}: eight sub-blocks of 32. */
static void unpack_q4_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    for (int at = 0; at < n; at += 256, u += 256, s += 8, b += 8) {
        const uint8_t *p = ek_weight_plane_row(w, 0, row) + (first + at) / 256 * 144, *sc = p + 4, *qs = p + 16;
        for (int t = 0; t < 8; t++) {
            int scale = t < 4 ? sc[t] & 63 : (sc[t + 4] & 15) | sc[t - 4] >> 6 << 4;
            int min = t < 4 ? sc[t + 4] & 63 : sc[t + 4] >> 4 | sc[t] >> 6 << 4;
            s[t] = f16_at(p) * (float)scale, b[t] = -(f16_at(p + 2) * (float)min);
            for (int l = 0; l < 32; l++) u[32 * t + l] = qs[32 * (t / 2) + l] >> 4 * (t & 1) & 15;
        }
    }
}

/* {u8 ql[128]; u8 qh[64]; i8 scales[16]; half d}: sixteen groups of 16. */
static void unpack_q6_k(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    for (int at = 0; at < n; at += 256, u += 256, s += 16) {
        const uint8_t *p = ek_weight_plane_row(w, 0, row) + (first + at) / 256 * 210;
        for (int i = 0; i < 256; i++) {
            int half = i / 128, quarter = i % 128 / 32, l = i % 32;
            int low = p[64 * half + 32 * (quarter & 1) + l] >> 4 * (quarter >> 1) & 15;
            u[i] = (uint8_t)(low | (p[128 + 32 * half + l] >> 2 * quarter & 3) << 4);
        }
        for (int g = 0; g < 16; g++) s[g] = f16_at(p + 208) * (float)(int8_t)p[192 + g];
    }
}

static const int8_t iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* {half d; u8 qs[16]}: nibbles through a table. */
static void unpack_iq4_nl(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    for (int at = 0; at < n; at += 32, u += 32, s++) {
        const uint8_t *p = ek_weight_plane_row(w, 0, row) + (first + at) / 32 * 18;
        *s = f16_at(p);
        for (int i = 0; i < 32; i++) u[i] = (uint8_t)(iq4_nl_values[p[2 + i % 16] >> 4 * (i / 16) & 15] + 128);
    }
}

/* {u8 e; u8 qs[16]} */
static void unpack_mxfp4(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    (void)b;
    for (int at = 0; at < n; at += 32, u += 32, s++) {
        const uint8_t *p = ek_weight_plane_row(w, 0, row) + (first + at) / 32 * 17;
        *s = ldexpf(1, p[0] - 128);
        for (int i = 0; i < 32; i++) u[i] = (uint8_t)(e2m1_doubled[p[1 + i % 16] >> 4 * (i / 16) & 15] + 128);
    }
}

static const ek_weight_type q4_k = {.name = "q4_k",
                                    .form = EK_W_Q4,
                                    .bits = 4,
                                    .group = 32,
                                    .zero = 8,
                                    .biased = true,
                                    .scale_dtype = EK_F32,
                                    .block = 256,
                                    .block_bytes = {144},
                                    .unpack = unpack_q4_k},
                            q6_k = {.name = "q6_k",
                                    .form = EK_W_Q8,
                                    .bits = 6,
                                    .group = 16,
                                    .zero = 32,
                                    .scale_dtype = EK_F32,
                                    .block = 256,
                                    .block_bytes = {210},
                                    .unpack = unpack_q6_k},
                            iq4_nl = {.name = "iq4_nl",
                                      .form = EK_W_Q8,
                                      .bits = 8,
                                      .group = 32,
                                      .zero = 128,
                                      .scale_dtype = EK_F32,
                                      .block = 32,
                                      .block_bytes = {18},
                                      .unpack = unpack_iq4_nl},
                            mxfp4 = {.name = "mxfp4",
                                     .form = EK_W_Q8,
                                     .bits = 8,
                                     .group = 32,
                                     .zero = 128,
                                     .scale_dtype = EK_F32,
                                     .block = 32,
                                     .block_bytes = {17},
                                     .unpack = unpack_mxfp4};

enum { N = 19, K = 768 };

/* The format's own dequantisation, element by element, in float64: exact there. */
static double value_of(const ek_weight_data *w, int row, int i)
{
    const ek_weight_type *t = w->type;
    const uint8_t *p = w->plane[0] + (size_t)(row * (K / t->block) + i / t->block) * t->block_bytes[0];
    int j = i % t->block;
    if (t == &iq4_nl) return (double)f16_at(p) * iq4_nl_values[j < 16 ? p[2 + j] & 15 : p[2 + j - 16] >> 4];
    if (t == &mxfp4) return ldexp(e2m1_doubled[j < 16 ? p[1 + j] & 15 : p[1 + j - 16] >> 4], p[0] - 128);
    if (t == &q6_k) { /* as ggml walks it */
        int h = j / 128, l = j % 32, is = l / 16;
        const uint8_t *ql = p + 64 * h, *qh = p + 128 + 32 * h;
        const int8_t *sc = (const int8_t *)p + 192 + 8 * h;
        double d = (double)f16_at(p + 208);
        switch (j % 128 / 32) {
        case 0: return d * sc[is] * (((ql[l] & 15) | (qh[l] & 3) << 4) - 32);
        case 1: return d * sc[is + 2] * (((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4) - 32);
        case 2: return d * sc[is + 4] * ((ql[l] >> 4 | (qh[l] >> 4 & 3) << 4) - 32);
        default: return d * sc[is + 6] * ((ql[l + 32] >> 4 | (qh[l] >> 6) << 4) - 32);
        }
    }
    int t8 = j / 32, byte = p[16 + 32 * (t8 / 2) + j % 32], q = t8 % 2 ? byte >> 4 : byte & 15, sc, m;
    if (t8 < 4) sc = p[4 + t8] & 63, m = p[4 + t8 + 4] & 63;
    else sc = (p[4 + t8 + 4] & 0xf) | (p[4 + t8 - 4] >> 6) << 4, m = p[4 + t8 + 4] >> 4 | (p[4 + t8] >> 6) << 4;
    return (double)f16_at(p) * sc * q - (double)f16_at(p + 2) * m;
}

static ek_weight_data fill(const ek_weight_type *t)
{
    size_t blocks = N * K / (size_t)t->block, bytes = blocks * t->block_bytes[0];
    uint8_t *p = check_alloc(bytes);
    check_fill_bytes(p, bytes, 77);
    for (size_t i = 0; i < blocks; i++) { /* halves of ordinary size, exponents near 1 */
        uint8_t *block = p + i * t->block_bytes[0];
        if (t == &mxfp4) block[0] = (uint8_t)(120 + block[0] % 16);
        else if (t == &q6_k) block[209] = 0x1c | (block[209] & 0x80);
        else block[1] = 0x1c | (block[1] & 0x80);
        if (t == &q4_k) block[3] = 0x20;
    }
    return (ek_weight_data){.type = t, .n = N, .k = K, .plane = {p}};
}

/* y in float64 against the product of a planned matrix, float or quantised, on every ISA. */
static void check_product(const ek_weight_data *data, const ek_weight_type *as)
{
    ek_linear w;
    enum { ROWS = 3 };
    float *x = check_alloc(sizeof *x * ROWS * K), y[ROWS * N], first[ROWS * N], row[K];
    void *mem = check_alloc(ek_acts_bytes(ROWS, K));
    check_fill(x, ROWS * K, 5, 1);
    if (ek_linear_plan(&w, 0, N, K, as) != EK_OK) fail_msg("%s", ek_err_text());
    if (as->unpack) assert_int_equal(ek_linear_set_acts(&w, (ek_act_form){2, 32}), EK_OK);
    w.data = check_alloc(w.bytes);
    for (int r = N; r-- > 0;) { /* one by one, backwards */
        ek_weight_data one = ek_weight_rows(data, r, 1);
        if (ek_linear_pack(&w, r, &one) != EK_OK) fail_msg("%s", ek_err_text());
    }
    ek_weight_data all = *data; /* and the call that clears what lies past n */
    assert_int_equal(ek_linear_pack(&w, 0, &all), EK_OK);
    for (int n = 0; n < N; n++) {
        ek_linear_row(&w, n, row);
        for (int k = 0; k < K; k++) assert_true(row[k] == (float)value_of(data, n, k));
    }
    CHECK_ISAS(isa, cpu)
    {
        ek_linear_ops ops;
        ek_acts a;
        ek_linear_init(&ops, cpu);
        ek_acts_bind(&a, mem, x, K, ROWS, K);
        w.run = ops.run[w.form];
        ek_linear_forward(&ops, NULL, &w, &a, y, N);
        if (!cpu) memcpy(first, y, sizeof y);
        check_bits(as->name, isa, first, y, ROWS * N, "%s", data->type->name);
    }
    for (int r = 0; r < ROWS; r++)
        for (int n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                sum += value_of(data, n, k) * (double)x[r * K + k];
                size += fabs(value_of(data, n, k));
            }
            check_near(as->name, "scalar", &sum, &y[r * N + n], 1, &(double){size / 60000 + 1e-30}, "%s [%d][%d]",
                       data->type->name, r, n);
        }
    check_free(w.data, w.bytes);
    check_free(mem, ek_acts_bytes(ROWS, K));
    check_free(x, sizeof *x * ROWS * K);
}

static void formats_to_come(void **state)
{
    (void)state;
    static const ek_weight_type *const added[] = {&q4_k, &q6_k, &iq4_nl, &mxfp4};
    for (int i = 0; i < 4; i++) {
        ek_weight_data w = fill(added[i]);
        float got[K];
        for (int n = 0; n < N; n++)
            for (int first = 0; first < K; first += 97) { /* an embedding row, from anywhere */
                ek_weight_row(&w, n, first, K - first, got);
                for (int k = first; k < K; k++)
                    if (!(got[k - first] == (float)value_of(&w, n, k)))
                        fail_msg("%s [%d][%d] from %d: %a, want %a", added[i]->name, n, k, first,
                                 (double)got[k - first], value_of(&w, n, k));
            }
        check_product(&w, ek_weight_type_float(EK_F32)); /* exact mode */
        if (added[i] != &q6_k) {
            check_product(&w, added[i]);
        } else {
            ek_linear no;
            assert_int_equal(ek_linear_plan(&no, 0, N, K, &q6_k), EK_EUNSUPPORTED);
            assert_non_null(strstr(ek_err_text(), "q6_k weights share a scale per 16"));
        }
        check_free((void *)w.plane[0], N * ek_weight_row_bytes(added[i], K));
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(every_row_of_the_table), CHECK_TEST(formats_to_come)};
    return CHECK_RUN(argc, argv, tests);
}
