#include "validate.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

#define CHECK(keyword, holds) \
    if (!(holds)) return *why = keyword, false

static bool has_type(const json_t *v, const char *type)
{
    if (!strcmp(type, "null")) return json_is_null(v);
    if (!strcmp(type, "boolean")) return json_is_boolean(v);
    if (!strcmp(type, "string")) return json_is_string(v);
    if (!strcmp(type, "array")) return json_is_array(v);
    if (!strcmp(type, "object")) return json_is_object(v);
    if (!strcmp(type, "number")) return json_is_number(v);
    return json_is_integer(v) || (json_is_real(v) && floor(json_real_value(v)) == json_real_value(v));
}

static bool type_fits(const json_t *type, const json_t *v)
{
    if (json_is_string(type)) return has_type(v, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        if (has_type(v, json_string_value(json_array_get(type, i)))) return true;
    return false;
}

static bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool is_in(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (equal(json_array_get(list, i), v)) return true;
    return false;
}

static size_t characters(const json_t *v)
{
    size_t n = 0, i = 0, len = json_string_length(v);
    uint32_t cp;
    for (; i < len; n++) {
        int step = ek_utf8_next(json_string_value(v) + i, len - i, &cp);
        i += (size_t)(step < 0 ? -step : step);
    }
    return n;
}

/* By the C library's matcher, byte by byte: patterns must not tell bytes of a character apart. */
static bool pattern_fits(const json_t *pattern, const json_t *v)
{
    regex_t r;
    regmatch_t all = {.rm_so = 0, .rm_eo = (regoff_t)json_string_length(v)};
    if (regcomp(&r, json_string_value(pattern), REG_EXTENDED)) abort();
    bool fits = regexec(&r, json_string_value(v), 1, &all, REG_STARTEND) == 0;
    regfree(&r);
    return fits;
}

static int count(const json_t *doc, const json_t *list, const json_t *v)
{
    const char *ignored;
    int n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) n += is_valid(doc, json_array_get(list, i), v, &ignored);
    return n;
}

static bool number_valid(const json_t *s, const json_t *v, const char **why)
{
    double x = json_number_value(v);
    const json_t *b;
    CHECK("minimum", !(b = json_object_get(s, "minimum")) || x >= json_number_value(b));
    CHECK("maximum", !(b = json_object_get(s, "maximum")) || x <= json_number_value(b));
    CHECK("exclusiveMinimum", !(b = json_object_get(s, "exclusiveMinimum")) || x > json_number_value(b));
    CHECK("exclusiveMaximum", !(b = json_object_get(s, "exclusiveMaximum")) || x < json_number_value(b));
    return true;
}

static bool array_valid(const json_t *doc, const json_t *s, const json_t *v, const char **why)
{
    const json_t *b, *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    size_t n = json_array_size(v);
    CHECK("minItems", !(b = json_object_get(s, "minItems")) || n >= (size_t)json_integer_value(b));
    CHECK("maxItems", !(b = json_object_get(s, "maxItems")) || n <= (size_t)json_integer_value(b));
    for (size_t i = 0; i < n; i++) {
        const json_t *item = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (item && !is_valid(doc, item, json_array_get(v, i), why)) return false;
    }
    return true;
}

static bool object_valid(const json_t *doc, const json_t *s, const json_t *v, const char **why)
{
    const json_t *properties = json_object_get(s, "properties"), *required = json_object_get(s, "required"),
                 *other = json_object_get(s, "additionalProperties");
    for (size_t i = 0; i < json_array_size(required); i++)
        CHECK("required", json_object_get(v, json_string_value(json_array_get(required, i))));
    for (void *i = json_object_iter((json_t *)(uintptr_t)v); i; i = json_object_iter_next((json_t *)(uintptr_t)v, i)) {
        const json_t *schema = json_object_getn(properties, json_object_iter_key(i), json_object_iter_key_len(i));
        if (!schema) schema = other;
        if (schema && !is_valid(doc, schema, json_object_iter_value(i), why)) return false;
    }
    return true;
}

bool is_valid(const json_t *doc, const json_t *s, const json_t *v, const char **why)
{
    const json_t *b;
    if (json_is_boolean(s)) return *why = "false", json_is_true(s);
    if ((b = json_object_get(s, "$ref"))) {
        const char *ref = json_string_value(b);
        if (!strcmp(ref, "#")) return is_valid(doc, doc, v, why);
        return is_valid(doc, json_object_get(json_object_get(doc, "$defs"), ref + strlen("#/$defs/")), v, why);
    }
    CHECK("type", !(b = json_object_get(s, "type")) || type_fits(b, v));
    CHECK("enum", !(b = json_object_get(s, "enum")) || is_in(b, v));
    CHECK("const", !(b = json_object_get(s, "const")) || equal(b, v));
    b = json_object_get(s, "allOf");
    CHECK("allOf", count(doc, b, v) == (int)json_array_size(b));
    CHECK("anyOf", !(b = json_object_get(s, "anyOf")) || count(doc, b, v) > 0);
    CHECK("oneOf", !(b = json_object_get(s, "oneOf")) || count(doc, b, v) == 1);
    if (json_is_number(v)) return number_valid(s, v, why);
    if (json_is_array(v)) return array_valid(doc, s, v, why);
    if (json_is_object(v)) return object_valid(doc, s, v, why);
    if (!json_is_string(v)) return true;
    CHECK("minLength", !(b = json_object_get(s, "minLength")) || characters(v) >= (size_t)json_integer_value(b));
    CHECK("maxLength", !(b = json_object_get(s, "maxLength")) || characters(v) <= (size_t)json_integer_value(b));
    CHECK("pattern", !(b = json_object_get(s, "pattern")) || pattern_fits(b, v));
    return true;
}
