/* batch: a file of requests to a file of results; --check and merge work on such results. diff: finds the first line,
 * token and log-probability that differ in two of them; exit status 0: none differs. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch/batch.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"

enum { CTX = 8192, PER_SERVER = 16, PATIENCE = 600 };

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    if (stopped) _exit(128 + number); /* written lines stay */
    stopped = 1;
}

static bool stop(void *arg)
{
    (void)arg;
    return stopped;
}

/* --- progress on standard error: on a terminal one line, drawn again; else a line every 10 seconds --- */

typedef struct screen {
    bool tty, drawn;
    double begun, shown; /* ek_now() */
} screen;

static screen open_screen(void)
{
    const double now = ek_now();
    return (screen){.tty = isatty(STDERR_FILENO), .begun = now, .shown = now};
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void clear_screen(screen *s)
{
    if (s->drawn) ek_cli_status_clear(stderr);
    s->drawn = false;
}

static void progress(void *arg, const ek_batch_progress *p)
{
    screen *s = arg;
    const double now = ek_now(), passed = now - s->begun;
    if (now - s->shown < (s->tty ? 0.1 : 10)) return;
    s->shown = now;
    const double rate = passed > 0.5 ? (double)(p->done - p->before) / passed : 0;
    const double fraction = p->lines ? (double)p->done / (double)p->lines : 1;
    char left[16] = "-:--";
    if (rate > 0) ek_cli_time_text(left, (double)(p->lines - p->done) / rate);
    ek_field field[] = {{.rank = 0}, {.rank = 1}, {.rank = 3}, {.rank = 2}, {.rank = 4}};
    snprintf(field[0].text, sizeof field[0].text, "%3d %%", (int)(fraction * 100));
    snprintf(field[1].text, sizeof field[1].text, "%zu of %zu line%s", p->done, p->lines, plural(p->lines));
    snprintf(field[2].text, sizeof field[2].text, "%.*f lines/s", rate < 10 ? 2 : 0, rate);
    snprintf(field[3].text, sizeof field[3].text, "%7s left", left);
    if (p->errors) snprintf(field[4].text, sizeof field[4].text, "%zu error%s", p->errors, plural(p->errors));
    const int n = sizeof field / sizeof *field;
    if (s->tty) {
        ek_cli_status_bar(stderr, fraction, field, n);
        s->drawn = true;
        return;
    }
    ek_buf line = {0};
    ek_cli_fit(&line, INT_MAX, field, n);
    fprintf(stderr, "%s\n", ek_buf_text(&line));
    fflush(stderr);
    ek_buf_fini(&line);
}

/* --- the engine or the server that computes --- */

typedef struct computer {
    ek_opened m; /* zeroed with servers */
    ek_batch_runner *runner;
} computer;

/* The context comes from the options, never from free memory: a reply could otherwise end elsewhere. */
static ek_err open_engine(computer *c, const ek_cli *cli, int ctx)
{
    ek_open_opts o;
    EK_TRY(ek_cli_open_opts(&o, cli));
    o.chat = true;
    o.max_requests = cli->has.max_requests ? (int)cli->max_requests : 0;
    o.max_queue = 2 * 1024 * EK_BATCH_CHOICES;
    EK_TRY(ek_cli_open_model(&c->m, cli, &o));
    const int max = ek_model_config(c->m.model)->max_position_embeddings;
    ek_err err = ek_cli_check_ctx(cli, max);
    if (err) {
        ek_opened_close(&c->m);
        return err;
    }
    o.ctx_tokens = ctx ? ctx : max < CTX ? max : CTX;
    EK_TRY(ek_open_engine(&c->m, &o));
    return ek_batch_engine_open(&c->runner, &c->m, ek_engine_max_requests(c->m.engine));
}

static ek_err open_computer(computer *c, const ek_cli *cli, int ctx)
{
    *c = (computer){0};
    if (!cli->has.url) return open_engine(c, cli, ctx);
    const ek_batch_servers_opts o = {.url = cli->url.v,
                                     .n = cli->url.n,
                                     .key = cli->has.api_key ? cli->api_key : NULL,
                                     .width = cli->has.max_requests ? (int)cli->max_requests : PER_SERVER,
                                     .ctx = ctx,
                                     .patience = PATIENCE,
                                     .stop = stop};
    return ek_batch_servers_open(&c->runner, &o);
}

static void close_computer(computer *c)
{
    if (c->runner) c->runner->close(c->runner);
    ek_opened_close(&c->m);
}

/* --- the three tasks --- */

static int failed(const ek_cli *cli, ek_err err, bool resumes)
{
    if (err == EK_ECANCELLED && stopped && resumes) ek_fail(err, "stopped; the same command goes on");
    if (err == EK_EINVAL) return ek_cli_wrong(cli, "%s", ek_err_text());
    return ek_cli_refused(cli, err);
}

static int run(const ek_cli *cli, const char *in, ek_batch_opts *o)
{
    ek_batch_input input;
    ek_batch_part *part = NULL;
    ek_batch_result r;
    computer c = {0};
    ek_err err = ek_batch_input_open(&input, in, true);
    if (!err) err = ek_batch_check_names(in, o);
    if (!err) err = ek_batch_part_open(&part, o->out);
    if (!err) err = open_computer(&c, cli, cli->has.ctx ? (int)cli->ctx : 0);
    screen s = open_screen();
    const ek_batch_watch watch = {progress, stop, &s};
    if (!err) err = ek_batch_run(&r, o, &input, part, c.runner, &watch);
    clear_screen(&s);
    int status = err ? failed(cli, err, true) : 0;
    if (!err) {
        ek_cli_put(stdout, o->out);
        printf(": %zu line%s, %zu error%s, %zu computed now in %.1f s\nfingerprint %s\nsha256 %s\n", r.lines,
               plural(r.lines), r.errors, plural(r.errors), r.computed, r.seconds, c.runner->sha256, r.sha256);
    }
    close_computer(&c);
    ek_batch_part_close(part);
    ek_batch_input_close(&input);
    return status;
}

static int check(const ek_cli *cli, const char *in)
{
    ek_batch_about about;
    ek_batch_input input = {.fd = -1};
    ek_batch_checked c = {0};
    computer by = {0};
    const ek_batch_watch watch = {NULL, stop, NULL};
    ek_err err = ek_batch_about_read(&about, cli->check);
    if (!err) err = ek_batch_input_open(&input, in ? in : about.input, true);
    if (!err) err = open_computer(&by, cli, cli->has.ctx ? (int)cli->ctx : about.ctx);
    if (!err) err = ek_batch_check(&c, cli->check, &about, &input, (int)cli->every, by.runner, &watch);
    int status = err ? failed(cli, err, false) : c.equal < c.lines;
    if (!err) {
        printf("%zu of %zu line%s computed again: %zu equal, %zu differ\n", c.lines, about.lines, plural(about.lines),
               c.equal, c.lines - c.equal);
        if (c.number) {
            printf("line %zu, ", c.number);
            ek_cli_put(stdout, ek_buf_text(&c.why));
            putchar('\n');
        }
    }
    ek_buf_fini(&c.why);
    close_computer(&by);
    ek_batch_input_close(&input);
    ek_batch_about_fini(&about);
    return status;
}

static int merge(const ek_cli *cli)
{
    ek_batch_result r;
    const ek_err err = ek_batch_merge(&r, cli->args.v[1], cli->args.v + 2, cli->args.n - 2);
    if (err) return failed(cli, err, false);
    ek_cli_put(stdout, cli->args.v[1]);
    printf(": %zu line%s of %d shard%s\nsha256 %s\n", r.lines, plural(r.lines), cli->args.n - 2,
           plural((size_t)cli->args.n - 2), r.sha256);
    return 0;
}

int ek_cmd_batch(const ek_cli *cli)
{
    const ek_names *a = &cli->args;
    ek_batch_opts o = {.errors = cli->has.errors ? cli->errors : NULL, .seed = cli->seed};
    ek_cli_on_stop(on_signal, 0);
    if (!ek_batch_shard_read(&o.shard, &o.shards, cli->shard))
        return ek_cli_wrong(cli, "--shard %.40s: K/N is needed, as in 2/5, N up to %d", cli->shard, EK_BATCH_SHARDS);
    if (a->n > 0 && !strcmp(a->v[0], "merge")) {
        if (a->n < 3) return ek_cli_wrong(cli, "files are missing; usage: evenkeel batch merge OUT PART...");
        return merge(cli);
    }
    if (cli->has.check) {
        if (a->n > 1)
            return ek_cli_wrong(cli, "%.60s is one argument too many; usage: evenkeel batch --check OUT [IN]", a->v[1]);
        return check(cli, a->n ? a->v[0] : NULL);
    }
    if (a->n != 2) return ek_cli_wrong(cli, "two files are needed; usage: evenkeel batch [OPTIONS] IN OUT");
    o.out = a->v[1];
    return run(cli, a->v[0], &o);
}

int ek_cmd_diff(const ek_cli *cli)
{
    ek_buf text = {0};
    bool same;
    const ek_err err = ek_batch_diff(&text, &same, cli->arg_before, cli->arg);
    if (!err) {
        ek_cli_put(stdout, same ? "equal" : ek_buf_text(&text));
        putchar('\n');
    }
    ek_buf_fini(&text);
    return err ? ek_cli_failed(cli) : !same;
}
