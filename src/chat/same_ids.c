#include "chat/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"

static bool is_tool(const json_t *message)
{
    const char *role = json_string_value(ek_json_get(message, "role"));
    return role && !strcmp(role, "tool");
}

static const json_t *calls_of(const json_t *message)
{
    return is_tool(message) ? NULL : ek_json_get(message, "tool_calls");
}

/* Known clients use only ids of this kind, and the template compares ids by value. */
static bool has_plain_id(const json_t *call)
{
    const json_t *id = ek_json_get(call, "id");
    return json_is_object(call) && (!id || json_is_null(id) || json_is_string(id));
}

/* Whether two calls have one id, or two have none. */
static bool share_ids(const json_t *calls)
{
    const size_t n = json_array_size(calls);
    size_t n_ids = 0, n_none = 0;
    json_t *seen = json_object();
    for (size_t i = 0; i < n; i++) {
        const json_t *call = json_array_get(calls, i), *id = ek_json_get(call, "id");
        if (!has_plain_id(call)) continue;
        if (!json_is_string(id)) n_none++;
        else n_ids++, json_object_setn_new_nocheck(seen, json_string_value(id), json_string_length(id), json_true());
    }
    const bool shared = n_none > 1 || json_object_size(seen) < n_ids;
    json_decref(seen);
    return shared;
}

static void take_text(ek_buf *out, const json_t *v)
{
    if (json_is_string(v)) ek_buf_add(out, json_string_value(v), json_string_length(v));
}

/* Reads only the calls and the results. */
static void read_messages(ek_conversation *c, const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *from = json_array_get(messages, i), *calls = calls_of(from);
        ek_message *m = ek_conversation_add(c, is_tool(from) ? EK_ROLE_TOOL : EK_ROLE_ASSISTANT);
        take_text(&m->call_id, ek_json_get(from, "tool_call_id"));
        take_text(&m->name, ek_json_get(from, "name"));
        for (size_t k = 0; k < json_array_size(calls); k++) {
            ek_block *b = ek_message_add(m, EK_BLOCK_CALL);
            take_text(&b->id, ek_json_get(json_array_get(calls, k), "id"));
            take_text(&b->name, ek_json_get(ek_json_get(json_array_get(calls, k), "function"), "name"));
        }
    }
}

static void set_id(json_t *object, const char *key, int call)
{
    char id[24];
    snprintf(id, sizeof id, "call %d", call);
    json_object_set_new_nocheck(object, key, json_string_nocheck(id));
}

/* Gives ids to the calls of message i, and to their results in any message. */
static void set_ids(json_t *messages, size_t i, const ek_pairs *p)
{
    const json_t *calls = calls_of(json_array_get(messages, i));
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const int call = p->first_call[i] + (int)k;
        if (!has_plain_id(json_array_get(calls, k))) continue;
        set_id(json_array_get(calls, k), "id", call);
        for (int m = p->calls[call].first; m >= 0; m = p->next[m])
            set_id(json_array_get(messages, (size_t)m), "tool_call_id", call);
    }
}

json_t *ek_same_ids_apart(const json_t *request)
{
    const json_t *messages = ek_json_get(request, "messages");
    json_t *apart = NULL;
    bool any = false;
    for (size_t i = 0; i < json_array_size(messages) && !any; i++)
        any = share_ids(calls_of(json_array_get(messages, i)));
    if (!any) return NULL;
    ek_conversation c = {0};
    ek_pairs p = {0};
    read_messages(&c, messages);
    if (ek_pairs_make(&p, &c) == EK_OK && p.next) {
        apart = json_deep_copy(request);
        json_t *copy = json_object_get(apart, "messages");
        for (size_t i = 0; i < json_array_size(copy); i++)
            if (share_ids(calls_of(json_array_get(copy, i)))) set_ids(copy, i, &p);
    }
    ek_pairs_fini(&p);
    ek_conversation_fini(&c);
    return apart;
}
