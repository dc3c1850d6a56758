#include "cli/bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "text/json/json.h"

/* Multiply-adds of a prompt token, or bytes of a step. Weights are read once a step for all requests (experts: at batch
 * 1). */
static double work(const ek_bench_report *r, const ek_bench_result *x)
{
    const ek_model *m = r->m->model;
    if (x->generate) return ek_model_bytes_per_token(m);
    /* Only the last row computes logits, but it runs through every layer. */
    return ((x->tokens - 1) * ek_model_macs_prompt_row(m) + ek_model_macs_logit_row(m)) / x->tokens;
}

static void explain_prompt(const ek_bench_report *r)
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
          "(n masked)       of them, whose tokens a mask decides, as a grammar's does (--structured)\n"
          "depth            tokens before the reply, in each of them\n"
          "read             how many of these a second, all prompts one behind the other\n"
          "tokens/s         of all of them together\n"
          "each             of one of them: what its reader sees\n"
          "GB/s             weights and keys that are read for it\n"
          "reads            what this machine reads from memory, measured beside it\n"
          "share            of that which was reached; above 100 % where caches help\n",
          stdout);
}

static void print_left_out(const ek_bench_report *r)
{
    for (int i = 0, n = 0; i < r->n_rows; i++) {
        const ek_bench_result *x = &r->row[i];
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

void ek_bench_print_table(const ek_bench_report *r)
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
        const ek_bench_result *x = &r->row[i];
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
        const ek_bench_result *x = &r->row[i];
        if (!x->generate || x->left_out) continue;
        printf("%10d %10d ", x->batch, x->depth);
        if (x->depth > 0) printf("%10.1f ", x->prompts);
        else printf("%10s ", "-");
        printf("%12.2f %12.2f %10.1f %10.1f %6.1f %%", x->batch * x->per_second, x->per_second,
               work(r, x) * x->per_second / 1e9, x->limit / 1e9, 100 * work(r, x) * x->per_limit);
        if (x->structured) printf("  (%d masked)", x->structured);
        printf("\n");
    }
    print_left_out(r);
}

static void add_name(ek_buf *b, const char *key, const char *value)
{
    ek_buf_fmt(b, "\"%s\":", key);
    ek_json_quote(b, value, strlen(value));
}

void ek_bench_print_json(const ek_bench_report *r)
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
        const ek_bench_result *x = &r->row[i];
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
        const ek_bench_result *x = &r->row[i];
        if (!x->generate || x->left_out) continue;
        ek_buf_fmt(
            &b,
            "%s{\"batch\":%d,\"structured\":%d,\"depth\":%d,\"tokens_per_second\":%.3f,\"steps_per_second\":%.3f,\"read_bytes_per_second\":%.0f,\"share_of_reads\":%.4f,\"prompt_tokens_per_second\":%.3f}",
            sep, x->batch, x->structured, x->depth, x->batch * x->per_second, x->per_second, x->limit,
            work(r, x) * x->per_limit, x->prompts);
        sep = ",";
    }
    ek_buf_str(&b, "]}");
    puts(b.data);
    ek_buf_fini(&b);
}
