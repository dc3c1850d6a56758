/* Speed against this machine's limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/open.h"
#include "cli/peak.h"
#include "text/json.h"

typedef struct limits {
    double read, int8; /* bytes and multiply-adds a second */
    const char *int8_name;
} limits;

typedef struct result {
    bool generate;
    int tokens, batch, depth; /* of a prompt; of generation */
    double per_second;        /* prompt tokens; steps */
} result;

typedef struct report {
    const ek_cli *cli;
    const ek_cli_model *m;
    limits lim;
    unsigned cpu;
    result *row;
    int n_rows;
} report;

static ek_err open_model(const ek_cli *cli, ek_cli_model *m)
{
    if (!cli->has.synthetic) return ek_cli_open_model(m, cli);
    *m = (ek_cli_model){.dir = cli->synthetic};
    static ek_config config;
    EK_TRY(ek_config_published(&config, cli->synthetic, cli->has.layers ? (int)cli->layers : 0));
    ek_model_opts opts;
    EK_TRY(ek_cli_model_opts(cli, &opts, &m->pool));
    ek_err err = ek_model_synthetic(&m->model, &config, atoi(cli->bits), 1, &opts);
    if (err) ek_cli_close_model(m);
    return err;
}

static int largest(const ek_list *l)
{
    int most = 0;
    for (int i = 0; i < l->n; i++)
        if (l->v[i] > most) most = l->v[i];
    return most;
}

static ek_err open_all(const ek_cli *cli, ek_cli_model *m)
{
    EK_TRY(open_model(cli, m));
    int batch = largest(&cli->batch), prompt = largest(&cli->prompt) + 1;
    int ctx = ek_bench_context(batch, largest(&cli->depth), (int)cli->generate, (int)cli->chunk);
    if (ctx < prompt) ctx = prompt;
    int most = ek_model_config(m->model)->max_position_embeddings;
    if (ctx > most) {
        ek_cli_close_model(m);
        return ek_fail(EK_EINVAL, "this needs a context of %d tokens, the model has %d", ctx, most);
    }
    return ek_cli_add_engine(m, cli, batch, batch, ctx);
}

/* Taken before and after the rows, the better of both: whatever else the machine does, the limits
 * and the rows saw the same of it. */
static ek_err measure_limits(report *r)
{
    double read;
    EK_TRY(ek_peak_read(r->m->pool, &read));
    double int8 = ek_peak_int8(r->m->pool, r->cpu, &r->lim.int8_name);
    if (read > r->lim.read) r->lim.read = read;
    if (int8 > r->lim.int8) r->lim.int8 = int8;
    return EK_OK;
}

static ek_err measure(report *r)
{
    const ek_cli *cli = r->cli;
    ek_engine *e = r->m->engine;
    int total = cli->prompt.n + cli->batch.n * cli->depth.n, runs = (int)cli->runs;
    r->row = ek_alloc((size_t)total * sizeof *r->row);
    EK_TRY(measure_limits(r));
    for (int i = 0; i < cli->prompt.n; i++) {
        ek_progress("measuring", r->n_rows, total);
        result *x = &r->row[r->n_rows++];
        *x = (result){.tokens = cli->prompt.v[i]};
        EK_TRY(ek_bench_prompt(e, x->tokens, runs, &x->per_second));
    }
    for (int d = 0; d < cli->depth.n; d++)
        for (int b = 0; b < cli->batch.n; b++) {
            ek_progress("measuring", r->n_rows, total);
            result *x = &r->row[r->n_rows++];
            *x = (result){.generate = true, .batch = cli->batch.v[b], .depth = cli->depth.v[d]};
            EK_TRY(ek_bench_generate(e, x->batch, x->depth, (int)cli->generate, runs, &x->per_second));
        }
    ek_progress("measuring", total, total);
    return measure_limits(r);
}

static double prompt_macs(const report *r, const result *x)
{
    const ek_model *m = r->m->model;
    /* The last row wants logits and runs every layer. */
    return ((x->tokens - 1) * ek_model_macs_prompt_row(m) + ek_model_macs_logit_row(m)) / x->tokens * x->per_second;
}

/* Weights are read once a step, whoever shares it (experts: at batch 1). */
static double step_bytes(const report *r, const result *x)
{
    return ek_model_bytes_per_token(r->m->model) * x->per_second;
}

static void print_table(const report *r)
{
    const ek_config *c = ek_model_config(r->m->model);
    printf("machine   %s, %d threads, %s\n", ek_cpu_model(), ek_pool_threads(r->m->pool), ek_cpu_isa(r->cpu));
    printf("limits    memory reads %.1f GB/s", r->lim.read / 1e9);
    if (r->lim.int8_name) printf("; %s %.2f T multiply-adds/s", r->lim.int8_name, r->lim.int8 / 1e12);
    printf("\nmodel     %s%s, %d layers, %s, %.2f GB read a token\n", r->m->dir, r->cli->has.synthetic ? " synthetic" : "", c->n_layers,
           ek_model_numerics_id(r->m->model), ek_model_bytes_per_token(r->m->model) / 1e9);
    bool head = false;
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (x->generate) continue;
        if (!head) printf("\n%10s %12s %16s %10s\n", "prompt", "tokens/s", "G multiply-adds", "of peak");
        head = true;
        printf("%10d %12.1f %16.1f ", x->tokens, x->per_second, prompt_macs(r, x) / 1e9);
        if (r->lim.int8 > 0) printf("%8.1f %%\n", 100 * prompt_macs(r, x) / r->lim.int8);
        else printf("%10s\n", "-");
    }
    printf("\n%10s %10s %12s %12s %10s %10s\n", "batch", "depth", "tokens/s", "each", "GB/s", "of reads");
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (!x->generate) continue;
        printf("%10d %10d %12.2f %12.2f %10.1f %8.1f %%\n", x->batch, x->depth, x->batch * x->per_second, x->per_second,
               step_bytes(r, x) / 1e9, 100 * step_bytes(r, x) / r->lim.read);
    }
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
    ek_buf_fmt(&b, ",\"threads\":%d,\"read_bytes_per_second\":%.0f,\"int8_macs_per_second\":%.0f},\"model\":{",
               ek_pool_threads(r->m->pool), r->lim.read, r->lim.int8);
    add_name(&b, "name", r->m->dir);
    ek_buf_char(&b, ',');
    add_name(&b, "numerics", ek_model_numerics_id(r->m->model));
    ek_buf_fmt(&b, ",\"layers\":%d,\"bytes_per_token\":%.0f},\"prompt\":[", ek_model_config(r->m->model)->n_layers,
               ek_model_bytes_per_token(r->m->model));
    const char *sep = "";
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (x->generate) continue;
        ek_buf_fmt(&b, "%s{\"tokens\":%d,\"tokens_per_second\":%.3f,\"macs_per_second\":%.0f,\"share_of_peak\":", sep, x->tokens,
                   x->per_second, prompt_macs(r, x));
        if (r->lim.int8 > 0) ek_buf_fmt(&b, "%.4f}", prompt_macs(r, x) / r->lim.int8);
        else ek_buf_str(&b, "null}");
        sep = ",";
    }
    ek_buf_str(&b, "],\"generate\":[");
    sep = "";
    for (int i = 0; i < r->n_rows; i++) {
        const result *x = &r->row[i];
        if (!x->generate) continue;
        ek_buf_fmt(&b, "%s{\"batch\":%d,\"depth\":%d,\"tokens_per_second\":%.3f,\"steps_per_second\":%.3f,\"share_of_reads\":%.4f}", sep,
                   x->batch, x->depth, x->batch * x->per_second, x->per_second, step_bytes(r, x) / r->lim.read);
        sep = ",";
    }
    ek_buf_str(&b, "]}");
    puts(b.data);
    ek_buf_fini(&b);
}

int ek_cmd_bench(const ek_cli *cli)
{
    if (cli->has.synthetic && cli->has.model) return ek_cli_wrong(cli, "either --model or --synthetic, not both");
    if (cli->has.layers && !cli->has.synthetic) return ek_cli_wrong(cli, "--layers cuts a --synthetic model only");
    ek_cli_model m;
    if (open_all(cli, &m)) return ek_cli_failed(cli);
    report r = {.cli = cli, .m = &m, .cpu = ek_cpu_detect()};
    ek_err err = cli->has.isa ? ek_cpu_mask(cli->isa, &r.cpu) : EK_OK;
    if (!err) err = measure(&r);
    int status = err ? ek_cli_failed(cli) : 0;
    if (!err && cli->json) print_json(&r);
    else if (!err) print_table(&r);
    free(r.row);
    ek_cli_close_model(&m);
    return status;
}
