#include "cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/histogram.h"
#include "base/machine/cpu.h"
#include "base/machine/peak.h"
#include "cli/frame/open.h"
#include "cli/media/media.h"
#include "media/limits.h"
#include "media/picture.h"

typedef struct bed {
    ek_cli_towers t;
    bool sound;
} bed;

/* Medians. */
typedef struct row {
    int size, tokens; /* size: the tokens of the budget, or the seconds of the sound */
    double macs;
    double seconds, limit, fraction; /* fraction: of the limit in float multiply-adds; a device has no limit here */
    double first, again;             /* seconds until the first token, and the same the second time; 0: not measured */
} row;

/* --- the inputs --- */

/* A picture of 3 to 2 that nearly fills the budget. Each picture differs from the others. */
static ek_err make_picture(ek_media **m, const ek_towers_info *info, int budget)
{
    static unsigned number;
    const ek_picture_opts o = {.budget = budget, .patching = info->patching};
    ek_image image;
    number++;
    EK_TRY(ek_image_make(&image, 960, 640));
    for (size_t i = 0; i < ek_image_bytes(&image); i++) image.rgb[i] = (uint8_t)((i + number) * i >> 7);
    const ek_err err = ek_media_make_picture(m, EK_PART_IMAGE, &image, &o);
    ek_image_free(&image);
    return err;
}

static ek_err make_sound(ek_media **m, const ek_towers_info *info, int seconds)
{
    static unsigned number;
    const int n = seconds * EK_SOUND_RATE;
    float *v = ek_alloc(sizeof *v * (size_t)n);
    number++;
    for (int i = 0; i < n; i++) v[i] = (float)((unsigned)i * ((unsigned)i + number) >> 5 & 1023) / 1024 - 0.5f;
    const ek_err err = ek_media_make_sound(m, v, n, info->sound_kind);
    free(v);
    return err;
}

static ek_err make(ek_media **m, const ek_towers *t, bool sound, int size)
{
    return sound ? make_sound(m, ek_towers_get(t), size) : make_picture(m, ek_towers_get(t), size);
}

/* --- a tower without the engine --- */

static double float_limit(const bed *b)
{
    const double start = ek_now(), macs = ek_peak_f32(b->t.pool, b->t.cpu);
    return macs / (ek_now() - start);
}

/* Seconds of one encoding. *limit: the mean of the limits measured before and after it. */
static ek_err encode_here(const bed *b, const ek_media *m, double *seconds, double *limit)
{
    ek_tower_work *w;
    bool done = false;
    EK_TRY(b->sound ? ek_tower_begin_sound(&w, b->t.towers, &m->sound)
                    : ek_tower_begin_image(&w, b->t.towers, &m->picture));
    const double before = float_limit(b), start = ek_now();
    while (!done) ek_tower_advance(w, 1e10, &done);
    *seconds = ek_now() - start;
    *limit = (before + float_limit(b)) / 2;
    ek_tower_free(w);
    return EK_OK;
}

/* From pixels or samples in host memory to rows in host memory. */
static ek_err encode_there(const bed *b, const ek_media *m, double *seconds)
{
    float *rows = ek_alloc(sizeof *rows * (size_t)m->tokens * (size_t)ek_towers_get(b->t.towers)->hidden);
    const double start = ek_now();
    const ek_err err = ek_cli_encode_there(&b->t, m, rows);
    *seconds = ek_now() - start;
    free(rows);
    return err;
}

static ek_err measure_runs(const bed *b, const ek_media *m, int n, row *r)
{
    double *seconds = ek_alloc(3 * sizeof *seconds * (size_t)n), *limit = seconds + n, *fraction = limit + n, unused;
    ek_err err = b->t.gpu ? encode_there(b, m, &unused) : EK_OK; /* the first run looks for kernels */
    for (int i = 0; i < n && !err; i++) {
        err = b->t.gpu ? encode_there(b, m, &seconds[i]) : encode_here(b, m, &seconds[i], &limit[i]);
        fraction[i] = limit[i] > 0 ? r->macs / seconds[i] / limit[i] : 0;
    }
    r->seconds = ek_median(seconds, n), r->limit = ek_median(limit, n), r->fraction = ek_median(fraction, n);
    free(seconds);
    return err;
}

static ek_err measure(const bed *b, int runs, row *r)
{
    ek_media *m;
    ek_tower_cost cost;
    EK_TRY(make(&m, b->t.towers, b->sound, r->size));
    ek_err err = b->sound ? ek_tower_cost_sound(&cost, b->t.towers, m->sound.samples)
                          : ek_tower_cost_image(&cost, b->t.towers, &m->picture.fit);
    if (!err) {
        r->macs = cost.macs, r->tokens = cost.rows;
        err = measure_runs(b, m, runs, r);
    }
    ek_media_release(m);
    return err;
}

/* --- time to the first token --- */

enum { AROUND = 2, REPLY = 8 };

/* The context for a prompt with n tokens of text and the tokens of the input. */
static int first_context(int tokens, int n)
{
    return n + tokens + AROUND + REPLY;
}

typedef struct waited {
    bool ended;
    ek_err err;
} waited;

static void on_event(void *arg, const ek_event *e)
{
    waited *w = arg;
    if (e->finish == EK_FINISH_NONE) return;
    w->ended = true;
    if (e->finish == EK_FINISH_ERROR) w->err = ek_fail(e->err, "%s", e->text);
}

static bool is_media(const ek_media_ids *ids, int32_t id)
{
    bool any = ek_part_kind_of(ids, id) != EK_PART_KINDS;
    for (int k = 0; k < EK_PART_KINDS; k++) any |= id == ids->begin[k] || id == ids->end[k];
    return any;
}

/* Tokens of text. No two runs have the same ones. */
static void fill(int32_t *to, int n, const ek_media_ids *ids, int vocab, uint64_t run)
{
    for (int i = 0; i < n; i++) {
        uint64_t x = run << 32 | (uint64_t)i;
        do x = ek_mix64(x);
        while (is_media(ids, (int32_t)(x % (uint64_t)vocab)));
        to[i] = (int32_t)(x % (uint64_t)vocab);
    }
}

static ek_err run_first(ek_engine *e, const ek_request_opts *r, waited *w, double *seconds)
{
    ek_request_id id;
    const double start = ek_now();
    *w = (waited){0};
    EK_TRY(ek_engine_submit(e, r, &id));
    while (!w->ended && ek_engine_step(e)) continue;
    *seconds = ek_now() - start;
    return w->err;
}

/* Seconds from submit to the first token of a prompt of n tokens with m between its halves; then the same for the same
 * prompt again, whose features and pages are kept. No two calls have the same tokens. */
static ek_err first_token(const ek_opened *o, ek_media *m, int n, double *first, double *again)
{
    static uint64_t number;
    const ek_media_ids *ids = &o->chat.media.ids;
    const int vocab = ek_model_config(o->model)->vocab_size, before = n / 2, all = n + m->tokens + AROUND;
    int32_t *token = ek_alloc(sizeof *token * (size_t)all);
    fill(token, all, ids, vocab, ++number);
    token[before] = ids->begin[m->kind];
    for (int i = 0; i < m->tokens; i++) token[before + 1 + i] = ids->soft[m->kind];
    token[before + 1 + m->tokens] = ids->end[m->kind];
    const ek_part part = {m, before + 1};
    waited w;
    const ek_request_opts r = {.tokens = token,
                               .n_tokens = all,
                               .max_tokens = 1,
                               .part = &part,
                               .n_parts = 1,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .sink = on_event,
                               .arg = &w,
                               .prompt_logits_from = all};
    ek_err err = run_first(o->engine, &r, &w, first);
    if (!err) err = run_first(o->engine, &r, &w, again);
    free(token);
    return err;
}

static ek_err measure_first(const ek_opened *o, const ek_cli *cli, bool sound, row *r)
{
    const int runs = (int)cli->runs, n = cli->prompt.v[0];
    double *first = ek_alloc(2 * sizeof *first * (size_t)(runs + 1)), *again = first + runs + 1;
    ek_err err = EK_OK;
    for (int i = 0; i <= runs && !err; i++) { /* the first run does not count */
        ek_media *m;
        err = make(&m, o->towers, sound, r->size);
        if (err) break;
        err = first_token(o, m, n, &first[i], &again[i]);
        ek_media_release(m);
    }
    r->first = ek_median(first + 1, runs), r->again = ek_median(again + 1, runs);
    free(first);
    return err;
}

/* Measures with the engine, which has its own towers. */
static ek_err measure_firsts(const ek_cli *cli, bool sound, row *r, int n)
{
    ek_opened m;
    ek_open_opts o;
    int max = 0;
    for (int i = 0; i < n; i++)
        if (r[i].tokens > max) max = r[i].tokens;
    EK_TRY(ek_cli_open_opts(&o, cli));
    o.media = o.media_now = true;
    o.max_requests = o.max_queue = 1;
    o.ctx_tokens = first_context(max, cli->prompt.v[0]);
    EK_TRY(ek_cli_open_model(&m, cli, &o));
    EK_TRY(ek_open_engine(&m, &o));
    ek_err err = EK_OK;
    for (int i = 0; i < n && !err; i++) err = measure_first(&m, cli, sound, &r[i]);
    ek_opened_close(&m);
    return err;
}

/* ------------------------------------------------------------------ printing */

static void explain(const bed *b, bool firsts)
{
    if (b->t.gpu) printf("device    %s\n", ek_gpu_text(b->t.gpu));
    else printf("machine   %s, %d threads, %s\n", ek_cpu_model(), ek_pool_threads(b->t.pool), ek_cpu_isa(b->t.cpu));
    if (b->sound)
        printf("\nsound            soft tokens of one\n"
               "seconds          from its samples to its rows\n");
    else
        printf("\npicture          soft tokens of one, of 3 to 2\n"
               "seconds          from its pixels to its rows\n");
    printf("G multiply-adds  that took, in thousands of millions a second, attention included\n");
    if (!b->t.gpu)
        printf("float peak       what this machine does in floats, measured beside it\n"
               "share            of that which was reached\n");
    if (firsts)
        printf("first token      seconds until the first token of a question with it\n"
               "again            the same when the same question comes again\n");
    printf("\n%10s %12s %16s", b->sound ? "sound" : "picture", "seconds", "G multiply-adds");
    if (!b->t.gpu) printf(" %16s %8s", "float peak", "share");
    if (firsts) printf(" %12s %12s", "first token", "again");
    putchar('\n');
}

static void print_table(const bed *b, const row *r, int n)
{
    explain(b, r->first > 0);
    for (int i = 0; i < n; i++, r++) {
        printf("%10d %12.4f %16.1f", r->tokens, r->seconds, r->macs / r->seconds / 1e9);
        if (!b->t.gpu) printf(" %16.1f %6.1f %%", r->limit / 1e9, r->fraction * 100);
        if (r->first > 0) printf(" %12.4f %12.4f", r->first, r->again);
        putchar('\n');
    }
}

static void print_json(const bed *b, const row *r, int n)
{
    printf("{\"%s\":[", b->sound ? "sounds" : "pictures");
    for (int i = 0; i < n; i++, r++) {
        printf("%s{\"tokens\":%d,\"seconds\":%.5f,\"macs_per_second\":%.0f", i ? "," : "", r->tokens, r->seconds,
               r->macs / r->seconds);
        if (b->t.gpu) printf(",\"peak_macs_per_second\":null,\"share_of_peak\":null");
        else printf(",\"peak_macs_per_second\":%.0f,\"share_of_peak\":%.4f", r->limit, r->fraction);
        if (r->first > 0) printf(",\"first_token_seconds\":%.5f,\"again_seconds\":%.5f", r->first, r->again);
        putchar('}');
    }
    printf("],\"device\":\"%s\"}\n", b->t.gpu ? ek_gpu_text(b->t.gpu) : "cpu");
}

static ek_err check(const ek_cli *cli)
{
    for (int i = 0; i < cli->pictures.n; i++)
        if (!ek_budget_known(cli->pictures.v[i]))
            return ek_fail(EK_EINVAL, "--pictures %d: 70, 140, 280, 560 and 1120 tokens are possible",
                           (int)cli->pictures.v[i]);
    if (cli->pictures.n && cli->sounds.n) return ek_fail(EK_EINVAL, "either --pictures or --sounds");
    if (cli->first_token && cli->prompt.n != 1) return ek_fail(EK_EINVAL, "--prompt: one length, of the question");
    return EK_OK;
}

int ek_bench_towers(const ek_cli *cli)
{
    if (check(cli)) return ek_cli_wrong(cli, "%s", ek_err_text());
    bed b = {.sound = cli->sounds.n > 0};
    const ek_list *sizes = b.sound ? &cli->sounds : &cli->pictures;
    const int n = sizes->n;
    row *r = ek_alloc(sizeof *r * (size_t)n);
    ek_err err = ek_cli_open_towers(&b.t, cli);
    if (!err) err = ek_cli_place_tower(&b.t, cli, b.sound);
    for (int i = 0; i < n && !err; i++) {
        r[i].size = sizes->v[i];
        err = measure(&b, (int)cli->runs, &r[i]);
    }
    ek_gpu_tower_close(b.t.tower);
    b.t.tower = NULL; /* the engine's own tower replaces it */
    if (!err && cli->first_token) err = measure_firsts(cli, b.sound, r, n);
    if (!err) (cli->json ? print_json : print_table)(&b, r, n);
    ek_cli_close_towers(&b.t);
    free(r);
    return err ? ek_cli_failed(cli) : 0;
}
