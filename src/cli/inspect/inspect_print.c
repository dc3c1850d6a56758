/* inspect's report. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/frame/hub.h"
#include "cli/frame/terminal.h"
#include "cli/inspect/inspect.h"
#include "engine/budget.h"
#include "tensor/checkpoint.h"

/* --- for people --- */

static int layers_of(const ek_config *c, ek_layer_kind kind)
{
    int n = 0;
    for (int i = 0; i < c->n_layers; i++) n += c->layer[i].kind == kind;
    return n;
}

static void print_types(const ek_inspect *r)
{
    char size[16];
    ek_cli_size_text(size, r->file_bytes);
    printf("tensors      %d, %s", r->n_tensors, size);
    for (int t = 0; t < r->n_types; t++) {
        ek_cli_size_text(size, r->type[t].bytes);
        printf("%s%d %s %s", t ? ", " : ": ", r->type[t].n, r->type[t].name, size);
    }
    printf("\n");
}

static void print_shape(const ek_config *c)
{
    printf("layers       %d: %d sliding (window %d), %d full; %d own keys and values\n", c->n_layers,
           layers_of(c, EK_SLIDING), c->sliding_window, layers_of(c, EK_FULL), c->first_shared);
    printf("width        %d, %d heads, vocabulary %d", c->hidden_size, c->n_heads, c->vocab_size);
    if (c->per_layer_size) printf(", per-layer inputs %d", c->per_layer_size);
    if (c->n_experts) printf(", %d of %d experts", c->top_k_experts, c->n_experts);
    if (c->own_head) printf(", a head of its own");
    printf("\ncontext      %d tokens\n", c->max_position_embeddings);
}

static void print_weights(const ek_inspect *r)
{
    char a[16], b[16];
    ek_cli_size_text(a, r->weight_bytes);
    ek_cli_size_text(b, r->tower_bytes);
    printf("weights      %s %s", a, r->measured ? "in memory" : "as stored");
    if (r->tower_bytes > 0) printf(" (%s for pictures and sounds)", b);
    ek_cli_size_text(b, r->need.mapped_bytes);
    if (r->need.mapped_bytes > 0) printf(", %s stay in the file", b);
    printf("\n");
    if (r->measured) {
        ek_cli_size_text(a, r->need.bytes_per_token);
        printf("a token      reads %s of weights\nnumerics     %s\n", a, r->need.numerics_id);
    }
    printf("device       %s\n", r->device);
    const bool outputs = !strncmp(r->place, "outputs ", 8), named = outputs || !strncmp(r->place, "layer", 5);
    if (r->place[0]) printf("%-13s%s\n", outputs ? "outputs" : "layers", named ? strchr(r->place, ' ') + 1 : r->place);
}

/* The sizes with groups of 64 and 128 are only in the JSON. */
static void print_kv(const ek_inspect *r)
{
    const int max = r->config.max_position_embeddings;
    char head[2][32], size[16];
    snprintf(head[0], sizeof head[0], "fit at %d", r->ctx);
    snprintf(head[1], sizeof head[1], "fit at %d", max);
    ek_cli_size_text(size, r->free_bytes);
    printf(
        "\nkeys and values, bytes per token (in sliding layers of a token in their window), of one request of %d tokens,\n"
        "and requests that fit into %s, half of what is free beside the weights:\n\n"
        "%-8s %12s %14s %14s %14s %16s\n",
        r->ctx, size, "--kv", "full layers", "sliding layers", "one request", head[0], max > r->ctx ? head[1] : "");
    for (int i = 0; i < r->n_kv; i++) {
        const ek_inspect_kv *k = &r->kv[i];
        if (strchr(k->name, '.')) continue;
        ek_cli_size_text(size, k->request);
        printf("%-8s %12.0f %14.0f %14s %14d", k->name, k->full, k->sliding, size, k->fit);
        if (max > r->ctx) printf(" %16d", k->fit_max);
        printf("\n");
    }
}

static void print_batches(const ek_inspect *r)
{
    char a[16], b[16];
    printf("\n");
    for (int i = 0; i < r->cli->batch.n; i++) {
        double kv = ek_budget_request_bytes(&r->need.layout, r->ctx) * r->cli->batch.v[i];
        ek_cli_size_text(a, kv);
        ek_cli_size_text(b, kv + r->weight_bytes);
        printf("%s %3d x %d tokens: keys and values (%s) %s, with the weights %s\n",
               i ? "            " : "memory      ", r->cli->batch.v[i], r->ctx, r->cli->kv, a, b);
    }
}

/* For a file; reads its tensors. */
static void print_tensors(const char *path)
{
    ek_listing *l;
    if (ek_listing_open(&l, path)) return;
    for (int i = 0; i < ek_listing_count(l); i++) {
        const ek_listed *t = ek_listing_at(l, i);
        printf("%-4s [", t->type);
        for (int d = 0; d < t->n_dims; d++) printf("%s%lld", d ? ", " : "", (long long)t->dim[d]);
        printf("] ");
        ek_cli_put(stdout, t->name);
        printf("\n");
    }
    ek_listing_close(l);
}

void ek_inspect_print(const ek_inspect *r)
{
    char what[256];
    ek_about_text(what, sizeof what, &r->about);
    printf("model        ");
    ek_cli_put(stdout, what);
    if (r->has_config) printf(" (%s)", r->config.model_type);
    printf("\n");
    printf("runs         %s%s%s\n", r->runs ? "yes" : "no", r->why[0] ? r->runs ? ", " : ": " : "", r->why);
    if (r->has_config) print_shape(&r->config);
    if (r->n_tensors) print_types(r);
    if (r->has_config) print_weights(r);
    if (r->n_kv) print_kv(r);
    if (r->measured) print_batches(r);
    if (r->path && !ek_is_dir(r->path) && !r->has_config) print_tensors(r->path);
}

/* --- as JSON --- */

static json_t *shape(const ek_inspect *r)
{
    const ek_config *c = &r->config;
    json_t *m = json_pack("{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:f,s:f,s:f,s:s}", "variant", r->about.variant,
                          "model_type", c->model_type, "layers", c->n_layers, "layers_with_kv", c->first_shared,
                          "hidden_size", c->hidden_size, "vocab_size", c->vocab_size, "experts", c->n_experts,
                          "context", c->max_position_embeddings, "own_head", c->own_head, "weight_bytes",
                          r->weight_bytes, "tower_bytes", r->tower_bytes, "mapped_bytes", r->need.mapped_bytes,
                          "device", r->device);
    if (r->place[0]) json_object_set_new(m, "placing", json_string(r->place));
    if (c->backbone_hidden_size) json_object_set_new(m, "backbone_hidden_size", json_integer(c->backbone_hidden_size));
    return m;
}

static json_t *kv_formats(const ek_inspect *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_kv; i++) {
        const ek_inspect_kv *k = &r->kv[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:f,s:f,s:f,s:i,s:i}", "kv", k->name, "full_bytes_per_token", k->full,
                                        "sliding_bytes_per_token", k->sliding, "request_bytes", k->request,
                                        "batch_that_fits", k->fit, "batch_that_fits_full_context", k->fit_max));
    }
    return list;
}

/* Members for bound models only. */
static void add_need(json_t *m, const ek_inspect *r)
{
    const ek_model_need *n = &r->need;
    json_t *memory = json_array();
    for (int i = 0; i < r->cli->batch.n; i++)
        json_array_append_new(memory, json_pack("{s:i,s:i,s:f}", "batch", r->cli->batch.v[i], "ctx", r->ctx, "kv_bytes",
                                                ek_budget_request_bytes(&n->layout, r->ctx) * r->cli->batch.v[i]));
    json_object_set_new(m, "bytes_per_token", json_real(n->bytes_per_token));
    json_object_set_new(m, "numerics", json_string(n->numerics_id));
    json_object_set_new(m, "memory", memory);
    json_object_set_new(m, "kv",
                        json_pack("{s:f,s:f,s:i,s:f,s:i}", "full_bytes_per_token",
                                  ek_budget_token_bytes(&n->layout, EK_FULL), "sliding_bytes_per_token",
                                  ek_budget_token_bytes(&n->layout, EK_SLIDING), "sliding_window",
                                  n->layout.sliding_window, "free_bytes", r->free_bytes, "batch_that_fits",
                                  ek_budget_requests_in(&n->layout, r->free_bytes, r->ctx)));
}

void ek_inspect_print_json(const ek_inspect *r)
{
    char what[256];
    json_t *types = json_object();
    ek_about_text(what, sizeof what, &r->about);
    json_t *all = json_pack("{s:s,s:s,s:s,s:s,s:b,s:b,s:i,s:f,s:o}", "path", r->path ? r->path : "", "what", what,
                            "container", r->about.container, "format", r->about.format, "drafter", r->about.drafter,
                            "runs", r->runs, "tensors", r->n_tensors, "bytes", r->file_bytes, "types", types);
    if (r->why[0]) json_object_set_new(all, "why", json_string(r->why));
    for (int t = 0; t < r->n_types; t++)
        json_object_set_new(types, r->type[t].name,
                            json_pack("{s:i,s:f}", "tensors", r->type[t].n, "bytes", r->type[t].bytes));
    if (r->has_config) {
        json_t *m = shape(r);
        if (r->measured) add_need(m, r);
        json_object_set_new(m, "kv_formats", kv_formats(r));
        json_object_set_new(all, "model", m);
    }
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    printf("\n");
    json_decref(all);
}
