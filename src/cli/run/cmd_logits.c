/* logits: the model's logits after each of the given tokens, as raw numbers. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/frame/open.h"
#include "cli/frame/stop.h"
#include "cli/run/parts.h"

typedef struct rows {
    FILE *file;
    int vocab_size;
    bool bad; /* a write failed */
    int error;
    ek_finish finish;
    char text[256];
} rows;

static void on_row(void *user, int pos, const float *logits)
{
    rows *r = user;
    (void)pos;
    if (r->bad || fwrite(logits, sizeof *logits, (size_t)r->vocab_size, r->file) == (size_t)r->vocab_size) return;
    r->bad = true;
    r->error = errno;
}

static void on_event(void *arg, const ek_event *event)
{
    rows *r = arg;
    r->finish = event->finish;
    if (event->text) snprintf(r->text, sizeof r->text, "%s", event->text);
}

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static ek_err submit(const ek_cli *cli, ek_engine *e, const ek_cli_parts *parts, rows *r)
{
    int n = cli->ids.n;
    int last = cli->has.last && cli->last < n ? (int)cli->last : n;
    r->vocab_size = ek_engine_vocab(e);
    ek_request_opts o = {.tokens = cli->ids.v,
                         .n_tokens = n,
                         .part = parts->part,
                         .n_parts = parts->n,
                         .max_tokens = 1,
                         .sampling = ek_sampling_greedy(),
                         .sink = on_event,
                         .arg = r,
                         .user = r,
                         .prompt_logits_from = n - last,
                         .on_prompt_logits = on_row};
    return ek_engine_submit(e, &o, NULL);
}

static ek_err run(const ek_cli *cli, ek_engine *e, rows *r)
{
    ek_cli_on_stop(stop, (int)SA_RESETHAND); /* a second one ends the program */
    while (!stopped && !r->bad && ek_engine_step(e)) continue;
    if (stopped) return ek_fail(EK_ECANCELLED, "stopped; nothing was written");
    if (r->finish == EK_FINISH_ERROR) return ek_fail(EK_EINTERNAL, "%s", r->text);
    if (!r->bad && fflush(r->file)) r->bad = true, r->error = errno;
    return r->bad ? ek_fail(EK_EIO, "%s: %s", cli->out, strerror(r->error)) : EK_OK;
}

/* Half a result must not be taken for one. */
static ek_err write_rows(const ek_cli *cli, ek_engine *e, rows *r)
{
    r->file = fopen(cli->out, "wb");
    if (!r->file) return ek_fail(EK_EIO, "%s: %s", cli->out, strerror(errno));
    ek_err err = run(cli, e, r);
    if (fclose(r->file) && !err) err = ek_fail(EK_EIO, "%s: %s", cli->out, strerror(errno));
    if (err && ek_is_file(cli->out)) remove(cli->out);
    return err;
}

int ek_cmd_logits(const ek_cli *cli)
{
    if (!cli->has.ids) return ek_cli_wrong(cli, "--ids is missing: the tokens of the prompt, as in --ids 2,17,9");
    if (!cli->has.out) return ek_cli_wrong(cli, "--out is missing: the file for the logits");
    ek_opened m;
    if (ek_cli_open_engine(&m, cli, false, 1, 0)) return ek_cli_failed(cli);
    rows r = {0};
    ek_cli_parts parts = {0};
    ek_err err = ek_cli_parts_read(&parts, cli, &m);
    if (!err) err = submit(cli, m.engine, &parts, &r);
    int status = err ? ek_cli_wrong(cli, "%s", ek_err_text()) : write_rows(cli, m.engine, &r) ? ek_cli_failed(cli) : 0;
    ek_cli_parts_fini(&parts);
    ek_opened_close(&m);
    return status;
}
