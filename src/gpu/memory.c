/* The memory of an executor: pages, a step's buffers on the device, and the buffers that the host fills and reads. A
 * drafter's memory is smaller: it uses the target's pages, and the target's scratch memory if that is large enough. */
#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cuda/exchange_args.h"
#include "gpu/fit/fit.h"
#include "gpu/recipe/recipe.h"
#include "gpu/step/step.h"

static double gb(size_t bytes)
{
    return (double)bytes / 1e9;
}

static ek_err take_step(ek_gpu_run *x)
{
    EK_TRY(ek_cuda_alloc(x->g->c, &x->buf.scratch, x->buf.scratch_bytes, "the memory of a step"));
    ek_gpu_lay_out(x);
    EK_TRY(ek_cuda_fill(x->g->c, x->buf.ended, 0, ek_gpu_max_ended(x) * sizeof(int32_t)));
    if (x->experts.routed) EK_TRY(ek_cuda_fill(x->g->c, x->experts.routed, 0, sizeof(int32_t)));
    if (x->exchange.control) {
        EK_TRY(ek_cuda_fill_beside(x->g->c, x->exchange.control, 0, sizeof(ek_cuda_exchange_control)));
        EK_TRY(ek_cuda_fill_beside(x->g->c, x->exchange.landing, 0, EK_CUDA_LANDINGS * x->exchange.landing_bytes));
    }
    return ek_cuda_alloc(x->g->c, &x->block.device, x->block.bytes, "the lists of a step");
}

static ek_err open_device_memory(ek_gpu_run *x)
{
    size_t kv = 0, free, total;
    ek_gpu_size_step(x);
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        x->buf.page_bytes[k] = x->g->share.kv_bytes[k];
        kv += x->buf.page_bytes[k] * (size_t)x->z.n_pages[k];
    }
    EK_TRY(ek_cuda_room(x->g->c, &free, &total));
    const size_t need = kv + x->buf.scratch_bytes + x->block.bytes;
    ek_log(EK_LOG_DEBUG,
           "device memory: weights %.2f GB, keys and values %.2f GB, a step %.2f GB; %.2f of %.2f GB are free",
           gb(x->g->bytes), gb(kv), gb(x->buf.scratch_bytes + x->block.bytes), gb(free), gb(total));
    if (need > free)
        return ek_fit_fail_free(
            (double)free, &(ek_fit_parts){.keys = (double)kv, .step = (double)(x->buf.scratch_bytes + x->block.bytes)},
            false);
    EK_TRY(take_step(x));
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        size_t bytes = x->buf.page_bytes[k] * (size_t)x->z.n_pages[k];
        if (bytes) EK_TRY(ek_cuda_alloc(x->g->c, &x->buf.pages[k], bytes, "keys and values"));
        if (bytes) EK_TRY(ek_cuda_fill(x->g->c, x->buf.pages[k], 0, bytes));
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

/* Opens the memory in which the lists of a step are made. */
static ek_err open_lists(ek_gpu_run *x)
{
    const size_t n = (size_t)x->z.max_rows, logits = (size_t)x->z.max_logits;
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            ek_gpu_list *list = s ? &x->now.tail.list[k] : &x->now.all.list[k];
            list->wave = ek_alloc(sizeof *list->wave * n);
            x->lists.row[s][k] = ek_alloc(sizeof(ek_attn_row) * n);
        }
    x->lists.tiles = ek_alloc(sizeof *x->lists.tiles * (size_t)x->lists.max_tiles);
    x->lists.items = ek_alloc(sizeof *x->lists.items * (size_t)x->lists.max_items);
    x->lists.want_host = ek_alloc(sizeof *x->lists.want_host * n);
    x->lists.shown = ek_alloc(sizeof *x->lists.shown * logits * 2);
    return EK_OK;
}

static ek_err open_host_memory(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const size_t n = (size_t)x->z.max_rows, logits = (size_t)x->z.max_logits;
    x->recipes = ek_gpu_recipes_open(x);
    EK_TRY(open_lists(x));
    EK_TRY(ek_cuda_event_open(x->g->c, &x->near.taken));
    for (int i = 0; i < x->flights.n_flights; i++) {
        ek_gpu_flight *f = &x->flights.flight[i];
        EK_TRY(pinned(x, &f->block, x->block.bytes));
        EK_TRY(pinned(x, &f->result, logits * 16 + 64));
        EK_TRY(ek_cuda_event_open(x->g->c, &f->ended));
    }
    x->flights.result = x->flights.flight[0].result;
    if (x->g->share.head) EK_TRY(pinned(x, &x->logits_host, logits * (size_t)c->vocab_size * sizeof(float)));
    if (c->per_layer_size && !x->g->w.table.l.n && !x->exchange.follower)
        EK_TRY(pinned(x, &x->temp_host, (n + logits) * (size_t)(c->n_layers * c->per_layer_size) * sizeof(float)));
    x->lists.on_device = ek_alloc(sizeof *x->lists.on_device * logits);
    x->lists.mask_at = ek_alloc(sizeof *x->lists.mask_at * logits);
    x->lists.seen = ek_alloc(sizeof *x->lists.seen * (size_t)c->vocab_size);
    ek_sampler_open(&x->lists.sampler, x->g->m->cpu, c->vocab_size, c->suppress, c->n_suppress);
    return EK_OK;
}

/* One row per request, each with a sequence of its own. */
static ek_err open_drafter(ek_gpu_run *t)
{
    size_t free, total;
    ek_gpu_run *x = t->drafter = ek_alloc(sizeof *x);
    ek_gpu_size_drafter(x, t);
    memcpy(x->buf.pages, t->buf.pages, sizeof x->buf.pages);
    memcpy(x->buf.page_bytes, t->buf.page_bytes, sizeof x->buf.page_bytes);
    EK_TRY(ek_cuda_room(x->g->c, &free, &total));
    const size_t need = x->buf.scratch_bytes + x->block.bytes;
    ek_log(EK_LOG_DEBUG, "device memory: a step of the drafter %.2f GB; %.2f of %.2f GB are free", gb(need), gb(free),
           gb(total));
    if (need > free) return ek_fit_fail_free((double)free, &(ek_fit_parts){.step = (double)need}, true);
    x->lists.rows = ek_alloc(sizeof *x->lists.rows * (size_t)x->z.max_rows);
    x->lists.seqs = ek_alloc(sizeof *x->lists.seqs * (size_t)x->z.max_rows);
    EK_TRY(take_step(x));
    x->recipes = ek_gpu_recipes_open(x);
    EK_TRY(open_lists(x));
    EK_TRY(pinned(x, &x->block.host, x->block.bytes));
    return pinned(x, &x->flights.result, (size_t)x->z.max_rows * EK_DRAFT_MAX * sizeof(int32_t));
}

ek_err ek_gpu_run_open(void *arg, const ek_executor_sizes *z)
{
    ek_gpu_run *x = arg;
    ek_gpu_set_sizes(x, z);
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
    ek_cuda_free(c, x->buf.scratch), ek_cuda_free(c, x->block.device);
    for (int k = 0; k < EK_PAGE_KINDS && !x->target; k++) ek_cuda_free(c, x->buf.pages[k]);
    for (int i = 0; i < x->flights.n_flights && !x->target; i++) {
        ek_cuda_free_host(c, x->flights.flight[i].block), ek_cuda_free_host(c, x->flights.flight[i].result);
        ek_cuda_event_close(c, x->flights.flight[i].ended);
    }
    ek_cuda_event_close(c, x->near.taken);
    if (x->target) ek_cuda_free_host(c, x->block.host), ek_cuda_free_host(c, x->flights.result);
    ek_cuda_free_host(c, x->logits_host), ek_cuda_free_host(c, x->temp_host);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        free(x->now.all.list[k].wave), free(x->now.tail.list[k].wave);
        free(x->lists.row[0][k]), free(x->lists.row[1][k]);
    }
    free(x->lists.tiles), free(x->lists.items), free(x->lists.want_host), free(x->lists.on_device),
        free(x->lists.mask_at), free(x->lists.shown), free(x->lists.seen), free(x->lists.rows), free(x->lists.seqs);
    ek_sampler_close(x->lists.sampler);
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
