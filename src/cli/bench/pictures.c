#include "cli/bench/pictures.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "base/machine/peak.h"
#include "cli/frame/median.h"
#include "cli/frame/open.h"
#include "media/budget.h"
#include "model/tower/tower.h"

typedef struct bed {
    ek_buf path;
    ek_pool *pool;
    ek_towers *towers;
    unsigned cpu;
} bed;

typedef struct row {
    ek_tower_cost cost;
    ek_image_fit fit;
    double seconds, limit, share; /* medians: of one picture; float multiply-adds a second beside it; of that limit */
} row;

static ek_err open_bed(bed *b, const ek_cli *cli)
{
    const char *dir;
    ek_open_opts o;
    ek_model_opts model;
    if (!cli->has.model && !cli->has.synthetic) EK_TRY(ek_cli_model_dir(cli, &dir));
    EK_TRY(ek_cli_open_opts(&o, cli));
    EK_TRY(ek_open_check(&o));
    EK_TRY(ek_open_model_opts(&o, &model));
    if (!o.synthetic) EK_TRY(ek_open_path(&b->path, &o));
    EK_TRY(ek_pool_open_nodes(&b->pool, o.threads ? o.threads : ek_cpu_count(), ""));
    b->cpu = model.cpu;
    const ek_towers_opts towers = {.cpu = model.cpu,
                                   .exact = model.exact,
                                   .quantise = model.quantise,
                                   .pool = b->pool,
                                   .packed_dir = model.packed_dir,
                                   .mmproj = o.mmproj,
                                   .synthetic = o.synthetic};
    EK_TRY(ek_towers_open(&b->towers, ek_buf_text(&b->path), &towers));
    return ek_towers_load_image(b->towers);
}

static double float_limit(const bed *b)
{
    const double start = ek_now(), macs = ek_peak_f32(b->pool, b->cpu);
    return macs / (ek_now() - start);
}

/* Seconds of one picture; *limit: the mean of the limits before and behind it. */
static ek_err encode(const bed *b, const ek_picture *p, double *seconds, double *limit)
{
    ek_tower_work *w;
    bool done = false;
    EK_TRY(ek_tower_begin_image(&w, b->towers, p));
    const double before = float_limit(b), start = ek_now();
    while (!done) ek_tower_advance(w, 1e10, &done);
    *seconds = ek_now() - start;
    *limit = (before + float_limit(b)) / 2;
    ek_tower_free(w);
    return EK_OK;
}

/* A picture of 3 to 2, which fills the budget nearly. */
static ek_err measure(const bed *b, const ek_cli *cli, int budget, row *r)
{
    const ek_picture_opts o = {.budget = budget, .patching = ek_towers_get(b->towers)->patching};
    const int n = (int)cli->runs;
    ek_image image;
    ek_picture p;
    EK_TRY(ek_image_make(&image, 960, 640));
    for (size_t i = 0; i < ek_image_bytes(&image); i++) image.rgb[i] = (uint8_t)(i * i >> 7);
    ek_err err = ek_picture_make(&p, &image, &o);
    ek_image_free(&image);
    EK_TRY(err);
    double *seconds = ek_alloc(3 * sizeof *seconds * (size_t)n), *limit = seconds + n, *share = limit + n;
    r->fit = p.fit;
    err = ek_tower_cost_image(&r->cost, b->towers, &p.fit);
    for (int i = 0; i < n && !err; i++) {
        err = encode(b, &p, &seconds[i], &limit[i]);
        share[i] = limit[i] > 0 ? r->cost.macs / seconds[i] / limit[i] : 0;
    }
    r->seconds = ek_median(seconds, n), r->limit = ek_median(limit, n), r->share = ek_median(share, n);
    free(seconds);
    ek_picture_free(&p);
    return err;
}

static void print_rows(const bed *b, const ek_cli *cli, const row *r, int n)
{
    if (!cli->json) {
        printf("machine   %s, %d threads, %s\n", ek_cpu_model(), ek_pool_threads(b->pool), ek_cpu_isa(b->cpu));
        printf("\npicture          soft tokens of one, of 3 to 2\n"
               "seconds          from its pixels to its rows\n"
               "G multiply-adds  that took, in thousands of millions a second, attention included\n"
               "float peak       what this machine does in floats, measured beside it\n"
               "share            of that which was reached\n\n");
        printf("%10s %12s %16s %16s %8s\n", "picture", "seconds", "G multiply-adds", "float peak", "share");
    }
    for (int i = 0; i < n; i++, r++) {
        const char *form = cli->json ? "%s{\"tokens\":%d,\"seconds\":%.4f,\"macs_per_second\":%.0f,"
                                       "\"peak_macs_per_second\":%.0f,\"share_of_peak\":%.4f}%s"
                                     : "%s%10d %12.3f %16.1f %16.1f %6.1f %%%s";
        const double unit = cli->json ? 1 : 1e9, part = cli->json ? 1 : 100;
        printf(form,
               !cli->json ? ""
               : i        ? ","
                          : "{\"pictures\":[",
               r->fit.tokens, r->seconds, r->cost.macs / r->seconds / unit, r->limit / unit, r->share * part,
               !cli->json   ? "\n"
               : i == n - 1 ? "]}\n"
                            : "");
    }
}

static ek_err check(const ek_cli *cli)
{
    for (int i = 0; i < cli->pictures.n; i++)
        if (!ek_budget_known(cli->pictures.v[i]))
            return ek_fail(EK_EINVAL, "--pictures %d: 70, 140, 280, 560 and 1120 tokens are possible",
                           (int)cli->pictures.v[i]);
    return EK_OK;
}

int ek_bench_pictures(const ek_cli *cli)
{
    if (check(cli)) return ek_cli_wrong(cli, "%s", ek_err_text());
    bed b = {.pool = NULL};
    const int n = cli->pictures.n;
    row *r = ek_alloc(sizeof *r * (size_t)n);
    ek_err err = open_bed(&b, cli);
    for (int i = 0; i < n && !err; i++) err = measure(&b, cli, cli->pictures.v[i], &r[i]);
    if (!err) print_rows(&b, cli, r, n);
    ek_towers_close(b.towers);
    if (b.pool) ek_pool_close(b.pool);
    ek_buf_fini(&b.path);
    free(r);
    return err ? ek_cli_failed(cli) : 0;
}
