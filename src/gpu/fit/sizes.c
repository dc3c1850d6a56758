/* The sizes of a step's buffers on a device and their offsets in its memory, for an executor that opens and for one
 * that is planned. */
#include "gpu/fit/fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/attn_work.h"
#include "cuda/exchange_args.h"
#include "cuda/many.h"
#include "cuda/model_args.h"
#include "cuda/product/product.h"
#include "gpu/step/step.h"
#include "gpu/weights/weights.h"
#include "ops/kv/kv_codec.h"

enum { ALIGN = 256 };

/* Pieces of one allocation; without a base it only counts. */
typedef struct arena {
    CUdeviceptr base;
    size_t used;
} arena;

static CUdeviceptr reserve(arena *a, size_t n, size_t size)
{
    CUdeviceptr p = a->base + a->used;
    a->used += (n * size + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

typedef struct widths {
    size_t query, key, inter, acts; /* acts: bytes of all rows' records */
} widths;

static size_t record(size_t rows, int k)
{
    ek_cuda_acts a;
    return k > 0 ? rows * ek_cuda_acts_plan(&a, k, 16) + 1024 : 0;
}

static widths widths_of(const ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    widths w = {0};
    for (int i = 0; i < c->n_layers; i++) {
        const ek_layer_config *l = &c->layer[i];
        w.query = larger(w.query, (size_t)(c->n_heads * l->head_dim));
        w.key = larger(w.key, (size_t)(l->n_kv_heads * l->head_dim));
        w.inter = larger(w.inter, (size_t)l->intermediate_size);
    }
    size_t rows = (size_t)x->z.max_rows, widest = larger(w.inter, larger(w.query, (size_t)c->hidden_size));
    widest = larger(widest, 2 * (size_t)c->backbone_hidden_size);
    w.acts = larger(record(rows, (int)widest), record(rows, c->per_layer_size));
    if (c->n_experts) w.acts = larger(w.acts, record(rows * (size_t)c->top_k_experts, c->moe_intermediate_size));
    if (w.inter < (size_t)c->per_layer_size) w.inter = (size_t)c->per_layer_size;
    return w;
}

static void lay_out_experts(ek_gpu_run *x, arena *a)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, pairs = n * (size_t)c->top_k_experts, f = sizeof(float);
    x->experts.route = reserve(a, n * (size_t)c->n_experts, f);
    x->experts.pair_gate = reserve(a, pairs * (size_t)c->moe_intermediate_size, f);
    x->experts.pair_up = reserve(a, pairs * (size_t)c->moe_intermediate_size, f);
    x->experts.pair_out = reserve(a, pairs * (size_t)c->hidden_size, f);
    x->experts.expert = reserve(a, pairs, sizeof(int32_t));
    x->experts.weight = reserve(a, pairs, f);
    x->experts.pair_row = reserve(a, pairs, sizeof(int32_t));
    x->experts.row_pair = reserve(a, pairs, sizeof(int32_t));
    x->experts.jobs = reserve(a, pairs, sizeof(ek_cuda_job));
    x->experts.n_jobs = reserve(a, 1, sizeof(int32_t)), x->experts.routed = reserve(a, 1, sizeof(int32_t));
    x->experts.h_between = reserve(a, n * (size_t)c->hidden_size, f);
    if (!ek_gpu_experts_are_here(&x->g->share, x->g->share.first))
        x->experts.host_pair = reserve(a, n, sizeof(int32_t)), x->experts.host_weight = reserve(a, n, f);
    x->experts.route_acts = reserve(a, record(n, c->hidden_size), 1),
    x->experts.expert_acts = reserve(a, record(n, c->hidden_size), 1);
}

/* Buffers that other devices read: records, words, and numbers of exchanges. */
static void lay_out_exchange(ek_gpu_run *x, arena *a, const widths *w)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows;
    x->exchange.gathered = reserve(a, record(n, (int)larger(w->query, w->inter)), 1);
    if (c->n_experts)
        x->exchange.pair_gathered = reserve(a, record(n * (size_t)c->top_k_experts, c->moe_intermediate_size), 1);
    x->exchange.control = reserve(a, 1, sizeof(ek_cuda_exchange_control));
    /* of all rows at most */
    const size_t logits = (size_t)x->z.max_logits * (size_t)c->vocab_size * sizeof(float);
    const size_t rows = n * ((size_t)c->hidden_size * sizeof(float) * (size_t)(1 + c->top_k_experts)) + w->acts;
    x->exchange.landing_bytes = (2 * larger(logits, rows) + 63) / 64 * 64;
    if (x->exchange.landing_bytes > EK_CUDA_LANDING_BYTES) x->exchange.landing_bytes = EK_CUDA_LANDING_BYTES;
    x->exchange.landing = reserve(a, EK_CUDA_LANDINGS, x->exchange.landing_bytes);
}

static size_t prompt_stack(const ek_gpu_run *x)
{
    int segments = x->z.max_ctx / EK_SEGMENT + 2;
    return (size_t)ek_cuda_multiprocessors(x->g->c) *
           (size_t)ek_cuda_attn_prompt_plan(x->g->m->k_format, EK_MAX_HEAD_DIM, ek_cuda_chip_of(x->g->c)).slots *
           ek_cuda_attn_stack_floats(ek_cuda_attn_levels(segments), EK_MAX_HEAD_DIM) * sizeof(float);
}

static void lay_out_draft(ek_gpu_run *x, arena *a)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, f = sizeof(float);
    x->buf.fed = reserve(a, n * 2 * (size_t)c->backbone_hidden_size, f);
    if (c->n_centroids) {
        /* scores of centroids; on a plain chip then scores of the chosen centroids' tokens
         * (vulkan/shaders/draft.glsl) */
        const size_t tokens = (size_t)(c->vocab_size / c->n_centroids) * (size_t)c->top_k_centroids;
        const bool plain = ek_cuda_chip_of(x->g->c)->plain;
        x->buf.logits = reserve(a, n * (plain ? larger((size_t)c->n_centroids, tokens) : (size_t)c->n_centroids), f);
        x->buf.chosen = reserve(a, n * (size_t)c->top_k_centroids, sizeof(int32_t));
    } else {
        x->buf.logits = reserve(a, n * (size_t)c->vocab_size, f);
    }
    x->buf.best = reserve(a, n * 2, sizeof(uint64_t));
    x->buf.token = reserve(a, n * EK_DRAFT_MAX, sizeof(int32_t));
}

size_t ek_gpu_max_ended(const ek_gpu_run *x)
{
    const bool leaves = ek_kv_rotated(x->g->m->v_format) && x->lists.max_items > x->lists.max_tiles;
    return (size_t)(leaves ? x->lists.max_items : x->lists.max_tiles);
}

static void lay_out(ek_gpu_run *x, arena *a)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, hidden = (size_t)c->hidden_size, f = sizeof(float);
    const size_t logits = (size_t)x->z.max_logits, vocab = (size_t)c->vocab_size;
    const widths w = widths_of(x);
    x->buf.h = reserve(a, n * hidden, f), x->buf.x = reserve(a, n * hidden, f), x->buf.y = reserve(a, n * hidden, f);
    x->buf.q = reserve(a, n * w.query, f), x->buf.o = reserve(a, n * w.query, f);
    x->buf.k = reserve(a, n * w.key, f), x->buf.v = reserve(a, n * w.key, f);
    x->buf.gate = reserve(a, n * w.inter, f), x->buf.up = reserve(a, n * w.inter, f);
    x->buf.acts = reserve(a, w.acts, 1), x->buf.acts2 = reserve(a, w.acts, 1);
    if (c->per_layer_size) {
        const size_t before = (size_t)(ek_prompt_layers(c) * c->per_layer_size);
        const size_t behind = (size_t)(c->n_layers * c->per_layer_size) - before;
        x->buf.per_layer_head = reserve(a, n * before, f);
        x->buf.per_layer_tail = reserve(a, logits * behind, f);
        x->buf.temp = reserve(a, n * before + logits * behind, f);
    }
    if (c->n_experts) lay_out_experts(x, a);
    if (x->g->share.shard.ranks) lay_out_exchange(x, a, &w);
    ek_gpu_set *const set[] = {&x->now.all, &x->now.tail};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            const size_t rows = i ? logits : n, rotated = (size_t)x->g->m->n_rotated[k];
            set[i]->cos[k] = reserve(a, rows * rotated, f), set[i]->sin[k] = reserve(a, rows * rotated, f);
        }
    const ek_gpu_run *t = x->target;
    x->buf.segments = t && t->buf.segment_bytes >= x->buf.segment_bytes ? t->buf.segments
                                                                        : reserve(a, x->buf.segment_bytes, 1);
    x->buf.ended = reserve(a, ek_gpu_max_ended(x), sizeof(int32_t));
    x->buf.stack = t && t->buf.stack_bytes >= x->buf.stack_bytes ? t->buf.stack : reserve(a, x->buf.stack_bytes, 1);
    const bool operands = t && t->buf.operand_bytes >= x->buf.operand_bytes;
    for (int i = 0; i < 2; i++) x->buf.operand[i] = operands ? t->buf.operand[i] : reserve(a, x->buf.operand_bytes, 1);
    if (t) {
        lay_out_draft(x, a);
        return;
    }
    if (x->g->drafter) x->buf.hidden = reserve(a, logits * hidden, f);
    if (x->g->share.head) {
        x->buf.logits = reserve(a, logits * vocab, f);
        x->buf.block_max = reserve(a, logits * ((vocab + 63) / 64), f);
        x->buf.leaf_sums = reserve(a, logits * ((vocab + 255) / 256), f);
        x->buf.sorted = reserve(a, EK_CUDA_SORTERS * 2 * vocab, sizeof(uint64_t));
    }
    /* All five lie together: one call zeroes the first four, one copies the last three. Tokens stay until those of the
     * next step are drawn, because the next step may begin with them. */
    x->buf.best = reserve(a, logits * 40, 1);
    x->buf.draw = x->buf.best + logits * 8, x->buf.digest = x->buf.draw + logits * 16;
    x->buf.bad = x->buf.digest + logits * 8, x->buf.token = x->buf.bad + logits * 4;
}

/* Bytes of the stack and of an operand for any step: the operand holds all rows, and each running block has nodes of
 * 128 outputs by 64 rows on the stack. */
static void size_products(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const int rows = x->z.max_rows;
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->g->c);
    const size_t node = 128 * 64 * sizeof(float);
    x->buf.stack_bytes = (size_t)chip->multiprocessors * node *
                         larger(EK_CUDA_WIDE_BLOCKS * (size_t)x->g->levels,
                                EK_CUDA_MANY_BLOCKS * (size_t)x->g->float_levels);
    x->buf.operand_bytes = 0;
    const int behind = x->g->share.end <
                       c->n_layers; /* a layer follows on the next device: rows are written as for a layer here */
    for (int i = x->g->share.first; i < x->g->share.end + behind; i++) {
        const ek_gpu_layer *w = &x->g->w.layer[i];
        const ek_gpu_matrix *const dense[] = {
            &w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down, &w->router, &w->per_layer_gate, &w->per_layer_proj};
        for (size_t m = 0; m < sizeof dense / sizeof *dense; m++)
            x->buf.operand_bytes = larger(x->buf.operand_bytes, ek_cuda_wide_operand(&dense[m]->l, rows, 0, chip));
        if (!c->n_experts) continue;
        const ek_gpu_matrix *const expert[] = {&w->expert_gate, &w->expert_up, &w->expert_down};
        for (size_t m = 0; m < sizeof expert / sizeof *expert; m++) {
            const int jobs = rows * c->top_k_experts / 32 +
                             c->n_experts; /* jobs of 32 pairs if a matrix has two limbs */
            x->buf.operand_bytes = larger(x->buf.operand_bytes, ek_cuda_wide_operand(&expert[m]->l, rows, jobs, chip));
        }
    }
    const ek_gpu_matrix *const others[] = {ek_gpu_head(&x->g->w),   &x->g->w.per_layer_head,  &x->g->w.per_layer_tail,
                                           &x->g->w.pre_projection, &x->g->w.post_projection, &x->g->w.centroids};
    for (size_t m = 0; m < sizeof others / sizeof *others; m++)
        x->buf.operand_bytes = larger(x->buf.operand_bytes, ek_cuda_wide_operand(&others[m]->l, rows, 0, chip));
}

void ek_gpu_size_step(ek_gpu_run *x)
{
    arena a = {0};
    x->buf.segment_bytes = larger(ek_gpu_segment_bytes(x), prompt_stack(x));
    ek_gpu_lists_max(x, &x->lists.max_tiles, &x->lists.max_items);
    size_products(x);
    lay_out(x, &a);
    x->buf.scratch_bytes = a.used;
    x->block.bytes = ek_gpu_lists_bytes(x) + 64; /* the step's number */
    x->block.bytes += x->target ? (size_t)x->z.max_rows * 2 * sizeof(int32_t) + 4096 : ek_gpu_samples_bytes(x);
}

void ek_gpu_set_sizes(ek_gpu_run *x, const ek_executor_sizes *z)
{
    x->z = *z;
    x->lists.limits = (ek_scratch){
        .m = x->g->m, .max_rows = z->max_rows, .max_logits = z->max_logits, .max_ctx = z->max_ctx};
    x->lists.max_ld_table = z->max_ctx / EK_PAGE_TOKENS + 2;
}

void ek_gpu_lay_out(ek_gpu_run *x)
{
    arena a = {.base = x->buf.scratch};
    lay_out(x, &a);
}

/* Buffers of a drafter's run, which has one row per request (memory.c). */
void ek_gpu_size_drafter(ek_gpu_run *x, ek_gpu_run *target)
{
    const ek_executor_sizes *z = &target->z;
    x->g = target->g->drafter, x->target = target;
    ek_gpu_set_sizes(x, &(ek_executor_sizes){.max_rows = z->max_requests,
                                             .max_logits = z->max_requests,
                                             .max_ctx = z->max_ctx,
                                             .max_requests = z->max_requests});
    ek_gpu_size_step(x);
}

static double step_bytes(const ek_gpu_run *x)
{
    return (double)(x->buf.scratch_bytes + x->block.bytes);
}

double ek_gpu_step_bytes(ek_gpu *g, const ek_executor_sizes *z)
{
    ek_gpu_run *x = ek_alloc(sizeof *x), *drafter = g->drafter ? ek_alloc(sizeof *drafter) : NULL;
    x->g = g;
    ek_gpu_set_sizes(x, z);
    ek_gpu_size_step(x);
    if (drafter) ek_gpu_size_drafter(drafter, x);
    const double bytes = step_bytes(x) + (drafter ? step_bytes(drafter) : 0);
    free(x), free(drafter);
    return bytes;
}

/* Plans the bytes of g's model and of its run x. */
static void plan(ek_fit_parts *out, ek_gpu_run *x, const ek_executor_sizes *z)
{
    ek_gpu *const g = x->g;
    ek_gpu_set_sizes(x, z);
    ek_gpu_size_step(x);
    *out = (ek_fit_parts){.weights = (double)g->bytes, .step = step_bytes(x), .table = ek_gpu_table_plan(g)};
    if (!g->drafter) return;
    ek_gpu_run *drafter = ek_alloc(sizeof *drafter);
    ek_gpu_size_drafter(drafter, x);
    out->drafter = (double)g->drafter->bytes, out->step += step_bytes(drafter);
    free(drafter);
}

ek_err ek_gpu_plan(ek_fit_parts *out, size_t page_bytes[EK_PAGE_KINDS], ek_cuda *c, ek_model *m,
                   const ek_model_share *share, ek_gpu_shard shard, const ek_executor_sizes *z, const ek_drafter *d)
{
    ek_gpu *g = ek_alloc(sizeof *g), *drafter = d ? ek_alloc(sizeof *drafter) : NULL;
    ek_gpu_run *x = ek_alloc(sizeof *x);
    g->c = c, g->m = m, x->g = g;
    ek_gpu_set_share(g, share, shard);
    memcpy(page_bytes, g->share.kv_bytes, sizeof g->share.kv_bytes);
    ek_err err = ek_gpu_upload_plan(g);
    if (d) ek_gpu_set_drafter(drafter, g, d);
    if (d && !err) err = ek_gpu_upload_plan(drafter);
    g->drafter = drafter;
    if (!err) plan(out, x, z);
    free(x), free(drafter), free(g);
    return err;
}
