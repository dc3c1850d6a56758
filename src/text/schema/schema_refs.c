/* References of a schema, and schemas that are met inside themselves. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/json/json.h"
#include "text/schema/schema_work.h"

static ek_schema_ref *find_ref(ek_schema_work *w, const json_t *schema)
{
    for (uint32_t i = (uint32_t)ek_mix64((uint64_t)(uintptr_t)schema) & w->ref_mask;; i = (i + 1) & w->ref_mask)
        if (!w->refs[i].schema || w->refs[i].schema == schema) return &w->refs[i];
}

static void add_ref(ek_schema_work *w, const json_t *schema, int32_t node)
{
    if (2 * w->n_refs >= w->ref_mask) {
        ek_schema_ref *old = w->refs;
        uint32_t n = w->refs ? w->ref_mask + 1 : 0;
        w->ref_mask = n ? 2 * n - 1 : 63;
        w->refs = ek_alloc(sizeof *w->refs * ((size_t)w->ref_mask + 1));
        for (uint32_t i = 0; i < n; i++)
            if (old[i].schema) *find_ref(w, old[i].schema) = old[i];
        free(old);
    }
    *find_ref(w, schema) = (ek_schema_ref){schema, node};
    w->n_refs++;
}

ek_err ek_schema_stand_for(ek_schema_work *w, const json_t *schema, int32_t *out, bool *known)
{
    const ek_schema_ref *ref = w->refs ? find_ref(w, schema) : NULL;
    *known = ref && ref->schema;
    if (*known) {
        *out = ref->node;
        return EK_OK;
    }
    EK_TRY(ek_graph_node(w->g, EK_NODE_UNION, w->opts.gemma, out));
    add_ref(w, schema, *out);
    return EK_OK;
}

ek_err ek_schema_link_one(ek_schema_work *w, int32_t from, int32_t node)
{
    w->g->nodes[from].first = w->g->n_links;
    w->g->nodes[from].n = 1;
    return ek_graph_link(w->g, node);
}

/* Beside other keywords a reference is one more schema that a value must fit. In the older drafts it is alone. */
static ek_err reference_and_more(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    const char *draft = ek_json_get_text(w->doc, "$schema", NULL);
    const json_t *merged;
    if (draft && strstr(draft, "draft-0")) {
        ek_schema_note(w, "");
        json_t *alone = json_pack("{s:O}", "$ref", json_object_get(schema, "$ref"));
        json_array_append_new(w->made, alone);
        merged = alone;
    } else {
        EK_TRY(ek_schema_merge_all(w, schema, &merged));
    }
    return ek_schema_value(w, merged, out);
}

ek_err ek_schema_reference(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    const json_t *target;
    bool known;
    const char *ref = ek_json_get_text(schema, "$ref", NULL);
    if (!ref) return ek_schema_fail(w, "\"$ref\" must be a text");
    if (ek_schema_ref_has_siblings(schema)) {
        if (w->opts.lenient) return reference_and_more(w, schema, out);
        return ek_schema_fail(w, "other keywords beside \"$ref\" are not supported");
    }
    EK_TRY(ek_schema_resolve(w, ref, &target));
    EK_TRY(ek_schema_stand_for(w, target, out, &known));
    if (known) return EK_OK;
    ek_buf path = w->path;
    w->path = (ek_buf){0};
    ek_buf_str(&w->path, ref + 1);
    int32_t node;
    ek_err err = ek_schema_value(w, target, &node);
    if (err) {
        ek_buf_fini(&path);
        return err;
    }
    ek_buf_fini(&w->path);
    w->path = path;
    return ek_schema_link_one(w, *out, node);
}
