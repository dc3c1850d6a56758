#include "cli/selftest/selftest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"
#include "base/machine/cpu.h"
#include "engine/executor.h"

void ek_selftest_grow(ek_selftest *t)
{
    /* lengths around a segment of 256 keys; the replies of some requests need a page more than their prompts */
    static const int length[EK_SELFTEST_ASKS] = {60, 4, 310, 33, 122, 64};
    const ek_config *c = ek_model_config(t->model);
    uint64_t seed = (uint64_t)t->cli->seed;
    t->ctx = c->max_position_embeddings < EK_SELFTEST_CTX ? c->max_position_embeddings : EK_SELFTEST_CTX;
    for (int i = 0; i < EK_SELFTEST_ASKS; i++) {
        ek_ask *a = &t->ask[i];
        int n = length[i] + EK_SELFTEST_REPLY < t->ctx ? length[i] : t->ctx - EK_SELFTEST_REPLY;
        for (int k = 0; k < n; k++)
            t->tokens[i][k] = (int32_t)(ek_mix64(seed * 1000003 + (uint64_t)(i * EK_SELFTEST_CTX + k)) %
                                        (uint64_t)c->vocab_size);
        if (c->bos < c->vocab_size) t->tokens[i][0] = c->bos;
        *a = (ek_ask){.tokens = t->tokens[i],
                      .n_tokens = n,
                      .max_tokens = EK_SELFTEST_REPLY,
                      .prompt_logits_from = i % 3 ? n : 0,
                      .ignore_eos = true,
                      .sampling = ek_sampling_greedy()};
        if (i % 2 == 0) continue;
        a->sampling.temperature = 1;
        a->sampling.top_k = 64;
        a->sampling.top_p = 0.95f;
        a->sampling.seed = seed + (uint64_t)i;
    }
}

int ek_selftest_pick(const ek_selftest *t, const ek_way *w, int *which)
{
    int n = 0, rows = 0;
    for (int i = 0; i < EK_SELFTEST_ASKS; i++) {
        int more = t->ask[i].n_tokens + t->ask[i].max_tokens;
        if (w->max_rows && rows + more > w->max_rows) continue;
        rows += more;
        which[n++] = i;
    }
    if (n == 0) which[n++] = 1; /* the shortest */
    return n;
}

/* Drafts the reply that the request gives alone, up to a random token, and wrong tokens behind it. */
static ek_err draft(void *arg, ek_draft *draft, int n)
{
    const ek_selftest *t = arg;
    for (int i = 0; i < n; i++) {
        ek_draft *d = &draft[i];
        int which = 0;
        while (which < EK_SELFTEST_ASKS &&
               (d->n_tokens <= t->ask[which].n_tokens ||
                memcmp(d->tokens, t->tokens[which], sizeof *d->tokens * (size_t)t->ask[which].n_tokens)))
            which++;
        uint64_t r = ek_mix64((uint64_t)t->cli->seed + (uint64_t)(d->n_tokens * EK_SELFTEST_ASKS + which));
        int right = (int)(r % 5), vocab = ek_model_config(t->model)->vocab_size;
        for (d->n = 0; d->n < d->max; d->n++) {
            int at = which < EK_SELFTEST_ASKS ? d->n_tokens - t->ask[which].n_tokens + d->n : EK_SELFTEST_REPLY;
            d->token[d->n] = (int32_t)(ek_mix64(r + (uint64_t)d->n) % (uint64_t)vocab);
            if (d->n < right && at < EK_SELFTEST_REPLY) d->token[d->n] = t->want[which].reply[at];
        }
    }
    return EK_OK;
}

/* Pages for all prompts, but not for all replies: pages of full layers, or of sliding layers in a small model that has
 * no full ones. Each kind gets at least the pages of one context. */
static void give_scarce_pages(const ek_selftest *t, int n, ek_executor *on)
{
    const ek_layer_kind scarce = on->layout->page_bytes[EK_FULL] ? EK_FULL : EK_SLIDING;
    int whole = t->ctx / EK_PAGE_TOKENS + 1, start = on->layout->n_start;
    if (scarce == EK_FULL) on->n_pages[EK_SLIDING] = n * whole;
    for (int i = 0; i < n; i++) {
        int pages = (t->ask[i].n_tokens + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS, first = pages < start ? pages : start;
        on->n_pages[ek_kv_start_kind(scarce)] += first;
        on->n_pages[scarce] += pages - first;
    }
    if (on->n_pages[scarce] < whole - start) on->n_pages[scarce] = whole - start;
}

static ek_err open_engine(ek_selftest *t, const ek_way *w, int n, ek_engine **out)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = !t->on_device ? ek_executor_cpu(t->model)
                     : t->gpu      ? ek_gpu_executor(t->gpu)
                                   : ek_ranks_executor(t->ranks);
    o.max_requests = w->max_requests ? w->max_requests : n;
    o.max_queue = n;
    o.chunk = w->chunk ? w->chunk : ek_cli_chunk(t->cli);
    o.ctx_tokens = t->ctx;
    o.draft = w->drafted ? EK_DRAFT_AUTO : EK_DRAFT_OFF;
    on.draft = draft;
    on.draft_arg = t;
    on.row_cost = 0;
    if (w->scarce) give_scarce_pages(t, n, &on);
    return ek_engine_open_on(out, &on, &o);
}

ek_err ek_selftest_run(ek_selftest *t, const ek_way *w, const int *which, int n, ek_trace *got, ek_engine_stats *stats)
{
    ek_engine *e;
    ek_ask ask[EK_SELFTEST_ASKS];
    for (int i = 0; i < n; i++) {
        ask[i] = t->ask[which[i]];
        ask[i].digests = w->digests;
        if (w->arrive) ask[i].arrive = (int)(ek_mix64((uint64_t)t->cli->seed + (uint64_t)i) % (uint64_t)w->arrive);
    }
    EK_TRY(open_engine(t, w, n, &e));
    ek_err err = ek_trace_run(e, ask, n, got);
    ek_engine_stats_read(e, stats);
    ek_engine_close(e);
    return err;
}

ek_err ek_selftest_alone(ek_selftest *t)
{
    static const ek_way alone = {.max_requests = 1};
    ek_engine_stats stats;
    for (int i = 0; i < EK_SELFTEST_ASKS; i++) EK_TRY(ek_selftest_run(t, &alone, &i, 1, &t->want[i], &stats));
    for (int i = 0; i < EK_SELFTEST_ASKS; i++)
        if (t->want[i].finish == EK_FINISH_ERROR) return ek_fail(EK_EINTERNAL, "alone: %s", t->want[i].text);
    return EK_OK;
}

void ek_selftest_close_model(ek_selftest *t)
{
    ek_model_close(t->model);
    ek_pool_close(t->pool);
    t->model = NULL;
    t->pool = NULL;
}

ek_err ek_selftest_open_model(ek_selftest *t, int threads, unsigned cpu)
{
    ek_model_opts opts = t->opts;
    EK_TRY(ek_pool_open(&t->pool, threads));
    opts.pool = t->pool;
    opts.cpu = cpu;
    ek_err err = ek_open_weights(&t->model, ek_buf_text(&t->path), &t->open, &opts);
    if (err) ek_pool_close(t->pool), t->pool = NULL;
    return err;
}

ek_err ek_selftest_run_long(ek_selftest *t, const ek_way *w, const int32_t *tokens, int n, bool device, ek_trace *out)
{
    const ek_ask kept = t->ask[0];
    const int32_t which = 0;
    const int ctx = t->ctx;
    const bool on_device = t->on_device;
    ek_engine_stats stats;
    t->ask[0].tokens = tokens, t->ask[0].n_tokens = t->ask[0].prompt_logits_from = n,
    t->ask[0].max_tokens = EK_SELFTEST_LONG_REPLY;
    t->ctx = n + EK_SELFTEST_LONG_REPLY;
    t->on_device = device;
    const ek_err err = ek_selftest_run(t, w, &which, 1, out, &stats);
    t->ask[0] = kept, t->ctx = ctx, t->on_device = on_device;
    return err;
}

/* The multiply-adds a second of the scalar definition, about, and the limit to which its row is cut. */
static const double SCALAR_RATE = 3e8, SCALAR_LIMIT = 5e9;
enum { FORMATS = 6 }; /* seconds for the row of formats, which needs no model */

/* The words promise no more than is known. */
static void about_text(char out[32], double seconds)
{
    if (seconds < 90) snprintf(out, 32, "%.0f s", 5 * ceil(seconds / 5));
    else snprintf(out, 32, "%.0f minutes", ceil(seconds / 60));
}

void ek_selftest_announce(const ek_selftest_plan *p)
{
    char time[32];
    int n_isas = 0;
    while (ek_cpu_isas()[n_isas]) n_isas++;
    double scalar = p->n_tokens * p->macs < SCALAR_LIMIT ? p->n_tokens * p->macs : SCALAR_LIMIT;
    double runs = p->n_ways + 2 * p->n_cached + 2 * p->n_threads + p->threads + 2 * n_isas;
    const double deep = 2 * p->alone * p->n_deep / p->n_tokens;
    about_text(time, p->device_only ? 10 * p->alone : runs * p->alone + deep + FORMATS + scalar / SCALAR_RATE);
    printf("%d requests run alone, and then in other ways; each row of logits must have the same bits.\n",
           p->n_requests);
    if (p->device_only) printf("%d ways on the device, about %s.\n\n", p->n_ways + 2, time);
    else
        printf(
            "%d rows: together, late, in chunks, interrupted, drafted, cached, deep, in every --kv, on 1 to %d threads,\n"
            "on %d instruction sets, the plain C definition (scalar) last; about %s.\n\n",
            p->n_ways + p->n_cached + 1 + p->n_threads + n_isas, p->threads, n_isas, time);
    fflush(stdout);
}
