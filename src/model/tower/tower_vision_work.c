/* The encoding of a picture by the vision tower: slices, cost, memory. */
#include <stdlib.h>
#include <string.h>

#include "model/tower/tower_vision.h"

enum { LEAST = 16 /* minimum rows of a slice */ };

/* ------------------------------------------------------------------ slices */

/* Multiply-adds of a row. */
static double row_macs(const ek_vision *v, ek_vision_pass p, int n)
{
    const double q = (double)v->heads * v->head_dim, kv = (double)v->kv_heads * v->head_dim, width = v->width;
    switch (p) {
    case EK_VISION_EMBED: return width * v->input.k;
    case EK_VISION_HEADS: return width * (q + 2 * kv);
    case EK_VISION_MIX: return 2 * n * q + width * (q + 3.0 * v->inner);
    case EK_VISION_POOL: return width * (v->part.hidden + v->patching.pool * v->patching.pool);
    case EK_VISION_DONE: break;
    }
    return 0;
}

static void next_pass(ek_vision_work *w)
{
    w->row = 0;
    if (w->pass == EK_VISION_MIX && ++w->layer < w->v->n_layers) w->pass = EK_VISION_HEADS;
    else w->pass++;
}

static void advance(ek_tower_work *self, double max_macs)
{
    static void (*const run[])(ek_vision_work *) = {ek_vision_embed, ek_vision_heads, ek_vision_mix, ek_vision_pool};
    ek_vision_work *w = (ek_vision_work *)self;
    do {
        const double each = row_macs(w->v, w->pass, w->n);
        const int end = w->pass == EK_VISION_POOL ? w->work.n_rows : w->n;
        const double may = max_macs / each;
        w->m = may >= EK_VISION_BLOCK ? EK_VISION_BLOCK : may <= LEAST ? LEAST : (int)may & -EK_TOWER_TASK;
        if (w->m > end - w->row) w->m = end - w->row;
        run[w->pass](w);
        w->row += w->m;
        max_macs -= each * w->m;
        w->work.left -= each * w->m;
        if (w->row == end) next_pass(w);
    } while (w->pass != EK_VISION_DONE && max_macs > 0);
    if (w->pass == EK_VISION_DONE) w->work.left = 0;
    else if (w->work.left < 1) w->work.left = 1; /* of rounding */
}

static void free_work(ek_tower_work *self)
{
    ek_vision_work *w = (ek_vision_work *)self;
    ek_attn_free(w->integers);
    ek_free_big(w->block, w->bytes);
    free(w);
}

/* ------------------------------------------------------------------ memory */

static int max(int a, int b)
{
    return a > b ? a : b;
}

static bool is_quantised(const ek_vision *v)
{
    bool any = v->input.a_group || v->projection.a_group;
    for (int i = 0; i < v->n_layers; i++) {
        const ek_vision_layer *l = &v->layer[i];
        any |= l->q.w.a_group || l->k.w.a_group || l->v.w.a_group || l->o.w.a_group || l->gate.w.a_group ||
               l->up.w.a_group || l->down.w.a_group;
    }
    return any;
}

/* Bytes for a call with any number of rows. */
static size_t attention_bytes(const ek_vision_work *w)
{
    size_t largest = 0;
    for (int n = 1; n <= EK_VISION_ATTN_ROWS; n++) {
        const ek_attn_tensors t = ek_vision_attention(w, 0, 0, n);
        const size_t bytes = ek_attn_tensors_bytes(&t, 1);
        if (bytes > largest) largest = bytes;
    }
    return (largest + 63) / 64 * 64;
}

/* Lays out the memory of attention: in floats, keys, values and room for each thread; in integers, pages of codes. */
static void lay_out_attention(ek_vision_work *w, ek_layout *l)
{
    const ek_vision *v = w->v;
    const int threads = ek_pool_threads(v->part.kernels->pool), pages = (w->n + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
    if (!w->integers) {
        w->k = ek_take(l, sizeof(float) * (size_t)v->kv_heads * ek_vision_key_floats(w));
        w->val = ek_take(l, sizeof(float) * (size_t)w->n * (size_t)v->kv_heads * (size_t)v->head_dim);
        if (!l->base) w->attn_bytes = attention_bytes(w);
        w->attn = ek_take(l, w->attn_bytes * (size_t)threads);
        return;
    }
    const size_t page = ek_kv_block_bytes(EK_KV_I12, EK_KV_I12, v->kv_heads, v->head_dim);
    int32_t *number = ek_take(l, sizeof *number * (size_t)pages);
    w->view = (ek_kv_view){.base = ek_take(l, page * (size_t)pages), .stride = page, .page = number};
    w->see = ek_take(l, sizeof *w->see * EK_VISION_BLOCK);
    if (!l->base) w->attn_bytes = ek_attn_scratch_bytes(w->integers, EK_VISION_BLOCK, w->n, threads);
    w->attn = ek_take(l, w->attn_bytes);
    if (!l->base) return;
    for (int i = 0; i < pages; i++) number[i] = i;
    for (int i = 0; i < EK_VISION_BLOCK; i++) w->see[i] = (ek_attn_row){.lo = 0, .end = w->n};
}

static void lay_out(ek_vision_work *w, ek_layout *l)
{
    const ek_vision *v = w->v;
    const int q = v->heads * v->head_dim, kv = v->kv_heads * v->head_dim,
              b = w->n < EK_VISION_BLOCK ? w->n : EK_VISION_BLOCK;
    const int threads = ek_pool_threads(v->part.kernels->pool), grid = max(w->across, w->down);
    w->h = ek_take_rows(l, w->n, v->width);
    w->q = ek_take_rows(l, w->n, q);
    w->o = ek_take_rows(l, b, q);
    w->y = ek_take_rows(l, b, v->width);
    w->gate = ek_take_rows(l, b, v->inner);
    w->up = ek_take_rows(l, b, v->inner);
    w->kt = ek_take_rows(l, b, kv);
    w->vt = ek_take_rows(l, b, kv);
    for (int i = 0; i < EK_VISION_INPUTS; i++) w->x[i] = ek_take_rows(l, b, i ? v->width : max(v->width, v->input.k));
    w->temp = ek_take_rows(l, 2 * threads, v->width);
    w->cos = ek_take(l, sizeof(float) * (size_t)grid * (size_t)(v->head_dim / 4));
    w->sin = ek_take(l, sizeof(float) * (size_t)grid * (size_t)(v->head_dim / 4));
    w->picture.image.rgb = ek_take(l, ek_image_bytes(&w->picture.image));
    lay_out_attention(w, l);
    if (!is_quantised(v)) return;
    for (int i = 0; i < EK_VISION_INPUTS; i++)
        w->acts[i] = ek_take(l, ek_acts_bytes(b, i ? v->width : max(v->width, v->input.k)));
    w->acts_o = ek_take(l, ek_acts_bytes(b, max(q, v->inner)));
}

/* w->v and w->n are set. */
static ek_err plan_attention(ek_vision_work *w)
{
    const ek_vision *v = w->v;
    const ek_attn_shape shape = {.kind = EK_FULL,
                                 .k_format = EK_KV_I12,
                                 .v_format = EK_KV_I12,
                                 .n_heads = v->heads,
                                 .n_kv_heads = v->kv_heads,
                                 .head_dim = v->head_dim};
    if (!ek_vision_in_integers(v, w->n)) return EK_OK;
    return ek_attn_plan(&w->integers, v->part.kernels->cpu, &shape);
}

static ek_err measure(ek_vision_work *w, const ek_vision *v, const ek_image_fit *fit, ek_layout *l)
{
    *w = (ek_vision_work){.v = v};
    w->picture.fit = fit[0];
    w->picture.image.width = fit->width, w->picture.image.height = fit->height;
    w->across = fit->width / v->patching.side, w->down = fit->height / v->patching.side;
    w->n = w->across * w->down;
    EK_TRY(plan_attention(w));
    lay_out(w, l);
    return EK_OK;
}

ek_err ek_vision_cost(ek_tower_cost *out, const ek_tower_part *p, const ek_image_fit *fit)
{
    const ek_vision *v = (const ek_vision *)p;
    ek_layout l = {0};
    ek_vision_work w;
    EK_TRY(measure(&w, v, fit, &l));
    ek_attn_free(w.integers);
    EK_TRY(ek_tower_check_positions(w.across, w.down, v->n_positions));
    const double layer = row_macs(v, EK_VISION_HEADS, w.n) + row_macs(v, EK_VISION_MIX, w.n);
    *out = (ek_tower_cost){.rows = fit->tokens,
                           .macs = w.n * (row_macs(v, EK_VISION_EMBED, w.n) + v->n_layers * layer) +
                                   fit->tokens * row_macs(v, EK_VISION_POOL, w.n),
                           .bytes = l.used + sizeof(float) * (size_t)fit->tokens * (size_t)p->hidden};
    return EK_OK;
}

ek_err ek_vision_begin(ek_tower_work **out, const ek_tower_part *p, const ek_picture *picture)
{
    static const ek_tower_work_ops ops = {.advance = advance, .free = free_work};
    const ek_vision *v = (const ek_vision *)p;
    ek_tower_cost cost;
    ek_layout l = {0};
    EK_TRY(ek_vision_cost(&cost, p, &picture->fit));
    ek_vision_work *w = ek_alloc(sizeof *w);
    const ek_err err = measure(w, v, &picture->fit, &l);
    if (err) {
        free(w);
        return err;
    }
    w->work = (ek_tower_work){.ops = &ops, .part = p, .n_rows = cost.rows, .left = cost.macs};
    w->bytes = l.used;
    EK_TRY(ek_tower_take_memory(&w->work, &w->block, w->bytes));
    l = (ek_layout){.base = w->block};
    lay_out(w, &l);
    memcpy(w->picture.image.rgb, picture->image.rgb, ek_image_bytes(&picture->image));
    const int n = v->head_dim / 4, grid = max(w->across, w->down);
    for (int i = 0; i < grid; i++) ek_rope_row(w->cos + i * n, w->sin + i * n, v->freq, n, i);
    *out = &w->work;
    return EK_OK;
}
