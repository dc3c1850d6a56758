/* Reads the messages of OpenAI's chat completions into a conversation. */
#include <string.h>

#include "serve/api/tools.h"
#include "serve/api/field.h"
#include "serve/api/media.h"
#include "serve/api/openai.h"
#include "text/json/json.h"

/* Whether a value is given: null, false, 0, "", [] and {} count as absent, as in the chat template. */
static bool given(const json_t *v)
{
    if (json_is_string(v)) return json_string_length(v) > 0;
    if (json_is_array(v)) return json_array_size(v) > 0;
    if (json_is_object(v)) return json_object_size(v) > 0;
    if (json_is_number(v)) return json_number_value(v) != 0;
    return json_is_true(v);
}

static void copy_text(ek_buf *out, const json_t *v)
{
    if (ek_json_is_text(v)) ek_buf_add(out, json_string_value(v), json_string_length(v));
}

/* Ids only pair calls with results, so other types than texts are accepted. */
static void copy_id(ek_buf *out, const json_t *v)
{
    if (ek_json_is_text(v)) copy_text(out, v);
    else if (v && !json_is_null(v)) ek_json_write(out, v);
}

static bool read_role(const json_t *v, ek_role *role)
{
    static const struct {
        const char *name;
        ek_role role;
    } roles[] = {{"system", EK_ROLE_SYSTEM},       {"developer", EK_ROLE_DEVELOPER}, {"user", EK_ROLE_USER},
                 {"assistant", EK_ROLE_ASSISTANT}, {"tool", EK_ROLE_TOOL},           {"function", EK_ROLE_TOOL}};
    for (size_t i = 0; ek_json_is_text(v) && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(json_string_value(v), roles[i].name)) {
            *role = roles[i].role;
            return true;
        }
    return false;
}

/* Reads a file inside the part: a text, a picture or a sound. There are no uploaded files. */
static ek_err read_file(ek_conversation *c, ek_message *m, const json_t *file, const ek_api_limits *limits)
{
    size_t n = 0;
    const char *data = ek_json_get_text(file, "file_data", &n);
    bool media;
    if (!data) return ek_part_refuse("content parts", "file", "a message without file_data");
    EK_TRY(ek_media_file_part(c, m, data, n, "this message", limits, &media));
    if (media) return EK_OK;
    return ek_part_named_file(c, m, &ek_message_add(m, EK_BLOCK_TEXT)->text, file, data, n, "a message", limits);
}

static ek_err read_part(ek_conversation *c, ek_message *m, const json_t *part, const ek_api_limits *limits)
{
    size_t n;
    bool media;
    const char *type = ek_json_get_text(part, "type", NULL), *text = ek_json_get_text(part, "text", &n);
    if (!type) return ek_fail(EK_EINVAL, "a content part needs a type");
    if (!strcmp(type, "refusal")) { /* a part without a text */
        ek_message_text(m, EK_BLOCK_TEXT, "", 0);
        return EK_OK;
    }
    if (!strcmp(type, "file")) return read_file(c, m, ek_field(part, "file"), limits);
    EK_TRY(ek_media_part(c, m, part, "content parts", "a message", limits, &media));
    if (media) return EK_OK;
    if (strcmp(type, "text")) return ek_part_refuse("content parts", type, "a message");
    if (!text) return ek_fail(EK_EINVAL, "a text part needs a text");
    ek_message_text(m, EK_BLOCK_TEXT, text, n);
    return EK_OK;
}

static ek_err read_content(ek_conversation *c, ek_message *m, const json_t *content, const ek_api_limits *limits)
{
    if (!content) return EK_OK;
    if (ek_json_is_text(content)) {
        ek_message_text(m, EK_BLOCK_TEXT, json_string_value(content), json_string_length(content));
        return EK_OK;
    }
    if (!json_is_array(content)) return ek_fail(EK_EINVAL, "content must be a text or a list of parts");
    m->parts = true;
    for (size_t i = 0; i < json_array_size(content); i++) EK_TRY(read_part(c, m, json_array_get(content, i), limits));
    return EK_OK;
}

static ek_err read_call(ek_message *m, const json_t *id, const json_t *function, size_t i, const ek_api_limits *limits)
{
    json_t *arguments;
    if (!json_is_object(function)) return ek_fail(EK_EINVAL, "tool_calls[%zu] has no function", i);
    if (!ek_json_get_text(function, "name", NULL)) return ek_fail(EK_EINVAL, "tool_calls[%zu] has no function name", i);
    ek_err err = ek_arguments_read(&arguments, ek_json_get(function, "arguments"), limits);
    if (err) return ek_fail_in(err, "the arguments of tool_calls[%zu]", i);
    ek_block *b = ek_message_add(m, EK_BLOCK_CALL);
    copy_id(&b->id, id);
    copy_text(&b->name, ek_json_get(function, "name"));
    b->value = arguments;
    return EK_OK;
}

/* The call of a custom tool, whose input is a text. */
static ek_err read_custom_call(ek_message *m, const json_t *id, const json_t *custom, size_t i)
{
    size_t n = 0;
    const char *input = ek_json_get_text(custom, "input", &n);
    if (!ek_json_get_text(custom, "name", NULL) || !input)
        return ek_fail(EK_EINVAL, "tool_calls[%zu] of type custom needs a name and a text input", i);
    ek_block *b = ek_message_add(m, EK_BLOCK_CALL);
    copy_id(&b->id, id);
    copy_text(&b->name, ek_json_get(custom, "name"));
    b->value = ek_custom_arguments(input, n);
    return EK_OK;
}

static ek_err read_calls(ek_message *m, const json_t *v, const ek_api_limits *limits)
{
    const json_t *calls = ek_json_get(v, "tool_calls"), *legacy = ek_json_get(v, "function_call");
    if (!given(calls)) return json_is_object(legacy) ? read_call(m, NULL, legacy, 0, limits) : EK_OK;
    if (!json_is_array(calls)) return ek_fail(EK_EINVAL, "tool_calls is not a list");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *custom = ek_field(call, "custom");
        if (custom) {
            EK_TRY(read_custom_call(m, ek_json_get(call, "id"), custom, i));
            continue;
        }
        EK_TRY(read_call(m, ek_json_get(call, "id"), ek_json_get(call, "function"), i, limits));
    }
    return EK_OK;
}

static ek_err read_name(ek_buf *out, const json_t *v)
{
    const json_t *name = ek_json_get(v, "name");
    if (given(name) && !ek_json_is_text(name)) return ek_fail(EK_EINVAL, "the name of a tool result is not a string");
    copy_text(out, name);
    return EK_OK;
}

/* The template's own form of results: inside the message with the calls, values of any type. */
static ek_err read_results(ek_message *m, const json_t *results)
{
    if (!given(results)) return EK_OK;
    if (!json_is_array(results)) return ek_fail(EK_EINVAL, "tool_responses is not a list");
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *one = json_array_get(results, i);
        ek_block *b = ek_message_add(m, EK_BLOCK_RESULT);
        EK_TRY(read_name(&b->name, one));
        b->value = json_incref((json_t *)(uintptr_t)ek_json_get(one, "response"));
    }
    return EK_OK;
}

static ek_err read_reasoning(ek_message *m, const json_t *v)
{
    const json_t *text = ek_json_get(v, "reasoning");
    if (!given(text)) text = ek_json_get(v, "reasoning_content");
    if (!given(text)) return EK_OK;
    if (!ek_json_is_text(text)) return ek_fail(EK_EINVAL, "its reasoning is not a string");
    ek_message_text(m, EK_BLOCK_REASONING, json_string_value(text), json_string_length(text));
    return EK_OK;
}

ek_err ek_openai_message(ek_conversation *c, const json_t *v, const ek_api_limits *limits)
{
    ek_role role;
    if (!read_role(ek_json_get(v, "role"), &role))
        return ek_field_wrong_role(v, "system, developer, user, assistant, tool, function");
    ek_message *m = ek_conversation_add(c, role);
    if (role == EK_ROLE_TOOL) {
        copy_id(&m->call_id, ek_json_get(v, "tool_call_id"));
        EK_TRY(read_name(&m->name, v));
    }
    EK_TRY(read_reasoning(m, v));
    EK_TRY(read_content(c, m, ek_field(v, "content"), limits));
    EK_TRY(read_calls(m, v, limits));
    return read_results(m, ek_json_get(v, "tool_responses"));
}

ek_err ek_openai_messages(ek_api_request *r, const json_t *list, const ek_api_limits *limits)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return ek_field_wrong(r, "messages", "a list of at least one message is needed");
    for (size_t i = 0; i < json_array_size(list); i++) {
        ek_err err = ek_openai_message(&r->conversation, json_array_get(list, i), limits);
        if (!err) continue;
        r->param = "messages";
        return ek_fail_in(err, "messages[%zu]", i);
    }
    return EK_OK;
}
