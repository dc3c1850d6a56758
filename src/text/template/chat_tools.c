/* Tool calls and their results in the chat template. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/template/chat_state.h"
#include "text/utf8.h"

bool ek_chat_media_kind(const json_t *part, ek_media_kind *kind)
{
    const json_t *type = ek_json_get(part, "type");
    if (ek_chat_text_is(type, "image") || ek_chat_text_is(type, "image_url")) *kind = EK_MEDIA_IMAGE;
    else if (ek_chat_text_is(type, "audio") || ek_chat_text_is(type, "input_audio")) *kind = EK_MEDIA_AUDIO;
    else if (ek_chat_text_is(type, "video")) *kind = EK_MEDIA_VIDEO;
    else return false;
    return true;
}

static void put_text_arguments(ek_renderer *r, const json_t *arguments)
{
    const char *s = json_string_value(arguments);
    size_t n = json_string_length(arguments);
    bool braces = n >= 2 && s[0] == '{' && s[n - 1] == '}';
    ek_put_text(r->p, s + braces, n - 2 * (size_t)braces);
}

ek_err ek_chat_put_calls(ek_renderer *r, const json_t *calls)
{
    if (!json_is_array(calls)) return ek_fail(EK_EINVAL, "tool_calls is not a list");
    for (size_t i = 0; i < json_array_size(calls) && !r->p->full; i++) {
        const json_t *function = ek_json_get(json_array_get(calls, i), "function");
        const json_t *name = ek_json_get(function, "name"), *arguments = ek_json_get(function, "arguments");
        if (!ek_json_is_text(name)) return ek_fail(EK_EINVAL, "tool_calls[%zu] has no function name", i);
        ek_put_mark(r->p, "<|tool_call>");
        ek_put(r->p, "call:");
        ek_put_str(r->p, name);
        ek_put(r->p, "{");
        if (json_is_object(arguments)) ek_put_members(r->p, arguments);
        else if (r->opts.text_arguments && ek_json_is_text(arguments)) put_text_arguments(r, arguments);
        else if (!json_is_null(arguments))
            return ek_fail(EK_EINVAL, "the arguments of tool_calls[%zu] must be a JSON object, not %s", i,
                           !arguments                   ? "missing"
                           : ek_json_is_text(arguments) ? "a string"
                                                        : "another value");
        ek_put(r->p, "}");
        ek_put_mark(r->p, "<tool_call|>");
    }
    return EK_OK;
}

/* <|tool_response>response:NAME{; name: NULL is unknown. */
static ek_err open_response(ek_renderer *r, const json_t *name)
{
    ek_put_mark(r->p, "<|tool_response>");
    ek_put(r->p, "response:");
    if (!name) ek_put(r->p, "unknown");
    else if (ek_json_is_text(name)) ek_put_str(r->p, name);
    else return ek_fail(EK_EINVAL, "the name of a tool result is not a string");
    ek_put(r->p, "{");
    return EK_OK;
}

static void close_response(ek_renderer *r)
{
    ek_put(r->p, "}");
    ek_put_mark(r->p, "<tool_response|>");
}

/* text: the value is this text; otherwise value, which may be undefined. */
static ek_err put_response(ek_renderer *r, const json_t *name, const json_t *value, const ek_buf *text)
{
    EK_TRY(open_response(r, name));
    if (!text && json_is_object(value)) {
        ek_put_members(r->p, value);
    } else {
        ek_put(r->p, "value:");
        if (text) ek_put_quoted(r->p, ek_buf_text(text), text->len);
        else ek_put_value(r->p, value, false);
    }
    close_response(r);
    return EK_OK;
}

/* A result that declares tools: its members in order, without the value where that says nothing. */
static ek_err put_tools_response(ek_renderer *r, const json_t *name, const json_t *parts, const ek_buf *text)
{
    EK_TRY(open_response(r, name));
    ek_put(r->p, "tools:");
    for (size_t i = 0; i < json_array_size(parts) && !r->p->full; i++) {
        const json_t *part = json_array_get(parts, i);
        if (ek_chat_is_tool(part)) EK_TRY(ek_put_tool(r->p, ek_json_get(part, "tool")));
    }
    if (text->len > 0) {
        ek_put(r->p, ",value:");
        ek_put_quoted(r->p, text->data, text->len);
    }
    close_response(r);
    return EK_OK;
}

static const json_t *true_name(const json_t *v)
{
    const json_t *name = ek_json_get(v, "name");
    return ek_py_truthy(name) ? name : NULL;
}

ek_err ek_chat_put_given_responses(ek_renderer *r, const json_t *responses, bool *responded)
{
    size_t n = json_is_array(responses)    ? json_array_size(responses)
               : json_is_object(responses) ? json_object_size(responses)
               : ek_json_is_text(responses) /* its characters */
                   ? ek_utf8_count(json_string_value(responses), json_string_length(responses))
                   : SIZE_MAX;
    if (n == SIZE_MAX) return ek_fail(EK_EINVAL, "tool_responses is not a list");
    for (size_t i = 0; i < n && !r->p->full; i++) {
        const json_t *one = json_array_get(responses, i);
        EK_TRY(put_response(r, true_name(one), ek_json_get(one, "response"), NULL));
        *responded = true;
    }
    return EK_OK;
}

static ek_err put_tool_parts(ek_renderer *r, const json_t *name, const json_t *parts)
{
    ek_buf text = {0};
    ek_err e = EK_OK;
    bool declares = false;
    for (size_t i = 0; i < json_array_size(parts) && e == EK_OK; i++) {
        const json_t *part = json_array_get(parts, i), *t = ek_json_get(part, "text");
        if (!json_is_object(part)) e = ek_fail(EK_EINVAL, "part %zu of a tool result is not an object", i);
        else if (ek_chat_is_tool(part)) declares = true;
        else if (!ek_chat_text_is(ek_json_get(part, "type"), "text")) continue;
        else if (!ek_json_is_text(t)) e = ek_fail(EK_EINVAL, "part %zu of a tool result has no text", i);
        else ek_py_str(&text, t);
    }
    if (e == EK_OK) e = declares ? put_tools_response(r, name, parts, &text) : put_response(r, name, NULL, &text);
    ek_buf_fini(&text);
    EK_TRY(e);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        ek_media_kind kind;
        const json_t *part = json_array_get(parts, i);
        if (ek_chat_media_kind(part, &kind)) ek_put_media(r->p, kind, part);
    }
    return EK_OK;
}

/* The calls of a message by their ids. The template looks through all calls for every result, and the last one that
 * matches counts; here each result is found at once. */
typedef struct call_index {
    json_t *by_text;      /* ids that are texts: the last call of each */
    const json_t *no_id;  /* the last call without an id */
    const json_t **other; /* calls with ids of other kinds, which no known client sends */
    size_t n_other;
} call_index;

static void index_calls(call_index *index, const json_t *calls)
{
    *index = (call_index){.by_text = json_object(), .other = ek_alloc((json_array_size(calls) + 1) * sizeof(json_t *))};
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i);
        const json_t *id = ek_json_get(call, "id");
        if (json_is_string(id))
            json_object_setn_nocheck(index->by_text, json_string_value(id), json_string_length(id), call);
        else if (!id || json_is_null(id)) index->no_id = call;
        else index->other[index->n_other++] = call;
    }
}

static const json_t *find_call(const call_index *index, const json_t *id)
{
    if (json_is_string(id)) return json_object_getn(index->by_text, json_string_value(id), json_string_length(id));
    if (!id || json_is_null(id)) return index->no_id;
    for (size_t i = index->n_other; i-- > 0;)
        if (ek_py_equal(ek_json_get(index->other[i], "id"), id)) return index->other[i];
    return NULL;
}

static ek_err put_tool_message(ek_renderer *r, const call_index *index, const json_t *message)
{
    const json_t *name = true_name(message), *content = ek_json_get(message, "content");
    const json_t *call = find_call(index, ek_json_get(message, "tool_call_id"));
    if (call) name = ek_json_get(ek_json_get(call, "function"), "name");
    if (json_is_array(content)) return put_tool_parts(r, name, content);
    if (json_object_size(content) > 0) return ek_fail(EK_EINVAL, "the content of a tool message is an object");
    if (json_is_object(content)) return put_response(r, name, NULL, &(ek_buf){0});
    return put_response(r, name, content ? content : json_null(), NULL);
}

ek_err ek_chat_put_tool_messages(ek_renderer *r, const json_t *calls, size_t i, bool *responded)
{
    if (i >= r->n || !ek_chat_role_is(ek_chat_message(r, i), "tool")) return EK_OK;
    call_index index;
    index_calls(&index, calls);
    ek_err e = EK_OK;
    for (; i < r->n && ek_chat_role_is(ek_chat_message(r, i), "tool") && e == EK_OK && !r->p->full; i++) {
        e = put_tool_message(r, &index, ek_chat_message(r, i));
        if (e != EK_OK) ek_fail_in(e, "its result, messages[%zu]", i);
        *responded = true;
    }
    json_decref(index.by_text);
    free(index.other);
    return e;
}
