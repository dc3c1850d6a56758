/* Two servers under the same traffic, in turns: the machine's minutes are not equal. */
#include "cli/bench/compare.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/histogram.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "cli/bench/bench.h"
#include "cli/bench/traffic.h"
#include "cli/frame/open.h"
#include "cli/frame/put.h"
#include "hub/curl.h"
#include "serve/server.h"
#include "text/json/json.h"

/* Both servers at one number of clients: medians of the runs, sums of what is counted. */
typedef struct row {
    int clients, requests, failed, repeated, agree;
    int64_t prompt_tokens, tokens;
    double per_second;
    double first_p50, first_p95, gap_p50, gap_p95, gap_max;
    double engine; /* tokens per second of the same requests without HTTP; this engine's alone */
} row;

typedef struct side {
    ek_traffic_server server;
    const char *name;
    row *row;
    uint64_t *text; /* of all runs: the repeated request is the same in all of them */
    int n_text;
    bool counted;
    char error[200];
} side;

typedef struct comparison {
    const ek_cli *cli;
    ek_opened m;
    ek_server *server;
    pthread_t thread;
    bool running;
    side side[2]; /* this engine, the other */
} comparison;

/* --- the server of this process --- */

static void *serve_main(void *arg)
{
    ek_err err = ek_server_run(arg);
    if (err) ek_log(EK_LOG_ERROR, "the server ended: %s", ek_err_text());
    return NULL;
}

/* Of a prompt. */
static int words_of(const ek_cli *cli)
{
    return cli->has.prompt ? cli->prompt.v[0] : 512;
}

/* A word is a few tokens in a small vocabulary. */
static int context(const ek_cli *cli, const ek_model *m)
{
    int64_t n = 256 + 6 * (int64_t)words_of(cli) + cli->generate;
    int max = ek_model_config(m)->max_position_embeddings;
    return n < max ? (int)n : max;
}

static ek_err open_own(comparison *x)
{
    const ek_cli *cli = x->cli;
    int clients = ek_bench_max(&cli->batch);
    ek_open_opts o;
    EK_TRY(ek_cli_open_opts(&o, cli));
    o.chat = true;
    o.max_requests = o.max_queue = clients;
    EK_TRY(ek_cli_open_model(&x->m, cli, &o));
    o.ctx_tokens = context(cli, x->m.model);
    EK_TRY(ek_open_engine(&x->m, &o));
    ek_server_opts opts = {
        .http = {.host = "127.0.0.1",
                 .max_connections = 2 * clients + 8,
                 .max_body = 32 << 20,
                 .max_unsent = 16 << 20,
                 .body_timeout = 30,
                 .idle_timeout = 120},
        .limits = {.drain_timeout = 5},
        .cors_origins = "",
        .model = x->m.model,
        .chat = &x->m.chat,
        .model_dir = x->m.path,
        .model_name = "evenkeel",
    };
    EK_TRY(ek_server_open(&x->server, x->m.engine, &opts));
    if (pthread_create(&x->thread, NULL, serve_main, x->server)) return ek_fail(EK_ENOMEM, "no thread for the server");
    x->running = true;
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ek_server_port(x->server));
    return ek_traffic_open(&x->side[0].server, url, NULL);
}

static void close_all(comparison *x)
{
    if (x->running) {
        kill(getpid(), SIGTERM); /* the server takes it */
        pthread_join(x->thread, NULL);
    }
    if (x->server) ek_server_close(x->server);
    ek_opened_close(&x->m);
    for (int i = 0; i < 2; i++) {
        ek_traffic_close(&x->side[i].server);
        free(x->side[i].row), free(x->side[i].text);
    }
}

/* --- measuring --- */

enum { SPEED, FIRST, FIRST_P95, GAP, GAP_P95, ENGINE, N_TIMES };

static void take(side *s, row *w, double *time, int run, int runs, const ek_traffic_result *r)
{
    const double v[ENGINE] = {(double)r->tokens / r->seconds, r->first_p50, r->first_p95, r->gap_p50, r->gap_p95};
    for (int i = 0; i < ENGINE; i++) time[i * runs + run] = v[i];
    if (r->failed && !s->error[0]) snprintf(s->error, sizeof s->error, "%s", r->error);
    if (r->gap_max > w->gap_max) w->gap_max = r->gap_max;
    w->requests += r->requests, w->failed += r->failed;
    w->prompt_tokens += r->prompt_tokens, w->tokens += r->tokens;
    s->counted &= r->counted;
    s->text = ek_realloc(s->text, (size_t)(s->n_text + r->repeated + 1) * sizeof *s->text);
    memcpy(s->text + s->n_text, r->text, (size_t)r->repeated * sizeof *s->text);
    s->n_text += r->repeated;
    w->repeated += r->repeated;
}

static ek_err measure_row(comparison *x, int i)
{
    const int runs = (int)x->cli->runs, clients = x->cli->batch.v[i];
    double *time = ek_alloc(2 * N_TIMES * (size_t)runs * sizeof *time);
    ek_err err = EK_OK;
    for (int s = 0; s < 2; s++) x->side[s].row[i].clients = clients;
    for (int run = 0; run < runs && !err; run++) {
        const ek_traffic t = {.clients = clients,
                              .each = 2,
                              .prompt_words = words_of(x->cli),
                              .max_tokens = (int)x->cli->generate,
                              .seed = (uint32_t)(i * runs + run),
                              .max_delay = clients > 1 ? 0.1 : 0,
                              .timeout = 3600};
        ek_traffic_result r;
        for (int s = 0; s < 2 && !err; s++) {
            err = ek_traffic_run(&x->side[s].server, &t, &r);
            if (!err) take(&x->side[s], &x->side[s].row[i], time + s * N_TIMES * runs, run, runs, &r);
            free(r.text);
        }
        if (!err) err = ek_traffic_run_engine(x->m.engine, &x->m.chat, &t, &r);
        if (!err && r.failed) err = ek_fail(EK_EINTERNAL, "without HTTP: %s", r.error);
        if (!err) time[ENGINE * runs + run] = (double)r.tokens / r.seconds;
    }
    for (int s = 0; s < 2 && !err; s++) {
        row *w = &x->side[s].row[i];
        double *v = time + s * N_TIMES * runs;
        w->per_second = ek_median(v + SPEED * runs, runs);
        w->first_p50 = ek_median(v + FIRST * runs, runs), w->first_p95 = ek_median(v + FIRST_P95 * runs, runs);
        w->gap_p50 = ek_median(v + GAP * runs, runs), w->gap_p95 = ek_median(v + GAP_P95 * runs, runs);
        w->engine = s == 0 ? ek_median(v + ENGINE * runs, runs) : 0;
        w->agree = ek_traffic_agree(x->side[s].text + x->side[s].n_text - w->repeated, w->repeated);
    }
    free(time);
    return err;
}

/* One request each that is not counted: weights not yet read, kernels not yet compiled, our canary. */
static ek_err warm_up(comparison *x)
{
    ek_traffic t = {.clients = 1, .each = 1, .prompt_words = 8, .max_tokens = 8, .timeout = 3600};
    ek_err err = EK_OK;
    for (int s = 0; s < 2 && !err; s++) {
        ek_traffic_result r;
        err = ek_traffic_run(&x->side[s].server, &t, &r);
        free(r.text);
    }
    return err;
}

static ek_err measure(comparison *x)
{
    const int n = x->cli->batch.n;
    for (int s = 0; s < 2; s++) {
        x->side[s].row = ek_alloc((size_t)n * sizeof *x->side[s].row);
        x->side[s].counted = true;
    }
    ek_err err = warm_up(x);
    for (int i = 0; i < n && !err; i++) {
        ek_progress("measuring", i, n);
        err = measure_row(x, i);
    }
    ek_progress("measuring", n, n);
    return err;
}

/* --- the report --- */

static void print_side(const comparison *x, const side *s)
{
    printf("\n%s (", s->name);
    ek_cli_put(stdout, s->server.model);
    printf(")%s\n", s->counted ? "" : ": tokens are pieces of text");
    const bool own = s == &x->side[0];
    printf("%8s %9s %10s %18s %18s %10s %12s%s\n", "clients", "requests", "tokens/s", "first ms 50/95 %",
           "gap ms 50/95 %", "largest", "same text", own ? "   without HTTP" : "");
    for (int i = 0; i < x->cli->batch.n; i++) {
        const row *w = &s->row[i];
        printf("%8d %9d %10.1f %9.0f %8.0f %9.1f %8.1f %10.0f %5d of %-4d", w->clients, w->requests, w->per_second,
               1e3 * w->first_p50, 1e3 * w->first_p95, 1e3 * w->gap_p50, 1e3 * w->gap_p95, 1e3 * w->gap_max, w->agree,
               w->repeated);
        if (own) printf(" %10.1f %3.0f %%", w->engine, 100 * w->per_second / w->engine);
        if (w->failed) printf("  %d failed", w->failed);
        putchar('\n');
    }
    printf("all runs together: %d of %d replies to the repeated request have the same text\n",
           ek_traffic_agree(s->text, s->n_text), s->n_text);
    if (!s->error[0]) return;
    printf("first failure: ");
    ek_cli_put(stdout, s->error);
    putchar('\n');
}

static void explain(void)
{
    fputs(
        "\nclients           that chat at the same time, each waits for its own reply\n"
        "requests          of all runs together\n"
        "tokens/s          of all clients together\n"
        "first ms 50/95 %  until the first piece of text: the median, and what 95 of 100 stay below\n"
        "gap ms 50/95 %    between two pieces of one reply, likewise\n"
        "largest           of these gaps, in ms\n"
        "same text         replies to the repeated request that are equal, of all to it\n"
        "without HTTP      tokens/s of the same requests straight into the engine, and what of it is left over HTTP\n",
        stdout);
}

static void print_table(const comparison *x)
{
    printf("machine   %s, %d threads, %s\n", ek_cpu_model(), ek_pool_threads(x->m.pool), ek_cpu_isa(ek_cpu_detect()));
    printf("traffic   chat requests of %d words (half of them the same, the others half to one and a half times as\n"
           "          long), at most %d tokens of reply, greedy; %d runs of each server in turns, medians\n",
           words_of(x->cli), (int)x->cli->generate, (int)x->cli->runs);
    explain();
    for (int s = 0; s < 2; s++) print_side(x, &x->side[s]);
}

static void write_side(ek_buf *b, const comparison *x, const side *s)
{
    ek_buf_str(b, "{\"server\":");
    ek_json_quote(b, s->name, strlen(s->name));
    ek_buf_str(b, ",\"model\":");
    ek_json_quote(b, s->server.model, strlen(s->server.model));
    ek_buf_fmt(b, ",\"same_text\":%d,\"repeated\":%d,\"tokens_counted\":%s,\"rows\":[",
               ek_traffic_agree(s->text, s->n_text), s->n_text, s->counted ? "true" : "false");
    for (int i = 0; i < x->cli->batch.n; i++) {
        const row *w = &s->row[i];
        ek_buf_fmt(b, "%s{\"clients\":%d,\"requests\":%d,\"failed\":%d,\"tokens_per_second\":%.3f", i ? "," : "",
                   w->clients, w->requests, w->failed, w->per_second);
        ek_buf_fmt(b, ",\"prompt_tokens\":%lld,\"tokens\":%lld", (long long)w->prompt_tokens, (long long)w->tokens);
        ek_buf_fmt(b, ",\"first_seconds\":[%.6f,%.6f],\"gap_seconds\":[%.6f,%.6f,%.6f]", w->first_p50, w->first_p95,
                   w->gap_p50, w->gap_p95, w->gap_max);
        if (s == &x->side[0]) ek_buf_fmt(b, ",\"engine_tokens_per_second\":%.3f", w->engine);
        ek_buf_fmt(b, ",\"same_text\":%d,\"repeated\":%d}", w->agree, w->repeated);
    }
    ek_buf_str(b, "]}");
}

static void print_json(const comparison *x)
{
    ek_buf b = {0};
    ek_buf_str(&b, "{\"machine\":{\"cpu\":");
    ek_json_quote(&b, ek_cpu_model(), strlen(ek_cpu_model()));
    ek_buf_fmt(&b, ",\"isa\":\"%s\",\"threads\":%d},\"compare\":[", ek_cpu_isa(ek_cpu_detect()),
               ek_pool_threads(x->m.pool));
    for (int s = 0; s < 2; s++) {
        if (s) ek_buf_char(&b, ',');
        write_side(&b, x, &x->side[s]);
    }
    ek_buf_str(&b, "]}");
    puts(ek_buf_text(&b));
    ek_buf_fini(&b);
}

int ek_bench_compare(const ek_cli *cli)
{
    if (cli->has.synthetic) return ek_cli_wrong(cli, "--compare needs a tokenizer, which --synthetic has not: --model");
    comparison x = {.cli = cli, .side = {{.name = "this engine"}, {.name = cli->compare}}};
    if (ek_curl_load()) return ek_cli_failed(cli);
    /* The other first: a wrong address shall not cost the time to load a model. */
    ek_log_set(EK_LOG_NOTICE); /* one line per request would bury the table */
    ek_err err = ek_traffic_open(&x.side[1].server, cli->compare, cli->has.compare_key ? cli->compare_key : NULL);
    if (!err) err = open_own(&x);
    if (!err) err = measure(&x);
    int status = err ? ek_cli_failed(cli) : 0;
    if (!err && cli->json) print_json(&x);
    else if (!err) print_table(&x);
    for (int i = 0; i < cli->batch.n && !err; i++)
        if (x.side[0].row[i].failed) status = 1;
    close_all(&x);
    return status;
}
