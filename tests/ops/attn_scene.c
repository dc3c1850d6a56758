#include "attn_scene.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/math.h"
#include "tensor/dtype.h"

const attn_case cases[N_CASES] = {
    {{EK_FULL, EK_KV_F32, EK_KV_F32, 8, 1, 64, 0}, 0},
    {{EK_FULL, EK_KV_BF16, EK_KV_BF16, 3, 1, 48, 0}, 0},
    {{EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 4, 2, 12, 0}, 5},
    {{EK_SLIDING, EK_KV_F32, EK_KV_BF16, 2, 2, 20, 0}, 64},
    {{EK_FULL, EK_KV_BF16, EK_KV_F32, 16, 1, 16, 0}, 0},
    {{EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 8, 4, 36, 0}, 300},
    {{EK_FULL, EK_KV_F32, EK_KV_F32, 5, 1, 4, 0}, 0},
    {{EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 24, 2, 32, 0}, 256},
    {{EK_FULL, EK_KV_BF16, EK_KV_BF16, 2, 1, 512, 0}, 0},
    {{EK_SLIDING, EK_KV_F32, EK_KV_F32, 2, 1, 256, 0}, 1},
    {{EK_FULL, EK_KV_BF16, EK_KV_BF16, 6, 2, 24, 0}, 0},
    {{EK_SLIDING, EK_KV_BF16, EK_KV_BF16, 1, 1, 8, 0}, 1024},
    {{EK_FULL, EK_KV_Q8, EK_KV_Q8, 8, 1, 64, 0}, 0},
    {{EK_SLIDING, EK_KV_Q4, EK_KV_Q4, 4, 2, 36, 0}, 300},
    {{EK_FULL, EK_KV_Q8, EK_KV_Q4, 3, 1, 48, 0}, 0},
    {{EK_SLIDING, EK_KV_Q4, EK_KV_Q8, 2, 1, 12, 0}, 5},
    {{EK_FULL, EK_KV_Q4, EK_KV_F32, 2, 2, 20, 0}, 0},
    {{EK_SLIDING, EK_KV_BF16, EK_KV_Q4, 1, 1, 288, 0}, 700},
    {{EK_FULL, EK_KV_Q8, EK_KV_Q8, 5, 1, 4, 0}, 0},
    {{EK_FULL, EK_KV_F16, EK_KV_F16, 8, 1, 64, 0}, 0},
    {{EK_SLIDING, EK_KV_F16, EK_KV_F16, 6, 2, 20, 0}, 300},
    {{EK_FULL, EK_KV_F16, EK_KV_BF16, 3, 1, 12, 0}, 0},
    {{EK_SLIDING, EK_KV_F32, EK_KV_F16, 2, 1, 256, 0}, 64},
    {{EK_FULL, EK_KV_I16, EK_KV_I16, 8, 1, 64, 0}, 0},
    {{EK_SLIDING, EK_KV_I16, EK_KV_I16, 6, 2, 20, 0}, 300},
    {{EK_FULL, EK_KV_I16, EK_KV_F16, 2, 1, 512, 0}, 0},
    {{EK_FULL, EK_KV_BF16, EK_KV_I16, 3, 1, 12, 0}, 0},
    {{EK_FULL, EK_KV_Q6, EK_KV_Q6_64, 8, 1, 36, 0}, 0},
    {{EK_SLIDING, EK_KV_Q5, EK_KV_Q5, 6, 2, 20, 0}, 300},
    {{EK_FULL, EK_KV_Q3, EK_KV_Q3, 5, 1, 100, 0}, 0},
    {{EK_SLIDING, EK_KV_Q2, EK_KV_Q2, 2, 1, 12, 0}, 5},
    {{EK_FULL, EK_KV_Q8_64, EK_KV_Q8_128, 3, 1, 132, 0}, 0},
    {{EK_FULL, EK_KV_Q5_64, EK_KV_Q3_64, 8, 1, 68, 0}, 0},
    {{EK_SLIDING, EK_KV_Q3_128, EK_KV_Q6, 4, 1, 260, 0}, 300},
    {{EK_FULL, EK_KV_Q6_128, EK_KV_Q2_64, 1, 1, 4, 0}, 0},
    {{EK_SLIDING, EK_KV_Q2_64, EK_KV_Q4_64, 16, 1, 44, 0}, 64},
    {{EK_FULL, EK_KV_Q4_128, EK_KV_Q5_128, 2, 2, 28, 0}, 0},
    {{EK_FULL, EK_KV_I12, EK_KV_I12, 8, 1, 64, 0}, 0},
    {{EK_SLIDING, EK_KV_I12, EK_KV_I12, 6, 2, 20, 0}, 300},
    {{EK_FULL, EK_KV_I12, EK_KV_I12, 2, 1, 512, 0}, 0},
    {{EK_SLIDING, EK_KV_I12, EK_KV_I12, 3, 1, 72, 0}, 5},
    {{EK_FULL, EK_KV_I8, EK_KV_I8, 8, 1, 64, 0}, 0},
    {{EK_SLIDING, EK_KV_I8, EK_KV_I8, 5, 1, 132, 0}, 300},
    {{EK_SLIDING, EK_KV_I12, EK_KV_I8, 16, 2, 256, 0}, 64},
    {{EK_FULL, EK_KV_I8, EK_KV_F16, 3, 1, 12, 0}, 0},
    {{EK_SLIDING, EK_KV_F32, EK_KV_I12, 2, 1, 36, 0}, 700},
    {{EK_FULL, EK_KV_I16, EK_KV_I8, 4, 1, 4, 0}, 0},
    /* the first positions in other formats */
    {{EK_FULL, EK_KV_I8, EK_KV_I8, 8, 1, 64, 256}, 0},
    {{EK_SLIDING, EK_KV_I8, EK_KV_Q4, 3, 1, 20, 512}, 300},
    {{EK_FULL, EK_KV_Q4, EK_KV_Q4, 8, 1, 64, 256}, 0},
    {{EK_SLIDING, EK_KV_Q8, EK_KV_Q4, 4, 2, 36, 256}, 300},
    {{EK_FULL, EK_KV_Q8, EK_KV_F16, 3, 1, 48, 512}, 0},
    {{EK_SLIDING, EK_KV_I16, EK_KV_Q3, 2, 1, 20, 256}, 64},
};

const char *case_text(const attn_case *c)
{
    static char text[128];
    const ek_attn_shape *s = &c->shape;
    snprintf(text, sizeof text, "%s %s:%s heads %d/%d dim %d window %d start %d",
             s->kind == EK_FULL ? "full" : "sliding", ek_kv_format_name(s->k_format), ek_kv_format_name(s->v_format),
             s->n_heads, s->n_kv_heads, s->head_dim, c->window, s->n_start);
    return text;
}

ek_attn_row row_at(const attn_case *c, int view, int pos)
{
    return (ek_attn_row){view, c->window && pos >= c->window ? pos - c->window + 1 : 0, pos + 1};
}

/* --- attention in integers (ops/attn/attn_int.h) once more */

bool whole_codes(ek_kv_format f)
{
    return f == EK_KV_I12 || f == EK_KV_I8;
}

/* The Walsh-Hadamard transform of n numbers by halves. */
static void transform(float *x, int n)
{
    if (n == 1) return;
    transform(x, n / 2);
    transform(x + n / 2, n / 2);
    for (int i = 0; i < n / 2; i++) {
        float a = x[i], b = x[i + n / 2];
        x[i] = a + b, x[i + n / 2] = a - b;
    }
}

static int block_of(int dim)
{
    int n = 1;
    while (dim % (2 * n) == 0) n *= 2;
    return n;
}

void rotate(float *x, int dim)
{
    for (int d = 0; d < dim; d += block_of(dim)) transform(x + d, block_of(dim));
}

/* Codes of the rotated x; returns their scale. */
float rotated_codes(const float *x, int dim, int max, int *code)
{
    float y[512], top = 0;
    for (int d = 0; d < dim; d++) y[d] = isnan(x[d]) ? -0x1p96f : fmaxf(-0x1p96f, fminf(0x1p96f, x[d]));
    rotate(y, dim);
    for (int d = 0; d < dim; d++) top = fmaxf(top, fabsf(y[d]));
    float by = top < 0x1p-100f ? 0 : (float)max / top;
    for (int d = 0; d < dim; d++) code[d] = (int)nearbyintf(fmaxf((float)-max, fminf((float)max, y[d] * by)));
    return by == 0 ? 0 : top / (float)max;
}

/* x as its codes stand for it. A sum of 512 codes of 12 bits, times a scale, is exact in doubles: in any order the
 * same. */
static void as_coded(float *x, int dim, int max)
{
    int code[512];
    double y[512], scale = rotated_codes(x, dim, max, code);
    const int n = block_of(dim);
    for (int d = 0; d < dim; d++) y[d] = code[d] * scale / n;
    for (int half = 1; half < n; half *= 2)
        for (int d = 0; d < dim; d++)
            if (!(d & half)) {
                const double a = y[d], b = y[d + half];
                y[d] = a + b, y[d + half] = a - b;
            }
    for (int d = 0; d < dim; d++) x[d] = (float)y[d];
}

static int max_in(ek_kv_format f)
{
    return f == EK_KV_I12 ? 2047 : 127;
}

/* What a format makes of the n elements that share a scale: the rules of ops/kv/kv.h once more. */
static void as_stored(ek_kv_format f, float *x, int n)
{
    float max = x[0], min = x[0];
    for (int i = 0; i < n; i++) {
        if (f == EK_KV_F16) x[i] = ek_f16_f32(ek_f32_f16(fmaxf(-65504, fminf(65504, x[i]))));
        if (f == EK_KV_BF16) x[i] = ek_bf16_f32(ek_f32_bf16(x[i]));
        max = fmaxf(max, x[i]), min = fminf(min, x[i]);
    }
    if (f == EK_KV_I16) {
        float s = fmaxf(fabsf(max), fabsf(min)) / 32767;
        for (int i = 0; i < n; i++) x[i] = s == 0 ? 0 : s * fmaxf(-32767, fminf(32767, nearbyintf(x[i] / s)));
    }
    if (f == EK_KV_I16 || f < EK_KV_Q8) return;
    const int bits = ek_kv_format_name(f)[0] - '0';
    if (bits == 8) {
        float want = fmaxf(fabsf(max), fabsf(min)) / 127, s = fminf(want, 65504);
        int e = 0; /* up to a multiple of f16's unit in the last place */
        frexpf(s, &e);
        float unit = ldexpf(1, (e < -13 ? -13 : e) - 11);
        s = ceilf(s / unit) * unit;
        for (int i = 0; i < n; i++) x[i] = s == 0 ? 0 : s * fmaxf(-127, fminf(127, nearbyintf(x[i] / s)));
    } else {
        const float last = (float)((1 << bits) - 1);
        int low = -min > fabsf(max);
        float edge = low ? min : max, s = fmaxf((max - min) / last, 1e-7f) * (low ? 1 : -1);
        float steps = nearbyintf(edge / s);
        s = steps == 0 ? s : edge / steps;
        s = ek_f16_f32(ek_f32_f16(fmaxf(-65504, fminf(65504, s))));
        float b = steps == 0 ? 0 : ek_f16_f32(ek_f32_f16(fmaxf(-65504, fminf(65504, edge))));
        for (int i = 0; i < n; i++) x[i] = fmaf(s, fmaxf(0, fminf(last, nearbyintf((x[i] - b) / s))), b);
    }
}

/* The group in a format's name, 32 without one. */
int format_group(ek_kv_format f)
{
    const char *dot = strchr(ek_kv_format_name(f), '.');
    return dot ? atoi(dot + 1) : 32;
}

static void head_as_stored(ek_kv_format f, float *x, int dim)
{
    if (whole_codes(f)) {
        as_coded(x, dim, max_in(f));
        return;
    }
    int group = f == EK_KV_I16 ? dim : format_group(f);
    for (int d = 0; d < dim; d += group) as_stored(f, x + d, dim - d < group ? dim - d : group);
}

/* The format of keys (part 0) or values (part 1) at a position. */
static ek_kv_format format_at(const scene *s, int part, int pos)
{
    ek_kv_format f = part ? s->shape.v_format : s->shape.k_format;
    bool apart = f != EK_KV_F32 && f != EK_KV_F16 && f != EK_KV_I16;
    if (pos < s->shape.n_start && whole_codes(f)) return EK_KV_I12;
    return pos < s->shape.n_start && apart ? EK_KV_BF16 : f;
}

void scene_store(scene *s, int pos, const float *k, const float *v)
{
    int dim = s->shape.head_dim;
    size_t width = (size_t)s->shape.n_kv_heads * (size_t)dim;
    float *sk = s->k + (size_t)pos * width, *sv = s->v + (size_t)pos * width;
    ek_attn_store(s->plan, &s->view, pos, k, v);
    memmove(sk, k, width * sizeof *k);
    memmove(sv, v, width * sizeof *v);
    for (int h = 0; h < s->shape.n_kv_heads; h++, sk += dim, sv += dim) {
        head_as_stored(format_at(s, 0, pos), sk, dim);
        head_as_stored(format_at(s, 1, pos), sv, dim);
    }
}

static void fill_garbage(uint8_t *pool, size_t bytes, int garbage, uint64_t seed)
{
    if (garbage == 1) memset(pool, 0xff, bytes);
    if (garbage == 2)
        for (size_t i = 0; i + 4 <= bytes; i += 4) {
            uint32_t u = i % 12 ? 0x7f800000u : 0xff7f7f7fu;
            memcpy(pool + i, &u, 4);
        }
    if (garbage == 3) check_fill_bytes(pool, bytes, seed);
}

void scene_open(scene *s, const ek_attn_shape *shape, int n_keys, int garbage, uint64_t seed)
{
    *s = (scene){.shape = *shape, .n_keys = n_keys, .n_pages = (n_keys + 63) / 64};
    const size_t offset = 192;
    size_t page_bytes[2];
    for (int start = 0; start < 2; start++) {
        int pos = start ? 0 : shape->n_start;
        size_t block = ek_kv_block_bytes(format_at(s, 0, pos), format_at(s, 1, pos), shape->n_kv_heads,
                                         shape->head_dim);
        assert_true(block > 0);
        page_bytes[start] = offset + block;
        s->pool_bytes[start] = start && !shape->n_start ? 0 : page_bytes[start] * (size_t)s->n_pages;
        s->pool[start] = check_alloc(s->pool_bytes[start]);
        fill_garbage(s->pool[start], s->pool_bytes[start], garbage, seed + 9);
    }
    s->page = calloc((size_t)s->n_pages + 1, sizeof *s->page);
    for (int i = 0; i < s->n_pages; i++) /* in descending order, so that nothing can rely on neighbours */
        s->page[i] = s->n_pages - 1 - i;
    s->view = (ek_kv_view){.base = s->pool[0] + offset,
                           .stride = page_bytes[0],
                           .page = s->page,
                           .start_base = s->pool[1] + offset,
                           .start_stride = page_bytes[1],
                           .n_start = shape->n_start / EK_PAGE_TOKENS};

    assert_int_equal(ek_attn_plan(&s->plan, 0, shape), EK_OK);
    size_t width = (size_t)shape->n_kv_heads * (size_t)shape->head_dim, n = width * (size_t)n_keys;
    s->k = malloc(n * sizeof(float));
    s->v = malloc(n * sizeof(float));
    check_fill(s->k, n, seed, 4.0f / sqrtf((float)shape->head_dim));
    check_fill_wide(s->v, n, seed + 1);
    for (int p = 0; p < n_keys; p++) scene_store(s, p, s->k + (size_t)p * width, s->v + (size_t)p * width);
}

void scene_close(scene *s)
{
    ek_attn_free(s->plan);
    for (int i = 0; i < 2; i++) check_free(s->pool[i], s->pool_bytes[i]);
    free(s->page);
    free(s->k);
    free(s->v);
}

size_t q_width(const ek_attn_shape *s)
{
    return (size_t)s->n_heads * (size_t)s->head_dim;
}

float *queries(const ek_attn_shape *shape, int n_rows, uint64_t seed)
{
    float *q = malloc(sizeof *q * q_width(shape) * (size_t)n_rows);
    check_fill(q, q_width(shape) * (size_t)n_rows, seed, 4.0f);
    return q;
}

/* Memory that ends where no memory is, kept from run to run: fresh pages cost more than the sums of a short row. */
static void *scratch_of(size_t bytes)
{
    static uint8_t *p;
    static size_t have;
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > have) {
        if (p) check_free(p, have);
        have = 2 * bytes;
        p = check_alloc(have);
    }
    return memset(p + have - bytes, 0xff, bytes); /* NaN: what was not written must not be read */
}

float *attend_plan(const ek_attn *a, ek_pool *pool, const ek_attn_shape *shape, const ek_kv_view *views,
                   const ek_attn_row *rows, int n_rows, const float *q)
{
    int n_keys = 0;
    for (int r = 0; r < n_rows; r++)
        if (rows[r].end > n_keys) n_keys = rows[r].end;
    size_t bytes = ek_attn_scratch_bytes(a, n_rows, n_keys, ek_pool_threads(pool));
    void *scratch = scratch_of(bytes);
    ptrdiff_t ld = (ptrdiff_t)q_width(shape);
    float *o = malloc(sizeof *o * (size_t)ld * (size_t)n_rows);
    memset(o, 0xff, sizeof *o * (size_t)ld * (size_t)n_rows);
    ek_attn_run(a, pool, views, rows, n_rows, q, ld, o, ld, scratch);
    return o;
}

float *attend(unsigned cpu, ek_pool *pool, const ek_attn_shape *shape, const ek_kv_view *views, const ek_attn_row *rows,
              int n_rows, const float *q)
{
    ek_attn *a;
    assert_int_equal(ek_attn_plan(&a, cpu, shape), EK_OK);
    float *o = attend_plan(a, pool, shape, views, rows, n_rows, q);
    ek_attn_free(a);
    return o;
}

/* How far the roundings of weights (13 bits behind the largest of a segment, and one more where that is held) can move
 * an element: by at most a unit times the largest element of the rotated value, each. */
static double weight_slip(const scene *s, int lo, int end, int kv, const double *weight, double total)
{
    const int dim = s->shape.head_dim;
    double slip = 0;
    for (int seg = lo / 256; seg * 256 < end; seg++) {
        double limit = 0, n = 0, top = 0;
        for (int j = seg * 256 > lo ? seg * 256 : lo; j < seg * 256 + 256 && j < end; j++, n++) {
            float v[512], norm = 0;
            memcpy(v, s->v + ((size_t)j * (size_t)s->shape.n_kv_heads + (size_t)kv) * (size_t)dim,
                   sizeof *v * (size_t)dim);
            rotate(v, dim);
            for (int d = 0; d < dim; d++) norm = fmaxf(norm, fabsf(v[d]));
            limit = fmax(limit, weight[j] / total * norm), top = fmax(top, norm);
        }
        slip += n * limit * 0x1p-13;
    }
    return slip;
}

/* softmax(q k) v in float64, with the error bound of the float32 computation: every score within
 * (terms + few) eps of sum |q k|, and o within its share of sum p |v|. */
void reference(const scene *s, const ek_attn_row *row, const float *query, int head, double *o, double *tol)
{
    const ek_attn_shape *sh = &s->shape;
    float q[512];
    memcpy(q, query, sizeof *q * (size_t)sh->head_dim);
    if (whole_codes(sh->k_format)) as_coded(q, sh->head_dim, 2047);
    int dim = sh->head_dim, kv = head / (sh->n_heads / sh->n_kv_heads);
    int lo = row->lo, end = row->end;
    double *score = malloc(sizeof *score * (size_t)end), max = -INFINITY, slack = 0, total = 0;
    for (int j = lo; j < end; j++) {
        const float *k = s->k + ((size_t)j * (size_t)sh->n_kv_heads + (size_t)kv) * (size_t)dim;
        double sum = 0, mass = 0;
        for (int d = 0; d < dim; d++) sum += (double)q[d] * k[d], mass += fabs((double)q[d] * k[d]);
        score[j] = sum;
        if (sum > max) max = sum;
        if (mass > slack) slack = mass;
    }
    for (int j = lo; j < end; j++) total += score[j] = exp(score[j] - max);
    double share = 0x1p-24 * (2.0 * (dim + 4) * slack + end - lo + 39);
    for (int d = 0; d < dim; d++) {
        double sum = 0, mass = 0;
        for (int j = lo; j < end; j++) {
            double v = s->v[((size_t)j * (size_t)sh->n_kv_heads + (size_t)kv) * (size_t)dim + (size_t)d];
            sum += score[j] / total * v, mass += score[j] / total * fabs(v);
        }
        o[d] = sum, tol[d] = share * mass;
    }
    if (whole_codes(sh->v_format)) {
        double slip = weight_slip(s, lo, end, kv, score, total) * (1 + share);
        for (int d = 0; d < dim; d++) tol[d] = tol[d] * 2 + slip + 2e-4 * fabs(o[d]) * (1 + (end - lo) / 256);
    }
    free(score);
}

void scene_make_steep(scene *s, float *q, size_t n_q)
{
    for (size_t i = 0; i < n_q; i++) q[i] *= 40;
    size_t width = (size_t)s->shape.n_kv_heads * (size_t)s->shape.head_dim;
    for (int p = 0; p < s->n_keys; p++) {
        float *v = s->v + (size_t)p * width;
        for (size_t d = 0; d < width; d++) v[d] = p % 3 ? v[d] * 0x1p-110f : p % 2 ? -v[d] * 0x1p80f : -0.0f;
        scene_store(s, p, s->k + (size_t)p * width, v);
    }
}

/* --- the contract of ops/attn/attn.h once more, as plainly as it reads: one query, T by halving */

typedef struct leaf {
    int m;
    float l, o[512];
} leaf;

/* The key (part 0) or value (part 1) of token j as a chain sees it: 16-bit codes enter as they are, and
 * their scale is applied once a score or once a weight. 1 for the other formats. */
static float token_scale(const scene *s, int part, int kv, int j, float *x)
{
    int dim = s->shape.head_dim;
    ek_kv_format f = format_at(s, part, j);
    memcpy(x, (part ? s->v : s->k) + ((size_t)j * (size_t)s->shape.n_kv_heads + (size_t)kv) * (size_t)dim,
           sizeof *x * (size_t)dim);
    if (f != EK_KV_I16) return 1;
    size_t kb = ek_kv_k_bytes(format_at(s, 0, j), dim), vb = ek_kv_v_bytes(format_at(s, 1, j), dim);
    const uint8_t *at = ek_kv_block(&s->view, j / 64) + (size_t)kv * (kb + vb) + (part ? kb : 0);
    const int16_t *code = (const int16_t *)at;
    for (int d = 0; d < dim; d++) x[d] = code[part ? j % 64 * dim + d : d * 64 + j % 64];
    return ((const float *)(code + 64 * dim))[j % 64];
}

/* The code of dim d of token j's key (part 0) or value (part 1), and *scale, from the page's bytes. */
static int code_at(const scene *s, int part, int kv, int j, int d, float *scale)
{
    const int dim = s->shape.head_dim, slot = j % 64;
    const ek_kv_format f = format_at(s, part, j);
    const size_t kb = ek_kv_k_bytes(format_at(s, 0, j), dim), vb = ek_kv_v_bytes(format_at(s, 1, j), dim);
    const uint8_t *at = ek_kv_block(&s->view, j / 64) + (size_t)kv * (kb + vb) + (part ? kb : 0);
    const int lane = part ? d : slot, lanes = part ? dim : 64, deep = part ? slot : d;
    memcpy(scale, at + 64 * dim * (f == EK_KV_I12 ? 2 : 1) + slot * 4, sizeof *scale);
    if (f == EK_KV_I12) return ((const int16_t *)at)[(deep / 2 * lanes + lane) * 2 + deep % 2];
    static const int byte[] = {0, 2, 1, 3};
    return ((const int8_t *)at)[(deep / 4 * lanes + lane) * 4 + byte[deep % 4]];
}

static float whole_score(const scene *s, const float *q, int kv, int j)
{
    int code[512], dim = s->shape.head_dim;
    float q_scale = rotated_codes(q, dim, 2047, code) / (float)block_of(dim), scale = 0;
    int64_t sum = 0;
    for (int d = 0; d < dim; d++) sum += code[d] * code_at(s, 0, kv, j, d, &scale);
    assert_true(sum > -((int64_t)1 << 31) && sum < (int64_t)1 << 31);
    return (float)sum * scale * q_scale;
}

/* e of keys [lo, hi) of a segment becomes o and l. */
static void whole_values(const scene *s, int kv, int lo, int hi, const float *e, leaf *out)
{
    const int dim = s->shape.head_dim;
    int64_t l = 0;
    float w[256], max = 0;
    for (int j = lo; j < hi; j++) {
        float scale;
        code_at(s, 1, kv, j, 0, &scale);
        l += (int64_t)nearbyint((double)e[j % 256] * 0x1p21);
        w[j % 256] = e[j % 256] * scale;
        max = fmaxf(max, w[j % 256]);
    }
    out->l = (float)l / 0x1p21f;
    memset(out->o, 0, sizeof out->o);
    if (max < 0x1p-100f) return;
    const int e2 = ilogbf(max);
    for (int d = 0; d < dim; d++) {
        int64_t sum = 0;
        for (int j = lo; j < hi; j++) {
            float scale, c = nearbyintf(ldexpf(w[j % 256], 13 - e2));
            sum += (int64_t)(c > 16383 ? 16383 : c) * code_at(s, 1, kv, j, d, &scale);
        }
        out->o[d] = ldexpf((float)sum, e2 - 13);
    }
}

static void contract_leaf(const scene *s, const float *q, int kv, int lo, int hi, leaf *out)
{
    int dim = s->shape.head_dim, n[256];
    float p[256], e[256], lane[16] = {0};
    out->m = INT32_MIN;
    for (int j = lo; j < hi; j++) {
        float k[512], scale = token_scale(s, 0, kv, j, k), chain[2] = {0};
        for (int d = 0; d < dim; d++) chain[d / 256] = fmaf(q[d], k[d], chain[d / 256]);
        float score = (dim > 256 ? chain[0] + chain[1] : chain[0]) * scale;
        if (whole_codes(format_at(s, 0, j))) score = whole_score(s, q, kv, j);
        p[j % 256] = ek_exp_split(score, &n[j % 256]);
        if (n[j % 256] > out->m) out->m = n[j % 256];
    }
    memset(out->o, 0, sizeof out->o);
    for (int j = lo; j < hi; j++) {
        float v[512], scale = token_scale(s, 1, kv, j, v);
        e[j % 256] = n[j % 256] - out->m < -125 ? 0.0f : ldexpf(p[j % 256], n[j % 256] - out->m);
        lane[j % 16] += e[j % 256];
        for (int d = 0; d < dim; d++) out->o[d] = fmaf(e[j % 256] * scale, v[d], out->o[d]);
    }
    for (int apart = 8; apart; apart /= 2)
        for (int l = 0; l < apart; l++) lane[l] += lane[l + apart];
    out->l = lane[0];
    if (whole_codes(format_at(s, 1, lo))) whole_values(s, kv, lo, hi, e, out);
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

void contract(const scene *s, const ek_attn_row *row, const float *q, int head, float *out)
{
    int kv = head / (s->shape.n_heads / s->shape.n_kv_heads), lo = row->lo, end = row->end;
    leaf sum;
    contract_tree(s, q, kv, lo, end, lo / 256, (end - 1) / 256 - lo / 256 + 1, &sum);
    for (int d = 0; d < s->shape.head_dim; d++) out[d] = (sum.o[d] + 0.0f) / sum.l;
    if (!whole_codes(s->shape.v_format)) return;
    rotate(out, s->shape.head_dim);
    for (int d = 0; d < s->shape.head_dim; d++) out[d] /= (float)block_of(s->shape.head_dim);
}
