/* Storing keys and values: pages byte by byte. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
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

void test_kv(dev *d)
{
    static const int dims[] = {4, 36, 64, 100, 128, 256, 320, 512};
    enum { N = 70, HEADS = 2 };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int f = 0; f < EK_KV_FORMAT_COUNT; f++) {
            ek_attn_shape shape = {
                EK_FULL, (ek_kv_format)f, (ek_kv_format)((f + (int)i) % EK_KV_FORMAT_COUNT), HEADS, HEADS, dims[i], 0};
            if (d->quick && i % 3) continue;
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
