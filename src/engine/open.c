/* Opens and closes an engine: limits, pages that fit its memory, and everything that a step needs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "engine/cached.h"
#include "engine/budget.h"
#include "engine/planning.h"
#include "engine/media/encoder.h"
#include "engine/state.h"

ek_engine_opts ek_engine_defaults(void)
{
    return (ek_engine_opts){.max_requests = 16,
                            .max_queue = 256,
                            .chunk = 512,
                            .cache_bytes = INFINITY,
                            .feature_bytes = 256 << 20,
                            .draft_max = 8};
}

static ek_err check_opts(const ek_engine_opts *o, int ctx_model)
{
    if (o->max_requests < 1 || o->max_requests > 65536)
        return ek_fail(EK_EINVAL, "max_requests is %d, it must be between 1 and 65536", o->max_requests);
    if (o->max_queue < 0) return ek_fail(EK_EINVAL, "max_queue is %d, it must be 0 or more", o->max_queue);
    if (o->chunk < 1 || o->chunk > 1 << 20)
        return ek_fail(EK_EINVAL, "chunk is %d, it must be between 1 and %d", o->chunk, 1 << 20);
    if (!(o->max_gap >= 0)) return ek_fail(EK_EINVAL, "max_gap is %g seconds, it must be 0 or more", o->max_gap);
    if (o->ctx_tokens < 0 || o->ctx_tokens == 1)
        return ek_fail(EK_EINVAL, "a context of %d tokens, it needs at least 2", o->ctx_tokens);
    if (o->ctx_tokens > ctx_model)
        return ek_fail(EK_EINVAL, "a context of %d tokens, the model has %d", o->ctx_tokens, ctx_model);
    if (o->draft != EK_DRAFT_OFF && (o->draft_max < 1 || o->draft_max > EK_DRAFT_MAX))
        return ek_fail(EK_EINVAL, "draft_max is %d, it must be between 1 and %d", o->draft_max, EK_DRAFT_MAX);
    if (!(o->kv_bytes >= 0)) return ek_fail(EK_EINVAL, "%g bytes for keys and values", o->kv_bytes);
    if (!(o->cache_bytes >= 0)) return ek_fail(EK_EINVAL, "%g bytes for cached prefixes", o->cache_bytes);
    if (!(o->feature_bytes >= 0)) return ek_fail(EK_EINVAL, "%g bytes for features", o->feature_bytes);
    if (!(o->cache_audit >= 0 && o->cache_audit <= 1))
        return ek_fail(EK_EINVAL, "%g of the cache hits to audit, it must be between 0 and 1", o->cache_audit);
    return EK_OK;
}

/* Maximum prompt rows of a step: a chunk, or an image whose rows see each other. */
static int whole_rows(const ek_engine *e)
{
    int image = e->on.config->mutual && e->on.encoder.takes[EK_PART_IMAGE] ? e->on.encoder.max_tokens : 0;
    return image > e->opts.chunk ? image : e->opts.chunk;
}

/* For tests: exactly the executor's numbers of pages. If it gives none of the start kinds, those of all requests. */
static ek_err use_given_pages(ek_engine *e, ek_budget *b)
{
    const ek_kv_layout *layout = e->on.layout;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        b->n_pages[k] = layout->page_bytes[k] > 0 ? e->on.n_pages[k] : 0;
        if (k >= EK_KIND_COUNT && layout->page_bytes[k] > 0 && b->n_pages[k] == 0)
            b->n_pages[k] = e->opts.max_requests * ek_page_table_max(layout, (ek_layer_kind)k, b->ctx, whole_rows(e));
    }
    int start = b->n_pages[EK_FULL_START] < layout->n_start ? b->n_pages[EK_FULL_START] : layout->n_start;
    int64_t max = ((int64_t)start + (start == layout->n_start ? b->n_pages[EK_FULL] : 0)) * EK_PAGE_TOKENS;
    if (layout->page_bytes[EK_FULL] > 0 && max < b->ctx) b->ctx = (int)max;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        int min = ek_page_table_max(layout, (ek_layer_kind)k, b->ctx, 1);
        if (k % EK_KIND_COUNT == EK_SLIDING && b->n_pages[k] < min)
            return ek_fail(EK_ENOMEM, "%d sliding pages, one request needs %d", b->n_pages[k], min);
    }
    return EK_OK;
}

/* Plans the number of pages of each kind, and the longest context that they allow. */
static ek_err plan_pages(ek_engine *e)
{
    const ek_kv_layout *layout = e->on.layout;
    int ctx = e->opts.ctx_tokens ? e->opts.ctx_tokens : e->on.config->max_position_embeddings;
    ek_budget b = {.ctx = ctx};
    if (e->on.n_pages[EK_FULL] || e->on.n_pages[EK_SLIDING]) {
        EK_TRY(use_given_pages(e, &b));
    } else {
        double have = ek_memory_available(), limit = have > 0 ? have / 2 : INFINITY;
        if (e->on.room > 0) limit = e->on.room;
        if (e->opts.kv_bytes > 0) limit = e->opts.kv_bytes;
        bool shrink = e->opts.ctx_tokens == 0;
        EK_TRY(ek_budget_plan(&b, layout, e->opts.max_requests, ctx, whole_rows(e), limit, shrink));
    }
    if (b.ctx < 2) return ek_fail(EK_ENOMEM, "%d pages hold no context", b.n_pages[EK_FULL]);
    if (b.ctx < ctx && !e->on.n_pages[EK_FULL])
        ek_log(EK_LOG_WARN, "memory for keys and values limits a request to %d tokens, the model allows %d", b.ctx,
               ctx);
    ek_log(EK_LOG_DEBUG, "keys and values: %d full and %d sliding pages of %d tokens, %.1f MiB", b.n_pages[EK_FULL],
           b.n_pages[EK_SLIDING], EK_PAGE_TOKENS, ek_budget_bytes(layout, b.n_pages) / 1048576);
    e->sizes.max_ctx = b.ctx;
    memcpy(e->sizes.n_pages, b.n_pages, sizeof b.n_pages);
    return EK_OK;
}

static int prompt_logits(int whole, const ek_config *c)
{
    const int n = (int)(32.0 * 1048576 / sizeof(float) / c->vocab_size);
    return n > whole ? whole : n < 1 ? 1 : n;
}

/* The maximum length of drafts: with many requests at once a row costs as much as a token, so drafts gain little. */
static int max_draft_rows(const ek_engine_opts *o)
{
    const int64_t n = (int64_t)o->draft_max * o->max_requests;
    return o->draft == EK_DRAFT_OFF ? 0 : n > EK_DRAFT_MAX ? EK_DRAFT_MAX : (int)n;
}

void ek_executor_sizes_of(ek_executor_sizes *out, const ek_engine_opts *o, const ek_config *c, int image)
{
    const int whole = image > o->chunk ? image : o->chunk, prompt = prompt_logits(whole, c), drafts = max_draft_rows(o);
    out->max_rows = whole + o->max_requests + drafts;
    out->max_logits = (prompt > drafts ? prompt : drafts) + o->max_requests;
    out->max_requests = o->max_requests;
}

static void plan_step(ek_engine *e)
{
    e->rules.max_prompt_logits = prompt_logits(whole_rows(e), e->on.config);
    e->rules.drafts = e->opts.draft != EK_DRAFT_OFF;
    e->max_draft_rows = max_draft_rows(&e->opts);
    ek_executor_sizes_of(&e->sizes, &e->opts, e->on.config, whole_rows(e));
}

static void set_rules(ek_engine *e)
{
    const ek_config *c = e->on.config;
    e->rules.vocab_size = c->vocab_size;
    e->rules.hidden_size = c->hidden_size;
    e->rules.stop = c->stop;
    e->rules.n_stop = c->n_stop;
    e->rules.layout = e->on.layout;
    e->rules.ctx = e->sizes.max_ctx;
    e->rules.whole = whole_rows(e);
    e->rules.encoder = &e->on.encoder;
    e->rules.media = &c->media;
    e->rules.mutual = c->mutual;
    memcpy(e->rules.n_pages, e->sizes.n_pages, sizeof e->rules.n_pages);
}

static void open_plan(const ek_engine *e, ek_plan *p)
{
    const size_t requests = (size_t)e->opts.max_requests, logits = (size_t)e->sizes.max_logits;
    p->scheduled = ek_alloc(sizeof *p->scheduled * requests);
    p->seq = ek_alloc(sizeof *p->seq * requests);
    p->draw = ek_alloc(sizeof *p->draw * logits);
    p->row = ek_alloc(sizeof *p->row * (size_t)e->sizes.max_rows);
    p->shown = ek_alloc(sizeof *p->shown * logits);
    p->digested = ek_alloc(sizeof *p->digested * logits);
    if (e->on.begin) p->follows = ek_alloc(sizeof *p->follows * (size_t)e->sizes.max_rows);
}

static void close_plan(ek_plan *p)
{
    free(p->scheduled), free(p->seq), free(p->draw), free(p->row), free(p->shown), free(p->digested);
    free(p->follows);
}

enum { HELD_WAITING = 4096 }; /* reports that the reader has not taken yet; further ones wait */

/* Takes everything that a step needs. */
static ek_err open_step(ek_engine *e)
{
    size_t requests = (size_t)e->opts.max_requests;
    e->running = ek_alloc(sizeof *e->running * requests);
    e->slot = ek_alloc(sizeof *e->slot * requests);
    e->share = ek_alloc(sizeof *e->share * requests);
    open_plan(e, &e->plan);
    if (e->on.begin) open_plan(e, &e->ahead);
    if (e->opts.draft == EK_DRAFT_AUTO && e->on.draft) {
        e->plan.draft = ek_alloc(sizeof *e->plan.draft * requests);
        e->plan.draft_token = ek_alloc(sizeof *e->plan.draft_token * requests);
    }
    e->plan.allowed = ek_alloc(sizeof *e->plan.allowed * (size_t)ek_mask_words(e->rules.vocab_size) *
                               (requests + (size_t)e->max_draft_rows));
    e->plan.masks = ek_masks_open(e->opts.max_requests, e->on.leaves_host);
    EK_TRY(e->on.open(e->on.arg, &e->sizes));
    ek_page_memory memory = {.arg = e->on.arg, .copy = e->on.copy_page};
    if (e->on.poison) memory.changed_hands = e->on.poison_page;
    for (int k = 0; k < EK_PAGE_KINDS; k++) e->stats.pages_total[k] = e->sizes.n_pages[k];
    EK_TRY(ek_pages_open(&e->pages, e->sizes.n_pages, &memory));
    if (e->opts.cache_bytes > 0)
        ek_prefix_open(&e->prefix, e->pages, e->on.layout, e->sizes.n_pages, e->sizes.max_ctx, e->opts.cache_bytes);
    if (e->prefix && e->opts.tell_held) EK_TRY(ek_prefix_report(e->prefix, HELD_WAITING));
    ek_encode_open(e);
    ek_audit_open(e);
    return ek_shelf_open(e);
}

#define TURN_SECONDS 1.0

ek_err ek_engine_open_on(ek_engine **out, const ek_executor *x, const ek_engine_opts *opts)
{
    ek_engine *e = ek_alloc(sizeof *e);
    e->on = *x;
    e->model = x->model;
    e->opts = *opts;
    if (opts->proposer) e->remote.proposer = *opts->proposer, e->opts.proposer = &e->remote.proposer;
    e->inbox_end = &e->inbox;
    e->turn_seconds = TURN_SECONDS;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    ek_err err = check_opts(opts, x->config->max_position_embeddings);
    if (!err && opts->towers && !e->on.encoder.begin) err = ek_encoder_open(&e->on.encoder, opts->towers, x->model);
    if (!err && opts->load_towers) err = ek_encoder_load(&e->on.encoder);
    if (!err) err = plan_pages(e);
    if (!err) {
        plan_step(e);
        set_rules(e);
        err = open_step(e);
    }
    if (err) {
        ek_engine_close(e);
        return err;
    }
    *out = e;
    return EK_OK;
}

ek_err ek_engine_open(ek_engine **out, ek_model *model, const ek_engine_opts *opts)
{
    ek_executor x = ek_executor_cpu(model);
    if (opts->draft == EK_DRAFT_AUTO && opts->drafter) ek_executor_cpu_set_drafter(&x, opts->drafter);
    return ek_engine_open_on(out, &x, opts);
}

void ek_engine_close(ek_engine *e)
{
    if (!e) return;
    ek_engine_stop(e, false);
    ek_shelf_close(e);
    ek_audit_close(e);
    ek_encode_close(e);
    if (e->on.encoder.close) e->on.encoder.close(e->on.encoder.arg);
    ek_prefix_close(e->prefix); /* before the memory of its pages goes */
    e->on.close(e->on.arg);
    for (int k = 0; k < EK_KIND_COUNT; k++) free(e->load_want[k]);
    free(e->running);
    free(e->slot);
    free(e->share);
    close_plan(&e->plan);
    close_plan(&e->ahead);
    free(e->plan.draft);
    free(e->plan.draft_token);
    free(e->plan.allowed);
    ek_masks_close(e->plan.masks);
    ek_pages_close(e->pages);
    ek_fair_queue_fini(&e->queue_order);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
