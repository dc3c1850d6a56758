/* Commands on token ids: generate continues them, logits writes the logits behind each of them, as raw numbers. The
 * files of --image and --audio fill the placeholders in --ids, those of a kind in the order given. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "media/limits.h"

/* ------------------------------------------------------------------ pictures and sounds beside --ids */

typedef struct parts {
    ek_part *part; /* owned, with a reference of each */
    int n;
} parts;

static ek_err read_file(ek_media **out, const ek_cli *cli, const ek_towers_info *takes, const char *path, bool sound)
{
    const ek_picture_opts o = {.budget = ek_cli_image_tokens(cli, takes->image_tokens),
                               .resizer = strcmp(cli->resize, "pillow") == 0 ? EK_RESIZE_PILLOW : EK_RESIZE_TORCH,
                               .patching = takes->patching};
    ek_buf file = {0};
    EK_TRY(ek_file_read(&file, path, EK_MEDIA_MAX_BYTES));
    ek_err err = sound ? ek_media_read_sound(out, file.data, file.len, takes->sound_kind)
                       : ek_media_read_picture(out, EK_PART_IMAGE, file.data, file.len, &o);
    ek_buf_fini(&file);
    return err ? ek_fail_in(err, "%s", path) : EK_OK;
}

static ek_err check_takes(const ek_cli *cli, const ek_opened *m)
{
    if (!m->towers) return ek_fail(EK_EUNSUPPORTED, "this model takes text alone");
    if (cli->image.n) EK_TRY(ek_towers_takes_image(m->towers));
    if (cli->audio.n) EK_TRY(ek_towers_takes_sound(m->towers));
    return EK_OK;
}

/* EINVAL and EUNSUPPORTED in a sentence, with the file where it is about one. */
static ek_err read_parts(parts *out, const ek_cli *cli, const ek_opened *m)
{
    const int n = cli->image.n + cli->audio.n;
    if (n == 0) return EK_OK;
    EK_TRY(check_takes(cli, m));
    out->part = ek_alloc(sizeof *out->part * (size_t)n);
    for (; out->n < n; out->n++) {
        const bool sound = out->n >= cli->image.n;
        const char *path = sound ? cli->audio.v[out->n - cli->image.n] : cli->image.v[out->n];
        EK_TRY(read_file(&out->part[out->n].media, cli, ek_towers_get(m->towers), path, sound));
    }
    return ek_parts_place(out->part, n, cli->ids.v, cli->ids.n, &ek_model_config(m->model)->media);
}

static void close_parts(parts *p)
{
    for (int i = 0; i < p->n; i++) ek_media_release(p->part[i].media);
    free(p->part);
    *p = (parts){0};
}

/* ------------------------------------------------------------------ generate */

typedef struct reply {
    ek_buf ids;
    ek_finish finish;
    char text[256];
} reply;

static void on_event(void *arg, const ek_event *event)
{
    reply *r = arg;
    if (event->token >= 0) ek_buf_fmt(&r->ids, "%s%d", r->ids.len ? "," : "", event->token);
    if (event->text) snprintf(r->text, sizeof r->text, "%s", event->text);
    r->finish = event->finish;
}

static void print(const ek_cli *cli, reply *r)
{
    if (cli->json) {
        printf("{\"ids\":[%s],\"finish_reason\":\"%s\"}\n", ek_buf_text(&r->ids),
               r->finish == EK_FINISH_STOP ? "stop" : "length");
        return;
    }
    for (size_t i = 0; i < r->ids.len; i++)
        if (r->ids.data[i] == ',') r->ids.data[i] = ' ';
    puts(ek_buf_text(&r->ids));
}

static int continue_ids(const ek_cli *cli, ek_engine *e, const parts *media, reply *r)
{
    int64_t max_tokens = cli->has.max_tokens ? cli->max_tokens : 128;
    ek_request_opts o = {.tokens = cli->ids.v,
                         .n_tokens = cli->ids.n,
                         .part = media->part,
                         .n_parts = media->n,
                         .max_tokens = max_tokens < INT_MAX ? (int)max_tokens : INT_MAX,
                         .sampling = ek_cli_sampling(cli, ek_model_config(ek_engine_model(e))),
                         .ignore_eos = cli->ignore_eos,
                         .sink = on_event,
                         .arg = r};
    if (ek_engine_submit(e, &o, NULL)) return ek_cli_wrong(cli, "%s", ek_err_text());
    while (ek_engine_step(e)) continue;
    if (r->finish == EK_FINISH_ERROR) {
        ek_fail(EK_EINTERNAL, "%s", r->text);
        return ek_cli_failed(cli);
    }
    print(cli, r);
    return 0;
}

int ek_cmd_generate(const ek_cli *cli)
{
    if (!cli->has.ids) return ek_cli_wrong(cli, "--ids is missing: the tokens of the prompt, as in --ids 2,17,9");
    ek_opened m;
    if (ek_cli_open_engine(&m, cli, false, 1, 0)) return ek_cli_failed(cli);
    reply r = {0};
    parts media = {0};
    int status = read_parts(&media, cli, &m) ? ek_cli_wrong(cli, "%s", ek_err_text())
                                             : continue_ids(cli, m.engine, &media, &r);
    close_parts(&media);
    ek_buf_fini(&r.ids);
    ek_opened_close(&m);
    return status;
}

/* ------------------------------------------------------------------ logits */

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

static void on_row_event(void *arg, const ek_event *event)
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

static ek_err submit(const ek_cli *cli, ek_engine *e, const parts *media, rows *r)
{
    int n = cli->ids.n;
    int last = cli->has.last && cli->last < n ? (int)cli->last : n;
    r->vocab_size = ek_engine_vocab(e);
    ek_request_opts o = {.tokens = cli->ids.v,
                         .n_tokens = n,
                         .part = media->part,
                         .n_parts = media->n,
                         .max_tokens = 1,
                         .sampling = ek_sampling_greedy(),
                         .sink = on_row_event,
                         .arg = r,
                         .user = r,
                         .prompt_logits_from = n - last,
                         .on_prompt_logits = on_row};
    return ek_engine_submit(e, &o, NULL);
}

static ek_err run_rows(const ek_cli *cli, ek_engine *e, rows *r)
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
    ek_err err = run_rows(cli, e, r);
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
    parts media = {0};
    ek_err err = read_parts(&media, cli, &m);
    if (!err) err = submit(cli, m.engine, &media, &r);
    int status = err ? ek_cli_wrong(cli, "%s", ek_err_text()) : write_rows(cli, m.engine, &r) ? ek_cli_failed(cli) : 0;
    close_parts(&media);
    ek_opened_close(&m);
    return status;
}
