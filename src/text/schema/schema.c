/* The compiler's frame: references, alternatives, types. */
#include "text/schema/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/json/json.h"
#include "text/schema/schema_work.h"

enum { MAX_WORK = 1000000, MAX_LOOKS = 2000000, MAX_DEPTH = 400, MAX_ONE_OF = 512, PATH_SHOWN = 120 };
enum { MAX_PATTERN_STEPS = 3 * EK_REGEX_WORK }; /* 0.2 s */

ek_schema_work *ek_schema_begin(ek_graph *g)
{
    ek_schema_work *w = ek_alloc(sizeof *w);
    w->g = g;
    w->made = json_array();
    w->patterns = json_object();
    w->noted = json_object();
    w->regex_left = MAX_PATTERN_STEPS;
    return w;
}

void ek_schema_end(ek_schema_work *w)
{
    if (!w) return;
    for (int i = 0; i < w->n_one_of; i++) {
        free(w->one_of[i].node);
        free(w->one_of[i].path);
    }
    free(w->one_of);
    free(w->refs);
    ek_buf_fini(&w->path);
    ek_ids_fini(&w->roots);
    json_decref(w->made);
    for (int i = 0; i < w->n_unions; i++) {
        free(w->unions[i].path);
        free(w->unions[i].name);
    }
    free(w->unions);
    free(w->lenient);
    json_decref(w->patterns);
    json_decref(w->noted);
    free(w);
}

ek_err ek_schema_fail(ek_schema_work *w, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    int n = w->path.len > PATH_SHOWN ? PATH_SHOWN : (int)w->path.len;
    return ek_fail(EK_EINVAL, "#%.*s%s: %s", n, ek_buf_text(&w->path), w->path.len > PATH_SHOWN ? "…" : "", text);
}

ek_err ek_schema_child(ek_schema_work *w, const char *key, const json_t *schema, int32_t *out)
{
    size_t len = w->path.len;
    ek_buf_char(&w->path, '/');
    ek_buf_str(&w->path, key);
    EK_TRY(ek_schema_value(w, schema, out));
    w->path.len = len;
    w->path.data[len] = '\0';
    return EK_OK;
}

ek_err ek_schema_child_at(ek_schema_work *w, const char *key, size_t i, const json_t *schema, int32_t *out)
{
    char at[64];
    snprintf(at, sizeof at, "%s/%zu", key, i);
    return ek_schema_child(w, at, schema, out);
}

/* --- references --- */

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

/* A union of one stands for a schema that may be met again inside itself. *known: it was met before. */
static ek_err stand_for(ek_schema_work *w, const json_t *schema, int32_t *out, bool *known)
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

static ek_err link_one(ek_schema_work *w, int32_t from, int32_t node)
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

static ek_err reference(ek_schema_work *w, const json_t *schema, int32_t *out)
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
    EK_TRY(stand_for(w, target, out, &known));
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
    return link_one(w, *out, node);
}

/* --- alternatives --- */

static ek_err add_union(ek_schema_work *w, const ek_ids *ids, int32_t *out)
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
    size_t shown = w->path.len > PATH_SHOWN ? PATH_SHOWN + 1 : w->path.len; /* a path can be as long as the schema */
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
    size_t shown = w->path.len > PATH_SHOWN ? PATH_SHOWN + 1 : w->path.len;
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

static ek_err alternatives(ek_schema_work *w, const json_t *schema, const char *keyword, int32_t *out)
{
    const json_t *list = json_object_get(schema, keyword);
    ek_ids ids = {0};
    if (json_array_size(list) == 0) return ek_schema_fail(w, "\"%s\" must be a list with at least one schema", keyword);
    ek_err err = compile_branches(w, schema, keyword, &ids);
    if (!err && ids.len == 0) err = ek_schema_fail(w, "no alternative of \"%s\" can match", keyword);
    if (!err && !w->opts.lenient && !strcmp(keyword, "oneOf")) err = keep_one_of(w, &ids);
    if (!err) err = add_union(w, &ids, out);
    if (!err && w->opts.lenient) keep_union(w, keyword, *out);
    ek_ids_fini(&ids);
    return err;
}

/* --- types --- */

static ek_err compile_words(ek_schema_work *w, bool null, int32_t *out)
{
    static const char *const words[] = {"true", "false", "null"};
    EK_TRY(ek_graph_node(w->g, EK_NODE_TEXTS, w->opts.gemma, out));
    int32_t first = w->g->n_texts;
    for (int i = null ? 2 : 0; i < (null ? 3 : 2); i++)
        EK_TRY(ek_graph_text_add(w->g, words[i], strlen(words[i]), -1, 0));
    ek_graph_texts_sort(w->g, first);
    w->g->nodes[*out].first = first;
    w->g->nodes[*out].n = w->g->n_texts - first;
    return EK_OK;
}

static ek_err compile_type(ek_schema_work *w, const json_t *schema, int type, int32_t *out)
{
    switch (type) {
    case EK_TYPE_NULL: return compile_words(w, true, out);
    case EK_TYPE_BOOLEAN: return compile_words(w, false, out);
    case EK_TYPE_INTEGER: return ek_schema_number(w, schema, true, out);
    case EK_TYPE_NUMBER: return ek_schema_number(w, schema, false, out);
    case EK_TYPE_STRING: return ek_schema_string(w, schema, out);
    case EK_TYPE_ARRAY: return ek_schema_array(w, schema, out);
    default: return ek_schema_object(w, schema, out);
    }
}

static ek_err compile_types(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    int types;
    EK_TRY(ek_schema_types(w, schema, &types));
    if (types == 0) return ek_graph_any(w->g, w->opts.gemma ? EK_ANY_CALL : EK_ANY_JSON, out);
    if (types & EK_TYPE_NUMBER) types &= ~EK_TYPE_INTEGER;
    ek_ids ids = {0};
    ek_err err = EK_OK;
    for (int type = EK_TYPE_OBJECT; type > 0 && !err; type >>= 1) {
        int32_t node;
        if (!(types & type)) continue;
        err = compile_type(w, schema, type, &node);
        if (!err) ek_ids_add(&ids, node);
    }
    if (!err && ids.len == 1) *out = ids.data[0];
    else if (!err) err = add_union(w, &ids, out);
    ek_ids_fini(&ids);
    return err;
}

static json_t *without(ek_schema_work *w, const json_t *schema, const char *a, const char *b)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)schema);
    json_object_del(copy, a);
    if (b) json_object_del(copy, b);
    json_array_append_new(w->made, copy);
    return copy;
}

static ek_err or_null(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    int32_t node, null;
    ek_ids ids = {0};
    EK_TRY(ek_schema_value(w, without(w, schema, "nullable", NULL), &node));
    EK_TRY(compile_words(w, true, &null));
    ek_ids_add(&ids, node);
    ek_ids_add(&ids, null);
    ek_err err = add_union(w, &ids, out);
    if (!err) w->g->nodes[*out].loose = true;
    ek_ids_fini(&ids);
    return err;
}

/* Values that are listed beside a type that none of them has are meant; without any that can be written the type is. */
static ek_err lenient_texts(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    if (ek_schema_texts(w, schema, out) == EK_OK) return EK_OK;
    if (json_object_get(schema, "type") && ek_schema_texts(w, without(w, schema, "type", NULL), out) == EK_OK) {
        ek_schema_note(w, "type");
        return EK_OK;
    }
    ek_schema_note(w, json_object_get(schema, "enum") ? "enum" : "const");
    return ek_schema_value(w, without(w, schema, "enum", "const"), out);
}

/* An object, by its keywords. */
static ek_err by_keywords(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    if (json_object_get(schema, "$ref")) return reference(w, schema, out);
    if (json_object_get(schema, "allOf")) {
        EK_TRY(ek_schema_merge_all(w, schema, &schema));
        return ek_schema_value(w, schema, out);
    }
    if (json_object_get(schema, "anyOf")) return alternatives(w, schema, "anyOf", out);
    if (json_object_get(schema, "oneOf")) return alternatives(w, schema, "oneOf", out);
    bool texts = json_object_get(schema, "enum") || json_object_get(schema, "const");
    if (texts && w->opts.lenient) return lenient_texts(w, schema, out);
    return texts ? ek_schema_texts(w, schema, out) : compile_types(w, schema, out);
}

/* Schemas that are merged with others are made anew wherever they are met: those that meet themselves are known by
 * what they were before. */
static ek_err lenient(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    const json_t *clean = ek_schema_clean(w, schema);
    bool known, merged = json_object_get(schema, "allOf") ||
                         (json_object_get(clean, "$ref") && ek_schema_ref_has_siblings(clean));
    int32_t node;
    if (json_is_true(json_object_get(clean, "nullable"))) return or_null(w, clean, out);
    if (!merged) return by_keywords(w, clean, out);
    /* not the place that a reference to it has: that one leads here */
    EK_TRY(stand_for(w, (const json_t *)((uintptr_t)schema | 1), out, &known));
    if (known) return EK_OK;
    EK_TRY(by_keywords(w, clean, &node));
    return link_one(w, *out, node);
}

static ek_err compile(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    if (json_is_true(schema)) return ek_graph_any(w->g, w->opts.gemma ? EK_ANY_CALL : EK_ANY_JSON, out);
    if (json_is_false(schema)) return ek_schema_fail(w, "false allows no value");
    if (!json_is_object(schema)) return ek_schema_fail(w, "a schema must be an object, true or false");
    EK_TRY(ek_schema_check_keywords(w, schema));
    return w->opts.lenient ? lenient(w, schema, out) : by_keywords(w, schema, out);
}

ek_err ek_schema_spend(ek_schema_work *w, size_t work)
{
    w->work += work;
    return w->work > MAX_WORK ? ek_fail(EK_ETOOLARGE, "the schema repeats itself too often") : EK_OK;
}

ek_err ek_schema_value(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    EK_TRY(ek_schema_spend(w, 1));
    if (w->depth == MAX_DEPTH && w->opts.lenient) {
        ek_schema_note(w, "");
        return ek_graph_any(w->g, w->opts.gemma ? EK_ANY_CALL : EK_ANY_JSON, out);
    }
    if (w->depth == MAX_DEPTH) return ek_schema_fail(w, "more than %d schemas inside each other", MAX_DEPTH);
    size_t len = w->path.len;
    w->depth++;
    ek_err err = compile(w, schema, out);
    w->depth--;
    if (err != EK_EINVAL || !w->opts.lenient) return err;
    if (w->path.len > len) { /* a part of it failed further down */
        w->path.len = len;
        w->path.data[len] = '\0';
    }
    ek_schema_note(w, "");
    return ek_graph_any(w->g, w->opts.gemma ? EK_ANY_CALL : EK_ANY_JSON, out);
}

ek_err ek_schema_compile(ek_schema_work *w, const json_t *schema, const ek_schema_opts *opts, int32_t *root)
{
    free(w->refs);
    w->refs = NULL;
    w->n_refs = w->ref_mask = 0;
    ek_buf_clear(&w->path);
    w->doc = schema;
    w->opts = *opts;
    w->depth = 0;
    EK_TRY(ek_schema_value(w, schema, root));
    ek_schema_add_root(w, *root);
    return EK_OK;
}

void ek_schema_add_root(ek_schema_work *w, int32_t node)
{
    ek_ids_add(&w->roots, node);
    w->lenient = ek_realloc(w->lenient, w->roots.len);
    w->lenient[w->roots.len - 1] = w->opts.lenient;
}

void ek_schema_leave_out(ek_schema_work *w, const ek_schema_opts *opts)
{
    ek_buf_clear(&w->path);
    w->opts = *opts;
    ek_schema_note(w, "");
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

ek_err ek_schema_finish(ek_schema_work *w)
{
    EK_TRY(ek_graph_finish(w->g));
    for (size_t i = 0; i < w->roots.len; i++) {
        if (ek_graph_can_end(w->g, w->roots.data[i])) continue;
        if (!w->lenient[i]) return ek_fail(EK_EINVAL, "no value fits the schema within %d levels", EK_GRAPH_DEPTH - 1);
        return ek_fail(EK_ETOOLARGE, "no value fits a schema within %d levels", EK_GRAPH_DEPTH - 1);
    }
    note_unions(w);
    size_t budget = MAX_LOOKS;
    for (int i = 0; i < w->n_one_of; i++) EK_TRY(check_one_of(w, &w->one_of[i], &budget));
    return EK_OK;
}
