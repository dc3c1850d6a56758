/* Shapes that do not fit are refused with both shapes in the sentence, outputs stay unchanged, and
 * nothing aborts, whatever a view holds. */
/* tier: all */
#include <math.h>
#include <stdio.h>

#include "ref.h"

/* The call must fail with the status, and the sentence must hold every word. */
static void refused(ek_status got, ek_status want, const char *call, const char *a, const char *b)
{
    if (got != want) fail_msg("%s: %s, want %s (%s)", call, ek_status_name(got), ek_status_name(want), ek_last_error());
    if (!strstr(ek_last_error(), a) || !strstr(ek_last_error(), b))
        fail_msg("%s: \"%s\" lacks %s or %s", call, ek_last_error(), a, b);
}
#define BAD(expr, a, b) refused(expr, EK_BAD_ARGUMENT, #expr, a, b)

static void test_products(void **state)
{
    (void)state;
    ek_view w = ref_normals(EK_TYPE_F32, 1, 1, 2, 32, 512), x = ref_normals(EK_TYPE_F32, 2, 1, 2, 10, 512),
            y = ref_new(EK_TYPE_F32, 2, 10, 32);
    memset(y.data, 0x5a, 10 * 32 * 4);
    ek_view before = ref_dense(&y);
    ek_qview q = ref_quantised(EK_AFFINE, 4, 64, &w), bad = q;
    BAD(ek_quantized_matmul(y, x, &q, false, EK_EXACT), "[10, 512]", "[32, 512]");
    bad.codes = ek_view_swap(q.codes, 0, 1);
    BAD(ek_quantized_matmul(y, x, &bad, true, EK_EXACT), "[64, 32]", "[32, 8]");
    bad.scales = ek_view_swap(q.scales, 0, 1);
    BAD(ek_quantized_matmul(y, x, &bad, true, EK_EXACT), "[64, 32]", "[8, 32]");
    bad = q;
    bad.scales = ek_view_swap(q.scales, 0, 1), bad.biases = ek_view_swap(q.biases, 0, 1);
    BAD(ek_quantized_matmul(y, x, &bad, true, EK_EXACT), "[8, 32]", "[32, 64]");
    bad = q;
    bad.biases = (ek_view){0};
    BAD(ek_quantized_matmul(y, x, &bad, true, EK_EXACT), "biases", "");
    BAD(ek_dequantize(ref_new(EK_TYPE_F32, 2, 32, 512), &bad), "biases", "");
    bad = q;
    bad.scales.type = bad.biases.type = EK_TYPE_U32;
    BAD(ek_quantized_matmul(y, x, &bad, true, EK_EXACT), "[32, 8] of u32", "affine");
    bad = q;
    bad.mode = (ek_quant_mode)17;
    BAD(ek_quantized_matmul(y, x, &bad, true, EK_EXACT), "17", "mode");
    BAD(ek_dequantize(x, &bad), "17", "mode");
    BAD(ek_quantize(&bad, w), "17", "mode");
    BAD(ek_gather_qmm(y, x, &bad, NULL, NULL, true, EK_EXACT), "17", "mode");
    ek_view ints = x;
    ints.type = EK_TYPE_U32;
    BAD(ek_quantized_matmul(y, ints, &q, true, EK_EXACT), "[10, 512] of u32", "[32, 512]");
    BAD(ek_quantize(&q, ek_view_2d(w.data, EK_TYPE_U32, 32, 512)), "[32, 512] of u32", "[32, 64]");
    BAD(ek_quantize(&q, ek_view_2d(w.data, EK_TYPE_F32, 32, 256)), "[32, 256]", "[32, 64]");
    BAD(ek_quantized_matmul(ref_new(EK_TYPE_F32, 2, 32, 10), x, &q, true, EK_EXACT), "[32, 10]", "[10, 32]");
    BAD(ek_quantized_matmul(ref_new(EK_TYPE_F32, 3, 1, 10, 32), x, &q, true, EK_EXACT), "[1, 10, 32]", "[10, 512]");
    BAD(ek_quantized_matmul(y, x, &q, true, (ek_precision)9), "precision", "9");
    BAD(ek_quantized_matmul(y, x, &q, true, (ek_precision)(EK_BFLOAT16 + 1)), "precision", "4");
    BAD(ek_quantized_matmul(y, x, NULL, true, EK_EXACT), "w", "missing");
    BAD(ek_matmul(y, x, ref_new(EK_TYPE_F32, 2, 512, 33), false), "[10, 32]", "[10, 33]");
    BAD(ek_matmul(y, x, ref_new(EK_TYPE_F32, 2, 511, 32), false), "[10, 512]", "[511, 32]");
    BAD(ek_matmul(ref_new(EK_TYPE_F32, 3, 2, 10, 32), ref_new(EK_TYPE_F32, 3, 2, 10, 512),
                  ref_new(EK_TYPE_F32, 3, 3, 32, 512), true),
        "[2, 10, 512]", "[3, 32, 512]");
    ref_same(&before, &y, "the output after refusals");
    ref_free_all();
}

static void test_modes(void **state)
{
    (void)state;
    static const struct {
        ek_quant_mode mode;
        int bits, group;
    } none[] = {{EK_AFFINE, 7, 64}, {EK_AFFINE, 1, 64}, {EK_AFFINE, 9, 64}, {EK_AFFINE, 4, 16}, {EK_AFFINE, 4, 256},
                {EK_MXFP4, 3, 32},  {EK_MXFP4, 4, 64},  {EK_MXFP8, 3, 32},  {EK_MXFP8, 7, 32},  {EK_MXFP8, 8, 16},
                {EK_MXFP8, 4, 32},  {EK_NVFP4, 3, 16},  {EK_NVFP4, 4, 64},  {EK_NVFP4, 4, 32},  {EK_AFFINE, -4, 64}};
    ek_view w = ref_normals(EK_TYPE_F32, 1, 1, 2, 4, 512);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        ek_qview q = ref_qnew(none[i].mode == EK_AFFINE ? EK_AFFINE : none[i].mode, 4, 64, EK_TYPE_F32, &w);
        char bits[24];
        q.bits = none[i].bits, q.group = none[i].group;
        snprintf(bits, sizeof bits, "%d bits", none[i].bits);
        BAD(ek_quantize(&q, w), bits, "groups of");
        BAD(ek_dequantize(w, &q), bits, "groups of");
    }
    ek_qview q = ref_qnew(EK_NVFP4, 4, 16, EK_TYPE_F32, &w);
    q.global_scale = -1;
    BAD(ek_dequantize(w, &q), "-1", "positive");
    q.global_scale = (float)NAN;
    BAD(ek_dequantize(w, &q), "nan", "positive");
    q = ref_qnew(EK_AFFINE, 4, 64, EK_TYPE_F32, &w);
    q.global_scale = 2;
    BAD(ek_quantize(&q, w), "nvfp4", "affine");
    q.global_scale = 0;
    BAD(ek_dequantize(ek_view_2d(w.data, EK_TYPE_U32, 4, 512), &q), "u32", "floats");
    ek_view x = ref_new(EK_TYPE_F32, 2, 1, 64), y = ref_new(EK_TYPE_F32, 2, 1, 64);
    ek_view m = ref_normals(EK_TYPE_F32, 1, 1, 2, 64, 64);
    ek_qview fp = ref_quantised(EK_MXFP4, 4, 32, &m), af = ref_quantised(EK_AFFINE, 4, 32, &m);
    refused(ek_quantized_matmul(y, x, &fp, true, EK_INT8), EK_NOT_SUPPORTED, "int8 mxfp4", "affine", "transposed");
    refused(ek_quantized_matmul(y, x, &af, false, EK_INT16), EK_NOT_SUPPORTED, "int16 NT", "affine", "transposed");
    refused(ek_quantized_matmul(y, x, &fp, true, EK_BFLOAT16), EK_NOT_SUPPORTED, "bf16 mxfp4", "bf16 activations",
            "floating-point mode");
    refused(ek_quantized_matmul(y, x, &af, false, EK_BFLOAT16), EK_NOT_SUPPORTED, "bf16 NT", "bf16 activations",
            "not transposed");
    ek_packed *p;
    MUST(ek_pack_quantized(&p, &fp, true));
    refused(ek_packed_matmul(y, x, p, EK_INT8), EK_NOT_SUPPORTED, "int8 packed", "affine", "[64, 64]");
    refused(ek_packed_matmul(y, x, p, EK_BFLOAT16), EK_NOT_SUPPORTED, "bf16 packed", "bf16 activations", "[64, 64]");
    BAD(ek_packed_matmul(y, ref_new(EK_TYPE_F32, 2, 1, 63), p, EK_EXACT), "[1, 63]", "[64, 64]");
    ek_packed_free(p);
    ek_packed_free(NULL);
    BAD(ek_pack(&p, ref_new(EK_TYPE_F32, 3, 2, 3, 4), true), "[2, 3, 4]", "two dims");
    BAD(ek_pack(&p, ref_new(EK_TYPE_F32, 2, 0, 4), true), "[0, 4]", "outputs");
    BAD(ek_pack(NULL, m, true), "nowhere", "");
    BAD(ek_packed_matmul(y, x, NULL, EK_EXACT), "missing", "");
    ref_free_all();
}

static void test_gather(void **state)
{
    (void)state;
    ek_view w = ref_normals(EK_TYPE_F32, 1, 1, 3, 3, 32, 64), x = ref_new(EK_TYPE_F32, 3, 2, 1, 64),
            y = ref_new(EK_TYPE_F32, 3, 2, 1, 32);
    ek_qview q = ref_quantised(EK_AFFINE, 4, 64, &w);
    ek_view rhs = ref_new(EK_TYPE_U32, 1, 2), three = ref_new(EK_TYPE_U32, 1, 3);
    ((uint32_t *)rhs.data)[1] = 3;
    BAD(ek_gather_qmm(y, x, &q, NULL, &rhs, true, EK_EXACT), "3", "[3, 32, 64]");
    ((uint32_t *)rhs.data)[1] = 4000000000u;
    BAD(ek_gather_qmm(y, x, &q, NULL, &rhs, true, EK_EXACT), "4000000000", "[3, 32, 64]");
    ((uint32_t *)rhs.data)[1] = 2;
    BAD(ek_gather_qmm(y, x, &q, &three, &rhs, true, EK_EXACT), "[3]", "[2]");
    BAD(ek_gather_qmm(y, x, &q, NULL, NULL, true, EK_EXACT), "[2]", "[3]");
    BAD(ek_gather_qmm(ref_new(EK_TYPE_F32, 3, 3, 1, 32), x, &q, NULL, &rhs, true, EK_EXACT), "[3, 1, 32]",
        "[2, 1, 32]");
    ek_view floats = ref_new(EK_TYPE_F32, 1, 2);
    BAD(ek_gather_qmm(y, x, &q, NULL, &floats, true, EK_EXACT), "[2] of f32", "u32");
    ref_free_all();
}

static void test_sdpa(void **state)
{
    (void)state;
    ek_view q = ref_new(EK_TYPE_F32, 4, 2, 4, 3, 64), k = ref_new(EK_TYPE_F32, 4, 2, 2, 9, 64),
            y = ref_new(EK_TYPE_F32, 4, 2, 4, 3, 64);
    BAD(ek_sdpa(y, q, ref_new(EK_TYPE_F32, 4, 2, 3, 9, 64), k, NULL), "[2, 3, 9, 64]", "[2, 4, 3, 64]");
    BAD(ek_sdpa(y, q, k, ref_new(EK_TYPE_F32, 4, 2, 2, 8, 64), NULL), "[2, 2, 8, 64]", "[2, 2, 9, 64]");
    BAD(ek_sdpa(y, q, ref_new(EK_TYPE_F32, 4, 2, 2, 9, 63), k, NULL), "[2, 2, 9, 63]", "[2, 4, 3, 64]");
    BAD(ek_sdpa(y, q, ref_new(EK_TYPE_F32, 3, 2, 9, 64), k, NULL), "[2, 9, 64]", "[2, 4, 3, 64]");
    BAD(ek_sdpa(ref_new(EK_TYPE_F32, 4, 2, 4, 3, 63), q, k, k, NULL), "[2, 4, 3, 63]", "[2, 4, 3, 64]");
    ek_view big = ref_new(EK_TYPE_F32, 4, 1, 1, 1, 513);
    BAD(ek_sdpa(ref_new(EK_TYPE_F32, 4, 1, 1, 1, 513), big, big, big, NULL), "513", "512");
    ek_view mask = ref_new(EK_TYPE_U8, 3, 4, 2, 9), words = ref_new(EK_TYPE_U32, 1, 9);
    BAD(ek_sdpa(y, q, k, k, &(ek_sdpa_options){.mask = &mask}), "[4, 2, 9]", "[2, 4, 3, 9]");
    BAD(ek_sdpa(y, q, k, k, &(ek_sdpa_options){.mask = &words}), "[9] of u32", "[2, 4, 3, 9]");
    ek_view half = ref_new(EK_TYPE_BF16, 4, 2, 2, 9, 64);
    BAD(ek_sdpa(y, q, k, k, &(ek_sdpa_options){.precision = EK_INT8}), "precision 2", "EK_BFLOAT16");
    BAD(ek_sdpa(y, q, half, half, &(ek_sdpa_options){.precision = EK_BFLOAT16}), "[2, 4, 3, 64] of f32",
        "[2, 2, 9, 64] of bf16");
    BAD(ek_sdpa(y, q, k, k, &(ek_sdpa_options){.window = -1}), "-1", "[2, 4, 3, 64]");
    int64_t far[2] = {0, INT64_MIN};
    BAD(ek_sdpa(y, q, k, k, &(ek_sdpa_options){.key_start = far}), "key_start", "1");
    BAD(ek_sdpa_quantized(y, q, NULL, NULL, NULL), "k", "missing");
    ek_qview kq = ref_quantised(EK_AFFINE, 4, 32, &k), vq = kq;
    vq.codes = ek_view_slice(vq.codes, 2, 0, 8), vq.scales = ek_view_slice(vq.scales, 2, 0, 8),
    vq.biases = ek_view_slice(vq.biases, 2, 0, 8);
    BAD(ek_sdpa_quantized(y, q, &kq, &vq, NULL), "[2, 2, 8, 64]", "[2, 2, 9, 64]");
    /* windows longer than anything, and rows before the first key */
    MUST(ek_sdpa(y, q, k, k, &(ek_sdpa_options){.window = INT64_MAX, .causal = true}));
    ref_free_all();
}

static void test_rowwise(void **state)
{
    (void)state;
    ek_view x = ref_new(EK_TYPE_F32, 3, 2, 3, 8), y = ref_new(EK_TYPE_F32, 3, 2, 3, 8), w = ref_new(EK_TYPE_F32, 1, 7);
    BAD(ek_rms_norm(ref_new(EK_TYPE_F32, 3, 2, 4, 8), x, NULL, 1e-6f), "[2, 4, 8]", "[2, 3, 8]");
    BAD(ek_rms_norm(y, x, &w, 1e-6f), "[7]", "[2, 3, 8]");
    BAD(ek_rms_norm(y, x, NULL, -1), "-1", "[2, 3, 8]");
    BAD(ek_rope(y, x, &(ek_rope_options){.dims = 7}), "7", "[2, 3, 8]");
    BAD(ek_rope(y, x, &(ek_rope_options){.dims = 10}), "10", "[2, 3, 8]");
    BAD(ek_rope(y, x, &(ek_rope_options){.pairs = 5}), "5", "[2, 3, 8]");
    BAD(ek_rope(y, x, &(ek_rope_options){.position = -1}), "-1", "[2, 3, 8]");
    BAD(ek_rope(y, x, &(ek_rope_options){.position = INT32_MAX}), "2147483647", "[2, 3, 8]");
    BAD(ek_rope(y, x, &(ek_rope_options){.theta = -1}), "theta", "-1");
    BAD(ek_rope(ref_new(EK_TYPE_F32, 1, 8), ref_new(EK_TYPE_F32, 1, 8), NULL), "[8]", "2 dims");
    BAD(ek_copy(y, w), "[7]", "[2, 3, 8]");
    BAD(ek_copy(ref_new(EK_TYPE_U8, 1, 7), w), "[7] of u8", "[7] of f32");
    ref_free_all();
}

static void test_views(void **state)
{
    (void)state;
    ek_view w = ref_new(EK_TYPE_F32, 2, 8, 8), x = ref_new(EK_TYPE_F32, 2, 8, 8), y = ref_new(EK_TYPE_F32, 2, 8, 8);
    ek_view bad = x;
    bad.dim[0] = -1;
    BAD(ek_matmul(y, bad, w, true), "-1", "x");
    bad = x;
    bad.dim[0] = bad.dim[1] = INT64_MAX / 2;
    BAD(ek_matmul(y, bad, w, true), "elements", "x");
    bad.dim[0] = 0; /* no elements, but not a size that may be multiplied either */
    BAD(ek_matmul(y, bad, w, true), "elements", "x");
    bad = x;
    bad.stride[0] = INT64_MAX / 2;
    BAD(ek_matmul(y, bad, w, true), "x", "stride");
    bad.stride[0] = INT64_MIN;
    BAD(ek_matmul(y, bad, w, true), "x", "stride");
    bad.stride[0] = INT64_MAX / 8;
    BAD(ek_matmul(y, bad, w, true), "x", "memory");
    bad = x;
    bad.n_dims = 9;
    BAD(ek_matmul(y, bad, w, true), "9", "x");
    bad = x;
    bad.type = (ek_type)77;
    BAD(ek_matmul(y, bad, w, true), "77", "x");
    bad = x;
    bad.data = NULL;
    BAD(ek_matmul(y, bad, w, true), "x", "no data");
    BAD(ek_matmul(ek_view_expand(ek_view_slice(y, 0, 0, 1), 0, 8), x, w, true), "[8, 8]", "share memory");
    bad = y;
    bad.stride[0] = 1;
    BAD(ek_matmul(bad, x, w, true), "[8, 8]", "share memory");
    BAD(ek_matmul(y, ek_view_slice(x, 0, 4, 9), w, true), "x", "axis or a range");
    BAD(ek_matmul(y, ek_view_slice(x, 2, 0, 1), w, true), "x", "axis or a range");
    BAD(ek_matmul(y, ek_view_swap(x, 0, 2), w, true), "x", "axis or a range");
    BAD(ek_matmul(y, ek_view_expand(x, 0, 3), w, true), "x", "axis or a range");
    BAD(ek_matmul(y, ek_view_slice(ek_view_slice(x, 5, 0, 1), 0, 0, 1), w, true), "x", "axis or a range");
    assert_int_equal(ek_view_slice(x, -1, 3, 2).n_dims, -1);
    assert_int_equal(ek_view_insert(x, 3).n_dims, -1);
    assert_int_equal(ek_view_insert(x, -1).dim[2], 1);
    assert_int_equal(ek_view_reverse(x, 2).n_dims, -1);
    int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(ek_view_dense(NULL, EK_TYPE_F32, 9, dims).n_dims, 9);
    ref_free_all();
}

/* Sizes of zero are fine. */
static void test_empty(void **state)
{
    (void)state;
    ek_view none = {.type = EK_TYPE_F32, .n_dims = 2};
    ek_view x = none, w = none, y = none;
    x.dim[0] = 0, x.dim[1] = 64, w.dim[0] = 32, w.dim[1] = 64, y.dim[0] = 0, y.dim[1] = 32;
    w = ref_normals(EK_TYPE_F32, 1, 1, 2, 32, 64);
    ek_qview q = ref_quantised(EK_AFFINE, 4, 64, &w);
    ek_packed *p;
    MUST(ek_matmul(y, x, w, true));
    MUST(ek_pack_quantized(&p, &q, true));
    for (ek_precision e = EK_EXACT; e <= EK_BFLOAT16; e++) {
        MUST(ek_quantized_matmul(y, x, &q, true, e));
        MUST(ek_packed_matmul(y, x, p, e));
    }
    ek_packed_free(p);
    x.dim[0] = 3, x.dim[1] = 0, w = none, w.dim[0] = 5, w.dim[1] = 0; /* K = 0: zeros */
    y = ref_normals(EK_TYPE_F32, 2, 1, 2, 3, 5);
    MUST(ek_matmul(y, x, w, true));
    for (int i = 0; i < 15; i++) assert_true(ref_get(&y, i) == 0);
    q.codes = ek_view_2d(NULL, EK_TYPE_U32, 5, 0), q.scales = ek_view_2d(NULL, EK_TYPE_F32, 5, 0), q.biases = q.scales;
    y = ref_normals(EK_TYPE_F32, 2, 1, 2, 3, 5);
    for (ek_precision e = EK_EXACT; e <= EK_BFLOAT16; e++) {
        MUST(ek_quantized_matmul(y, x, &q, true, e));
        for (int i = 0; i < 15; i++) assert_true(ref_get(&y, i) == 0);
    }
    MUST(ek_quantize(&q, ek_view_2d(NULL, EK_TYPE_F32, 5, 0)));
    MUST(ek_dequantize(ek_view_2d(NULL, EK_TYPE_F32, 5, 0), &q));
    ek_view a = ref_normals(EK_TYPE_F32, 3, 1, 4, 1, 2, 3, 8), k = ek_view_4d(NULL, EK_TYPE_F32, 1, 1, 0, 8),
            out = ref_normals(EK_TYPE_F32, 3, 1, 4, 1, 2, 3, 8);
    MUST(ek_sdpa(out, a, k, k, &(ek_sdpa_options){.causal = true})); /* no keys: zeros */
    for (int i = 0; i < 48; i++) assert_true(ref_get(&out, i) == 0);
    ek_view none4 = ek_view_4d(NULL, EK_TYPE_F32, 1, 2, 0, 8);
    MUST(ek_sdpa(none4, none4, ek_view_slice(a, 1, 0, 1), ek_view_slice(a, 1, 0, 1), NULL));
    MUST(ek_rms_norm(none4, none4, NULL, 1e-6f));
    MUST(ek_rope(none4, none4, NULL));
    MUST(ek_copy(none4, none4));
    ref_free_all();
}

/* Views of random numbers: refused or done, nothing else. Sizes stay small, memory is guarded by
 * the sanitizers' builds. */
static void test_random_views(void **state)
{
    (void)state;
    static float mem[1 << 14], out[1 << 14];
    uint64_t at = 0;
    int done = 0, tries = ref_all ? 200000 : 20000;
    for (int i = 0; i < tries; i++) {
        ek_view v[3];
        for (int n = 0; n < 3; n++) {
            v[n] = (ek_view){.data = n ? mem + 4096 : out + 4096,
                             .type = (ek_type)(3 * ref_uniform(9, at++)),
                             .n_dims = (int)(4 * ref_uniform(9, at++))};
            if (ref_uniform(9, at++) < 0.02) v[n].n_dims = -1;
            for (int d = 0; d < v[n].n_dims; d++) {
                static const int64_t dims[] = {0, 1, 1, 2, 2, 3, 4, 4, 8, 8, 8, -1};
                v[n].dim[d] = dims[(int)(11.3 * ref_uniform(9, at++))];
                int64_t sign = ref_uniform(9, at++) < 0.2 ? -1 : 1;
                v[n].stride[d] = sign * (int64_t)(9 * ref_uniform(9, at++)) * (d == v[n].n_dims - 1 ? 1 : 8);
            }
        }
        ek_status s = ek_matmul(v[0], v[1], v[2], i % 2);
        done += s == EK_DONE;
        if (s != EK_DONE) assert_true(s == EK_BAD_ARGUMENT && ek_last_error()[0]);
        s = ek_copy(v[0], v[1]);
        done += s == EK_DONE;
        s = ek_rms_norm(v[0], v[1], NULL, 1e-6f);
        done += s == EK_DONE;
    }
    assert_true(done > tries / 200);
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_modes),        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_sdpa),     cmocka_unit_test(test_rowwise),      cmocka_unit_test(test_views),
        cmocka_unit_test(test_empty),    cmocka_unit_test(test_random_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
