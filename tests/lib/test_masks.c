/* Masks, causal, windows, padding and first positions express the same visibility in several ways, and give the same
 * bits. Hidden keys may hold anything. */
/* tier: all */
#include <math.h>

#include "attend.h"

/* ------------------------------------------------------------------ masks */

static ek_view all_true(ek_view mask)
{
    memset(mask.data, 1, (size_t)ref_count(&mask));
    return mask;
}

/* The mask [qL, kL] of causal and window: as bytes, or as 0 and -inf. */
static ek_view rule(ek_type t, const attend_scene *s, bool causal, int window)
{
    const int rows = (int)s->q.dim[2], keys = (int)s->k.dim[2];
    ek_view v = ref_new(t, 2, rows, keys);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < keys; j++) {
            const int own = i + keys - rows;
            const bool visible = (!causal || j <= own) && (!window || j > own - window);
            ref_set(&v, i * keys + j, t == EK_TYPE_U8 ? visible : visible ? 0 : -INFINITY);
        }
    return v;
}

static void same_masked(const ek_view *want, const attend_scene *s, ek_sdpa_options o, const ek_view *mask,
                        const char *what)
{
    o.mask = mask;
    attend_same(want, s, &o, "%s", what);
}

/* ------------------------------------------------------------------ several ways to say the same */

/* A mask that hides nothing is no mask. */
static void same_without_mask(const attend_scene *s)
{
    const int heads = (int)s->q.dim[1], rows = (int)s->q.dim[2], keys = (int)s->k.dim[2];
    const ek_view nothing[] = {all_true(ref_new(EK_TYPE_U8, 0)), all_true(ref_new(EK_TYPE_U8, 1, keys)),
                               all_true(ref_new(EK_TYPE_U8, 4, 1, heads, rows, keys)),
                               ref_new(EK_TYPE_F32, 4, 1, 1, rows, keys), ref_new(EK_TYPE_BF16, 1, keys)};
    for (int causal = 0; causal < 2; causal++) {
        const ek_sdpa_options o = {.causal = causal};
        attend_run(s, &o);
        for (int m = 0; m < 5; m++) same_masked(&s->y, s, o, &nothing[m], "a mask that hides nothing");
    }
}

static void same_causal(const attend_scene *s)
{
    attend_run(s, &(ek_sdpa_options){.causal = true});
    for (int t = 0; t < 3; t++) {
        const ek_view mask = rule((ek_type[]){EK_TYPE_U8, EK_TYPE_F32, EK_TYPE_F16}[t], s, true, 0);
        same_masked(&s->y, s, (ek_sdpa_options){0}, &mask, "causal as a mask");
    }
}

static void same_window(const attend_scene *s, int window)
{
    const int64_t zero = 0;
    const ek_view bytes = rule(EK_TYPE_U8, s, true, window), added = rule(EK_TYPE_F32, s, true, window),
                  half = rule(EK_TYPE_U8, s, false, window);
    const ek_sdpa_options plain = {.key_start = &zero}, causal = {.key_start = &zero, .causal = true};
    attend_run(s, &(ek_sdpa_options){.causal = true, .window = window, .key_start = &zero});
    same_masked(&s->y, s, plain, &bytes, "a window as a mask");
    same_masked(&s->y, s, plain, &added, "a window added");
    same_masked(&s->y, s, causal, &half, "causal, and the window as a mask");
}

/* Long keys for few sizes, unless all is wanted. */
static bool thinned(int dim, int rows, int keys, int n)
{
    return !ref_all && ((keys > 300 && (dim == 512 || rows > 9)) || (dim == 512 && n % 3 == 2));
}

static void test_equivalence(void **state)
{
    (void)state;
    static const int dims[] = {64, 256, 512}, rows[] = {1, 2, 7, 8, 9, 16, 64}, near[] = {16, 32, 256, 1024};
    for (int d = 0; d < 3; d++)
        for (int r = 0; r < 7; r++)
            for (int n = 0; n < 12; n++) {
                const int keys = near[n / 3] + n % 3 - 1, form = (n + r) % 2 ? ATTEND_PAIRS : EK_TYPE_F32;
                if (keys < rows[r] || thinned(dims[d], rows[r], keys, n)) continue;
                const attend_scene s = attend_f32(form, (attend_sizes){1, 4, 2, rows[r], keys, dims[d]});
                same_without_mask(&s);
                same_causal(&s);
                for (int window = 5; window < keys; window = window * 3 + 20) same_window(&s, window);
                ref_free_all();
            }
}

/* A longer context in front, cut away by the window's segments: an explicit first position. */
static void test_first_position(void **state)
{
    (void)state;
    enum { KEYS = 1000, CUT = 701 };
    EACH_FORM(form)
    {
        const int64_t start = CUT;
        const attend_scene s = attend_f32(form, (attend_sizes){1, 2, 1, 2, KEYS, 64}), cut = attend_keys(s, CUT, KEYS);
        attend_run(&s, &(ek_sdpa_options){.causal = true, .window = 150});
        attend_same(&s.y, &cut, &(ek_sdpa_options){.causal = true, .window = 150, .key_start = &start},
                    "keys from position %d", CUT);
        ref_free_all();
    }
}

/* ------------------------------------------------------------------ garbage behind what is hidden */

enum { GARBAGE = 4 }; /* kinds: large, NaN, -inf, all sorts */

static double garbage(int kind, int64_t i)
{
    static const double sorts[] = {NAN, INFINITY, -1e38};
    return kind == 0 ? 1e30 : kind == 1 ? NAN : kind == 2 ? -INFINITY : sorts[i % 3];
}

/* Key and value j of every head. */
static void spoil(const attend_scene *s, int kind, int64_t j)
{
    for (int64_t h = 0; h < s->k.dim[1]; h++)
        for (int64_t d = 0; d < s->k.dim[3]; d++) {
            attend_set(s, &s->k, h, j, d, garbage(kind, d));
            attend_set(s, &s->v, h, j, d, garbage(kind, d + 1));
        }
}

/* Pads in front of a sequence leave no trace, however they are hidden. */
static void check_left_padding(const attend_scene *s, int pad)
{
    const int rows = (int)s->q.dim[2], keys = (int)s->k.dim[2];
    const attend_scene unpadded = attend_keys(*s, pad, keys);
    const int64_t start = -pad;
    ek_view mask = all_true(ref_new(EK_TYPE_U8, 4, 1, 1, 1, keys)), added = ref_new(EK_TYPE_F32, 1, keys),
            square = rule(EK_TYPE_U8, s, true, 0);
    for (int j = 0; j < pad; j++) {
        ref_set(&mask, j, 0), ref_set(&added, j, -INFINITY);
        for (int i = 0; i < rows; i++) ref_set(&square, i * keys + j, 0);
    }
    for (int causal = 0; causal < 2; causal++) {
        ek_sdpa_options o = {.causal = causal};
        attend_run(&unpadded, &o);
        same_masked(&s->y, s, o, &mask, "left padding");
        same_masked(&s->y, s, o, &added, "left padding, added");
        if (causal) same_masked(&s->y, s, (ek_sdpa_options){0}, &square, "left padding and causal in one mask");
        o.key_start = &start;
        same_masked(&s->y, s, o, NULL, "left padding by position");
        same_masked(&s->y, s, o, &mask, "left padding by position and mask");
    }
}

static void test_left_padding(void **state)
{
    (void)state;
    static const int pads[] = {1, 3, 31, 32, 33, 255}, lengths[] = {1, 20, 300}, dims[] = {64, 256, 72};
    for (int d = 0; d < 3; d++)
        for (int n = 0; n < 3; n++)
            for (int p = 0; p < 6; p++) EACH_FORM(form)
                {
                    const int length = lengths[n], rows = length < 5 ? length : 5;
                    const attend_scene s = attend_f32(form, (attend_sizes){1, 4, 2, rows, pads[p] + length, dims[d]});
                    for (int j = 0; j < pads[p]; j++) spoil(&s, p % GARBAGE, j);
                    check_left_padding(&s, pads[p]);
                    ref_free_all();
                }
}

/* A batch of sequences of different lengths, each as if it were alone. */
static void test_padded_batch(void **state)
{
    (void)state;
    enum { B = 4, KEYS = 290 };
    static const int lengths[B] = {290, 1, 33, 257};
    EACH_FORM(form)
    {
        const attend_scene s = attend_f32(form, (attend_sizes){B, 4, 2, 3, KEYS, 128});
        ek_view mask = ref_new(EK_TYPE_U8, 4, B, 1, 1, KEYS);
        for (int b = 0; b < B; b++) {
            attend_scene entry = attend_entry(s, b);
            for (int j = 0; j < KEYS; j++) {
                ref_set(&mask, b * KEYS + j, j >= KEYS - lengths[b]);
                if (j < KEYS - lengths[b]) spoil(&entry, b, j);
            }
        }
        for (int causal = 0; causal < 2; causal++) {
            attend_run(&s, &(ek_sdpa_options){.mask = &mask, .causal = causal});
            for (int b = 0; b < B; b++) {
                const attend_scene alone = attend_keys(attend_entry(s, b), KEYS - lengths[b], KEYS);
                attend_same(&alone.y, &alone, &(ek_sdpa_options){.causal = causal}, "entry %d alone", b);
            }
        }
        ref_free_all();
    }
}

/* Whether hole number n, of several kinds, leaves key j visible. Key 0 always is: the sequence begins there. */
static bool beside_hole(int n, int j)
{
    switch (n) {
    case 0: return j == 0 || j % 2;
    case 1: return j < 200 || j > 600; /* whole segments */
    case 2: return j == 0 || j == 511 || j == 899;
    default: return j % 17 < 11;
    }
}

static void test_garbage(void **state)
{
    (void)state;
    enum { KEYS = 900 };
    for (int kind = 0; kind < GARBAGE; kind++)
        for (int hole = 0; hole < 4; hole++)
            for (int rows = 1; rows <= 9; rows += 4) {
                const bool pairs = (kind + hole) % 2;
                const double tol = pairs ? 5e-3 : 1e-4;
                const attend_scene s = attend_f32(pairs ? ATTEND_PAIRS : EK_TYPE_F32,
                                                  (attend_sizes){1, 2, 1, rows, KEYS, 64});
                ek_view mask = ref_new(EK_TYPE_U8, 1, KEYS);
                for (int j = 0; j < KEYS; j++) ref_set(&mask, j, beside_hole(hole, j));
                const ek_sdpa_options o = {.mask = &mask};
                attend_run(&s, &o);
                attend_check(&s, &o, 1, tol, pairs ? tol : 1e-5, "hole %d", hole);
                for (int j = 0; j < KEYS; j++)
                    if (!beside_hole(hole, j)) spoil(&s, kind, j);
                attend_same(&s.y, &s, &o, "garbage %d in hole %d", kind, hole);
                ref_free_all();
            }
}

/* Rows of y from keys that were spoilt for some of the queries: those reach[i] are NaN, the others as they were. */
static void check_reach(const attend_scene *s, const ek_sdpa_options *o, const bool *reach, const char *what)
{
    attend_scene spoilt = *s;
    spoilt.y = attend_fresh(s, o);
    for (int64_t h = 0; h < s->q.dim[1]; h++)
        for (int64_t i = 0; i < s->q.dim[2]; i++) {
            const attend_scene clean = attend_rows(attend_heads(*s, h, h + 1), i, i + 1),
                               got = attend_rows(attend_heads(spoilt, h, h + 1), i, i + 1);
            if (!reach[i]) ref_same(&clean.y, &got.y, "%s, head %d, query %d", what, (int)h, (int)i);
            else if (!isnan(ref_get(&got.y, 0))) {
                print_error("%s, head %d, query %d: want NaN, got %g\n", what, (int)h, (int)i, ref_get(&got.y, 0));
                ref_again();
            }
        }
}

/* NaN in a key (nan_keys) and its value reach the queries to which it is visible, and no other. The last three queries
 * see one, two and three of the last three keys; with a mask, each query has a hole of its own, at key 100 + i. */
static void check_garbage_for_some(int form, bool nan_keys, bool masked)
{
    enum { ROWS = 9, KEYS = 300, DIM = 64 };
    const attend_scene s = attend_f32(form, (attend_sizes){1, 4, 2, ROWS, KEYS, DIM});
    ek_view mask = rule(EK_TYPE_U8, &s, true, 0);
    bool reach[ROWS];
    for (int i = 0; i < ROWS; i++) {
        ref_set(&mask, i * KEYS + 100 + i, 0);
        reach[i] = i >= ROWS - 3 || (masked && i > 0);
    }
    const ek_sdpa_options o = {.causal = !masked, .mask = masked ? &mask : NULL};
    attend_run(&s, &o);
    for (int h = 0; h < 2; h++)
        for (int d = 0; d < DIM; d++) {
            for (int j = KEYS - 3; j < KEYS; j++) {
                attend_set(&s, &s.k, h, j, d, nan_keys ? NAN : 1);
                attend_set(&s, &s.v, h, j, d, NAN);
            }
            if (masked) attend_set(&s, &s.v, h, 100, d, NAN); /* the hole of query 0 */
        }
    check_reach(&s, &o, reach, masked ? "NaN behind a mask" : "NaN behind causal");
    ref_free_all();
}

static void test_garbage_for_some(void **state)
{
    (void)state;
    EACH_FORM(form)
    for (int masked = 0; masked < 2; masked++)
        for (int nan_keys = 0; nan_keys < 2; nan_keys++) check_garbage_for_some(form, nan_keys, masked);
}

/* Visible keys whose scores are all -inf, beside hidden ones: equal weights for the visible alone. */
static void test_only_inf(void **state)
{
    (void)state;
    enum { KEYS = 40, DIM = 16 };
    EACH_FORM(form)
    {
        const attend_scene s = attend_f32(form, (attend_sizes){1, 1, 1, 1, KEYS, DIM});
        ek_view mask = ref_new(EK_TYPE_U8, 1, KEYS);
        double want[DIM] = {0};
        int n = 0;
        for (int j = 0; j < KEYS; j++) {
            const bool visible = j == 0 || j % 3 == 1;
            ref_set(&mask, j, visible);
            n += visible;
            for (int d = 0; d < DIM; d++) {
                attend_set(&s, &s.k, 0, j, d, -INFINITY);
                if (visible) want[d] += ref_get(&s.v, j * DIM + d);
                else attend_set(&s, &s.v, 0, j, d, NAN);
            }
        }
        for (int d = 0; d < DIM; d++) want[d] /= n;
        attend_run(&s, &(ek_sdpa_options){.mask = &mask});
        ref_near(&s.y, want, 1e-6, "only scores of -inf, form %d", form);
        ref_free_all();
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        REF_TEST(test_equivalence),  REF_TEST(test_first_position), REF_TEST(test_left_padding),
        REF_TEST(test_padded_batch), REF_TEST(test_garbage),        REF_TEST(test_garbage_for_some),
        REF_TEST(test_only_inf),
    };
    return REF_RUN(argc, argv, tests);
}
