/* op-test-cases 4, attention: everything here is compared bit for bit. */
#include <math.h>

#include "attend.h"
#include "base/cpu.h"
#include "lib/lib.h"
#include "ops/attn.h"

static ek_view all_true(int n_dims, int a, int b, int c, int d)
{
    ek_view v = n_dims == 0   ? ref_new(EK_TYPE_U8, 0)
                : n_dims == 1 ? ref_new(EK_TYPE_U8, 1, a)
                              : ref_new(EK_TYPE_U8, 4, a, b, c, d);
    memset(v.data, 1, (size_t)ref_count(&v));
    return v;
}

/* The mask [qL, kL] of "sees": as bytes, or as 0 and -inf. */
static ek_view rule(ek_type t, int ql, int kl, bool causal, int window)
{
    ek_view v = ref_new(t, 2, ql, kl);
    for (int i = 0; i < ql; i++)
        for (int j = 0; j < kl; j++) {
            int at = i + kl - ql;
            bool sees = (!causal || j <= at) && (!window || j > at - window);
            ref_set(&v, i * kl + j, t == EK_TYPE_U8 ? sees : sees ? 0 : -INFINITY);
        }
    return v;
}

static void run_same(const ek_view *want, const attend_scene *s, ek_sdpa_options o, const ek_view *mask,
                     const char *what)
{
    ek_view y = ref_like(&s->y, s->y.type);
    o.mask = mask;
    MUST(attend_run(y, s->q, s->k, s->v, &o));
    ref_same(want, &y, "%s: D %d, qL %d, kL %d", what, (int)s->q.dim[3], (int)s->q.dim[2], (int)s->k.dim[2]);
}

/* 4.3 */
static void test_equivalence(void **state)
{
    (void)state;
    static const int dims[] = {64, 256, 512}, qls[] = {1, 2, 7, 8, 9, 16, 64}, near[] = {16, 32, 256, 1024};
    for (int d = 0; d < 3; d++)
        for (int l = 0; l < 7; l++)
            for (int n = 0; n < 12; n++) {
                int ql = qls[l], kl = near[n / 3] + n % 3 - 1;
                if (kl < ql ||
                    (!ref_all && ((kl > 300 && (dims[d] == 512 || ql > 9)) || (dims[d] == 512 && n % 3 == 2))))
                    continue; /* thinned */
                attend_scene s = attend_f32((n + l) % 2 ? ATTEND_PAIRS : EK_TYPE_F32, 1, 4, 2, ql, kl, dims[d]);
                ek_view y = s.y, none[] = {all_true(0, 0, 0, 0, 0), all_true(1, kl, 0, 0, 0), all_true(4, 1, 4, ql, kl),
                                           ref_new(EK_TYPE_F32, 4, 1, 1, ql, kl), ref_new(EK_TYPE_BF16, 1, kl)};
                ek_sdpa_options o = {0};
                MUST(attend_run(y, s.q, s.k, s.v, &o));
                for (int m = 0; m < 5; m++) run_same(&y, &s, o, &none[m], "no mask");
                ek_view causal[] = {rule(EK_TYPE_U8, ql, kl, true, 0), rule(EK_TYPE_F32, ql, kl, true, 0),
                                    rule(EK_TYPE_F16, ql, kl, true, 0)};
                o.causal = true;
                MUST(attend_run(y, s.q, s.k, s.v, &o));
                for (int m = 0; m < 5; m++) run_same(&y, &s, o, &none[m], "causal with a mask that hides nothing");
                o.causal = false;
                for (int m = 0; m < 3; m++) run_same(&y, &s, o, &causal[m], "causal as a mask");
                int64_t zero = 0;
                for (int window = 5; window < kl; window = window * 3 + 20) {
                    ek_view w[] = {rule(EK_TYPE_U8, ql, kl, true, window), rule(EK_TYPE_F32, ql, kl, true, window),
                                   rule(EK_TYPE_U8, ql, kl, false, window)};
                    o = (ek_sdpa_options){.causal = true, .window = window, .key_start = &zero};
                    MUST(attend_run(y, s.q, s.k, s.v, &o));
                    o = (ek_sdpa_options){.key_start = &zero};
                    run_same(&y, &s, o, &w[0], "a window as a mask");
                    run_same(&y, &s, o, &w[1], "a window added");
                    o.causal = true;
                    run_same(&y, &s, o, &w[2], "half a window as a mask");
                }
                ref_free_all();
            }
}

/* What a pad may hold. */
static double pad_value(int kind, int64_t i)
{
    return kind == 0    ? 1e30
           : kind == 1  ? NAN
           : kind == 2  ? -INFINITY
           : i % 3 == 0 ? NAN
           : i % 3 == 1 ? INFINITY
                        : -1e38;
}

/* 4.4: p pads in front of a sequence, masked, leave no trace. */
static void test_left_padding(void **state)
{
    (void)state;
    static const int pads[] = {1, 3, 31, 32, 33, 255}, lengths[] = {1, 20, 300}, dims[] = {64, 256, 72};
    for (int d = 0; d < 3; d++)
        for (int n = 0; n < 3; n++)
            for (int p = 0; p < 6; p++) EACH_FORM(t)
                {
                    int pad = pads[p], len = lengths[n], dim = dims[d], kl = pad + len, ql = len < 5 ? len : 5,
                        kind = p % 4;
                    attend_scene s = attend_f32(t, 1, 4, 2, ql, kl, dim);
                    for (int64_t h = 0; h < 2; h++)
                        for (int64_t i = 0; i < (int64_t)pad * dim; i++) {
                            ref_set(&s.k, h * kl * dim + i, pad_value(kind, i));
                            ref_set(&s.v, h * kl * dim + i, pad_value(kind, i + 1));
                        }
                    ek_view mask = all_true(4, 1, 1, 1, kl), added = ref_new(EK_TYPE_F32, 1, kl),
                            square = rule(EK_TYPE_U8, ql, kl, true, 0);
                    for (int j = 0; j < pad; j++) {
                        ((uint8_t *)mask.data)[j] = 0;
                        ref_set(&added, j, -INFINITY);
                        for (int i = 0; i < ql; i++) ((uint8_t *)square.data)[i * kl + j] = 0;
                    }
                    for (int causal = 0; causal < 2; causal++) {
                        ek_sdpa_options o = {.causal = causal};
                        MUST(attend_run(s.y, s.q, ek_view_slice(s.k, 2, pad, kl), ek_view_slice(s.v, 2, pad, kl),
                                        &o)); /* unpadded */
                        run_same(&s.y, &s, o, &mask, "left padding");
                        run_same(&s.y, &s, o, &added, "left padding, added");
                        if (causal)
                            run_same(&s.y, &s, (ek_sdpa_options){0}, &square, "left padding and causal in one mask");
                        int64_t start = -pad;
                        o.key_start = &start;
                        run_same(&s.y, &s, o, NULL, "left padding by position");
                        run_same(&s.y, &s, o, &mask, "left padding by position and mask");
                    }
                    ref_free_all();
                }
}

/* A batch of sequences of different lengths, each as if it were alone. */
static void test_padded_batch(void **state)
{
    (void)state;
    enum { B = 4, H = 4, HKV = 2, KL = 290, D = 128, QL = 3 };
    static const int len[B] = {290, 1, 33, 257};
    EACH_FORM(t)
    {
        attend_scene s = attend_f32(t, B, H, HKV, QL, KL, D);
        ek_view mask = ref_new(EK_TYPE_U8, 4, B, 1, 1, KL);
        for (int b = 0; b < B; b++)
            for (int j = 0; j < KL; j++) {
                bool pad = j < KL - len[b];
                ((uint8_t *)mask.data)[b * KL + j] = !pad;
                for (int64_t h = 0; pad && h < HKV; h++)
                    for (int64_t d = 0; d < D; d++) {
                        ref_set(&s.k, ((b * HKV + h) * KL + j) * D + d, NAN);
                        ref_set(&s.v, ((b * HKV + h) * KL + j) * D + d, pad_value(b, d));
                    }
            }
        for (int causal = 0; causal < 2; causal++) {
            ek_sdpa_options o = {.mask = &mask, .causal = causal};
            MUST(attend_run(s.y, s.q, s.k, s.v, &o));
            for (int b = 0; b < B; b++) {
                ek_view q = ek_view_slice(s.q, 0, b, b + 1),
                        k = ek_view_slice(ek_view_slice(s.k, 0, b, b + 1), 2, KL - len[b], KL);
                ek_view v = ek_view_slice(ek_view_slice(s.v, 0, b, b + 1), 2, KL - len[b], KL),
                        got = ek_view_slice(s.y, 0, b, b + 1), y = ref_like(&got, EK_TYPE_F32);
                o.mask = NULL;
                MUST(attend_run(y, q, k, v, &o));
                ref_same(&y, &got, "entry %d of %d keys, causal %d", b, len[b], causal);
                o.mask = &mask;
            }
        }
        ref_free_all();
    }
}

/* Garbage behind any hole of any mask, whole segments of it too. */
static void test_garbage(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (int hole = 0; hole < 4; hole++)
            for (int ql = 1; ql <= 9; ql += 4) {
                enum { KL = 900, D = 64 };
                int t = (kind + hole) % 2 ? ATTEND_PAIRS : EK_TYPE_F32;
                attend_scene s = attend_f32(t, 1, 2, 1, ql, KL, D);
                ek_view mask = ref_new(EK_TYPE_U8, 1, KL), y = ref_like(&s.y, EK_TYPE_F32);
                for (int j = 0; j < KL; j++) {
                    bool seen = hole == 0   ? j % 2
                                : hole == 1 ? j < 200 || j > 600
                                : hole == 2 ? j == 511 || j == 899
                                            : j % 17 < 11;
                    ((uint8_t *)mask.data)[j] = seen;
                    if (j == 0) ((uint8_t *)mask.data)[j] = 1; /* the sequence begins here */
                }
                ek_sdpa_options o = {.mask = &mask};
                MUST(attend_run(y, s.q, s.k, s.v, &o));
                attend_check(&y, &s.q, &s.k, &s.v, &o, 1, t == ATTEND_PAIRS ? 5e-3 : 1e-4,
                             t == ATTEND_PAIRS ? 5e-3 : 1e-5, "hole %d", hole);
                for (int j = 0; j < KL; j++)
                    for (int d = 0; d < D && !((uint8_t *)mask.data)[j]; d++) {
                        ref_set(&s.k, j * D + d, pad_value(kind, d));
                        ref_set(&s.v, j * D + d, pad_value(kind, d + 1));
                    }
                run_same(&y, &s, o, &mask, "garbage under a mask");
                ref_free_all();
            }
}

/* A key that some queries see and others do not: its NaN reaches the ones and not the others. */
static void test_garbage_for_some(void **state)
{
    (void)state;
    enum { H = 4, QL = 9, KL = 300, D = 64 };
    for (int kind = 0; kind < 4; kind++) {
        attend_scene s = attend_new(kind % 2 ? ATTEND_PAIRS : EK_TYPE_F32, 1, H, 2, QL, KL, D, 1, 1);
        ek_view y = ref_like(&s.y, EK_TYPE_F32), got = ref_like(&s.y, EK_TYPE_F32),
                mask = rule(EK_TYPE_U8, QL, KL, true, 0);
        ek_sdpa_options causal = {.causal = true}, masked = {.mask = &mask};
        for (int i = 0; i < QL; i++) /* and a hole that is elsewhere for every query */
            ((uint8_t *)mask.data)[i * KL + 100 + i] = 0;
        const ek_sdpa_options *o = kind < 2 ? &causal : &masked;
        MUST(attend_run(y, s.q, s.k, s.v, o));
        for (int j = KL - 3; j < KL; j++) /* the last three queries see one, two and three of these */
            for (int h = 0; h < 2; h++)
                for (int d = 0; d < D; d++) {
                    ref_set(&s.k, (h * KL + j) * D + d, kind % 2 ? NAN : 1);
                    ref_set(&s.v, (h * KL + j) * D + d, NAN);
                }
        for (int h = 0; h < 2 && kind >= 2; h++) /* the hole of query 0 */
            for (int d = 0; d < D; d++) ref_set(&s.v, (h * KL + 100) * D + d, NAN);
        MUST(attend_run(got, s.q, s.k, s.v, o));
        for (int h = 0; h < H; h++)
            for (int i = 0; i < QL; i++) {
                bool hit = i >= QL - 3 || (kind >= 2 && i > 0);
                ek_view a = ek_view_slice(ek_view_slice(y, 1, h, h + 1), 2, i, i + 1),
                        b = ek_view_slice(ek_view_slice(got, 1, h, h + 1), 2, i, i + 1);
                if (!hit) ref_same(&a, &b, "head %d, query %d, kind %d", h, i, kind);
                else assert_true(isnan(ref_get(&b, 0)));
            }
        ref_free_all();
    }
}

/* Seen keys whose scores are all -inf, beside hidden ones: equal weights for the seen alone. */
static void test_only_inf(void **state)
{
    (void)state;
    enum { KL = 40, D = 16 };
    attend_scene s = attend_new(EK_TYPE_F32, 1, 1, 1, 1, KL, D, 1, 1);
    ek_view mask = ref_new(EK_TYPE_U8, 1, KL);
    double want[D] = {0};
    int n = 0;
    for (int j = 0; j < KL; j++) {
        bool seen = j == 0 || j % 3 == 1;
        ((uint8_t *)mask.data)[j] = seen;
        n += seen;
        for (int d = 0; d < D; d++) {
            ref_set(&s.k, j * D + d, -INFINITY);
            if (seen) want[d] += ref_get(&s.v, j * D + d);
            else ref_set(&s.v, j * D + d, NAN);
        }
    }
    for (int d = 0; d < D; d++) want[d] /= n;
    ek_sdpa_options o = {.mask = &mask};
    MUST(attend_run(s.y, s.q, s.k, s.v, &o));
    ref_near(&s.y, want, 1e-6, "only scores of -inf");
    ref_free_all();
}

/* 4.5: threads, instruction sets, chunks of queries, one head at a time, turned memory. */
static void test_company(void **state)
{
    (void)state;
    static const int cases[][5] = {
        {40, 700, 64, 4, 2}, {3, 2100, 256, 8, 1}, {1, 5000, 128, 4, 4}, {17, 300, 512, 2, 1}, {9, 270, 72, 6, 2}};
    unsigned cpu = lib_cpu();
    for (int c = 0; c < 5; c++) EACH_FORM(t)
    for (int window = 0; window <= 100; window += 100) {
        int ql = cases[c][0], kl = cases[c][1], d = cases[c][2], h = cases[c][3], hkv = cases[c][4];
        attend_scene s = attend_new(t, 1, h, hkv, ql, kl, d, 1, 1);
        ek_sdpa_options o = {.causal = true, .window = window};
        ek_view y = ref_like(&s.y, EK_TYPE_F32), again = ref_like(&s.y, EK_TYPE_F32);
        MUST(ek_set_threads(1));
        MUST(attend_run(y, s.q, s.k, s.v, &o));
        for (int threads = 2; threads <= 9; threads += 3) {
            MUST(ek_set_threads(threads));
            MUST(attend_run(again, s.q, s.k, s.v, &o));
            ref_same(&y, &again, "%d threads", threads);
        }
        MUST(ek_set_threads(2));
        for (const char *const *isa = ek_cpu_isas(); *isa; isa++) {
            unsigned mask;
            if (ek_cpu_mask(*isa, &mask) != EK_OK || (isa == ek_cpu_isas() && kl > 2000 && !ref_all)) continue;
            lib_force_cpu(mask);
            MUST(attend_run(again, s.q, s.k, s.v, &o));
            lib_force_cpu(cpu);
            ref_same(&y, &again, "%s, case %d", *isa, c);
        }
        for (int from = 0, to; from < ql; from = to) { /* chunks of queries, keys up to their end */
            to = from + 1 + from % 6 < ql ? from + 1 + from % 6 : ql;
            int end = kl - ql + to;
            ek_view part = ek_view_slice(y, 2, from, to), chunk = ref_like(&part, EK_TYPE_F32);
            MUST(attend_run(chunk, ek_view_slice(s.q, 2, from, to), ek_view_slice(s.k, 2, 0, end),
                            ek_view_slice(s.v, 2, 0, end), &o));
            ref_same(&part, &chunk, "rows %d to %d of case %d", from, to, c);
        }
        for (int i = 0; i < h; i++) { /* one query head, its KV head */
            int kv = i / (h / hkv);
            ek_view part = ek_view_slice(y, 1, i, i + 1), one = ref_like(&part, EK_TYPE_F32);
            MUST(attend_run(one, ek_view_slice(s.q, 1, i, i + 1), ek_view_slice(s.k, 1, kv, kv + 1),
                            ek_view_slice(s.v, 1, kv, kv + 1), &o));
            ref_same(&part, &one, "head %d of case %d", i, c);
        }
        ek_view k = ek_view_swap(ref_new(attend_type(t), 4, 1, hkv, d, kl), 2, 3),
                v = ek_view_reverse(ref_like(&s.v, attend_type(t)), 2);
        MUST(ek_copy(k, s.k)); /* element by element apart, and backwards */
        MUST(ek_copy(v, s.v));
        MUST(attend_run(again, s.q, k, v, &o));
        ref_same(&y, &again, "views, case %d", c);
        ref_free_all();
    }
    MUST(ek_set_threads(0));
}

/* A longer context in front, cut away by the window's segments: an explicit first position. */
static void test_first_position(void **state)
{
    (void)state;
    enum { KL = 1000, CUT = 701, W = 150, D = 64, QL = 2 };
    EACH_FORM(t)
    {
        attend_scene s = attend_f32(t, 1, 2, 1, QL, KL, D);
        ek_sdpa_options o = {.causal = true, .window = W};
        MUST(attend_run(s.y, s.q, s.k, s.v, &o));
        int64_t start = CUT;
        o.key_start = &start;
        ek_view y = ref_like(&s.y, EK_TYPE_F32);
        MUST(attend_run(y, s.q, ek_view_slice(s.k, 2, CUT, KL), ek_view_slice(s.v, 2, CUT, KL), &o));
        ref_same(&s.y, &y, "keys from position %d", CUT);
        ref_free_all();
    }
}

/* The engine's paged attention gives the same bits. */
static void test_engine(void **state)
{
    (void)state;
    static const int dims[] = {64, 256, 512};
    enum { H = 8, HKV = 2, KL = 700, QL = 5 };
    for (int d = 0; d < 3; d++)
        for (int f = 0; f < 2; f++)
            for (int window = 0; window <= 300; window += 300) {
                int dim = dims[d];
                ek_type t = f ? EK_TYPE_BF16 : EK_TYPE_F32;
                ek_kv_format format = f ? EK_KV_BF16 : EK_KV_F32;
                attend_scene s = attend_new(t, 1, H, HKV, QL, KL, dim, 1, 1);
                s.q = ref_normals(EK_TYPE_F32, 1, 0.5, 4, 1, H, QL, dim);
                ek_attn_shape shape = {.kind = window ? EK_SLIDING : EK_FULL,
                                       .k_format = format,
                                       .v_format = format,
                                       .n_heads = H,
                                       .n_kv_heads = HKV,
                                       .head_dim = dim};
                ek_attn *a;
                assert_int_equal(ek_attn_plan(&a, ek_cpu_detect(), &shape), EK_OK);
                size_t bytes = ek_kv_block_bytes(format, format, HKV, dim);
                int32_t page[KL / EK_PAGE_TOKENS + 1];
                for (int p = 0; p <= KL / EK_PAGE_TOKENS; p++) page[p] = p;
                ek_kv_view view = {ref_take(bytes * (KL / EK_PAGE_TOKENS + 1)), bytes, page};
                float *k = ref_take(sizeof *k * HKV * (size_t)dim), *v = ref_take(sizeof *v * HKV * (size_t)dim);
                for (int j = 0; j < KL; j++) {
                    for (int h = 0; h < HKV; h++)
                        for (int n = 0; n < dim; n++) {
                            k[h * dim + n] = (float)ref_at(&s.k, (int64_t[]){0, h, j, n});
                            v[h * dim + n] = (float)ref_at(&s.v, (int64_t[]){0, h, j, n});
                        }
                    ek_attn_store(a, &view, j, k, v);
                }
                ek_attn_row row[QL];
                float *q = ref_take(sizeof *q * QL * H * (size_t)dim);
                ek_view o = ref_new(EK_TYPE_F32, 3, QL, H, dim), qv = ek_view_3d(q, EK_TYPE_F32, QL, H, dim);
                for (int i = 0; i < QL; i++) {
                    int end = KL - QL + i + 1;
                    row[i] = (ek_attn_row){0, window ? end - window : 0, end};
                }
                ek_view heads_first = ek_view_swap(qv, 0, 1), queries = s.q;
                queries.n_dims = 3;
                memmove(queries.dim, queries.dim + 1, 3 * sizeof queries.dim[0]),
                    memmove(queries.stride, queries.stride + 1, 3 * sizeof queries.stride[0]);
                MUST(ek_copy(heads_first, queries));
                ek_attn_run(a, NULL, &view, row, QL, q, H * dim, o.data, H * dim,
                            ref_take(ek_attn_scratch_bytes(a, QL, KL, 1)));
                ek_sdpa_options how = {.scale = 1, .causal = true, .window = window};
                s.y = ref_like(&s.y, EK_TYPE_F32);
                MUST(attend_run(s.y, s.q, s.k, s.v, &how));
                ek_view got = ek_view_insert(ek_view_swap(o, 0, 1), 0);
                ref_same(&s.y, &got, "the engine's pages, D %d, %s, window %d", dim, f ? "bf16" : "f32", window);
                ek_attn_free(a);
                ref_free_all();
            }
}

int main(int argc, char **argv)
{
    ref_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equivalence),      cmocka_unit_test(test_left_padding),
        cmocka_unit_test(test_padded_batch),     cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_garbage_for_some), cmocka_unit_test(test_only_inf),
        cmocka_unit_test(test_company),          cmocka_unit_test(test_first_position),
        cmocka_unit_test(test_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
