/* Commands on token ids: generate continues them; logits writes the logits after each of them as raw numbers. The files
 * of --image and --audio fill the placeholders in --ids, each kind in the given order. Both use the engine like
 * programs over the library (evenkeel.h). */
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "capi/inside.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "media/limits.h"

/* ------------------------------------------------------------------ pictures and sounds beside --ids */

typedef struct parts {
    ek_part *part; /* owned; holds a reference to each picture and sound */
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

/* EINVAL and EUNSUPPORTED with a sentence, and with the file if one is wrong. */
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

/* ------------------------------------------------------------------ the engine, one request, its events */

typedef struct asked {
    const ek_cli *cli;
    evenkeel *engine;
    evenkeel_queue *queue;
    parts media;
} asked;

static ek_err open_ids(void *cli, ek_opened *m)
{
    return ek_cli_open_engine(m, cli, false, 1, 0);
}

static int open_asked(asked *a, const ek_cli *cli)
{
    *a = (asked){.cli = cli};
    if (capi_open(&a->engine, open_ids, (void *)(uintptr_t)cli) || evenkeel_queue_open(&a->queue, a->engine))
        return ek_cli_failed(cli);
    return read_parts(&a->media, cli, capi_opened(a->engine)) ? ek_cli_wrong(cli, "%s", ek_err_text()) : 0;
}

static void close_asked(asked *a)
{
    evenkeel_close(a->engine); /* and its queue */
    close_parts(&a->media);
}

/* ------------------------------------------------------------------ generate */

static void print(const ek_cli *cli, ek_buf *ids, evenkeel_finish finish)
{
    if (cli->json) {
        printf("{\"ids\":[%s],\"finish_reason\":\"%s\"}\n", ek_buf_text(ids),
               finish == EVENKEEL_STOP ? "stop" : "length");
        return;
    }
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] == ',') ids->data[i] = ' ';
    puts(ek_buf_text(ids));
}

/* top_p 0 means all tokens in the library, and the most likely token in the option. */
static evenkeel_request request_of(const ek_cli *cli, const ek_config *config)
{
    const ek_sampling s = ek_cli_sampling(cli, config);
    const int64_t max_tokens = cli->has.max_tokens ? cli->max_tokens : 128;
    return (evenkeel_request){.size = sizeof(evenkeel_request),
                              .tokens = cli->ids.v,
                              .n_tokens = (size_t)cli->ids.n,
                              .max_tokens = max_tokens < INT_MAX ? (int)max_tokens : INT_MAX,
                              .temperature = s.temperature,
                              .top_k = s.top_k,
                              .top_p = s.top_p > 0 ? s.top_p : FLT_MIN,
                              .min_p = s.min_p,
                              .repetition_penalty = s.repetition_penalty,
                              .seed = s.seed,
                              .ignore_eos = cli->ignore_eos};
}

static int continue_ids(const asked *a)
{
    const evenkeel_request r = request_of(a->cli, ek_model_config(capi_opened(a->engine)->model));
    if (capi_generate(a->queue, &r, a->media.part, a->media.n, NULL)) return ek_cli_wrong(a->cli, "%s", ek_err_text());
    ek_buf ids = {0};
    evenkeel_event *e;
    int status = 0;
    while ((e = evenkeel_next(a->queue, -1))) {
        if (e->kind == EVENKEEL_TOKEN) ek_buf_fmt(&ids, "%s%d", ids.len ? "," : "", e->token);
        else if (e->finish == EVENKEEL_ERROR) ek_fail(EK_EINTERNAL, "%s", e->text), status = ek_cli_failed(a->cli);
        else print(a->cli, &ids, e->finish);
        evenkeel_event_free(e);
    }
    ek_buf_fini(&ids);
    return status;
}

int ek_cmd_generate(const ek_cli *cli)
{
    if (!cli->has.ids) return ek_cli_wrong(cli, "--ids is missing: the tokens of the prompt, as in --ids 2,17,9");
    asked a;
    int status = open_asked(&a, cli);
    if (!status) status = continue_ids(&a);
    close_asked(&a);
    return status;
}

/* ------------------------------------------------------------------ logits */

typedef struct rows {
    pthread_mutex_t lock; /* guards file, bad and error */
    FILE *file;           /* NULL: it cannot be opened */
    int vocab_size;
    bool bad; /* file cannot be opened, or a write failed */
    int error;
} rows;

static void on_row(void *arg, int position, const float *logits)
{
    rows *r = arg;
    (void)position;
    pthread_mutex_lock(&r->lock);
    if (!r->bad && fwrite(logits, sizeof *logits, (size_t)r->vocab_size, r->file) != (size_t)r->vocab_size) {
        r->error = errno;
        r->bad = true;
    }
    pthread_mutex_unlock(&r->lock);
}

static bool is_bad(rows *r)
{
    pthread_mutex_lock(&r->lock);
    const bool bad = r->bad;
    pthread_mutex_unlock(&r->lock);
    return bad;
}

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

/* Runs to the end, or cancels the request when its rows are no longer wanted. */
static ek_err run_rows(const asked *a, rows *r, evenkeel_id id)
{
    ek_cli_on_stop(stop, (int)SA_RESETHAND); /* a second signal ends the program */
    ek_err err = EK_OK;
    while (evenkeel_pending(a->queue) > 0) {
        if (stopped || is_bad(r)) evenkeel_cancel(a->engine, id);
        evenkeel_event *e = evenkeel_next(a->queue, 0.05);
        if (e && e->finish == EVENKEEL_ERROR) err = ek_fail(EK_EINTERNAL, "%s", e->text);
        evenkeel_event_free(e);
    }
    if (stopped) return ek_fail(EK_ECANCELLED, "stopped; nothing was written");
    if (err) return err;
    if (!r->bad && fflush(r->file)) r->bad = true, r->error = errno;
    return r->bad ? ek_fail(EK_EIO, "%s: %s", a->cli->out, strerror(r->error)) : EK_OK;
}

/* The engine's thread waits in on_row until the file is open, so a refused request leaves an old file unchanged.
 * Nothing may take half a result for a whole one. */
static int write_rows(const asked *a, rows *r)
{
    const ek_cli *cli = a->cli;
    const int n = cli->ids.n, last = cli->has.last && cli->last < n ? (int)cli->last : n;
    evenkeel_id id;
    const evenkeel_request request = {.size = sizeof request,
                                      .tokens = cli->ids.v,
                                      .n_tokens = (size_t)n,
                                      .max_tokens = 1,
                                      .logits = on_row,
                                      .logits_arg = r,
                                      .prompt_logits_from = n == last ? -1 : n - last};
    pthread_mutex_lock(&r->lock);
    ek_err err = capi_generate(a->queue, &request, a->media.part, a->media.n, &id);
    if (err) {
        pthread_mutex_unlock(&r->lock);
        return ek_cli_wrong(cli, "%s", ek_err_text());
    }
    r->file = fopen(cli->out, "wb");
    if (!r->file) r->error = errno;
    r->bad = !r->file;
    const bool opened = r->file;
    pthread_mutex_unlock(&r->lock);
    err = run_rows(a, r, id);
    if (opened && fclose(r->file) && !err) err = ek_file_failed(cli->out);
    if (err && opened && ek_is_file(cli->out)) remove(cli->out);
    return err ? ek_cli_failed(cli) : 0;
}

int ek_cmd_logits(const ek_cli *cli)
{
    if (!cli->has.ids) return ek_cli_wrong(cli, "--ids is missing: the tokens of the prompt, as in --ids 2,17,9");
    if (!cli->has.out) return ek_cli_wrong(cli, "--out is missing: the file for the logits");
    asked a;
    rows r = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int status = open_asked(&a, cli);
    if (!status) r.vocab_size = evenkeel_vocab(a.engine);
    if (!status) status = write_rows(&a, &r);
    close_asked(&a);
    return status;
}
