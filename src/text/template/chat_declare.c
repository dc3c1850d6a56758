/* Tool declarations: the template's own notation for JSON schemas, with all its
 * irregularities, because the models were trained on it. */
#include <string.h>

#include "text/json/json.h"
#include "text/template/chat_state.h"
#include "text/utf8.h"

/* A member, or undefined when v is no object. */
static const json_t *member(const json_t *v, const char *key)
{
    return json_object_get(v, key);
}

static bool type_is(const json_t *type, const char *name)
{
    ek_buf b = {0};
    ek_py_upper(&b, type);
    bool same = strcmp(ek_buf_text(&b), name) == 0 && b.len == strlen(name);
    ek_buf_fini(&b);
    return same;
}

/* What a `for` goes over, each element quoted: a list's elements, a text's characters, an
 * object's keys. */
static ek_err put_each(ek_prompt *p, const json_t *v, const char *what)
{
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v) && !p->full; i++) {
            if (i) ek_put(p, ",");
            ek_put_quoted_str(p, json_array_get(v, i));
        }
    } else if (json_is_object(v)) {
        json_t *o = (json_t *)v;
        for (void *i = json_object_iter(o), *first = i; i; i = json_object_iter_next(o, i)) {
            if (i != first) ek_put(p, ",");
            ek_put_quoted(p, json_object_iter_key(i), json_object_iter_key_len(i));
        }
    } else if (ek_json_is_text(v)) {
        const char *s = json_string_value(v);
        for (size_t i = 0, n = json_string_length(v); i < n && !p->full;) {
            uint32_t cp;
            int len = ek_utf8_next(s + i, n - i, &cp);
            if (len < 0) len = -len;
            if (i) ek_put(p, ",");
            ek_put_quoted(p, s + i, (size_t)len);
            i += (size_t)len;
        }
    } else if (!p->loose_tools) {
        return ek_fail(EK_EINVAL, "%s is neither a list nor anything else with elements", what);
    }
    return EK_OK;
}

/* items.type: a text in upper case, or the list of its elements in upper case. */
static ek_err put_item_type(ek_prompt *p, const json_t *type)
{
    if (ek_json_is_text(type)) {
        ek_put_quoted_upper(p, type);
        return EK_OK;
    }
    ek_put(p, "[");
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++) {
            if (i) ek_put(p, ",");
            ek_put_quoted_upper(p, json_array_get(type, i));
        }
    } else if (json_is_object(type)) {
        json_t *o = (json_t *)type;
        for (void *i = json_object_iter(o), *first = i; i; i = json_object_iter_next(o, i)) {
            if (i != first) ek_put(p, ",");
            json_t *key = json_stringn_nocheck(json_object_iter_key(i), json_object_iter_key_len(i));
            ek_put_quoted_upper(p, key);
            json_decref(key);
        }
    } else if (ek_py_truthy(type) && !p->loose_tools) {
        return ek_fail(EK_EINVAL, "the type of an array's items is a number or true");
    }
    ek_put(p, "]");
    return EK_OK;
}

static ek_err put_properties(ek_prompt *p, const json_t *map, bool filter);

static ek_err put_items(ek_prompt *p, const json_t *items)
{
    ek_members m;
    if (p->full) return EK_OK;
    ek_members_init(&m, items);
    ek_err e = EK_OK;
    bool first = true;
    for (size_t i = 0; i < m.n && e == EK_OK && !p->full; i++) {
        const ek_member *it = &m.at[i];
        if (json_is_null(it->value)) continue;
        if (!first) ek_put(p, ",");
        first = false;
        ek_put_text(p, it->key, it->n);
        ek_put(p, ":");
        if (strcmp(it->key, "properties") == 0) {
            ek_put(p, "{");
            if (json_is_object(it->value)) e = put_properties(p, it->value, false);
            ek_put(p, "}");
        } else if (strcmp(it->key, "required") == 0) {
            ek_put(p, "[");
            e = put_each(p, it->value, "required of an array's items");
            ek_put(p, "]");
        } else if (strcmp(it->key, "type") == 0) {
            e = put_item_type(p, it->value);
        } else {
            ek_put_value(p, it->value, true);
        }
    }
    ek_members_fini(&m);
    return e;
}

static ek_err put_object_fields(ek_prompt *p, const json_t *schema, bool *comma)
{
    const json_t *properties = member(schema, "properties"), *required = member(schema, "required");
    if (*comma) ek_put(p, ",");
    *comma = true;
    ek_put(p, "properties:{");
    if (json_is_object(properties)) EK_TRY(put_properties(p, properties, false));
    else EK_TRY(put_properties(p, schema, true));
    ek_put(p, "}");
    if (ek_py_truthy(required)) {
        ek_put(p, ",required:[");
        EK_TRY(put_each(p, required, "required"));
        ek_put(p, "]");
    }
    return EK_OK;
}

static ek_err put_schema(ek_prompt *p, const json_t *schema)
{
    const json_t *type = member(schema, "type"), *items = member(schema, "items");
    bool comma = false;
    if (ek_py_truthy(member(schema, "description"))) {
        ek_put(p, "description:");
        ek_put_quoted_str(p, member(schema, "description"));
        comma = true;
    }
    if (type_is(type, "STRING") && ek_py_truthy(member(schema, "enum"))) {
        ek_put(p, comma ? ",enum:" : "enum:");
        ek_put_value(p, member(schema, "enum"), true);
        comma = true;
    } else if (type_is(type, "ARRAY") && json_object_size(items) > 0) {
        ek_put(p, comma ? ",items:{" : "items:{");
        EK_TRY(put_items(p, items));
        ek_put(p, "}");
        comma = true;
    }
    if (ek_py_truthy(member(schema, "nullable"))) {
        ek_put(p, comma ? ",nullable:true" : "nullable:true");
        comma = true;
    }
    if (type_is(type, "OBJECT")) EK_TRY(put_object_fields(p, schema, &comma));
    ek_put(p, comma ? ",type:" : "type:");
    ek_put_quoted_upper(p, type);
    return EK_OK;
}

static bool is_standard_key(const char *key)
{
    static const char *const keys[] = {"description", "type", "properties", "required", "nullable"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static ek_err put_properties(ek_prompt *p, const json_t *map, bool filter)
{
    ek_members m;
    if (p->full) return EK_OK;
    ek_members_init(&m, map);
    ek_err e = EK_OK;
    bool first = true;
    for (size_t i = 0; i < m.n && e == EK_OK && !p->full; i++) {
        if (filter && is_standard_key(m.at[i].key) && strlen(m.at[i].key) == m.at[i].n) continue;
        if (!first) ek_put(p, ",");
        first = false;
        ek_put_text(p, m.at[i].key, m.at[i].n);
        ek_put(p, ":{");
        e = put_schema(p, m.at[i].value);
        ek_put(p, "}");
    }
    ek_members_fini(&m);
    return e;
}

static ek_err put_parameters(ek_prompt *p, const json_t *parameters)
{
    if (!ek_py_truthy(parameters)) return EK_OK;
    const json_t *properties = member(parameters, "properties"), *required = member(parameters, "required"),
                 *type = member(parameters, "type");
    ek_put(p, ",parameters:{");
    if (ek_py_truthy(properties) && !json_is_object(properties) && !p->loose_tools)
        return ek_fail(EK_EINVAL, "parameters.properties is not an object");
    if (json_object_size(properties) > 0) {
        ek_put(p, "properties:{");
        EK_TRY(put_properties(p, properties, false));
        ek_put(p, "},");
    }
    if (ek_py_truthy(required)) {
        ek_put(p, "required:[");
        EK_TRY(put_each(p, required, "parameters.required"));
        ek_put(p, "],");
    }
    if (ek_py_truthy(type)) {
        ek_put(p, "type:");
        ek_put_quoted_upper(p, type);
        ek_put(p, "}");
    }
    return EK_OK;
}

static void put_response(ek_prompt *p, const json_t *response)
{
    ek_put(p, ",response:{");
    if (ek_py_truthy(member(response, "description"))) {
        ek_put(p, "description:");
        ek_put_quoted_str(p, member(response, "description"));
        ek_put(p, ",");
    }
    if (type_is(member(response, "type"), "OBJECT")) {
        ek_put(p, "type:");
        ek_put_quoted_upper(p, member(response, "type"));
        ek_put(p, "}");
    }
}

/* `'response' in function` for one that is a list or a text: the template then fails. */
static bool names_response(const json_t *function)
{
    for (size_t i = 0; i < json_array_size(function); i++) {
        const json_t *v = json_array_get(function, i);
        if (ek_json_is_text(v) && strcmp(json_string_value(v), "response") == 0) return true;
    }
    return ek_json_is_text(function) && strstr(json_string_value(function), "response");
}

ek_err ek_put_tool(ek_prompt *p, const json_t *tool)
{
    const json_t *function = member(tool, "function");
    if ((!json_is_object(function) && !json_is_array(function) && !ek_json_is_text(function)) ||
        names_response(function))
        return ek_fail(EK_EINVAL, "it has no object \"function\"");
    ek_put_mark(p, "<|tool>");
    ek_put(p, "declaration:");
    ek_put_str(p, member(function, "name"));
    ek_put(p, "{description:");
    ek_put_quoted_str(p, member(function, "description"));
    EK_TRY(put_parameters(p, member(function, "parameters")));
    if (member(function, "response")) put_response(p, member(function, "response"));
    ek_put(p, "}");
    ek_put_mark(p, "<tool|>");
    return EK_OK;
}
