/* Every kernel of attention in integers (ops/attn/attn_int.h) beside its definition: codes and sums at the ends of
 * their ranges, positions beyond 2^17, prompts. Instruction sets of this machine, and ways that it has not or would not
 * choose: AVX-512 as processors have it that are not EK_CPU_ZEN4 and that are, AMX with tiles in memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_scene.h"
#include "base/hash/rng.h"
#include "base/machine/cpu.h"
#include "ops/attn/attn_int.h"
#include "ops/kv/kv_codec.h"
#include "ops/math.h"

enum { MAX_WAYS = 12 };

typedef struct way {
    const char *name;
    ek_attn_ops ops;
} way;

void check_attn_table_amx(ek_attn_ops *ops); /* attn_amx_avx512.c */

static int ways_here(way *ways)
{
    int n = 0;
    CHECK_ISAS(isa, cpu)
    {
        ek_attn_init(&ways[n].ops, cpu);
        ways[n++].name = isa;
#ifdef __x86_64__
        if (strcmp(isa, "avx512")) continue;
        ek_attn_init(&ways[n].ops, cpu & ~(unsigned)EK_CPU_ZEN4);
        ways[n++].name = "avx512 alone";
        ek_attn_init(&ways[n].ops, cpu | EK_CPU_ZEN4);
        ways[n++].name = "zen4";
        ek_attn_init(&ways[n].ops, cpu & ~(unsigned)EK_CPU_ZEN4);
        check_attn_table_amx(&ways[n].ops);
        ways[n++].name = "amx in memory";
#endif
    }
    return n;
}

/* What each way gives for rows, beside `want`. */
static void compare(const ek_attn_shape *sh, const ek_kv_view *view, const ek_attn_row *rows, int n, const float *q,
                    const float *want, const char *what)
{
    way ways[MAX_WAYS];
    const int n_ways = ways_here(ways);
    for (int w = 0; w < n_ways; w++) {
        ek_attn *a;
        assert_int_equal(ek_attn_plan_ops(&a, &ways[w].ops, sh), EK_OK);
        float *got = attend_plan(a, NULL, sh, view, rows, n, q);
        check_bits("attn", ways[w].name, want, got, q_width(sh) * (size_t)n, "%s, %s:%s, %d heads on %d of %d", what,
                   ek_kv_format_name(sh->k_format), ek_kv_format_name(sh->v_format), sh->n_heads, sh->n_kv_heads,
                   sh->head_dim);
        free(got);
        ek_attn_free(a);
    }
}

enum { COPIES = 17 /* rows of a prompt, whose tiles share segments */ };

/* One row beside the contract, which out receives: alone, and as all rows of a prompt. */
static void all_ways(const scene *s, const ek_attn_row *row, const float *q, const char *what, float *out)
{
    const ek_attn_shape *sh = &s->shape;
    const size_t width = q_width(sh);
    for (int h = 0; h < sh->n_heads; h++) contract(s, row, q + h * sh->head_dim, h, out + h * sh->head_dim);
    compare(sh, &s->view, row, 1, q, out, what);
    ek_attn_row rows[COPIES];
    float *many = malloc(sizeof *many * width * COPIES), *want = malloc(sizeof *want * width * COPIES);
    for (int r = 0; r < COPIES; r++) {
        rows[r] = *row;
        memcpy(many + (size_t)r * width, q, sizeof *many * width);
        memcpy(want + (size_t)r * width, out, sizeof *want * width);
    }
    compare(sh, &s->view, rows, COPIES, many, want, what);
    free(many), free(want);
}

/* x so that every code of R x is ± the largest one, of the sign of `by`. */
static void fill_impulse(float *x, int dim, float by)
{
    int n = dim & -dim;
    for (int d = 0; d < dim; d++) x[d] = d % n ? 0 : by;
}

/* Every code at its largest, with one sign and with the other: 512 products of 2047 2047, 256 of 16383 2047. */
static void sums_reach_their_bounds(void **state)
{
    (void)state;
    enum { KEYS = 512 };
    static const ek_kv_format formats[] = {EK_KV_I12, EK_KV_I8};
    static const int dims[] = {512, 256, 64, 72, 20};
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                const int dim = dims[i];
                const ek_attn_shape sh = {EK_FULL, formats[f], formats[f], 8, 1, dim, 0};
                scene s;
                scene_open(&s, &sh, KEYS, 3, 11);
                float k[512], v[512], *q = malloc(sizeof *q * q_width(&sh)), out[8 * 512];
                int16_t code[512];
                for (int h = 0; h < 8; h++) fill_impulse(q + h * dim, dim, 1.5f);
                memcpy(k, q, sizeof *k * (size_t)dim);
                ek_attn_encode(k, dim, EK_QUERY_CODE, code);
                for (int d = 0; d < dim; d++) assert_int_equal(code[d], 2047);
                for (int p = 0; p < KEYS; p++) {
                    fill_impulse(k, dim, (float)sign * 0.25f);
                    /* a weight of all but the next power of two, as e = exp(s) is the same of all keys */
                    int e2;
                    const float e = ek_exp_split((float)sign * 0.375f * (float)(dim / (dim & -dim)), &e2);
                    fill_impulse(v, dim, (float)sign * 1.99999f * (float)ek_kv_int_max(formats[f]) / e);
                    scene_store(&s, p, k, v);
                }
                const ek_attn_row row = {0, 0, KEYS};
                all_ways(&s, &row, q, "largest codes", out);
                for (int d = 0; d < 8 * dim; d++) /* all keys alike: the value itself, but for its rounding */
                    assert_true(fabsf(out[d] - s.v[d % dim]) <= 3e-4f * fabsf(s.v[0]));
                free(q);
                scene_close(&s);
            }
}

/* Unwritten slots that hold the most negative codes and NaN as their scales, and zeros as tokens. */
static void hidden_keys_and_empty_tokens_add_nothing(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++)
        for (int zero = 0; zero < 3; zero++) {
            const ek_kv_format format = f ? EK_KV_I8 : EK_KV_I12;
            const ek_attn_shape sh = {EK_FULL, format, format, 6, 2, 64, 0};
            scene s;
            scene_open(&s, &sh, 333, 1, 5);
            float *q = queries(&sh, 1, 6), out[6 * 64], none[2 * 64] = {0};
            for (size_t i = 0; i < s.pool_bytes[0]; i++) s.pool[0][i] = (uint8_t)(i % 2 * 0x80);
            for (int p = 0; p < s.n_keys; p++) {
                const bool clear = zero == 2 || (zero == 1 && p % 3);
                scene_store(&s, p, clear ? none : s.k + p * 128, clear ? none : s.v + p * 128);
            }
            const ek_attn_row rows[] = {{0, 0, 333}, {0, 300, 301}, {0, 250, 259}, {0, 64, 128}, {0, 63, 331}};
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                all_ways(&s, &rows[r], q, "garbage", out);
                for (int d = 0; d < 6 * 64; d++) assert_true(isfinite(out[d]) && (zero < 2 || out[d] == 0));
            }
            free(q);
            scene_close(&s);
        }
}

/* Positions up to 262,144, most of whose pages are the same few: all of them with a small head, the last ones with the
 * published ones; a query of each tile's size. */
static void positions_up_to_2_to_18(void **state)
{
    (void)state;
    enum { PAGES = 9, KEYS = 1 << 18, N_PAGES = KEYS / 64, HALF = 1 << 17 };
    static const struct {
        int heads, dim;
        ek_attn_row row[3];
    } c[] = {{1, 8, {{0, 0, KEYS}, {0, KEYS - 512, KEYS}, {0, HALF - 1, HALF + 1}}},
             {8, 64, {{0, 0, HALF + 700}, {0, KEYS - 512, KEYS}, {0, HALF - 1, HALF + 1}}},
             {8, 256, {{0, KEYS - 1300, KEYS}, {0, KEYS - 512, KEYS}, {0, HALF - 1, HALF + 1}}},
             {8, 512, {{0, KEYS - 1300, KEYS}, {0, HALF - 600, HALF + 600}, {0, HALF - 1, HALF + 1}}}};
    for (int f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
            const ek_kv_format format = f ? EK_KV_I8 : EK_KV_I12;
            const ek_attn_shape sh = {EK_FULL, format, format, c[i].heads, 1, c[i].dim, 0};
            scene s;
            scene_open(&s, &sh, PAGES * 64, 1, 21);
            int32_t *page = malloc(sizeof *page * N_PAGES);
            for (int k = 0; k < N_PAGES; k++) page[k] = s.page[k * 5 % PAGES];
            const ek_kv_view view = {.base = s.view.base, .stride = s.view.stride, .page = page};
            float *q = queries(&sh, 3, 22);
            float *want = attend(0, NULL, &sh, &view, c[i].row, 3, q);
            compare(&sh, &view, c[i].row, 3, q, want, "deep");
            free(want), free(q), free(page);
            scene_close(&s);
        }
}

/* The same positions beside the contract, over keys of their own: all of them with heads of 8, the last ones of 64. */
static void deep_positions_are_as_written(void **state)
{
    (void)state;
    enum { KEYS = (1 << 17) + 700, ROWS = 3 };
    static const ek_attn_row rows[][ROWS] = {{{0, 0, KEYS}, {0, 131000, KEYS}, {0, (1 << 17) - 1, (1 << 17) + 1}},
                                             {{0, KEYS - 512, KEYS}, {0, 131000, KEYS}, {0, 1 << 17, KEYS - 1}}};
    for (int f = 0; f < 2; f++)
        for (int wide = 0; wide < 2; wide++) {
            const ek_kv_format format = f ? EK_KV_I8 : EK_KV_I12;
            const ek_attn_shape sh = {EK_FULL, format, format, 8, 1, wide ? 64 : 8, 0};
            const size_t width = q_width(&sh);
            scene s;
            scene_open(&s, &sh, KEYS, 1, 31);
            float *q = queries(&sh, ROWS, 32), *want = malloc(sizeof *want * width * ROWS);
            for (size_t r = 0; r < ROWS; r++)
                for (int h = 0; h < sh.n_heads; h++) {
                    const size_t at = r * width + (size_t)(h * sh.head_dim);
                    contract(&s, &rows[wide][r], q + at, h, want + at);
                }
            compare(&sh, &s.view, rows[wide], ROWS, q, want, "deep, as written");
            free(want), free(q);
            scene_close(&s);
        }
}

/* Tiles of 8 queries that share segments, as prompts have them: heads, pairs of formats, windows, garbage. */
static void prompts(void **state)
{
    (void)state;
    enum { ROWS = 17 };
    static const struct {
        int heads, kv_heads, dim, window;
    } shapes[] = {{8, 1, 64, 0},   {8, 1, 128, 300}, {16, 2, 72, 0},  {6, 2, 72, 130},
                  {6, 2, 64, 100}, {8, 1, 20, 0},    {8, 1, 256, 270}};
    static const ek_kv_format pairs[][2] = {{EK_KV_I12, EK_KV_I12},
                                            {EK_KV_I8, EK_KV_I8},
                                            {EK_KV_I12, EK_KV_I8},
                                            {EK_KV_F16, EK_KV_I12},
                                            {EK_KV_I8, EK_KV_F32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            if (shapes[i].dim == 256 && p > 1) continue;
            const attn_case c = {
                {EK_FULL, pairs[p][0], pairs[p][1], shapes[i].heads, shapes[i].kv_heads, shapes[i].dim, 0},
                shapes[i].window};
            const int last = 250 + 70 * (int)i;
            scene s;
            scene_open(&s, &c.shape, last + 1, 3, 40 + i);
            float *q = queries(&c.shape, ROWS, 41);
            ek_attn_row rows[ROWS];
            for (int r = 0; r < ROWS; r++) rows[r] = row_at(&c, 0, last - ROWS + 1 + r);
            rows[3].end = rows[5].end = last + 1; /* as of an image */
            float *want = attend(0, NULL, &c.shape, &s.view, rows, ROWS, q);
            compare(&c.shape, &s.view, rows, ROWS, q, want, "prompt");
            free(want), free(q);
            scene_close(&s);
        }
}

/* --- pages of any bytes: what was never written by a store, and what a damaged one left */

/* Which NaN comes out is not defined. */
static void one_nan(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i])) x[i] = NAN;
}

/* A part's codes of i12 become such as are written; every fourth scale of a token is one of those at the ends, the
 * others are of a usual size, so that sums of codes are seen too. Scales of values below 0 are defined on a CPU. */
static void codes_and_scales(ek_kv_format f, uint8_t *part, int dim, uint64_t seed)
{
    static const float ends[] = {NAN,       -NAN,    INFINITY, -INFINITY, 0.0f,     -0.0f, 1e-45f, -1e-45f,
                                 0x1p-101f, -1e-20f, 3.4e38f,  -3.4e38f,  0x1p100f, -1.0f, 1.0f,   -0x1p-10f};
    if (f == EK_KV_I12)
        for (int i = 0; i < EK_PAGE_TOKENS * dim; i++) ((int16_t *)(void *)part)[i] %= 2048;
    if (!ek_kv_token_scaled(f)) return;
    for (int t = 0; t < EK_PAGE_TOKENS; t++) {
        const uint64_t r = ek_mix64(seed + (uint64_t)t);
        *(float *)(uintptr_t)ek_kv_token_scale(f, part, dim, t) = r % 4 ? (float)(r >> 8 & 0xffff) * 0x1p-24f
                                                                        : ends[r >> 8 & 15];
    }
}

static void bytes_of(const ek_attn_shape *sh, uint8_t *pool, size_t block, int n_pages, bool raw, uint64_t seed)
{
    for (size_t i = 0; i < block * (size_t)n_pages; i++) pool[i] = (uint8_t)ek_mix64(seed + i);
    for (int p = 0; p < n_pages; p++)
        for (int h = 0; h < sh->n_kv_heads; h++) {
            const size_t k_bytes = ek_kv_k_bytes(sh->k_format, sh->head_dim),
                         head = k_bytes + ek_kv_v_bytes(sh->v_format, sh->head_dim);
            uint8_t *k = pool + block * (size_t)p + head * (size_t)h;
            if (raw && sh->k_format != EK_KV_I12 && sh->v_format != EK_KV_I12) continue;
            codes_and_scales(sh->k_format, k, sh->head_dim, seed + (uint64_t)(p * 1000 + h * 100));
            codes_and_scales(sh->v_format, k + k_bytes, sh->head_dim, seed + (uint64_t)(p * 2000 + h * 100 + 1));
        }
}

/* Of every format, beside itself and beside one in integers: each way gives the definition's bits whatever the bytes
 * are, but for codes of i12 that no store writes (ops/attn/attn_int.h). */
static void pages_of_any_bytes(void **state)
{
    (void)state;
    enum { PAGES = 6, ROWS = 9, LAST = 64 * PAGES - 20 };
    static const struct {
        int heads, kv_heads, dim, window;
    } shapes[] = {{8, 1, 64, 0}, {2, 1, 20, 0}, {3, 1, 72, 90}, {12, 2, 128, 300}, {1, 1, 256, 0}};
    way ways[MAX_WAYS];
    const int n_ways = ways_here(ways);
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++) {
            const int of = (int)(i / 3);
            if (!ek_kv_rotated((ek_kv_format)f) && of != f % 5) continue;
            const ek_kv_format other = i % 3 == 0 ? (ek_kv_format)f : i % 3 == 1 ? EK_KV_I8 : EK_KV_I12;
            const attn_case c = {
                {EK_FULL, (ek_kv_format)f, other, shapes[of].heads, shapes[of].kv_heads, shapes[of].dim, 0},
                shapes[of].window};
            const size_t block = ek_kv_block_bytes(c.shape.k_format, other, c.shape.n_kv_heads, c.shape.head_dim);
            uint8_t *pool = check_alloc(block * PAGES);
            int32_t page[PAGES];
            for (int p = 0; p < PAGES; p++) page[p] = p;
            bytes_of(&c.shape, pool, block, PAGES, i % 2, (uint64_t)f * 100 + i);
            const ek_kv_view view = {.base = pool, .stride = block, .page = page};
            ek_attn_row rows[ROWS];
            for (int r = 0; r < ROWS; r++) rows[r] = row_at(&c, 0, LAST - ROWS + 1 + r);
            rows[2].end = rows[6].end = LAST + 1;
            float *q = queries(&c.shape, ROWS, 91 + i), *want = attend(0, NULL, &c.shape, &view, rows, ROWS, q);
            const size_t n = q_width(&c.shape) * ROWS;
            one_nan(want, n);
            for (int w = 0; w < n_ways; w++) {
                ek_attn *a;
                assert_int_equal(ek_attn_plan_ops(&a, &ways[w].ops, &c.shape), EK_OK);
                float *got = attend_plan(a, NULL, &c.shape, &view, rows, ROWS, q);
                one_nan(got, n);
                check_bits("attn", ways[w].name, want, got, n, "any bytes, %s:%s, %d heads on %d of %d",
                           ek_kv_format_name((ek_kv_format)f), ek_kv_format_name(other), c.shape.n_heads,
                           c.shape.n_kv_heads, c.shape.head_dim);
                free(got);
                ek_attn_free(a);
            }
            free(want), free(q);
            check_free(pool, block * PAGES);
        }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(sums_reach_their_bounds),
                                              CHECK_TEST(hidden_keys_and_empty_tokens_add_nothing),
                                              CHECK_TEST(positions_up_to_2_to_18),
                                              CHECK_TEST(deep_positions_are_as_written),
                                              CHECK_TEST(prompts),
                                              CHECK_TEST(pages_of_any_bytes)};
    return CHECK_RUN(argc, argv, tests);
}
