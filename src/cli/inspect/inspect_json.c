/* inspect's report as JSON. */
#include <jansson.h>
#include <stdio.h>

#include "cli/inspect/inspect.h"
#include "engine/budget.h"

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
