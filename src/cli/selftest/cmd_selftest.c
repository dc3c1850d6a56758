/* selftest: the promise on the user's own model and machine. The same requests run alone, batched, in chunks,
 * preempted, drafted, with other numbers of threads and on other instruction sets; every row of logits must have the
 * same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "cli/frame/open.h"
#include "cli/selftest/selftest.h"
#include "engine/budget.h"
#include "open/device.h"
#include "engine/trace.h"

enum { LONG_PROMPT = 2048, DEEP_PROMPT = 4096, LONG_SECONDS = 40, MIN_PROMPT = 256, SHORT_SECONDS = 20, FEW_ROWS = 64 };
static const double DEEP_MACS = 8e12;

/* One row of the report. */
static void report(ek_selftest *t, const ek_way *w)
{
    ek_trace got[EK_SELFTEST_ASKS] = {0};
    int which[EK_SELFTEST_ASKS], n = ek_selftest_pick(t, w, which), rows = 0;
    char where[160] = "";
    double start = ek_now();
    ek_engine_stats stats = {0};
    bool good = ek_selftest_run(t, w, which, n, got, &stats) == EK_OK;
    if (!good) snprintf(where, sizeof where, "%s", ek_err_text());
    if (good && w->scarce && stats.preempted == 0 && t->ctx == EK_SELFTEST_CTX) {
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
    if (t->on_device && t->device_rate == 0) t->device_rate = rows / (ek_now() - start);
    if (good) printf("ok    %-22s %d requests, %d tokens, %.1f s", w->name, n, rows, ek_now() - start);
    if (good && w->scarce) printf(", %d interrupted", (int)stats.preempted);
    if (good && w->drafted)
        printf(", %d of %d drafted tokens accepted", (int)stats.accepted_tokens, (int)stats.drafted_tokens);
    if (good) puts("");
    else printf("FAIL  %-22s %s\n", w->name, where);
    fflush(stdout);
}

/* A row about cached prefixes. */
static void report_row(ek_selftest *t, const char *name, bool good, const char *text, double start)
{
    t->passed += good;
    t->failed += !good;
    if (good) printf("ok    %-22s %s, %.1f s\n", name, text, ek_now() - start);
    else printf("FAIL  %-22s %s\n", name, text);
    fflush(stdout);
}

static void report_cached(ek_selftest *t, const ek_cached_row *row)
{
    char where[160] = "", did[160] = "";
    double start = ek_now();
    bool good = row->run(t->model, t->ask, t->want, EK_SELFTEST_ASKS, t->ctx, did, where, sizeof where);
    report_row(t, row->name, good, good ? did : where, start);
}

static void report_formats(ek_selftest *t)
{
    char where[160] = "", did[160] = "";
    double start = ek_now();
    bool good = ek_selftest_kv_formats(t->opts.cpu, did, where, sizeof where);
    report_row(t, "every --kv", good, good ? did : where, start);
}

static void report_sense(ek_selftest *t, ek_towers *towers, ek_part_kind kind, const char *name)
{
    char where[160] = "", did[160] = "";
    const double start = ek_now();
    bool good = ek_selftest_media(t->model, towers, kind, (uint64_t)t->cli->seed, did, where, sizeof where);
    report_row(t, name, good, good ? did : where, start);
}

static void report_media(ek_selftest *t)
{
    ek_towers *towers;
    ek_model_opts opts = t->opts;
    if (t->cli->has.synthetic) return;
    opts.pool = t->pool;
    const ek_towers_opts o = ek_open_towers_opts(&t->open, &opts);
    if (ek_towers_open(&towers, ek_buf_text(&t->path), &o)) {
        report_row(t, "pictures and sounds", false, ek_err_text(), ek_now());
        return;
    }
    if (ek_towers_get(towers)->image) report_sense(t, towers, EK_PART_IMAGE, "pictures");
    if (ek_towers_get(towers)->sound) report_sense(t, towers, EK_PART_SOUND, "sounds");
    ek_towers_close(towers);
}

/* The same with the model opened anew. */
static void report_on(ek_selftest *t, const char *what, int threads, unsigned cpu)
{
    ek_way w = {.name = what};
    /* The scalar definition makes about 3e8 multiply-adds a second, so this takes a quarter of a minute. */
    if (!cpu) w.max_rows = 1 + (int)(5e9 / t->macs < 1e6 ? 5e9 / t->macs : 1e6);
    if (ek_selftest_open_model(t, threads, cpu)) {
        printf("FAIL  %-22s %s\n", what, ek_err_text());
        t->failed++;
        return;
    }
    report(t, &w);
    ek_selftest_close_model(t);
}

/* The numbers of threads to try: 1, 2, 3, 4, then doubled, and all of them; 0 ends the list. */
static int next_count(int n, int threads)
{
    if (n == threads) return 0;
    if (n < 4) return n + 1;
    return n * 2 < threads ? n * 2 : threads;
}

static const ek_way ways[] = {
    {.name = "alone, again", .max_requests = 1},
    {.name = "together"},
    {.name = "late", .arrive = 20, .chunk = 100},
    {.name = "chunked, 7 tokens", .chunk = 7},
    {.name = "chunked, 64 tokens", .chunk = 64},
    {.name = "chunked, 255 tokens", .chunk = 255},
    {.name = "interrupted, resumed", .scarce = true, .chunk = EK_SELFTEST_CTX},
    {.name = "drafted", .drafted = true, .arrive = 5},
    {.name = "digests only", .digests = true, .arrive = 3},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* A long prompt, run in two ways: `alone` on the CPU, with the trace in want (made here if it is empty), and `other`,
 * on the device or not. */
static void report_long(ek_selftest *t, const char *name, int n, const char *how, ek_trace *want, ek_way alone,
                        ek_way other, bool device)
{
    const ek_config *c = ek_model_config(t->model);
    const int max = c->max_position_embeddings - EK_SELFTEST_LONG_REPLY;
    const double start = ek_now();
    ek_trace got = {0};
    ek_err err = EK_OK;
    char where[160] = "", did[64];
    if (n > max) n = max;
    int32_t *tokens = ek_alloc(sizeof *tokens * (size_t)n);
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)(ek_mix64((uint64_t)t->cli->seed + (uint64_t)i * 7919) % (uint64_t)c->vocab_size);
    if (want->n_reply == 0) err = ek_selftest_run_long(t, &alone, tokens, n, false, want);
    if (!err) err = ek_selftest_run_long(t, &other, tokens, n, device, &got);
    if (err) snprintf(where, sizeof where, "%s", ek_err_text());
    else if (want->finish == EK_FINISH_ERROR) err = EK_EINTERNAL, snprintf(where, sizeof where, "%.150s", want->text);
    const bool good = !err && ek_trace_same(want, &got, where, sizeof where);
    snprintf(did, sizeof did, "%d tokens %s", n, how);
    report_row(t, name, good, good ? did : where, start);
    ek_trace_fini(&got);
    free(tokens);
}

/* Tokens of the row about depth. Two cores compute them in about half a minute with a model of this size. */
static int deep_tokens(const ek_selftest *t)
{
    const double n = DEEP_MACS / t->macs;
    return n > DEEP_PROMPT ? DEEP_PROMPT : n < LONG_PROMPT / 4 ? LONG_PROMPT / 4 : (int)n;
}

/* "cuda: deep", "vulkan: deep": the name of a row, for t's device. */
static const char *name_of(const ek_selftest *t, const char *what, char out[64])
{
    const ek_gpu *g = t->ranks ? ek_ranks_drafting(t->ranks) : t->gpu;
    snprintf(out, 64, "%s: %s", ek_cuda_maker(g->c), what);
    return out;
}

/* At most the tokens that the device computes in LONG_SECONDS at the rate of its first row. A Vulkan driver on a CPU
 * would otherwise take half an hour. */
static int device_tokens(const ek_selftest *t, int n)
{
    const double may = t->device_rate * LONG_SECONDS;
    return may >= n ? n : may < MIN_PROMPT ? MIN_PROMPT : (int)may;
}

static void report_deep(ek_selftest *t, bool device)
{
    char name[64];
    ek_trace own = {0}; /* for another number of tokens than in the CPU's row */
    const int all = deep_tokens(t), n = device ? device_tokens(t, all) : all;
    const ek_way alone = {.max_requests = 1}, other = {.max_requests = 1, .chunk = device ? 0 : 255};
    report_long(t, device ? name_of(t, "deep", name) : "deep", n, device ? "deep" : "deep, in chunks of 255",
                n == all ? &t->deep : &own, alone, other, device);
    ek_trace_fini(&own);
}

/* A prompt in one step. Its matrices have more tiles than a device has blocks of threads. */
static void report_long_prompt(ek_selftest *t)
{
    const int n = device_tokens(t, LONG_PROMPT);
    const ek_way alone = {.max_requests = 1, .chunk = n};
    ek_trace want = {0};
    char name[64];
    report_long(t, name_of(t, "a long prompt", name), n, "in a step", &want, alone, alone, true);
    ek_trace_fini(&want);
}

/* The memory beside the model that the rows need: requests together, drafts, and long prompts. */
static ek_fit_beside beside_of(const ek_selftest *t)
{
    ek_engine_opts e = ek_engine_defaults();
    const ek_config *c = ek_model_config(t->model);
    const int ctx = DEEP_PROMPT + EK_SELFTEST_LONG_REPLY, max = c->max_position_embeddings;
    ek_fit_beside out = {.step = {.max_ctx = ctx < max ? ctx : max}};
    e.max_requests = EK_SELFTEST_ASKS, e.draft = EK_DRAFT_AUTO;
    e.chunk = ek_cli_chunk(t->cli) > LONG_PROMPT ? ek_cli_chunk(t->cli) : LONG_PROMPT;
    ek_executor_sizes_of(&out.step, &e, c, 0);
    /* for the interrupted request, the pages of one kind are those of a context for each request */
    out.kv_bytes = fmax(ek_budget_request_bytes(ek_model_kv_layout(t->model), out.step.max_ctx),
                        e.max_requests * ek_budget_request_bytes(ek_model_kv_layout(t->model), EK_SELFTEST_CTX));
    return out;
}

/* The same requests on the device of --device, compared with the CPU's rows of logits. */
static ek_err run_device(ek_selftest *t, ek_device device)
{
    ek_err why;
    const ek_fit_beside beside = beside_of(t);
    EK_TRY(ek_device_open(&t->gpu, &t->ranks, &device, t->open.gpu_bytes, &beside, t->model, &why));
    t->on_device = t->gpu || t->ranks;
    if (!t->on_device) {
        if (device.gpu) printf("      no device: %s\n", ek_err_text());
        return EK_OK;
    }
    printf("%s\n", t->ranks ? ek_ranks_text(t->ranks) : ek_gpu_text(t->gpu));
    for (int i = 0; i < N_WAYS; i++) {
        ek_way w = ways[i];
        char name[64];
        w.name = name_of(t, i ? ways[i].name : "alone", name);
        /* many steps of few rows: a slow device computes only some of the requests */
        if (w.chunk && w.chunk < FEW_ROWS) w.max_rows = (int)fmax(90, fmin(1e6, t->device_rate * SHORT_SECONDS));
        report(t, &w);
    }
    report_long_prompt(t);
    report_deep(t, true);
    t->on_device = false;
    ek_gpu_close(t->gpu), ek_ranks_close(t->ranks);
    t->gpu = NULL, t->ranks = NULL;
    return EK_OK;
}

static void announce(const ek_selftest *t, bool device_only, int threads, double alone)
{
    ek_selftest_plan p = {.n_requests = EK_SELFTEST_ASKS,
                          .n_ways = N_WAYS,
                          .n_cached = ek_n_cached_rows,
                          .threads = threads,
                          .n_deep = deep_tokens(t),
                          .device_only = device_only,
                          .macs = t->macs,
                          .alone = alone};
    for (int i = 0; i < EK_SELFTEST_ASKS; i++) p.n_tokens += t->ask[i].n_tokens + t->ask[i].max_tokens;
    for (int n = 1; n > 0; n = next_count(n, threads)) p.n_threads++;
    ek_selftest_announce(&p);
}

/* The same on the other instruction sets, the slowest last. */
static ek_err report_isas(ek_selftest *t, int threads)
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

static ek_err run_all(ek_selftest *t)
{
    ek_device device;
    EK_TRY(ek_device_parse(&device, t->cli->device));
    EK_TRY(ek_device_set_split(&device, t->cli->split));
    EK_TRY(ek_device_set_tune(&device, t->cli->tune));
    int threads = t->cli->has.threads ? (int)t->cli->threads : ek_cpu_count();
    EK_TRY(ek_selftest_open_model(t, threads, t->opts.cpu));
    ek_log_set(EK_LOG_NOTICE); /* the model is opened many times, and its messages were printed the first time */
    t->macs = ek_model_macs_logit_row(t->model);
    printf("%s\n%s, %d threads, %s\n", ek_buf_text(&t->path), ek_model_numerics_id(t->model), threads,
           ek_cpu_isa(t->opts.cpu));
    fflush(stdout);
    ek_selftest_grow(t);
    double begun = ek_now();
    EK_TRY(ek_selftest_alone(t));
    const bool device_only = device.gpu && !device.may_be_cpu;
    announce(t, device_only, threads, ek_now() - begun);
    for (int i = 0; i < N_WAYS && !device_only; i++) report(t, &ways[i]);
    for (int i = 0; i < ek_n_cached_rows && !device_only; i++) report_cached(t, &ek_cached_rows[i]);
    if (!device_only) report_deep(t, false);
    if (!device_only) report_formats(t);
    if (!device_only) report_media(t);
    EK_TRY(run_device(t, device));
    ek_selftest_close_model(t);
    if (device_only) return EK_OK;
    char what[64];
    for (int n = 1; n > 0; n = next_count(n, threads)) {
        snprintf(what, sizeof what, "%d thread%s", n, n > 1 ? "s" : "");
        report_on(t, what, n, t->opts.cpu);
    }
    return report_isas(t, threads);
}

static ek_err open_opts(ek_selftest *t)
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
    ek_selftest *t = calloc(1, sizeof *t);
    if (!t) return 1;
    t->cli = cli;
    ek_err err = open_opts(t);
    if (!err) err = run_all(t);
    ek_gpu_close(t->gpu), ek_ranks_close(t->ranks);
    if (t->model) ek_selftest_close_model(t);
    int status = err ? ek_cli_failed(cli) : t->failed > 0;
    if (!err) printf("%d passed, %d failed\n", t->passed, t->failed);
    for (int i = 0; i < EK_SELFTEST_ASKS; i++) ek_trace_fini(&t->want[i]);
    ek_trace_fini(&t->deep);
    ek_buf_fini(&t->path);
    free(t);
    return status;
}
