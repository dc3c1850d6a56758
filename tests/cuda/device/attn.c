/* Attention: few queries (tiles of 1, 2, 4, 8) and prompts, all formats, against ops/attn/attn.h on the scalar
 * kernels. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/device_cut.h"
#include "attn.h"
#include "ops/kv/kv_codec.h"

/* Tiles of few queries have up to 8. */
static bool of_prompt(const dev *d, int tile)
{
    return !ek_cuda_chip_of(d->c)->plain && tile >= EK_CUDA_PROMPT_SMALL_TILE;
}

void call_prepare(call *c, const scene *s, const ek_attn_row *rows, int n_rows, CUdeviceptr q, int tile, int blocks)
{
    dev *d = s->d;
    const int heads = s->shape.n_heads, kv = s->shape.n_kv_heads, dim = s->shape.head_dim, width = heads * dim;
    bool prompt = of_prompt(d, tile);
    *c = (call){.tile = tile};
    c->w.max_tiles = ek_cuda_attn_max_tiles(n_rows, heads, kv, tile);
    c->w.tiles = malloc((size_t)c->w.max_tiles * sizeof *c->w.tiles);
    c->w.max_items = c->w.max_tiles * ((s->n_keys + 255) / 256);
    if (!prompt) c->w.items = malloc((size_t)c->w.max_items * sizeof *c->w.items);
    must(device_cut(&c->w, rows, n_rows, heads, kv, tile));
    ek_cuda_attn_row *seen = malloc((size_t)n_rows * sizeof *seen);
    for (int r = 0; r < n_rows; r++) seen[r] = (ek_cuda_attn_row){rows[r].lo, rows[r].end};
    c->tiles = up(d, c->w.tiles, (size_t)c->w.n_tiles * sizeof *c->w.tiles);
    c->items = prompt ? 0 : up(d, c->w.items, (size_t)c->w.n_items * sizeof *c->w.items);
    if (!prompt) {
        ek_cuda_attn_start *starts = malloc((size_t)c->w.n_items * sizeof *starts);
        ek_cuda_attn_starts(starts, &c->w, rows, s->page, s->pages_per_view);
        c->starts = up(d, starts, (size_t)c->w.n_items * sizeof *starts);
        free(starts);
    }
    c->rows = up(d, seen, (size_t)n_rows * sizeof *seen);
    free(seen);
    int levels = ek_cuda_attn_levels(c->w.max_segments);
    size_t leaves = prompt ? (size_t)blocks * (size_t)levels : (size_t)c->w.n_items;
    c->leaf_o = up(d, NULL,
                   prompt ? (size_t)blocks * ek_cuda_attn_stack_floats(levels, dim) * 4
                          : leaves * (size_t)(tile * dim) * 4);
    c->leaf_l = up(d, NULL, leaves * (size_t)tile * 4);
    c->leaf_m = up(d, NULL, leaves * (size_t)tile * 4);
    const size_t n_ended = (size_t)(c->w.n_tiles > c->w.n_items ? c->w.n_tiles : c->w.n_items);
    int32_t *zero = calloc(n_ended, sizeof *zero);
    c->ended = up(d, zero, n_ended * sizeof *zero);
    free(zero);
    if (ek_cuda_attn_is_many(tile, s->shape.v_format, ek_cuda_chip_of(d->c)))
        c->codes = up(d, NULL, (size_t)c->w.n_tiles * ek_cuda_attn_code_bytes(tile, dim));
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
                               .k = c->codes,
                               .ratio = heads / kv,
                               .n_tiles = c->w.n_tiles,
                               .tile = tile,
                               .levels = levels};
}

static CUdeviceptr again(dev *d, CUdeviceptr old, const void *from, size_t bytes)
{
    if (old) drop(d, old);
    return up(d, from, bytes);
}

void call_cut(call *c, dev *d, int part, int blocks)
{
    const int dim = c->a.kv.head_dim, n = ek_cuda_attn_parts(c->w.tiles, c->w.n_tiles, part);
    const size_t nodes = (size_t)n * EK_CUDA_PROMPT_TILE;
    ek_cuda_attn_tile *parts = malloc((size_t)n * sizeof *parts);
    int32_t *zero = calloc((size_t)n, sizeof *zero);
    ek_cuda_attn_cut(parts, c->w.tiles, c->w.n_tiles, part);
    c->n_parts = n, c->part = part, c->a.levels = ek_cuda_attn_levels(1 << part);
    c->tiles = again(d, c->tiles, c->w.tiles, (size_t)c->w.n_tiles * sizeof *parts);
    c->parts = again(d, c->parts, parts, (size_t)n * sizeof *parts);
    c->items = again(d, c->items, NULL, (size_t)blocks * ek_cuda_attn_stack_floats(c->a.levels, dim) * 4);
    c->nodes = again(d, c->nodes, NULL, nodes * (size_t)(dim + 2) * 4);
    c->ended = again(d, c->ended, zero, (size_t)n * sizeof *zero);
    c->a.tiles = c->parts, c->a.n_tiles = n, c->a.items = c->items, c->a.ended = c->ended, c->a.leaf_o = c->nodes;
    c->a.leaf_l = c->nodes + nodes * (size_t)dim * 4, c->a.leaf_m = c->a.leaf_l + nodes * 4;
    free(parts), free(zero);
}

void call_finish(call *c, dev *d)
{
    CUdeviceptr p[] = {c->tiles,  c->items,  c->starts, c->rows,  c->o,     c->leaf_o,
                       c->leaf_l, c->leaf_m, c->ended,  c->parts, c->nodes, c->codes};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) drop(d, p[i]);
    free(c->w.tiles), free(c->w.items);
}

/* That of the device, and that of one with matrices where it has none, or the other way round. */
static const char *many_kernel(int tile)
{
    return tile == EK_CUDA_ATTN_COOP_TILE ? "ek_attn_int_coop" : "ek_attn_int_many";
}

static bool has_many(dev *d, int tile)
{
    ek_cuda_kernel k;
    return ek_cuda_find(d->c, &k, many_kernel(tile), 0) == EK_OK;
}

kernels kernels_find(dev *d, const ek_attn_shape *shape, int tile, bool whole, int n_items)
{
    kernels k = {.blocks = (unsigned)ek_cuda_multiprocessors(d->c)};
    if (of_prompt(d, tile)) {
        const ek_cuda_attn_segment p = ek_cuda_attn_prompt_plan(shape->k_format, shape->head_dim,
                                                                ek_cuda_chip_of(d->c));
        const ek_cuda_attn_joiner j = ek_cuda_attn_join_plan(shape->v_format, shape->head_dim);
        k.join = find(d, j.name, 0), k.join_z = j.z, k.join_threads = j.threads;
        k.blocks *= (unsigned)p.slots, k.shared = p.shared, k.threads = p.threads;
        k.prompt = find(d, p.name, p.shared);
        return k;
    }
    ek_cuda_attn_segment p = ek_cuda_attn_segment_plan(tile, shape->head_dim, shape->k_format, shape->v_format, whole,
                                                       n_items, ek_cuda_chip_of(d->c));
    if (ek_cuda_attn_is_many(tile, shape->v_format, ek_cuda_chip_of(d->c))) p.name = many_kernel(tile);
    k.shared = p.shared, k.threads = p.threads, k.slots = p.slots;
    k.leaf = find(d, p.name, k.shared);
    const ek_cuda_attn_joiner j = ek_cuda_attn_join_plan(shape->v_format, shape->head_dim);
    k.join = find(d, j.name, 0), k.join_z = j.z, k.join_threads = j.threads;
    return k;
}

kernels kernels_find_deep(dev *d, int head_dim)
{
    const ek_cuda_attn_segment p = ek_cuda_attn_deep_plan(head_dim);
    return (kernels){.leaf = find(d, p.name, p.shared),
                     .join = find(d, "ek_attn_join", 0),
                     .join_z = (unsigned)(head_dim + 127) / 128,
                     .join_threads = 128,
                     .shared = p.shared,
                     .threads = p.threads};
}

void call_run(dev *d, const kernels *k, const call *c)
{
    if (of_prompt(d, c->tile)) {
        unsigned blocks = (unsigned)c->a.n_tiles < k->blocks ? (unsigned)c->a.n_tiles : k->blocks;
        launch(d, &k->prompt, (ek_cuda_grid){.x = blocks, .threads = k->threads, .shared = k->shared, .overlap = true},
               &c->a);
        if (!c->n_parts) return;
        ek_cuda_attn_args a = c->a;
        a.tiles = c->tiles, a.slots = c->part;
        launch(d, &k->join,
               (ek_cuda_grid){.x = (unsigned)c->w.n_tiles,
                              .y = EK_CUDA_PROMPT_TILE,
                              .z = k->join_z,
                              .threads = k->join_threads,
                              .overlap = true},
               &a);
        return;
    }
    if (c->codes) {
        const ek_cuda_kernel queries = find(d, "ek_attn_int_queries", 0);
        launch(d, &queries, (ek_cuda_grid){.x = (unsigned)c->w.n_tiles, .y = (unsigned)c->tile / 8, .threads = 256},
               &c->a);
    }
    launch(d, &k->leaf,
           (ek_cuda_grid){.x = (unsigned)c->w.n_items, .threads = k->threads, .shared = k->shared, .overlap = true},
           &c->a);
    if (c->a.ended) return; /* joined */
    launch(d, &k->join,
           (ek_cuda_grid){.x = (unsigned)c->w.n_tiles,
                          .y = (unsigned)c->tile,
                          .z = k->join_z,
                          .threads = k->join_threads,
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
    const bool plain = ek_cuda_chip_of(d->c)->plain;
    const int many = ek_cuda_attn_many_tile(shape->head_dim, shape->k_format, shape->v_format, ek_cuda_chip_of(d->c));
    const int other = plain && many ? EK_CUDA_ATTN_MANY_TILE + EK_CUDA_ATTN_COOP_TILE - many
                                    : 0; /* with matrices, without */
    const int tiles[] = {8, plain ? many : EK_CUDA_PROMPT_TILE, other, 2, 4, 1};
    const bool half = !plain && ek_cuda_attn_half_fits(shape->head_dim, shape->k_format, shape->v_format);
    const bool ints = !plain && ek_cuda_attn_int_fits(shape->head_dim, shape->k_format, shape->v_format);
    const bool any = plain && ek_kv_rotated(shape->v_format); /* ek_attn_int_TILE */
    for (int t = 0; t < (all_tiles || any ? 6 : 3); t++) {
        const bool one = tiles[t] == 1 && half;
        if (!tiles[t] || (tiles[t] == 1 && !half && !any) || (tiles[t] == other && !has_many(d, other))) continue;
        const ek_cuda_attn_segment prompt = ek_cuda_attn_prompt_plan(shape->k_format, shape->head_dim,
                                                                     ek_cuda_chip_of(d->c));
        if (of_prompt(d, tiles[t]) && !prompt.name) continue; /* the chip has none */
        const int tile = of_prompt(d, tiles[t]) ? prompt.tile : tiles[t];
        kernels k = kernels_find(d, shape, tile, one, 0);
        call c;
        call_prepare(&c, &s, rows, n_rows, dq, tile, (int)k.blocks);
        const bool few = c.w.max_segments <= EK_CUDA_ATTN_JOINED,
                   may_join = !of_prompt(d, tile) && ((half && few) || ints);
        if (tile == EK_CUDA_ATTN_DEEP_TILE &&
            ek_cuda_attn_deep_fits(shape->n_heads / shape->n_kv_heads, shape->head_dim, shape->k_format,
                                   shape->v_format, ek_cuda_chip_of(d->c))) {
            const kernels deep = kernels_find_deep(d, shape->head_dim);
            must(ek_cuda_fill(d->c, c.o, 0xff, c.out_bytes));
            ek_cuda_ptr ended = c.a.ended;
            c.a.ended = 0, c.a.single = single;
            call_run(d, &deep, &c);
            c.a.ended = ended, c.a.single = 0;
            same(d, want, down(d, c.o, c.out_bytes), c.out_bytes, false,
                 "deep attention %s:%s, %d on %d heads of %d, %d keys, garbage %d", ek_kv_format_name(shape->k_format),
                 ek_kv_format_name(shape->v_format), shape->n_heads, shape->n_kv_heads, shape->head_dim, n_keys,
                 garbage);
        }
        /* by a kernel of its own, by the block that ends last, so where blocks have a multiprocessor each */
        for (int join = one; join <= may_join + (may_join && tile == 2 ? 2 : 0); join++) {
            if (join) c.a.ended = c.ended, c.a.single = single;
            if (join && few) c.a.items = c.starts, c.a.starts = ints;
            const int n_items = join == 2 ? 1 : join == 3 ? ek_cuda_multiprocessors(d->c) + 1 : INT_MAX;
            if (join) k = kernels_find(d, shape, tile, true, n_items), c.a.slots = k.slots;
            must(ek_cuda_fill(d->c, c.o, 0xff, c.out_bytes));
            call_run(d, &k, &c);
            same(d, want, down(d, c.o, c.out_bytes), c.out_bytes, false,
                 "attention %s:%s, %d on %d heads of %d, %d keys, tile %d, garbage %d%s",
                 ek_kv_format_name(shape->k_format), ek_kv_format_name(shape->v_format), shape->n_heads,
                 shape->n_kv_heads, shape->head_dim, n_keys, tile, garbage,
                 join > 1 ? ", joined, alone"
                 : join   ? ", joined"
                          : "");
        }
        if (ek_cuda_attn_few_joins(tile, shape->v_format, ek_cuda_chip_of(d->c))) {
            c.a.ended = c.ended;
            must(ek_cuda_fill(d->c, c.o, 0xff, c.out_bytes));
            for (int again = 0; again < 2; again++) call_run(d, &k, &c); /* the counters are zero again */
            same(d, want, down(d, c.o, c.out_bytes), c.out_bytes, false,
                 "attention %s:%s, %d on %d heads of %d, %d keys, tile %d, garbage %d, joined by the last workgroup",
                 ek_kv_format_name(shape->k_format), ek_kv_format_name(shape->v_format), shape->n_heads,
                 shape->n_kv_heads, shape->head_dim, n_keys, tile, garbage);
            c.a.ended = 0;
        }
        for (int part = 0; part < 3 && of_prompt(d, tile) && ek_kv_rotated(shape->v_format); part++) {
            call_cut(&c, d, part, (int)k.blocks);
            must(ek_cuda_fill(d->c, c.o, 0xff, c.out_bytes));
            call_run(d, &k, &c);
            same(d, want, down(d, c.o, c.out_bytes), c.out_bytes, false,
                 "attention %s:%s, %d on %d heads of %d, %d keys, prompts in parts of %d segments, garbage %d",
                 ek_kv_format_name(shape->k_format), ek_kv_format_name(shape->v_format), shape->n_heads,
                 shape->n_kv_heads, shape->head_dim, n_keys, 1 << part, garbage);
        }
        call_finish(&c, d);
    }
    drop(d, dq);
    free(q), free(want);
    scene_close(&s);
}

/* Formats in integers: heads of every kind of block of R, few and many segments, positions beyond 2^17. */
void test_attn_int(dev *d)
{
    static const struct {
        int heads, kv, dim, keys;
        ek_kv_format k, v;
        float loud;
    } c[] = {{8, 1, 256, 700, EK_KV_I12, EK_KV_I12, 1},    {8, 1, 512, 300, EK_KV_I12, EK_KV_I12, 0.5f},
             {8, 1, 256, 300, EK_KV_I8, EK_KV_I8, 8},      {4, 1, 512, 540, EK_KV_I8, EK_KV_I12, 1},
             {16, 8, 72, 300, EK_KV_I12, EK_KV_I8, 1},     {4, 2, 128, 1100, EK_KV_I12, EK_KV_I12, 30},
             {8, 1, 64, 6400, EK_KV_I12, EK_KV_I12, 1},    {3, 1, 100, 400, EK_KV_I8, EK_KV_I8, 1},
             {16, 1, 320, 300, EK_KV_I12, EK_KV_I12, 1},   {2, 2, 4, 700, EK_KV_I12, EK_KV_I12, 8},
             {32, 16, 256, 1300, EK_KV_I12, EK_KV_I12, 1}, {5, 1, 36, 4400, EK_KV_I12, EK_KV_I8, 3},
             {1, 1, 64, 1, EK_KV_I8, EK_KV_I8, 1},         {16, 2, 512, 2100, EK_KV_I12, EK_KV_I12, 1},
             {8, 1, 256, 3000, EK_KV_I8, EK_KV_I8, 1}};
    for (size_t i = 0; i < (size_t)cases(d, 3, 8, sizeof c / sizeof *c); i++) {
        ek_attn_shape shape = {EK_FULL, c[i].k, c[i].v, c[i].heads, c[i].kv, c[i].dim, 0};
        compare(d, &shape, d->few && c[i].keys > 300 ? 300 : c[i].keys, (int)i % 2, c[i].loud, !d->quick, false);
    }
    static const int deep[] = {64, 256, 512};
    for (size_t i = 0; i < sizeof deep / sizeof *deep && !d->quick; i++) {
        const ek_kv_format v = deep[i] == 64 ? EK_KV_I8 : EK_KV_I12;
        ek_attn_shape shape = {EK_FULL, EK_KV_I12, v, 4, 1, deep[i], 0};
        compare(d, &shape, 262144, 0, 1, false, true);
    }
}

void test_attn(dev *d)
{
    test_attn_int(d);
    if (!ek_cuda_chip_of(d->c)->plain) test_attn_whole(d);
    for (int k = 0; k < EK_KV_FORMAT_COUNT; k++) /* every format, and every pair of kinds of kernels */
        for (int v = 0; v < EK_KV_FORMAT_COUNT; v++) {
            ek_attn_shape shape = {EK_FULL, (ek_kv_format)k, (ek_kv_format)v, 4, 1, k % 2 ? 64 : 160, 0};
            if (ek_kv_rotated((ek_kv_format)k) != ek_kv_rotated((ek_kv_format)v)) continue; /* refused by name */
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
        for (int keys = 64; keys < 1500; keys = keys * cases(d, 4, 2, 2) + 1)
            compare(d, &shape, keys, 0, 1, true, true);
    }
    for (int k = 0; k < 6; k++) /* ek_attn_deep: every pair of its kinds of formats */
        for (int v = 0; v < 6; v++) {
            static const int kinds[] = {EK_KV_F16, EK_KV_Q8, EK_KV_Q4, EK_KV_I16, EK_KV_BF16, EK_KV_F32};
            ek_attn_shape shape = {EK_FULL,
                                   (ek_kv_format)kinds[k],
                                   (ek_kv_format)kinds[v],
                                   v % 2 ? 16 : 8,
                                   1 + v % 2,
                                   k % 2 == v % 2 ? 256 : 512,
                                   0};
            if (d->quick && k != v && (d->few || (k + v) % 4)) continue;
            compare(d, &shape, d->quick ? 300 : 900, (k + v) / 2 % 2, k % 3 ? 1 : 8, false, k == v && v % 2);
        }
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int f = 0; f < (i < 2 ? N : 3); f++) {
            ek_kv_format format = (ek_kv_format)(i < 2 ? formats[f] : formats[(i + (size_t)f * 4) % N]);
            ek_attn_shape shape = {EK_SLIDING, format, format, c[i].heads, c[i].kv, c[i].dim, 0};
            if (d->quick && (i > 1 || f > 0)) continue;
            compare(d, &shape, d->quick ? 300 : c[i].keys, (int)i % 2, c[i].loud, f == 0, false);
        }
}
