/* Storing keys and values: pages byte by byte. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "cuda/model_args.h"
#include "ops/kv/kv_codec.h"
#include "ops/rows/rows.h"
#include "scene.h"

void scene_open(scene *s, dev *d, const ek_attn_shape *shape, int n_views, int n_keys, int garbage, uint64_t seed)
{
    *s = (scene){.d = d, .shape = *shape, .n_views = n_views, .n_keys = n_keys};
    must(ek_attn_plan(&s->cpu, 0, shape));
    s->pages_per_view = (n_keys + 255) / 256 * 4;
    s->block = ek_kv_block_bytes(shape->k_format, shape->v_format, shape->n_kv_heads, shape->head_dim);
    s->offset = 192;
    s->page_bytes = s->offset + s->block;
    size_t pages = (size_t)(n_views * s->pages_per_view), bytes = pages * s->page_bytes;
    s->host = malloc(bytes);
    s->page = malloc(pages * sizeof *s->page);
    s->view = malloc((size_t)n_views * sizeof *s->view);
    for (size_t i = 0; i < bytes; i++) s->host[i] = garbage ? (uint8_t)ek_mix64(seed ^ i) : 0xff;
    /* pages lie in another order than they are read */
    for (size_t i = 0; i < pages; i++) s->page[i] = (int32_t)(pages - 1 - i);
    for (int v = 0; v < n_views; v++)
        s->view[v] = (ek_kv_view){
            .base = s->host + s->offset, .stride = s->page_bytes, .page = s->page + v * s->pages_per_view};
    int width = shape->n_kv_heads * shape->head_dim;
    float *k = malloc((size_t)width * 4), *val = malloc((size_t)width * 4);
    for (int v = 0; v < n_views; v++)
        for (int pos = 0; pos < n_keys; pos++) {
            uint64_t at = (uint64_t)(v * n_keys + pos) * (uint64_t)width;
            for (int i = 0; i < width; i++)
                k[i] = uniform(seed + 1, at + (uint64_t)i), val[i] = uniform(seed + 2, at + (uint64_t)i);
            ek_attn_store(s->cpu, &s->view[v], pos, k, val);
        }
    free(k), free(val);
    s->mem = up(d, s->host, bytes);
    int32_t *table = malloc(pages * sizeof *table);
    for (size_t i = 0; i < pages; i++) {
        int pos = (int)(i % (size_t)s->pages_per_view) * 64;
        table[i] = pos < n_keys ? s->page[i] : EK_NO_PAGE; /* pages not yet taken are absent */
    }
    s->table = up(d, table, pages * sizeof *table);
    free(table);
}

void scene_close(scene *s)
{
    drop(s->d, s->mem), drop(s->d, s->table);
    ek_attn_free(s->cpu);
    free(s->host), free(s->page), free(s->view);
}

ek_cuda_kv scene_kv(const scene *s)
{
    ek_cuda_kv kv = {.pages = s->table,
                     .base = s->mem + s->offset,
                     .stride = (int64_t)s->page_bytes,
                     .ld_pages = s->pages_per_view,
                     .n_kv_heads = s->shape.n_kv_heads};
    ek_cuda_kv_formats(&kv, s->shape.k_format, s->shape.v_format, s->shape.head_dim);
    return kv;
}

/* Rows that formats treat differently: ordinary, zeros, tiny, huge, with NaN and infinity, ties of rounding. */
static void odd_row(float *x, int n, int kind, uint64_t seed)
{
    for (int i = 0; i < n; i++) {
        float u = uniform(seed, (uint64_t)i);
        x[i] = u;
        if (kind == 1) x[i] = 0;
        if (kind == 2) x[i] = u * 0x1p-130f;
        if (kind == 3) x[i] = u * 1e6f;
        if (kind == 4) x[i] = i % 7 == 0 ? NAN : i % 11 == 0 ? -INFINITY : u;
        if (kind == 5) x[i] = (float)(int)(u * 127) + 0.5f;
        if (kind == 6) x[i] = -fabsf(u) - 0.25f;
        if (kind == 7) x[i] = i % 32 == 0 ? NAN : u;
    }
}

static const char *store_name(ek_kv_format format, int dim)
{
    if (format == EK_KV_F16) return dim == 256 ? "ek_kv_store_rows_256" : "ek_kv_store_rows_512";
    return dim == 256 ? "ek_kv_store_codes_256" : "ek_kv_store_codes_512";
}

/* Heads of prompts: queries in place, and keys and values normed, rotated and stored, in f16 as ek_kv_store_rows_DIM
 * does, in i12 and i8 as ek_kv_store_codes_DIM; positions that do not follow each other, too. */
static void test_rows_of_heads(dev *d, ek_kv_format format, int dim, int n, int q_heads, int kv_heads, double partial,
                               bool odd)
{
    ek_attn_shape shape = {EK_FULL, format, format, kv_heads, kv_heads, dim, 0};
    scene s;
    scene_open(&s, d, &shape, 2, n, 1, 5);
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    float frequency[256], *w = malloc(sizeof(float) * (size_t)dim * 2);
    const int rotated = ek_rope_frequencies(frequency, dim, 10000, partial, 1), width = kv_heads * dim;
    const size_t q_bytes = sizeof(float) * (size_t)(n * q_heads * dim), bytes = sizeof(float) * (size_t)(n * width),
                 table = sizeof(float) * (size_t)(n * rotated);
    float *q = malloc(q_bytes), *k = malloc(bytes), *v = malloc(bytes), *cs = malloc(table), *sn = malloc(table);
    ek_cuda_place *place = malloc(sizeof *place * (size_t)n);
    for (int i = 0; i < 2 * dim; i++) w[i] = 1 + uniform(3, (uint64_t)i) * 0.5f;
    for (int r = 0; r < n; r++) {
        place[r] = (ek_cuda_place){.view = odd ? r % 2 : 0, .pos = odd ? (r * 37 + 5) % n : r};
        ek_rope_row(cs + r * rotated, sn + r * rotated, frequency, rotated, place[r].pos);
        odd_row(q + r * q_heads * dim, q_heads * dim, odd ? r % 8 : 0, 300 + (uint64_t)r);
        odd_row(k + r * width, width, odd ? (r + 1) % 8 : 0, 100 + (uint64_t)r);
        odd_row(v + r * width, width, odd ? (r + 3) % 8 : 0, 200 + (uint64_t)r);
    }
    CUdeviceptr dq = up(d, q, q_bytes), dk = up(d, k, bytes), dv = up(d, v, bytes), dw = up(d, w, 8 * (size_t)dim),
                dc = up(d, cs, table), ds = up(d, sn, table), dp = up(d, place, sizeof *place * (size_t)n);
    const ek_cuda_head head = {.norm = dw, .cos = dc, .sin = ds, .ld_table = rotated, .eps = 1e-6f, .rotated = rotated};
    ek_cuda_heads_args a = {.q = dq, .ldq = q_heads * dim, .head = head, .head_dim = dim};
    ek_cuda_store_args st = {
        .kv = scene_kv(&s), .place = dp, .k = dk, .v = dv, .ldk = width, .ldv = width, .head = head, .rows = n};
    st.head.norm = dw + sizeof(float) * (size_t)dim;
    ek_cuda_kernel heads = find(d, dim == 256 ? "ek_heads_rows_256" : "ek_heads_rows_512", 0),
                   store = find(d, store_name(format, dim), 0);
    launch(d, &heads, (ek_cuda_grid){.x = (unsigned)n, .threads = EK_CUDA_HEADS_THREADS}, &a);
    launch(d, &store,
           (ek_cuda_grid){.x = (unsigned)kv_heads,
                          .y = (unsigned)((n + EK_CUDA_STORE_ROWS - 1) / EK_CUDA_STORE_ROWS),
                          .z = 2,
                          .threads = EK_CUDA_STORE_THREADS},
           &st);
    for (int r = 0; r < n; r++) {
        for (int h = 0; h < q_heads + 2 * kv_heads; h++) {
            const bool query = h < q_heads, key = !query && h < q_heads + kv_heads;
            float *x = query ? q + (r * q_heads + h) * dim
                             : (key ? k : v) + r * width + (h - q_heads - (key ? 0 : kv_heads)) * dim;
            ops.rms_norm(x, x, query ? w : key ? w + dim : NULL, dim, 1e-6f);
            if (query || key) ops.rope(x, cs + r * rotated, sn + r * rotated, dim / 2, rotated);
        }
        ek_attn_store(s.cpu, &s.view[place[r].view], place[r].pos, k + r * width, v + r * width);
    }
    same(d, q, down(d, dq, q_bytes), q_bytes, true, "%d rows of %d heads of %d", n, q_heads, dim);
    const size_t all = (size_t)(2 * s.pages_per_view) * s.page_bytes;
    same(d, s.host, down(d, s.mem, all), all, false, "store %d rows of %d heads of %d in %s", n, kv_heads, dim,
         ek_kv_format_name(format));
    drop(d, dq), drop(d, dk), drop(d, dv), drop(d, dw), drop(d, dc), drop(d, ds), drop(d, dp);
    free(q), free(k), free(v), free(cs), free(sn), free(w), free(place);
    scene_close(&s);
}

void test_kv(dev *d)
{
    if (!ek_cuda_chip_of(d->c)->plain) {
        static const ek_kv_format formats[] = {EK_KV_F16, EK_KV_I12, EK_KV_I8};
        for (int f = 0; f < 3; f++) {
            test_rows_of_heads(d, formats[f], 256, 70, 5, 2, 1, true);
            test_rows_of_heads(d, formats[f], 512, 70, 3, 2, 0.25, true);
            test_rows_of_heads(d, formats[f], 256, 33, 8, 1, 1, false);
            test_rows_of_heads(d, formats[f], 512, 128, 8, 1, 0.25, false);
        }
    }
    static const int dims[] = {4, 36, 64, 100, 128, 256, 320, 512};
    enum { N = 70, HEADS = 2 };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int f = 0; f < EK_KV_FORMAT_COUNT; f++) {
            ek_attn_shape shape = {
                EK_FULL, (ek_kv_format)f, (ek_kv_format)((f + (int)i) % EK_KV_FORMAT_COUNT), HEADS, HEADS, dims[i], 0};
            if (d->quick && i % 3) continue;
            if (d->few && (i + (size_t)f) % 3) continue;
            scene s;
            scene_open(&s, d, &shape, 2, N, 1, 5);
            int width = HEADS * dims[i];
            size_t bytes = (size_t)(N * width) * 4;
            float *k = malloc(bytes), *v = malloc(bytes);
            ek_cuda_place place[N];
            for (int r = 0; r < N; r++) {
                place[r] = (ek_cuda_place){.view = r % 2, .pos = (r * 37 + 5) % N};
                odd_row(k + r * width, width, r % 8, 100 + (uint64_t)r);
                odd_row(v + r * width, width, (r + 3) % 8, 200 + (uint64_t)r);
                ek_attn_store(s.cpu, &s.view[place[r].view], place[r].pos, k + r * width, v + r * width);
            }
            CUdeviceptr dk = up(d, k, bytes), dv = up(d, v, bytes), dp = up(d, place, sizeof place);
            ek_cuda_store_args a = {.kv = scene_kv(&s), .place = dp, .k = dk, .v = dv, .ldk = width, .ldv = width};
            ek_cuda_kernel kernel = find(d, "ek_kv_store", 0);
            launch(d, &kernel, (ek_cuda_grid){.x = HEADS, .y = N, .z = 2, .threads = 128}, &a);
            size_t all = (size_t)(2 * s.pages_per_view) * s.page_bytes;
            same(d, s.host, down(d, s.mem, all), all, false, "store %s:%s dim %d", ek_kv_format_name(shape.k_format),
                 ek_kv_format_name(shape.v_format), dims[i]);
            drop(d, dk), drop(d, dv), drop(d, dp);
            free(k), free(v);
            scene_close(&s);
        }
}
