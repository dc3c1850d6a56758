/* Attention of few queries in one launch: queries finished, the new key and value stored, leaves joined by the block
 * that ends last, against ops/rows and ops/attn. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "ops/kv/kv_codec.h"
#include "ops/rows/rows.h"

enum { VIEWS = 3 };

static float *numbers(size_t n, uint64_t seed, float loud)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = uniform(seed, (uint64_t)i) * loud;
    return x;
}

/* What a row's heads are turned by. */
typedef struct turns {
    float *cos, *sin;
    int rotated;
} turns;

static void finish(const ek_row_ops *ops, float *x, int n_heads, int dim, const float *norm, const turns *t, int row)
{
    for (int h = 0; h < n_heads; h++, x += dim) {
        ops->rms_norm(x, x, norm, dim, 1e-6f);
        if (t) ops->rope(x, t->cos + row * t->rotated, t->sin + row * t->rotated, dim / 2, t->rotated);
    }
}

/* stores: the launch makes the rows' own keys and values, the last of each view; else they are in their pages. */
static void compare_whole(dev *d, const ek_attn_shape *shape, int n_keys, bool stores)
{
    const int dim = shape->head_dim, heads = shape->n_heads, kv = shape->n_kv_heads, rotated = dim / 4;
    const size_t width = (size_t)(heads * dim), k_width = (size_t)(kv * dim);
    scene s;
    scene_open(&s, d, shape, VIEWS, n_keys, 1, 31);
    const ek_attn_row rows[VIEWS] = {
        {0, 0, n_keys}, {1, n_keys > 100 ? n_keys - 100 : 0, n_keys}, {2, n_keys > 600 ? n_keys - 600 : 0, n_keys}};
    float *q = numbers(VIEWS * width, 1, 2), *k = numbers(VIEWS * k_width, 2, 3), *v = numbers(VIEWS * k_width, 3, 1);
    float *norm = numbers((size_t)dim * 2, 4, 1), *want = malloc(VIEWS * width * 4);
    const turns t = {numbers(VIEWS * (size_t)rotated, 5, 1), numbers(VIEWS * (size_t)rotated, 6, 1), rotated};
    const CUdeviceptr at[] = {up(d, q, VIEWS * width * 4),
                              up(d, k, VIEWS * k_width * 4),
                              up(d, v, VIEWS * k_width * 4),
                              up(d, norm, (size_t)dim * 8),
                              up(d, t.cos, VIEWS * (size_t)rotated * 4),
                              up(d, t.sin, VIEWS * (size_t)rotated * 4)};
    ek_row_ops ops;
    ek_row_init(&ops, 0);
    const size_t bytes = (size_t)(VIEWS * s.pages_per_view) * s.page_bytes;
    uint8_t *const stale = malloc(bytes); /* without the rows' own keys and values */
    memcpy(stale, s.host, bytes);
    for (int r = 0; r < VIEWS; r++) {
        finish(&ops, q + (size_t)r * width, heads, dim, norm, &t, r);
        finish(&ops, k + (size_t)r * k_width, kv, dim, norm + dim, &t, r);
        finish(&ops, v + (size_t)r * k_width, kv, dim, NULL, NULL, r);
        if (stores) ek_attn_store(s.cpu, &s.view[r], n_keys - 1, k + (size_t)r * k_width, v + (size_t)r * k_width);
    }
    const int threads = ek_pool_threads(d->pool);
    void *scratch = aligned_alloc(64, (ek_attn_scratch_bytes(s.cpu, VIEWS, n_keys, threads) + 64) / 64 * 64);
    ek_attn_run(s.cpu, d->pool, s.view, rows, VIEWS, q, (ptrdiff_t)width, want, (ptrdiff_t)width, scratch);
    free(scratch);
    for (int tile = 2; tile <= 8; tile *= 2) {
        call c;
        call_prepare(&c, &s, rows, VIEWS, at[0], tile, 0);
        const bool short_ones = c.w.max_segments <= EK_CUDA_ATTN_JOINED;
        c.a.head = (ek_cuda_head){
            .norm = at[3], .cos = at[4], .sin = at[5], .ld_table = rotated, .eps = 1e-6f, .rotated = rotated};
        c.a.k_norm = at[3] + (size_t)dim * 4, c.a.ldk = (int64_t)k_width, c.a.single = 1;
        c.a.ended = c.ended;
        if (stores) c.a.k = at[1], c.a.v = at[2];
        for (int i = 0; i < 4; i++) {
            const bool starts = i % 2, alone = i / 2; /* alone: what blocks get that have a multiprocessor each */
            if ((starts && !short_ones) || (alone && tile > 2)) continue;
            if (!starts && !ek_kv_rotated(shape->k_format)) continue; /* ek_attn_half has these alone */
            const kernels whole = kernels_find(d, shape, tile, true, alone ? 1 : INT_MAX);
            c.a.starts = starts, c.a.items = starts ? c.starts : c.items, c.a.slots = whole.slots;
            must(ek_cuda_fill(d->c, c.o, 0xff, c.out_bytes));
            must(ek_cuda_upload(d->c, s.mem, stores ? stale : s.host, bytes));
            must(ek_cuda_sync(d->c));
            call_run(d, &whole, &c);
            same(d, want, down(d, c.o, c.out_bytes), c.out_bytes, false,
                 "attention whole %s:%s, %d on %d heads of %d, %d keys, tile %d%s%s%s",
                 ek_kv_format_name(shape->k_format), ek_kv_format_name(shape->v_format), heads, kv, dim, n_keys, tile,
                 stores ? ", stores" : "", starts ? ", records" : "", alone ? ", alone" : "");
        }
        call_finish(&c, d);
        same(d, s.host, down(d, s.mem, bytes), bytes, false, "pages behind attention whole of %d, %d keys", dim,
             n_keys);
    }
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) drop(d, at[i]);
    free(q), free(k), free(v), free(norm), free(want), free(t.cos), free(t.sin), free(stale);
    scene_close(&s);
}

void test_attn_whole(dev *d)
{
    static const struct {
        int heads, kv, dim, keys;
        ek_kv_format k, v;
    } c[] = {{8, 1, 256, 300, EK_KV_I12, EK_KV_I12}, {8, 1, 512, 65, EK_KV_I8, EK_KV_I8},
             {16, 8, 64, 513, EK_KV_I8, EK_KV_I12},  {4, 2, 128, 1, EK_KV_I12, EK_KV_I8},
             {8, 1, 256, 2400, EK_KV_I8, EK_KV_I8},  {16, 1, 512, 2049, EK_KV_I12, EK_KV_I12},
             {5, 1, 64, 17000, EK_KV_I12, EK_KV_I8}, {7, 1, 128, 4097, EK_KV_I8, EK_KV_I8},
             {8, 1, 256, 33, EK_KV_I12, EK_KV_I12},  {5, 1, 128, 700, EK_KV_I12, EK_KV_I12},
             {3, 3, 64, 257, EK_KV_I12, EK_KV_I12},  {3, 1, 512, 300, EK_KV_I12, EK_KV_I12},
             {8, 1, 512, 120, EK_KV_I12, EK_KV_I8},  {2, 1, 256, 190, EK_KV_I8, EK_KV_I12},
             {8, 1, 512, 64, EK_KV_I12, EK_KV_I12},  {8, 1, 256, 1500, EK_KV_F16, EK_KV_F16},
             {8, 2, 512, 130, EK_KV_F16, EK_KV_F16}};
    for (size_t i = 0; i < (size_t)cases(d, 4, 5, sizeof c / sizeof *c); i++)
        for (int stores = 0; stores < 2; stores++) {
            const ek_attn_shape shape = {EK_FULL, c[i].k, c[i].v, c[i].heads, c[i].kv, c[i].dim, 0};
            compare_whole(d, &shape, c[i].keys, stores);
        }
}
