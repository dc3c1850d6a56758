/* The compiler's frame: types, keywords, and the schema as a whole. */
#include "text/schema/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"
#include "text/schema/schema_work.h"

enum { MAX_WORK = 1000000, MAX_DEPTH = 400 };
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
    int n = w->path.len > EK_SCHEMA_PATH_SHOWN ? EK_SCHEMA_PATH_SHOWN : (int)w->path.len;
    return ek_fail(EK_EINVAL, "#%.*s%s: %s", n, ek_buf_text(&w->path), w->path.len > EK_SCHEMA_PATH_SHOWN ? "…" : "",
                   text);
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
    else if (!err) err = ek_schema_union_of(w, &ids, out);
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
    ek_err err = ek_schema_union_of(w, &ids, out);
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
    if (json_object_get(schema, "$ref")) return ek_schema_reference(w, schema, out);
    if (json_object_get(schema, "allOf")) {
        EK_TRY(ek_schema_merge_all(w, schema, &schema));
        return ek_schema_value(w, schema, out);
    }
    if (json_object_get(schema, "anyOf")) return ek_schema_alternatives(w, schema, "anyOf", out);
    if (json_object_get(schema, "oneOf")) return ek_schema_alternatives(w, schema, "oneOf", out);
    bool texts = json_object_get(schema, "enum") || json_object_get(schema, "const");
    if (texts && w->opts.lenient) return lenient_texts(w, schema, out);
    return texts ? ek_schema_texts(w, schema, out) : compile_types(w, schema, out);
}

/* Schemas that are merged with others are made anew at each place, so recursive ones are recognised by their originals.
 */
static ek_err lenient(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    const json_t *clean = ek_schema_clean(w, schema);
    bool known, merged = json_object_get(schema, "allOf") ||
                         (json_object_get(clean, "$ref") && ek_schema_ref_has_siblings(clean));
    int32_t node;
    if (json_is_true(json_object_get(clean, "nullable"))) return or_null(w, clean, out);
    if (!merged) return by_keywords(w, clean, out);
    /* not the place that a reference to it has: that one leads here */
    EK_TRY(ek_schema_stand_for(w, (const json_t *)((uintptr_t)schema | 1), out, &known));
    if (known) return EK_OK;
    EK_TRY(by_keywords(w, clean, &node));
    return ek_schema_link_one(w, *out, node);
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

ek_err ek_schema_finish(ek_schema_work *w)
{
    EK_TRY(ek_graph_finish(w->g));
    for (size_t i = 0; i < w->roots.len; i++) {
        if (ek_graph_can_end(w->g, w->roots.data[i])) continue;
        if (!w->lenient[i]) return ek_fail(EK_EINVAL, "no value fits the schema within %d levels", EK_GRAPH_DEPTH - 1);
        return ek_fail(EK_ETOOLARGE, "no value fits a schema within %d levels", EK_GRAPH_DEPTH - 1);
    }
    return ek_schema_check_unions(w);
}
