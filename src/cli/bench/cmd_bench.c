/* bench: speed of a model, compared with this machine's limits. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine/cpu.h"
#include "base/machine/peak.h"
#include "cli/bench/bench.h"
#include "engine/budget.h"
#include "open/device.h"

enum { LONG = 2048 /* tokens; longer rows that were not requested would take too long */ };

static int smallest(const ek_list *l)
{
    int min = l->v[0];
    for (int i = 1; i < l->n; i++)
        if (l->v[i] < min) min = l->v[i];
    return min;
}

static void list_rows(ek_bench_report *r)
{
    const ek_cli *cli = r->cli;
    static int32_t prompts[] = {512, 2048, 32768}, depths[] = {0, 32768};
    const ek_list prompt = cli->has.prompt ? cli->prompt : (ek_list){prompts, 3};
    const ek_list depth = cli->has.depth ? cli->depth : (ek_list){depths, 2};
    const int first = smallest(&cli->batch);
    r->row = ek_alloc((size_t)(prompt.n + cli->batch.n * depth.n) * sizeof *r->row);
    for (int i = 0; i < prompt.n; i++) {
        const int n = prompt.v[i];
        r->row[r->n_rows++] = (ek_bench_result){.tokens = n, .offered = !cli->has.prompt && n > LONG};
    }
    for (int d = 0; d < depth.n; d++)
        for (int b = 0; b < cli->batch.n; b++) {
            const ek_bench_result x = {
                .generate = true,
                .batch = cli->batch.v[b],
                .structured = (int)(cli->structured < cli->batch.v[b] ? cli->structured : cli->batch.v[b]),
                .depth = depth.v[d],
                .offered = !cli->has.depth && depth.v[d] > LONG};
            if (!x.offered || (!cli->has.prompt && x.batch == first)) r->row[r->n_rows++] = x;
        }
}

static int context_of(const ek_bench_report *r, const ek_bench_result *x)
{
    if (!x->generate) return x->tokens + 1;
    return ek_bench_context(x->batch, x->depth, (int)r->cli->generate, ek_cli_chunk(r->cli));
}

/* Bytes for keys and values if no option sets them. With several devices only the split knows, so there is no bound. */
static double room_for_keys(const ek_open_opts *o, const ek_model *m)
{
    ek_device d;
    if (o->device && !ek_device_parse(&d, o->device) && ek_device_is_split(&d)) return INFINITY;
    const double device = ek_device_room(o->device, o->gpu_bytes, m), have = ek_memory_available();
    if (device > 0) return device;
    return have > 0 ? have / 2 : INFINITY;
}

/* Whether the requests of x fit there together. *needs: their bytes. */
static bool has_room(const ek_bench_report *r, const ek_bench_result *x, double room, double *needs)
{
    const ek_kv_layout *layout = ek_model_kv_layout(r->m->model);
    const int own = context_of(r, x), n = x->generate ? x->batch : 1;
    ek_budget b;
    *needs = n * ek_budget_request_bytes(layout, own);
    return !ek_budget_plan(&b, layout, ek_bench_max(&r->cli->batch), own, ek_cli_chunk(r->cli), room, false) &&
           ek_budget_requests(layout, b.n_pages, own) >= n;
}

/* Leaves out rows that were not requested and do not fit into the model's context or memory. Returns the context that
 * the others need. */
static int fit_rows(ek_bench_report *r, int max_ctx, double room)
{
    int ctx = 0;
    for (int i = 0; i < r->n_rows; i++) {
        ek_bench_result *x = &r->row[i];
        const int own = context_of(r, x);
        double needs;
        x->left_out = x->offered && own > max_ctx;
        if (x->offered && !x->left_out && !has_room(r, x, room, &needs)) x->left_out = true, x->needs = needs;
        if (!x->left_out && own > ctx) ctx = own;
    }
    return ctx;
}

static ek_err open_all(ek_bench_report *r, ek_opened *m)
{
    const ek_cli *cli = r->cli;
    ek_open_opts o;
    EK_TRY(ek_cli_open_opts(&o, cli));
    EK_TRY(ek_cli_open_model(m, cli, &o));
    list_rows(r);
    int max_ctx = ek_model_config(m->model)->max_position_embeddings;
    r->ctx = fit_rows(r, max_ctx, room_for_keys(&o, m->model));
    if (r->ctx > max_ctx) {
        ek_opened_close(m);
        return ek_fail(EK_ETOOLONG, "this needs a context of %d tokens, the model has %d", r->ctx, max_ctx);
    }
    o.max_requests = o.max_queue = ek_bench_max(&cli->batch);
    o.ctx_tokens = r->ctx;
    return ek_open_engine(m, &o);
}

/* The machine's limits, measured with a block much larger than the caches. */
typedef struct machine {
    ek_pool *pool;
    unsigned cpu;
    void *block;
    size_t block_bytes;
    ek_gpu *gpu; /* if given, the device's limits are measured */
} machine;

static ek_err open_machine(machine *x, ek_pool *pool, unsigned cpu, ek_gpu *gpu)
{
    const size_t max = (size_t)1 << 30, min = (size_t)256 << 20;
    *x = (machine){.pool = pool, .cpu = cpu, .block_bytes = max, .gpu = gpu};
    if (gpu) return EK_OK;
    while (x->block_bytes > min && (double)x->block_bytes * 4 > ek_memory_available()) x->block_bytes /= 2;
    x->block = ek_alloc_big(x->block_bytes);
    if (!x->block) return EK_ENOMEM;
    ek_peak_fill(pool, x->block, x->block_bytes);
    return EK_OK;
}

static double read_limit(void *arg)
{
    const machine *x = arg;
    if (x->gpu) return ek_gpu_read_rate(x->gpu);
    double start = ek_now(), bytes = ek_peak_read(x->pool, x->cpu, x->block, x->block_bytes);
    return bytes / (ek_now() - start);
}

static double int8_limit(void *arg)
{
    const machine *x = arg;
    if (x->gpu) return 0; /* not measured */
    double start = ek_now(), macs = ek_peak_int8(x->pool, x->cpu);
    return macs / (ek_now() - start);
}

static double once(double (*peak)(ek_pool *, unsigned), const machine *x)
{
    double start = ek_now(), n = peak(x->pool, x->cpu);
    return n / (ek_now() - start);
}

static ek_bench_peaks measure_peaks(machine *x)
{
    ek_bench_peaks p = {.read = read_limit(x)};
    if (x->gpu) return p;
    p.int8 = once(ek_peak_int8, x), p.amx = once(ek_peak_amx, x), p.f32 = once(ek_peak_f32, x);
    return p;
}

/* Seconds that one run of x's prompts takes, estimated from the longest prompt measured so far; 0: none was. */
static double seconds_of(const ek_bench_report *r, const ek_bench_result *x)
{
    const ek_bench_result *best = NULL;
    for (int i = 0; i < r->n_rows; i++) {
        const ek_bench_result *y = &r->row[i];
        if (!y->generate && y->per_second > 0 && (!best || y->tokens > best->tokens)) best = y;
    }
    const double tokens = x->generate ? (double)x->batch * x->depth : x->tokens;
    return best ? tokens / best->per_second : 0;
}

static ek_err measure_row(ek_bench_report *r, machine *limits, ek_bench_result *x)
{
    int runs = (int)r->cli->runs;
    ek_bench_limit limit = {x->generate ? read_limit : int8_limit, limits, 0};
    if (x->left_out) return EK_OK;
    if (x->offered && seconds_of(r, x) > EK_BENCH_SECONDS) {
        x->left_out = true, x->would_take = seconds_of(r, x);
        return EK_OK;
    }
    if (x->generate)
        EK_TRY(ek_bench_generate(r->m->engine, x->batch, x->structured, x->depth, (int)r->cli->generate, runs, &limit,
                                 &x->per_second, &x->per_limit, &x->prompts));
    else EK_TRY(ek_bench_prompt(r->m->engine, x->tokens, runs, &limit, &x->per_second, &x->per_limit, &x->again));
    x->limit = limit.median;
    return EK_OK;
}

static ek_err measure(ek_bench_report *r)
{
    const int total = r->n_rows;
    machine limits;
    EK_TRY(open_machine(&limits, r->m->pool, r->cpu, ek_opened_gpu(r->m)));
    r->int8_name = ek_opened_gpu(r->m) ? NULL : ek_peak_int8_name(r->cpu);
    r->peaks = measure_peaks(&limits);
    ek_err err = EK_OK;
    for (int i = 0; i < total && !err; i++) {
        ek_progress("measuring", i, total);
        err = measure_row(r, &limits, &r->row[i]);
    }
    ek_progress("measuring", total, total);
    if (limits.block) ek_free_big(limits.block, limits.block_bytes);
    return err;
}

/* Refuses options that would have no effect. */
static ek_err check_options(const ek_cli *cli)
{
    if (cli->first_token && !cli->has.pictures && !cli->has.sounds)
        return ek_fail(EK_EINVAL,
                       "--first-token is of a question with a picture or a sound: --pictures or --sounds is missing");
    if (cli->structured && (cli->has.pictures || cli->has.sounds))
        return ek_fail(EK_EINVAL, "either --structured or %s", cli->has.pictures ? "--pictures" : "--sounds");
    if (cli->structured > ek_bench_max(&cli->batch))
        return ek_fail(EK_EINVAL, "--structured %lld: the largest --batch has %d requests", (long long)cli->structured,
                       ek_bench_max(&cli->batch));
    return EK_OK;
}

int ek_cmd_bench(const ek_cli *cli)
{
    if (check_options(cli)) return ek_cli_wrong(cli, "%s", ek_err_text());
    if (cli->has.pictures || cli->has.sounds) return ek_bench_towers(cli);
    ek_opened m;
    ek_bench_report r = {.cli = cli, .m = &m, .cpu = ek_cpu_detect()};
    ek_err err = open_all(&r, &m);
    if (err) {
        free(r.row);
        return ek_cli_refused(cli, err);
    }
    err = cli->has.isa ? ek_cpu_mask(cli->isa, &r.cpu) : EK_OK;
    if (!err) err = measure(&r);
    int status = err ? ek_cli_failed(cli) : 0;
    if (!err && cli->json) ek_bench_print_json(&r);
    else if (!err) ek_bench_print_table(&r);
    free(r.row);
    ek_opened_close(&m);
    return status;
}
