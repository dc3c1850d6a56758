/* Attention against float64 over a grid of shapes, with a tolerance per type: head sizes, long contexts, masks of every
 * shape, sinks, views, quantised keys. Long cases check some of their rows; "all" checks every row of every case. Rows
 * are also taken alone: the same bits. */
/* tier: all */
#include <math.h>

#include "attend.h"

static double tolerance(int form)
{
    return form == EK_TYPE_F32 ? 1e-5 : form == EK_TYPE_F16 ? 3e-4 : 5e-3;
}

/* Every row, or one of `thinned`. */
static int step_of(int thinned)
{
    return ref_all ? 1 : thinned;
}

/* A middle row of the last entry has the same bits when it is alone. Nothing may depend on its position. */
static void check_row_alone(const attend_scene *s, const ek_sdpa_options *o, const char *what)
{
    const int64_t i = s->q.dim[2] / 2;
    const attend_scene row = attend_rows(attend_entry(*s, s->q.dim[0] - 1), i, i + 1);
    attend_same(&row.y, &row, o, "%s: row %d alone", what, (int)i);
}

static void check(const attend_scene *s, const ek_sdpa_options *o, int step, double rtol, double atol, const char *what)
{
    attend_run(s, o);
    attend_check(s, o, step, rtol, atol, "%s", what);
    if (!o || (!o->mask && !o->causal && !o->window)) check_row_alone(s, o, what);
}

/* [B, H, L, D], uniform, as a view of [B, L, H, D]. */
static ek_view turned(ek_type t, uint64_t key, double max, int b, int h, int l, int d)
{
    return ek_view_swap(ref_uniforms(t, key, 0, max, 4, b, l, h, d), 1, 2);
}

static void check_head_dim(int form, int rows, int keys, int dim)
{
    const double scale = 1 / sqrt(dim);
    for (enum attend_mask m = 0; m < ATTEND_MASKS; m++) {
        const attend_scene s = attend_new(form, (attend_sizes){1, 8, 2, rows, keys, dim}, 0.5, scale);
        ek_sdpa_options o;
        ek_view mask;
        attend_options(&o, &mask, m, &s, scale);
        check(&s, &o, step_of(23), tolerance(form), tolerance(form), "head sizes");
        ref_free_all();
    }
}

static void test_head_dims(void **state)
{
    (void)state;
    static const int dims[] = {72, 96, 1, 80, 192, 512};
    for (int d = 0; d < 6; d++)
        for (int rows = 64; rows <= 65; rows++)
            for (int keys = 127; keys <= 128; keys++) EACH_FORM(form) check_head_dim(form, rows, keys, dims[d]);
}

/* Rows behind the keys, in the same memory, hold NaN: they must not matter. */
static void spoil_behind(const attend_scene *s, int keys)
{
    for (int64_t h = 0; h < s->k.dim[1]; h++)
        for (int64_t j = keys; j < s->k.dim[2]; j++)
            for (int64_t d = 0; d < s->k.dim[3]; d++) {
                attend_set(s, &s->k, h, j, d, NAN);
                attend_set(s, &s->v, h, j, d, NAN);
            }
}

static void test_full_256(void **state)
{
    (void)state;
    static const struct {
        int rows, keys, room;
        bool thinned;   /* left out unless all is wanted */
        bool each_form; /* not f32 alone */
    } cases[] = {{2048, 2048, 2048, true, false}, {2049, 2049, 2049, false, false}, {2048, 2560, 2560, true, false},
                 {2049, 2560, 2560, true, false}, {2049, 2049, 2304, false, true},  {2048, 2500, 2560, false, false},
                 {1031, 2049, 2304, false, false}};
    for (int c = 0; c < 7; c++) EACH_FORM(form)
        {
            if (form == EK_TYPE_F16 || (!ref_all && (cases[c].thinned || (form != EK_TYPE_F32 && !cases[c].each_form))))
                continue;
            const attend_scene room = attend_new(form, (attend_sizes){1, 8, 2, cases[c].rows, cases[c].room, 256}, 0.5,
                                                 1.0 / 16);
            spoil_behind(&room, cases[c].keys);
            const attend_scene s = attend_keys(room, 0, cases[c].keys);
            const ek_sdpa_options o = {.scale = 1.0f / 16, .causal = true};
            check(&s, &o, step_of(509), 1e-4, form == EK_TYPE_F32 ? 1e-4 : 5e-3, "heads of 256");
            ref_free_all();
        }
}

/* Masks of l keys for h heads: one for all, one per key, one per head and key, the same turned, and additive ones. */
typedef struct vector_masks {
    ek_view one, tail, some, some_turned, added, added_turned, logs;
} vector_masks;

static vector_masks masks_new(int h, int l)
{
    vector_masks m = {.one = ref_new(EK_TYPE_U8, 0),
                      .tail = ref_new(EK_TYPE_U8, 1, l),
                      .some = ref_new(EK_TYPE_U8, 3, h, 1, l),
                      .some_turned = ref_new(EK_TYPE_U8, 3, l, 1, h),
                      .added = ref_uniforms(EK_TYPE_F32, 6, 0, 1, 3, h, 1, l),
                      .added_turned = ref_new(EK_TYPE_F32, 3, l, 1, h),
                      .logs = ref_new(EK_TYPE_F32, 3, h, 1, l)};
    ref_set(&m.one, 0, 1);
    for (int j = 0; j < l; j++) ref_set(&m.tail, j, j < l - 10);
    for (int i = 0; i < h * l; i++) {
        const bool visible = ref_uniform(7, (uint64_t)i) < 0.8;
        const int across = i % l * h + i / l;
        ref_set(&m.some, i, visible), ref_set(&m.some_turned, across, visible);
        ref_set(&m.logs, i, visible ? 0 : -INFINITY);
        ref_set(&m.added_turned, across, ref_get(&m.added, i));
    }
    m.some_turned = ek_view_swap(m.some_turned, 0, 2), m.added_turned = ek_view_swap(m.added_turned, 0, 2);
    return m;
}

static void check_masks(const attend_scene *s, float scale, const char *what)
{
    const vector_masks m = masks_new((int)s->q.dim[1], (int)s->k.dim[2]);
    const ek_view *const all[] = {&m.one, &m.tail, &m.some, &m.some_turned, &m.added, &m.added_turned, &m.logs};
    for (int causal = 0; causal < 2; causal++)
        check(s, &(ek_sdpa_options){.scale = scale, .causal = causal}, 1, 1e-4, 1e-4, what);
    for (int i = 0; i < 7; i++) check(s, &(ek_sdpa_options){.scale = scale, .mask = all[i]}, 1, 1e-4, 1e-4, what);
    attend_run(s, &(ek_sdpa_options){.scale = scale, .mask = &m.some});
    attend_same(&s->y, s, &(ek_sdpa_options){.scale = scale, .mask = &m.some_turned}, "%s: a turned mask", what);
    attend_same(&s->y, s, &(ek_sdpa_options){.scale = scale, .mask = &m.logs}, "%s: a mask as 0 and -inf", what);
    attend_run(s, &(ek_sdpa_options){.scale = scale, .mask = &m.added});
    attend_same(&s->y, s, &(ek_sdpa_options){.scale = scale, .mask = &m.added_turned}, "%s: turned, added", what);
}

static const int vector_lengths[] = {43, 4096};

static void test_vector(void **state)
{
    (void)state;
    for (int n = 0; n < 2; n++) {
        const int l = vector_lengths[n];
        attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){1, 4, 1, 1, l, 64}, 0.5, 1);
        check_masks(&s, 1, "one query");
        s.k = turned(EK_TYPE_F32, 2, 0.5, 1, 1, l, 64), s.v = turned(EK_TYPE_F32, 3, 1, 1, 1, l, 64);
        check_masks(&s, 0.125f, "one query, turned keys and values");
        ref_free_all();
    }
}

static void test_few_queries(void **state)
{
    (void)state;
    for (int n = 0; n < 2; n++) {
        attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){1, 8, 1, 8, vector_lengths[n], 64}, 0.5, 1);
        if (n == 0) s.q = turned(EK_TYPE_F32, 1, 0.5, 1, 8, 8, 64);
        check_masks(&s, 0.125f, "few queries");
        ref_free_all();
    }
}

static void test_mask_that_does_not_fit(void **state)
{
    (void)state;
    const attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){1, 4, 1, 1, 43, 64}, 0.5, 1);
    const ek_view bad = ref_new(EK_TYPE_U8, 3, 4, 2, 43);
    assert_int_equal(ek_sdpa(s.y, s.q, s.k, s.v, &(ek_sdpa_options){.mask = &bad}), EK_BAD_ARGUMENT);
    ref_free_all();
}

static void test_gqa_long(void **state)
{
    (void)state;
    static const int cases[][3] = {{32, 4, 128}, {64, 8, 64}};
    for (int c = 0; c < 2; c++)
        for (int l = 8192; l <= 8201; l += 9) {
            if (!ref_all && (c + l) % 2) continue; /* thinned to two of four */
            const int heads = cases[c][0], per = heads / cases[c][1];
            const attend_sizes sizes = {1, heads, cases[c][1], 1, l + 32, cases[c][2]};
            const attend_scene s = attend_keys(attend_new(EK_TYPE_F32, sizes, 0.5, 1), 0, l);
            attend_run(&s, NULL);
            const attend_scene judged = ref_all ? s : attend_heads(s, per, per + 2);
            attend_check(&judged, NULL, 1, 1e-4, 1e-4, "many heads on few, long");
            check_row_alone(&s, NULL, "many heads on few, long");
            ref_free_all();
        }
}

static void test_fully_masked(void **state)
{
    (void)state;
    for (int lq = 1; lq <= 32; lq += lq == 1 ? 7 : 24) {
        attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){1, 4, 4, lq, 8, 128}, 0.5, 1);
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
            attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){1, 4, 4, lq, 8, d}, 0.5, 1);
            for (int h = 0; h < 4; h++)
                for (int i = 0; i < d; i++) ref_set(&s.k, h * 8 * d + i, -INFINITY);
            check(&s, NULL, 1, 1e-4, 1e-4, "a score of -inf");
            ref_free_all();
        }
}

static void test_batched(void **state)
{
    (void)state;
    static const struct {
        int heads, kv_heads;
        bool turned_q, turned_k, masked;
    } cases[] = {{1, 1, false, false, false},
                 {4, 1, false, false, false},
                 {4, 1, true, false, false},
                 {4, 2, true, true, false},
                 {4, 1, true, true, true}};
    for (int c = 0; c < 5; c++) {
        const int h = cases[c].heads, hkv = cases[c].kv_heads;
        attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){2, h, hkv, 3, 3, 64}, 0.5, 1);
        if (cases[c].turned_q) s.q = turned(EK_TYPE_F32, 8, 0.5, 2, h, 3, 64);
        if (cases[c].turned_k) s.k = turned(EK_TYPE_F32, 9, 0.5, 2, hkv, 3, 64);
        const ek_view mask = ek_view_swap(ref_normals(EK_TYPE_F32, 10, 10, 4, 2, 3, 1, 3), 1, 2);
        for (int causal = 0; causal < 2; causal++)
            check(&s, &(ek_sdpa_options){.causal = causal, .mask = cases[c].masked ? &mask : NULL}, 1, 1e-4, 1e-4,
                  "batched");
        ref_free_all();
    }
}

static void check_shape(attend_sizes n, ek_type t, bool swapped, enum attend_mask m)
{
    const double scale = 1 / sqrt(n.dim), tol = t == EK_TYPE_F32 ? 2e-5 : 3e-4;
    attend_scene s = attend_new((int)t, n, 0.5, scale);
    if (swapped) {
        s.q = turned(t, 1, 0.5, 1, n.heads, n.rows, n.dim);
        s.k = turned(t, 2, 0.5, 1, n.kv_heads, n.keys, n.dim);
        s.v = turned(t, 3, scale, 1, n.kv_heads, n.keys, n.dim);
    }
    ek_sdpa_options o;
    ek_view mask;
    attend_options(&o, &mask, m, &s, scale);
    check(&s, &o, step_of(n.rows > 8 ? 97 : 1), tol, tol, swapped ? "shapes, swapped" : "shapes");
    ref_free_all();
}

/* Causal rows before the first key are zeros: shapes with more rows than keys. */
static void test_shapes(void **state)
{
    (void)state;
    static const attend_sizes prompts[] = {
        {1, 3, 3, 20, 20, 64},     {1, 24, 24, 63, 63, 64},  {1, 24, 24, 129, 129, 64}, {1, 24, 24, 400, 400, 64},
        {1, 32, 32, 128, 128, 64}, {1, 32, 32, 64, 128, 64}, {1, 32, 8, 65, 128, 64},   {1, 32, 8, 64, 127, 64},
        {1, 32, 8, 65, 127, 64},   {1, 32, 8, 127, 65, 64},  {1, 32, 8, 128, 128, 128}, {1, 32, 8, 64, 128, 128},
        {1, 32, 8, 65, 127, 128},  {1, 32, 8, 127, 65, 128}};
    static const int decode[] = {7, 9, 32, 63, 67, 129, 400, 2000};
    enum { PROMPTS = sizeof prompts / sizeof *prompts, DECODES = 2 * sizeof decode / sizeof *decode };
    for (int c = 0; c < PROMPTS + DECODES; c++) {
        const int n = c - PROMPTS;
        const attend_sizes sizes = c < PROMPTS ? prompts[c]
                                               : (attend_sizes){1, 32, n % 2 ? 8 : 32, 1, decode[n / 2], 128};
        for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_F16; t++)
            for (int swapped = 0; swapped < 2; swapped++)
                for (enum attend_mask m = 0; m < ATTEND_MASKS; m++)
                    if (ref_all || (c + (int)t + swapped + (int)m) % 3 == 0) check_shape(sizes, t, swapped, m);
    }
}

static void test_long_masked(void **state)
{
    (void)state;
    static const int kls[] = {8192, 36864, 49152, 66048};
    for (int c = 0; c < (ref_all ? 4 : 1); c++) { /* thinned: the shortest, with fewer queries and heads */
        int kl = kls[c], h = ref_all ? 32 : 4, hkv = ref_all ? 16 : 2, ql = ref_all ? 512 : 40;
        attend_scene s = attend_new(EK_TYPE_F16, (attend_sizes){1, h, hkv, ql, kl, 64}, 0.5, 0.125);
        ek_view mask = ref_new(EK_TYPE_F16, 4, 1, 1, 1, kl);
        for (int j = 0; j < kl - 1024; j++) ref_set(&mask, j, -1e4);
        ek_sdpa_options o = {.mask = &mask};
        check(&s, &o, 199, 1e-3, 1e-3, "long, masked");
        ref_free_all();
    }
}

static void test_scalar_masks(void **state)
{
    (void)state;
    const attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){1, 4, 1, 256, 256, 64}, 0.5, 0.125);
    const ek_view one = ref_new(EK_TYPE_U8, 0), two = ref_new(EK_TYPE_BF16, 0);
    ref_set(&one, 0, 1), ref_set(&two, 0, 2);
    check(&s, &(ek_sdpa_options){.mask = &one}, 31, 1e-4, 1e-4, "a scalar mask");
    check(&s, &(ek_sdpa_options){.mask = &two}, 31, 1e-4, 1e-4, "a scalar added");
    ref_free_all();
}

static void test_swapped_inputs(void **state)
{
    (void)state;
    attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){4, 32, 8, 7, 7, 64}, 0.5, 1);
    s.q = ek_view_swap(ref_normals(EK_TYPE_F32, 1, 1, 4, 4, 7, 32, 64), 1, 2);
    s.k = ek_view_swap(ref_normals(EK_TYPE_F32, 2, 1, 4, 4, 7, 8, 64), 1, 2);
    s.v = ek_view_swap(ref_normals(EK_TYPE_F32, 3, 1, 4, 4, 7, 8, 64), 1, 2);
    const ek_view all = ref_new(EK_TYPE_U8, 4, 4, 1, 7, 7);
    memset(all.data, 1, (size_t)ref_count(&all));
    check(&s, &(ek_sdpa_options){.scale = 1, .mask = &all}, 1, 1e-4, 1e-4, "swapped inputs, all visible");
    ref_free_all();
}

/* A window as an option, as a mask and as 0 and -inf. */
static void test_window_as_mask(void **state)
{
    (void)state;
    enum { N = 128, WINDOW = 112 };
    const attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){1, 2, 1, N, N, 128}, 0.5, 1);
    const ek_view window = ref_new(EK_TYPE_U8, 2, N, N), logs = ref_new(EK_TYPE_F32, 2, N, N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            const bool visible = i - j >= 0 && i - j < WINDOW;
            ref_set(&window, i * N + j, visible);
            ref_set(&logs, i * N + j, visible ? 0 : -INFINITY);
        }
    check(&s, &(ek_sdpa_options){.mask = &logs}, 3, 1e-4, 1e-4, "a window added");
    check(&s, &(ek_sdpa_options){.causal = true, .window = WINDOW}, 3, 1e-4, 1e-4, "a window");
    check(&s, &(ek_sdpa_options){.mask = &window}, 3, 1e-4, 1e-4, "a window as a mask");
    attend_same(&s.y, &s, &(ek_sdpa_options){.mask = &logs}, "a window added, or as a mask");
    attend_same(&s.y, &s, &(ek_sdpa_options){.causal = true, .window = WINDOW}, "a window, or as a mask");
    ref_free_all();
}

static void test_sinks(void **state)
{
    (void)state;
    for (int tq = 1; tq <= 128; tq += 127)
        for (int tk = 128; tk <= 4096; tk += 3968)
            for (int hkv = 2; hkv <= 8; hkv += 6)
                for (ek_type t = EK_TYPE_F32; t <= EK_TYPE_F16; t++) {
                    attend_scene s = attend_new((int)t, (attend_sizes){2, 8, hkv, tq, tk, 64}, 0.5, 1);
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
                        attend_scene s = attend_new(EK_TYPE_F16, (attend_sizes){b, 8, 8, tq, tk, 64}, 0.5, 1);
                        s = attend_keys(s, 0, lengths[n]);
                        ek_sdpa_options o = {.causal = causal};
                        check(&s, &o, step_of(3), 1e-3, 1e-3, "sliced");
                        attend_same(&s.y, &s, &o, "called twice");
                        ref_free_all();
                    }
}

/* Shapes for which MLX has kernels of its own. */
static void test_many_splits(void **state)
{
    (void)state;
    static const int cases[][5] = {{8, 4, 9, 512, 192},   {8, 4, 16, 512, 256},  {4, 2, 4, 16385, 192},
                                   {4, 2, 4, 16385, 256}, {32, 8, 1, 8192, 128}, {4, 4, 3, 128, 96}};
    for (int c = 0; c < 6; c++)
        for (int causal = 0; causal < 2; causal++) {
            const int *p = cases[c];
            attend_scene s = attend_new(c == 4 ? EK_TYPE_F16 : EK_TYPE_F32,
                                        (attend_sizes){1, p[0], p[1], p[2], p[3], p[4]}, 0.5, 1);
            ek_sdpa_options o = {.causal = causal};
            check(&s, &o, step_of(p[3] > 8000 ? 4 : 5), 1e-3, 1e-4, "splits");
            ref_free_all();
        }
}

/* Keys and values in MLX's quantised form, against their float values. */
static void check_quantised(int bits, int group, int rows)
{
    const attend_scene s = attend_new(EK_TYPE_F32, (attend_sizes){2, 4, 2, rows, 300, 256}, 0.5, 1);
    const ek_qview k = ref_quantised(EK_AFFINE, bits, group, &s.k), v = ref_quantised(EK_AFFINE, bits, group, &s.v);
    const ek_sdpa_options o = {.causal = true};
    attend_scene values = s;
    values.k = ref_like(&s.k, EK_TYPE_F32), values.v = ref_like(&s.v, EK_TYPE_F32);
    MUST(ek_dequantize(values.k, &k));
    MUST(ek_dequantize(values.v, &v));
    MUST(ek_sdpa_quantized(s.y, s.q, &k, &v, &o));
    attend_check(&values, &o, step_of(3), 1e-4, 1e-4, "quantised, %d bits, group %d", bits, group);
    attend_same(&s.y, &values, &o, "quantised against its float values, %d bits, group %d", bits, group);
    ref_free_all();
}

static void test_quantised(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    for (int b = 0; b < 6; b++)
        for (int group = 32; group <= 128; group *= 2)
            for (int rows = 1; rows <= 9; rows += 4) check_quantised(bits[b], group, rows);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        REF_TEST(test_head_dims),
        REF_TEST(test_full_256),
        REF_TEST(test_vector),
        REF_TEST(test_few_queries),
        REF_TEST(test_mask_that_does_not_fit),
        REF_TEST(test_gqa_long),
        REF_TEST(test_fully_masked),
        REF_TEST(test_inf_score),
        REF_TEST(test_batched),
        REF_TEST(test_shapes),
        REF_TEST(test_long_masked),
        REF_TEST(test_scalar_masks),
        REF_TEST(test_swapped_inputs),
        REF_TEST(test_window_as_mask),
        REF_TEST(test_sinks),
        REF_TEST(test_sliced),
        REF_TEST(test_many_splits),
        REF_TEST(test_quantised),
    };
    return REF_RUN(argc, argv, tests);
}
