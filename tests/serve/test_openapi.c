/* /openapi.json describes the paths that are served, all of them and no others, by their methods. What bodies hold is
 * compared by every test over HTTP (tests/e2e/described.py). */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "base/file.h"
#include "serve/api/dialect.h"
#include "serve/routes.h"
#include "text/json/json.h"

static json_t *spec;

static int open_spec(void **state)
{
    ek_buf text = {0};
    (void)state;
    if (ek_file_read(&text, "web/openapi.json", 1 << 20) || ek_json_read(&spec, ek_buf_text(&text), text.len, 0))
        fail_msg("%s", ek_err_text());
    ek_buf_fini(&text);
    return 0;
}

static int close_spec(void **state)
{
    (void)state;
    json_decref(spec);
    return 0;
}

static bool describes(const char *path, const char *method)
{
    char lower[16];
    size_t n = strlen(method);
    for (size_t i = 0; i <= n; i++) lower[i] = (char)tolower((unsigned char)method[i]);
    return json_object_get(json_object_get(json_object_get(spec, "paths"), path), lower) != NULL;
}

static bool is_dialect(const char *path)
{
    for (const ek_dialect *const *d = ek_dialects; *d; d++)
        if (!strcmp((*d)->path, path)) return true;
    return false;
}

static void what_is_described_is_served(void **state)
{
    (void)state;
    const char *path, *method;
    json_t *operations, *operation;
    int n = 0;
    json_object_foreach(json_object_get(spec, "paths"), path, operations)
    {
        ek_buf with_names = {0}; /* x in place of {name} */
        for (const char *p = path; *p; p++) {
            if (*p == '{') p = strchr(p, '}');
            ek_buf_char(&with_names, *p == '}' ? 'x' : *p);
        }
        json_object_foreach(operations, method, operation)
        {
            char upper[16];
            const char *rest;
            bool fits = false;
            for (size_t i = 0; i <= strlen(method); i++) upper[i] = (char)toupper((unsigned char)method[i]);
            const ek_route_row *row = ek_routes_find(with_names.data, upper, &rest, &fits);
            const bool served = (is_dialect(path) && !strcmp(upper, "POST")) || (row && fits);
            if (!served) fail_msg("%s %s is described, and nothing answers it", upper, path);
            if (!json_object_get(operation, "responses")) fail_msg("%s %s has no responses", upper, path);
            n++;
        }
        ek_buf_fini(&with_names);
    }
    assert_true(n > 40);
}

static void what_is_served_is_described(void **state)
{
    (void)state;
    int n;
    const ek_route_row *rows = ek_routes_all(&n);
    for (const ek_dialect *const *d = ek_dialects; *d; d++)
        if (!describes((*d)->path, "POST")) fail_msg("POST %s is not described", (*d)->path);
    for (int i = 0; i < n; i++) {
        const char *path;
        json_t *operations;
        bool found = false;
        json_object_foreach(json_object_get(spec, "paths"), path, operations)
        {
            const char *rest;
            bool fits;
            ek_buf with_names = {0};
            for (const char *p = path; *p; p++) {
                if (*p == '{') p = strchr(p, '}');
                ek_buf_char(&with_names, *p == '}' ? 'x' : *p);
            }
            const ek_route_row *row = ek_routes_find(with_names.data, rows[i].method, &rest, &fits);
            found |= row && !strcmp(row->pattern, rows[i].pattern) &&
                     (!strcmp(rows[i].method, "*") || describes(path, rows[i].method));
            ek_buf_fini(&with_names);
        }
        if (!found) fail_msg("%s %s is not described", rows[i].method, rows[i].pattern);
    }
}

/* Every $ref leads to a schema, and every schema is referred to. */
static void count_references(const json_t *v, json_t *counts)
{
    const char *key;
    json_t *member;
    if (json_is_array(v))
        for (size_t i = 0; i < json_array_size(v); i++) count_references(json_array_get(v, i), counts);
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        static const char head[] = "#/components/schemas/";
        const char *to = json_string_value(member);
        count_references(member, counts);
        if (strcmp(key, "$ref") != 0) continue;
        if (!to || strncmp(to, head, sizeof head - 1) != 0 || !json_object_get(counts, to + sizeof head - 1))
            fail_msg("%s leads nowhere", to ? to : "a $ref");
        json_object_set_new(counts, to + sizeof head - 1, json_true());
    }
}

static void references_lead_somewhere(void **state)
{
    (void)state;
    const char *name;
    json_t *schema, *counts = json_object();
    assert_string_equal(json_string_value(json_object_get(spec, "openapi")), "3.1.0");
    json_t *schemas = json_object_get(json_object_get(spec, "components"), "schemas");
    json_object_foreach(schemas, name, schema) json_object_set_new(counts, name, json_false());
    count_references(spec, counts);
    json_object_foreach(counts, name, schema) if (!json_is_true(schema)) fail_msg("nothing refers to %s", name);
    json_decref(counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_described_is_served),
        cmocka_unit_test(what_is_served_is_described),
        cmocka_unit_test(references_lead_somewhere),
    };
    return cmocka_run_group_tests(tests, open_spec, close_spec);
}
