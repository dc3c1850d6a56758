/* Values with parts: objects and lists. */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "text/json/json.h"
#include "text/reply/call_args.h"
#include "text/schema/schema_work.h"

/* --- objects --- */

static ek_err add_spelling(ek_schema_work *w, const char *key, size_t n, bool quoted, int32_t node, int32_t index)
{
    ek_buf b = {0};
    if (!w->opts.gemma) ek_json_quote(&b, key, n);
    if (quoted) ek_buf_char(&b, EK_GRAPH_QUOTE);
    if (w->opts.gemma) ek_buf_add(&b, key, n);
    if (quoted) ek_buf_char(&b, EK_GRAPH_QUOTE);
    ek_buf_char(&b, ':');
    ek_err err = ek_graph_text_add(w->g, b.data, b.len, node, index);
    ek_buf_fini(&b);
    return err;
}

/* In a call as it was declared, where that can be read; beside names that are not known also with <|"|>, as these may
 * have it. */
static ek_err add_key(ek_schema_work *w, const char *key, size_t n, bool open, int32_t node, int32_t index)
{
    bool bare = w->opts.gemma && ek_call_name_is_bare(key, n);
    if (bare) EK_TRY(add_spelling(w, key, n, false, node, index));
    return !bare || open ? add_spelling(w, key, n, w->opts.gemma, node, index) : EK_OK;
}

typedef struct object {
    json_t *properties; /* new: all that are named, those only required too, in the order of writing */
    json_t *required;   /* new: its keys are the names */
    ek_ids nodes;
    int32_t rest;
    bool closed;
} object;

/* Names that are only required become properties of the kind that other properties are. */
static ek_err collect_properties(ek_schema_work *w, const json_t *schema, object *o)
{
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    if (properties && !json_is_object(properties)) return ek_schema_fail(w, "\"properties\" must be an object");
    if (required && !json_is_array(required)) return ek_schema_fail(w, "\"required\" must be a list of names");
    ek_members m;
    if (w->opts.gemma && properties) {
        ek_members_init(&m, properties);
        for (size_t i = 0; i < m.n; i++)
            json_object_setn_nocheck(o->properties, m.at[i].key, m.at[i].n, (json_t *)(uintptr_t)m.at[i].value);
        ek_members_fini(&m);
    } else if (properties) {
        json_object_update(o->properties, (json_t *)(uintptr_t)properties);
    }
    const json_t *other = json_object_get(schema, "additionalProperties");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (!ek_json_is_text(name) && w->opts.lenient) {
            ek_schema_note(w, "required");
            continue;
        }
        if (!ek_json_is_text(name)) return ek_schema_fail(w, "\"required\" must be a list of names");
        const char *key = json_string_value(name);
        size_t n = json_string_length(name);
        const json_t *known = json_object_getn(o->properties, key, n);
        bool never = json_is_false(known) || (!known && json_is_false(other));
        if (never && w->opts.lenient) {
            ek_schema_note(w, "required");
            continue;
        }
        json_object_setn_new_nocheck(o->required, key, n, json_true());
        if (never) return ek_schema_fail(w, "\"%s\" is required, but may not occur", key);
        if (!known)
            json_object_setn_new_nocheck(o->properties, key, n,
                                         other ? json_incref((json_t *)(uintptr_t)other) : json_true());
    }
    return EK_OK;
}

static ek_err rest_of_object(ek_schema_work *w, const json_t *schema, object *o)
{
    const json_t *other = json_object_get(schema, "additionalProperties");
    o->rest = -1;
    o->closed = json_is_false(other);
    if (o->closed) return EK_OK;
    if (other && !json_is_true(other)) return ek_schema_child(w, "additionalProperties", other, &o->rest);
    /* Nothing is said: with a list of properties these are all, without one anything goes. */
    if (other || !json_object_get(schema, "properties"))
        return ek_graph_any(w->g, w->opts.gemma ? EK_ANY_CALL : EK_ANY_JSON, &o->rest);
    return EK_OK;
}

/* The counts of properties are supported where they say nothing. */
static ek_err check_counts(ek_schema_work *w, const json_t *schema, const object *o)
{
    uint32_t min = 0, max = UINT32_MAX;
    EK_TRY(ek_schema_count(w, schema, "minProperties", &min));
    EK_TRY(ek_schema_count(w, schema, "maxProperties", &max));
    bool few = max < UINT32_MAX && (o->rest >= 0 || max < json_object_size(o->properties));
    if (w->opts.lenient) {
        if (min > json_object_size(o->required)) ek_schema_note(w, "minProperties");
        if (few) ek_schema_note(w, "maxProperties");
        return EK_OK;
    }
    if (min > json_object_size(o->required))
        return ek_schema_fail(w, "the keyword \"minProperties\" is not supported beyond the required properties");
    if (few) return ek_schema_fail(w, "the keyword \"maxProperties\" is not supported below the number of properties");
    return EK_OK;
}

static ek_err compile_properties(ek_schema_work *w, object *o)
{
    for (void *i = json_object_iter(o->properties); i; i = json_object_iter_next(o->properties, i)) {
        const json_t *schema = json_object_iter_value(i);
        int32_t node = -1;
        size_t len = w->path.len;
        ek_buf_str(&w->path, "/properties");
        if (!json_is_false(schema)) EK_TRY(ek_schema_child(w, json_object_iter_key(i), schema, &node));
        w->path.len = len;
        w->path.data[len] = '\0';
        ek_ids_add(&o->nodes, node);
    }
    return EK_OK;
}

static ek_err add_object(ek_schema_work *w, object *o, int32_t *out)
{
    ek_graph *g = w->g;
    EK_TRY(ek_graph_node(g, EK_NODE_OBJECT, w->opts.gemma, out));
    int32_t first = g->n_texts, index = 0, n = (int32_t)o->nodes.len;
    for (void *i = json_object_iter(o->properties); i; i = json_object_iter_next(o->properties, i), index++)
        EK_TRY(add_key(w, json_object_iter_key(i), json_object_iter_key_len(i), o->rest >= 0, o->nodes.data[index],
                       index));
    ek_graph_texts_sort(g, first);
    ek_node *node = &g->nodes[*out];
    node->first = first;
    node->n = g->n_texts - first;
    node->named = n;
    node->wide = w->opts.gemma;
    node->rest = o->rest;
    node->closed = o->closed;
    node->order = g->n_links;
    for (int32_t i = 0; i <= n; i++) EK_TRY(ek_graph_link(g, n));
    int32_t *order = g->links + g->nodes[*out].order;
    index = 0;
    for (void *i = json_object_iter(o->properties); i; i = json_object_iter_next(o->properties, i), index++)
        if (json_object_getn(o->required, json_object_iter_key(i), json_object_iter_key_len(i))) order[index] = index;
    for (int32_t i = n; i-- > 0;)
        if (order[i] != i) order[i] = order[i + 1];
    return EK_OK;
}

ek_err ek_schema_object(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    object o = {.properties = json_object(), .required = json_object()};
    json_array_append_new(w->made, o.properties); /* references by address must stay valid */
    ek_err err = collect_properties(w, schema, &o);
    if (!err) err = rest_of_object(w, schema, &o);
    if (!err) err = check_counts(w, schema, &o);
    if (!err) err = compile_properties(w, &o);
    if (!err) err = add_object(w, &o, out);
    json_decref(o.required);
    ek_ids_fini(&o.nodes);
    return err;
}

/* --- lists --- */

static ek_err compile_items(ek_schema_work *w, const json_t *schema, ek_ids *first, int32_t *rest)
{
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    const char *key = "prefixItems", *rest_key = "items";
    if (json_is_array(items)) { /* the older spelling */
        if (prefix) return ek_schema_fail(w, "\"items\" is a list beside \"prefixItems\"");
        prefix = items;
        key = "items", rest_key = "additionalItems";
        items = json_object_get(schema, rest_key);
    }
    if (prefix && !json_is_array(prefix)) return ek_schema_fail(w, "\"prefixItems\" must be a list of schemas");
    for (size_t i = 0; i < json_array_size(prefix); i++) {
        int32_t node;
        EK_TRY(ek_schema_child_at(w, key, i, json_array_get(prefix, i), &node));
        ek_ids_add(first, node);
    }
    *rest = -1;
    if (json_is_false(items)) return EK_OK;
    if (items) return ek_schema_child(w, rest_key, items, rest);
    return ek_graph_any(w->g, w->opts.gemma ? EK_ANY_CALL : EK_ANY_JSON, rest);
}

ek_err ek_schema_array(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    uint32_t min = 0, max = UINT32_MAX;
    ek_ids first = {0};
    int32_t rest = -1;
    EK_TRY(ek_schema_count(w, schema, "minItems", &min));
    EK_TRY(ek_schema_count(w, schema, "maxItems", &max));
    ek_err err = compile_items(w, schema, &first, &rest);
    if (!err && rest < 0 && max > first.len) max = (uint32_t)first.len;
    if (!err && min > max) err = ek_schema_fail(w, "at least %u and at most %u items", min, max);
    if (!err) err = ek_graph_node(w->g, EK_NODE_ARRAY, w->opts.gemma, out);
    if (!err) {
        ek_node *n = &w->g->nodes[*out];
        n->first = w->g->n_links;
        n->n = (int32_t)first.len;
        n->rest = rest;
        n->min = min, n->max = max;
    }
    for (size_t i = 0; i < first.len && !err; i++) err = ek_graph_link(w->g, first.data[i]);
    ek_ids_fini(&first);
    return err;
}

/* References of a schema, and schemas that are met inside themselves. */

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
