/* The memory of an executor: pages, a step's buffers on the device, and what it fills and reads on the host. That of a
 * drafter is smaller: its pages are the target's, and so is scratch memory that is large enough there. */
#include "gpu/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/attn_work.h"
#include "cuda/model_args.h"
#include "cuda/many.h"
#include "cuda/product/wide.h"
#include "cuda/words_args.h"
#include "gpu/recipe/recipe.h"
#include "gpu/step/graph.h"
#include "gpu/step/host.h"
#include "gpu/step/lists.h"
#include "gpu/step/sample.h"
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
    x->route = reserve(a, n * (size_t)c->n_experts, f);
    x->pair_gate = reserve(a, pairs * (size_t)c->moe_intermediate_size, f);
    x->pair_up = reserve(a, pairs * (size_t)c->moe_intermediate_size, f);
    x->pair_out = reserve(a, pairs * (size_t)c->hidden_size, f);
    x->expert = reserve(a, pairs, sizeof(int32_t));
    x->weight = reserve(a, pairs, f);
    x->pair_row = reserve(a, pairs, sizeof(int32_t));
    x->row_pair = reserve(a, pairs, sizeof(int32_t));
    x->jobs = reserve(a, pairs, sizeof(ek_cuda_job));
    x->n_jobs = reserve(a, 1, sizeof(int32_t)), x->routed = reserve(a, 1, sizeof(int32_t));
    x->h_between = reserve(a, n * (size_t)c->hidden_size, f);
    if (!ek_gpu_experts_are_here(&x->g->share, x->g->share.first))
        x->host_pair = reserve(a, n, sizeof(int32_t)), x->host_weight = reserve(a, n, f);
    x->route_acts = reserve(a, record(n, c->hidden_size), 1), x->expert_acts = reserve(a, record(n, c->hidden_size), 1);
}

/* Where other devices write: by records, and who waits for whom. */
static void lay_out_exchange(ek_gpu_run *x, arena *a, const widths *w)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows;
    x->gathered = reserve(a, record(n, (int)larger(w->query, w->inter)), 1);
    if (c->n_experts) x->pair_gathered = reserve(a, record(n * (size_t)c->top_k_experts, c->moe_intermediate_size), 1);
    x->control = reserve(a, 1, sizeof(ek_cuda_exchange_control));
    /* of all rows at most */
    const size_t logits = (size_t)x->z.max_logits * (size_t)c->vocab_size * sizeof(float);
    const size_t rows = n * ((size_t)c->hidden_size * sizeof(float) * (size_t)(1 + c->top_k_experts)) + w->acts;
    x->landing_bytes = 2 * larger(logits, rows);
    if (x->landing_bytes > EK_CUDA_LANDING_BYTES) x->landing_bytes = EK_CUDA_LANDING_BYTES;
    x->landing = reserve(a, EK_CUDA_LANDINGS, x->landing_bytes);
}

static size_t prompt_stack(const ek_gpu_run *x)
{
    int segments = x->z.max_ctx / EK_SEGMENT + 2;
    return (size_t)ek_cuda_multiprocessors(x->g->c) *
           (size_t)ek_cuda_attn_prompt_plan(x->g->m->k_format, ek_cuda_chip_of(x->g->c)).slots *
           ek_cuda_attn_stack_floats(ek_cuda_attn_levels(segments), EK_MAX_HEAD_DIM) * sizeof(float);
}

static void lay_out_draft(ek_gpu_run *x, arena *a)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, f = sizeof(float);
    x->fed = reserve(a, n * 2 * (size_t)c->backbone_hidden_size, f);
    if (c->n_centroids) {
        x->logits = reserve(a, n * (size_t)c->n_centroids, f);
        x->chosen = reserve(a, n * (size_t)c->top_k_centroids, sizeof(int32_t));
    } else {
        x->logits = reserve(a, n * (size_t)c->vocab_size, f);
    }
    x->best = reserve(a, n * 2, sizeof(uint64_t));
    x->token = reserve(a, n * EK_DRAFT_MAX, sizeof(int32_t));
}

/* Of ek_cuda_attn_args: an entry per tile, or of attention in integers per leaf. */
static size_t max_ended(const ek_gpu_run *x)
{
    const bool leaves = ek_kv_rotated(x->g->m->v_format) && x->max_items > x->max_tiles;
    return (size_t)(leaves ? x->max_items : x->max_tiles);
}

static void lay_out(ek_gpu_run *x, arena *a)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, hidden = (size_t)c->hidden_size, f = sizeof(float);
    const size_t logits = (size_t)x->z.max_logits, vocab = (size_t)c->vocab_size;
    const widths w = widths_of(x);
    x->h = reserve(a, n * hidden, f), x->x = reserve(a, n * hidden, f), x->y = reserve(a, n * hidden, f);
    x->q = reserve(a, n * w.query, f), x->o = reserve(a, n * w.query, f);
    x->k = reserve(a, n * w.key, f), x->v = reserve(a, n * w.key, f);
    x->gate = reserve(a, n * w.inter, f), x->up = reserve(a, n * w.inter, f);
    x->acts = reserve(a, w.acts, 1), x->acts2 = reserve(a, w.acts, 1);
    if (c->per_layer_size) {
        const size_t before = (size_t)(ek_prompt_layers(c) * c->per_layer_size);
        const size_t behind = (size_t)(c->n_layers * c->per_layer_size) - before;
        x->per_layer_head = reserve(a, n * before, f);
        x->per_layer_tail = reserve(a, logits * behind, f);
        x->temp = reserve(a, n * before + logits * behind, f);
    }
    if (c->n_experts) lay_out_experts(x, a);
    if (x->g->share.cut.ranks) lay_out_exchange(x, a, &w);
    ek_gpu_set *const set[] = {&x->all, &x->tail};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            const size_t rows = i ? logits : n, rotated = (size_t)x->g->m->n_rotated[k];
            set[i]->cos[k] = reserve(a, rows * rotated, f), set[i]->sin[k] = reserve(a, rows * rotated, f);
        }
    const ek_gpu_run *t = x->target;
    x->segments = t && t->segment_bytes >= x->segment_bytes ? t->segments : reserve(a, x->segment_bytes, 1);
    x->ended = reserve(a, max_ended(x), sizeof(int32_t));
    x->stack = t && t->stack_bytes >= x->stack_bytes ? t->stack : reserve(a, x->stack_bytes, 1);
    const bool operands = t && t->operand_bytes >= x->operand_bytes;
    for (int i = 0; i < 2; i++) x->operand[i] = operands ? t->operand[i] : reserve(a, x->operand_bytes, 1);
    if (t) {
        lay_out_draft(x, a);
        return;
    }
    if (x->g->drafter) x->hidden = reserve(a, logits * hidden, f);
    if (x->g->share.head) {
        x->logits = reserve(a, logits * vocab, f);
        x->block_max = reserve(a, logits * ((vocab + 63) / 64), f);
        x->leaf_sums = reserve(a, logits * ((vocab + 255) / 256), f);
        x->sorted = reserve(a, EK_CUDA_SORTERS * 2 * vocab, sizeof(uint64_t));
    }
    /* All five in one piece: the first four zeroed by one call, the last three copied by one. Tokens stay until the
     * next step's are drawn: it may begin with them. */
    x->best = reserve(a, logits * 40, 1);
    x->draw = x->best + logits * 8, x->digest = x->draw + logits * 16;
    x->bad = x->digest + logits * 8, x->token = x->bad + logits * 4;
}

static double gb(size_t bytes)
{
    return (double)bytes / 1e9;
}

/* Bytes of the stack and an operand for any step: an operand of all rows, and for each block that is at work at once
 * nodes of 128 outputs by 64 rows. */
static void size_products(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const int rows = x->z.max_rows;
    const ek_cuda_chip *chip = ek_cuda_chip_of(x->g->c);
    const size_t node = 128 * 64 * sizeof(float);
    x->stack_bytes = (size_t)chip->multiprocessors * node *
                     larger(EK_CUDA_WIDE_BLOCKS * (size_t)x->g->levels,
                            EK_CUDA_MANY_BLOCKS * (size_t)x->g->float_levels);
    x->operand_bytes = 0;
    const int behind = x->g->share.end < c->n_layers; /* whose rows are left as for a layer here */
    for (int i = x->g->share.first; i < x->g->share.end + behind; i++) {
        const ek_gpu_layer *w = &x->g->w.layer[i];
        const ek_gpu_matrix *const dense[] = {
            &w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down, &w->router, &w->per_layer_gate, &w->per_layer_proj};
        for (size_t m = 0; m < sizeof dense / sizeof *dense; m++)
            x->operand_bytes = larger(x->operand_bytes, ek_cuda_wide_operand(&dense[m]->l, rows, 0, chip));
        if (!c->n_experts) continue;
        const ek_gpu_matrix *const expert[] = {&w->expert_gate, &w->expert_up, &w->expert_down};
        for (size_t m = 0; m < sizeof expert / sizeof *expert; m++) {
            const int jobs = rows * c->top_k_experts / 32 + c->n_experts; /* of 32 pairs where a matrix has two limbs */
            x->operand_bytes = larger(x->operand_bytes, ek_cuda_wide_operand(&expert[m]->l, rows, jobs, chip));
        }
    }
    const ek_gpu_matrix *const others[] = {&x->g->w.embed,          &x->g->w.per_layer_head,  &x->g->w.per_layer_tail,
                                           &x->g->w.pre_projection, &x->g->w.post_projection, &x->g->w.centroids};
    for (size_t m = 0; m < sizeof others / sizeof *others; m++)
        x->operand_bytes = larger(x->operand_bytes, ek_cuda_wide_operand(&others[m]->l, rows, 0, chip));
}

/* Sizes of all buffers, before any is taken. */
static void size_step(ek_gpu_run *x)
{
    arena a = {0};
    x->segment_bytes = larger(ek_gpu_segment_bytes(x), prompt_stack(x));
    ek_gpu_lists_max(x, &x->max_tiles, &x->max_items);
    size_products(x);
    lay_out(x, &a);
    x->scratch_bytes = a.used;
    x->block.bytes = ek_gpu_lists_bytes(x) + 64; /* the step's number */
    x->block.bytes += x->target ? (size_t)x->z.max_rows * 2 * sizeof(int32_t) + 4096 : ek_gpu_samples_bytes(x);
}

static ek_err take_step(ek_gpu_run *x)
{
    EK_TRY(ek_cuda_alloc(x->g->c, &x->scratch, x->scratch_bytes, "the memory of a step"));
    arena a = {.base = x->scratch};
    lay_out(x, &a);
    EK_TRY(ek_cuda_fill(x->g->c, x->ended, 0, max_ended(x) * sizeof(int32_t)));
    if (x->routed) EK_TRY(ek_cuda_fill(x->g->c, x->routed, 0, sizeof(int32_t)));
    if (x->control) {
        EK_TRY(ek_cuda_fill_beside(x->g->c, x->control, 0, sizeof(ek_cuda_exchange_control)));
        EK_TRY(ek_cuda_fill_beside(x->g->c, x->landing, 0, EK_CUDA_LANDINGS * x->landing_bytes));
    }
    return ek_cuda_alloc(x->g->c, &x->block.device, x->block.bytes, "the lists of a step");
}

static ek_err open_device_memory(ek_gpu_run *x)
{
    size_t kv = 0, free, total;
    size_step(x);
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        x->page_bytes[k] = x->g->share.kv_bytes[k];
        kv += x->page_bytes[k] * (size_t)x->z.n_pages[k];
    }
    EK_TRY(ek_cuda_room(x->g->c, &free, &total));
    const size_t need = kv + x->scratch_bytes + x->block.bytes;
    ek_log(EK_LOG_DEBUG,
           "device memory: weights %.2f GB, keys and values %.2f GB, a step %.2f GB; %.2f of %.2f GB are free",
           gb(x->g->bytes), gb(kv), gb(x->scratch_bytes + x->block.bytes), gb(free), gb(total));
    if (need > free)
        return ek_fail(
            EK_ENOMEM,
            "the device has %.2f GB free; keys and values need %.2f GB and a step %.2f GB (fewer with a smaller "
            "--ctx, --chunk, --max-requests or --kv-memory)",
            gb(free), gb(kv), gb(x->scratch_bytes + x->block.bytes));
    EK_TRY(take_step(x));
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        size_t bytes = x->page_bytes[k] * (size_t)x->z.n_pages[k];
        if (bytes) EK_TRY(ek_cuda_alloc(x->g->c, &x->pages[k], bytes, "keys and values"));
        if (bytes) EK_TRY(ek_cuda_fill(x->g->c, x->pages[k], 0, bytes));
    }
    return EK_OK;
}

static ek_err pinned(ek_gpu_run *x, void *out, size_t bytes)
{
    void *p = NULL;
    EK_TRY(ek_cuda_alloc_host(x->g->c, &p, bytes));
    memset(p, 0, bytes);
    memcpy(out, &p, sizeof p);
    return EK_OK;
}

/* What the lists of a step are made in. */
static ek_err open_lists(ek_gpu_run *x)
{
    const size_t n = (size_t)x->z.max_rows, logits = (size_t)x->z.max_logits;
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            ek_gpu_list *list = s ? &x->tail.list[k] : &x->all.list[k];
            list->wave = ek_alloc(sizeof *list->wave * n);
            x->row[s][k] = ek_alloc(sizeof(ek_attn_row) * n);
        }
    x->tiles = ek_alloc(sizeof *x->tiles * (size_t)x->max_tiles);
    x->items = ek_alloc(sizeof *x->items * (size_t)x->max_items);
    x->want_host = ek_alloc(sizeof *x->want_host * n);
    x->shown = ek_alloc(sizeof *x->shown * logits * 2);
    return EK_OK;
}

static ek_err open_host_memory(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, logits = (size_t)x->z.max_logits;
    x->recipes = ek_gpu_recipes_open(x);
    EK_TRY(open_lists(x));
    EK_TRY(ek_cuda_event_open(x->g->c, &x->taken));
    for (int i = 0; i < x->n_flights; i++) {
        ek_gpu_flight *f = &x->flight[i];
        EK_TRY(pinned(x, &f->block, x->block.bytes));
        EK_TRY(pinned(x, &f->result, logits * 16 + 64));
        EK_TRY(ek_cuda_event_open(x->g->c, &f->ended));
    }
    x->result = x->flight[0].result;
    if (x->g->share.head) EK_TRY(pinned(x, &x->logits_host, logits * (size_t)c->vocab_size * sizeof(float)));
    if (c->per_layer_size && !x->g->w.table.l.n && !x->follower)
        EK_TRY(pinned(x, &x->temp_host, (n + logits) * (size_t)(c->n_layers * c->per_layer_size) * sizeof(float)));
    x->on_device = ek_alloc(sizeof *x->on_device * logits);
    x->mask_at = ek_alloc(sizeof *x->mask_at * logits);
    x->seen = ek_alloc(sizeof *x->seen * (size_t)c->vocab_size);
    ek_sampler_open(&x->sampler, x->g->m->cpu, c->vocab_size, c->suppress, c->n_suppress);
    return EK_OK;
}

static void set_sizes(ek_gpu_run *x, const ek_executor_sizes *z)
{
    x->z = *z;
    x->limits = (ek_scratch){.m = x->g->m, .max_rows = z->max_rows, .max_logits = z->max_logits, .max_ctx = z->max_ctx};
    x->max_ld_table = z->max_ctx / EK_PAGE_TOKENS + 2;
}

/* One row per request, each of a sequence of its own. */
static ek_err open_drafter(ek_gpu_run *t)
{
    size_t free, total;
    ek_gpu_run *x = t->drafter = ek_alloc(sizeof *x);
    x->g = t->g->drafter, x->target = t;
    set_sizes(x, &(ek_executor_sizes){.max_rows = t->z.max_requests,
                                      .max_logits = t->z.max_requests,
                                      .max_ctx = t->z.max_ctx,
                                      .max_requests = t->z.max_requests});
    memcpy(x->pages, t->pages, sizeof x->pages);
    memcpy(x->page_bytes, t->page_bytes, sizeof x->page_bytes);
    size_step(x);
    EK_TRY(ek_cuda_room(x->g->c, &free, &total));
    const size_t need = x->scratch_bytes + x->block.bytes;
    ek_log(EK_LOG_DEBUG, "device memory: a step of the drafter %.2f GB; %.2f of %.2f GB are free", gb(need), gb(free),
           gb(total));
    if (need > free)
        return ek_fail(
            EK_ENOMEM,
            "the device has %.2f GB free; a step of the drafter needs %.2f GB (fewer with a smaller --ctx or "
            "--max-requests)",
            gb(free), gb(need));
    x->rows = ek_alloc(sizeof *x->rows * (size_t)x->z.max_rows);
    x->seqs = ek_alloc(sizeof *x->seqs * (size_t)x->z.max_rows);
    EK_TRY(take_step(x));
    x->recipes = ek_gpu_recipes_open(x);
    EK_TRY(open_lists(x));
    EK_TRY(pinned(x, &x->block.host, x->block.bytes));
    return pinned(x, &x->result, (size_t)x->z.max_rows * EK_DRAFT_MAX * sizeof(int32_t));
}

ek_err ek_gpu_run_open(void *arg, const ek_executor_sizes *z)
{
    ek_gpu_run *x = arg;
    set_sizes(x, z);
    EK_TRY(ek_cuda_enter(x->g->c));
    EK_TRY(open_device_memory(x));
    EK_TRY(open_host_memory(x));
    EK_TRY(ek_gpu_host_open(x));
    return x->g->drafter ? open_drafter(x) : EK_OK;
}

static void free_run(ek_gpu_run *x)
{
    ek_cuda *c = x->g->c;
    ek_gpu_graphs_fini(x);
    ek_gpu_host_close(x);
    ek_gpu_recipes_close(x->recipes);
    ek_cuda_free(c, x->scratch), ek_cuda_free(c, x->block.device);
    for (int k = 0; k < EK_PAGE_KINDS && !x->target; k++) ek_cuda_free(c, x->pages[k]);
    for (int i = 0; i < x->n_flights && !x->target; i++) {
        ek_cuda_free_host(c, x->flight[i].block), ek_cuda_free_host(c, x->flight[i].result);
        ek_cuda_event_close(c, x->flight[i].ended);
    }
    ek_cuda_event_close(c, x->taken);
    if (x->target) ek_cuda_free_host(c, x->block.host), ek_cuda_free_host(c, x->result);
    ek_cuda_free_host(c, x->logits_host), ek_cuda_free_host(c, x->temp_host);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        free(x->all.list[k].wave), free(x->tail.list[k].wave);
        free(x->row[0][k]), free(x->row[1][k]);
    }
    free(x->tiles), free(x->items), free(x->want_host), free(x->on_device), free(x->mask_at), free(x->shown),
        free(x->seen), free(x->rows), free(x->seqs);
    ek_sampler_close(x->sampler);
    free(x);
}

void ek_gpu_run_close(void *arg)
{
    ek_gpu_run *x = arg;
    ek_cuda_enter(x->g->c);
    ek_cuda_sync(x->g->c);
    if (x->drafter) free_run(x->drafter);
    free_run(x);
}
