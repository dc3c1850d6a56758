/* Keywords of a whole schema: the known ones, targets of references, several schemas merged. */
#include "base/encoding.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"
#include "text/schema/schema_work.h"

enum { MAX_HOPS = 64 };

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(word, *list)) return true;
    return false;
}

static const char *const known[] = {"$ref",
                                    "allOf",
                                    "anyOf",
                                    "oneOf",
                                    "enum",
                                    "const",
                                    "type",
                                    "nullable",
                                    "properties",
                                    "required",
                                    "additionalProperties",
                                    "items",
                                    "prefixItems",
                                    "minItems",
                                    "maxItems",
                                    "minLength",
                                    "maxLength",
                                    "pattern",
                                    "minimum",
                                    "maximum",
                                    "exclusiveMinimum",
                                    "additionalItems",
                                    "minProperties",
                                    "maxProperties",
                                    "exclusiveMaximum",
                                    EK_SCHEMA_LOOSE,
                                    NULL};

static const char *const refused[] = {"patternProperties",
                                      "propertyNames",
                                      "dependentRequired",
                                      "dependentSchemas",
                                      "dependencies",
                                      "if",
                                      "then",
                                      "else",
                                      "not",
                                      "contains",
                                      "minContains",
                                      "maxContains",
                                      "uniqueItems",
                                      "multipleOf",
                                      "unevaluatedProperties",
                                      "unevaluatedItems",
                                      "$dynamicRef",
                                      "$recursiveRef",
                                      "divisibleBy",
                                      "disallow",
                                      "extends",
                                      NULL};

bool ek_schema_is_note(const char *keyword)
{
    return !is_one_of(keyword, known) && !is_one_of(keyword, refused);
}

ek_err ek_schema_check_keywords(ek_schema_work *w, const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (!w->opts.lenient && is_one_of(key, refused) && !ek_schema_is_idle(schema, key))
            return ek_schema_fail(w, "the keyword \"%s\" is not supported", key);
    }
    return EK_OK;
}

static bool schema_has_siblings(const json_t *schema, const char *keyword)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (strcmp(key, keyword) && !ek_schema_is_note(key)) return true;
    }
    return false;
}

bool ek_schema_ref_has_siblings(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (strcmp(key, "$ref") && !ek_schema_is_note(key) && !ek_schema_is_idle(schema, key)) return true;
    }
    return false;
}

/* --- references --- */

/* One step of a JSON pointer in a URI: ~0, ~1 and %XX stand for characters. */
static const char *pointer_step(const char *s, ek_buf *out)
{
    ek_buf_clear(out);
    ek_buf_str(out, "");
    for (; *s && *s != '/'; s++) {
        const int byte = *s == '%' ? ek_hex_byte(s + 1, strnlen(s + 1, 2)) : -1;
        if (byte >= 0) {
            ek_buf_char(out, (char)byte);
            s += 2;
        } else if (*s == '~' && (s[1] == '0' || s[1] == '1')) {
            ek_buf_char(out, *++s == '0' ? '~' : '/');
        } else {
            ek_buf_char(out, *s);
        }
    }
    return s;
}

ek_err ek_schema_resolve(ek_schema_work *w, const char *ref, const json_t **out)
{
    const json_t *at = w->doc;
    const char *s = ref;
    ek_buf step = {0};
    if (*s++ != '#' || (*s && *s != '/'))
        return ek_schema_fail(w, "\"$ref\" is \"%.60s\"; only places in the schema itself (#/…) are supported", ref);
    while (*s && at) {
        s = pointer_step(s + 1, &step);
        if (json_is_array(at)) {
            char *end;
            unsigned long i = strtoul(step.data ? step.data : "", &end, 10);
            at = step.len > 0 && step.len < 8 && !*end ? json_array_get(at, i) : NULL;
        } else {
            at = json_object_getn(at, ek_buf_text(&step), step.len);
        }
    }
    ek_buf_fini(&step);
    if (!at) return ek_schema_fail(w, "\"$ref\" names \"%.60s\", which does not exist", ref);
    *out = at;
    return EK_OK;
}

/* --- several schemas in one --- */

/* References at the head of a schema are followed, so that its keywords can be read. */
static ek_err follow(ek_schema_work *w, const json_t **schema)
{
    for (int hops = 0; json_object_get(*schema, "$ref"); hops++) {
        const char *ref = ek_json_get_text(*schema, "$ref", NULL);
        if (!ref || hops == MAX_HOPS) return ek_schema_fail(w, "\"$ref\" must be a text that leads to a schema");
        if (ek_schema_ref_has_siblings(*schema))
            return ek_schema_fail(w, "other keywords beside \"$ref\" are not supported");
        EK_TRY(ek_schema_spend(w, 1 + strlen(ref) / 16));
        EK_TRY(ek_schema_resolve(w, ref, schema));
    }
    return EK_OK;
}

/* Properties of both; the same name must have the same schema. */
static ek_err merge_properties(ek_schema_work *w, json_t *into, const json_t *from)
{
    json_t *have = json_object_get(into, "properties"), *all;
    if (!json_is_object(have) || !json_is_object(from)) return ek_schema_fail(w, "\"properties\" must be an object");
    all = json_copy(have);
    json_object_set_new_nocheck(into, "properties", all);
    for (void *i = json_object_iter((json_t *)(uintptr_t)from); i;
         i = json_object_iter_next((json_t *)(uintptr_t)from, i)) {
        const char *key = json_object_iter_key(i);
        size_t n = json_object_iter_key_len(i);
        const json_t *old = json_object_getn(all, key, n);
        json_t *value = json_object_iter_value(i);
        if (old && !json_equal(old, value)) {
            if (!w->opts.lenient)
                return ek_schema_fail(w, "the property \"%.60s\" has two schemas, which is not supported", key);
            if (w->depth < EK_SCHEMA_MERGES)
                json_object_setn_new_nocheck(all, key, n, json_pack("{s:[O,O]}", "allOf", old, value));
            else ek_schema_note(w, key);
        }
        if (!old) json_object_setn_nocheck(all, key, n, value);
    }
    return EK_OK;
}

static size_t size_of(const json_t *v)
{
    return json_is_object(v) ? json_object_size(v) : json_array_size(v);
}

/* What a comparison may walk through. */
static size_t deep_size(const json_t *v)
{
    size_t n = 1 + size_of(v);
    for (size_t i = 0; i < json_array_size(v); i++) n += deep_size(json_array_get(v, i));
    json_t *o = (json_t *)(uintptr_t)v;
    for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i)) n += deep_size(json_object_iter_value(i));
    return n;
}

static ek_err merge_keyword(ek_schema_work *w, json_t *into, const char *key, json_t *value)
{
    json_t *have = json_object_get(into, key);
    EK_TRY(ek_schema_spend(w, 1 + (have ? size_of(have) : 0) + (have && have != value ? deep_size(value) : 0)));
    if (!have) {
        json_object_set_nocheck(into, key, value);
        return EK_OK;
    }
    if (ek_schema_is_note(key) || json_equal(have, value)) return EK_OK;
    if (!strcmp(key, "properties") && (!w->opts.lenient || (json_is_object(have) && json_is_object(value))))
        return merge_properties(w, into, value);
    if (!strcmp(key, "required") && json_is_array(have) && json_is_array(value)) {
        json_t *all = json_copy(have);
        json_array_extend(all, value);
        json_object_set_new_nocheck(into, key, all);
        return EK_OK;
    }
    if (!strcmp(key, "type") && json_is_string(have) && json_is_string(value)) {
        bool number = !strcmp(json_string_value(have), "number") && !strcmp(json_string_value(value), "integer");
        if (number) json_object_set_nocheck(into, key, value);
        if (number || (!strcmp(json_string_value(have), "integer") && !strcmp(json_string_value(value), "number")))
            return EK_OK;
    }
    if (w->opts.lenient) { /* either of them alone allows more than both */
        json_t *both = ek_schema_both(w, key, have, value);
        if (both) json_object_set_new_nocheck(into, key, both);
        else ek_schema_note(w, key);
        return EK_OK;
    }
    return ek_schema_fail(w, "\"%s\" occurs twice with different values, which is not supported", key);
}

/* additionalProperties speaks of the properties beside it, not of those that come from elsewhere. */
static bool splits_properties(const json_t *a, const json_t *b)
{
    const json_t *other = json_object_get(a, "additionalProperties");
    if (!other || json_is_true(other)) return false;
    const json_t *mine = json_object_get(a, "properties"), *theirs = json_object_get(b, "properties");
    for (void *i = json_object_iter((json_t *)(uintptr_t)theirs); i;
         i = json_object_iter_next((json_t *)(uintptr_t)theirs, i))
        if (!json_object_getn(mine, json_object_iter_key(i), json_object_iter_key_len(i))) return true;
    return false;
}

static ek_err merge(ek_schema_work *w, json_t *into, const json_t *from, int hops);

static ek_err merge_list(ek_schema_work *w, json_t *into, const json_t *list, int hops)
{
    if (!json_is_array(list) && w->opts.lenient) ek_schema_note(w, "allOf");
    else if (!json_is_array(list)) return ek_schema_fail(w, "\"allOf\" must be a list of schemas");
    for (size_t i = 0; i < json_array_size(list); i++) EK_TRY(merge(w, into, json_array_get(list, i), hops + 1));
    return EK_OK;
}

/* In lenient schemas: a reference beside other keywords is one more schema to merge; an invalid reference, and anything
 * that is no schema, is left out. *from: the rest to merge; NULL: nothing. */
static ek_err merge_lenient(ek_schema_work *w, json_t *into, const json_t **from, int hops)
{
    const json_t *target = NULL;
    if (json_is_true(*from)) return EK_OK;
    const char *ref = ek_json_get_text(*from, "$ref", NULL);
    if (!json_is_object(*from)) ek_schema_note(w, "allOf");
    else if (json_object_get(*from, "$ref") && (!ref || ek_schema_resolve(w, ref, &target))) ek_schema_note(w, "$ref");
    else if (target && hops + 1 < MAX_HOPS) return merge(w, into, target, hops + 1);
    else if (!target) return EK_OK;
    else ek_schema_note(w, "$ref");
    json_object_set_new_nocheck(into, EK_SCHEMA_LOOSE, json_true());
    if (!json_is_object(*from)) *from = json_true();
    return EK_OK;
}

static ek_err merge(ek_schema_work *w, json_t *into, const json_t *from, int hops)
{
    const char *key;
    json_t *value;
    if (hops == MAX_HOPS) return ek_schema_fail(w, "more than %d schemas inside each other in \"allOf\"", MAX_HOPS);
    EK_TRY(ek_schema_spend(w, 1)); /* an empty schema too: references repeat it as often as they like */
    if (w->opts.lenient) EK_TRY(merge_lenient(w, into, &from, hops));
    else EK_TRY(follow(w, &from));
    if (json_is_true(from)) return EK_OK;
    if (!json_is_object(from))
        return ek_schema_fail(w, "a schema that is combined with others must be an object or true");
    if (!w->opts.lenient && (splits_properties(into, from) || splits_properties(from, into)))
        return ek_schema_fail(w, "\"additionalProperties\" beside properties from elsewhere is not supported");
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        if (w->opts.lenient && !strcmp(key, "$ref")) continue;
        if (w->opts.lenient && !strcmp(key, "additionalItems") && !json_is_array(json_object_get(from, "items")))
            continue; /* it says nothing where it stands */
        if (!strcmp(key, "allOf")) EK_TRY(merge_list(w, into, value, hops));
        else EK_TRY(merge_keyword(w, into, key, value));
    }
    return EK_OK;
}

ek_err ek_schema_merge_all(ek_schema_work *w, const json_t *schema, const json_t **out)
{
    json_t *all = json_object();
    json_array_append_new(w->made, all);
    *out = all;
    return merge(w, all, schema, 0);
}

/* Merges schema without `except` with branch. */
static ek_err schema_merge_branch(ek_schema_work *w, const json_t *schema, const char *except, const json_t *branch,
                                  const json_t **out)
{
    EK_TRY(ek_schema_spend(w, json_object_size(schema)));
    json_t *all = json_copy((json_t *)(uintptr_t)schema);
    json_object_del(all, except);
    json_array_append_new(w->made, all);
    *out = all;
    return merge(w, all, branch, 0);
}

/* Alternatives of a schema: anyOf, oneOf, several types. */

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
    bool alone = !schema_has_siblings(schema, keyword);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *branch = json_array_get(list, i);
        int32_t node;
        if (json_is_false(branch)) continue;
        if (!alone && !json_is_true(branch)) EK_TRY(schema_merge_branch(w, schema, keyword, branch, &branch));
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
