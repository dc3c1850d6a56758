/* Attention over pages: an independent float64 softmax says whether it is right, memcmp says
 * whether instruction sets, companies, tiles, splits and threads agree to the bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "check.h"
#include "ops/attn.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_isas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
