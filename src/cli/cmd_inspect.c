/* inspect: what a checkpoint is and what running it would take. A folder is bound and checked
 * like a model that is opened, only nothing is packed; a single file is listed. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/about.h"
#include "cli/hub.h"
#include "cli/open.h"
#include "engine/budget.h"
#include "model/model.h"
#include "tensor/checkpoint.h"

/* Tensors of one element type. */
typedef struct share {
    int n;
    double bytes;
} share;

typedef struct report {
    const ek_cli *cli;
    const char *path;
    ek_checkpoint *files;
    share type[EK_DTYPE_COUNT];
    double file_bytes;
    bool is_model;
    ek_model_need need; /* of a folder */
    double free_bytes;  /* that serve would give to keys and values: half of what is left beside the weights */
    const char *variant;
    char device[512];
    int ctx;
} report;

static void count_types(report *r)
{
    for (int i = 0; i < ek_checkpoint_count(r->files); i++) {
        const ek_tensor *t = ek_checkpoint_at(r->files, i);
        r->type[t->dtype].n++;
        r->type[t->dtype].bytes += (double)t->bytes;
        r->file_bytes += (double)t->bytes;
    }
}

static int layers_of(const ek_config *c, ek_layer_kind kind)
{
    int n = 0;
    for (int i = 0; i < c->n_layers; i++) n += c->layer[i].kind == kind;
    return n;
}

static void print_types(const report *r)
{
    char size[16];
    ek_cli_size_text(size, r->file_bytes);
    printf("tensors      %d, %s", ek_checkpoint_count(r->files), size);
    for (int t = 0, n = 0; t < EK_DTYPE_COUNT; t++) {
        if (!r->type[t].n) continue;
        ek_cli_size_text(size, r->type[t].bytes);
        printf("%s%d %s %s", n++ ? ", " : ": ", r->type[t].n, ek_dtype_name((ek_dtype)t), size);
    }
    printf("\n");
}

static void print_model(const report *r)
{
    const ek_config *c = &r->need.config;
    char a[16], b[16];
    printf("model        %s (%s)\n", r->variant, c->model_type);
    printf("layers       %d: %d sliding (window %d), %d full; %d own keys and values\n", c->n_layers,
           layers_of(c, EK_SLIDING), c->sliding_window, layers_of(c, EK_FULL), c->first_shared);
    printf("width        %d, %d heads, vocabulary %d", c->hidden_size, c->n_heads, c->vocab_size);
    if (c->per_layer_size) printf(", per-layer inputs %d", c->per_layer_size);
    if (c->n_experts) printf(", %d of %d experts", c->top_k_experts, c->n_experts);
    printf("\ncontext      %d tokens\n", c->max_position_embeddings);
    print_types(r);
    ek_cli_size_text(a, r->need.weight_bytes);
    ek_cli_size_text(b, r->need.mapped_bytes);
    printf("weights      %s in memory", a);
    if (r->need.mapped_bytes > 0) printf(", %s stay in the file", b);
    ek_cli_size_text(a, r->need.bytes_per_token);
    printf("\na token      reads %s of weights\nnumerics     %s\n", a, r->need.numerics_id);
    printf("keys, values %.0f bytes per token in full layers, %.0f in sliding ones for a token in their window\n",
           ek_budget_token_bytes(&r->need.layout, EK_FULL), ek_budget_token_bytes(&r->need.layout, EK_SLIDING));
    if (r->cli->kv_start > 0)
        printf("             of the first %d positions %.0f and %.0f\n", (int)r->cli->kv_start,
               ek_budget_token_bytes(&r->need.layout, EK_FULL_START),
               ek_budget_token_bytes(&r->need.layout, EK_SLIDING_START));
    printf("device       %s\n", r->device);
    for (int i = 0; i < r->cli->batch.n; i++) {
        double kv = ek_budget_request_bytes(&r->need.layout, r->ctx) * r->cli->batch.v[i];
        ek_cli_size_text(a, kv);
        ek_cli_size_text(b, kv + r->need.weight_bytes);
        printf("%s %3d x %d tokens: keys and values %s, with the weights %s\n", i ? "            " : "memory      ",
               r->cli->batch.v[i], r->ctx, a, b);
    }
    ek_cli_size_text(a, r->free_bytes);
    printf("fits         in %s, half of what is free beside the weights:", a);
    const int max = c->max_position_embeddings;
    printf(" %d x %d", ek_budget_requests_in(&r->need.layout, r->free_bytes, r->ctx), r->ctx);
    if (r->ctx < max) printf(" or %d x %d", ek_budget_requests_in(&r->need.layout, r->free_bytes, max), max);
    printf(" tokens\n");
}

static void print_tensors(const report *r)
{
    print_types(r);
    for (int i = 0; i < ek_checkpoint_count(r->files); i++) {
        const ek_tensor *t = ek_checkpoint_at(r->files, i);
        printf("%-4s [", ek_dtype_name(t->dtype));
        for (int d = 0; d < t->n_dims; d++) printf("%s%lld", d ? ", " : "", (long long)t->dim[d]);
        printf("] %s\n", t->name);
    }
}

static json_t *json_model(const report *r)
{
    const ek_config *c = &r->need.config;
    json_t *memory = json_array();
    for (int i = 0; i < r->cli->batch.n; i++)
        json_array_append_new(memory, json_pack("{s:i,s:i,s:f}", "batch", r->cli->batch.v[i], "ctx", r->ctx, "kv_bytes",
                                                ek_budget_request_bytes(&r->need.layout, r->ctx) * r->cli->batch.v[i]));
    json_t *kv = json_pack("{s:f,s:f,s:i,s:f,s:i}", "full_bytes_per_token",
                           ek_budget_token_bytes(&r->need.layout, EK_FULL), "sliding_bytes_per_token",
                           ek_budget_token_bytes(&r->need.layout, EK_SLIDING), "sliding_window",
                           r->need.layout.sliding_window, "free_bytes", r->free_bytes, "batch_that_fits",
                           ek_budget_requests_in(&r->need.layout, r->free_bytes, r->ctx));
    return json_pack("{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:f,s:s,s:s,s:o,s:o}", "variant", r->variant,
                     "model_type", c->model_type, "layers", c->n_layers, "layers_with_kv", c->first_shared,
                     "hidden_size", c->hidden_size, "vocab_size", c->vocab_size, "experts", c->n_experts, "context",
                     c->max_position_embeddings, "weight_bytes", r->need.weight_bytes, "mapped_bytes",
                     r->need.mapped_bytes, "bytes_per_token", r->need.bytes_per_token, "numerics", r->need.numerics_id,
                     "device", r->device, "kv", kv, "memory", memory);
}

static void print_json(const report *r)
{
    json_t *types = json_object(), *all = json_pack("{s:i,s:f,s:o}", "tensors", ek_checkpoint_count(r->files), "bytes",
                                                    r->file_bytes, "types", types);
    for (int t = 0; t < EK_DTYPE_COUNT; t++)
        if (r->type[t].n)
            json_object_set_new(types, ek_dtype_name((ek_dtype)t),
                                json_pack("{s:i,s:f}", "tensors", r->type[t].n, "bytes", r->type[t].bytes));
    if (r->is_model) json_object_set_new(all, "model", json_model(r));
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    printf("\n");
    json_decref(all);
}

static ek_err inspect(report *r)
{
    const ek_cli *cli = r->cli;
    EK_TRY(ek_checkpoint_open(&r->files, r->path));
    count_types(r);
    if (!r->is_model) return EK_OK;
    ek_model_opts o = {.cpu = ek_cpu_detect()};
    EK_TRY(ek_kv_format_parse(cli->kv, &o.k_format, &o.v_format));
    o.kv_start = (int)cli->kv_start;
    EK_TRY(ek_activations_parse(cli->activations, &o.activations));
    EK_TRY(ek_model_measure(&r->need, r->path, &o));
    enum { CTX = 8192 };
    int max_ctx = r->need.config.max_position_embeddings;
    r->ctx = cli->has.ctx ? (int)cli->ctx : max_ctx < CTX ? max_ctx : CTX;
    if (r->ctx > max_ctx) return ek_fail(EK_EINVAL, "--ctx %d, the model's context is %d", r->ctx, max_ctx);
    r->variant = ek_about_variant(&r->need.config);
    r->free_bytes = (ek_memory_available() - r->need.weight_bytes) / 2;
    if (r->free_bytes < 0) r->free_bytes = 0;
    return ek_cli_device_text(cli, r->device, sizeof r->device);
}

int ek_cmd_inspect(const ek_cli *cli)
{
    static report r;
    r = (report){.cli = cli};
    ek_err err = ek_cli_find_model(cli->arg, &r.path);
    r.is_model = !err && ek_is_dir(r.path);
    if (!err) err = inspect(&r);
    if (!err && cli->json) print_json(&r);
    else if (!err && r.is_model) print_model(&r);
    else if (!err) print_tensors(&r);
    ek_checkpoint_close(r.files);
    return err ? ek_cli_failed(cli) : 0;
}
