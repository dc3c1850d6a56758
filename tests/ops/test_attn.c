/* Attention over pages: an independent float64 softmax says whether it is right, memcmp says
 * whether instruction sets, companies, tiles, splits and threads agree to the bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "check.h"
#include "ops/attn.h"
#include "ops/math.h"
#include "tensor/dtype.h"

/* One sequence with keys and values at [0, n_keys), its pages full of garbage elsewhere. */
typedef struct scene {
    ek_attn_shape shape;
    int n_keys, n_pages;
    size_t page_bytes, pool_bytes;
    uint8_t *pool;
    uint8_t **page;
    float *k, *v; /* [n_keys][n_kv_heads][head_dim], as stored (rounded to the format) */
    ek_kv_view view;
} scene;

static float as_stored(ek_kv_format f, float x)
{
    return f == EK_KV_BF16 ? ek_bf16_f32(ek_f32_bf16(x)) : x;
}

/* garbage: what unwritten slots hold: 0 zeros, 1 NaN, 2 Inf and huge values, 3 random bytes */
static void scene_open(scene *s, const ek_attn_shape *shape, int n_keys, int garbage, uint64_t seed)
{
    *s = (scene){.shape = *shape, .n_keys = n_keys, .n_pages = (n_keys + 63) / 64};
    size_t offset = 192, block = ek_kv_block_bytes(shape->k_format, shape->v_format, shape->n_kv_heads, shape->head_dim);
    assert_true(block > 0);
    s->page_bytes = offset + block;
    s->pool_bytes = s->page_bytes * (size_t)s->n_pages;
    s->pool = check_alloc(s->pool_bytes);
    s->page = calloc((size_t)s->n_pages + 1, sizeof *s->page);
    for (int i = 0; i < s->n_pages; i++) /* in descending order, so that nothing can rely on neighbours */
        s->page[i] = s->pool + (size_t)(s->n_pages - 1 - i) * s->page_bytes;
    if (garbage == 1) memset(s->pool, 0xff, s->pool_bytes);
    if (garbage == 2)
        for (size_t i = 0; i + 4 <= s->pool_bytes; i += 4) {
            uint32_t u = i % 12 ? 0x7f800000u : 0xff7f7f7fu;
            memcpy(s->pool + i, &u, 4);
        }
    if (garbage == 3) check_fill_bytes(s->pool, s->pool_bytes, seed + 9);
    s->view = (ek_kv_view){s->page, offset};

    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, 0, shape), EK_OK);
    size_t width = (size_t)shape->n_kv_heads * (size_t)shape->head_dim, n = width * (size_t)n_keys;
    s->k = malloc(n * sizeof(float));
    s->v = malloc(n * sizeof(float));
    check_fill(s->k, n, seed, 4.0f / sqrtf((float)shape->head_dim));
    check_fill_wide(s->v, n, seed + 1);
    for (int p = 0; p < n_keys; p++)
        ek_attn_store(a, &s->view, p, s->k + (size_t)p * width, s->v + (size_t)p * width);
    for (size_t i = 0; i < n; i++) {
        s->k[i] = as_stored(shape->k_format, s->k[i]);
        s->v[i] = as_stored(shape->v_format, s->v[i]);
    }
    ek_attn_free(a);
}

static void scene_close(scene *s)
{
    check_free(s->pool, s->pool_bytes);
    free(s->page);
    free(s->k);
    free(s->v);
}

static size_t q_width(const ek_attn_shape *s)
{
    return (size_t)s->n_heads * (size_t)s->head_dim;
}

static float *queries(const ek_attn_shape *shape, int n_rows, uint64_t seed)
{
    float *q = malloc(sizeof *q * q_width(shape) * (size_t)n_rows);
    check_fill(q, q_width(shape) * (size_t)n_rows, seed, 4.0f);
    return q;
}

/* One run on the given ISA and pool into fresh memory. */
static float *attend(unsigned cpu, ek_pool *pool, const ek_attn_shape *shape, const ek_kv_view *views,
                     const ek_attn_row *rows, int n_rows, const float *q)
{
    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, cpu, shape), EK_OK);
    int n_keys = 0;
    for (int r = 0; r < n_rows; r++)
        if (rows[r].pos >= n_keys) n_keys = rows[r].pos + 1;
    size_t bytes = ek_attn_scratch_bytes(a, n_rows, n_keys, ek_pool_threads(pool));
    void *scratch = check_alloc(bytes);
    memset(scratch, 0xff, bytes); /* NaN: what was not written must not be read */
    ptrdiff_t ld = (ptrdiff_t)q_width(shape);
    float *o = malloc(sizeof *o * (size_t)ld * (size_t)n_rows);
    memset(o, 0xff, sizeof *o * (size_t)ld * (size_t)n_rows);
    ek_attn_run(a, pool, views, rows, n_rows, q, ld, o, ld, scratch);
    check_free(scratch, bytes);
    ek_attn_free(a);
    return o;
}

/* softmax(q k) v in float64, with the error bound of the float32 computation: every score within
 * (terms + few) eps of sum |q k|, and o within its share of sum p |v|. */
static void reference(const scene *s, int pos, const float *q, int head, double *o, double *tol)
{
    const ek_attn_shape *sh = &s->shape;
    int dim = sh->head_dim, kv = head / (sh->n_heads / sh->n_kv_heads);
    int lo = sh->window && pos >= sh->window ? pos - sh->window + 1 : 0;
    double *score = malloc(sizeof *score * (size_t)(pos + 1)), most = -INFINITY, slack = 0, total = 0;
    for (int j = lo; j <= pos; j++) {
        const float *k = s->k + ((size_t)j * (size_t)sh->n_kv_heads + (size_t)kv) * (size_t)dim;
        double sum = 0, mass = 0;
        for (int d = 0; d < dim; d++) sum += (double)q[d] * k[d], mass += fabs((double)q[d] * k[d]);
        score[j] = sum;
        if (sum > most) most = sum;
        if (mass > slack) slack = mass;
    }
    for (int j = lo; j <= pos; j++) total += score[j] = exp(score[j] - most);
    double share = 0x1p-24 * (2.0 * (dim + 4) * slack + pos - lo + 40);
    for (int d = 0; d < dim; d++) {
        double sum = 0, mass = 0;
        for (int j = lo; j <= pos; j++) {
            double v = s->v[((size_t)j * (size_t)sh->n_kv_heads + (size_t)kv) * (size_t)dim + (size_t)d];
            sum += score[j] / total * v, mass += score[j] / total * fabs(v);
        }
        o[d] = sum, tol[d] = share * mass;
    }
    free(score);
}

static const ek_attn_shape shapes[] = {
    {EK_FULL, EK_KV_F32, EK_KV_F32, 8, 1, 64, 0},     {EK_FULL, EK_KV_BF16, EK_KV_BF16, 3, 1, 48, 0},
    {EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 4, 2, 12, 5}, {EK_SLIDING, EK_KV_F32, EK_KV_BF16, 2, 2, 20, 64},
    {EK_FULL, EK_KV_BF16, EK_KV_F32, 16, 1, 16, 0},    {EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 8, 4, 36, 300},
    {EK_FULL, EK_KV_F32, EK_KV_F32, 5, 1, 4, 0},       {EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 24, 2, 32, 256},
    {EK_FULL, EK_KV_BF16, EK_KV_BF16, 2, 1, 512, 0},   {EK_SLIDING, EK_KV_F32, EK_KV_F32, 2, 1, 256, 1},
    {EK_FULL, EK_KV_BF16, EK_KV_BF16, 6, 2, 24, 0},    {EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 1, 1, 8, 1024},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const int edges[] = {0, 1, 14, 15, 16, 17, 62, 63, 64, 65, 127, 128, 254, 255, 256, 257, 300, 511, 512, 513,
                            767, 768, 1023, 1024, 1025};
enum { N_EDGES = sizeof edges / sizeof *edges, LONGEST = 1026 };

static const char *shape_text(const ek_attn_shape *s)
{
    static char text[128];
    snprintf(text, sizeof text, "%s %s:%s heads %d/%d dim %d window %d", s->kind == EK_FULL ? "full" : "sliding",
             ek_kv_format_name(s->k_format), ek_kv_format_name(s->v_format), s->n_heads, s->n_kv_heads, s->head_dim,
             s->window);
    return text;
}

static void test_right(void **state)
{
    (void)state;
    double o[512], tol[512];
    for (int i = 0; i < N_SHAPES; i++) {
        const ek_attn_shape *sh = &shapes[i];
        scene s;
        scene_open(&s, sh, LONGEST, 0, 100 + (uint64_t)i);
        float *q = queries(sh, N_EDGES, 7);
        ek_attn_row rows[N_EDGES];
        for (int r = 0; r < N_EDGES; r++) rows[r] = (ek_attn_row){0, edges[r]};
        float *got = attend(0, NULL, sh, &s.view, rows, N_EDGES, q);
        for (int r = 0; r < N_EDGES; r++)
            for (int h = 0; h < sh->n_heads; h++) {
                size_t at = (size_t)r * q_width(sh) + (size_t)h * (size_t)sh->head_dim;
                reference(&s, rows[r].pos, q + at, h, o, tol);
                check_near("attn", "scalar", o, got + at, (size_t)sh->head_dim, tol, "%s pos %d head %d",
                           shape_text(sh), rows[r].pos, h);
            }
        free(got);
        free(q);
        scene_close(&s);
    }
}

/* Every edge position in one run, one after the other, with all kinds of garbage around. */
static void test_isas(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const ek_attn_shape *sh = &shapes[i];
        float *q = queries(sh, N_EDGES, 7);
        for (int garbage = 0; garbage < 4; garbage++)
            for (int n_keys = garbage ? 1 : LONGEST; n_keys <= LONGEST; n_keys += 205) {
                scene s;
                scene_open(&s, sh, n_keys, garbage, 100 + (uint64_t)i);
                ek_attn_row rows[N_EDGES];
                int n = 0;
                for (int r = 0; r < N_EDGES && edges[r] < n_keys; r++) rows[n++] = (ek_attn_row){0, edges[r]};
                float *want = attend(0, NULL, sh, &s.view, rows, n, q);
                CHECK_ISAS(isa, cpu)
                {
                    float *got = attend(cpu, NULL, sh, &s.view, rows, n, q);
                    check_bits("attn", isa, want, got, q_width(sh) * (size_t)n, "%s, %d keys, garbage %d",
                               shape_text(sh), n_keys, garbage);
                    free(got);
                }
                free(want);
                scene_close(&s);
            }
        free(q);
    }
}

/* --- the contract of ops/attn.h once more, as plainly as it reads: one query, T by halving */

typedef struct leaf {
    int m;
    float l, o[512];
} leaf;

static void contract_leaf(const scene *s, const float *q, int kv, int lo, int hi, leaf *out)
{
    int dim = s->shape.head_dim, n[256];
    float p[256], e[256], lane[16] = {0};
    out->m = INT32_MIN;
    for (int j = lo; j < hi; j++) {
        const float *k = s->k + ((size_t)j * (size_t)s->shape.n_kv_heads + (size_t)kv) * (size_t)dim;
        float chain[2] = {0};
        for (int d = 0; d < dim; d++) chain[d / 256] = fmaf(q[d], k[d], chain[d / 256]);
        p[j % 256] = ek_exp_split(dim > 256 ? chain[0] + chain[1] : chain[0], &n[j % 256]);
        if (n[j % 256] > out->m) out->m = n[j % 256];
    }
    memset(out->o, 0, sizeof out->o);
    for (int j = lo; j < hi; j++) {
        const float *v = s->v + ((size_t)j * (size_t)s->shape.n_kv_heads + (size_t)kv) * (size_t)dim;
        e[j % 256] = n[j % 256] - out->m < -125 ? 0.0f : ldexpf(p[j % 256], n[j % 256] - out->m);
        lane[j % 16] += e[j % 256];
        for (int d = 0; d < dim; d++) out->o[d] = fmaf(e[j % 256], v[d], out->o[d]);
    }
    for (int apart = 8; apart; apart /= 2)
        for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
    out->l = lane[0];
}

static void contract_tree(const scene *s, const float *q, int kv, int lo, int hi, int seg, int n, leaf *out)
{
    if (n == 1) {
        int from = seg * 256, to = from + 256;
        contract_leaf(s, q, kv, from < lo ? lo : from, to < hi ? to : hi, out);
        return;
    }
    int half = 1;
    while (2 * half < n) half *= 2;
    leaf b;
    contract_tree(s, q, kv, lo, hi, seg, half, out);
    contract_tree(s, q, kv, lo, hi, seg + half, n - half, &b);
    int m = out->m > b.m ? out->m : b.m;
    float fa = out->m - m < -125 ? 0 : ldexpf(1, out->m - m), fb = b.m - m < -125 ? 0 : ldexpf(1, b.m - m);
    out->m = m;
    out->l = out->l * fa + b.l * fb;
    for (int d = 0; d < s->shape.head_dim; d++) out->o[d] = out->o[d] * fa + b.o[d] * fb;
}

static void contract(const scene *s, int pos, const float *q, int head, float *out)
{
    int kv = head / (s->shape.n_heads / s->shape.n_kv_heads), w = s->shape.window;
    int lo = w && pos - w + 1 > 0 ? pos - w + 1 : 0;
    leaf sum;
    contract_tree(s, q, kv, lo, pos + 1, lo / 256, pos / 256 - lo / 256 + 1, &sum);
    for (int d = 0; d < s->shape.head_dim; d++) out[d] = (sum.o[d] + 0.0f) / sum.l;
}

/* Scores of hundreds: most weights fall below 2^-125 of the largest, in a segment and between
 * segments; values near the ends of float32's range. */
static void make_steep(scene *s, float *q, size_t n_q)
{
    for (size_t i = 0; i < n_q; i++) q[i] *= 40;
    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, 0, &s->shape), EK_OK);
    size_t width = (size_t)s->shape.n_kv_heads * (size_t)s->shape.head_dim;
    for (int p = 0; p < s->n_keys; p++) {
        float *v = s->v + (size_t)p * width;
        for (size_t d = 0; d < width; d++)
            v[d] = as_stored(s->shape.v_format, p % 3 ? v[d] * 0x1p-110f : p % 2 ? -v[d] * 0x1p80f : -0.0f);
        ek_attn_store(a, &s->view, p, s->k + (size_t)p * width, v);
    }
    ek_attn_free(a);
}

static void test_contract(void **state)
{
    (void)state;
    enum { N = 5, LONG = 3000 };
    static const int at[N] = {0, 700, 1279, 2047, LONG - 1};
    for (int i = 0; i < N_SHAPES; i++)
        for (int steep = 0; steep < 2; steep++) {
            const ek_attn_shape *sh = &shapes[i];
            int n = sh->head_dim > 100 ? 3 : N;
            scene s;
            scene_open(&s, sh, at[n - 1] + 1, 1, 300 + (uint64_t)i);
            float *q = queries(sh, n, 8), *want = malloc(sizeof *want * q_width(sh) * (size_t)n);
            if (steep) make_steep(&s, q, q_width(sh) * (size_t)n);
            ek_attn_row rows[N];
            for (int r = 0; r < n; r++) {
                rows[r] = (ek_attn_row){0, at[r]};
                for (int h = 0; h < sh->n_heads; h++) {
                    size_t o = (size_t)r * q_width(sh) + (size_t)h * (size_t)sh->head_dim;
                    contract(&s, at[r], q + o, h, want + o);
                }
            }
            CHECK_ISAS(isa, cpu)
            {
                float *got = attend(cpu, NULL, sh, &s.view, rows, n, q);
                check_bits("attn", isa, want, got, q_width(sh) * (size_t)n, "%s, steep %d", shape_text(sh), steep);
                free(got);
            }
            free(q);
            free(want);
            scene_close(&s);
        }
}

/* One key at score 0 with a tiny value, one about 2^-125 below with a huge one: it counts down to
 * exactly n - m = -125, within a segment and across two, first or last. */
static void test_cutoff(void **state)
{
    (void)state;
    static const int place[][2] = {{0, 1}, {1, 0}, {0, 256}, {256, 0}, {300, 900}, {900, 300}};
    ek_attn_shape sh = {EK_FULL, EK_KV_F32, EK_KV_F32, 1, 1, 4, 0};
    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_OK);
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        for (int n = -123; n >= -128; n--) {
            int near = place[i][0], far = place[i][1], pos = near > far ? near : far;
            scene s;
            scene_open(&s, &sh, pos + 1, 1, 1);
            for (int p = 0; p <= pos; p++) {
                float *k = s.k + 4 * p, *v = s.v + 4 * p;
                for (int d = 0; d < 4; d++) k[d] = v[d] = 0;
                k[0] = p == near ? 0.0f : p == far ? (float)n * 0.6931472f : -1000.0f;
                v[0] = p == near ? 0x1p-100f : p == far ? 0x1p60f : 0.0f;
                ek_attn_store(a, &s.view, p, k, v);
            }
            float q[4] = {1, 0, 0, 0}, want[4];
            contract(&s, pos, q, 0, want);
            assert_true((want[0] > 0x1p-99f) == (n >= -125));
            CHECK_ISAS(isa, cpu)
            {
                ek_attn_row row = {0, pos};
                float *got = attend(cpu, NULL, &sh, &s.view, &row, 1, q);
                check_bits("attn", isa, want, got, 4, "2^%d below, keys %d and %d", n, near, far);
                free(got);
            }
            scene_close(&s);
        }
    ek_attn_free(a);
}

/* A row alone, and in every stretch of rows that contains it, over several sequences. */
static void test_company(void **state)
{
    (void)state;
    enum { VIEWS = 3, EACH = 5, ROWS = VIEWS * EACH };
    static const int last[VIEWS] = {258, 70, 513}; /* rows around edges of segments and pages */
    for (int i = 0; i < N_SHAPES; i++) {
        const ek_attn_shape *sh = &shapes[i];
        scene s[VIEWS];
        ek_kv_view views[VIEWS];
        ek_attn_row rows[ROWS];
        size_t width = q_width(sh);
        for (int v = 0; v < VIEWS; v++) {
            scene_open(&s[v], sh, last[v] + 1, 1 + v, 500 + (uint64_t)(i * VIEWS + v));
            views[v] = s[v].view;
            for (int r = 0; r < EACH; r++) rows[v * EACH + r] = (ek_attn_row){v, last[v] - EACH + 1 + r};
        }
        float *q = queries(sh, ROWS, 9), *want = malloc(sizeof *want * width * ROWS);
        for (int r = 0; r < ROWS; r++) {
            float *one = attend(0, NULL, sh, views, &rows[r], 1, q + (size_t)r * width);
            memcpy(want + (size_t)r * width, one, sizeof *one * width);
            free(one);
        }
        CHECK_ISAS(isa, cpu)
        {
            if (!cpu && sh->head_dim > 100) continue;
            for (int first = 0; first < ROWS; first++)
                for (int n = 1; first + n <= ROWS; n++) {
                    float *got = attend(cpu, NULL, sh, views, rows + first, n, q + (size_t)first * width);
                    check_bits("attn", isa, want + (size_t)first * width, got, width * (size_t)n, "%s, rows %d from %d",
                               shape_text(sh), n, first);
                    free(got);
                }
        }
        free(q);
        free(want);
        for (int v = 0; v < VIEWS; v++) scene_close(&s[v]);
    }
}

/* Long rows alone (split into chunks), short and long ones together, a prompt: 1 to 4 threads. */
static void test_threads(void **state)
{
    (void)state;
    enum { LONG = 6200, MOST = 70 };
    static const ek_attn_shape some[] = {
        {EK_FULL, EK_KV_BF16, EK_KV_BF16, 8, 1, 16, 0},      {EK_FULL, EK_KV_F32, EK_KV_F32, 3, 1, 12, 0},
        {EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 4, 2, 20, 512}, {EK_FULL, EK_KV_BF16, EK_KV_BF16, 18, 2, 8, 0},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const ek_attn_shape *sh = &some[i];
        size_t width = q_width(sh);
        scene s[2];
        scene_open(&s[0], sh, LONG, 1, 700 + i);
        scene_open(&s[1], sh, 300, 3, 800 + i);
        ek_kv_view views[2] = {s[0].view, s[1].view};
        float *q = queries(sh, MOST, 10);
        for (int kind = 0; kind < 5; kind++) {
            ek_attn_row rows[MOST];
            int n = 0;
            switch (kind) {
            case 0: rows[n++] = (ek_attn_row){0, LONG - 1}; break;
            case 1: rows[n++] = (ek_attn_row){0, 4095}; break;
            case 2: /* a verified draft and a fresh request */
                for (; n < 4; n++) rows[n] = (ek_attn_row){0, 5118 + n};
                rows[n++] = (ek_attn_row){1, 0};
                break;
            case 3:
                for (; n < MOST; n++) rows[n] = (ek_attn_row){1, 220 + n};
                break;
            default:
                rows[n++] = (ek_attn_row){1, 299};
                for (; n < 30; n++) rows[n] = (ek_attn_row){0, 2030 + n};
            }
            float *want = attend(0, NULL, sh, views, rows, n, q);
            for (int threads = 1; threads <= 4; threads++) {
                ek_pool *pool;
                assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
                CHECK_ISAS(isa, cpu)
                {
                    float *got = attend(cpu, pool, sh, views, rows, n, q);
                    check_bits("attn", isa, want, got, width * (size_t)n, "%s, rows of kind %d, %d threads",
                               shape_text(sh), kind, threads);
                    free(got);
                }
                ek_pool_close(pool);
            }
            free(want);
        }
        free(q);
        scene_close(&s[0]);
        scene_close(&s[1]);
    }
}

/* Pages in front of the window are gone; later keys of the same sequence are NaN and infinite. */
static void test_unseen(void **state)
{
    (void)state;
    enum { N_KEYS = 700, N = 40, AT = 520, W = 100 };
    ek_attn_shape sh = {EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 8, 2, 24, W};
    scene s;
    scene_open(&s, &sh, N_KEYS, 0, 900);
    float *q = queries(&sh, N, 11);
    ek_attn_row rows[N];
    for (int r = 0; r < N; r++) rows[r] = (ek_attn_row){0, AT + r};
    float *want = attend(0, NULL, &sh, &s.view, rows, N, q);
    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_OK);
    float bad[2 * 24];
    for (int hole = 0; hole < N; hole += 13) { /* rows before the hole must not notice it */
        for (int d = 0; d < 48; d++) bad[d] = d % 2 ? NAN : -INFINITY;
        for (int p = AT + hole + 1; p < N_KEYS; p++) ek_attn_store(a, &s.view, p, bad, bad);
        for (int p = 0; p < AT - W + 1; p++) ek_attn_store(a, &s.view, p, bad, bad);
        for (int p = 0; p < (AT - W + 1) / 64; p++) s.page[p] = NULL;
        CHECK_ISAS(isa, cpu)
        {
            float *got = attend(cpu, NULL, &sh, &s.view, rows, N, q);
            check_bits("attn", isa, want, got, q_width(&sh) * (size_t)(hole + 1), "bad keys from %d", AT + hole + 1);
            free(got);
        }
        for (int i = 0; i < s.n_pages; i++) s.page[i] = s.pool + (size_t)(s.n_pages - 1 - i) * s.page_bytes;
        for (int p = 0; p < N_KEYS; p++) ek_attn_store(a, &s.view, p, s.k + p * 48, s.v + p * 48);
    }
    ek_attn_free(a);
    free(want);
    free(q);
    scene_close(&s);
}

static void test_plan(void **state)
{
    (void)state;
    ek_attn *a;
    ek_attn_shape sh = {EK_FULL, EK_KV_BF16, EK_KV_BF16, 8, 3, 64, 0};
    assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "8 query heads"));
    sh.n_kv_heads = 2, sh.window = 7;
    assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_EINVAL);
    static const int dims[] = {0, -4, 2, 6, 63, 516, 1024};
    sh.window = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        sh.head_dim = dims[i];
        char text[32];
        snprintf(text, sizeof text, "head_dim %d", dims[i]);
        assert_int_equal(ek_attn_plan(&a, 0, &sh), EK_EUNSUPPORTED);
        assert_non_null(strstr(ek_err_text(), text));
        assert_non_null(strstr(ek_err_text(), "full"));
        assert_non_null(strstr(ek_err_text(), "bf16"));
        assert_int_equal(ek_kv_block_bytes(EK_KV_BF16, EK_KV_BF16, 1, dims[i]), 0);
    }
    ek_attn_free(NULL);
}

static void test_formats(void **state)
{
    (void)state;
    ek_kv_format k, v;
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        for (int g = 0; g < EK_KV_FORMAT_COUNT; g++) {
            char text[32];
            snprintf(text, sizeof text, "%s:%s", ek_kv_format_name((ek_kv_format)f), ek_kv_format_name((ek_kv_format)g));
            assert_int_equal(ek_kv_format_parse(text, &k, &v), EK_OK);
            assert_int_equal(k, f);
            assert_int_equal(v, g);
            assert_int_equal(ek_kv_format_parse(ek_kv_format_name((ek_kv_format)f), &k, &v), EK_OK);
            assert_true((int)k == f && (int)v == f);
        }
    static const char *const bad[] = {"", ":", "8:", ":8", "bf", "bf16:8:4", "16", "BF16 ", "f32,f32"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ek_kv_format_parse(bad[i], &k, &v), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), "bf16"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_isas), cmocka_unit_test(test_contract), cmocka_unit_test(test_cutoff), cmocka_unit_test(test_company), cmocka_unit_test(test_threads), cmocka_unit_test(test_unseen), cmocka_unit_test(test_plan), cmocka_unit_test(test_formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
