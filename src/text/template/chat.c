#define _GNU_SOURCE /* memmem */
/* The conversation: turns, thoughts, content. */
#include "text/template/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "text/template/chat_state.h"
#include "text/utf8.h"

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

/* Removes thoughts that a client left in a reply: of each piece that ends with a channel's close, only the text before
 * the channel's opening stays. */
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

static ek_err put_system(ek_renderer *r, const json_t *message)
{
    const json_t *content = ek_json_get(message, "content");
    if (ek_json_is_text(content)) {
        put_stripped(r->p, json_string_value(content), json_string_length(content));
    } else if (json_is_array(content)) {
        for (size_t i = 0; i < json_array_size(content); i++) {
            const json_t *part = json_array_get(content, i);
            if (ek_chat_is_tool(part)) {
                EK_TRY(ek_put_tool(r->p, ek_json_get(part, "tool")));
                continue;
            }
            put_stripped_str(r->p, ek_json_get(part, "text"));
            ek_put(r->p, " ");
        }
    } else if (json_is_object(content)) { /* the template goes over its keys, which have no text */
        for (size_t i = 0; i < json_object_size(content); i++) ek_put(r->p, " ");
    }
    return EK_OK;
}

static ek_err put_content(ek_renderer *r, const json_t *content, bool model)
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
        if (ek_chat_media_kind(part, &kind)) ek_put_media(r->p, kind, part);
        else if (ek_chat_is_tool(part)) EK_TRY(ek_put_tool(r->p, ek_json_get(part, "tool")));
        else if (!ek_chat_text_is(ek_json_get(part, "type"), "text")) continue;
        else if (!model) put_stripped_str(r->p, text);
        else if (ek_json_is_text(text)) put_without_thoughts(r->p, json_string_value(text), json_string_length(text));
        else return ek_fail(EK_EINVAL, "content part %zu has no text", i);
    }
    return EK_OK;
}

static ek_err put_thought(ek_renderer *r, const json_t *m, size_t i, bool has_calls)
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

static ek_err put_message(ek_renderer *r, size_t i, const json_t *before, const json_t *after)
{
    const json_t *m = ek_chat_message(r, i), *role = ek_json_get(m, "role");
    if (!json_is_object(m)) return ek_fail(EK_EINVAL, "it is not an object");
    if (!ek_json_is_text(role)) return ek_fail(EK_EINVAL, "it has no role");
    bool assistant = ek_chat_text_is(role, "assistant"), model = assistant || ek_chat_text_is(role, "model");
    const json_t *calls = ek_json_get(m, "tool_calls"), *given = ek_json_get(m, "tool_responses");
    bool has_calls = ek_py_truthy(calls), responded = false;

    r->last = EK_LAST_OTHER;
    if (!(model && ek_chat_role_is(before, "assistant"))) {
        ek_put_mark(r->p, "<|turn>");
        if (assistant) ek_put(r->p, "model");
        else ek_put_str(r->p, role);
        ek_put(r->p, "\n");
    }
    EK_TRY(put_thought(r, m, i, has_calls));
    if (has_calls) {
        EK_TRY(ek_chat_put_calls(r, calls));
        r->last = EK_LAST_CALL;
    }
    if (ek_py_truthy(given)) EK_TRY(ek_chat_put_given_responses(r, given, &responded));
    else if (has_calls) EK_TRY(ek_chat_put_tool_messages(r, calls, i + 1, &responded));
    if (responded) r->last = EK_LAST_RESPONSE;

    size_t content_at = r->p->text.len;
    EK_TRY(put_content(r, ek_json_get(m, "content"), model));
    const char *content = ek_buf_text(&r->p->text) + content_at;
    size_t n_content = r->p->text.len - content_at;
    ek_utf8_strip(&content, &n_content);

    if (r->last == EK_LAST_CALL) {
        ek_put_mark(r->p, "<|tool_response>");
    } else if (!(model && ek_chat_role_is(after, "assistant") && (!has_calls || responded)) &&
               !(responded && n_content == 0 && !after)) {
        ek_put_mark(r->p, "<turn|>");
        ek_put(r->p, "\n");
    }
    return EK_OK;
}

static ek_err put_system_turn(ek_renderer *r, const json_t *tools)
{
    const json_t *first = ek_chat_message(r, 0);
    bool has_system = ek_chat_role_is(first, "system") || ek_chat_role_is(first, "developer");
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

static void put_generation_prompt(ek_renderer *r)
{
    if (r->last == EK_LAST_OTHER) {
        ek_put_mark(r->p, "<|turn>");
        ek_put(r->p, "model\n");
        if (r->opts.variant == EK_CHAT_LARGE && !r->opts.enable_thinking) {
            ek_put_mark(r->p, "<|channel>");
            ek_put(r->p, "thought\n");
            ek_put_mark(r->p, "<channel|>");
        }
    } else if (r->last == EK_LAST_RESPONSE && r->opts.enable_thinking) {
        ek_put_mark(r->p, "<|channel>");
        ek_put(r->p, "thought\n");
    }
}

/* The nearest message from i in steps of step that is no tool result; NULL without. */
static const json_t *neighbour(const ek_renderer *r, size_t i, int step)
{
    for (ptrdiff_t k = (ptrdiff_t)i + step; k >= (ptrdiff_t)r->from && k < (ptrdiff_t)r->n; k += step)
        if (!ek_chat_role_is(ek_chat_message(r, (size_t)k), "tool")) return ek_chat_message(r, (size_t)k);
    return NULL;
}

static ek_err reopen_last_turn(ek_renderer *r)
{
    static const char closing[] = "<turn|>\n";
    const size_t len = sizeof closing - 1;
    ek_prompt *p = r->p;
    const json_t *last = r->n > r->from ? ek_chat_message(r, r->n - 1) : NULL;
    if (!ek_chat_role_is(last, "assistant") || ek_py_truthy(ek_json_get(last, "tool_calls")) || p->n_control == 0 ||
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
    ek_renderer r = {.p = p, .messages = messages, .n = json_array_size(messages), .last_user = -1, .opts = *opts};
    p->max_bytes = opts->max_bytes;
    p->loose_tools = opts->loose_tools;
    ek_put_mark(p, "<bos>");
    EK_TRY(put_system_turn(&r, tools));
    for (size_t i = r.from; i < r.n; i++)
        if (ek_chat_role_is(ek_chat_message(&r, i), "user")) r.last_user = (ptrdiff_t)i;
    for (size_t i = r.from; i < r.n && !p->full; i++) {
        if (ek_chat_role_is(ek_chat_message(&r, i), "tool")) continue;
        EK_TRY(ek_wanted_check());
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
    if (ek_chat_text_is(variant, "small")) opts.variant = EK_CHAT_SMALL;
    else if (ek_chat_text_is(variant, "large")) opts.variant = EK_CHAT_LARGE;
    else if (variant && !json_is_null(variant)) return ek_fail(EK_EINVAL, "variant is neither \"small\" nor \"large\"");
    return ek_chat_render(p, ek_json_get(request, "messages"), ek_json_get(request, "tools"), &opts);
}
