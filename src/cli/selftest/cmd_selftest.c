/* selftest: the promise on the user's own model and machine. The same requests are run alone,
 * batched, cut into chunks, preempted, drafted, on other thread counts and other instruction sets; every
 * row of logits must have the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "cli/frame/open.h"
#include "cli/selftest/selftest_cache.h"
#include "cli/selftest/selftest_kv.h"
#include "cli/selftest/selftest_media.h"
#include "cli/selftest/selftest_plan.h"
#include "open/device.h"
#include "engine/executor.h"
#include "engine/trace.h"

enum { N_ASKS = 6, REPLY = 12, CTX = 512, LONG_PROMPT = 2048, LONG_REPLY = 4, DEEP_PROMPT = 4096 };
static const double DEEP_MACS = 8e12;

typedef struct selftest {
    const ek_cli *cli;
    ek_buf path;
    ek_open_opts open;
    ek_model_opts opts;
    ek_pool *pool;
    ek_model *model;
    ek_gpu *gpu;     /* the requests run there, */
    ek_ranks *ranks; /* or on several */
    bool there;
    double macs; /* of one row */
    int ctx;
    int32_t tokens[N_ASKS][CTX];
    ek_ask ask[N_ASKS];
    ek_trace want[N_ASKS];
    int passed, failed;
} selftest;

/* One way of running the requests. Zero stands for "as alone". */
typedef struct way {
    const char *name;
    int max_requests, chunk;
    bool drafted; /* by a drafter that is right and wrong at random */
    bool scarce;  /* pages for the prompts, not for the replies: the youngest start over */
    bool digests; /* for the rows of replies, so that a device's step may begin before the one before it has ended */
    int arrive;   /* steps over which arrivals are scattered */
    int max_rows; /* leave out requests beyond this many rows */
} way;

static void grow_asks(selftest *t)
{
    /* a segment of 256 keys and a bit; some whose replies need a page more than their prompts */
    static const int length[N_ASKS] = {60, 4, 310, 33, 122, 64};
    const ek_config *c = ek_model_config(t->model);
    uint64_t seed = (uint64_t)t->cli->seed;
    t->ctx = c->max_position_embeddings < CTX ? c->max_position_embeddings : CTX;
    for (int i = 0; i < N_ASKS; i++) {
        ek_ask *a = &t->ask[i];
        int n = length[i] + REPLY < t->ctx ? length[i] : t->ctx - REPLY;
        for (int k = 0; k < n; k++)
            t->tokens[i][k] = (int32_t)(ek_mix64(seed * 1000003 + (uint64_t)(i * CTX + k)) % (uint64_t)c->vocab_size);
        if (c->bos < c->vocab_size) t->tokens[i][0] = c->bos;
        *a = (ek_ask){.tokens = t->tokens[i],
                      .n_tokens = n,
                      .max_tokens = REPLY,
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

static int pick(const selftest *t, const way *w, int *which)
{
    int n = 0, rows = 0;
    for (int i = 0; i < N_ASKS; i++) {
        int more = t->ask[i].n_tokens + t->ask[i].max_tokens;
        if (w->max_rows && rows + more > w->max_rows) continue;
        rows += more;
        which[n++] = i;
    }
    if (n == 0) which[n++] = 1; /* the shortest */
    return n;
}

/* The reply that the request gives alone, up to a random token, and wrong ones behind it. */
static ek_err draft(void *arg, ek_draft *draft, int n)
{
    const selftest *t = arg;
    for (int i = 0; i < n; i++) {
        ek_draft *d = &draft[i];
        int which = 0;
        while (which < N_ASKS &&
               (d->n_tokens <= t->ask[which].n_tokens ||
                memcmp(d->tokens, t->tokens[which], sizeof *d->tokens * (size_t)t->ask[which].n_tokens)))
            which++;
        uint64_t r = ek_mix64((uint64_t)t->cli->seed + (uint64_t)(d->n_tokens * N_ASKS + which));
        int right = (int)(r % 5), vocab = ek_model_config(t->model)->vocab_size;
        for (d->n = 0; d->n < d->max; d->n++) {
            int at = which < N_ASKS ? d->n_tokens - t->ask[which].n_tokens + d->n : REPLY;
            d->token[d->n] = (int32_t)(ek_mix64(r + (uint64_t)d->n) % (uint64_t)vocab);
            if (d->n < right && at < REPLY) d->token[d->n] = t->want[which].reply[at];
        }
    }
    return EK_OK;
}

/* Pages for all prompts, but not for the replies, of full layers or, in a model of a few layers that has none, of
 * sliding ones; of each kind at least what one context takes. */
static void give_scarce_pages(const selftest *t, int n, ek_executor *on)
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

static ek_err open_engine(selftest *t, const way *w, int n, ek_engine **out)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = !t->there ? ek_executor_cpu(t->model)
                     : t->gpu  ? ek_gpu_executor(t->gpu)
                               : ek_ranks_executor(t->ranks);
    o.max_requests = w->max_requests ? w->max_requests : n;
    o.max_queue = n;
    o.chunk = w->chunk ? w->chunk : (int)t->cli->chunk;
    o.ctx_tokens = t->ctx;
    o.draft = w->drafted ? EK_DRAFT_AUTO : EK_DRAFT_OFF;
    on.draft = draft;
    on.draft_arg = t;
    on.row_cost = 0;
    if (w->scarce) give_scarce_pages(t, n, &on);
    return ek_engine_open_on(out, &on, &o);
}

/* Runs the picked requests into got. */
static ek_err run(selftest *t, const way *w, const int *which, int n, ek_trace *got, ek_engine_stats *stats)
{
    ek_engine *e;
    ek_ask ask[N_ASKS];
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

static ek_err run_alone(selftest *t)
{
    static const way alone = {.max_requests = 1};
    ek_engine_stats stats;
    for (int i = 0; i < N_ASKS; i++) EK_TRY(run(t, &alone, &i, 1, &t->want[i], &stats));
    for (int i = 0; i < N_ASKS; i++)
        if (t->want[i].finish == EK_FINISH_ERROR) return ek_fail(EK_EINTERNAL, "alone: %s", t->want[i].text);
    return EK_OK;
}

/* One row of the report. */
static void report(selftest *t, const way *w)
{
    ek_trace got[N_ASKS] = {0};
    int which[N_ASKS], n = pick(t, w, which), rows = 0;
    char where[160] = "";
    double start = ek_now();
    ek_engine_stats stats = {0};
    bool good = run(t, w, which, n, got, &stats) == EK_OK;
    if (!good) snprintf(where, sizeof where, "%s", ek_err_text());
    if (good && w->scarce && stats.preempted == 0 && t->ctx == CTX) {
        good = false;
        snprintf(where, sizeof where, "no request was interrupted: this row proved nothing");
    }
    if (good && w->drafted && stats.accepted_tokens == 0) {
        good = false;
        snprintf(where, sizeof where, "no drafted token was accepted: this row proved nothing");
    }
    for (int i = 0; i < n; i++) {
        good = good && ek_trace_same(&t->want[which[i]], &got[i], where, sizeof where);
        rows += got[i].n_prompt + got[i].n_reply;
        ek_trace_fini(&got[i]);
    }
    t->passed += good;
    t->failed += !good;
    if (good) printf("ok    %-22s %d requests, %d tokens, %.1f s", w->name, n, rows, ek_now() - start);
    if (good && w->scarce) printf(", %d interrupted", (int)stats.preempted);
    if (good && w->drafted)
        printf(", %d of %d drafted tokens accepted", (int)stats.accepted_tokens, (int)stats.drafted_tokens);
    if (good) puts("");
    else printf("FAIL  %-22s %s\n", w->name, where);
    fflush(stdout);
}

/* A row about cached prefixes. */
static void report_row(selftest *t, const char *name, bool good, const char *text, double start)
{
    t->passed += good;
    t->failed += !good;
    if (good) printf("ok    %-22s %s, %.1f s\n", name, text, ek_now() - start);
    else printf("FAIL  %-22s %s\n", name, text);
    fflush(stdout);
}

static void report_cached(selftest *t, const ek_cached_row *row)
{
    char where[160] = "", did[160] = "";
    double start = ek_now();
    bool good = row->run(t->model, t->ask, t->want, N_ASKS, t->ctx, did, where, sizeof where);
    report_row(t, row->name, good, good ? did : where, start);
}

static void report_formats(selftest *t)
{
    char where[160] = "", did[160] = "";
    double start = ek_now();
    bool good = ek_selftest_kv_formats(t->opts.cpu, did, where, sizeof where);
    report_row(t, "every --kv", good, good ? did : where, start);
}

static void report_sense(selftest *t, ek_towers *towers, ek_part_kind kind, const char *name)
{
    char where[160] = "", did[160] = "";
    const double start = ek_now();
    bool good = ek_selftest_media(t->model, towers, kind, (uint64_t)t->cli->seed, did, where, sizeof where);
    report_row(t, name, good, good ? did : where, start);
}

static void report_media(selftest *t)
{
    ek_towers *towers;
    if (t->cli->has.synthetic) return;
    ek_err err = ek_selftest_towers(&towers, t->model, ek_buf_text(&t->path),
                                    t->cli->has.mmproj ? t->cli->mmproj : NULL, &t->opts);
    if (err) {
        report_row(t, "pictures and sounds", false, ek_err_text(), ek_now());
        return;
    }
    if (ek_towers_get(towers)->image) report_sense(t, towers, EK_PART_IMAGE, "pictures");
    if (ek_towers_get(towers)->sound) report_sense(t, towers, EK_PART_SOUND, "sounds");
    ek_towers_close(towers);
}

static void close_model(selftest *t)
{
    ek_model_close(t->model);
    ek_pool_close(t->pool);
    t->model = NULL;
    t->pool = NULL;
}

static ek_err open_model(selftest *t, int threads, unsigned cpu)
{
    ek_model_opts opts = t->opts;
    EK_TRY(ek_pool_open(&t->pool, threads));
    opts.pool = t->pool;
    opts.cpu = cpu;
    ek_err err = ek_open_weights(&t->model, ek_buf_text(&t->path), &t->open, &opts);
    if (err) ek_pool_close(t->pool), t->pool = NULL;
    return err;
}

/* The same with the model opened anew. */
static void report_on(selftest *t, const char *what, int threads, unsigned cpu)
{
    way w = {.name = what};
    /* The scalar definition makes about 3e8 multiply-adds a second: a quarter of a minute of them. */
    if (!cpu) w.max_rows = 1 + (int)(5e9 / t->macs < 1e6 ? 5e9 / t->macs : 1e6);
    if (open_model(t, threads, cpu)) {
        printf("FAIL  %-22s %s\n", what, ek_err_text());
        t->failed++;
        return;
    }
    report(t, &w);
    close_model(t);
}

/* 1, 2, 3, 4, then doubling, and all of them; 0 behind the last. */
static int next_count(int n, int threads)
{
    if (n == threads) return 0;
    if (n < 4) return n + 1;
    return n * 2 < threads ? n * 2 : threads;
}

static const way ways[] = {
    {.name = "alone, again", .max_requests = 1},
    {.name = "together"},
    {.name = "late", .arrive = 20, .chunk = 100},
    {.name = "chunked, 7 tokens", .chunk = 7},
    {.name = "chunked, 64 tokens", .chunk = 64},
    {.name = "chunked, 255 tokens", .chunk = 255},
    {.name = "interrupted, resumed", .scarce = true, .chunk = CTX},
    {.name = "drafted", .drafted = true, .arrive = 5},
    {.name = "digests only", .digests = true, .arrive = 3},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* One request of n tokens on the device or not; out: every row of its reply's logits. */
static ek_err run_long(selftest *t, const way *w, const int32_t *tokens, int n, bool device, ek_trace *out)
{
    const ek_ask kept = t->ask[0];
    const int32_t which = 0;
    const int ctx = t->ctx;
    const bool there = t->there;
    ek_engine_stats stats;
    t->ask[0].tokens = tokens, t->ask[0].n_tokens = t->ask[0].prompt_logits_from = n, t->ask[0].max_tokens = LONG_REPLY;
    t->ctx = n + LONG_REPLY;
    t->there = device;
    const ek_err err = run(t, w, &which, 1, out, &stats);
    t->ask[0] = kept, t->ctx = ctx, t->there = there;
    return err;
}

/* A long prompt as `alone` has it on the CPU, and as `other`, on the device or not. */
static void report_long(selftest *t, const char *name, int n, const char *how, way alone, way other, bool device)
{
    const ek_config *c = ek_model_config(t->model);
    const int max = c->max_position_embeddings - LONG_REPLY;
    const double start = ek_now();
    ek_trace want = {0}, got = {0};
    char where[160] = "", did[64];
    if (n > max) n = max;
    int32_t *tokens = ek_alloc(sizeof *tokens * (size_t)n);
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)(ek_mix64((uint64_t)t->cli->seed + (uint64_t)i * 7919) % (uint64_t)c->vocab_size);
    ek_err err = run_long(t, &alone, tokens, n, false, &want);
    if (!err) err = run_long(t, &other, tokens, n, device, &got);
    if (err) snprintf(where, sizeof where, "%s", ek_err_text());
    else if (want.finish == EK_FINISH_ERROR) err = EK_EINTERNAL, snprintf(where, sizeof where, "%.150s", want.text);
    const bool good = !err && ek_trace_same(&want, &got, where, sizeof where);
    snprintf(did, sizeof did, "%d tokens %s", n, how);
    report_row(t, name, good, good ? did : where, start);
    ek_trace_fini(&want), ek_trace_fini(&got);
    free(tokens);
}

/* Tokens of the row about depth: no more than a model of this size computes in half a minute or so on two cores. */
static int deep_tokens(const selftest *t)
{
    const double n = DEEP_MACS / t->macs;
    return n > DEEP_PROMPT ? DEEP_PROMPT : n < LONG_PROMPT / 4 ? LONG_PROMPT / 4 : (int)n;
}

static void report_deep(selftest *t, bool device)
{
    const way alone = {.max_requests = 1}, other = {.max_requests = 1, .chunk = device ? 0 : 255};
    report_long(t, device ? "cuda: deep" : "deep", deep_tokens(t), device ? "deep" : "deep, in chunks of 255", alone,
                other, device);
}

/* A prompt in one step, whose matrices have more tiles than a device has blocks of threads. */
static void report_long_prompt(selftest *t)
{
    const way alone = {.max_requests = 1, .chunk = LONG_PROMPT};
    report_long(t, "cuda: a long prompt", LONG_PROMPT, "in a step", alone, alone, true);
}

/* The same requests on the device that --device names, compared with the CPU's rows of logits. */
static ek_err run_device(selftest *t, ek_device device)
{
    char why[512];
    EK_TRY(ek_device_open(&t->gpu, &t->ranks, &device, t->open.gpu_bytes, t->model, why, sizeof why));
    t->there = t->gpu || t->ranks;
    if (!t->there) {
        if (device.cuda) printf("      no device: %s\n", why);
        return EK_OK;
    }
    printf("%s\n", t->ranks ? ek_ranks_text(t->ranks) : ek_gpu_text(t->gpu));
    for (int i = 0; i < N_WAYS; i++) {
        way w = ways[i];
        char name[64];
        snprintf(name, sizeof name, "cuda: %s", i ? ways[i].name : "alone");
        w.name = name;
        report(t, &w);
    }
    report_long_prompt(t);
    report_deep(t, true);
    t->there = false;
    ek_gpu_close(t->gpu), ek_ranks_close(t->ranks);
    t->gpu = NULL, t->ranks = NULL;
    return EK_OK;
}

static void announce(const selftest *t, bool device_only, int threads, double alone)
{
    ek_selftest_plan p = {.n_requests = N_ASKS,
                          .n_ways = N_WAYS,
                          .n_cached = ek_n_cached_rows,
                          .threads = threads,
                          .n_deep = deep_tokens(t),
                          .device_only = device_only,
                          .macs = t->macs,
                          .alone = alone};
    for (int i = 0; i < N_ASKS; i++) p.n_tokens += t->ask[i].n_tokens + t->ask[i].max_tokens;
    for (int n = 1; n > 0; n = next_count(n, threads)) p.n_threads++;
    ek_selftest_announce(&p);
}

/* On the other instruction sets, the slowest last. */
static ek_err report_isas(selftest *t, int threads)
{
    const char *const *all = ek_cpu_isas();
    int n = 0;
    while (all[n]) n++;
    for (int i = n - 1; i >= 0; i--) {
        unsigned cpu;
        EK_TRY(ek_cpu_mask(all[i], &cpu));
        if (cpu != t->opts.cpu) report_on(t, all[i], threads, cpu);
    }
    return EK_OK;
}

static ek_err run_all(selftest *t)
{
    ek_device device;
    EK_TRY(ek_device_parse(&device, t->cli->device));
    int threads = t->cli->has.threads ? (int)t->cli->threads : ek_cpu_count();
    EK_TRY(open_model(t, threads, t->opts.cpu));
    ek_log_set(EK_LOG_WARN); /* what it needs was said; it is opened many times */
    t->macs = ek_model_macs_logit_row(t->model);
    printf("%s\n%s, %d threads, %s\n", ek_buf_text(&t->path), ek_model_numerics_id(t->model), threads,
           ek_cpu_isa(t->opts.cpu));
    fflush(stdout);
    grow_asks(t);
    double begun = ek_now();
    EK_TRY(run_alone(t));
    const bool device_only = device.cuda && !device.may_be_cpu;
    announce(t, device_only, threads, ek_now() - begun);
    for (int i = 0; i < N_WAYS && !device_only; i++) report(t, &ways[i]);
    for (int i = 0; i < ek_n_cached_rows && !device_only; i++) report_cached(t, &ek_cached_rows[i]);
    if (!device_only) report_deep(t, false);
    if (!device_only) report_formats(t);
    if (!device_only) report_media(t);
    EK_TRY(run_device(t, device));
    close_model(t);
    if (device_only) return EK_OK;
    char what[64];
    for (int n = 1; n > 0; n = next_count(n, threads)) {
        snprintf(what, sizeof what, "%d thread%s", n, n > 1 ? "s" : "");
        report_on(t, what, n, t->opts.cpu);
    }
    return report_isas(t, threads);
}

static ek_err open_opts(selftest *t)
{
    const char *dir = t->cli->synthetic;
    if (!t->cli->has.synthetic) EK_TRY(ek_cli_model_dir(t->cli, &dir));
    ek_buf_str(&t->path, dir);
    EK_TRY(ek_cli_open_opts(&t->open, t->cli));
    EK_TRY(ek_open_check(&t->open)); /* before anything is loaded */
    return ek_open_model_opts(&t->open, &t->opts);
}

int ek_cmd_selftest(const ek_cli *cli)
{
    selftest *t = calloc(1, sizeof *t);
    if (!t) return 1;
    t->cli = cli;
    ek_err err = open_opts(t);
    if (!err) err = run_all(t);
    ek_gpu_close(t->gpu), ek_ranks_close(t->ranks);
    if (t->model) close_model(t);
    int status = err ? ek_cli_failed(cli) : t->failed > 0;
    if (!err) printf("%d passed, %d failed\n", t->passed, t->failed);
    for (int i = 0; i < N_ASKS; i++) ek_trace_fini(&t->want[i]);
    ek_buf_fini(&t->path);
    free(t);
    return status;
}
