/* The memory of a step, allocated once. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "model/pass.h"

/* Takes pieces of one block; without a base it only counts. */
typedef struct arena {
    uint8_t *base;
    size_t used;
} arena;

static void *reserve(arena *a, size_t n, size_t size)
{
    void *p = a->base ? a->base + a->used : NULL;
    a->used += (n * size + 63) / 64 * 64;
    return p;
}

static ek_buffer reserve_rows(arena *a, int rows, int width)
{
    ek_buffer b = {.ld = (width + 15) / 16 * 16};
    b.at = reserve(a, (size_t)rows * (size_t)b.ld, sizeof(float));
    return b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Reserves gate and up, or instead of both the rows of k elements that the reader of their product takes. Returns these
 * rows. */
static void *reserve_gates(arena *a, int rows, int k, ek_buffer *gate, ek_buffer *up)
{
    arena floats = *a;
    *gate = reserve_rows(&floats, rows, k);
    *up = reserve_rows(&floats, rows, k);
    void *acts = reserve(a, ek_acts_bytes(rows, k), 1);
    if (a->used < floats.used) a->used = floats.used;
    return acts;
}

static void lay_out_experts(ek_scratch *s, arena *a, const ek_config *c, size_t *acts)
{
    int n = s->max_rows, pairs = n * c->top_k_experts;
    size_t p = (size_t)pairs, experts = (size_t)c->n_experts;
    s->route = reserve_rows(a, n, c->n_experts);
    s->sum = reserve_rows(a, n, c->hidden_size);
    s->pair_gated = reserve_gates(a, pairs, c->moe_intermediate_size, &s->pair_gate, &s->pair_up);
    s->pair_out = reserve_rows(a, pairs, c->hidden_size);
    s->expert = reserve(a, p, sizeof *s->expert);
    s->pair_row = reserve(a, p, sizeof *s->pair_row);
    s->pair_self = reserve(a, p, sizeof *s->pair_self);
    s->row_pair = reserve(a, p, sizeof *s->row_pair);
    s->weight = reserve(a, p, sizeof *s->weight);
    s->first = reserve(a, experts + 1, sizeof *s->first);
    s->pick = reserve(a, experts, sizeof *s->pick);
    s->job = reserve(a, experts * 2, sizeof *s->job);
    s->job_gate = reserve(a, experts, sizeof *s->job_gate);
    *acts = larger(*acts, ek_acts_bytes(pairs, c->moe_intermediate_size));
}

static void lay_out(ek_scratch *s, arena *a)
{
    const ek_model *m = s->m;
    const ek_config *c = &m->config;
    int n = s->max_rows, query = 0, key = 0, inter = 0, threads = ek_pool_threads(m->pool);
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i];
        query = (int)larger((size_t)query, (size_t)(c->n_heads * l->head_dim));
        key = (int)larger((size_t)key, (size_t)(l->n_kv_heads * l->head_dim));
        inter = (int)larger((size_t)inter, (size_t)l->intermediate_size);
    }
    s->h = reserve_rows(a, n, c->hidden_size);
    s->x = reserve_rows(a, n, c->hidden_size);
    s->y = reserve_rows(a, n, c->hidden_size);
    s->q = reserve_rows(a, n, query);
    s->o = reserve_rows(a, n, query);
    s->k = reserve_rows(a, n, key);
    s->v = reserve_rows(a, n, key);
    s->gated = reserve_gates(a, n, (int)larger((size_t)inter, (size_t)c->per_layer_size), &s->gate, &s->up);
    s->gate_space = reserve(a, (size_t)threads * EK_GATE_FLOATS, sizeof *s->gate_space);
    if (c->per_layer_size) {
        int before = ek_prompt_layers(c), behind = c->n_layers - before;
        s->per_layer_head = reserve_rows(a, n, before * c->per_layer_size);
        s->per_layer_tail = reserve_rows(a, s->max_logits, behind * c->per_layer_size);
        s->token = reserve_rows(a, threads, c->n_layers * c->per_layer_size);
    }
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        s->cos[k] = reserve_rows(a, n, m->n_rotated[k]);
        s->sin[k] = reserve_rows(a, n, m->n_rotated[k]);
    }
    for (int k = 0; k < EK_KIND_COUNT; k++) s->row[k] = reserve(a, (size_t)n, sizeof *s->row[k]);
    s->id = reserve(a, (size_t)n, sizeof *s->id);
    s->pos = reserve(a, (size_t)n, sizeof *s->pos);
    s->want = reserve(a, (size_t)n, sizeof *s->want);
    s->embedding = reserve(a, (size_t)n, sizeof *s->embedding);
    s->seq = reserve(a, (size_t)n, sizeof *s->seq);
    s->view = reserve(a, (size_t)n, sizeof *s->view);
    s->store = reserve(a, (size_t)n + 1, sizeof *s->store);

    int widest = (int)larger((size_t)inter, larger((size_t)query, (size_t)c->hidden_size));
    widest = (int)larger((size_t)widest, 2 * (size_t)c->backbone_hidden_size);
    size_t acts = larger(ek_acts_bytes(n, widest), ek_acts_bytes(n, c->per_layer_size)), attn = 0;
    if (c->n_experts) lay_out_experts(s, a, c, &acts);
    s->acts = reserve(a, acts, 1);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (m->attn[k]) attn = larger(attn, ek_attn_scratch_bytes(m->attn[k], n, s->max_ctx, threads));
    s->attn = reserve(a, attn, 1);
}

static size_t scratch_bytes(const ek_model *m, int max_rows, int max_logits, int max_ctx)
{
    ek_scratch s = {.m = m, .max_rows = max_rows, .max_logits = max_logits, .max_ctx = max_ctx};
    arena a = {0};
    lay_out(&s, &a);
    return a.used;
}

ek_err ek_scratch_open(ek_scratch **out, const ek_model *m, int max_rows, int max_logits, int max_ctx)
{
    if (max_rows < 1 || max_logits < 0 || max_logits > max_rows || max_ctx < 1 || max_rows > 1 << 20)
        return ek_fail(EK_EINVAL, "scratch memory for %d rows, %d with logits, %d tokens of context", max_rows,
                       max_logits, max_ctx);
    if (!m->w.block) return ek_fail(EK_EINVAL, "the weights are on a device only");
    ek_scratch *s = ek_alloc(sizeof *s);
    *s = (ek_scratch){.m = m, .max_rows = max_rows, .max_logits = max_logits, .max_ctx = max_ctx};
    s->bytes = scratch_bytes(m, max_rows, max_logits, max_ctx);
    s->block = ek_alloc_big(s->bytes);
    if (!s->block) {
        free(s);
        return EK_ENOMEM;
    }
    arena a = {.base = s->block};
    lay_out(s, &a);
    *out = s;
    return EK_OK;
}

const float *ek_scratch_hidden(const ek_scratch *s, int i)
{
    return ek_at(&s->x, i);
}

void ek_scratch_close(ek_scratch *s)
{
    if (!s) return;
    ek_free_big(s->block, s->bytes);
    free(s);
}
