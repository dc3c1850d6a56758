/* The formats of keys and values: names, sizes, and what a token becomes when it is written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_scene.h"
#include "ops/kv/kv_codec.h"

static void test_formats(void **state)
{
    (void)state;
    ek_kv_format k, v;
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        for (int g = 0; g < EK_KV_FORMAT_COUNT; g++) {
            char text[32];
            snprintf(text, sizeof text, "%s:%s", ek_kv_format_name((ek_kv_format)f),
                     ek_kv_format_name((ek_kv_format)g));
            assert_int_equal(ek_kv_format_parse(text, &k, &v), EK_OK);
            assert_int_equal(k, f);
            assert_int_equal(v, g);
            assert_int_equal(ek_kv_format_parse(ek_kv_format_name((ek_kv_format)f), &k, &v), EK_OK);
            assert_true((int)k == f && (int)v == f);
        }
    /* a width's own group may be named */
    assert_int_equal(ek_kv_format_parse("8.32:3.32", &k, &v), EK_OK);
    assert_true(k == EK_KV_Q8 && v == EK_KV_Q3);
    assert_string_equal(ek_kv_format_name(k), "8");
    static const char *const bad[] = {"",      ":",    "8:", ":8", "bf",  "bf16:8:4", "12",      "BF16 ", "f32,f32",
                                      "16.32", "8.16", "7",  "8.", ".32", "8.64.32",  "8.32.32", "f32.32"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ek_kv_format_parse(bad[i], &k, &v), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), "bf16"));
    }
}

/* Element d of codes that were rotated: the transform once more, by its definition. */
static float turned_back(ek_kv_format f, const uint8_t *part, int dim, int slot, int d, bool key)
{
    int n = 1;
    while (dim % (2 * n) == 0) n *= 2;
    double sum = 0;
    for (int c = 0; c < n; c++) {
        const int from = d / n * n + c;
        const int code = key ? ek_kv_int_key(f, part, from, slot) : ek_kv_int_value(f, part, dim, slot, from);
        sum += __builtin_popcount((unsigned)(d % n & c)) % 2 ? -code : code;
    }
    return (float)(sum / n * *ek_kv_token_scale(f, part, dim, slot));
}

/* What a stored element decodes to. */
static float decoded_key(ek_kv_format f, const uint8_t *k, int dim, int d, int slot)
{
    if (whole_codes(f)) return turned_back(f, k, dim, slot, d, true);
    return ek_kv_term_scale(f, k, dim, slot) * ek_kv_key_term(f, k, dim, d, slot);
}

static float decoded_value(ek_kv_format f, const uint8_t *v, int dim, int slot, int d)
{
    if (whole_codes(f)) return turned_back(f, v, dim, slot, d, false);
    return ek_kv_term_scale(f, v, dim, slot) * ek_kv_value_term(f, v, dim, slot, d);
}

static const int dims[] = {4, 8, 12, 16, 20, 24, 32, 36, 48, 60, 64, 68, 100, 132, 256, 512};
enum { N_DIMS = sizeof dims / sizeof *dims };

static void fill(float *x, int n, int kind, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        float u = check_uniform(seed, (uint64_t)i);
        switch (kind) {
        case 0: x[i] = u; break;
        case 1: x[i] = -1.0f - fabsf(u); break; /* all negative */
        case 2: x[i] = 3.0f + u; break;         /* all positive */
        case 3: x[i] = 0.25f; break;            /* constant */
        case 4: x[i] = i % 2 ? 0.0f : -0.0f; break;
        case 5: x[i] = u * 1e-9f; break;                       /* below the resolution of f16 */
        case 6: x[i] = i % 32 == 5 ? 20.0f : 0.01f * u; break; /* an outlier */
        case 7: x[i] = (float)(i % 32) - 15.5f; break;         /* ties of rounding */
        default: x[i] = u * 3e6f;                              /* as large as 8 bits can hold */
        }
    }
}

/* Every element within half a step (and the roundings of scale and bias), and tokens of one page,
 * neighbours too, written in turn, leave each other alone. */
static void test_store(void **state)
{
    (void)state;
    float k[512], v[512];
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        for (int i = 0; i < N_DIMS; i++) {
            int dim = dims[i];
            ek_kv_format format = (ek_kv_format)f;
            size_t kb = ek_kv_k_bytes(format, dim), vb = ek_kv_v_bytes(format, dim);
            assert_true(kb % 64 == 0 && vb % 64 == 0);
            assert_int_equal(ek_kv_block_bytes(format, format, 3, dim), 3 * (kb + vb));
            uint8_t *at = check_alloc(kb + vb);
            memset(at, 0xa5, kb + vb);
            for (int kind = 0; kind < 9; kind++)
                for (int slot = 0; slot < 64; slot += kind % 2 ? 21 : 9) {
                    if (kind == 8 && (ek_kv_codecs[f].rule == EK_KV_AFFINE || format == EK_KV_F16))
                        continue; /* past f16's range */
                    fill(k, dim, kind, 1 + (uint64_t)slot);
                    fill(v, dim, kind, 70 + (uint64_t)slot);
                    ek_kv_store(format, format, dim, at, at + kb, slot, k, v);
                    const int others[] = {(slot + 32) % 64, (slot + 1) % 64, (slot + 63) % 64};
                    float zero[512] = {0};
                    for (int o = 0; o < 3; o++) ek_kv_store(format, format, dim, at, at + kb, others[o], zero, zero);
                    double whole[2] = {0};
                    for (int d = 0; d < dim; d++)
                        whole[0] = fmax(whole[0], fabs((double)k[d])), whole[1] = fmax(whole[1], fabs((double)v[d]));
                    double turned[2] = {0}; /* the largest rotated element */
                    for (int w = 0; w < 2 && whole_codes(format); w++) {
                        float y[512];
                        memcpy(y, w ? v : k, sizeof *y * (size_t)dim);
                        rotate(y, dim);
                        for (int d = 0; d < dim; d++) turned[w] = fmax(turned[w], fabs((double)y[d]));
                    }
                    for (int d = 0; d < dim; d++) {
                        const int group = ek_kv_codecs[f].group ? format_group(format) : 32;
                        int from = d / group * group, to = from + group < dim ? from + group : dim;
                        double range[2] = {0}, max[2] = {0}, least[2] = {k[from], v[from]},
                               limit[2] = {k[from], v[from]};
                        for (int e = from; e < to; e++) {
                            max[0] = fmax(max[0], fabs((double)k[e])), max[1] = fmax(max[1], fabs((double)v[e]));
                            least[0] = fmin(least[0], k[e]), least[1] = fmin(least[1], v[e]);
                            limit[0] = fmax(limit[0], k[e]), limit[1] = fmax(limit[1], v[e]);
                        }
                        for (int w = 0; w < 2; w++) range[w] = limit[w] - least[w];
                        double got[2] = {decoded_key(format, at, dim, d, slot),
                                         decoded_value(format, at + kb, dim, slot, d)};
                        double want[2] = {k[d], v[d]};
                        for (int w = 0; w < 2; w++) {
                            double tol = 0;
                            if (f == EK_KV_F16) tol = fabs(want[w]) * 0x1p-11 + 0x1p-25;
                            if (f == EK_KV_I16) tol = whole[w] / 32767 * 0.502 + fabs(want[w]) * 0x1p-22 + 1e-37;
                            if (whole_codes(format))
                                tol = turned[w] * (0.501 / ek_kv_int_max(format) + 0x1p-20) + 1e-30;
                            if (f == EK_KV_BF16) tol = fabs(want[w]) * 0x1p-8;
                            if (ek_kv_codecs[f].rule == EK_KV_SYMMETRIC) tol = max[w] / 127 * 0.501 + 0x1p-25;
                            /* moving the grid onto zero can cost a whole step at the far end */
                            if (ek_kv_codecs[f].rule == EK_KV_AFFINE)
                                tol = 1.05 * range[w] / ((1 << ek_kv_codecs[f].bits) - 1) + max[w] * 0x1p-8 + 1e-7;
                            if (!(fabs(got[w] - want[w]) <= tol))
                                fail_msg("%s, dim %d, kind %d, slot %d, %s[%d]: %g became %g, tolerance %g",
                                         ek_kv_format_name(format), dim, kind, slot, w ? "v" : "k", d, want[w], got[w],
                                         tol);
                        }
                    }
                    ek_kv_store(format, format, dim, at, at + kb, slot, k, v);
                    for (int d = 0; d < 3 * dim; d++)
                        assert_true(decoded_key(format, at, dim, d / 3, others[d % 3]) == 0 &&
                                    decoded_value(format, at + kb, dim, others[d % 3], d / 3) == 0);
                }
            check_free(at, kb + vb);
        }
}

/* Bytes of a head of 256 dims: what docs/KV.md says. */
static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int bytes;
    } want[] = {{"f32", 1024},  {"f16", 512}, {"bf16", 512}, {"16", 516},    {"8", 272},   {"8.64", 264},
                {"8.128", 260}, {"6", 224},   {"6.64", 208}, {"6.128", 200}, {"5", 192},   {"5.64", 176},
                {"5.128", 168}, {"4", 160},   {"4.64", 144}, {"4.128", 136}, {"3", 128},   {"3.64", 112},
                {"3.128", 104}, {"2", 96},    {"2.64", 80},  {"2.128", 72},  {"i12", 516}, {"i8", 260}};
    assert_int_equal(sizeof want / sizeof *want, EK_KV_FORMAT_COUNT);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ek_kv_format k, v;
        assert_int_equal(ek_kv_format_parse(want[i].name, &k, &v), EK_OK);
        assert_int_equal(ek_kv_k_bytes(k, 256), 64 * want[i].bytes);
        assert_int_equal(ek_kv_v_bytes(k, 256), 64 * want[i].bytes);
    }
}

/* Writing what was read gives the same values in 8 bits: a page can move through a decoded form. */
static void test_again(void **state)
{
    (void)state;
    enum { DIM = 96 };
    uint8_t *at = check_alloc(ek_kv_block_bytes(EK_KV_Q8, EK_KV_Q8, 1, DIM));
    size_t kb = ek_kv_k_bytes(EK_KV_Q8, DIM);
    float k[DIM], v[DIM], k2[DIM], v2[DIM];
    for (int trial = 0; trial < 300; trial++) {
        check_fill_wide(k, DIM, (uint64_t)trial);
        check_fill(v, DIM, (uint64_t)trial + 1000, 3.0f);
        ek_kv_store(EK_KV_Q8, EK_KV_Q8, DIM, at, at + kb, trial % 64, k, v);
        for (int d = 0; d < DIM; d++)
            k2[d] = decoded_key(EK_KV_Q8, at, DIM, d, trial % 64),
            v2[d] = decoded_value(EK_KV_Q8, at + kb, DIM, trial % 64, d);
        ek_kv_store(EK_KV_Q8, EK_KV_Q8, DIM, at, at + kb, (trial + 1) % 64, k2, v2);
        for (int d = 0; d < DIM; d++) {
            assert_true(decoded_key(EK_KV_Q8, at, DIM, d, (trial + 1) % 64) == k2[d]);
            assert_true(decoded_value(EK_KV_Q8, at + kb, DIM, (trial + 1) % 64, d) == v2[d]);
        }
    }
    check_free(at, ek_kv_block_bytes(EK_KV_Q8, EK_KV_Q8, 1, DIM));
}

/* What cannot be held gives finite values: a broken token stays its own matter. */
static void test_extremes(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-40f};
    enum { DIM = 32 };
    uint8_t *at = check_alloc(ek_kv_block_bytes(EK_KV_I12, EK_KV_I12, 1, DIM));
    for (int f = EK_KV_Q8; f < EK_KV_FORMAT_COUNT; f++)
        for (int a = 0; a < 6; a++)
            for (int b = 0; b < 6; b++) {
                float x[DIM] = {odd[a], odd[b], 1.0f};
                size_t kb = ek_kv_k_bytes((ek_kv_format)f, DIM);
                ek_kv_store((ek_kv_format)f, (ek_kv_format)f, DIM, at, at + kb, 7, x, x);
                for (int d = 0; d < DIM; d++) {
                    assert_true(isfinite(decoded_key((ek_kv_format)f, at, DIM, d, 7)));
                    assert_true(isfinite(decoded_value((ek_kv_format)f, at + kb, DIM, 7, d)));
                }
            }
    check_free(at, ek_kv_block_bytes(EK_KV_I12, EK_KV_I12, 1, DIM));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(test_formats), CHECK_TEST(test_store), CHECK_TEST(test_again),
                                              CHECK_TEST(test_extremes), CHECK_TEST(test_sizes)};
    return CHECK_RUN(argc, argv, tests);
}
