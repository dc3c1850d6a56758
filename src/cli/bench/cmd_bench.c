/* bench: speed of a model, compared with this machine's limits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine/memory.h"
#include "base/machine/peak.h"
#include "cli/bench/bench.h"
#include "cli/bench/compare.h"
#include "cli/bench/towers.h"
#include "cli/frame/open.h"
#include "engine/budget.h"
#include "open/device.h"
#include "text/json/json.h"

typedef struct result {
    bool generate;
    int tokens, batch, depth; /* of a prompt; of generation */
    double per_second;        /* prompt tokens; steps */
    double per_limit;         /* of the limit measured beside it: tokens a multiply-add; steps a byte */
    double limit;             /* multiply-adds a second; bytes a second */
    double again;             /* of a prompt: how many times sooner its reply begins the second time, from the cache */
    double prompts;           /* of generation at depth: tokens per second of the prompts before it */
    bool offered;             /* nobody asked for it: left out where it takes long, or more than there is */
    bool left_out;
    double would_take; /* why, seconds; */
    double needs;      /* or bytes of keys and values; 0 and 0: the context does not hold it */
} result;

enum { LONG = 2048 /* tokens: what is longer, and nobody asked for, must be worth its time */ };

/* Of the machine, per second: bytes read from memory; multiply-adds of 8-bit integers (vectors, tiles) and of floats.
 * 0: it has none. */
typedef struct peaks {
    double read, int8, amx, f32;
} peaks;

typedef struct report {
    const ek_cli *cli;
    const ek_opened *m;
    const char *int8_name;
    unsigned cpu;
    peaks peaks;
    result *row;
    int n_rows;
    int ctx; /* of the engine */
} report;

static int smallest(const ek_list *l)
{
    int min = l->v[0];
    for (int i = 1; i < l->n; i++)
        if (l->v[i] < min) min = l->v[i];
    return min;
}

static void list_rows(report *r)
{
    const ek_cli *cli = r->cli;
    static int32_t prompts[] = {512, 2048, 32768}, depths[] = {0, 32768};
    const ek_list prompt = cli->has.prompt ? cli->prompt : (ek_list){prompts, 3};
    const ek_list depth = cli->has.depth ? cli->depth : (ek_list){depths, 2};
    const int first = smallest(&cli->batch);
    r->row = ek_alloc((size_t)(prompt.n + cli->batch.n * depth.n) * sizeof *r->row);
    for (int i = 0; i < prompt.n; i++) {
        const int n = prompt.v[i];
        r->row[r->n_rows++] = (result){.tokens = n, .offered = !cli->has.prompt && n > LONG};
    }
    for (int d = 0; d < depth.n; d++)
        for (int b = 0; b < cli->batch.n; b++) {
            const result x = {.generate = true,
                              .batch = cli->batch.v[b],
                              .depth = depth.v[d],
                              .offered = !cli->has.depth && depth.v[d] > LONG};
            if (!x.offered || (!cli->has.prompt && x.batch == first)) r->row[r->n_rows++] = x;
        }
}

static int context_of(const report *r, const result *x)
{
    if (!x->generate) return x->tokens + 1;
    return ek_bench_context(x->batch, x->depth, (int)r->cli->generate, ek_cli_chunk(r->cli));
}

/* Bytes that keys and values get where nobody says how many. Of several devices only the split knows: no bound. */
static double room_for_keys(const ek_open_opts *o, const ek_model *m)
{
    ek_device d;
    if (o->device && !ek_device_parse(&d, o->device) && ek_device_is_split(&d)) return INFINITY;
    const double device = ek_device_room(o->device, o->gpu_bytes, m), have = ek_memory_available();
    if (device > 0) return device;
    return have > 0 ? have / 2 : INFINITY;
}

/* Whether the requests of x run together there; *needs: what they take. */
static bool has_room(const report *r, const result *x, double room, double *needs)
{
    const ek_kv_layout *layout = ek_model_kv_layout(r->m->model);
    const int own = context_of(r, x), n = x->generate ? x->batch : 1;
    ek_budget b;
    *needs = n * ek_budget_request_bytes(layout, own);
    return !ek_budget_plan(&b, layout, ek_bench_max(&r->cli->batch), own, ek_cli_chunk(r->cli), room, false) &&
           ek_budget_requests(layout, b.n_pages, own) >= n;
}

/* What nobody asked for and the model or the memory does not hold is left out; returns the context of the others. */
static int fit_rows(report *r, int max_ctx, double room)
{
    int ctx = 0;
    for (int i = 0; i < r->n_rows; i++) {
        result *x = &r->row[i];
        const int own = context_of(r, x);
        double needs;
        x->left_out = x->offered && own > max_ctx;
        if (x->offered && !x->left_out && !has_room(r, x, room, &needs)) x->left_out = true, x->needs = needs;
        if (!x->left_out && own > ctx) ctx = own;
    }
    return ctx;
}

static ek_err open_all(report *r, ek_opened *m)
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

/* The machine's limits are measured with a block much larger than the caches. */
typedef struct machine {
    ek_pool *pool;
    unsigned cpu;
    void *block;
    size_t block_bytes;
    ek_gpu *gpu; /* the device's limits are measured instead */
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

static peaks measure_peaks(machine *x)
{
    peaks p = {.read = read_limit(x)};
    if (x->gpu) return p;
    p.int8 = once(ek_peak_int8, x), p.amx = once(ek_peak_amx, x), p.f32 = once(ek_peak_f32, x);
    return p;
}

/* How long the prompts of x take once, by the longest prompt measured so far; 0: none was. */
static double seconds_of(const report *r, const result *x)
{
    const result *best = NULL;
    for (int i = 0; i < r->n_rows; i++) {
        const result *y = &r->row[i];
        if (!y->generate && y->per_second > 0 && (!best || y->tokens > best->tokens)) best = y;
    }
    const double tokens = x->generate ? (double)x->batch * x->depth : x->tokens;
    return best ? tokens / best->per_second : 0;
}

static ek_err measure_row(report *r, machine *limits, result *x)
{
    int runs = (int)r->cli->runs;
    ek_bench_limit limit = {x->generate ? read_limit : int8_limit, limits, 0};
    if (x->left_out) return EK_OK;
    if (x->offered && seconds_of(r, x) > EK_BENCH_SECONDS) {
        x->left_out = true, x->would_take = seconds_of(r, x);
        return EK_OK;
    }
    if (x->generate)
        EK_TRY(ek_bench_generate(r->m->engine, x->batch, x->depth, (int)r->cli->generate, runs, &limit, &x->per_second,
                                 &x->per_limit, &x->prompts));
    else EK_TRY(ek_bench_prompt(r->m->engine, x->tokens, runs, &limit, &x->per_second, &x->per_limit, &x->again));
    x->limit = limit.median;
    return EK_OK;
}

static ek_err measure(report *r)
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

/* Multiply-adds of a prompt token, bytes of a step: weights are read once a step, whoever shares it
 * (experts: at batch 1). */
static double work(const report *r, const result *x)
{
    const ek_model *m = r->m->model;
    if (x->generate) return ek_model_bytes_per_token(m);
    /* The last row wants logits and runs every layer. */
    return ((x->tokens - 1) * ek_model_macs_prompt_row(m) + ek_model_macs_logit_row(m)) / x->tokens;
}

static void explain_prompt(const report *r)
{
    printf("\nprompt           tokens that are read at once, before the reply begins\n"
           "tokens/s         of them, until the first token of the reply\n"
           "G multiply-adds  that took, in thousands of millions a second\n");
    if (r->int8_name) printf("%-16s what this machine does in 8-bit integers, measured beside it\n", r->int8_name);
    printf("share            of the machine's limit that was reached\n"
           "again            how many times sooner the reply begins when the same prompt comes again\n");
}

static void explain_generate(void)
{
    fputs("\nbatch            requests that generate at the same time\n"
          "depth            tokens before the reply, in each of them\n"
          "read             how many of these a second, all prompts one behind the other\n"
          "tokens/s         of all of them together\n"
          "each             of one of them: what its reader sees\n"
          "GB/s             weights and keys that are read for it\n"
          "reads            what this machine reads from memory, measured beside it\n"
          "share            of that which was reached; above 100 % where caches help\n",
          stdout);
}

static void print_left_out(const report *r)
{
    for (int i = 0, n = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (!x->left_out) continue;
        if (!n++) printf("\n");
        printf("left out: %s %d, ", x->generate ? "depth" : "prompt", x->generate ? x->depth : x->tokens);
        if (x->would_take > 0)
            printf("%.0f s or more here; %s %d measures it\n", x->would_take, x->generate ? "--depth" : "--prompt",
                   x->generate ? x->depth : x->tokens);
        else if (x->needs > 0) printf("%.2f GB of keys and values, for which there is no room here\n", x->needs / 1e9);
        else printf("the model has a context of %d tokens\n", ek_model_config(r->m->model)->max_position_embeddings);
    }
}

static void print_table(const report *r)
{
    const ek_config *c = ek_model_config(r->m->model);
    printf("machine   %s, %d threads, %s\n", ek_cpu_model(), ek_pool_threads(r->m->pool), ek_cpu_isa(r->cpu));
    if (ek_opened_gpu(r->m)) printf("device    %s\n", ek_opened_device(r->m));
    printf("model     %s%s, %d layers, %s, %.2f GB read a token\n", r->m->path,
           r->cli->has.synthetic ? " synthetic" : "", c->n_layers, ek_model_numerics_id(r->m->model),
           ek_model_bytes_per_token(r->m->model) / 1e9);
    printf("limits    %.1f GB/s read", r->peaks.read / 1e9);
    if (r->peaks.int8 > 0)
        printf(", multiply-adds in G/s: %.0f %s, %.0f float", r->peaks.int8 / 1e9, r->int8_name, r->peaks.f32 / 1e9);
    if (r->peaks.amx > 0) printf(", %.0f AMX", r->peaks.amx / 1e9);
    printf(" (at the start; each row's beside it)\n");
    bool head = false;
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (x->generate || x->left_out) continue;
        if (!head) explain_prompt(r);
        if (!head)
            printf("\n%10s %12s %16s %16s %8s %10s\n", "prompt", "tokens/s", "G multiply-adds",
                   r->int8_name ? r->int8_name : "peak", "share", "again");
        head = true;
        printf("%10d %12.1f %16.1f ", x->tokens, x->per_second, work(r, x) * x->per_second / 1e9);
        if (r->int8_name) printf("%16.1f %6.1f %%", x->limit / 1e9, 100 * work(r, x) * x->per_limit);
        else printf("%16s %8s", "-", "-");
        printf(" %8.1f x\n", x->again);
    }
    explain_generate();
    printf("\n%10s %10s %10s %12s %12s %10s %10s %8s\n", "batch", "depth", "read", "tokens/s", "each", "GB/s", "reads",
           "share");
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (!x->generate || x->left_out) continue;
        printf("%10d %10d ", x->batch, x->depth);
        if (x->depth > 0) printf("%10.1f ", x->prompts);
        else printf("%10s ", "-");
        printf("%12.2f %12.2f %10.1f %10.1f %6.1f %%\n", x->batch * x->per_second, x->per_second,
               work(r, x) * x->per_second / 1e9, x->limit / 1e9, 100 * work(r, x) * x->per_limit);
    }
    print_left_out(r);
}

static void add_name(ek_buf *b, const char *key, const char *value)
{
    ek_buf_fmt(b, "\"%s\":", key);
    ek_json_quote(b, value, strlen(value));
}

static void print_json(const report *r)
{
    ek_buf b = {0};
    ek_buf_str(&b, "{\"machine\":{");
    add_name(&b, "cpu", ek_cpu_model());
    ek_buf_char(&b, ',');
    add_name(&b, "isa", ek_cpu_isa(r->cpu));
    ek_buf_fmt(&b, ",\"threads\":%d,", ek_pool_threads(r->m->pool));
    add_name(&b, "device", ek_opened_device(r->m));
    ek_buf_str(&b, "},\"model\":{");
    add_name(&b, "name", r->m->path);
    ek_buf_char(&b, ',');
    add_name(&b, "numerics", ek_model_numerics_id(r->m->model));
    ek_buf_fmt(&b, ",\"layers\":%d,\"bytes_per_token\":%.0f}", ek_model_config(r->m->model)->n_layers,
               ek_model_bytes_per_token(r->m->model));
    ek_buf_fmt(&b, ",\"limits\":{\"read_bytes_per_second\":%.0f,\"int8_macs_per_second\":%.0f", r->peaks.read,
               r->peaks.int8);
    ek_buf_fmt(&b, ",\"amx_macs_per_second\":%.0f,\"f32_macs_per_second\":%.0f},\"prompt\":[", r->peaks.amx,
               r->peaks.f32);
    const char *sep = "";
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (x->generate || x->left_out) continue;
        ek_buf_fmt(&b, "%s{\"tokens\":%d,\"tokens_per_second\":%.3f,\"macs_per_second\":%.0f,\"again\":%.2f", sep,
                   x->tokens, x->per_second, work(r, x) * x->per_second, x->again);
        if (r->int8_name)
            ek_buf_fmt(&b, ",\"peak_macs_per_second\":%.0f,\"share_of_peak\":%.4f}", x->limit,
                       work(r, x) * x->per_limit);
        else ek_buf_str(&b, ",\"peak_macs_per_second\":null,\"share_of_peak\":null}");
        sep = ",";
    }
    ek_buf_str(&b, "],\"generate\":[");
    sep = "";
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (!x->generate || x->left_out) continue;
        ek_buf_fmt(
            &b,
            "%s{\"batch\":%d,\"depth\":%d,\"tokens_per_second\":%.3f,\"steps_per_second\":%.3f,\"read_bytes_per_second\":%.0f,\"share_of_reads\":%.4f,\"prompt_tokens_per_second\":%.3f}",
            sep, x->batch, x->depth, x->batch * x->per_second, x->per_second, x->limit, work(r, x) * x->per_limit,
            x->prompts);
        sep = ",";
    }
    ek_buf_str(&b, "]}");
    puts(b.data);
    ek_buf_fini(&b);
}

/* What another option would leave without effect. */
static ek_err check_options(const ek_cli *cli)
{
    const char *encodes = cli->has.pictures ? "--pictures" : cli->has.sounds ? "--sounds" : NULL;
    if (cli->first_token && !encodes)
        return ek_fail(EK_EINVAL,
                       "--first-token is of a question with a picture or a sound: --pictures or --sounds is missing");
    return cli->has.compare && encodes ? ek_fail(EK_EINVAL, "either %s or --compare", encodes) : EK_OK;
}

int ek_cmd_bench(const ek_cli *cli)
{
    if (check_options(cli)) return ek_cli_wrong(cli, "%s", ek_err_text());
    if (cli->has.compare) return ek_bench_compare(cli);
    if (cli->has.pictures || cli->has.sounds) return ek_bench_towers(cli);
    ek_opened m;
    report r = {.cli = cli, .m = &m, .cpu = ek_cpu_detect()};
    ek_err err = open_all(&r, &m);
    if (err) {
        free(r.row);
        return ek_cli_refused(cli, err);
    }
    err = cli->has.isa ? ek_cpu_mask(cli->isa, &r.cpu) : EK_OK;
    if (!err) err = measure(&r);
    int status = err ? ek_cli_failed(cli) : 0;
    if (!err && cli->json) print_json(&r);
    else if (!err) print_table(&r);
    free(r.row);
    ek_opened_close(&m);
    return status;
}
