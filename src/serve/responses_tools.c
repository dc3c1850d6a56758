/* Tools of OpenAI's Responses API: flat functions, and namespaces, which group functions that may share names. The
 * model knows a function of a namespace as NAMESPACE.NAME; items of replies and of the input have the two apart. */
#include <string.h>

#include "serve/field.h"
#include "serve/openai.h"
#include "serve/responses.h"
#include "serve/tools.h"
#include "text/json.h"

enum { MAX_SPACE = 256 }; /* bytes of a namespace's name, which each of its functions repeats */

static json_t *joined(const char *a, const char *between, const char *b)
{
    ek_buf s = {0};
    ek_buf_fmt(&s, "%s%s%s", a, between, b);
    json_t *v = json_stringn_nocheck(s.data, s.len);
    ek_buf_fini(&s);
    return v;
}

/* space: of the namespace, NULL without; about: its description, once. */
static ek_err add_function(ek_api_request *r, const json_t *t, const char *space, const char *about)
{
    ek_responses *o = r->own;
    size_t n = 0;
    const char *type = ek_json_get_text(t, "type", NULL), *name = ek_json_get_text(t, "name", &n);
    const char *says = ek_json_get_text(t, "description", NULL);
    if (!type || strcmp(type, "function"))
        return ek_field_wrong_text(r, "tools", "only functions are supported, this server runs no tools of type",
                                   type ? type : "", "");
    if (!name || n == 0) return ek_field_wrong(r, "tools", "each function needs a name");
    json_t *whole = space ? joined(space, ".", name) : json_incref((json_t *)(uintptr_t)ek_json_get(t, "name"));
    json_t *description = about && *about ? joined(about, says ? "\n" : "", says ? says : "") : NULL;
    if (space) {
        if (!o->spaces) o->spaces = json_object();
        json_object_set_new_nocheck(o->spaces, json_string_value(whole), json_pack("[s,s]", space, name));
    }
    ek_tools_add(r,
                 ek_openai_function(whole, description ? description : ek_field(t, "description"),
                                    ek_field(t, "parameters"), ek_field(t, "strict")),
                 false);
    json_decref(whole);
    json_decref(description);
    return EK_OK;
}

static ek_err add_namespace(ek_api_request *r, const json_t *t)
{
    const json_t *tools = ek_field(t, "tools");
    size_t n = 0;
    const char *space = ek_json_get_text(t, "name", &n), *about = ek_json_get_text(t, "description", NULL);
    if (!space || !*space || !json_is_array(tools))
        return ek_field_wrong(r, "tools", "a namespace needs a name and a list of tools");
    if (n > MAX_SPACE) {
        r->param = "tools";
        return ek_fail(EK_EINVAL, "tools: the name of a namespace has %zu bytes, at most %d are allowed", n, MAX_SPACE);
    }
    for (size_t i = 0; i < json_array_size(tools); i++)
        EK_TRY(add_function(r, json_array_get(tools, i), space, i == 0 ? about : NULL));
    return EK_OK;
}

/* Calls would not say which of two was meant. */
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
    if (tools && !json_is_array(tools)) return ek_field_wrong(r, "tools", "a list is needed");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i);
        const char *type = ek_json_get_text(t, "type", NULL);
        if (type && !strcmp(type, "namespace")) EK_TRY(add_namespace(r, t));
        else EK_TRY(add_function(r, t, NULL, NULL));
    }
    return o->spaces ? check_names(r) : EK_OK;
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
    ek_buf_str(out, ",\"namespace\":");
    ek_put_string(out, json_string_value(json_array_get(pair, 0)));
}
