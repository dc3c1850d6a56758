/* Keywords that exclude nothing: they are never refused and never noted. */
#include <math.h>
#include <string.h>

#include "text/schema/schema_work.h"

/* The types that a keyword speaks of; 0: of all. Values of other types pass it. */
static int subject(const char *key)
{
    static const struct {
        const char *key;
        int types;
    } of[] = {{"patternProperties", EK_TYPE_OBJECT}, {"propertyNames", EK_TYPE_OBJECT},
              {"dependentRequired", EK_TYPE_OBJECT}, {"dependentSchemas", EK_TYPE_OBJECT},
              {"dependencies", EK_TYPE_OBJECT},      {"unevaluatedProperties", EK_TYPE_OBJECT},
              {"minProperties", EK_TYPE_OBJECT},     {"maxProperties", EK_TYPE_OBJECT},
              {"contains", EK_TYPE_ARRAY},           {"minContains", EK_TYPE_ARRAY},
              {"maxContains", EK_TYPE_ARRAY},        {"uniqueItems", EK_TYPE_ARRAY},
              {"unevaluatedItems", EK_TYPE_ARRAY},   {"minItems", EK_TYPE_ARRAY},
              {"maxItems", EK_TYPE_ARRAY},           {"minLength", EK_TYPE_STRING},
              {"maxLength", EK_TYPE_STRING},         {"pattern", EK_TYPE_STRING},
              {"multipleOf", EK_TYPE_NUMBER},        {"divisibleBy", EK_TYPE_NUMBER},
              {"minimum", EK_TYPE_NUMBER},           {"maximum", EK_TYPE_NUMBER},
              {"exclusiveMinimum", EK_TYPE_NUMBER},  {"exclusiveMaximum", EK_TYPE_NUMBER}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(key, of[i].key)) return of[i].types;
    return 0;
}

/* The types that are named, 0 where none are or one is unknown. */
static int named_types(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    int types = json_is_string(type) ? ek_schema_type_of_name(json_string_value(type)) : 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *name = json_string_value(json_array_get(type, i));
        int one = name ? ek_schema_type_of_name(name) : 0;
        if (!one) return 0;
        types |= one;
    }
    return types & EK_TYPE_INTEGER ? types | EK_TYPE_NUMBER : types;
}

static bool is_number(const json_t *v, double x)
{
    return json_is_number(v) && json_number_value(v) == x;
}

/* Every value of these types fits the schema. Looks two levels down: that is what libraries write. */
static bool always(const json_t *schema, int types, int looks)
{
    const char *key;
    json_t *value;
    if (json_is_true(schema)) return true;
    if (!json_is_object(schema) || looks == 0) return false;
    int allowed = named_types(schema);
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (ek_schema_is_note(key)) continue;
        if (!strcmp(key, "type") && types && (allowed & types) == types) continue;
        if (!ek_schema_is_idle(schema, key)) return false;
    }
    return true;
}

static bool all_of(const json_t *v, bool (*fits)(const json_t *one))
{
    if (!json_is_object(v)) return false;
    for (void *i = json_object_iter((json_t *)(uintptr_t)v); i; i = json_object_iter_next((json_t *)(uintptr_t)v, i))
        if (!fits(json_object_iter_value(i))) return false;
    return true;
}

static bool is_always(const json_t *v)
{
    return always(v, 0, 2);
}

static bool is_empty_list(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) == 0;
}

static bool asks_for_nothing(const json_t *v)
{
    return is_empty_list(v) || is_always(v);
}

static bool absent_or_always(const json_t *schema, const char *key)
{
    const json_t *v = json_object_get(schema, key);
    return !v || is_always(v);
}

static bool idle_condition(const json_t *schema, const char *key)
{
    if (strcmp(key, "if")) return !json_object_get(schema, "if") || absent_or_always(schema, key);
    return absent_or_always(schema, "then") && absent_or_always(schema, "else");
}

static bool idle_contains(const json_t *schema, const char *key)
{
    const json_t *min = json_object_get(schema, "minContains");
    if (!json_object_get(schema, "contains")) return true;
    if (!strcmp(key, "minContains")) return is_number(min, 0) || is_number(min, 1);
    return is_number(min, 0) && !json_object_get(schema, "maxContains");
}

/* All whole numbers are multiples of 1, 1/2, 1/4, …: exactly, whatever a validator divides with. */
static bool idle_multiple(const json_t *schema, const json_t *v)
{
    int exponent, numbers = named_types(schema) & (EK_TYPE_NUMBER | EK_TYPE_INTEGER);
    const json_t *type = json_object_get(schema, "type");
    bool integer = json_is_string(type) && numbers && !strcmp(json_string_value(type), "integer");
    for (size_t i = 0; i < json_array_size(type) && numbers; i++) {
        const char *name = json_string_value(json_array_get(type, i));
        if (!strcmp(name, "number")) return is_number(v, 1);
        integer |= !strcmp(name, "integer");
    }
    double x = json_is_number(v) ? json_number_value(v) : 0;
    return x == 1 || (integer && x > 0 && x < 1 && frexp(x, &exponent) == 0.5);
}

static bool says_nothing(const json_t *schema, const char *key, const json_t *v)
{
    static const char *const zero[] = {"minLength", "minItems", "minProperties"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(key, zero[i])) return is_number(v, 0);
    if (!strcmp(key, "uniqueItems")) {
        const json_t *max = json_object_get(schema, "maxItems");
        return json_is_false(v) || is_number(max, 0) || is_number(max, 1);
    }
    if (!strcmp(key, "multipleOf") || !strcmp(key, "divisibleBy")) return idle_multiple(schema, v);
    if (!strcmp(key, "unevaluatedProperties"))
        return is_always(v) || json_object_get(schema, "additionalProperties") != NULL;
    if (!strcmp(key, "unevaluatedItems") || !strcmp(key, "additionalProperties") || !strcmp(key, "additionalItems"))
        return is_always(v);
    if (!strcmp(key, "items")) return is_always(v);
    if (!strcmp(key, "propertyNames")) return always(v, EK_TYPE_STRING, 2);
    if (!strcmp(key, "patternProperties")) {
        const json_t *other = json_object_get(schema, "additionalProperties");
        return all_of(v, is_always) && (json_object_size(v) == 0 || !other || is_always(other));
    }
    if (!strcmp(key, "dependentRequired")) return all_of(v, is_empty_list);
    if (!strcmp(key, "dependentSchemas")) return all_of(v, is_always);
    if (!strcmp(key, "dependencies")) return all_of(v, asks_for_nothing);
    if (!strcmp(key, "if") || !strcmp(key, "then") || !strcmp(key, "else")) return idle_condition(schema, key);
    if (!strcmp(key, "not") || !strcmp(key, "nullable")) return json_is_false(v);
    if (!strcmp(key, "contains") || !strcmp(key, "minContains") || !strcmp(key, "maxContains"))
        return idle_contains(schema, key);
    if (!strcmp(key, "required") || !strcmp(key, "disallow")) return is_empty_list(v);
    if (!strcmp(key, "exclusiveMinimum") || !strcmp(key, "exclusiveMaximum")) return json_is_false(v);
    return false;
}

bool ek_schema_is_idle(const json_t *schema, const char *key)
{
    int types = subject(key), named = types ? named_types(schema) : 0;
    if (named && !(named & types)) return true;
    return says_nothing(schema, key, json_object_get(schema, key));
}
