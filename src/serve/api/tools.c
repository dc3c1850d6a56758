#include "serve/api/tools.h"

#include <string.h>

#include "serve/api/field.h"
#include "text/json/json.h"
#include "text/reply/reply.h"
#include "text/utf8.h"

/* r->by_name maps a name to [declaration, whether it can be called, its bytes as JSON or 0 if unknown]. */
static void know(ek_api_request *r, json_t *tool, bool callable)
{
    const char *name = ek_json_get_text(ek_json_get(tool, "function"), "name", NULL);
    json_t *entry = json_array();
    json_array_append(entry, tool);
    json_array_append_new(entry, json_boolean(callable));
    json_array_append_new(entry, json_integer(0));
    if (!r->by_name) r->by_name = json_object();
    json_object_set_new_nocheck(r->by_name, name, entry);
}

static ek_err change(ek_api_request *r, const char *name, bool callable, json_t **tool)
{
    json_t *entry = json_object_get(r->by_name, name);
    if (!entry) {
        char quoted[EK_QUOTED];
        return ek_fail(EK_EINVAL, "the reference to the tool %s: tools has none of that name",
                       ek_field_quote(quoted, name, strlen(name)));
    }
    json_array_set_new(entry, 1, json_boolean(callable));
    r->tools_change = true;
    *tool = json_array_get(entry, 0);
    return EK_OK;
}

void ek_tools_add(ek_api_request *r, json_t *tool, bool later)
{
    know(r, tool, !later);
    if (later) {
        json_decref(tool);
        return;
    }
    if (!r->tools) r->tools = json_array();
    json_array_append_new(r->tools, tool);
}

/* Counts the declaration again: a short reference may stand for a long one, any number of times. */
static ek_err count_again(const ek_api_request *r, const char *name, const ek_api_limits *limits)
{
    const ek_json_size none = {0};
    json_t *entry = json_object_get(r->by_name, name);
    if (!limits->count) return EK_OK;
    if (json_integer_value(json_array_get(entry, 2)) == 0) {
        ek_buf b = {0};
        ek_json_write(&b, json_array_get(entry, 0));
        json_array_set_new(entry, 2, json_integer((json_int_t)b.len));
        ek_buf_fini(&b);
    }
    return limits->count(limits->count_arg, &none, 0, (size_t)json_integer_value(json_array_get(entry, 2)));
}

ek_err ek_tools_refer(ek_api_request *r, ek_message *m, const char *name, const ek_api_limits *limits)
{
    json_t *tool = NULL;
    EK_TRY(change(r, name, true, &tool));
    EK_TRY(count_again(r, name, limits));
    ek_message_add(m, EK_BLOCK_TOOL)->value = json_incref(tool);
    return EK_OK;
}

void ek_tools_bring(ek_api_request *r, ek_message *m, json_t *tool)
{
    know(r, tool, true);
    r->tools_change = true;
    ek_message_add(m, EK_BLOCK_TOOL)->value = tool;
}

ek_err ek_tools_withdraw(ek_api_request *r, const char *name)
{
    json_t *tool = NULL;
    return change(r, name, false, &tool);
}

void ek_tools_settle(ek_api_request *r)
{
    const char *name;
    json_t *entry;
    if (!r->tools_change) return;
    r->declared = r->tools ? r->tools : json_array();
    r->tools = json_array();
    json_object_foreach(r->by_name, name, entry)
    {
        (void)name;
        if (json_is_true(json_array_get(entry, 1))) json_array_append(r->tools, json_array_get(entry, 0));
    }
    if (json_array_size(r->tools) > 0) return;
    json_decref(r->tools);
    r->tools = NULL;
}

const char *ek_tools_type(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        size_t len = 0;
        const char *s = ek_json_get_text(ek_json_get(tool, "function"), "name", &len);
        const char *type = ek_json_get_text(tool, "type", NULL);
        if (s && type && len == n && !memcmp(s, name, n)) return type;
    }
    return "function";
}

/* --- arguments of calls --- */

/* *out: any value; NULL if the text cannot be repaired. */
static ek_err read_text(json_t **out, const char *s, size_t n, const ek_api_limits *limits)
{
    ek_json_size size;
    ek_err err = ek_field_json(out, s, n, limits);
    if (err != EK_EINVAL) return err;
    ek_call_repair_scan(&size, s, n);
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &size, n, 0));
    *out = ek_call_repair(s, n);
    return EK_OK;
}

/* Some clients write the object as a text twice. */
static ek_err read_inner(json_t **out, const ek_api_limits *limits)
{
    json_t *outer = *out;
    const char *s = json_string_value(outer);
    size_t n = json_string_length(outer);
    ek_utf8_strip(&s, &n);
    if (n == 0 || *s != '{') return EK_OK;
    ek_err err = read_text(out, s, n, limits);
    if (!err && json_is_object(*out)) {
        json_decref(outer);
        return EK_OK;
    }
    json_decref(*out);
    *out = outer;
    return err;
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

/* Not an object: the client's text. */
static json_t *as_text(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (ek_json_is_text(v)) {
        ek_utf8_strip(&s, &n);
        return json_stringn_nocheck(s, n);
    }
    ek_buf b = {0};
    ek_json_write(&b, v);
    json_t *text = json_stringn_nocheck(ek_buf_text(&b), b.len);
    ek_buf_fini(&b);
    return text;
}

ek_err ek_arguments_read(json_t **out, const json_t *v, const ek_api_limits *limits)
{
    json_t *read = NULL;
    ek_err err = EK_OK;
    *out = NULL;
    if (ek_json_is_text(v)) {
        const char *s = json_string_value(v);
        size_t n = json_string_length(v);
        ek_utf8_strip(&s, &n);
        if (n == 0) read = json_null();
        else err = read_text(&read, s, n, limits);
        if (!err && ek_json_is_text(read)) err = read_inner(&read, limits);
    } else {
        read = v ? json_incref((json_t *)(uintptr_t)v) : json_null();
    }
    if (err) {
        json_decref(read);
        return err;
    }
    if (json_is_object(read)) {
        *out = read;
        return EK_OK;
    }
    *out = read && is_empty(read) ? json_object() : as_text(v);
    json_decref(read);
    return EK_OK;
}
