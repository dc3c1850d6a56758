/* Schemas with unsupported parts: leaving a part out only ever allows more. If the part could mention other properties,
 * unnamed properties are allowed too, and if it could mention other types, so are these; otherwise the rest could
 * forbid everything that the schema means. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "text/json/json.h"
#include "text/schema/schema_work.h"

enum { MAX_NOTES = 256, MAX_NAMES = 2000 };

/* --- what is said of it --- */

static void add_step(ek_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool plain = s[i] > ' ' && s[i] < 0x7f && !strchr("\"%,;<>\\^`{|}", s[i]);
        if (plain) ek_buf_char(out, s[i]);
        else ek_buf_fmt(out, "%%%02X", (uint8_t)s[i]);
    }
}

void ek_schema_note(ek_schema_work *w, const char *keyword)
{
    enum { MAX_SHOWN = 200 };
    ek_buf at = {0};
    if (!w->opts.ignored || json_object_size(w->noted) >= MAX_NOTES) return;
    if (w->opts.name) add_step(&at, w->opts.name, strnlen(w->opts.name, MAX_SHOWN));
    ek_buf_char(&at, '#');
    add_step(&at, ek_buf_text(&w->path), w->path.len < MAX_SHOWN ? w->path.len : MAX_SHOWN);
    if (w->path.len > MAX_SHOWN) ek_buf_str(&at, "...");
    if (*keyword) ek_buf_char(&at, '/');
    add_step(&at, keyword, strnlen(keyword, MAX_SHOWN));
    if (!json_object_get(w->noted, at.data)) {
        json_object_set_new_nocheck(w->noted, at.data, json_true());
        if (w->opts.ignored->len > 0) ek_buf_str(w->opts.ignored, ", ");
        ek_buf_add(w->opts.ignored, at.data, at.len);
    }
    ek_buf_fini(&at);
}

/* --- a schema without what cannot be kept --- */

typedef struct cleaner {
    ek_schema_work *w;
    const json_t *from;
    json_t *copy; /* NULL while nothing was left out */
    bool loose;   /* what was left out may speak of any property and type */
} cleaner;

static const json_t *get(const cleaner *c, const char *key)
{
    return json_object_get(c->copy ? c->copy : c->from, key);
}

static json_t *change(cleaner *c)
{
    if (c->copy) return c->copy;
    c->copy = json_copy((json_t *)(uintptr_t)c->from);
    json_array_append_new(c->w->made, c->copy);
    return c->copy;
}

static void drop(cleaner *c, const char *key)
{
    ek_schema_note(c->w, key);
    json_object_del(change(c), key);
}

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

static bool is_list(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) > 0;
}

static bool is_any_list(const json_t *v)
{
    return json_is_array(v);
}

static bool is_object(const json_t *v)
{
    return json_is_object(v);
}

static bool is_text(const json_t *v)
{
    return ek_json_is_text(v);
}

static bool is_count(const json_t *v)
{
    double x = json_is_number(v) ? json_number_value(v) : -1;
    return x >= 0 && x == (double)(uint64_t)(x < 1e18 ? x : 1e18);
}

static bool is_bound(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v);
}

static bool is_types(const json_t *v)
{
    if (json_is_string(v)) return ek_schema_type_of_name(json_string_value(v)) != 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name || !ek_schema_type_of_name(name)) return false;
    }
    return is_list(v);
}

static bool is_items(const json_t *v)
{
    return is_schema(v) || json_is_array(v);
}

/* Values that are no values of their keywords. */
static void drop_wrong(cleaner *c)
{
    static const struct {
        const char *key;
        bool (*fits)(const json_t *v);
        bool loose;
    } rules[] = {{"$ref", is_text, true},
                 {"allOf", is_any_list, false},
                 {"anyOf", is_list, true},
                 {"oneOf", is_list, true},
                 {"enum", is_list, false},
                 {"type", is_types, true},
                 {"properties", is_object, true},
                 {"required", is_any_list, false},
                 {"additionalProperties", is_schema, true},
                 {"patternProperties", is_object, true},
                 {"items", is_items, false},
                 {"prefixItems", is_any_list, false},
                 {"additionalItems", is_schema, false},
                 {"minItems", is_count, false},
                 {"maxItems", is_count, false},
                 {"minLength", is_count, false},
                 {"maxLength", is_count, false},
                 {"minProperties", is_count, false},
                 {"maxProperties", is_count, false},
                 {"pattern", is_text, false},
                 {"minimum", is_bound, false},
                 {"maximum", is_bound, false},
                 {"exclusiveMinimum", is_bound, false},
                 {"exclusiveMaximum", is_bound, false}};
    bool items = !get(c, "prefixItems") || json_is_array(get(c, "prefixItems"));
    bool properties = !get(c, "properties") || is_object(get(c, "properties"));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const json_t *v = get(c, rules[i].key);
        if (!v || rules[i].fits(v)) continue;
        c->loose |= rules[i].loose;
        drop(c, rules[i].key);
    }
    /* these refer to the rest that the left-out ones leave over */
    if (!items && get(c, "items")) drop(c, "items");
    if (!properties && get(c, "additionalProperties")) drop(c, "additionalProperties");
    if (json_is_array(get(c, "items")) && get(c, "prefixItems")) drop(c, "items");
}

/* Names of types in capitals, as some generators write them, mean these types. */
static void lower_types(cleaner *c)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    const json_t *type = json_object_get(c->from, "type");
    if (!json_is_string(type) || ek_schema_type_of_name(json_string_value(type))) return;
    for (int i = 0; i < 7; i++)
        if (!strcasecmp(names[i], json_string_value(type)))
            json_object_set_new_nocheck(change(c), "type", json_string_nocheck(names[i]));
}

/* --- references --- */

static void check_reference(cleaner *c)
{
    const json_t *target;
    const char *ref = ek_json_get_text(get(c, "$ref") ? (c->copy ? c->copy : c->from) : NULL, "$ref", NULL);
    if (!ref || ek_schema_resolve(c->w, ref, &target) == EK_OK) return;
    c->loose = true;
    drop(c, "$ref");
}

/* --- properties --- */

/* Names that match a pattern have values by its schema, others by additionalProperties. Names are not looked at, so
 * each may have any of these values. */
static void join_patterns(cleaner *c)
{
    const json_t *patterns = get(c, "patternProperties"), *other = get(c, "additionalProperties");
    if (!patterns || ek_schema_is_idle(c->copy ? c->copy : c->from, "patternProperties")) return;
    json_t *any = json_array();
    for (void *i = json_object_iter((json_t *)(uintptr_t)patterns); i;
         i = json_object_iter_next((json_t *)(uintptr_t)patterns, i))
        json_array_append(any, json_object_iter_value(i));
    bool all = !other || json_is_true(other) || json_array_size(any) >= EK_GRAPH_ALIKE;
    if (!all && !json_is_false(other)) json_array_append(any, (json_t *)(uintptr_t)other);
    json_t *joined = all ? json_true() : json_pack("{s:o}", "anyOf", json_incref(any));
    json_array_append_new(c->w->made, any); /* nodes refer to its schemas by address */
    drop(c, "patternProperties");
    json_object_set_new_nocheck(c->copy, "additionalProperties", joined);
}

/* Names that come from a list are properties. */
static bool name_properties(cleaner *c)
{
    const json_t *names = get(c, "propertyNames"), *list = ek_json_get(names, "enum"),
                 *other = get(c, "additionalProperties"), *known = get(c, "properties");
    if (!is_list(list) || json_array_size(list) > MAX_NAMES || get(c, "patternProperties")) return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!ek_json_is_text(json_array_get(list, i))) return false;
    json_t *properties = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        const char *key = json_string_value(name);
        size_t n = json_string_length(name);
        const json_t *value = json_object_getn(known, key, n);
        if (!value) value = other;
        json_object_setn_new_nocheck(properties, key, n, value ? json_incref((json_t *)(uintptr_t)value) : json_true());
    }
    json_t *o = change(c);
    json_object_del(o, "propertyNames");
    json_object_set_new_nocheck(o, "properties", properties);
    json_object_set_new_nocheck(o, "additionalProperties", json_false());
    return true;
}

/* --- keywords that the compiler does not have --- */

/* Conditions mean something together only. */
static void drop_condition(cleaner *c)
{
    if (!get(c, "if") || ek_schema_is_idle(c->copy ? c->copy : c->from, "if")) return;
    c->loose = true;
    drop(c, "if");
    json_object_del(c->copy, "then");
    json_object_del(c->copy, "else");
}

static void drop_unknown(cleaner *c)
{
    static const struct {
        const char *key;
        bool loose;
    } rules[] = {{"not", true},
                 {"dependentRequired", true},
                 {"dependentSchemas", true},
                 {"dependencies", true},
                 {"contains", false},
                 {"minContains", false},
                 {"maxContains", false},
                 {"uniqueItems", false},
                 {"divisibleBy", false},
                 {"unevaluatedItems", false},
                 {"$dynamicRef", true},
                 {"$recursiveRef", true},
                 {"disallow", true},
                 {"extends", true}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!get(c, rules[i].key) || ek_schema_is_idle(c->copy ? c->copy : c->from, rules[i].key)) continue;
        c->loose |= rules[i].loose;
        drop(c, rules[i].key);
    }
    const json_t *other = get(c, "unevaluatedProperties");
    if (other && !ek_schema_is_idle(c->copy ? c->copy : c->from, "unevaluatedProperties")) {
        c->loose |= json_is_object(other);
        drop(c, "unevaluatedProperties");
    }
    if (get(c, "multipleOf") && !ek_schema_is_idle(c->copy ? c->copy : c->from, "multipleOf"))
        ek_schema_note(c->w, "multipleOf"); /* whole multiples are whole numbers: that is kept */
    join_patterns(c);
    if (get(c, "propertyNames") && !ek_schema_is_idle(c->copy ? c->copy : c->from, "propertyNames") &&
        !name_properties(c))
        drop(c, "propertyNames");
}

static void check_order(cleaner *c, const char *low, const char *high)
{
    const json_t *a = get(c, low), *b = get(c, high);
    if (!a || !b || json_number_value(a) <= json_number_value(b)) return;
    drop(c, low);
    drop(c, high);
}

/* Nothing is known of other properties and types. */
static void loosen(cleaner *c)
{
    static const char *const all[] = {"null", "boolean", "number", "string", "array", "object"}, *const apart[] = {
                                                                                                     "$ref", "anyOf",
                                                                                                     "oneOf", "allOf"};
    json_t *o = change(c);
    for (int i = 0; i < 4; i++)
        if (json_object_get(o, apart[i])) { /* it goes to the schemas that this one is merged with */
            json_object_set_new_nocheck(o, EK_SCHEMA_LOOSE, json_true());
            return;
        }
    json_object_del(o, EK_SCHEMA_LOOSE);
    if (!json_object_get(o, "additionalProperties"))
        json_object_set_new_nocheck(o, "additionalProperties", json_true());
    if (json_object_get(o, "type") || json_object_get(o, "enum") || json_object_get(o, "const")) return;
    json_t *types = json_array();
    for (int i = 0; i < 6; i++) json_array_append_new(types, json_string_nocheck(all[i]));
    json_object_set_new_nocheck(o, "type", types);
}

const json_t *ek_schema_clean(ek_schema_work *w, const json_t *schema)
{
    cleaner c = {.w = w, .from = schema, .loose = json_object_get(schema, EK_SCHEMA_LOOSE) != NULL};
    lower_types(&c);
    drop_wrong(&c);
    check_reference(&c);
    drop_condition(&c);
    drop_unknown(&c);
    check_order(&c, "minLength", "maxLength");
    check_order(&c, "minItems", "maxItems");
    if (c.loose) loosen(&c);
    return c.copy ? c.copy : schema;
}

/* --- two values of a keyword in one --- */

static json_t *both(json_t *a, json_t *b)
{
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

static json_t *types_of(const json_t *v)
{
    return json_is_array(v) ? json_copy((json_t *)(uintptr_t)v) : json_pack("[O]", v);
}

static bool has(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), v)) return true;
    return false;
}

/* Values of both lists; NULL if there are none. */
static json_t *common(const json_t *a, const json_t *b)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(a); i++)
        if (has(b, json_array_get(a, i))) json_array_append(out, json_array_get(a, i));
    if (json_array_size(out) > 0) return out;
    json_decref(out);
    return NULL;
}

static json_t *common_types(const json_t *a, const json_t *b)
{
    json_t *x = types_of(a), *y = types_of(b), *number = json_string_nocheck("number"),
           *integer = json_string_nocheck("integer");
    if (has(x, number)) json_array_append(x, integer);
    if (has(y, number)) json_array_append(y, integer);
    json_t *out = common(x, y);
    json_decref(x);
    json_decref(y);
    json_decref(number);
    json_decref(integer);
    return out;
}

static json_t *tighter(const char *key, json_t *a, json_t *b)
{
    bool low = !strncmp(key, "min", 3) || !strcmp(key, "exclusiveMinimum");
    if (!low && strncmp(key, "max", 3) && strcmp(key, "exclusiveMaximum")) return NULL;
    if (!json_is_number(a) || !json_is_number(b)) return NULL;
    return json_incref((json_number_value(a) < json_number_value(b)) == low ? b : a);
}

static json_t *tighter_properties(ek_schema_work *w, json_t *a, json_t *b)
{
    if (json_is_true(a) || json_is_false(b)) return json_incref(b);
    if (json_is_true(b) || json_is_false(a)) return json_incref(a);
    return w->depth < EK_SCHEMA_MERGES ? both(a, b) : NULL;
}

json_t *ek_schema_both(ek_schema_work *w, const char *key, json_t *a, json_t *b)
{
    json_t *v = tighter(key, a, b);
    if (v) return v;
    if (!strcmp(key, "type")) return common_types(a, b);
    if (!strcmp(key, "additionalProperties") || (!strcmp(key, "items") && is_schema(a) && is_schema(b)))
        return tighter_properties(w, a, b);
    if (!strcmp(key, "enum") && json_array_size(a) * json_array_size(b) < 100000) return common(a, b);
    return NULL;
}
