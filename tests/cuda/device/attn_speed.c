/* Attention timed: deep and shallow decoding, prompts. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "cuda/attn/choose.h"
#include "ops/kv/kv_codec.h"

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
    call_run(t->d, &t->k, t->c);
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
    s->page = table;
    free(page);
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
        const bool half = depth <= 2048 && ek_cuda_attn_half_fits(dim, f, f), ints = ek_cuda_attn_int_fits(dim, f, f);
        timed t = {d,    kernels_find(d, &shape, *tiles, half || ints, INT_MAX), malloc(sizeof(call)), layers, s.block,
                   s.mem};
        call_prepare(t.c, &s, rows, batch, dq, *tiles, 0);
        t.c->a.slots = t.k.slots;
        if (half || ints) t.c->a.ended = t.c->ended;
        if (half || (ints && depth <= 2048)) t.c->a.items = t.c->starts, t.c->a.starts = ints;
        double us = time_us(d, queue_attention, &t, layers);
        printf(" tile %d %.1f", *tiles, us);
        if (us < best) best = us;
        if (*tiles == EK_CUDA_ATTN_DEEP_TILE && ek_cuda_attn_deep_fits(heads / kv, dim, f, f, ek_cuda_chip_of(d->c))) {
            t.k = kernels_find_deep(d, dim), t.c->a.single = 1, t.c->a.items = t.c->items, t.c->a.ended = 0;
            us = time_us(d, queue_attention, &t, layers);
            printf(" deep %.1f", us);
            if (us < best) best = us;
        }
        call_finish(t.c, d);
        free(t.c);
    }
    printf(" us; best %.0f GB/s, %.0f %% of the stream\n", bytes / best * 1e-3, bytes / best * 1e-3 / stream_gbs * 100);
    fflush(stdout);
    drop(d, dq), drop(d, s.mem), drop(d, s.table);
    free(rows), free(q), free(s.page);
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
    time_decode(d, EK_KV_F16, 8, 1, 256, 64, 8192, eight);
    for (int batch = 16; batch <= 64; batch *= 4) time_decode(d, EK_KV_F16, 8, 1, 512, batch, 8192, eight);
    time_decode(d, EK_KV_Q8, 8, 1, 512, 16, 8192, eight);
    time_decode(d, EK_KV_Q4, 8, 1, 512, 16, 8192, eight);
    for (int depth = 1024; depth <= 4096; depth *= 2) {
        time_decode(d, EK_KV_Q8, 8, 1, 256, 4, depth, eight);
        time_decode(d, EK_KV_Q8, 8, 1, 512, 4, depth, eight);
    }
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

/* Shallow attention among products whose code and weights take its place in the caches, as in a step. */
typedef struct among {
    timed t;
    bool attends;
} among;

static void queue_step(void *arg, int i)
{
    among *m = arg;
    queue_among(i);
    if (m->attends) queue_attention(&m->t, i);
}

static void time_shallow(dev *d, ek_kv_format f, int heads, int kv, int dim, int batch, int depth, int tile)
{
    const ek_attn_shape shape = {EK_FULL, f, f, heads, kv, dim, 0};
    enum { LAYERS = 24 };
    const int width = heads * dim;
    scene s;
    open_large(&s, d, &shape, batch, (depth + 63) / 64 * 64, LAYERS);
    ek_attn_row *rows = malloc((size_t)batch * sizeof *rows);
    for (int b = 0; b < batch; b++) rows[b] = (ek_attn_row){b, 0, depth};
    float *x = malloc((size_t)(batch * width) * 4);
    for (int i = 0; i < batch * width; i++) x[i] = uniform(3, (uint64_t)i);
    CUdeviceptr dx = up(d, x, (size_t)(batch * width) * 4), norm = up(d, x, (size_t)dim * 4);
    among m = {{.d = d, .c = malloc(sizeof(call)), .layers = LAYERS, .block = s.block, .mem = s.mem}, false};
    call_prepare(m.t.c, &s, rows, batch, dx, tile, 0);
    m.t.k = kernels_find(d, &shape, tile, true, m.t.c->w.n_items);
    ek_cuda_attn_args *a = &m.t.c->a;
    a->slots = m.t.k.slots, a->items = m.t.c->starts, a->starts = ek_kv_rotated(f);
    a->single = 1, a->k = a->v = dx, a->ldk = kv * dim, a->k_norm = norm;
    a->head = (ek_cuda_head){.norm = norm, .cos = dx, .sin = norm, .eps = 1e-6f, .rotated = dim / 2};
    const size_t row = ek_cuda_acts_plan(&a->to, width, 64);
    a->to.q = up(d, NULL, row * (size_t)batch);
    a->ended = m.t.c->ended;
    const double without = time_us(d, queue_step, &m, LAYERS);
    m.attends = true;
    const double with = time_us(d, queue_step, &m, LAYERS);
    printf(
        "shallow %-3s %2d on %2d heads of %d, depth %4d, batch %2d, tile %d: %.2f us (%.2f with products, %.2f without)\n",
        ek_kv_format_name(f), heads, kv, dim, depth, batch, tile, with - without, with, without);
    fflush(stdout);
    drop(d, dx), drop(d, norm), drop(d, s.mem), drop(d, s.table), drop(d, a->to.q);
    call_finish(m.t.c, d);
    free(m.t.c), free(rows), free(x), free(s.page);
}

void speed_shallow(dev *d)
{
    for (int batch = 1; batch <= 64; batch *= 8) {
        open_among(d, batch);
        for (int tile = 1; tile <= (batch > 1 ? 8 : 2); tile *= 2) {
            time_shallow(d, EK_KV_F16, 8, 1, 256, batch, 40, tile);
            time_shallow(d, EK_KV_F16, 8, 1, 256, batch, 120, tile);
            time_shallow(d, EK_KV_F16, 8, 1, 512, batch, 120, tile);
            time_shallow(d, EK_KV_F16, 8, 1, 256, batch, 1000, tile);
        }
        for (int tile = 1; tile <= 2; tile *= 2) time_shallow(d, EK_KV_F16, 16, 8, 256, batch, 120, tile);
        close_among(d);
    }
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
    timed t = {d, kernels_find(d, &shape, EK_CUDA_PROMPT_TILE, false, 0), malloc(sizeof(call)), 1, s.block, s.mem};
    call_prepare(t.c, &s, rows, n_rows, dq, EK_CUDA_PROMPT_TILE, (int)t.k.blocks);
    double us = time_us(d, queue_attention, &t, 1), flop = keys * heads * dim * 4;
    printf("prompt %-4s %2d on %2d heads of %d, %d rows, window %d: %.0f us, %.1f TFLOP/s\n", ek_kv_format_name(f),
           heads, kv, dim, n_rows, window, us, flop / us * 1e-6);
    fflush(stdout);
    call_finish(t.c, d);
    drop(d, dq), drop(d, s.mem), drop(d, s.table);
    free(t.c), free(rows), free(q), free(s.page);
}

/* A piece of a prompt behind `depth` tokens: by the kernel of prompts, and in tiles of few queries. */
static void time_piece(dev *d, ek_kv_format f, int heads, int kv, int dim, int n_rows, int depth)
{
    const ek_attn_shape shape = {EK_FULL, f, f, heads, kv, dim, 0};
    scene s;
    open_large(&s, d, &shape, 1, (depth + n_rows + 63) / 64 * 64, 1);
    ek_attn_row *rows = malloc((size_t)n_rows * sizeof *rows);
    for (int r = 0; r < n_rows; r++) rows[r] = (ek_attn_row){0, 0, depth + r + 1};
    float *q = malloc((size_t)(n_rows * heads * dim) * 4);
    for (int i = 0; i < n_rows * heads * dim; i++) q[i] = uniform(3, (uint64_t)i);
    CUdeviceptr dq = up(d, q, (size_t)(n_rows * heads * dim) * 4);
    const bool ints = ek_cuda_attn_int_fits(dim, f, f);
    const int ratio = heads / kv, tile = ratio < 8 && !ints ? ratio : 8;
    double us[4] = {0};
    int part = -1;
    for (int i = 0; i < 3; i++) {
        if (i == 2 && (tile < 8 || !ek_cuda_attn_deep_fits(ratio, dim, f, f, ek_cuda_chip_of(d->c)))) continue;
        timed t = {d,
                   i == 2 ? kernels_find_deep(d, dim)
                          : kernels_find(d, &shape, i ? tile : EK_CUDA_PROMPT_TILE, i && ints, INT_MAX),
                   malloc(sizeof(call)),
                   1,
                   s.block,
                   s.mem};
        call_prepare(t.c, &s, rows, n_rows, dq, i ? tile : EK_CUDA_PROMPT_TILE, (int)t.k.blocks);
        if (i == 1 && ints) t.c->a.ended = t.c->ended;
        us[i] = time_us(d, queue_attention, &t, 1);
        if (i == 0 && ints) {
            part = ek_cuda_attn_part(t.c->w.tiles, t.c->w.n_tiles, 8 * ek_cuda_multiprocessors(d->c), SIZE_MAX, f, dim,
                                     ek_cuda_chip_of(d->c));
            if (part >= 0) {
                call_cut(t.c, d, part, (int)t.k.blocks);
                us[3] = time_us(d, queue_attention, &t, 1);
            }
        }
        call_finish(t.c, d);
        free(t.c);
    }
    const int tiles = (n_rows * ratio + EK_CUDA_PROMPT_TILE - 1) / EK_CUDA_PROMPT_TILE * kv;
    printf(
        "piece %-3s %2d on %2d heads of %d, %4d rows behind %d, %3d tiles of prompts: %.0f us, in parts of %d segments "
        "%.0f, of few queries %.0f, deep %.0f\n",
        ek_kv_format_name(f), heads, kv, dim, n_rows, depth, tiles, us[0], part < 0 ? 0 : 1 << part, us[3], us[1],
        us[2]);
    fflush(stdout);
    drop(d, dq), drop(d, s.mem), drop(d, s.table);
    free(rows), free(q), free(s.page);
}

void speed_piece(dev *d)
{
    static const ek_kv_format f[] = {EK_KV_F16, EK_KV_I12};
    for (int i = 0; i < 2; i++)
        for (int depth = 1024; depth <= 24576; depth = depth == 1024 ? 24576 : depth * 2)
            for (int rows = 32; rows <= 512; rows *= 2) {
                time_piece(d, f[i], 16, 2, 512, rows, depth);
                time_piece(d, f[i], 8, 1, 512, rows, depth);
                time_piece(d, f[i], 32, 4, 512, rows, depth);
                if (depth == 1024)
                    time_piece(d, f[i], 16, 8, 256, rows, depth), time_piece(d, f[i], 8, 1, 256, rows, depth);
            }
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

void speed_attn_int(dev *d)
{
    static const int tiles[] = {8, 2, 0};
    static const ek_kv_format f[] = {EK_KV_F16, EK_KV_I12, EK_KV_I8};
    for (int i = 0; i < 3; i++) {
        time_decode(d, f[i], 8, 1, 512, 1, 32768, tiles);
        time_decode(d, f[i], 32, 4, 512, 1, 32768, tiles);
        time_decode(d, f[i], 8, 1, 256, 16, 8192, tiles);
        time_decode(d, f[i], 32, 4, 512, 8, 8192, tiles);
        time_decode(d, f[i], 32, 16, 256, 8, 1024, tiles + 1);
    }
    for (int batch = 1; batch <= 8; batch *= 8) {
        open_among(d, batch);
        for (int i = 0; i < 3; i++) {
            for (int tile = i ? 8 : batch > 1 ? 2 : 1; tile; tile = i == 1 && tile > 2 ? 2 : 0) { /* f16: the fastest */
                time_shallow(d, f[i], 8, 1, 256, batch, 120, tile);
                time_shallow(d, f[i], 8, 1, 256, batch, 1000, tile);
                time_shallow(d, f[i], 8, 1, 512, batch, 120, tile);
            }
            time_shallow(d, f[i], 16, 8, 256, batch, 120, batch > 1 || i ? 2 : 1);
        }
        close_among(d);
    }
    for (int i = 0; i < 3; i++) {
        time_prompt(d, f[i], 8, 1, 256, 2048, 512);
        time_prompt(d, f[i], 8, 1, 512, 8192, 0);
        time_prompt(d, f[i], 32, 4, 512, 8192, 0);
        time_prompt(d, f[i], 32, 16, 256, 8192, 1024);
    }
}
