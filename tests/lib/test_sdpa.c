/* op-test-cases 2: the grid of attention against float64, with its tolerances. Long cases check a
 * part of their rows; "all" checks every row of every case. Queries are also taken alone: the
 * same bits. */
#include <math.h>

#include "attend.h"

static double tolerance(int form)
{
    return form == EK_TYPE_F32 ? 1e-5 : form == EK_TYPE_F16 ? 3e-4 : 5e-3;
}

static int step_of(int wanted)
{
    return ref_all ? 1 : wanted;
}

/* Runs, compares with float64, and takes some rows alone (their mask rows with them). */
static void check(attend_scene *s, const ek_sdpa_options *o, int step, double rtol, double atol, const char *what)
{
    MUST(attend_run(s->y, s->q, s->k, s->v, o));
    attend_check(&s->y, &s->q, &s->k, &s->v, o, step, rtol, atol,
                 "%s: q [%d, %d, %d, %d], k [%d, %d], causal %d, mask %d", what, (int)s->q.dim[0], (int)s->q.dim[1],
                 (int)s->q.dim[2], (int)s->q.dim[3], (int)s->k.dim[1], (int)s->k.dim[2], o && o->causal, o && o->mask);
    if (!o || o->mask || o->causal || o->window) return;
    int64_t i = s->q.dim[2] / 2, b = s->q.dim[0] - 1;
    ek_view q = ek_view_slice(ek_view_slice(s->q, 2, i, i + 1), 0, b, b + 1),
            part = ek_view_slice(ek_view_slice(s->y, 2, i, i + 1), 0, b, b + 1);
    ek_view y = ref_like(&part, part.type);
    MUST(attend_run(y, q, ek_view_slice(s->k, 0, b, b + 1), ek_view_slice(s->v, 0, b, b + 1), o));
    ref_same(&y, &part, "%s: a row alone", what);
}

static void test_head_dims(void **state) /* 72, 96; and 1, 80, 192, 512, which MLX does not have */
{
    (void)state;
    static const int dims[] = {72, 96, 1, 80, 192, 512};
    for (int d = 0; d < 6; d++)
        for (int ql = 64; ql <= 65; ql++)
            for (int kl = 127; kl <= 128; kl++) EACH_FORM(t)
    for (enum attend_mask m = 0; m < ATTEND_MASKS; m++) {
        double scale = 1 / sqrt(dims[d]);
        attend_scene s = attend_new(t, 1, 8, 2, ql, kl, dims[d], 0.5, scale);
        ek_sdpa_options o;
        ek_view mask;
        attend_options(&o, &mask, m, &s, scale);
        check(&s, &o, step_of(23), tolerance(t), tolerance(t), "head dims");
        ref_free_all();
    }
}

static void test_full_256(void **state)
{
    (void)state;
    static const int cases[][3] = {{2048, 2048, 0},    {2049, 2049, 0},    {2048, 2560, 0},   {2049, 2560, 0},
                                   {2049, 2049, 2304}, {2048, 2500, 2560}, {1031, 2049, 2304}};
    for (int c = 0; c < 7; c++) EACH_FORM(t)
        {
            if (t == EK_TYPE_F16 || (!ref_all && (c == 0 || c == 2 || c == 3 || (t != EK_TYPE_F32 && c != 4))))
                continue; /* thinned */
            int ql = cases[c][0], kl = cases[c][1], room = cases[c][2] ? cases[c][2] : kl;
            attend_scene s = attend_new(t, 1, 8, 2, ql, room, 256, 0.5, 1.0 / 16);
            for (int64_t h = 0; h < 2; h++) /* NaN where MLX has large numbers: stale rows must not matter at all */
                for (int64_t j = kl; j < room; j++)
                    for (int64_t d = 0; d < 256; d++) {
                        ref_set(&s.k, (h * room + j) * 256 + d, NAN);
                        ref_set(&s.v, (h * room + j) * 256 + d, NAN);
                    }
            s.k = ek_view_slice(s.k, 2, 0, kl), s.v = ek_view_slice(s.v, 2, 0, kl);
            ek_sdpa_options o = {.scale = 1.0f / 16, .causal = true};
            check(&s, &o, step_of(509), 1e-4, t == EK_TYPE_F32 ? 1e-4 : 5e-3, "head dim 256");
            ref_free_all();
        }
}

/* A scalar, [L] with the last 10 hidden, [qH, 1, L] and the same turned; with their additive twins. */
static void vector_masks(attend_scene *s, float scale, const char *what)
{
    int h = (int)s->q.dim[1], l = (int)s->k.dim[2];
    ek_sdpa_options o = {.scale = scale};
    check(s, &o, 1, 1e-4, 1e-4, what);
    o.causal = true;
    check(s, &o, 1, 1e-4, 1e-4, what);
    o.causal = false;
    ek_view one = ref_new(EK_TYPE_U8, 0), tail = ref_new(EK_TYPE_U8, 1, l), some = ref_new(EK_TYPE_U8, 3, h, 1, l),
            turned = ref_new(EK_TYPE_U8, 3, l, 1, h);
    ek_view added = ref_uniforms(EK_TYPE_F32, 6, 0, 1, 3, h, 1, l), added_turned = ref_new(EK_TYPE_F32, 3, l, 1, h),
            logs = ref_new(EK_TYPE_F32, 3, h, 1, l);
    *(uint8_t *)one.data = 1;
    for (int j = 0; j < l; j++) ((uint8_t *)tail.data)[j] = j < l - 10;
    for (int i = 0; i < h; i++)
        for (int j = 0; j < l; j++) {
            uint8_t x = ref_uniform(7, (uint64_t)(i * l + j)) < 0.8;
            ((uint8_t *)some.data)[i * l + j] = ((uint8_t *)turned.data)[j * h + i] = x;
            ((float *)added_turned.data)[j * h + i] = ((float *)added.data)[i * l + j];
            ((float *)logs.data)[i * l + j] = x ? 0 : -(float)INFINITY;
        }
    turned = ek_view_swap(turned, 0, 2), added_turned = ek_view_swap(added_turned, 0, 2);
    ek_view *masks[] = {&one, &tail, &some, &turned, &added, &added_turned, &logs};
    ek_view same[2];
    for (int m = 0; m < 7; m++) {
        o.mask = masks[m];
        check(s, &o, 1, 1e-4, 1e-4, what);
        if (m == 2 || m == 4) same[0] = ref_dense(&s->y);
        if (m == 3 || m == 5 || m == 6) {
            same[1] = s->y;
            if (m != 6) ref_same(&same[0], &same[1], "%s: a turned mask", what);
        }
    }
}

static void test_vector(void **state)
{
    (void)state;
    for (int l = 43; l <= 4096; l += 4096 - 43) {
        attend_scene s = attend_new(EK_TYPE_F32, 1, 4, 1, 1, l, 64, 0.5, 1);
        vector_masks(&s, 1, "vector");
        /* keys and values as [1, L, kH, D], axes swapped */
        s.k = ek_view_swap(ref_uniforms(EK_TYPE_F32, 2, 0, 0.5, 4, 1, l, 1, 64), 1, 2);
        s.v = ek_view_swap(ref_uniforms(EK_TYPE_F32, 3, 0, 1, 4, 1, l, 1, 64), 1, 2);
        vector_masks(&s, 0.125f, "vector, swapped");
        ek_view bad = ref_new(EK_TYPE_U8, 3, 4, 2, l);
        ek_sdpa_options o = {.mask = &bad};
        assert_int_equal(ek_sdpa(s.y, s.q, s.k, s.v, &o), EK_BAD_ARGUMENT);
        ref_free_all();
        /* few queries */
        s = attend_new(EK_TYPE_F32, 1, 8, 1, 8, l, 64, 0.5, 1);
        if (l == 43) s.q = ek_view_swap(ref_uniforms(EK_TYPE_F32, 1, 0, 0.5, 4, 1, 8, 8, 64), 1, 2);
        vector_masks(&s, 0.125f, "few queries");
        ref_free_all();
    }
}

static void test_gqa_long(void **state)
{
    (void)state;
    static const int cases[][3] = {{32, 4, 128}, {64, 8, 64}};
    for (int c = 0; c < 2; c++)
        for (int l = 8192; l <= 8201; l += 9) {
            if (!ref_all && (c + l) % 2) continue; /* thinned to two of four */
            attend_scene s = attend_new(EK_TYPE_F32, 1, cases[c][0], cases[c][1], 1, l + 32, cases[c][2], 0.5, 1);
            s.k = ek_view_slice(s.k, 2, 0, l), s.v = ek_view_slice(s.v, 2, 0, l);
            if (!ref_all) { /* a few heads */
                MUST(ek_sdpa(s.y, s.q, s.k, s.v, NULL));
                int per = cases[c][0] / cases[c][1];
                ek_view y = ek_view_slice(s.y, 1, per, per + 2), q = ek_view_slice(s.q, 1, per, per + 2);
                ek_view k = ek_view_slice(s.k, 1, 1, 2), v = ek_view_slice(s.v, 1, 1, 2);
                attend_check(&y, &q, &k, &v, NULL, 1, 1e-4, 1e-4, "gqa of %d", l);
            } else check(&s, NULL, 1, 1e-4, 1e-4, "gqa");
            ref_free_all();
        }
}

static void test_fully_masked(void **state)
{
    (void)state;
    for (int lq = 1; lq <= 32; lq += lq == 1 ? 7 : 24) {
        attend_scene s = attend_new(EK_TYPE_F32, 1, 4, 4, lq, 8, 128, 0.5, 1);
        ek_view none = ref_new(EK_TYPE_U8, 0);
        ek_sdpa_options o = {.mask = &none};
        check(&s, &o, 1, 0, 0, "fully masked"); /* zeros, for rows without keys */
        float sinks[4] = {1, -2, 0, 30};
        o.sinks = sinks;
        check(&s, &o, 1, 0, 0, "fully masked with sinks");
        ref_free_all();
    }
}

static void test_inf_score(void **state)
{
    (void)state;
    for (int d = 4; d <= 128; d += 124)
        for (int lq = 1; lq <= 8; lq += 7) {
            attend_scene s = attend_new(EK_TYPE_F32, 1, 4, 4, lq, 8, d, 0.5, 1);
            for (int h = 0; h < 4; h++)
                for (int i = 0; i < d; i++) ref_set(&s.k, h * 8 * d + i, -INFINITY);
            check(&s, NULL, 1, 1e-4, 1e-4, "a score of -inf");
            ref_free_all();
        }
}

static void test_batched(void **state)
{
    (void)state;
    for (int c = 0; c < 5; c++) {
        int h = c == 0 ? 1 : 4, hkv = c == 3 ? 2 : 1;
        attend_scene s = attend_new(EK_TYPE_F32, 2, h, hkv, 3, 3, 64, 0.5, 1);
        if (c >= 2) s.q = ek_view_swap(ref_uniforms(EK_TYPE_F32, 8, 0, 0.5, 4, 2, 3, h, 64), 1, 2);
        if (c >= 3) s.k = ek_view_swap(ref_uniforms(EK_TYPE_F32, 9, 0, 0.5, 4, 2, 3, hkv, 64), 1, 2);
        ek_sdpa_options o = {0};
        ek_view mask = ek_view_swap(ref_normals(EK_TYPE_F32, 10, 10, 4, 2, 3, 1, 3), 1, 2);
        if (c == 4) o.mask = &mask;
        check(&s, &o, 1, 1e-4, 1e-4, "batched");
        o.causal = true;
        check(&s, &o, 1, 1e-4, 1e-4, "batched");
        ref_free_all();
    }
}

static void test_shapes(void **state)
{
    (void)state;
    static const int s64[][4] = {{20, 20, 3, 3},     {63, 63, 24, 24},  {129, 129, 24, 24}, {400, 400, 24, 24},
                                 {128, 128, 32, 32}, {64, 128, 32, 32}, {65, 128, 32, 8},   {64, 127, 32, 8},
                                 {65, 127, 32, 8},   {127, 65, 32, 8}};
    static const int s128[][4] = {{128, 128, 32, 8}, {64, 128, 32, 8}, {65, 127, 32, 8}, {127, 65, 32, 8}};
    static const int decode[] = {7, 9, 32, 63, 67, 129, 400, 2000};
    for (int c = 0; c < 10 + 4 + 16; c++) {
        int d = c < 10 ? 64 : 128, n = c - 14, ql = 1, kl = 0, h = 32, hkv = 0;
        if (c < 14)
            ql = (c < 10 ? s64[c] : s128[c - 10])[0], kl = (c < 10 ? s64[c] : s128[c - 10])[1],
            h = (c < 10 ? s64[c] : s128[c - 10])[2], hkv = (c < 10 ? s64[c] : s128[c - 10])[3];
        else kl = decode[n / 2], hkv = n % 2 ? 8 : 32;
        for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_F16; t++)
            for (int turned = 0; turned < 2; turned++)
                for (enum attend_mask m = 0; m < ATTEND_MASKS; m++) {
                    double scale = 1 / sqrt(d), tol = t == EK_TYPE_F32 ? 2e-5 : 3e-4;
                    if (!ref_all && (c + (int)t + turned + (int)m) % 3) continue; /* thinned to a third */
                    attend_scene s = attend_new(t, 1, h, hkv, ql, kl, d, 0.5, scale);
                    if (turned) {
                        s.q = ek_view_swap(ref_uniforms(t, 1, 0, 0.5, 4, 1, ql, h, d), 1, 2);
                        s.k = ek_view_swap(ref_uniforms(t, 2, 0, 0.5, 4, 1, kl, hkv, d), 1, 2);
                        s.v = ek_view_swap(ref_uniforms(t, 3, 0, scale, 4, 1, kl, hkv, d), 1, 2);
                    }
                    ek_sdpa_options o;
                    ek_view mask;
                    attend_options(&o, &mask, m, &s, scale);
                    check(&s, &o, step_of(ql > 8 ? 97 : 1), tol, tol,
                          "shapes"); /* causal rows before the first key are zeros */
                    ref_free_all();
                }
    }
}

static void test_long_masked(void **state)
{
    (void)state;
    static const int kls[] = {8192, 36864, 49152, 66048};
    for (int c = 0; c < (ref_all ? 4 : 1); c++) { /* thinned: the shortest, with fewer queries and heads */
        int kl = kls[c], h = ref_all ? 32 : 4, hkv = ref_all ? 16 : 2, ql = ref_all ? 512 : 40;
        attend_scene s = attend_new(EK_TYPE_F16, 1, h, hkv, ql, kl, 64, 0.5, 0.125);
        ek_view mask = ref_new(EK_TYPE_F16, 4, 1, 1, 1, kl);
        for (int j = 0; j < kl - 1024; j++) ref_set(&mask, j, -1e4);
        ek_sdpa_options o = {.mask = &mask};
        check(&s, &o, 199, 1e-3, 1e-3, "long, masked");
        ref_free_all();
    }
}

static void test_small_masks(void **state)
{
    (void)state;
    attend_scene s = attend_new(EK_TYPE_F32, 1, 4, 1, 256, 256, 64, 0.5, 0.125);
    ek_view one = ref_new(EK_TYPE_U8, 0), two = ref_new(EK_TYPE_BF16, 0);
    *(uint8_t *)one.data = 1;
    ref_set(&two, 0, 2);
    check(&s, &(ek_sdpa_options){.mask = &one}, 31, 1e-4, 1e-4, "a scalar mask");
    check(&s, &(ek_sdpa_options){.mask = &two}, 31, 1e-4, 1e-4, "a scalar added");
    ref_free_all();
    s = attend_new(EK_TYPE_F32, 4, 32, 8, 7, 7, 64, 0.5, 1);
    s.q = ek_view_swap(ref_normals(EK_TYPE_F32, 1, 1, 4, 4, 7, 32, 64), 1, 2);
    s.k = ek_view_swap(ref_normals(EK_TYPE_F32, 2, 1, 4, 4, 7, 8, 64), 1, 2);
    s.v = ek_view_swap(ref_normals(EK_TYPE_F32, 3, 1, 4, 4, 7, 8, 64), 1, 2);
    ek_view all = ref_new(EK_TYPE_U8, 4, 4, 1, 7, 7);
    memset(all.data, 1, 4 * 49);
    check(&s, &(ek_sdpa_options){.scale = 1, .mask = &all}, 1, 1e-4, 1e-4, "swapped inputs, all true");
    ref_free_all();
    /* a window as a mask, boolean and additive */
    enum { N = 128 };
    s = attend_new(EK_TYPE_F32, 1, 2, 1, N, N, 128, 0.5, 1);
    ek_view window = ref_new(EK_TYPE_U8, 2, N, N), logs = ref_new(EK_TYPE_F32, 2, N, N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            bool x = i - j >= 0 && i - j <= 111;
            ((uint8_t *)window.data)[i * N + j] = x;
            ((float *)logs.data)[i * N + j] = x ? 0 : -(float)INFINITY;
        }
    check(&s, &(ek_sdpa_options){.mask = &window}, 3, 1e-4, 1e-4, "a window as a mask");
    ek_view first = ref_dense(&s.y);
    check(&s, &(ek_sdpa_options){.mask = &logs}, 3, 1e-4, 1e-4, "a window added");
    ref_same(&first, &s.y, "the two windows");
    check(&s, &(ek_sdpa_options){.causal = true, .window = 112}, 3, 1e-4, 1e-4, "a window");
    ref_same(&first, &s.y, "mask and window");
    ref_free_all();
}

static void test_sinks(void **state)
{
    (void)state;
    for (int tq = 1; tq <= 128; tq += 127)
        for (int tk = 128; tk <= 4096; tk += 3968)
            for (int hkv = 2; hkv <= 8; hkv += 6)
                for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_F16; t++) {
                    attend_scene s = attend_new(t, 2, 8, hkv, tq, tk, 64, 0.5, 1);
                    float sinks[8];
                    for (int h = 0; h < 8; h++) sinks[h] = (float)(10 * ref_normal(11, (uint64_t)h));
                    ek_sdpa_options o = {.sinks = sinks};
                    double tol = t == EK_TYPE_F32 ? 1e-5 : 1e-2;
                    check(&s, &o, step_of(tq == 1 ? 1 : 61), tol, tol, "sinks");
                    ref_free_all();
                }
}

static void test_sliced(void **state)
{
    (void)state;
    static const int lengths[] = {8, 9, 64, 79};
    for (int b = 1; b <= 4; b *= 2)
        for (int tq = 1; tq <= 8; tq += 7)
            for (int tk = 256; tk <= 512; tk += 256)
                for (int n = 0; n < 4; n++)
                    for (int causal = 0; causal < 2; causal++) {
                        attend_scene s = attend_new(EK_TYPE_F16, b, 8, 8, tq, tk, 64, 0.5, 1);
                        s.k = ek_view_slice(s.k, 2, 0, lengths[n]), s.v = ek_view_slice(s.v, 2, 0, lengths[n]);
                        ek_sdpa_options o = {.causal = causal};
                        check(&s, &o, step_of(3), 1e-3, 1e-3, "sliced");
                        ek_view first = ref_dense(&s.y);
                        MUST(ek_sdpa(s.y, s.q, s.k, s.v, &o));
                        ref_same(&first, &s.y, "called twice");
                        ref_free_all();
                    }
}

static void test_many_splits(void **state) /* the shapes behind MLX's forced kernels */
{
    (void)state;
    static const int cases[][5] = {{8, 4, 9, 512, 192},   {8, 4, 16, 512, 256},  {4, 2, 4, 16385, 192},
                                   {4, 2, 4, 16385, 256}, {32, 8, 1, 8192, 128}, {4, 4, 3, 128, 96}};
    for (int c = 0; c < 6; c++)
        for (int causal = 0; causal < 2; causal++) {
            const int *p = cases[c];
            attend_scene s = attend_new(c == 4 ? EK_TYPE_F16 : EK_TYPE_F32, 1, p[0], p[1], p[2], p[3], p[4], 0.5, 1);
            ek_sdpa_options o = {.causal = causal};
            check(&s, &o, step_of(p[3] > 8000 ? 4 : 5), 1e-3, 1e-4, "splits");
            ref_free_all();
        }
}

/* Keys and values in MLX's quantised form, against their float values. */
static void test_quantised(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    for (int b = 0; b < 6; b++)
        for (int group = 32; group <= 128; group *= 2)
            for (int ql = 1; ql <= 9; ql += 4) {
                attend_scene s = attend_new(EK_TYPE_F32, 2, 4, 2, ql, 300, 256, 0.5, 1);
                ek_qview k = ref_quantised(EK_AFFINE, bits[b], group, &s.k),
                         v = ref_quantised(EK_AFFINE, bits[b], group, &s.v);
                ek_view kf = ref_like(&s.k, EK_TYPE_F32), vf = ref_like(&s.v, EK_TYPE_F32),
                        y = ref_like(&s.y, EK_TYPE_F32);
                MUST(ek_dequantize(kf, &k));
                MUST(ek_dequantize(vf, &v));
                ek_sdpa_options o = {.causal = true};
                MUST(ek_sdpa_quantized(s.y, s.q, &k, &v, &o));
                attend_check(&s.y, &s.q, &kf, &vf, &o, step_of(3), 1e-4, 1e-4, "quantised, %d bits, group %d", bits[b],
                             group);
                MUST(ek_sdpa(y, s.q, kf, vf, &o));
                ref_same(&y, &s.y, "quantised against its float values, %d bits, group %d", bits[b], group);
                ref_free_all();
            }
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_dims),   cmocka_unit_test(test_full_256),     cmocka_unit_test(test_vector),
        cmocka_unit_test(test_gqa_long),    cmocka_unit_test(test_fully_masked), cmocka_unit_test(test_inf_score),
        cmocka_unit_test(test_batched),     cmocka_unit_test(test_shapes),       cmocka_unit_test(test_long_masked),
        cmocka_unit_test(test_small_masks), cmocka_unit_test(test_sinks),        cmocka_unit_test(test_sliced),
        cmocka_unit_test(test_many_splits), cmocka_unit_test(test_quantised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
