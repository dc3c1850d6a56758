/* Tools of OpenAI's Responses API: flat functions, and namespaces, which group functions that may share names. The
 * model knows a function of a namespace as NAMESPACE.NAME; items of replies and of the input have the two apart. */
#include <string.h>

#include "serve/api/tools.h"
#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

enum { MAX_SPACE = 256 }; /* maximum bytes of a namespace's name, which each of its functions repeats */

static json_t *joined(const char *a, const char *between, const char *b)
{
    ek_buf s = {0};
    ek_buf_fmt(&s, "%s%s%s", a, between, b);
    json_t *v = json_stringn_nocheck(s.data, s.len);
    ek_buf_fini(&s);
    return v;
}

/* The target of tools: the prompt's list, or the message of an item that brings them. */
typedef struct place {
    ek_api_request *r;
    ek_message *m;             /* NULL: the former */
    const char *space, *about; /* name of the namespace, NULL: none; its description, written once */
} place;

static void put_tool(const place *p, json_t *tool, bool later)
{
    if (p->m) ek_tools_bring(p->r, p->m, tool);
    else ek_tools_add(p->r, tool, later);
}

static ek_err add_named(const place *p, const json_t *t, bool custom)
{
    ek_api_request *r = p->r;
    ek_responses *o = r->own;
    size_t n = 0;
    const char *name = ek_json_get_text(t, "name", &n), *says = ek_json_get_text(t, "description", NULL);
    bool later = false;
    json_t *tool = NULL;
    if (!name || n == 0) return ek_field_wrong(r, "tools", "each function needs a name");
    EK_TRY(ek_field_bool(r, t, "defer_loading", &later));
    json_t *whole = p->space ? joined(p->space, ".", name) : json_incref((json_t *)(uintptr_t)ek_json_get(t, "name"));
    json_t *made = p->about && *p->about ? joined(p->about, says ? "\n" : "", says ? says : "") : NULL;
    const json_t *description = made ? made : ek_field(t, "description");
    ek_err err = EK_OK;
    if (p->space) {
        if (!o->spaces) o->spaces = json_object();
        json_object_set_new_nocheck(o->spaces, json_string_value(whole), json_pack("[s,s]", p->space, name));
    }
    if (custom) err = ek_custom_tool(r, whole, description, t, &tool);
    else tool = ek_openai_function(whole, description, ek_field(t, "parameters"), ek_field(t, "strict"));
    if (!err) put_tool(p, tool, later);
    json_decref(whole);
    json_decref(made);
    return err;
}

/* A search by the client has its own description and parameters. */
static ek_err add_search(const place *p, const json_t *t)
{
    const char *execution = ek_json_get_text(t, "execution", NULL);
    if (!execution || strcmp(execution, "client"))
        return ek_field_wrong(p->r, "tools", "this server runs no tools: a tool_search needs execution client");
    json_t *tool = ek_client_tool_openai("tool_search"), *function = json_object_get(tool, "function");
    const json_t *description = ek_field(t, "description"), *parameters = ek_field(t, "parameters");
    if (ek_json_is_text(description))
        json_object_set_nocheck(function, "description", (json_t *)(uintptr_t)description);
    if (json_is_object(parameters)) {
        json_object_set_nocheck(function, "parameters", (json_t *)(uintptr_t)parameters);
        json_object_del(function, "strict");
    }
    put_tool(p, tool, false);
    return EK_OK;
}

static ek_err add_client_tool(const place *p, const json_t *t, const char *type)
{
    const char *where = ek_json_get_text(ek_field(t, "environment"), "type", NULL);
    json_t *tool = p->space ? NULL : ek_client_tool_openai(type);
    if (!tool)
        return ek_field_wrong_text(p->r, "tools", "only functions are supported, this server runs no tools of type",
                                   type, "");
    if (where && strcmp(where, "local")) {
        json_decref(tool);
        return ek_field_wrong_text(p->r, "tools", "this server runs no shell; the environment must be local, not",
                                   where, "");
    }
    put_tool(p, tool, false);
    return EK_OK;
}

static ek_err add_tool(const place *p, const json_t *t);

static ek_err add_namespace(const place *p, const json_t *t)
{
    ek_api_request *r = p->r;
    const json_t *tools = ek_field(t, "tools");
    size_t n = 0;
    place inside = {r, p->m, ek_json_get_text(t, "name", &n), ek_json_get_text(t, "description", NULL)};
    if (!inside.space || !*inside.space || !json_is_array(tools))
        return ek_field_wrong(r, "tools", "a namespace needs a name and a list of tools");
    if (n > MAX_SPACE) {
        r->param = "tools";
        return ek_fail(EK_EINVAL, "tools: the name of a namespace has %zu bytes, at most %d are allowed", n, MAX_SPACE);
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        EK_TRY(add_tool(&inside, json_array_get(tools, i)));
        inside.about = NULL;
    }
    return EK_OK;
}

static ek_err add_tool(const place *p, const json_t *t)
{
    const char *type = ek_json_get_text(t, "type", NULL);
    if (!type) type = "";
    if (!strcmp(type, "function")) return add_named(p, t, false);
    if (!strcmp(type, "custom")) return add_named(p, t, true);
    if (!strcmp(type, "namespace") && !p->space) return add_namespace(p, t);
    if (!strcmp(type, "tool_search") && !p->space) return add_search(p, t);
    return add_client_tool(p, t, type);
}

/* Refuses equal names, because a call could mean either tool. */
static ek_err check_names(ek_api_request *r)
{
    json_t *seen = json_object();
    const char *twice = NULL;
    for (size_t i = 0; i < json_array_size(r->tools) && !twice; i++) {
        const char *name = ek_json_get_text(ek_json_get(json_array_get(r->tools, i), "function"), "name", NULL);
        if (json_object_get(seen, name)) twice = name;
        json_object_set_new_nocheck(seen, name, json_true());
    }
    ek_err err = twice ? ek_field_wrong_text(r, "tools", "two functions are named", twice, "") : EK_OK;
    json_decref(seen);
    return err;
}

ek_err ek_responses_tools(ek_api_request *r, const json_t *body)
{
    ek_responses *o = r->own;
    const json_t *tools = ek_field(body, "tools");
    const place p = {.r = r};
    if (tools && !json_is_array(tools)) return ek_field_wrong(r, "tools", "a list is needed");
    for (size_t i = 0; i < json_array_size(tools); i++) EK_TRY(add_tool(&p, json_array_get(tools, i)));
    return o->spaces ? check_names(r) : EK_OK;
}

ek_err ek_responses_bring(ek_api_request *r, ek_message *m, const json_t *tools)
{
    const place p = {.r = r, .m = m};
    if (!json_is_array(tools)) return ek_fail(EK_EINVAL, "a list of tools is needed");
    for (size_t i = 0; i < json_array_size(tools); i++) EK_TRY(add_tool(&p, json_array_get(tools, i)));
    return EK_OK;
}

void ek_responses_put_name(ek_buf *out, const ek_responses *o, const ek_buf *name)
{
    const json_t *pair = o->spaces ? json_object_getn(o->spaces, ek_buf_text(name), name->len) : NULL;
    ek_buf_str(out, ",\"name\":");
    if (!pair) {
        ek_json_quote(out, ek_buf_text(name), name->len);
        return;
    }
    ek_put_string(out, json_string_value(json_array_get(pair, 1)));
    ek_put_string_after(out, ",\"namespace\":", json_string_value(json_array_get(pair, 0)));
}
