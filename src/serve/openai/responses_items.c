/* Reads the items of the Responses API into a conversation. */

#include <string.h>

#include "serve/api/context.h"
#include "serve/api/tools.h"
#include "serve/api/field.h"
#include "serve/api/media.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

/* --- items of other tools --- */

/* Other calls and results of the Responses API become items of functions, so that later code knows one kind only. */
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

/* A function's call with these arguments, of which it takes ownership. name NULL: the item has the name. */
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

/* The members of an object that are not null; without `type` if it only says what the object is. */
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

/* In the API's form a result names the item of the call, not the call. */
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

/* completed: the patch's output */
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

/* An item of a non-function tool in the form of a function's item: a new reference; NULL for other items. */
static json_t *responses_plain(ek_responses *o, const json_t *item)
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

/* --- texts and parts --- */

static bool is(const char *s, const char *word)
{
    return s && !strcmp(s, word);
}

/* Reads a file whose text is in the part; there are no uploaded files or URLs here. */
static ek_err read_file(ek_conversation *c, ek_message *m, ek_buf *out, const json_t *part, const ek_api_limits *limits)
{
    size_t n = 0;
    const char *data = ek_json_get_text(part, "file_data", &n);
    const char *other = ek_field(part, "file_url") ? "file_url" : "file_id";
    if (!data) return ek_part_refuse("files", other, "a part of type input_file");
    return ek_part_named_file(c, m, out, part, data, n, "a part of type input_file", limits);
}

static bool is_text(const char *type)
{
    return is(type, "input_text") || is(type, "output_text") || is(type, "text") || is(type, "reasoning_text") ||
           is(type, "summary_text");
}

/* A text, or parts whose texts are joined with `between`. */
static ek_err read_text(ek_buf *out, const json_t *v, const char *between)
{
    if (ek_json_is_text(v)) {
        ek_buf_add(out, json_string_value(v), json_string_length(v));
        return EK_OK;
    }
    if (!json_is_array(v)) return ek_fail(EK_EINVAL, "a text or a list of parts is needed");
    bool any = false;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i);
        const char *type = ek_json_get_text(part, "type", NULL);
        size_t n;
        const char *text = ek_json_get_text(part, "text", &n);
        if (is(type, "refusal")) continue;
        if (!is_text(type)) return ek_part_refuse("parts", type ? type : "", "input");
        if (!text) return ek_fail(EK_EINVAL, "a part of type %s needs a text", type);
        if (any) ek_buf_str(out, between);
        any = true;
        ek_buf_add(out, text, n);
    }
    return EK_OK;
}

/* The last text of m, behind its other blocks; after a picture a new text. */
static ek_buf *text_at_end(ek_message *m)
{
    bool any = false;
    for (int i = 0; i < m->n_blocks; i++) any |= m->blocks[i].kind == EK_BLOCK_TEXT;
    ek_block *last = m->n_blocks ? &m->blocks[m->n_blocks - 1] : NULL;
    ek_buf *text = last && last->kind == EK_BLOCK_TEXT ? &last->text : &ek_message_add(m, EK_BLOCK_TEXT)->text;
    if (any) ek_buf_char(text, '\n');
    return text;
}

/* A part of a message that is not a text: a picture, a sound, a file. */
static ek_err read_part(ek_conversation *c, ek_message *m, const json_t *part, const char *type,
                        const ek_api_limits *limits)
{
    bool media;
    size_t n = 0;
    EK_TRY(ek_media_part(c, m, part, "parts", "input", limits, &media));
    if (media) return EK_OK;
    if (!is(type, "input_file")) return ek_part_refuse("parts", type ? type : "", "input");
    const char *data = ek_json_get_text(part, "file_data", &n), *url = ek_json_get_text(part, "file_url", NULL);
    if (data) EK_TRY(ek_media_file_part(c, m, data, n, "this message", limits, &media));
    if (!data && url && limits->fetch) {
        EK_TRY(ek_media_taken(EK_PART_IMAGE, m, &(ek_media_place){"parts", "input_file", "this message"}, limits));
        return ek_media_url(c, m, EK_PART_IMAGE, url, strlen(url), limits);
    }
    return media ? EK_OK : read_file(c, m, text_at_end(m), part, limits);
}

/* The content of a message, or a tool's output: a text, or parts, whose texts are joined with newlines unless another
 * part is between them. */
static ek_err read_content(ek_conversation *c, ek_message *m, const json_t *v, const ek_api_limits *limits)
{
    if (!json_is_array(v)) return read_text(&ek_message_add(m, EK_BLOCK_TEXT)->text, v, "");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i);
        const char *type = ek_json_get_text(part, "type", NULL);
        size_t n;
        const char *text = ek_json_get_text(part, "text", &n);
        if (is(type, "refusal")) continue;
        if (!is_text(type)) {
            EK_TRY(read_part(c, m, part, type, limits));
            continue;
        }
        if (!text) return ek_fail(EK_EINVAL, "a part of type %s needs a text", type);
        ek_buf_add(text_at_end(m), text, n);
    }
    if (m->n_blocks == 0) ek_message_add(m, EK_BLOCK_TEXT);
    return EK_OK;
}

/* The message of the assistant that is being written. */
static ek_message *assistant(ek_conversation *c)
{
    ek_message *last = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;
    return last && last->role == EK_ROLE_ASSISTANT ? last : ek_conversation_add(c, EK_ROLE_ASSISTANT);
}

static ek_err read_message(ek_conversation *c, const json_t *item, const ek_api_limits *limits)
{
    static const struct {
        const char *name;
        ek_role role;
    } roles[] = {{"user", EK_ROLE_USER}, {"system", EK_ROLE_SYSTEM}, {"developer", EK_ROLE_DEVELOPER}};
    const char *role = ek_json_get_text(item, "role", NULL);
    const json_t *content = ek_field(item, "content");
    if (is(role, "assistant")) return read_text(&ek_message_add(assistant(c), EK_BLOCK_TEXT)->text, content, "");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (is(role, roles[i].name)) return read_content(c, ek_conversation_add(c, roles[i].role), content, limits);
    return ek_field_wrong_role(item, "user, assistant, system, developer");
}

/* The text is in content; clients that keep nothing readable send it in encrypted_content. Without either the summary
 * is used. */
static ek_err read_reasoning(ek_conversation *c, const json_t *item)
{
    const json_t *content = ek_field(item, "content"), *summary = ek_field(item, "summary");
    size_t n = 0;
    const char *sealed = ek_json_get_text(item, "encrypted_content", &n);
    ek_buf text = {0};
    ek_err err = content ? read_text(&text, content, "\n") : EK_OK;
    if (!err && text.len == 0 && sealed) ek_unseal(&text, sealed, n);
    if (!err && text.len == 0 && summary) err = read_text(&text, summary, "\n");
    if (!err && text.len > 0) ek_message_text(assistant(c), EK_BLOCK_REASONING, text.data, text.len);
    ek_buf_fini(&text);
    return err;
}

static ek_err read_call(ek_conversation *c, const json_t *item, const ek_api_limits *limits)
{
    size_t n_id = 0, n_name = 0;
    const char *id = ek_json_get_text(item, "call_id", &n_id), *name = ek_json_get_text(item, "name", &n_name);
    const char *space = ek_json_get_text(item, "namespace", NULL);
    json_t *arguments = NULL;
    if (!id || !name || n_name == 0) return ek_fail(EK_EINVAL, "a function_call needs a call_id and a name");
    ek_err err = ek_arguments_read(&arguments, ek_json_get(item, "arguments"), limits);
    if (err) return ek_fail_in(err, "arguments");
    ek_block *b = ek_message_add(assistant(c), EK_BLOCK_CALL);
    ek_buf_add(&b->id, id, n_id);
    if (space && *space) ek_buf_fmt(&b->name, "%s.", space);
    ek_buf_add(&b->name, name, n_name);
    b->value = arguments;
    b->cut = is(ek_json_get_text(item, "status", NULL), "incomplete");
    return EK_OK;
}

static ek_err read_result(ek_conversation *c, const json_t *item, const ek_api_limits *limits)
{
    size_t n = 0;
    const char *id = ek_json_get_text(item, "call_id", &n);
    if (!id) return ek_fail(EK_EINVAL, "a function_call_output needs a call_id");
    ek_message *m = ek_conversation_add(c, EK_ROLE_TOOL);
    ek_buf_add(&m->call_id, id, n);
    return read_content(c, m, ek_field(item, "output"), limits);
}

/* The result of a search for tools, which are declared at its position. */
static ek_err read_found(ek_api_request *r, const json_t *item)
{
    size_t n = 0;
    const char *id = ek_json_get_text(item, "call_id", &n);
    if (!id) return ek_fail(EK_EINVAL, "a tool_search_output needs a call_id: this server runs no search of its own");
    ek_message *m = ek_conversation_add(&r->conversation, EK_ROLE_TOOL);
    ek_buf_add(&m->call_id, id, n);
    ek_message_add(m, EK_BLOCK_TEXT);
    return ek_responses_bring(r, m, ek_field(item, "tools"));
}

/* A summary of everything before it, except the user's own messages. */
static ek_err read_compaction(ek_conversation *c, const json_t *item)
{
    size_t n = 0;
    const char *s = ek_json_get_text(item, "encrypted_content", &n);
    ek_buf text = {0};
    const bool ours = s && ek_unseal(&text, s, n);
    if (ours && text.len > 0) ek_compaction_take(c, text.data, text.len, true);
    ek_buf_fini(&text);
    return ours ? EK_OK
                : ek_fail(EK_EINVAL, "the encrypted_content of a compaction is one that this server has given out");
}

static ek_err read_plain(ek_api_request *r, const json_t *item, const char *type, const ek_api_limits *limits)
{
    ek_conversation *c = &r->conversation;
    if (!type || is(type, "message")) return read_message(c, item, limits);
    if (is(type, "function_call")) return read_call(c, item, limits);
    if (is(type, "function_call_output")) return read_result(c, item, limits);
    if (is(type, "reasoning")) return read_reasoning(c, item);
    if (is(type, "compaction")) return read_compaction(c, item);
    if (is(type, "compaction_trigger")) return EK_OK; /* only as the last item: responses.c */
    if (is(type, "tool_search_output")) return read_found(r, item);
    if (is(type, "additional_tools"))
        return ek_responses_bring(r, ek_conversation_add(c, EK_ROLE_DEVELOPER), ek_field(item, "tools"));
    return ek_part_refuse("items", type, "input");
}

/* An item becomes a message and a block, each of which is one container in other APIs. */
static ek_err count_items(const json_t *items, const ek_api_limits *limits)
{
    ek_json_size more = {.containers = json_array_size(items)};
    return limits->count ? limits->count(limits->count_arg, &more, 0, 0) : EK_OK;
}

static ek_err read_item(ek_api_request *r, const json_t *item, const ek_api_limits *limits)
{
    if (!json_is_object(item)) return ek_fail(EK_EINVAL, "an object is needed");
    json_t *plain = responses_plain(r->own, item);
    if (plain) item = plain;
    ek_err err = read_plain(r, item, ek_json_get_text(item, "type", NULL), limits);
    json_decref(plain);
    return err;
}

ek_err ek_responses_items(ek_api_request *r, const json_t *items, const ek_api_limits *limits)
{
    EK_TRY(count_items(items, limits));
    for (size_t i = 0; i < json_array_size(items); i++) {
        ek_err err = read_item(r, json_array_get(items, i), limits);
        if (err) return ek_fail_in(err, "input[%zu]", i);
    }
    return EK_OK;
}
