/* The executor of a CUDA device: pages, logits and scratch in device memory; a step is one copy of its lists, the
 * kernels, and the tokens back. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gpu/run.h"

/* --- memory */

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
    x->n_jobs = reserve(a, 1, sizeof(int32_t));
}

static size_t prompt_stack(const ek_gpu_run *x)
{
    int segments = x->z.max_ctx / EK_SEGMENT + 2;
    return (size_t)ek_cuda_multiprocessors(x->g->c) * (size_t)ek_cuda_attn_levels(segments) * EK_CUDA_PROMPT_TILE *
           EK_MAX_HEAD_DIM * sizeof(float);
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
    ek_gpu_set *const set[] = {&x->all, &x->tail};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            const size_t rows = i ? logits : n, rotated = (size_t)x->g->m->n_rotated[k];
            set[i]->cos[k] = reserve(a, rows * rotated, f), set[i]->sin[k] = reserve(a, rows * rotated, f);
        }
    x->leaves = reserve(a, x->leaf_bytes, 1);
    x->ended = reserve(a, (size_t)x->max_tiles, sizeof(int32_t));
    x->stack = reserve(a, x->stack_bytes, 1);
    x->image = reserve(a, x->image_bytes, 1);
    x->logits = reserve(a, logits * vocab, f);
    x->block_max = reserve(a, logits * ((vocab + 63) / 64), f);
    x->leaf_sums = reserve(a, logits * ((vocab + 255) / 256), f);
    x->best = reserve(a, logits * 32, 1); /* best, draw, bad, token in one piece: zeroed by one call */
    x->draw = x->best + logits * 8, x->bad = x->draw + logits * 16, x->token = x->bad + logits * 4;
}

static double gb(size_t bytes)
{
    return (double)bytes / 1e9;
}

static ek_err open_device_memory(ek_gpu_run *x)
{
    const ek_kv_layout *layout = &x->g->m->layout;
    size_t kv = 0, free, total;
    arena a = {0};
    x->leaf_bytes = larger(ek_gpu_leaf_bytes(x), prompt_stack(x));
    ek_gpu_lists_most(x, &x->max_tiles, &x->max_items);
    ek_gpu_size_products(x);
    lay_out(x, &a);
    x->scratch_bytes = a.used;
    x->block.bytes = ek_gpu_lists_bytes(x) + ek_gpu_samples_bytes(x);
    for (int k = 0; k < EK_PAGE_KINDS; k++) kv += layout->page_bytes[k] * (size_t)x->z.n_pages[k];
    EK_TRY(ek_cuda_room(x->g->c, &free, &total));
    const size_t need = kv + x->scratch_bytes + x->block.bytes;
    ek_log(EK_LOG_INFO,
           "device memory: weights %.2f GB, keys and values %.2f GB, a step %.2f GB; %.2f of %.2f GB are free",
           gb(x->g->bytes), gb(kv), gb(x->scratch_bytes + x->block.bytes), gb(free), gb(total));
    if (need > free)
        return ek_fail(
            EK_ENOMEM,
            "the device has %.2f GB free; keys and values need %.2f GB and a step %.2f GB (fewer with a smaller "
            "--ctx, --chunk, --max-requests or --kv-memory)",
            gb(free), gb(kv), gb(x->scratch_bytes + x->block.bytes));
    EK_TRY(ek_cuda_alloc(x->g->c, &x->scratch, x->scratch_bytes, "the memory of a step"));
    a = (arena){.base = x->scratch};
    lay_out(x, &a);
    EK_TRY(ek_cuda_fill(x->g->c, x->ended, 0, (size_t)x->max_tiles * sizeof(int32_t)));
    EK_TRY(ek_cuda_alloc(x->g->c, &x->block.device, x->block.bytes, "the lists of a step"));
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        size_t bytes = layout->page_bytes[k] * (size_t)x->z.n_pages[k];
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

static ek_err open_host_memory(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, logits = (size_t)x->z.max_logits, f = sizeof(float);
    EK_TRY(pinned(x, &x->block.host, x->block.bytes));
    EK_TRY(pinned(x, &x->result, logits * 2 * sizeof(int32_t)));
    EK_TRY(pinned(x, &x->logits_host, logits * (size_t)c->vocab_size * f));
    if (c->per_layer_size && !x->g->w.table.l.n)
        EK_TRY(pinned(x, &x->temp_host, (n + logits) * (size_t)(c->n_layers * c->per_layer_size) * f));
    x->all.n = 0;
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            ek_gpu_list *list = s ? &x->tail.list[k] : &x->all.list[k];
            list->wave = ek_alloc(sizeof *list->wave * n);
            x->row[s][k] = ek_alloc(sizeof(ek_attn_row) * n);
        }
    x->tiles = ek_alloc(sizeof *x->tiles * (size_t)x->max_tiles);
    x->items = ek_alloc(sizeof *x->items * (size_t)x->max_items);
    x->want_host = ek_alloc(sizeof *x->want_host * n);
    x->on_device = ek_alloc(sizeof *x->on_device * logits);
    x->mask_at = ek_alloc(sizeof *x->mask_at * logits);
    x->shown = ek_alloc(sizeof *x->shown * logits * 2);
    x->seen = ek_alloc(sizeof *x->seen * (size_t)c->vocab_size);
    x->spare = ek_alloc(f * (size_t)c->vocab_size);
    ek_sampler_open(&x->sampler, x->g->m->cpu, c->vocab_size, c->suppress, c->n_suppress);
    return EK_OK;
}

static ek_err open_run(void *arg, const ek_executor_sizes *z)
{
    ek_gpu_run *x = arg;
    x->z = *z;
    x->limits = (ek_scratch){.m = x->g->m, .max_rows = z->max_rows, .max_logits = z->max_logits, .max_ctx = z->max_ctx};
    x->ld_table = z->max_ctx / EK_PAGE_TOKENS + 2;
    EK_TRY(ek_cuda_enter(x->g->c));
    EK_TRY(open_device_memory(x));
    return open_host_memory(x);
}

static void close_run(void *arg)
{
    ek_gpu_run *x = arg;
    ek_cuda *c = x->g->c;
    ek_cuda_enter(c);
    ek_cuda_sync(c);
    ek_gpu_graphs_fini(x);
    ek_cuda_free(c, x->scratch), ek_cuda_free(c, x->block.device);
    for (int k = 0; k < EK_PAGE_KINDS; k++) ek_cuda_free(c, x->pages[k]);
    ek_cuda_free_host(c, x->block.host), ek_cuda_free_host(c, x->result);
    ek_cuda_free_host(c, x->logits_host), ek_cuda_free_host(c, x->temp_host);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        free(x->all.list[k].wave), free(x->tail.list[k].wave);
        free(x->row[0][k]), free(x->row[1][k]);
    }
    free(x->tiles), free(x->items), free(x->want_host), free(x->on_device), free(x->mask_at), free(x->shown),
        free(x->seen), free(x->spare);
    ek_sampler_close(x->sampler);
    free(x);
}

/* --- a step */

typedef struct embed_arg {
    ek_gpu_run *x;
    const ek_step *s;
    int before, behind; /* elements */
} embed_arg;

/* The per-layer embeddings of row `task`, and of the task - n-th row that wants logits. */
static void embed_task(void *arg, int task, int worker)
{
    (void)worker;
    const embed_arg *e = arg;
    const ek_model *m = e->x->g->m;
    const int n = e->s->n_rows, r = task < n ? task : e->x->want_host[task - n];
    const int id = e->s->row[r].embedding ? m->config.pad : e->s->row[r].token;
    float *to = e->x->temp_host;
    if (task < n) {
        to += (size_t)task * (size_t)e->before;
        if (e->before) ek_embedding_row(&m->w.per_layer_embed, id, 0, e->before, to);
    } else {
        to += (size_t)n * (size_t)e->before + (size_t)(task - n) * (size_t)e->behind;
        if (e->behind) ek_embedding_row(&m->w.per_layer_embed, id, e->before, e->behind, to);
    }
}

/* What the file holds of the rows' embeddings, and rows that are vectors themselves. */
static ek_err upload_embeddings(ek_gpu_run *x, const ek_step *s)
{
    const ek_config *c = &x->g->m->config;
    const size_t hidden = sizeof(float) * (size_t)c->hidden_size;
    for (int r = 0; r < s->n_rows; r++)
        if (s->row[r].embedding)
            EK_TRY(ek_cuda_upload(x->g->c, x->h + hidden * (size_t)r, s->row[r].embedding, hidden));
    if (!c->per_layer_size || x->g->w.table.l.n) return EK_OK;
    embed_arg e = {.x = x, .s = s, .before = ek_prompt_layers(c) * c->per_layer_size};
    e.behind = c->n_layers * c->per_layer_size - e.before;
    ek_pool_run(s->n_rows < EK_ROWS_WORTH_WAKING ? NULL : x->g->m->pool, embed_task, &e, s->n_rows + x->n_want);
    size_t n = (size_t)s->n_rows * (size_t)e.before + (size_t)x->n_want * (size_t)e.behind;
    return ek_cuda_upload(x->g->c, x->temp, x->temp_host, sizeof(float) * n);
}

static ek_err download_shown(ek_gpu_run *x)
{
    const size_t row = sizeof(float) * (size_t)x->g->m->config.vocab_size;
    for (int i = x->first_logits; i < x->first_logits + x->n_want; i++)
        if (x->shown[i])
            EK_TRY(ek_cuda_download(x->g->c, (uint8_t *)x->logits_host + row * (size_t)i, x->logits + row * (size_t)i,
                                    row));
    return EK_OK;
}

static ek_err queue_forward(ek_gpu_run *x)
{
    EK_TRY(ek_cuda_fill(x->g->c, x->best, 0, (size_t)x->z.max_logits * 32));
    ek_gpu_forward(x);
    EK_TRY(x->g->err);
    return download_shown(x);
}

static ek_err queue_draws(ek_gpu_run *x)
{
    ek_gpu_draw(x);
    EK_TRY(x->g->err);
    return ek_cuda_download(x->g->c, x->result, x->bad, (size_t)x->z.max_logits * 8);
}

static ek_err queue_all(ek_gpu_run *x)
{
    EK_TRY(queue_forward(x));
    return queue_draws(x);
}

/* All that a step queues behind its copies. Masks may still be made while the device computes the forward pass. */
static ek_err queue_kernels(ek_gpu_run *x, const ek_step *s)
{
    if (!x->masks) return ek_gpu_replay(x, queue_all, EK_GPU_ALL);
    EK_TRY(ek_gpu_replay(x, queue_forward, EK_GPU_FORWARD));
    ek_masks_wait(s->masks);
    EK_TRY(ek_gpu_put_masks(x, s));
    return ek_gpu_replay(x, queue_draws, EK_GPU_DRAWS);
}

static ek_err queue_step(ek_gpu_run *x, const ek_step *s)
{
    EK_TRY(ek_gpu_lists(x, s));
    if (x->n_want) memcpy(x->shown + s->first_logits, s->shown + s->first_logits, sizeof *x->shown * (size_t)x->n_want);
    EK_TRY(ek_gpu_samples(x, s, x->shown));
    EK_TRY(ek_cuda_upload(x->g->c, x->block.device, x->block.host, x->masks ? x->first_mask : x->block.used));
    EK_TRY(upload_embeddings(x, s));
    return queue_kernels(x, s);
}

static ek_err step_run(void *arg, const ek_step *s)
{
    ek_gpu_run *x = arg;
    EK_TRY(ek_cuda_enter(x->g->c));
    if (x->pending) {
        ek_err err = x->pending;
        x->pending = EK_OK;
        return ek_fail(err, "%s", x->pending_text);
    }
    EK_TRY(ek_pass_check(&x->limits, s->row, s->n_rows, s->n_seqs));
    x->g->err = EK_OK;
    x->block.used = 0;
    x->first_logits = s->first_logits;
    ek_err err = queue_step(x, s);
    if (err) {
        char text[512];
        snprintf(text, sizeof text, "%s", ek_err_text());
        ek_cuda_sync(x->g->c); /* nothing queued may still read the block */
        return ek_fail(err, "%s", text);
    }
    EK_TRY(ek_cuda_sync(x->g->c));
    ek_masks_wait(s->masks); /* of draws that the device does not make */
    return ek_gpu_deliver(x, s);
}

static const float *logits_run(void *arg, int row)
{
    const ek_gpu_run *x = arg;
    return x->logits_host + (size_t)row * (size_t)x->g->m->config.vocab_size;
}

static void note_pending(ek_gpu_run *x, ek_err err)
{
    if (!err || x->pending) return;
    x->pending = err;
    snprintf(x->pending_text, sizeof x->pending_text, "%s", ek_err_text());
}

static CUdeviceptr page_at(const ek_gpu_run *x, ek_layer_kind kind, int32_t page)
{
    EK_ASSERT(page >= 0 && page < x->z.n_pages[kind]);
    return x->pages[kind] + x->g->m->layout.page_bytes[kind] * (size_t)page;
}

static void copy_page_run(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    ek_gpu_run *x = arg;
    note_pending(x, ek_cuda_enter(x->g->c));
    note_pending(x,
                 ek_cuda_copy(x->g->c, page_at(x, kind, to), page_at(x, kind, from), x->g->m->layout.page_bytes[kind]));
}

/* A page that cannot be read must not reach a disk: the engine asks whether the device is lost, and after another error
 * the process ends. */
static void read_page_run(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    const ek_gpu_run *x = arg;
    const size_t bytes = x->g->m->layout.page_bytes[kind];
    ek_err err = ek_cuda_enter(x->g->c);
    if (!err) err = ek_cuda_download(x->g->c, out, page_at(x, kind, page), bytes);
    if (!err) err = ek_cuda_sync(x->g->c);
    EK_ASSERT(!err || ek_cuda_broken(x->g->c));
}

static void write_page_run(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    ek_gpu_run *x = arg;
    note_pending(x, ek_cuda_enter(x->g->c));
    note_pending(x, ek_cuda_upload(x->g->c, page_at(x, kind, page), in, x->g->m->layout.page_bytes[kind]));
    note_pending(x, ek_cuda_sync(x->g->c)); /* in is the caller's again */
}

static void poison_page_run(void *arg, ek_layer_kind kind, int32_t page)
{
    ek_gpu_run *x = arg;
    note_pending(x, ek_cuda_enter(x->g->c));
    note_pending(x, ek_cuda_fill(x->g->c, page_at(x, kind, page), 0xff, x->g->m->layout.page_bytes[kind]));
}

static const char *broken_run(void *arg)
{
    const ek_gpu_run *x = arg;
    return ek_cuda_why(x->g->c);
}

ek_executor ek_gpu_executor(ek_gpu *g)
{
    ek_gpu_run *x = ek_alloc(sizeof *x);
    size_t free = 0, total = 0;
    x->g = g;
    if (ek_cuda_enter(g->c) == EK_OK) ek_cuda_room(g->c, &free, &total);
    return (ek_executor){.config = &g->m->config,
                         .layout = &g->m->layout,
                         .model = g->m,
                         .leaves_host = true,
                         .room = (double)free * 0.8, /* the rest for a step */
                         .arg = x,
                         .open = open_run,
                         .step = step_run,
                         .logits = logits_run,
                         .row_cost = 0.03f, /* batch 8 against 1, E2B on an H100 */
                         .copy_page = copy_page_run,
                         .read_page = read_page_run,
                         .write_page = write_page_run,
                         .poison_page = poison_page_run,
                         .broken = broken_run,
                         .close = close_run};
}
