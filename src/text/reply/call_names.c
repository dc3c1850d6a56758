#include "text/reply/call_args.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"

enum { LONGEST = 1024, DEEPEST = 256 };

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Whether a parser of calls reads the name without knowing it. */
static bool call_name_is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] < ' ' || s[i] == 0x7f || strchr(":=,{}[]()\"'`\\", s[i])) return false;
    return n > 0 && !is_space(s[0]) && !is_space(s[n - 1]);
}

/* Whether a name can stand without quotes. After a colon a value could follow, and its end; at the beginning the object
 * could end. */
bool ek_call_name_is_bare(const char *s, size_t n)
{
    if (call_name_is_plain(s, n)) return true;
    const char *colon = memchr(s, ':', n);
    if (n > LONGEST || (n > 0 && s[0] == '}')) return false;
    for (size_t i = colon ? (size_t)(colon - s) : n; i < n; i++)
        if (s[i] == '{' || s[i] == '}' || s[i] == '[' || s[i] == ']' || s[i] == ',') return false;
    return true;
}

/* --- collecting --- */

typedef struct walk {
    json_t *names; /* an object whose keys are the names; NULL: they are only checked */
    bool plain;    /* plain names too */
    bool odd;      /* a name is not plain */
    bool open;     /* an object has unknown names */
} walk;

static void add_name(walk *w, const char *s, size_t n)
{
    bool plain = call_name_is_plain(s, n);
    w->odd |= !plain;
    if (w->names && (!plain || w->plain) && ek_call_name_is_bare(s, n))
        json_object_setn_new_nocheck(w->names, s, n, json_true());
}

static bool is_object_type(const json_t *type)
{
    if (json_is_string(type)) return !strcmp(json_string_value(type), "object");
    for (size_t i = 0; i < json_array_size(type); i++)
        if (json_is_string(json_array_get(type, i)) && is_object_type(json_array_get(type, i))) return true;
    return false;
}

/* Whether it is an object without known names, or a value of unknown type. */
static bool is_open(const json_t *schema)
{
    static const char *const says[] = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "properties"};
    if (!json_is_object(schema)) return json_is_true(schema);
    const json_t *other = json_object_get(schema, "additionalProperties");
    if (is_object_type(json_object_get(schema, "type")))
        return !json_is_object(json_object_get(schema, "properties")) || (other && !json_is_false(other));
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (json_object_get(schema, says[i])) return false;
    return true;
}

static void visit(walk *w, json_t *v, int depth)
{
    if (depth == DEEPEST) return;
    for (size_t i = 0; i < json_array_size(v); i++) visit(w, json_array_get(v, i), depth + 1);
    if (!json_is_object(v)) return;
    const json_t *required = json_object_get(v, "required"), *items = json_object_get(v, "items");
    json_t *properties = json_object_get(v, "properties");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (ek_json_is_text(name)) add_name(w, json_string_value(name), json_string_length(name));
    }
    if (json_is_object(properties))
        for (void *i = json_object_iter(properties); i; i = json_object_iter_next(properties, i)) {
            add_name(w, json_object_iter_key(i), json_object_iter_key_len(i));
            w->open |= is_open(json_object_iter_value(i));
        }
    w->open |= (items && is_open(items)) || (json_object_get(v, "type") && is_open(v));
    for (void *i = json_object_iter(v); i; i = json_object_iter_next(v, i))
        visit(w, json_object_iter_value(i), depth + 1);
}

bool ek_call_names_matter(const json_t *schema)
{
    walk w = {0};
    visit(&w, (json_t *)(uintptr_t)schema, 0);
    return w.odd || w.open;
}

/* --- the list --- */

typedef struct key {
    const char *s;
    size_t n;
} key;

static int compare(const void *x, const void *y)
{
    const key *a = x, *b = y;
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

/* Lists the names, sorted with their colons, because "a:" may come after "a!:". */
static void list(ek_call_names *names, json_t *set)
{
    size_t count = json_object_size(set), i = 0;
    key *keys = ek_alloc((count + 1) * sizeof *keys);
    for (void *at = json_object_iter(set); at; at = json_object_iter_next(set, at)) {
        ek_buf_add(&names->text, json_object_iter_key(at), json_object_iter_key_len(at));
        ek_buf_char(&names->text, ':');
        keys[i++].n = json_object_iter_key_len(at) + 1;
    }
    size_t from = 0;
    for (i = 0; i < count; from += keys[i++].n) keys[i].s = names->text.data + from;
    if (count > 1) qsort(keys, count, sizeof *keys, compare);
    names->name = ek_alloc((count + 1) * sizeof *names->name);
    for (i = 0; i < count; i++)
        names->name[i] = (struct ek_call_name){(uint32_t)(keys[i].s - names->text.data), (uint32_t)keys[i].n};
    names->n = (int)count;
    free(keys);
}

void ek_call_names_init(ek_call_names *names, const json_t *schema, bool plain)
{
    walk w = {.names = json_object(), .plain = plain};
    *names = (ek_call_names){0};
    visit(&w, (json_t *)(uintptr_t)schema, 0);
    if (json_object_size(w.names) > 0) list(names, w.names);
    json_decref(w.names);
}

void ek_call_names_fini(ek_call_names *names)
{
    free(names->name);
    ek_buf_fini(&names->text);
    *names = (ek_call_names){0};
}

/* --- looking --- */

/* The first of [lo, hi) whose byte is at least c, or beyond c. Names that end before it come first. */
static int bound(const ek_call_names *names, int lo, int hi, uint32_t len, uint8_t c, bool beyond)
{
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        const struct ek_call_name *x = &names->name[mid];
        uint8_t byte = x->n > len ? (uint8_t)names->text.data[x->at + len] : 0;
        bool right = x->n > len && (byte > c || (byte == c && !beyond));
        if (right) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

bool ek_call_names_narrow(const ek_call_names *names, int *lo, int *hi, uint32_t len, char c, bool *whole)
{
    int from = bound(names, *lo, *hi, len, (uint8_t)c, false), to = bound(names, from, *hi, len, (uint8_t)c, true);
    *lo = from, *hi = to;
    *whole = from < to && names->name[from].n == len + 1;
    return from < to;
}

size_t ek_call_names_at(const ek_call_names *names, const char *s, size_t n)
{
    int lo = 0, hi = names->n;
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        bool whole;
        if (!ek_call_names_narrow(names, &lo, &hi, (uint32_t)i, s[i], &whole)) break;
        if (whole) longest = i + 1;
    }
    return longest;
}
