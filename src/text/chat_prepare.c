/* What a server makes of a client's messages before the template sees them. */
#include <string.h>

#include "text/chat_write.h"
#include "text/json.h"
#include "text/utf8.h"

static bool text_is(const json_t *v, const char *s)
{
    return ek_json_is_text(v) && strcmp(json_string_value(v), s) == 0;
}

static json_t *text(const char *s, size_t n)
{
    return json_stringn_nocheck(s, n);
}

/* {"type": "function", …} with its arguments as an object: those of call, or parsed from text. */
static ek_err with_object_arguments(json_t **out, const json_t *call, size_t i)
{
    const json_t *function = ek_json_get(call, "function"), *arguments = ek_json_get(function, "arguments");
    if (!json_is_object(function)) return ek_fail(EK_EINVAL, "tool_calls[%zu] has no function", i);
    json_t *parsed = NULL;
    if (!arguments || json_is_null(arguments)) {
        parsed = json_object();
    } else if (ek_json_is_text(arguments)) {
        const char *s = json_string_value(arguments);
        size_t n = json_string_length(arguments);
        ek_utf8_strip(&s, &n);
        if (n == 0) parsed = json_object();
        else if (ek_json_read_lenient(&parsed, s, n, 0) != EK_OK)
            return ek_fail_in(EK_EINVAL, "the arguments of tool_calls[%zu]", i);
    } else {
        parsed = json_incref((json_t *)arguments);
    }
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return ek_fail(EK_EINVAL, "the arguments of tool_calls[%zu] are not a JSON object", i);
    }
    json_t *new_function = json_copy((json_t *)function);
    json_object_set_new_nocheck(new_function, "arguments", parsed);
    *out = json_copy((json_t *)call);
    json_object_set_new_nocheck(*out, "function", new_function);
    return EK_OK;
}

static ek_err prepare_calls(json_t *message, const json_t *calls)
{
    json_t *list = json_array();
    ek_err e = EK_OK;
    for (size_t i = 0; i < json_array_size(calls) && e == EK_OK; i++) {
        json_t *call = NULL;
        e = with_object_arguments(&call, json_array_get(calls, i), i);
        if (e == EK_OK) json_array_append_new(list, call);
    }
    if (e == EK_OK) json_object_set_nocheck(message, "tool_calls", list);
    json_decref(list);
    return e;
}

/* The legacy form: function_call of an assistant, and role function for its result. Without
 * ids on either side the template pairs them. */
static void modernise(json_t *m)
{
    if (text_is(ek_json_get(m, "role"), "function")) json_object_set_new_nocheck(m, "role", text("tool", 4));
    json_t *call = json_object_get(m, "function_call");
    if (!call) return;
    if (json_is_object(call) && !ek_py_truthy(ek_json_get(m, "tool_calls"))) {
        json_t *list = json_array(), *new_call = json_object();
        json_object_set_new_nocheck(new_call, "type", text("function", 8));
        json_object_set_nocheck(new_call, "function", call);
        json_array_append_new(list, new_call);
        json_object_set_new_nocheck(m, "tool_calls", list);
    }
    json_object_del(m, "function_call");
}

/* Would the content of an assistant message show? */
static bool has_content(const json_t *content)
{
    if (ek_json_is_text(content)) {
        const char *s = json_string_value(content);
        size_t n = json_string_length(content);
        ek_utf8_strip(&s, &n);
        return n > 0;
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        if (!text_is(ek_json_get(part, "type"), "text") || has_content(ek_json_get(part, "text"))) return true;
    }
    return false;
}

static void append_split(json_t *out, json_t *m)
{
    bool split = text_is(ek_json_get(m, "role"), "assistant") && ek_py_truthy(ek_json_get(m, "tool_calls")) &&
                 has_content(ek_json_get(m, "content"));
    if (!split) {
        json_array_append(out, m);
        return;
    }
    static const char *const moved[] = {"tool_calls", "tool_responses"};
    json_t *calls = json_object();
    json_object_set_nocheck(calls, "role", json_object_get(m, "role"));
    for (int i = 0; i < 2; i++) {
        json_t *v = json_object_get(m, moved[i]);
        if (!v) continue;
        json_object_set_nocheck(calls, moved[i], v);
        json_object_del(m, moved[i]);
    }
    json_array_append(out, m);
    json_array_append_new(out, calls);
}

/* The first text of a system message: its content, or its first part's text. NULL if it has
 * none. */
static const json_t *first_text(const json_t *m)
{
    const json_t *content = ek_json_get(m, "content"), *role = ek_json_get(m, "role");
    if (!text_is(role, "system") && !text_is(role, "developer")) return NULL;
    if (json_is_array(content)) content = ek_json_get(json_array_get(content, 0), "text");
    return ek_json_is_text(content) ? content : NULL;
}

/* m is a shallow copy: what is below it belongs to the caller's messages too. */
static void set_first_text(json_t *m, const char *s, size_t n)
{
    json_t *rest = text(s, n), *content = json_object_get(m, "content");
    if (!json_is_array(content)) {
        json_object_set_new_nocheck(m, "content", rest);
        return;
    }
    json_t *part = json_copy(json_array_get(content, 0)), *parts = json_copy(content);
    json_object_set_new_nocheck(part, "text", rest);
    if (n > 0) json_array_set_new(parts, 0, part);
    else json_array_remove(parts, 0);
    if (n == 0) json_decref(part);
    json_object_set_new_nocheck(m, "content", parts);
}

/* Coding clients put a line with a changing checksum first, which would make every prompt
 * different from the one before. */
static void drop_billing_line(json_t *m)
{
    static const char start[] = "x-anthropic-billing-header:";
    const json_t *v = first_text(m);
    if (!v || strncmp(json_string_value(v), start, sizeof start - 1) != 0) return;
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    const char *newline = memchr(s, '\n', n);
    size_t skip = newline ? (size_t)(newline - s) + 1 : n;
    set_first_text(m, s + skip, n - skip);
}

/* A documented convenience: <|think|> at the start of the system text asks for thinking. */
static bool take_think(json_t *m)
{
    static const char mark[] = "<|think|>";
    const json_t *v = first_text(m);
    if (!v) return false;
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    ek_utf8_strip(&s, &n);
    if (n < sizeof mark - 1 || memcmp(s, mark, sizeof mark - 1) != 0) return false;
    set_first_text(m, s + sizeof mark - 1, n - (sizeof mark - 1));
    return true;
}

static ek_err prepare_message(json_t *out, const json_t *message, bool first, bool *thinking)
{
    if (!json_is_object(message)) return ek_fail(EK_EINVAL, "it is not an object");
    if (!ek_json_is_text(ek_json_get(message, "role"))) return ek_fail(EK_EINVAL, "it has no role");
    json_t *m = json_copy((json_t *)message);
    if (first) drop_billing_line(m);
    if (first && take_think(m) && thinking) *thinking = true;
    modernise(m);
    const json_t *calls = ek_json_get(m, "tool_calls");
    ek_err e = EK_OK;
    if (ek_py_truthy(calls))
        e = json_is_array(calls) ? prepare_calls(m, calls) : ek_fail(EK_EINVAL, "tool_calls is not a list");
    if (e == EK_OK) append_split(out, m);
    json_decref(m);
    return e;
}

ek_err ek_chat_prepare(json_t **out, const json_t *messages, bool *thinking)
{
    *out = NULL;
    if (!json_is_array(messages)) return ek_fail(EK_EINVAL, "messages is %s", messages ? "not a list" : "missing");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        ek_err e = prepare_message(list, json_array_get(messages, i), i == 0, thinking);
        if (e == EK_OK) continue;
        json_decref(list);
        return ek_fail_in(e, "messages[%zu]", i);
    }
    *out = list;
    return EK_OK;
}
