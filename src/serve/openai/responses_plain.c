/* Calls and results of the Responses API that are no functions' as the items that functions have, so that everything
 * behind them knows one kind. */
#include <string.h>

#include "serve/api/field.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new_nocheck(object, key, value);
}

static void copy(json_t *to, const json_t *from, const char *key)
{
    const json_t *v = ek_field(from, key);
    if (v) json_object_set_nocheck(to, key, (json_t *)(uintptr_t)v);
}

static json_t *written(const json_t *v)
{
    ek_buf b = {0};
    ek_json_write(&b, v);
    json_t *text = json_stringn_nocheck(b.data, b.len);
    ek_buf_fini(&b);
    return text;
}

/* A function's call with these arguments, which are taken over. name: NULL: the item has it. */
static json_t *call_of(const json_t *item, const char *name, json_t *arguments)
{
    json_t *call = json_object();
    set(call, "type", json_string_nocheck("function_call"));
    copy(call, item, "call_id");
    copy(call, item, "status");
    if (name) set(call, "name", json_string_nocheck(name));
    else copy(call, item, "name");
    copy(call, item, "namespace");
    set(call, "arguments", arguments);
    return call;
}

/* The members of an object that are not null; type is left out where it only says what the object is. */
static json_t *members_of(const json_t *object, bool with_type)
{
    json_t *all = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) if (!json_is_null(v) && (with_type || strcmp(key, "type")))
        json_object_set_nocheck(all, key, v);
    return all;
}

static json_t *result_of(const json_t *item, json_t *output)
{
    json_t *result = json_object();
    set(result, "type", json_string_nocheck("function_call_output"));
    copy(result, item, "call_id");
    if (output) set(result, "output", output);
    else copy(result, item, "output");
    return result;
}

/* The API's results name the item of the call, not the call. */
static json_t *local_shell_result(ek_responses *o, const json_t *item)
{
    json_t *result = result_of(item, NULL);
    const char *id = ek_json_get_text(item, "id", NULL);
    json_t *call_id = id ? json_object_get(o->shell_ids, id) : NULL;
    if (call_id) json_object_set_nocheck(result, "call_id", call_id);
    else if (!ek_field(result, "call_id")) {
        json_object_del(result, "call_id");
        if (id) set(result, "call_id", json_string_nocheck(id));
    }
    return result;
}

static json_t *local_shell_call(ek_responses *o, const json_t *item)
{
    const char *id = ek_json_get_text(item, "id", NULL);
    const json_t *call_id = ek_field(item, "call_id");
    if (!o->shell_ids) o->shell_ids = json_object();
    if (id && call_id) json_object_set_nocheck(o->shell_ids, id, (json_t *)(uintptr_t)call_id);
    return call_of(item, "local_shell", members_of(ek_field(item, "action"), false));
}

/* completed: what the patch printed */
static json_t *patch_result(const json_t *item)
{
    const char *status = ek_json_get_text(item, "status", NULL), *output = ek_json_get_text(item, "output", NULL);
    ek_buf b = {0};
    ek_buf_fmt(&b, "%s%s%s", status ? status : "completed", output && *output ? ": " : "", output ? output : "");
    json_t *text = json_stringn_nocheck(b.data, b.len);
    ek_buf_fini(&b);
    return result_of(item, text);
}

static json_t *custom_call(const json_t *item)
{
    const json_t *input = ek_field(item, "input");
    json_t *arguments = json_object();
    if (ek_json_is_text(input)) json_object_set_nocheck(arguments, "input", (json_t *)(uintptr_t)input);
    return call_of(item, NULL, arguments);
}

json_t *ek_responses_plain(ek_responses *o, const json_t *item)
{
    const char *type = ek_json_get_text(item, "type", NULL);
    const json_t *output = ek_field(item, "output");
    if (!type) return NULL;
    if (!strcmp(type, "custom_tool_call")) return custom_call(item);
    if (!strcmp(type, "custom_tool_call_output")) return result_of(item, NULL);
    if (!strcmp(type, "local_shell_call")) return local_shell_call(o, item);
    if (!strcmp(type, "local_shell_call_output")) return local_shell_result(o, item);
    if (!strcmp(type, "shell_call")) return call_of(item, "shell", members_of(ek_field(item, "action"), false));
    if (!strcmp(type, "shell_call_output")) return result_of(item, written(output ? output : json_null()));
    if (!strcmp(type, "apply_patch_call"))
        return call_of(item, "apply_patch", members_of(ek_field(item, "operation"), true));
    if (!strcmp(type, "apply_patch_call_output")) return patch_result(item);
    if (!strcmp(type, "tool_search_call"))
        return call_of(item, "tool_search", members_of(ek_field(item, "arguments"), true));
    return NULL;
}
