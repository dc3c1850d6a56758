#define _GNU_SOURCE /* memmem */
/* The conversation: turns, thoughts, calls, results, content. */
#include "text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/chat_write.h"
#include "text/json.h"
#include "text/utf8.h"

typedef enum { LAST_OTHER, LAST_CALL, LAST_RESPONSE } last_state;

typedef struct renderer {
    ek_prompt *p;
    const json_t *messages;
    size_t from, n;      /* messages[from..n) are rendered; the system message is not */
    ptrdiff_t last_user; /* index of the last user message; -1 */
    ek_chat_opts opts;
    last_state last;
} renderer;

static const json_t *message_at(const renderer *r, size_t i)
{
    return json_array_get(r->messages, i);
}

static bool text_is(const json_t *v, const char *s)
{
    return ek_json_is_text(v) && json_string_length(v) == strlen(s) && strcmp(json_string_value(v), s) == 0;
}

static bool role_is(const json_t *message, const char *role)
{
    return text_is(ek_json_get(message, "role"), role);
}

static void put_stripped(ek_prompt *p, const char *s, size_t n)
{
    ek_utf8_strip(&s, &n);
    ek_put_text(p, s, n);
}

/* str(v), stripped; an undefined value gives nothing. */
static void put_stripped_str(ek_prompt *p, const json_t *v)
{
    ek_buf b = {0};
    ek_py_str(&b, v);
    put_stripped(p, ek_buf_text(&b), b.len);
    ek_buf_fini(&b);
}

/* Removes thoughts a client left in a reply: of each piece that ends with a channel's close
 * only what stands before the channel's opening stays. */
static void put_without_thoughts(ek_prompt *p, const char *s, size_t n)
{
    static const char open[] = "<|channel>", close[] = "<channel|>";
    const size_t len = sizeof open - 1;
    ek_buf b = {0};
    for (size_t i = 0; i <= n;) {
        const char *end = memmem(s + i, n - i, close, len);
        size_t stop = end ? (size_t)(end - s) : n;
        const char *thought = memmem(s + i, stop - i, open, len);
        ek_buf_add(&b, s + i, (thought ? (size_t)(thought - s) : stop) - i);
        if (!end) break;
        i = stop + len;
    }
    put_stripped(p, ek_buf_text(&b), b.len);
    ek_buf_fini(&b);
}

static bool media_kind(const json_t *part, ek_media_kind *kind)
{
    const json_t *type = ek_json_get(part, "type");
    if (text_is(type, "image") || text_is(type, "image_url")) *kind = EK_MEDIA_IMAGE;
    else if (text_is(type, "audio") || text_is(type, "input_audio")) *kind = EK_MEDIA_AUDIO;
    else if (text_is(type, "video")) *kind = EK_MEDIA_VIDEO;
    else return false;
    return true;
}

static ek_err put_system(renderer *r, const json_t *message)
{
    const json_t *content = ek_json_get(message, "content");
    if (ek_json_is_text(content)) {
        put_stripped(r->p, json_string_value(content), json_string_length(content));
    } else if (json_is_array(content)) {
        for (size_t i = 0; i < json_array_size(content); i++) {
            put_stripped_str(r->p, ek_json_get(json_array_get(content, i), "text"));
            ek_put(r->p, " ");
        }
    } else if (json_is_object(content)) { /* the template goes over its keys, which have no text */
        for (size_t i = 0; i < json_object_size(content); i++) ek_put(r->p, " ");
    }
    return EK_OK;
}

static ek_err put_calls(renderer *r, const json_t *calls)
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

/* name: NULL is unknown. text: the value is this text; otherwise value, which may be undefined. */
static ek_err put_response(renderer *r, const json_t *name, const json_t *value, const ek_buf *text)
{
    ek_put_mark(r->p, "<|tool_response>");
    ek_put(r->p, "response:");
    if (!name) ek_put(r->p, "unknown");
    else if (ek_json_is_text(name)) ek_put_str(r->p, name);
    else return ek_fail(EK_EINVAL, "the name of a tool result is not a string");
    ek_put(r->p, "{");
    if (!text && json_is_object(value)) {
        ek_put_members(r->p, value);
    } else {
        ek_put(r->p, "value:");
        if (text) ek_put_quoted(r->p, ek_buf_text(text), text->len);
        else ek_put_value(r->p, value, false);
    }
    ek_put(r->p, "}");
    ek_put_mark(r->p, "<tool_response|>");
    return EK_OK;
}

static const json_t *true_name(const json_t *v)
{
    const json_t *name = ek_json_get(v, "name");
    return ek_py_truthy(name) ? name : NULL;
}

static ek_err put_given_responses(renderer *r, const json_t *responses, bool *responded)
{
    size_t n = json_is_array(responses)     ? json_array_size(responses)
               : json_is_object(responses)  ? json_object_size(responses)
               : ek_json_is_text(responses) ? 0
                                            : SIZE_MAX;
    if (ek_json_is_text(responses)) { /* its characters */
        const char *s = json_string_value(responses);
        for (size_t i = 0; i < json_string_length(responses); i++) n += ((uint8_t)s[i] & 0xC0) != 0x80;
    }
    if (n == SIZE_MAX) return ek_fail(EK_EINVAL, "tool_responses is not a list");
    for (size_t i = 0; i < n && !r->p->full; i++) {
        const json_t *one = json_array_get(responses, i);
        EK_TRY(put_response(r, true_name(one), ek_json_get(one, "response"), NULL));
        *responded = true;
    }
    return EK_OK;
}

static ek_err put_tool_parts(renderer *r, const json_t *name, const json_t *parts)
{
    ek_buf text = {0};
    ek_err e = EK_OK;
    for (size_t i = 0; i < json_array_size(parts) && e == EK_OK; i++) {
        const json_t *part = json_array_get(parts, i), *t = ek_json_get(part, "text");
        if (!json_is_object(part)) e = ek_fail(EK_EINVAL, "part %zu of a tool result is not an object", i);
        else if (!text_is(ek_json_get(part, "type"), "text")) continue;
        else if (!ek_json_is_text(t)) e = ek_fail(EK_EINVAL, "part %zu of a tool result has no text", i);
        else ek_py_str(&text, t);
    }
    if (e == EK_OK) e = put_response(r, name, NULL, &text);
    ek_buf_fini(&text);
    EK_TRY(e);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        ek_media_kind kind;
        if (media_kind(json_array_get(parts, i), &kind)) ek_put_media(r->p, kind);
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

static ek_err put_tool_message(renderer *r, const call_index *index, const json_t *message)
{
    const json_t *name = true_name(message), *content = ek_json_get(message, "content");
    const json_t *call = find_call(index, ek_json_get(message, "tool_call_id"));
    if (call) name = ek_json_get(ek_json_get(call, "function"), "name");
    if (json_is_array(content)) return put_tool_parts(r, name, content);
    if (json_object_size(content) > 0) return ek_fail(EK_EINVAL, "the content of a tool message is an object");
    if (json_is_object(content)) return put_response(r, name, NULL, &(ek_buf){0});
    return put_response(r, name, content ? content : json_null(), NULL);
}

static ek_err put_tool_messages(renderer *r, const json_t *calls, size_t i, bool *responded)
{
    if (i >= r->n || !role_is(message_at(r, i), "tool")) return EK_OK;
    call_index index;
    index_calls(&index, calls);
    ek_err e = EK_OK;
    for (; i < r->n && role_is(message_at(r, i), "tool") && e == EK_OK && !r->p->full; i++) {
        e = put_tool_message(r, &index, message_at(r, i));
        if (e != EK_OK) ek_fail_in(e, "its result, messages[%zu]", i);
        *responded = true;
    }
    json_decref(index.by_text);
    free(index.other);
    return e;
}

static ek_err put_content(renderer *r, const json_t *content, bool model)
{
    if (ek_json_is_text(content)) {
        (model ? put_without_thoughts : put_stripped)(r->p, json_string_value(content), json_string_length(content));
        return EK_OK;
    }
    if (json_object_size(content) > 0) return ek_fail(EK_EINVAL, "content is an object");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *text = ek_json_get(part, "text");
        ek_media_kind kind;
        if (!json_is_object(part)) return ek_fail(EK_EINVAL, "content part %zu is not an object", i);
        if (media_kind(part, &kind)) ek_put_media(r->p, kind);
        else if (!text_is(ek_json_get(part, "type"), "text")) continue;
        else if (!model) put_stripped_str(r->p, text);
        else if (ek_json_is_text(text)) put_without_thoughts(r->p, json_string_value(text), json_string_length(text));
        else return ek_fail(EK_EINVAL, "content part %zu has no text", i);
    }
    return EK_OK;
}

static ek_err put_thought(renderer *r, const json_t *m, size_t i, bool has_calls)
{
    const json_t *thought = ek_json_get(m, "reasoning");
    if (!ek_py_truthy(thought)) thought = ek_json_get(m, "reasoning_content");
    bool shown = (ptrdiff_t)i > r->last_user || (r->opts.preserve_thinking && has_calls);
    if (!ek_py_truthy(thought) || !shown) return EK_OK;
    if (!ek_json_is_text(thought)) return ek_fail(EK_EINVAL, "its reasoning is not a string");
    ek_put_mark(r->p, "<|channel>");
    ek_put(r->p, "thought\n");
    ek_put_str(r->p, thought);
    ek_put(r->p, "\n");
    ek_put_mark(r->p, "<channel|>");
    return EK_OK;
}

static ek_err put_message(renderer *r, size_t i, const json_t *before, const json_t *after)
{
    const json_t *m = message_at(r, i), *role = ek_json_get(m, "role");
    if (!json_is_object(m)) return ek_fail(EK_EINVAL, "it is not an object");
    if (!ek_json_is_text(role)) return ek_fail(EK_EINVAL, "it has no role");
    bool assistant = text_is(role, "assistant"), model = assistant || text_is(role, "model");
    const json_t *calls = ek_json_get(m, "tool_calls"), *given = ek_json_get(m, "tool_responses");
    bool has_calls = ek_py_truthy(calls), responded = false;

    r->last = LAST_OTHER;
    if (!(model && role_is(before, "assistant"))) {
        ek_put_mark(r->p, "<|turn>");
        if (assistant) ek_put(r->p, "model");
        else ek_put_str(r->p, role);
        ek_put(r->p, "\n");
    }
    EK_TRY(put_thought(r, m, i, has_calls));
    if (has_calls) {
        EK_TRY(put_calls(r, calls));
        r->last = LAST_CALL;
    }
    if (ek_py_truthy(given)) EK_TRY(put_given_responses(r, given, &responded));
    else if (has_calls) EK_TRY(put_tool_messages(r, calls, i + 1, &responded));
    if (responded) r->last = LAST_RESPONSE;

    size_t content_at = r->p->text.len;
    EK_TRY(put_content(r, ek_json_get(m, "content"), model));
    const char *content = ek_buf_text(&r->p->text) + content_at;
    size_t n_content = r->p->text.len - content_at;
    ek_utf8_strip(&content, &n_content);

    if (r->last == LAST_CALL) {
        ek_put_mark(r->p, "<|tool_response>");
    } else if (!(model && role_is(after, "assistant") && (!has_calls || responded)) &&
               !(responded && n_content == 0 && !after)) {
        ek_put_mark(r->p, "<turn|>");
        ek_put(r->p, "\n");
    }
    return EK_OK;
}

static ek_err put_system_turn(renderer *r, const json_t *tools)
{
    const json_t *first = message_at(r, 0);
    bool has_system = role_is(first, "system") || role_is(first, "developer");
    if (!r->opts.enable_thinking && !ek_py_truthy(tools) && !has_system) return EK_OK;
    ek_put_mark(r->p, "<|turn>");
    ek_put(r->p, "system\n");
    if (r->opts.enable_thinking) {
        ek_put_mark(r->p, "<|think|>");
        ek_put(r->p, "\n");
    }
    if (has_system) {
        EK_TRY(put_system(r, first));
        r->from = 1;
    }
    if (ek_py_truthy(tools) && !json_is_array(tools)) return ek_fail(EK_EINVAL, "tools is not a list");
    for (size_t i = 0; i < json_array_size(tools) && !r->p->full; i++) {
        ek_err e = ek_put_tool(r->p, json_array_get(tools, i));
        if (e != EK_OK) return ek_fail_in(e, "tools[%zu]", i);
    }
    ek_put_mark(r->p, "<turn|>");
    ek_put(r->p, "\n");
    return EK_OK;
}

static void put_generation_prompt(renderer *r)
{
    if (r->last == LAST_OTHER) {
        ek_put_mark(r->p, "<|turn>");
        ek_put(r->p, "model\n");
        if (r->opts.variant == EK_CHAT_LARGE && !r->opts.enable_thinking) {
            ek_put_mark(r->p, "<|channel>");
            ek_put(r->p, "thought\n");
            ek_put_mark(r->p, "<channel|>");
        }
    } else if (r->last == LAST_RESPONSE && r->opts.enable_thinking) {
        ek_put_mark(r->p, "<|channel>");
        ek_put(r->p, "thought\n");
    }
}

/* The nearest message from i in steps of step that is no tool result; NULL without. */
static const json_t *neighbour(const renderer *r, size_t i, int step)
{
    for (ptrdiff_t k = (ptrdiff_t)i + step; k >= (ptrdiff_t)r->from && k < (ptrdiff_t)r->n; k += step)
        if (!role_is(message_at(r, (size_t)k), "tool")) return message_at(r, (size_t)k);
    return NULL;
}

static ek_err reopen_last_turn(renderer *r)
{
    static const char closing[] = "<turn|>\n";
    const size_t len = sizeof closing - 1;
    ek_prompt *p = r->p;
    const json_t *last = r->n > r->from ? message_at(r, r->n - 1) : NULL;
    if (!role_is(last, "assistant") || ek_py_truthy(ek_json_get(last, "tool_calls")) || p->n_control == 0 ||
        p->control[p->n_control - 1] + len != p->text.len)
        return ek_fail(EK_EINVAL, "only an assistant message without tool calls at the end can be continued");
    p->n_control--;
    p->text.len -= len;
    p->text.data[p->text.len] = '\0';
    return EK_OK;
}

ek_err ek_chat_render(ek_prompt *p, const json_t *messages, const json_t *tools, const ek_chat_opts *opts)
{
    if (!json_is_array(messages)) return ek_fail(EK_EINVAL, "messages is %s", messages ? "not a list" : "missing");
    renderer r = {.p = p, .messages = messages, .n = json_array_size(messages), .last_user = -1, .opts = *opts};
    p->max_bytes = opts->max_bytes;
    ek_put_mark(p, "<bos>");
    EK_TRY(put_system_turn(&r, tools));
    for (size_t i = r.from; i < r.n; i++)
        if (role_is(message_at(&r, i), "user")) r.last_user = (ptrdiff_t)i;
    for (size_t i = r.from; i < r.n && !p->full; i++) {
        if (role_is(message_at(&r, i), "tool")) continue;
        ek_err e = put_message(&r, i, neighbour(&r, i, -1), neighbour(&r, i, 1));
        if (e != EK_OK) return ek_fail_in(e, "messages[%zu]", i);
    }
    if (p->full) return ek_fail(EK_ETOOLONG, "the prompt has more than %zu bytes of text", opts->max_bytes);
    if (opts->continue_final) return reopen_last_turn(&r);
    if (opts->add_generation_prompt) put_generation_prompt(&r);
    return EK_OK;
}

ek_err ek_chat_render_request(ek_prompt *p, const json_t *request, ek_chat_variant fallback)
{
    if (!json_is_object(request)) return ek_fail(EK_EINVAL, "the request is not a JSON object");
    const json_t *variant = ek_json_get(request, "variant");
    ek_chat_opts opts = {
        .variant = fallback,
        .add_generation_prompt = ek_py_truthy(ek_json_get(request, "add_generation_prompt")),
        .enable_thinking = ek_py_truthy(ek_json_get(request, "enable_thinking")),
        .preserve_thinking = ek_py_truthy(ek_json_get(request, "preserve_thinking")),
    };
    if (text_is(variant, "small")) opts.variant = EK_CHAT_SMALL;
    else if (text_is(variant, "large")) opts.variant = EK_CHAT_LARGE;
    else if (variant && !json_is_null(variant)) return ek_fail(EK_EINVAL, "variant is neither \"small\" nor \"large\"");
    return ek_chat_render(p, ek_json_get(request, "messages"), ek_json_get(request, "tools"), &opts);
}
