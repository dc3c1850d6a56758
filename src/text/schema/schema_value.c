/* Values without parts: types, enumerated values, numbers, strings. */
#include "text/json/json.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/schema/schema_work.h"
#include "text/utf8.h"

/* --- types --- */

int ek_schema_type_of_name(const char *s)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    for (int i = 0; i < 7; i++)
        if (!strcmp(s, names[i])) return 1 << i;
    return 0;
}

static ek_err add_type(ek_schema_work *w, const json_t *v, int *types)
{
    int type = ek_json_is_text(v) ? ek_schema_type_of_name(json_string_value(v)) : 0;
    *types |= type;
    if (type) return EK_OK;
    if (!ek_json_is_text(v)) return ek_schema_fail(w, "\"type\" must be a type's name or a list of them");
    return ek_schema_fail(w, "\"type\" names \"%.40s\", which is no JSON type", json_string_value(v));
}

/* Keywords without a type speak of one: values of other types would pass, and are not offered. */
static int implied_types(const json_t *schema)
{
    static const struct {
        const char *keyword;
        int type;
    } implied[] = {{"properties", EK_TYPE_OBJECT},
                   {"required", EK_TYPE_OBJECT},
                   {"additionalProperties", EK_TYPE_OBJECT},
                   {"minProperties", EK_TYPE_OBJECT},
                   {"maxProperties", EK_TYPE_OBJECT},
                   {"items", EK_TYPE_ARRAY},
                   {"prefixItems", EK_TYPE_ARRAY},
                   {"minItems", EK_TYPE_ARRAY},
                   {"maxItems", EK_TYPE_ARRAY},
                   {"minLength", EK_TYPE_STRING},
                   {"maxLength", EK_TYPE_STRING},
                   {"pattern", EK_TYPE_STRING},
                   {"minimum", EK_TYPE_NUMBER},
                   {"maximum", EK_TYPE_NUMBER},
                   {"exclusiveMinimum", EK_TYPE_NUMBER},
                   {"exclusiveMaximum", EK_TYPE_NUMBER}};
    int types = 0;
    for (size_t i = 0; i < sizeof implied / sizeof *implied; i++)
        if (json_object_get(schema, implied[i].keyword)) types |= implied[i].type;
    return types;
}

ek_err ek_schema_types(ek_schema_work *w, const json_t *schema, int *types)
{
    const json_t *type = json_object_get(schema, "type");
    *types = 0;
    if (json_is_array(type) && json_array_size(type) == 0) return ek_schema_fail(w, "\"type\" is an empty list");
    if (!type) *types = implied_types(schema);
    else if (!json_is_array(type)) EK_TRY(add_type(w, type, types));
    for (size_t i = 0; i < json_array_size(type); i++) EK_TRY(add_type(w, json_array_get(type, i), types));
    if (*types && json_is_true(json_object_get(schema, "nullable"))) *types |= EK_TYPE_NULL;
    const json_t *multiple = json_object_get(
        schema, "multipleOf"); /* 1; others are left out, but multiples of whole numbers are whole */
    double x = json_is_number(multiple) ? json_number_value(multiple) : 0;
    if ((x == 1 || (w->opts.lenient && x > 1 && x == floor(x))) && *types & EK_TYPE_NUMBER)
        *types = (*types & ~EK_TYPE_NUMBER) | EK_TYPE_INTEGER;
    return EK_OK;
}

ek_err ek_schema_count(ek_schema_work *w, const json_t *schema, const char *keyword, uint32_t *out)
{
    const json_t *v = json_object_get(schema, keyword);
    if (!v) return EK_OK;
    double x = json_is_number(v) ? json_number_value(v) : -1;
    if (x < 0 || x != floor(x)) return ek_schema_fail(w, "\"%s\" must be a whole number from 0 on", keyword);
    *out = x < 4e9 ? (uint32_t)x : UINT32_MAX - 1;
    return EK_OK;
}

/* --- enumerated values --- */

static void write_gemma(ek_buf *out, const json_t *v);

static void write_gemma_text(ek_buf *out, const char *s, size_t n)
{
    ek_buf_char(out, EK_GRAPH_QUOTE);
    ek_buf_add(out, s, n);
    ek_buf_char(out, EK_GRAPH_QUOTE);
}

static bool is_word(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9') ||
              s[i] == '_' || (signed char)s[i] < 0))
            return false;
    return n > 0;
}

static void write_gemma_object(ek_buf *out, const json_t *v)
{
    ek_members m;
    ek_members_init(&m, v);
    ek_buf_char(out, '{');
    for (size_t i = 0; i < m.n; i++) {
        if (i) ek_buf_char(out, ',');
        if (is_word(m.at[i].key, m.at[i].n)) ek_buf_add(out, m.at[i].key, m.at[i].n);
        else write_gemma_text(out, m.at[i].key, m.at[i].n);
        ek_buf_char(out, ':');
        write_gemma(out, m.at[i].value);
    }
    ek_buf_char(out, '}');
    ek_members_fini(&m);
}

/* As the chat template writes a call's arguments. */
static void write_gemma(ek_buf *out, const json_t *v)
{
    if (ek_json_is_text(v)) {
        write_gemma_text(out, json_string_value(v), json_string_length(v));
    } else if (json_is_object(v)) {
        write_gemma_object(out, v);
    } else if (json_is_array(v)) {
        ek_buf_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) ek_buf_char(out, ',');
            write_gemma(out, json_array_get(v, i));
        }
        ek_buf_char(out, ']');
    } else {
        ek_json_write(out, v);
    }
}

static bool has_odd_number(const json_t *v)
{
    if (ek_json_odd_number(v)) return true;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (has_odd_number(json_array_get(v, i))) return true;
    if (!json_is_object(v)) return false;
    for (void *i = json_object_iter((json_t *)(uintptr_t)v); i; i = json_object_iter_next((json_t *)(uintptr_t)v, i))
        if (has_odd_number(json_object_iter_value(i))) return true;
    return false;
}

static int type_of(const json_t *v)
{
    if (json_is_real(v))
        return EK_TYPE_NUMBER | (json_real_value(v) == floor(json_real_value(v)) ? EK_TYPE_INTEGER : 0);
    return json_is_null(v)      ? EK_TYPE_NULL
           : json_is_boolean(v) ? EK_TYPE_BOOLEAN
           : json_is_integer(v) ? EK_TYPE_INTEGER | EK_TYPE_NUMBER
           : json_is_string(v)  ? EK_TYPE_STRING
           : json_is_array(v)   ? EK_TYPE_ARRAY
                                : EK_TYPE_OBJECT;
}

/* Beside enum and const only `type` is looked at; other keywords would have to be checked value by value. */
static ek_err check_alone(ek_schema_work *w, const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (ek_schema_is_note(key) || !strcmp(key, "enum") || !strcmp(key, "const") || !strcmp(key, "type") ||
            !strcmp(key, "nullable") || !strcmp(key, EK_SCHEMA_LOOSE))
            continue;
        if (ek_schema_is_idle(schema, key)) continue;
        if (w->opts.lenient) ek_schema_note(w, key);
        else return ek_schema_fail(w, "\"%s\" beside \"enum\" or \"const\" is not supported", key);
    }
    return EK_OK;
}

static ek_err add_value(ek_schema_work *w, const json_t *v, int types)
{
    if (types && !(types & type_of(v))) return EK_OK;
    if (has_odd_number(v)) return ek_schema_fail(w, "a number of \"enum\" or \"const\" does not fit 64 bits");
    ek_buf b = {0};
    if (w->opts.gemma) write_gemma(&b, v);
    else ek_json_write(&b, v);
    ek_err err = ek_graph_text_add(w->g, b.data, b.len, -1, 0);
    ek_buf_fini(&b);
    return err;
}

ek_err ek_schema_texts(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    int types = 0;
    EK_TRY(check_alone(w, schema));
    if (json_object_get(schema, "type")) EK_TRY(ek_schema_types(w, schema, &types));
    if (list && !json_is_array(list)) return ek_schema_fail(w, "\"enum\" must be a list of values");
    EK_TRY(ek_graph_node(w->g, EK_NODE_TEXTS, w->opts.gemma, out));
    int32_t first = w->g->n_texts;
    bool only_listed = !list;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        only_listed |= only && json_equal(v, only);
        if (!only) EK_TRY(add_value(w, v, types));
    }
    if (only && only_listed) EK_TRY(add_value(w, only, types));
    ek_graph_texts_sort(w->g, first);
    w->g->nodes[*out].first = first;
    w->g->nodes[*out].n = w->g->n_texts - first;
    if (w->g->n_texts == first) return ek_schema_fail(w, "\"enum\" or \"const\" has no value of the type");
    return EK_OK;
}

/* --- numbers --- */

#define MAX_INTEGER 999999999999999999 /* 18 digits */

/* x * 10^fraction as a whole number, rounded up or down; *exact: without rounding. False if it has more than 18
 * digits. Doubles count as their shortest decimal spelling, which reads back as the same double. */
static bool scale(const json_t *x, int fraction, bool up, int64_t *out, bool *exact)
{
    ek_buf b = {0};
    ek_json_write(&b, x);
    const char *s = ek_buf_text(&b);
    bool negative = *s == '-', point = false;
    uint64_t v = 0;
    long shift = fraction;
    for (s += negative; (*s >= '0' && *s <= '9') || *s == '.'; s++) {
        if (*s == '.') point = true;
        else v = v * 10 + (uint64_t)(*s - '0'), shift -= point; /* at most 17 digits of a double, or an int64 */
    }
    if (*s == 'e' || *s == 'E') shift += strtol(s + 1, NULL, 10);
    ek_buf_fini(&b);
    *exact = true;
    for (; shift > 0 && v != 0; shift--) {
        if (v > MAX_INTEGER / 10) return false;
        v *= 10;
    }
    bool cut = false;
    for (; shift < 0 && v != 0; shift++) {
        cut |= v % 10 != 0;
        v /= 10;
    }
    if (v > MAX_INTEGER) return false;
    *exact = !cut;
    if (cut && up != negative) v++;
    *out = negative ? -(int64_t)v : (int64_t)v;
    return true;
}

typedef struct bound {
    const json_t *v;
    bool exclusive, low;
} bound;

static ek_err read_bounds(ek_schema_work *w, const json_t *schema, bound b[4], int *n)
{
    static const char *const names[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    *n = 0;
    for (int i = 0; i < 4; i++) {
        const json_t *v = json_object_get(schema, names[i]);
        if (!v || (i & 1 && json_is_boolean(v))) continue; /* of the limit beside it, in the oldest drafts */
        if (!json_is_number(v)) return ek_schema_fail(w, "\"%s\" must be a number that fits 64 bits", names[i]);
        int64_t scaled;
        bool exclusive = i & 1 || json_is_true(json_object_get(schema, names[i + 1]));
        bool exact, low = i < 2, beyond = !scale(v, 0, low, &scaled, &exact);
        if (!beyond || low == (json_number_value(v) > 0)) b[(*n)++] = (bound){v, exclusive, low};
        else b[(*n)++] = (bound){NULL, false, low}; /* no number of 18 digits reaches it */
    }
    return EK_OK;
}

static bool scale_bounds(const bound *b, int n, int fraction, int64_t *lo, int64_t *hi)
{
    *lo = -MAX_INTEGER, *hi = MAX_INTEGER;
    for (int i = 0; i < n; i++) {
        int64_t v;
        bool exact;
        if (!b[i].v) continue;
        if (!scale(b[i].v, fraction, b[i].low, &v, &exact)) return false;
        if (b[i].exclusive && exact) v += b[i].low ? 1 : -1;
        if (b[i].low && v > *lo) *lo = v;
        if (!b[i].low && v < *hi) *hi = v;
    }
    return true;
}

/* As many digits after the point as leave room for those before it: 9 between two bounds, 6 with one. */
static ek_err number_node(ek_schema_work *w, const json_t *schema, bool integer, ek_node *node)
{
    bound b[4];
    int n, fraction = 18;
    int64_t lo = 0, hi = 0;
    EK_TRY(read_bounds(w, schema, b, &n));
    if (n > 0) {
        bool two = false;
        for (int i = 1; i < n; i++) two |= b[i].low != b[0].low;
        fraction = integer ? 0 : two ? 9 : 6;
        while (!scale_bounds(b, n, fraction, &lo, &hi))
            if (fraction-- == 0) return ek_schema_fail(w, "a bound of a number has more than 18 digits");
        if (lo > hi)
            return ek_schema_fail(w, "no number of %d digits behind the point lies between the bounds", fraction);
    } else if (integer) {
        fraction = 0;
    }
    node->bounded = n > 0;
    node->fraction = (uint8_t)fraction;
    node->lo = lo, node->hi = hi;
    return EK_OK;
}

ek_err ek_schema_number(ek_schema_work *w, const json_t *schema, bool integer, int32_t *out)
{
    static const char *const bounds[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    ek_node node = {.fraction = integer ? 0 : 18};
    ek_err err = number_node(w, schema, integer, &node);
    if (err && !w->opts.lenient) return err;
    for (int i = 0; err && i < 4; i++)
        if (json_object_get(schema, bounds[i])) ek_schema_note(w, bounds[i]);
    EK_TRY(ek_graph_node(w->g, EK_NODE_NUMBER, w->opts.gemma, out));
    ek_node *n = &w->g->nodes[*out];
    n->bounded = node.bounded;
    n->fraction = node.fraction;
    n->lo = node.lo, n->hi = node.hi;
    return EK_OK;
}

/* Strings: their length, pattern and format. */

/* The automaton of pattern and format; *out is NULL where neither says anything. */
static ek_err make_regex(ek_schema_work *w, const json_t *pattern, const char *format, ek_regex **out)
{
    ek_regex *a = NULL, *b = NULL;
    *out = NULL;
    int64_t *left = &w->regex_left;
    if (pattern) {
        const char *s = json_string_value(pattern);
        bool cut = false;
        EK_TRY(ek_regex_open_lenient(&a, s, json_string_length(pattern), left, w->opts.lenient ? &cut : NULL));
        if (cut) ek_schema_note(w, "pattern");
    }
    ek_err err = format ? ek_regex_open_within(&b, format, strlen(format), left) : EK_OK;
    if (a && b) {
        err = ek_regex_and(out, a, b);
        ek_regex_close(a);
        ek_regex_close(b);
    } else if (!err) {
        *out = a ? a : b;
    } else {
        ek_regex_close(a);
    }
    return err;
}

static ek_err new_pattern(ek_schema_work *w, const json_t *pattern, const char *format, uint32_t min, uint32_t max,
                          int32_t *out)
{
    ek_regex *regex;
    ek_pattern *p;
    EK_TRY(make_regex(w, pattern, format, &regex));
    EK_TRY(ek_schema_spend(w, (size_t)regex->n_states));
    EK_TRY(ek_pattern_open(&p, regex, min, max));
    return ek_graph_pattern_add(w->g, p, out);
}

/* Strings that say the same share one. */
static ek_err string_pattern(ek_schema_work *w, const json_t *pattern, const char *format, uint32_t min, uint32_t max,
                             int32_t *out)
{
    ek_buf key = {0};
    ek_buf_fmt(&key, "%u %u %d %s ", min, max, w->opts.lenient, format ? format : "");
    if (pattern) ek_buf_add(&key, json_string_value(pattern), json_string_length(pattern));
    const json_t *known = json_object_getn(w->patterns, key.data, key.len);
    ek_err err = EK_OK;
    if (known) *out = (int32_t)json_integer_value(known);
    else err = new_pattern(w, pattern, format, min, max, out);
    if (!known && !err) json_object_setn_new_nocheck(w->patterns, key.data, key.len, json_integer(*out));
    ek_buf_fini(&key);
    return err;
}

/* The number of the pattern that keeps as much as can be kept: a format only describes, so it goes first. */
static ek_err as_much_as_can_be(ek_schema_work *w, const json_t *pattern, const char *format, uint32_t min,
                                uint32_t max, int32_t *number)
{
    ek_err err = string_pattern(w, pattern, format, min, max, number);
    if (!err || !w->opts.lenient) return err;
    if (pattern && format && w->regex_left > 0) {
        err = string_pattern(w, pattern, NULL, min, max, number);
        if (!err) return err;
        ek_schema_note(w, "pattern");
        err = w->regex_left > 0 ? string_pattern(w, NULL, format, min, max, number) : err;
        if (!err) return err;
    }
    ek_schema_note(w, pattern ? "pattern" : "format");
    *number = -1;
    return EK_OK;
}

ek_err ek_schema_string(ek_schema_work *w, const json_t *schema, int32_t *out)
{
    uint32_t min = 0, max = UINT32_MAX;
    int32_t number = -1;
    const json_t *pattern = json_object_get(schema, "pattern");
    const char *format = ek_json_get_text(schema, "format", NULL);
    EK_TRY(ek_schema_count(w, schema, "minLength", &min));
    EK_TRY(ek_schema_count(w, schema, "maxLength", &max));
    if (min > max) return ek_schema_fail(w, "at least %u and at most %u characters", min, max);
    if (pattern && !ek_json_is_text(pattern)) return ek_schema_fail(w, "\"pattern\" must be a text");
    if (format) format = ek_pattern_of_format(format);
    if (pattern || format) {
        ek_err err = as_much_as_can_be(w, pattern, format, min, max, &number);
        if (err) {
            ek_buf says = {0};
            ek_buf_str(&says, ek_err_text());
            ek_schema_fail(w, "\"%s\": %s", pattern ? "pattern" : "format", ek_buf_text(&says));
            ek_buf_fini(&says);
            return err;
        }
    }
    EK_TRY(ek_graph_node(w->g, EK_NODE_STRING, w->opts.gemma, out));
    w->g->nodes[*out].min = min;
    w->g->nodes[*out].max = max;
    w->g->nodes[*out].pattern = number;
    return EK_OK;
}
