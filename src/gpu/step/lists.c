/* The rows of a step in the form that kernels read: tokens, offsets, visible ranges, page tables, work lists of
 * attention. */
#include "gpu/step/step.h"

#include <limits.h>
#include <string.h>

#include "cuda/attn/choose.h"
#include "cuda/attn_work.h"
#include "cuda/model_args.h"
#include "ops/kv/kv_codec.h"
#include "ops/rows/rows.h"

/* PLAIN_ITEMS: the largest power of two that a plain device surely takes as blocks in x (EK_CUDA_GRID_Y). */
enum { SEGMENT_LIMIT = 256 << 20, PLAIN_ITEMS = 1 << 15 };

static const ek_layer_config *layer_of(const ek_gpu_run *x, int kind)
{
    const ek_config *c = &x->g->m->config;
    for (int i = 0; i < c->n_layers; i++)
        if ((int)c->layer[i].kind == kind) return &c->layer[i];
    return NULL;
}

static size_t segment_size(int tile, int head_dim)
{
    return sizeof(float) * (size_t)tile * (size_t)(head_dim + 2);
}

/* Bytes of a segment of a tile, with the codes of its queries if these are written first. */
static size_t item_size(const ek_gpu_run *x, int tile, int head_dim)
{
    const bool many = ek_cuda_attn_is_many(tile, x->g->m->v_format, ek_cuda_chip_of(x->g->c));
    return segment_size(tile, head_dim) + (many ? ek_cuda_attn_code_bytes(tile, head_dim) : 0);
}

size_t ek_gpu_segment_bytes(const ek_gpu_run *x)
{
    size_t max = 0;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const ek_layer_config *l = layer_of(x, k);
        if (!l) continue;
        const ek_gpu_head_part here = ek_gpu_heads_at_once(x, l);
        const int ratio = here.q.n / here.kv.n;
        size_t segments = (size_t)x->z.max_ctx / EK_SEGMENT + 2;
        for (int rows = 1; rows <= 4; rows += 3) {
            const int tile = ek_kv_rotated(x->g->m->v_format) ? EK_CUDA_ATTN_INT_TILE
                                                              : ek_cuda_attn_few_tile(ratio, rows);
            size_t one = (size_t)((ratio + tile - 1) / tile * here.kv.n) * segments * segment_size(tile, l->head_dim);
            size_t all = one * (size_t)x->z.max_requests;
            const int many = ek_cuda_attn_many_tile(l->head_dim, x->g->m->k_format, x->g->m->v_format,
                                                    ek_cuda_chip_of(x->g->c));
            if (many) { /* rows of prompts, and any row alone */
                const size_t row = (size_t)((ratio + many - 1) / many * here.kv.n) * segments *
                                   item_size(x, many, l->head_dim),
                             prompt = row * (size_t)((x->z.max_rows * ratio + many - 1) / many);
                one = row > one ? row : one, all = prompt > all ? prompt : all;
            }
            if (all > SEGMENT_LIMIT) all = one > SEGMENT_LIMIT ? one : SEGMENT_LIMIT;
            if (all > max) max = all;
        }
    }
    return max;
}

void ek_gpu_lists_max(const ek_gpu_run *x, int *tiles, int *items)
{
    *tiles = *items = ek_cuda_multiprocessors(x->g->c); /* tiles of one query, while there are few */
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const ek_layer_config *l = layer_of(x, k);
        if (!l) continue;
        const ek_gpu_head_part here = ek_gpu_heads_at_once(x, l);
        int t = ek_cuda_attn_max_tiles(x->z.max_rows, here.q.n, here.kv.n, 2);
        int i = (int)(x->buf.segment_bytes / segment_size(1, l->head_dim));
        *tiles = t > *tiles ? t : *tiles;
        *items = i > *items ? i : *items;
    }
}

static size_t power_of_two(size_t n)
{
    size_t p = 16;
    while (p < n) p *= 2;
    return p;
}

static bool has_prompts(const ek_gpu_run *x)
{
    return ek_cuda_attn_has_prompts(x->g->m->k_format, ek_cuda_chip_of(x->g->c));
}

static int max_parts(const ek_gpu_run *x)
{
    return 8 * ek_cuda_multiprocessors(x->g->c);
}

/* Maximum rows in tiles of few queries. In full layers these are a short run per request, and long runs whose tiles
 * would leave multiprocessors idle. In sliding layers a run ends where a window enters the next segment. */
static size_t max_few(const ek_gpu_run *x, int kind, int heads, int ratio, int head_dim)
{
    const ek_model *m = x->g->m;
    const int tiles = ek_cuda_attn_idle_prompts(ratio, head_dim, m->k_format, m->v_format, 1,
                                                ek_cuda_chip_of(x->g->c)), /* the worst case: each row sees little */
        idle = tiles * EK_CUDA_PROMPT_TILE / heads;
    size_t rows = (size_t)x->z.max_rows,
           runs = (size_t)x->z.max_requests * (size_t)(EK_CUDA_PROMPT_QUERIES / ratio + 1) + (size_t)idle;
    return kind == EK_FULL && runs < rows && has_prompts(x) ? runs : rows;
}

/* Bytes of the rows of cos and sin of a step's positions. */
static size_t turns_bytes(const ek_gpu_run *x)
{
    size_t bytes = 0;
    if (!ek_cuda_chip_of(x->g->c)->plain) return 0;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        bytes += (size_t)(x->z.max_rows + x->z.max_logits) * 2 * sizeof(float) * (size_t)x->g->m->n_rotated[k] + 128;
    return bytes;
}

/* Bytes of both kinds of layers and both sets: tiles of few queries and tiles of prompts, items rounded up to powers of
 * two. */
size_t ek_gpu_lists_bytes(const ek_gpu_run *x)
{
    const int window = (x->g->target ? x->g->target->m : x->g->m)->config.sliding_window;
    size_t rows = (size_t)x->z.max_rows,
           tables = (size_t)x->z.max_requests * (size_t)x->lists.max_ld_table * EK_KIND_COUNT * 4;
    size_t bytes = turns_bytes(x) + rows * (4 * 4 + 2 * sizeof(ek_cuda_place) + 4 * sizeof(ek_cuda_attn_row)) + tables +
                   65536;
    const size_t single = (size_t)ek_cuda_multiprocessors(x->g->c); /* maximum number of tiles of one query */
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const ek_layer_config *l = layer_of(x, k);
        if (!l) continue;
        const ek_gpu_head_part here = ek_gpu_heads_at_once(x, l);
        size_t one = (size_t)ek_cuda_attn_max_tiles(1, here.q.n, here.kv.n, 2), seen = (size_t)x->z.max_ctx;
        if (k == EK_SLIDING && (size_t)(window + x->z.max_rows) < seen)
            seen = (size_t)(window + x->z.max_rows); /* spans whose positions see each other are in one step */
        const size_t tiles = max_few(x, k, here.q.n, here.q.n / here.kv.n, l->head_dim) * one;
        const size_t items = tiles * (seen / EK_SEGMENT + 2) * sizeof(ek_cuda_attn_item);
        const size_t starts = tiles * EK_CUDA_ATTN_JOINED * sizeof(ek_cuda_attn_start);
        bytes += 2 * (2 * rows * one * (sizeof(ek_cuda_attn_tile) + 64) + 2 * (items > starts ? items : starts));
        bytes += 2 * (size_t)max_parts(x) * sizeof(ek_cuda_attn_tile);
        bytes += 2 * single * (sizeof(ek_cuda_attn_tile) + 2 * sizeof(ek_cuda_attn_start));
    }
    return bytes;
}

/* --- the work of attention */

typedef struct gather {
    ek_gpu_run *x;
    ek_gpu_list *list;
    ek_cuda_attn_work w;
    const ek_attn_row *rows;
    const int32_t *pages; /* tables of ld_table entries, of the layer's kind */
    int heads, kv_heads;
} gather;

/* The items by segments: tiles that read the same keys at the same time find them in caches. */
static void order_items(ek_cuda_attn_item *to, const ek_cuda_attn_work *w)
{
    int first = INT_MAX, end = 0, n = 0;
    for (int i = 0; i < w->n_tiles; i++) {
        const ek_cuda_attn_tile *t = &w->tiles[i];
        first = t->seg0 < first ? t->seg0 : first, end = t->seg0 + t->n_seg > end ? t->seg0 + t->n_seg : end;
    }
    for (int seg = first; seg < end; seg++)
        for (int i = 0; i < w->n_tiles; i++) {
            const ek_cuda_attn_tile *t = &w->tiles[i];
            if (seg >= t->seg0 && seg < t->seg0 + t->n_seg) to[n++] = (ek_cuda_attn_item){.tile = i, .seg = seg};
        }
    EK_ASSERT(n == w->n_items);
}

static ek_err end_wave(gather *a)
{
    ek_gpu_list *list = a->list;
    void *tiles = NULL, *items = NULL;
    if (a->w.n_tiles == 0) return EK_OK;
    EK_ASSERT(list->n_waves < a->x->z.max_rows);
    ek_gpu_wave *wave = &list->wave[list->n_waves++];
    size_t n_tiles = (size_t)a->w.n_tiles, n = (size_t)a->w.n_items, room = power_of_two(n);
    const size_t each = list->joined ? sizeof(ek_cuda_attn_start) : sizeof(ek_cuda_attn_item);
    EK_TRY(ek_gpu_block_take(&a->x->block, sizeof *a->w.tiles * n_tiles, &tiles, &wave->tiles));
    EK_TRY(ek_gpu_block_take(&a->x->block, each * room, &items, &wave->items));
    memcpy(tiles, a->w.tiles, sizeof *a->w.tiles * n_tiles);
    if (list->joined) {
        ek_cuda_attn_starts(items, &a->w, a->rows, a->pages, a->x->now.ld_table);
        for (size_t i = n; i < room; i++) ((ek_cuda_attn_start *)items)[i] = (ek_cuda_attn_start){.tile = -1};
    } else {
        if (ek_cuda_attn_is_many(list->tile, a->x->g->m->v_format, ek_cuda_chip_of(a->x->g->c)))
            order_items(items, &a->w);
        else memcpy(items, a->w.items, sizeof *a->w.items * n);
        for (size_t i = n; i < room; i++) ((ek_cuda_attn_item *)items)[i] = (ek_cuda_attn_item){.tile = -1};
    }
    wave->n_tiles = (int)n_tiles, wave->n_items = (int)room;
    a->w.n_tiles = a->w.n_items = 0;
    return EK_OK;
}

/* Adds rows [first, end) to this wave, or to the next one, or in halves of whole tiles. */
static ek_err add_few(gather *a, int first, int end)
{
    for (int tries = 0; tries < 2; tries++) {
        if (!ek_cuda_attn_add(&a->w, a->rows, first, end, a->heads, a->kv_heads, a->list->tile)) return EK_OK;
        EK_TRY(end_wave(a));
    }
    const int n = end - first, each = a->list->tile * a->kv_heads / a->heads, half = (n + 1) / 2;
    if (n == 1) return ek_fail(EK_ETOOLARGE, "the attention of a row needs more than %d segments", a->w.max_items);
    const int middle = first + (n <= each || each < 2 ? half : (half + each - 1) / each * each);
    EK_TRY(add_few(a, first, middle));
    return add_few(a, middle, end);
}

/* The end of the run from `row` on: rows of one view whose ranges begin in one segment. */
static int run_end(const ek_attn_row *rows, int row, int n)
{
    int end = row + 1, seg = rows[row].lo / EK_SEGMENT;
    while (end < n && rows[end].view == rows[row].view && rows[end].lo / EK_SEGMENT == seg) end++;
    return end;
}

/* Whether the run of `row` belongs to a prompt. All adjacent rows of its view count, because a prompt's run ends where
 * a window enters the next segment, so the last run may have one row. */
static bool of_prompt(const ek_gpu_run *x, const ek_attn_row *rows, int row, int n, int ratio)
{
    if (!has_prompts(x)) return false;
    int first = row, end = row + 1;
    while (first > 0 && rows[first - 1].view == rows[row].view && (row - first) * ratio < EK_CUDA_PROMPT_QUERIES)
        first--;
    while (end < n && rows[end].view == rows[row].view && (end - first) * ratio < EK_CUDA_PROMPT_QUERIES) end++;
    return (end - first) * ratio >= EK_CUDA_PROMPT_QUERIES;
}

/* Whether ek_attn_prompt computes the runs of prompts; *few: whether there are other runs. */
static bool prompts_pay(const ek_gpu_run *x, const ek_attn_row *rows, int n, int ratio, int kv_heads, int head_dim,
                        bool *few)
{
    const ek_model *m = x->g->m;
    int tiles = 0, max = 0;
    for (int r = 0, end; r < n; r = end) {
        end = run_end(rows, r, n);
        if (!of_prompt(x, rows, r, n, ratio)) continue;
        const int seen = (rows[end - 1].end - 1) / EK_SEGMENT - rows[r].lo / EK_SEGMENT + 1;
        tiles += ((end - r) * ratio + EK_CUDA_PROMPT_TILE - 1) / EK_CUDA_PROMPT_TILE * kv_heads;
        max = seen > max ? seen : max;
    }
    const bool pay = tiles > ek_cuda_attn_idle_prompts(ratio, head_dim, m->k_format, m->v_format, max,
                                                       ek_cuda_chip_of(x->g->c));
    *few = tiles && !pay;
    return pay;
}

/* Whether every view has one row in the step, which sees no later row. Rows of a view are adjacent. */
static bool single_rows(const ek_step *s)
{
    for (int r = 0; r < s->n_rows; r++) {
        if (r && s->row[r].seq == s->row[r - 1].seq) return false;
        for (int k = 0; k < EK_KIND_COUNT; k++)
            if (s->row[r].visible[k].end != s->row[r].pos + 1) return false;
    }
    return true;
}

/* Whether ek_attn_deep_DIM computes n_items segments, and those of the first positions' format. */
static bool goes_deep(const ek_gpu_run *x, int ratio, int head_dim, int tile, int n_items)
{
    const ek_model *m = x->g->m;
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->g->c);
    if (!ek_cuda_attn_goes_deep(ratio, head_dim, m->k_format, m->v_format, tile, n_items, chip)) return false;
    return !m->layout.n_start || ek_cuda_attn_deep_fits(ratio, head_dim, ek_kv_start_format(m->k_format),
                                                        ek_kv_start_format(m->v_format), chip);
}

static ek_err make_list(ek_gpu_run *x, ek_gpu_list *list, const ek_layer_config *l, const ek_attn_row *rows, int n)
{
    const ek_gpu_head_part here = ek_gpu_heads_at_once(x, l);
    const int heads = here.q.n, kv_heads = here.kv.n, ratio = heads / kv_heads;
    bool pieces;
    const bool prompts = prompts_pay(x, rows, n, ratio, kv_heads, l->head_dim, &pieces);
    void *to = NULL;
    int n_few = 0, n_segments = 0, max = 0, max_queries = 0;
    list->n_waves = list->n_prompt = list->n_cut = 0;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_attn_row) * (size_t)n, &to, &list->rows));
    for (int r = 0; r < n; r++) ((ek_cuda_attn_row *)to)[r] = (ek_cuda_attn_row){rows[r].lo, rows[r].end};
    for (int r = 0, end; r < n; r = end) {
        end = run_end(rows, r, n);
        if (prompts && of_prompt(x, rows, r, n, ratio)) continue;
        n_few += end - r, max_queries = (end - r) * ratio > max_queries ? (end - r) * ratio : max_queries;
        for (int i = r; i < end; i++) {
            const int seen = (rows[i].end - 1) / EK_SEGMENT - rows[i].lo / EK_SEGMENT + 1;
            n_segments += seen, max = seen > max ? seen : max;
        }
    }
    const bool plain = ek_cuda_chip_of(x->g->c)->plain;
    const bool half = !plain && !x->g->m->layout.n_start &&
                      ek_cuda_attn_half_fits(l->head_dim, x->g->m->k_format, x->g->m->v_format);
    const bool ints = !plain && !x->g->m->layout.n_start &&
                      ek_cuda_attn_int_fits(l->head_dim, x->g->m->k_format, x->g->m->v_format);
    list->joined = ((half && !pieces) || ints) && max <= EK_CUDA_ATTN_JOINED;
    list->whole = list->joined || ints;
    const int n_twos = (int)power_of_two((size_t)(n_segments * kv_heads * ((ratio + 1) / 2)));
    const int few_tile = plain ? ek_cuda_attn_plain_tile(ratio, n, kv_heads, n_segments, x->lists.max_tiles) : 0;
    list->tile = few_tile && ek_kv_rotated(x->g->m->v_format) ? few_tile
                 : ints || ek_kv_rotated(x->g->m->v_format)
                     ? ek_cuda_attn_int_tile(max_queries, l->head_dim, x->g->m->k_format, x->g->m->v_format,
                                             ints ? n_twos : INT_MAX, ek_cuda_chip_of(x->g->c))
                 : list->joined ? ek_cuda_attn_half_tile(ratio, kv_heads, n_segments, max, ek_cuda_chip_of(x->g->c))
                                : ek_cuda_attn_few_tile(ratio, n_few);
    gather few = {.x = x, .list = list, .rows = rows, .pages = x->now.table_host[l->kind], .heads = heads};
    few.kv_heads = kv_heads;
    few.w = (ek_cuda_attn_work){.tiles = x->lists.tiles, .items = x->lists.items, .max_tiles = x->lists.max_tiles};
    few.w.max_items = (int)(x->buf.segment_bytes / item_size(x, list->tile, l->head_dim));
    if (few.w.max_items > x->lists.max_items) few.w.max_items = x->lists.max_items;
    if (plain && few.w.max_items > PLAIN_ITEMS) few.w.max_items = PLAIN_ITEMS;
    for (int r = 0, end; r < n; r = end) {
        end = run_end(rows, r, n);
        if (!prompts || !of_prompt(x, rows, r, n, ratio)) EK_TRY(add_few(&few, r, end));
    }
    EK_TRY(end_wave(&few));
    EK_ASSERT(few.w.max_segments <= max);
    list->deep = !list->joined &&
                 goes_deep(x, ratio, l->head_dim, list->tile, n_segments * heads / EK_CUDA_ATTN_DEEP_TILE);
    if (n_few == n) return EK_OK;
    ek_cuda_attn_work w = {.tiles = x->lists.tiles, .max_tiles = x->lists.max_tiles};
    for (int r = 0, end; r < n; r = end) {
        end = run_end(rows, r, n);
        if (!of_prompt(x, rows, r, n, ratio)) continue;
        EK_TRY(
            ek_cuda_attn_add(&w, rows, r, end, heads, kv_heads,
                             ek_cuda_attn_prompt_plan(x->g->m->k_format, l->head_dim, ek_cuda_chip_of(x->g->c)).tile));
    }
    list->part = ek_cuda_attn_part(w.tiles, w.n_tiles, max_parts(x), x->buf.segment_bytes / sizeof(float),
                                   x->g->m->k_format, l->head_dim, ek_cuda_chip_of(x->g->c));
    if (list->part >= 0) {
        list->n_cut = w.n_tiles, list->n_prompt = ek_cuda_attn_parts(w.tiles, w.n_tiles, list->part);
        list->levels = ek_cuda_attn_levels(1 << list->part);
        EK_TRY(ek_gpu_block_take(&x->block, sizeof *w.tiles * (size_t)list->n_prompt, &to, &list->prompt));
        ek_cuda_attn_cut(to, w.tiles, w.n_tiles, list->part);
        EK_TRY(ek_gpu_block_take(&x->block, sizeof *w.tiles * (size_t)w.n_tiles, &to, &list->cut));
        memcpy(to, w.tiles, sizeof *w.tiles * (size_t)w.n_tiles);
        return EK_OK;
    }
    EK_TRY(ek_gpu_block_take(&x->block, sizeof *w.tiles * (size_t)w.n_tiles, &to, &list->prompt));
    for (int i = 0; i < w.n_tiles; i++) /* last rows first, because they see the most keys */
        ((ek_cuda_attn_tile *)to)[i] = w.tiles[w.n_tiles - 1 - i];
    list->n_prompt = w.n_tiles;
    list->levels = ek_cuda_attn_levels(w.max_segments);
    return EK_OK;
}

/* --- rows of cos and sin of positions, for devices without floats of 64 bits, which the kernel needs. They are made in
 * the step's block, and copied to where kernels look for them. */

static ek_err make_turns(ek_gpu_run *x, ek_gpu_set *set, const ek_step *s, const int *pick)
{
    const ek_model *m = x->g->m;
    if (!ek_cuda_chip_of(x->g->c)->plain) return EK_OK;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const int rotated = m->n_rotated[k];
        void *to = NULL;
        set->turns[k] = 0;
        if (!rotated) continue;
        const size_t all = (size_t)set->n * (size_t)rotated;
        EK_TRY(ek_gpu_block_take(&x->block, 2 * sizeof(float) * all, &to, &set->turns[k]));
        for (int i = 0; i < set->n; i++) {
            float *const cos = (float *)to + (size_t)i * (size_t)rotated;
            ek_rope_row(cos, cos + all, m->rope[k], rotated, s->row[pick ? pick[i] : i].pos);
        }
    }
    return EK_OK;
}

static ek_err put(ek_gpu_run *x, const ek_gpu_set *set)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const size_t bytes = sizeof(float) * (size_t)set->n * (size_t)x->g->m->n_rotated[k];
        if (!bytes) continue;
        EK_TRY(ek_cuda_copy(x->g->c, set->cos[k], set->turns[k], bytes));
        EK_TRY(ek_cuda_copy(x->g->c, set->sin[k], set->turns[k] + bytes, bytes));
    }
    return EK_OK;
}

ek_err ek_gpu_put_turns(ek_gpu_run *x)
{
    if (!ek_cuda_chip_of(x->g->c)->plain) return EK_OK;
    EK_TRY(put(x, &x->now.all));
    return x->now.tail.n ? put(x, &x->now.tail) : EK_OK;
}

/* --- all lists of a step */

static ek_err make_set(ek_gpu_run *x, ek_gpu_set *set, ek_attn_row *const row[EK_KIND_COUNT], const ek_step *s,
                       const int *pick, int n)
{
    void *to = NULL;
    set->n = n;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(ek_cuda_place) * (size_t)n, &to, &set->place));
    for (int i = 0; i < n; i++) {
        const ek_row *from = &s->row[pick ? pick[i] : i];
        ((ek_cuda_place *)to)[i] = (ek_cuda_place){from->seq, from->pos};
        for (int k = 0; k < EK_KIND_COUNT; k++)
            row[k][i] = (ek_attn_row){from->seq, from->visible[k].lo, from->visible[k].end};
    }
    EK_TRY(make_turns(x, set, s, pick));
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const ek_layer_config *l = layer_of(x, k);
        if (l) EK_TRY(make_list(x, &set->list[k], l, row[k], n));
        set->list[k].single = single_rows(s);
    }
    return EK_OK;
}

enum { MIN_LD_TABLE = 32 };

/* Entries per table: those of the longest table in the step, because tables for the longest possible context would be
 * megabytes. A power of two, because each number needs another graph. */
static int64_t ld_table_of(const ek_gpu_run *x, const ek_step *s)
{
    int64_t max = 0, ld = MIN_LD_TABLE;
    for (int i = 0; i < s->n_seqs; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++) max = s->seq[i].end[k] > max ? s->seq[i].end[k] : max;
    while (ld < max) ld *= 2;
    return ld < x->lists.max_ld_table ? ld : x->lists.max_ld_table;
}

/* Makes the tables of the sequences that the rows name; entries outside [first, end) are never read. */
static ek_err make_tables(ek_gpu_run *x, const ek_step *s)
{
    x->now.ld_table = ld_table_of(x, s);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        void *to = NULL;
        EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)s->n_seqs * (size_t)x->now.ld_table, &to,
                                 &x->now.table[k]));
        x->now.table_host[k] = to;
        for (int i = 0; i < s->n_seqs; i++) {
            int32_t *table = (int32_t *)to + (size_t)i * (size_t)x->now.ld_table;
            const ek_seq *q = &s->seq[i];
            int end = q->end[k] < x->now.ld_table ? q->end[k] : (int)x->now.ld_table;
            for (int j = 0; j < (int)x->now.ld_table; j++)
                table[j] = j >= q->first[k] && j < end ? q->page[k][j] : EK_NO_PAGE;
        }
    }
    return EK_OK;
}

static bool follows_draw(const ek_step *s, int row)
{
    return s->follows && s->follows[row] >= 0;
}

/* For a row that is a vector itself the per-layer embeddings are those of the padding token. */
static ek_err make_table_ids(ek_gpu_run *x, const ek_step *s)
{
    void *all = NULL, *wanted = NULL;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)s->n_rows, &all, &x->now.table_id));
    for (int r = 0; r < s->n_rows; r++) {
        const int32_t id = s->row[r].embedding ? x->g->m->config.pad : s->row[r].token;
        ((int32_t *)all)[r] = follows_draw(s, r) ? EK_CUDA_DRAWN - s->follows[r] : id;
    }
    x->now.table_want = x->now.table_id;
    if (x->now.n_want == s->n_rows) return EK_OK;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)x->now.n_want, &wanted, &x->now.table_want));
    for (int i = 0; i < x->now.n_want; i++) ((int32_t *)wanted)[i] = ((int32_t *)all)[x->lists.want_host[i]];
    return EK_OK;
}

ek_err ek_gpu_lists(ek_gpu_run *x, const ek_step *s)
{
    void *id = NULL, *want = NULL;
    x->now.n_want = 0;
    for (int r = 0; r < s->n_rows; r++)
        if (s->row[r].wants_logits && x->g->share.head) x->lists.want_host[x->now.n_want++] = r;
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)s->n_rows, &id, &x->now.id));
    EK_TRY(ek_gpu_block_take(&x->block, sizeof(int32_t) * (size_t)s->n_rows, &want, &x->now.want));
    for (int r = 0; r < s->n_rows; r++) {
        const int32_t known = s->row[r].embedding ? -1 : s->row[r].token;
        ((int32_t *)id)[r] = follows_draw(s, r) ? EK_CUDA_DRAWN - s->follows[r] : known;
    }
    memcpy(want, x->lists.want_host, sizeof(int32_t) * (size_t)x->now.n_want);
    if (x->g->w.table.l.n) EK_TRY(make_table_ids(x, s));
    EK_TRY(make_tables(x, s));
    EK_TRY(make_set(x, &x->now.all, x->lists.row[0], s, NULL, s->n_rows));
    x->now.tail.n = 0;
    if (x->now.n_want == s->n_rows || x->now.n_want == 0) return EK_OK;
    return make_set(x, &x->now.tail, x->lists.row[1], s, x->lists.want_host, x->now.n_want);
}
