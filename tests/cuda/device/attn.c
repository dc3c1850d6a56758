/* Attention: few queries (tiles of 2, 4, 8) and prompts, all formats, against ops/attn.h on the scalar
 * kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"

typedef struct call { /* arguments of a launch, and what they hold */
    ek_cuda_attn_args a;
    ek_cuda_attn_work w;
    CUdeviceptr tiles, items, rows, o, leaf_o, leaf_l, leaf_m, ended;
    size_t out_bytes;
    int tile;
} call;

static void prepare(call *c, const scene *s, const ek_attn_row *rows, int n_rows, CUdeviceptr q, int tile, int blocks)
{
    dev *d = s->d;
    const int heads = s->shape.n_heads, kv = s->shape.n_kv_heads, dim = s->shape.head_dim, width = heads * dim;
    bool prompt = tile == EK_CUDA_PROMPT_TILE;
    *c = (call){.tile = tile};
    c->w.max_tiles = ek_cuda_attn_max_tiles(n_rows, heads, kv, tile);
    c->w.tiles = malloc((size_t)c->w.max_tiles * sizeof *c->w.tiles);
    c->w.max_items = c->w.max_tiles * ((s->n_keys + 255) / 256);
    if (!prompt) c->w.items = malloc((size_t)c->w.max_items * sizeof *c->w.items);
    must(ek_cuda_attn_cut(&c->w, rows, n_rows, heads, kv, tile));
    ek_cuda_attn_row *seen = malloc((size_t)n_rows * sizeof *seen);
    for (int r = 0; r < n_rows; r++) seen[r] = (ek_cuda_attn_row){rows[r].lo, rows[r].end};
    c->tiles = up(d, c->w.tiles, (size_t)c->w.n_tiles * sizeof *c->w.tiles);
    c->items = prompt ? 0 : up(d, c->w.items, (size_t)c->w.n_items * sizeof *c->w.items);
    c->rows = up(d, seen, (size_t)n_rows * sizeof *seen);
    free(seen);
    int levels = ek_cuda_attn_levels(c->w.max_segments);
    size_t leaves = prompt ? (size_t)blocks * (size_t)levels : (size_t)c->w.n_items;
    c->leaf_o = up(d, NULL, leaves * (size_t)(tile * dim) * 4);
    c->leaf_l = up(d, NULL, leaves * (size_t)tile * 4);
    c->leaf_m = up(d, NULL, leaves * (size_t)tile * 4);
    int32_t *zero = calloc((size_t)c->w.n_tiles, sizeof *zero);
    c->ended = up(d, zero, (size_t)c->w.n_tiles * sizeof *zero);
    free(zero);
    c->out_bytes = (size_t)(n_rows * width) * 4;
    c->o = up(d, NULL, c->out_bytes);
    c->a = (ek_cuda_attn_args){.kv = scene_kv(s),
                               .rows = c->rows,
                               .tiles = c->tiles,
                               .items = c->items,
                               .q = q,
                               .o = c->o,
                               .ldq = width,
                               .ldo = width,
                               .leaf_o = c->leaf_o,
                               .leaf_l = c->leaf_l,
                               .leaf_m = c->leaf_m,
                               .ended = prompt ? c->ended : 0,
                               .ratio = heads / kv,
                               .n_tiles = c->w.n_tiles,
                               .tile = tile,
                               .levels = levels};
}

static void finish(call *c, dev *d)
{
    CUdeviceptr p[] = {c->tiles, c->items, c->rows, c->o, c->leaf_o, c->leaf_l, c->leaf_m, c->ended};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) drop(d, p[i]);
    free(c->w.tiles), free(c->w.items);
}

typedef struct kernels {
    ek_cuda_kernel leaf, join, prompt;
    size_t shared;
    unsigned threads, blocks;
} kernels;

static kernels find_kernels(dev *d, const ek_attn_shape *shape, int tile, bool half)
{
    kernels k = {.blocks = (unsigned)ek_cuda_multiprocessors(d->c)};
    if (tile == EK_CUDA_PROMPT_TILE) {
        k.prompt = find(d, ek_cuda_attn_prompt_name(shape->k_format), EK_CUDA_PROMPT_SHARED);
        return k;
    }
    const ek_cuda_attn_leaf p = ek_cuda_attn_leaf_plan(tile, shape->head_dim, shape->v_format, half);
    k.shared = p.shared, k.threads = p.threads;
    k.leaf = find(d, p.name, k.shared);
    k.join = find(d, "ek_attn_join", 0);
    return k;
}

static void run(dev *d, const kernels *k, const call *c)
{
    if (c->tile == EK_CUDA_PROMPT_TILE) {
        unsigned blocks = (unsigned)c->w.n_tiles < k->blocks ? (unsigned)c->w.n_tiles : k->blocks;
        launch(d, &k->prompt,
               (ek_cuda_grid){.x = blocks, .threads = 256, .shared = EK_CUDA_PROMPT_SHARED, .overlap = true}, &c->a);
        return;
    }
    launch(d, &k->leaf,
           (ek_cuda_grid){.x = (unsigned)c->w.n_items, .threads = k->threads, .shared = k->shared, .overlap = true},
           &c->a);
    if (c->a.ended) return; /* joined */
    launch(d, &k->join,
           (ek_cuda_grid){.x = (unsigned)c->w.n_tiles,
                          .y = (unsigned)c->tile,
                          .z = (unsigned)(c->a.kv.head_dim + 127) / 128,
                          .threads = 128,
                          .overlap = true},
           &c->a);
}

/* Rows of both views: as a decoder sees, windows, odd intervals, a run of a prompt, blocks that see each other. */
static int make_rows(ek_attn_row *rows, int n_keys, bool few)
{
    int n = 0, end = n_keys;
    for (int v = 0; v < 2; v++) {
        rows[n++] = (ek_attn_row){v, 0, end};
        rows[n++] = (ek_attn_row){v, end > 100 ? end - 100 : 0, end};
        rows[n++] = (ek_attn_row){v, end / 2, end / 2 + 1};
        rows[n++] = (ek_attn_row){v, end / 3, end - end / 4};
    }
    int run = n_keys < 30 ? n_keys : few ? 5 : 30;
    for (int i = 0; i < run; i++) rows[n++] = (ek_attn_row){0, 0, n_keys - run + i + 1};
    for (int i = 0; i < 3 && n_keys > 20; i++) rows[n++] = (ek_attn_row){1, 7, 20};
    int window = n_keys < 300 ? n_keys / 2 : 300;
    for (int p = n_keys > 40 ? n_keys - 40 : 1; p < n_keys && !few; p++)
        rows[n++] = (ek_attn_row){1, p - window > 0 ? p - window : 0, p + 1};
    return n;
}

/* single: a row per view, whose last key is its own. */
static void compare(dev *d, const ek_attn_shape *shape, int n_keys, int garbage, float loud, bool all_tiles,
                    bool single)
{
    scene s;
    scene_open(&s, d, shape, 2, n_keys, garbage, 11);
    ek_attn_row rows[128] = {{0, 0, n_keys}, {1, n_keys > 100 ? n_keys - 100 : 0, n_keys}};
    const int n_rows = single ? 2 : make_rows(rows, n_keys, d->quick), width = shape->n_heads * shape->head_dim;
    float *q = malloc((size_t)(n_rows * width) * 4), *want = malloc((size_t)(n_rows * width) * 4);
    for (int i = 0; i < n_rows * width; i++) q[i] = uniform(21, (uint64_t)i) * loud;
    void *scratch =
        ek_attn_scratch_bytes(s.cpu, n_rows, n_keys, ek_pool_threads(d->pool))
            ? aligned_alloc(64, (ek_attn_scratch_bytes(s.cpu, n_rows, n_keys, ek_pool_threads(d->pool)) + 63) / 64 * 64)
            : NULL;
    ek_attn_run(s.cpu, d->pool, s.view, rows, n_rows, q, width, want, width, scratch);
    free(scratch);
    CUdeviceptr dq = up(d, q, (size_t)(n_rows * width) * 4);
    static const int tiles[] = {8, EK_CUDA_PROMPT_TILE, 2, 4};
    for (int t = 0; t < (all_tiles ? 4 : 2); t++) {
        kernels k = find_kernels(d, shape, tiles[t], false);
        call c;
        prepare(&c, &s, rows, n_rows, dq, tiles[t], (int)k.blocks);
        const bool may_join = tiles[t] != EK_CUDA_PROMPT_TILE && c.w.max_segments <= EK_CUDA_ATTN_JOINED &&
                              ek_cuda_attn_half_fits(shape->head_dim, shape->k_format, shape->v_format);
        for (int join = 0; join <= may_join; join++) { /* by a kernel of its own, by ek_attn_half's last block */
            if (join) c.a.ended = c.ended, c.a.single = single;
            if (join) k = find_kernels(d, shape, tiles[t], true);
            must(ek_cuda_fill(d->c, c.o, 0xff, c.out_bytes));
            run(d, &k, &c);
            same(d, want, down(d, c.o, c.out_bytes), c.out_bytes, false,
                 "attention %s:%s, %d on %d heads of %d, %d keys, tile %d, garbage %d%s",
                 ek_kv_format_name(shape->k_format), ek_kv_format_name(shape->v_format), shape->n_heads,
                 shape->n_kv_heads, shape->head_dim, n_keys, tiles[t], garbage, join ? ", joined" : "");
        }
        finish(&c, d);
    }
    drop(d, dq);
    free(q), free(want);
    scene_close(&s);
}

void test_attn(dev *d)
{
    for (int k = 0; k < EK_KV_FORMAT_COUNT; k++) /* every format, and every pair of kinds of kernels */
        for (int v = 0; v < EK_KV_FORMAT_COUNT; v++) {
            ek_attn_shape shape = {EK_FULL, (ek_kv_format)k, (ek_kv_format)v, 4, 1, k % 2 ? 64 : 160, 0};
            if (k != v && (d->quick || ((k > EK_KV_Q4 || v > EK_KV_Q4) && (k * 7 + v) % 5))) continue;
            compare(d, &shape, d->quick ? 270 : 600, (k + v) % 2, 1, k == v && !d->quick, false);
        }
    static const struct {
        int heads, kv, dim, keys;
        float loud;
    } c[] = {{8, 1, 256, 1300, 1}, {8, 1, 512, 1100, 0.5f}, {2, 1, 512, 530, 40}, {4, 2, 128, 2100, 30},
             {3, 1, 100, 400, 1},  {16, 1, 320, 300, 1},    {2, 2, 4, 700, 8},    {32, 16, 256, 300, 1},
             {5, 1, 36, 4400, 3},  {1, 1, 64, 1, 1}};
    static const int formats[] = {EK_KV_I16, EK_KV_Q8,    EK_KV_Q4, EK_KV_BF16,   EK_KV_F32,   EK_KV_F16,
                                  EK_KV_Q6,  EK_KV_Q5_64, EK_KV_Q3, EK_KV_Q2_128, EK_KV_Q8_128};
    enum { N = sizeof formats / sizeof *formats };
    for (int dim = 64; dim <= 512; dim *= 2) { /* ek_attn_half */
        ek_attn_shape shape = {EK_SLIDING, EK_KV_F16, EK_KV_F16, 8, dim == 128 ? 2 : 1, dim, 0};
        compare(d, &shape, d->quick ? 300 : 1500, dim == 256, dim > 256 ? 0.5f : 1, true, false);
        for (int keys = 64; keys < 1500; keys = keys * 2 + 1) compare(d, &shape, keys, 0, 1, true, true);
    }
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int f = 0; f < (i < 2 ? N : 3); f++) {
            ek_kv_format format = (ek_kv_format)(i < 2 ? formats[f] : formats[(i + (size_t)f * 4) % N]);
            ek_attn_shape shape = {EK_SLIDING, format, format, c[i].heads, c[i].kv, c[i].dim, 0};
            if (d->quick && (i > 1 || f > 0)) continue;
            compare(d, &shape, d->quick ? 300 : c[i].keys, (int)i % 2, c[i].loud, f == 0, false);
        }
}

/* --- speed */

double stream_gbs;

typedef struct reader {
    dev *d;
    ek_cuda_kernel k;
    ek_cuda_math_args a;
    unsigned blocks;
} reader;

static void queue_read(void *arg, int i)
{
    reader *r = arg;
    (void)i;
    launch(r->d, &r->k, (ek_cuda_grid){.x = r->blocks, .threads = 256}, &r->a);
}

void speed_stream(dev *d)
{
    const size_t bytes = 1600000000;
    uint64_t *some = malloc(1 << 24);
    for (size_t i = 0; i < (1 << 24) / 8; i++) some[i] = ((uint64_t)rand() << 32) ^ (uint64_t)rand();
    CUdeviceptr p = up(d, NULL, bytes), out = up(d, NULL, 64);
    for (size_t at = 0; at + (1 << 24) <= bytes; at += 1 << 24) must(ek_cuda_upload(d->c, p + at, some, 1 << 24));
    must(ek_cuda_sync(d->c));
    for (unsigned per = 4; per <= 32; per *= 2) {
        reader r = {d,
                    find(d, "ek_read_stream", 0),
                    {.x = p, .y = out, .n = (int64_t)bytes},
                    (unsigned)ek_cuda_multiprocessors(d->c) * per};
        double gbs = (double)bytes / time_us(d, queue_read, &r, 3) * 1e-3;
        if (gbs > stream_gbs) stream_gbs = gbs;
    }
    printf("read stream %.0f GB/s\n", stream_gbs);
    drop(d, p), drop(d, out);
    free(some);
}

typedef struct timed {
    dev *d;
    kernels k;
    call *c;
    int layers;
    size_t block;
    CUdeviceptr mem;
} timed;

static void queue_attention(void *arg, int i)
{
    timed *t = arg;
    t->c->a.kv.base = t->mem + (size_t)(i % t->layers) * t->block;
    run(t->d, &t->k, t->c);
}

/* A scene of `batch` views of random pages, `layers` blocks a page, too large for the L2 cache. */
static void open_large(scene *s, dev *d, const ek_attn_shape *shape, int batch, int depth, int layers)
{
    *s = (scene){.d = d, .shape = *shape, .n_views = batch, .n_keys = depth, .pages_per_view = depth / 64};
    s->block = ek_kv_block_bytes(shape->k_format, shape->v_format, shape->n_kv_heads, shape->head_dim);
    s->page_bytes = s->block * (size_t)layers;
    size_t pages = (size_t)(batch * s->pages_per_view);
    uint64_t *page = malloc(s->page_bytes);
    int32_t *table = malloc(pages * sizeof *table);
    for (size_t i = 0; i < s->page_bytes / 8; i++)
        page[i] = (((uint64_t)rand() << 32) ^ (uint64_t)rand() ^ ((uint64_t)rand() << 13)) &
                  (uint64_t)0x3bff3bff3bff3bff;
    s->mem = up(d, NULL, pages * s->page_bytes);
    for (size_t i = 0; i < pages; i++) {
        must(ek_cuda_upload(d->c, s->mem + i * s->page_bytes, page, s->page_bytes));
        table[i] = (int32_t)i;
    }
    s->table = up(d, table, pages * sizeof *table);
    free(page), free(table);
}

static void time_decode(dev *d, ek_kv_format f, int heads, int kv, int dim, int batch, int depth, const int *tiles)
{
    ek_attn_shape shape = {EK_FULL, f, f, heads, kv, dim, 0};
    double bytes = (double)ek_kv_block_bytes(f, f, kv, dim) * depth / 64 * batch;
    int layers = (int)(1.0e9 / bytes);
    layers = layers < 2 ? 2 : layers > 24 ? 24 : layers;
    scene s;
    open_large(&s, d, &shape, batch, depth, layers);
    ek_attn_row *rows = malloc((size_t)batch * sizeof *rows);
    for (int b = 0; b < batch; b++) rows[b] = (ek_attn_row){b, 0, depth};
    float *q = malloc((size_t)(batch * heads * dim) * 4);
    for (int i = 0; i < batch * heads * dim; i++) q[i] = uniform(3, (uint64_t)i);
    CUdeviceptr dq = up(d, q, (size_t)(batch * heads * dim) * 4);
    printf("decode %-4s %2d on %2d heads of %d, depth %5d, batch %2d, %6.1f MB:", ek_kv_format_name(f), heads, kv, dim,
           depth, batch, bytes * 1e-6);
    double best = 1e30;
    for (; *tiles; tiles++) {
        timed t = {d,
                   find_kernels(d, &shape, *tiles, depth <= 2048 && ek_cuda_attn_half_fits(dim, f, f)),
                   malloc(sizeof(call)),
                   layers,
                   s.block,
                   s.mem};
        prepare(t.c, &s, rows, batch, dq, *tiles, 0);
        double us = time_us(d, queue_attention, &t, layers);
        printf(" tile %d %.1f", *tiles, us);
        if (us < best) best = us;
        finish(t.c, d);
        free(t.c);
    }
    printf(" us; best %.0f GB/s, %.0f %% of the stream\n", bytes / best * 1e-3, bytes / best * 1e-3 / stream_gbs * 100);
    fflush(stdout);
    drop(d, dq), drop(d, s.mem), drop(d, s.table);
    free(rows), free(q);
}

void speed_attn(dev *d)
{
    static const int wide[] = {8, 4, 2, 0}, two[] = {2, 0}, eight[] = {8, 0};
    time_decode(d, EK_KV_I16, 8, 1, 256, 1, 8192, wide);
    time_decode(d, EK_KV_I16, 8, 1, 256, 16, 8192, wide);
    time_decode(d, EK_KV_I16, 8, 1, 256, 64, 8192, eight);
    time_decode(d, EK_KV_I16, 8, 1, 512, 1, 8192, wide);
    time_decode(d, EK_KV_I16, 8, 1, 512, 16, 8192, wide);
    time_decode(d, EK_KV_BF16, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_F16, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_F32, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_Q8, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_Q4, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_Q4_128, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_Q6, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_Q3_64, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_Q2, 8, 1, 256, 16, 8192, eight);
    time_decode(d, EK_KV_I16, 16, 8, 256, 16, 1024, two);
    time_decode(d, EK_KV_I16, 32, 16, 256, 1, 1024, two);
    time_decode(d, EK_KV_I16, 32, 4, 512, 16, 8192, eight);
}

static void time_prompt(dev *d, ek_kv_format f, int heads, int kv, int dim, int n_rows, int window)
{
    ek_attn_shape shape = {EK_FULL, f, f, heads, kv, dim, 0};
    scene s;
    open_large(&s, d, &shape, 1, n_rows, 1);
    ek_attn_row *rows = malloc((size_t)n_rows * sizeof *rows);
    double keys = 0;
    for (int r = 0; r < n_rows; r++) {
        rows[r] = (ek_attn_row){0, window && r >= window ? r - window + 1 : 0, r + 1};
        keys += rows[r].end - rows[r].lo;
    }
    CUdeviceptr dq = up(d, NULL, (size_t)(n_rows * heads * dim) * 4);
    float *q = malloc((size_t)(n_rows * heads * dim) * 4);
    for (int i = 0; i < n_rows * heads * dim; i++) q[i] = uniform(3, (uint64_t)i);
    must(ek_cuda_upload(d->c, dq, q, (size_t)(n_rows * heads * dim) * 4));
    timed t = {d, find_kernels(d, &shape, EK_CUDA_PROMPT_TILE, false), malloc(sizeof(call)), 1, s.block, s.mem};
    prepare(t.c, &s, rows, n_rows, dq, EK_CUDA_PROMPT_TILE, (int)t.k.blocks);
    double us = time_us(d, queue_attention, &t, 1), flop = keys * heads * dim * 4;
    printf("prompt %-4s %2d on %2d heads of %d, %d rows, window %d: %.0f us, %.1f TFLOP/s\n", ek_kv_format_name(f),
           heads, kv, dim, n_rows, window, us, flop / us * 1e-6);
    fflush(stdout);
    finish(t.c, d);
    drop(d, dq), drop(d, s.mem), drop(d, s.table);
    free(t.c), free(rows), free(q);
}

void speed_prompt(dev *d)
{
    time_prompt(d, EK_KV_I16, 8, 1, 256, 2048, 512);
    time_prompt(d, EK_KV_I16, 8, 1, 512, 2048, 0);
    time_prompt(d, EK_KV_I16, 32, 4, 512, 8192, 0);
    time_prompt(d, EK_KV_I16, 32, 16, 256, 8192, 1024);
    time_prompt(d, EK_KV_Q8, 8, 1, 512, 2048, 0);
    time_prompt(d, EK_KV_F16, 32, 4, 512, 2048, 0);
    time_prompt(d, EK_KV_F16, 32, 16, 256, 2048, 1024);
    time_prompt(d, EK_KV_Q6, 8, 1, 512, 2048, 0);
}
