/* Alternatives of a schema: anyOf, oneOf, several types. */
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"
#include "text/schema/schema_work.h"

enum { MAX_LOOKS = 2000000, MAX_ONE_OF = 512 };

ek_err ek_schema_union_of(ek_schema_work *w, const ek_ids *ids, int32_t *out)
{
    EK_TRY(ek_graph_node(w->g, EK_NODE_UNION, w->opts.gemma, out));
    w->g->nodes[*out].first = w->g->n_links;
    w->g->nodes[*out].n = (int32_t)ids->len;
    for (size_t i = 0; i < ids->len; i++) EK_TRY(ek_graph_link(w->g, ids->data[i]));
    return EK_OK;
}

static ek_err keep_one_of(ek_schema_work *w, const ek_ids *ids)
{
    if (ids->len > MAX_ONE_OF) return ek_schema_fail(w, "\"oneOf\" has more than %d alternatives", MAX_ONE_OF);
    w->one_of = ek_realloc(w->one_of, sizeof *w->one_of * ((size_t)w->n_one_of + 1));
    ek_schema_one_of *o = &w->one_of[w->n_one_of++];
    size_t shown = w->path.len > EK_SCHEMA_PATH_SHOWN ? EK_SCHEMA_PATH_SHOWN + 1
                                                      : w->path.len; /* a path can be as long as the schema */
    *o = (ek_schema_one_of){ek_alloc(sizeof *o->node * ids->len), (int)ids->len, ek_alloc(shown + 1)};
    memcpy(o->node, ids->data, sizeof *o->node * ids->len);
    memcpy(o->path, ek_buf_text(&w->path), shown);
    return EK_OK;
}

/* So that it can be said where alternatives were left out: known only when the graph is whole. */
static void keep_union(ek_schema_work *w, const char *keyword, int32_t node)
{
    if (w->n_unions == w->cap_unions) {
        w->cap_unions = w->cap_unions ? 2 * w->cap_unions : 16;
        w->unions = ek_realloc(w->unions, sizeof *w->unions * (size_t)w->cap_unions);
    }
    size_t shown = w->path.len > EK_SCHEMA_PATH_SHOWN ? EK_SCHEMA_PATH_SHOWN + 1 : w->path.len;
    ek_schema_union *u = &w->unions[w->n_unions++];
    *u = (ek_schema_union){node, ek_alloc(shown + 1), w->opts.name ? ek_strdup(w->opts.name) : NULL, keyword};
    memcpy(u->path, ek_buf_text(&w->path), shown);
    w->g->nodes[node].loose = true;
}

static ek_err compile_branches(ek_schema_work *w, const json_t *schema, const char *keyword, ek_ids *ids)
{
    const json_t *list = json_object_get(schema, keyword);
    bool alone = !ek_schema_has_siblings(schema, keyword);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *branch = json_array_get(list, i);
        int32_t node;
        if (json_is_false(branch)) continue;
        if (!alone && !json_is_true(branch)) EK_TRY(ek_schema_merge_branch(w, schema, keyword, branch, &branch));
        EK_TRY(ek_schema_child_at(w, keyword, i, branch, &node));
        ek_ids_add(ids, node);
    }
    return EK_OK;
}

ek_err ek_schema_alternatives(ek_schema_work *w, const json_t *schema, const char *keyword, int32_t *out)
{
    const json_t *list = json_object_get(schema, keyword);
    ek_ids ids = {0};
    if (json_array_size(list) == 0) return ek_schema_fail(w, "\"%s\" must be a list with at least one schema", keyword);
    ek_err err = compile_branches(w, schema, keyword, &ids);
    if (!err && ids.len == 0) err = ek_schema_fail(w, "no alternative of \"%s\" can match", keyword);
    if (!err && !w->opts.lenient && !strcmp(keyword, "oneOf")) err = keep_one_of(w, &ids);
    if (!err) err = ek_schema_union_of(w, &ids, out);
    if (!err && w->opts.lenient) keep_union(w, keyword, *out);
    ek_ids_fini(&ids);
    return err;
}

static ek_err check_one_of(ek_schema_work *w, const ek_schema_one_of *o, size_t *budget)
{
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < i; k++) {
            if (w->g->nodes[o->node[i]].depth == EK_GRAPH_NEVER || ek_graph_apart(w->g, o->node[k], o->node[i], budget))
                continue;
            ek_buf_clear(&w->path);
            ek_buf_str(&w->path, o->path);
            return ek_schema_fail(w, "alternatives %d and %d of \"oneOf\" cannot be told apart: use \"anyOf\"", k, i);
        }
    return EK_OK;
}

static void note_unions(ek_schema_work *w)
{
    for (int i = 0; i < w->n_unions; i++) {
        const ek_schema_union *u = &w->unions[i];
        if (!w->g->nodes[u->node].joined) continue;
        ek_buf_clear(&w->path);
        ek_buf_str(&w->path, u->path);
        w->opts.name = u->name;
        ek_schema_note(w, u->keyword);
    }
}

ek_err ek_schema_check_unions(ek_schema_work *w)
{
    size_t budget = MAX_LOOKS;
    note_unions(w);
    for (int i = 0; i < w->n_one_of; i++) EK_TRY(check_one_of(w, &w->one_of[i], &budget));
    return EK_OK;
}
