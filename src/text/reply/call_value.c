#include "text/reply/call_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/json/json.h"

enum { T_STRING = 1, T_NUMBER = 2, T_INTEGER = 4, T_BOOLEAN = 8, T_NULL = 16, T_OTHER = 32 };

const json_t *ek_schema_of_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = ek_json_get(json_array_get(tools, i), "function");
        const char *n = ek_json_get_text(f, "name", NULL);
        if (n && strcmp(n, name) == 0) return ek_json_get(f, "parameters");
    }
    return NULL;
}

const json_t *ek_schema_property(const json_t *schema, const char *key, size_t n)
{
    return json_object_getn(ek_json_get(schema, "properties"), key, n);
}

const json_t *ek_schema_items(const json_t *schema)
{
    return ek_json_get(schema, "prefixItems") ? NULL : ek_json_get(schema, "items");
}

static int type_bit(const json_t *type)
{
    static const char *const names[] = {"string", "number", "integer", "boolean", "null"};
    if (!ek_json_is_text(type)) return 0;
    for (int i = 0; i < 5; i++)
        if (strcasecmp(json_string_value(type), names[i]) == 0) return 1 << i;
    return T_OTHER;
}

static int allowed_types(const json_t *schema)
{
    const json_t *type = ek_json_get(schema, "type");
    int bits = type_bit(type);
    for (size_t i = 0; i < json_array_size(type); i++) bits |= type_bit(json_array_get(type, i));
    if (bits && json_is_true(ek_json_get(schema, "nullable"))) bits |= T_NULL;
    return bits;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void trim(const char **s, size_t *n)
{
    while (*n && is_space(**s)) ++*s, --*n;
    while (*n && is_space((*s)[*n - 1])) --*n;
}

static size_t digits(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && s[k] >= '0' && s[k] <= '9') k++;
    return k;
}

/* T_INTEGER or T_NUMBER if s is a JSON number, else 0. */
static int number_type(const char *s, size_t n)
{
    int type = T_INTEGER;
    size_t i = n > 0 && s[0] == '-', k = digits(s + i, n - i);
    if (k == 0 || (k > 1 && s[i] == '0')) return 0;
    i += k;
    if (i < n && s[i] == '.') {
        k = digits(s + i + 1, n - i - 1);
        if (k == 0) return 0;
        i += 1 + k;
        type = T_NUMBER;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-')) i++;
        k = digits(s + i, n - i);
        if (k == 0) return 0;
        i += k;
        type = T_NUMBER;
    }
    return i == n ? type : 0;
}

/* The JSON spelling and type of a literal; 0 if it is none. */
static int literal(const char *s, size_t n, const char **json)
{
    static const struct {
        const char *word, *json;
        int type;
    } words[] = {{"true", "true", T_BOOLEAN},   {"True", "true", T_BOOLEAN}, {"false", "false", T_BOOLEAN},
                 {"False", "false", T_BOOLEAN}, {"null", "null", T_NULL},    {"None", "null", T_NULL}};
    *json = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n == strlen(words[i].word) && memcmp(s, words[i].word, n) == 0) {
            *json = words[i].json;
            return words[i].type;
        }
    return number_type(s, n);
}

/* A number that JSON spells differently, such as .5, 1., +1 or 0x10. */
static bool odd_spelling(const char *s, size_t n, double *x)
{
    char b[64], *end;
    if (n == 0 || n >= sizeof b || is_space(s[0])) return false;
    memcpy(b, s, n);
    b[n] = '\0';
    *x = strtod(b, &end);
    return end == b + n && isfinite(*x);
}

bool ek_bare_is_literal(const char *s, size_t n, const json_t *schema)
{
    const char *json;
    double x;
    trim(&s, &n);
    return literal(s, n, &json) || (allowed_types(schema) & (T_NUMBER | T_INTEGER) && odd_spelling(s, n, &x));
}

void ek_bare_value(ek_buf *out, const char *s, size_t n, const json_t *schema)
{
    int allowed = allowed_types(schema);
    const char *json;
    double x;
    trim(&s, &n);
    if (n == 0) {
        ek_buf_str(out, allowed & T_STRING && !(allowed & T_NULL) ? "\"\"" : "null");
        return;
    }
    int type = literal(s, n, &json);
    int fits = type == T_INTEGER ? T_INTEGER | T_NUMBER : type;
    if (type && !(allowed & T_STRING && !(allowed & fits))) {
        if (json) ek_buf_str(out, json);
        else ek_buf_add(out, s, n);
    } else if (!type && allowed & (T_NUMBER | T_INTEGER) && odd_spelling(s, n, &x)) {
        if (fabs(x) < 9e15 && x == (double)(long long)x && !memchr(s, '.', n)) ek_buf_fmt(out, "%lld", (long long)x);
        else ek_json_double(out, x);
    } else {
        ek_json_quote(out, s, n);
    }
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == '$' || (signed char)c < 0;
}

/* Whether a key stands at s, or the text ends. */
static bool key_follows(const char *s, size_t n, const ek_call_names *names)
{
    size_t i = 0, from;
    if (names->n > 0 && ek_call_names_at(names, s, n)) return true;
    while (i < n && is_space(s[i])) i++;
    if (i == n || (names->n > 0 && ek_call_names_at(names, s + i, n - i))) return true;
    char quote = s[i] == '"' || s[i] == '\'' ? s[i++] : 0;
    from = i;
    while (i < n && (quote ? s[i] != quote : is_word(s[i]))) i++;
    if (i == from || i == n) return false;
    if (quote) i++;
    while (i < n && is_space(s[i])) i++;
    return i < n && (s[i] == ':' || s[i] == '=');
}

size_t ek_bare_extent(const char *s, size_t n, bool in_list, bool in_call, const ek_call_names *names)
{
    int braces = 0, brackets = 0, parens = 0;
    for (size_t i = 0; i < n; i++) {
        switch (s[i]) {
        case '{': braces++; break;
        case '[': brackets++; break;
        case '(': parens++; break;
        case '}':
            if (braces-- == 0) return i;
            break;
        case ']':
            if (brackets-- == 0) return i;
            break;
        case ')':
            if (in_call && parens == 0) return i;
            if (parens > 0) parens--;
            break;
        case ',':
            if (braces == 0 && brackets == 0 && (in_list || key_follows(s + i + 1, n - i - 1, names))) return i;
            break;
        default: break;
        }
    }
    return n;
}

/* A known name, with its colon, ends s behind a comma or a brace. */
static bool ends_with_name(const char *s, size_t n, const ek_call_names *names)
{
    enum { MAX_BACK = 1100 };
    for (size_t i = n; names->n > 0 && i-- > 0 && n - i < MAX_BACK;) {
        if (s[i] != ',' && s[i] != '{') continue;
        size_t from = i + 1;
        if (ek_call_names_at(names, s + from, n - from) == n - from && from < n) return true;
        while (from < n && is_space(s[from])) from++;
        if (from < n && ek_call_names_at(names, s + from, n - from) == n - from) return true;
    }
    return false;
}

bool ek_bare_opens_text(const char *s, size_t n, const ek_call_names *names)
{
    while (n && is_space(s[n - 1])) n--;
    if (n == 0 || ends_with_name(s, n, names)) return true;
    char last = s[n - 1];
    if (last == ',' || last == '[' || last == '{') return true;
    if (last != ':' && last != '=') return false;
    n--;
    while (n && is_space(s[n - 1])) n--;
    size_t end = n;
    while (n && (is_word(s[n - 1]) || s[n - 1] == '"' || s[n - 1] == '\'')) n--;
    if (n == end) return false;
    while (n && is_space(s[n - 1])) n--;
    return n > 0 && (s[n - 1] == ',' || s[n - 1] == '{');
}
