/* Reads system and messages of Anthropic's Messages API into a conversation. */
#include <string.h>

#include "serve/anthropic/anthropic.h"
#include "serve/api/arguments.h"
#include "serve/api/field.h"
#include "serve/api/parts.h"
#include "serve/api/sealed.h"
#include "serve/api/tools.h"
#include "text/json/json.h"

static const char *type_of(const json_t *block)
{
    const char *type = ek_json_get_text(block, "type", NULL);
    return type ? type : "";
}

/* Claude Code drops the images or documents of a conversation and carries on where a refusal has this token, and no
 * letter, digit, '_', ':', '.' or '-' behind it; otherwise its turn ends with the error. */
static ek_err with_capability(ek_err err, const char *class)
{
    ek_buf says = {0};
    ek_buf_str(&says, ek_err_text());
    ek_fail(err, "%s (capability_rejected: %s)", says.data, class);
    ek_buf_fini(&says);
    return err;
}

static ek_err refused_document(ek_err err)
{
    return err ? with_capability(err, "document_block") : EK_OK;
}

static ek_err wrong_block(const char *type, const char *where)
{
    ek_err err = ek_part_refuse("blocks", type, where);
    if (!strcmp(type, "image")) return with_capability(err, "image_block");
    return !strcmp(type, "document") ? with_capability(err, "document_block") : err;
}

static ek_err copy_member(ek_buf *out, const json_t *block, const char *key)
{
    size_t n;
    const char *s = ek_json_get_text(block, key, &n);
    if (!s) return ek_fail(EK_EINVAL, "a block of type %.40s needs a text %s", type_of(block), key);
    ek_buf_add(out, s, n);
    return EK_OK;
}

static ek_err add_blocks(ek_buf *out, const json_t *list, const char *where,
                         ek_err (*add)(ek_buf *, const json_t *, const char *))
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i > 0) ek_buf_char(out, '\n');
        EK_TRY(add(out, json_array_get(list, i), where));
    }
    return EK_OK;
}

static ek_err add_text_block(ek_buf *out, const json_t *block, const char *where)
{
    if (strcmp(type_of(block), "text")) return wrong_block(type_of(block), where);
    return copy_member(out, block, "text");
}

/* The text that a document's source is. PDFs, URLs and uploaded files are none. */
static ek_err add_source(ek_buf *out, const json_t *source, const char *where)
{
    const char *type = type_of(source), *media = ek_json_get_text(source, "media_type", NULL);
    const json_t *content = ek_field(source, "content");
    size_t n = 0;
    const char *data = ek_json_get_text(source, "data", &n);
    if (!strcmp(type, "text")) return copy_member(out, source, "data");
    if (!strcmp(type, "content")) {
        if (json_is_array(content)) return add_blocks(out, content, "the content of a document", add_text_block);
        return copy_member(out, source, "content");
    }
    if (!strcmp(type, "base64") && data && media) return refused_document(ek_part_file(out, data, n, media, where));
    return refused_document(ek_part_refuse("documents with a source", type, where));
}

static ek_err add_document(ek_buf *out, const json_t *block, const char *where)
{
    static const char *const names[] = {"title", "context", NULL};
    const json_t *source = ek_field(block, "source");
    if (!source) return wrong_block("document", where);
    ek_part_open(out, "document", block, names);
    EK_TRY(add_source(out, source, where));
    ek_part_close(out, "document");
    return EK_OK;
}

static ek_err add_search_result(ek_buf *out, const json_t *block)
{
    static const char *const names[] = {"source", "title", NULL};
    const json_t *content = ek_field(block, "content");
    if (!json_is_array(content)) return ek_fail(EK_EINVAL, "a block of type search_result needs a list content");
    ek_part_open(out, "search_result", block, names);
    EK_TRY(add_blocks(out, content, "a search_result", add_text_block));
    ek_part_close(out, "search_result");
    return EK_OK;
}

static bool is_text(const char *type)
{
    return !strcmp(type, "text") || !strcmp(type, "document") || !strcmp(type, "search_result");
}

/* A block that is text, or becomes it. */
static ek_err add_block(ek_buf *out, const json_t *block, const char *where)
{
    const char *type = type_of(block);
    if (!strcmp(type, "document")) return add_document(out, block, where);
    return !strcmp(type, "search_result") ? add_search_result(out, block) : add_text_block(out, block, where);
}

/* A text, or blocks joined by a newline: as one text, because the template would add blanks, or nothing, between
 * parts. */
static ek_err read_text(ek_buf *out, const json_t *v, const char *where)
{
    if (!v) return EK_OK;
    if (ek_json_is_text(v)) {
        ek_buf_add(out, json_string_value(v), json_string_length(v));
        return EK_OK;
    }
    if (!json_is_array(v)) return ek_fail(EK_EINVAL, "%s must be a text or a list of blocks", where);
    return add_blocks(out, v, where, strcmp(where, "system") ? add_block : add_text_block);
}

static ek_err read_system(ek_conversation *c, const json_t *v)
{
    ek_buf text = {0};
    ek_err err = read_text(&text, v, "system");
    if (!err) {
        ek_drop_billing(&text);
        if (text.len) ek_message_text(ek_conversation_add(c, EK_ROLE_SYSTEM), EK_BLOCK_TEXT, text.data, text.len);
    }
    ek_buf_fini(&text);
    return err;
}

/* What a result says, and the tools that it refers to, which stand behind it. */
static ek_err read_result_content(ek_api_request *r, ek_message *m, ek_buf *text, const json_t *content,
                                  const ek_api_limits *limits)
{
    bool any = false;
    if (!json_is_array(content)) return read_text(text, content, "a tool_result");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        if (!strcmp(type_of(block), "tool_reference")) continue;
        if (any) ek_buf_char(text, '\n');
        any = true;
        EK_TRY(add_block(text, block, "a tool_result"));
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *name = ek_json_get_text(block, "tool_name", NULL);
        if (strcmp(type_of(block), "tool_reference")) continue;
        if (!name) return ek_fail(EK_EINVAL, "a block of type tool_reference needs a text tool_name");
        EK_TRY(ek_tools_refer(r, m, name, limits));
    }
    return EK_OK;
}

static ek_err read_result(ek_api_request *r, const json_t *block, const ek_api_limits *limits)
{
    static const char mark[] = "Error: ";
    ek_message *m = ek_conversation_add(&r->conversation, EK_ROLE_TOOL);
    ek_message_add(m, EK_BLOCK_TEXT);
    EK_TRY(copy_member(&m->call_id, block, "tool_use_id"));
    ek_buf text = {0};
    ek_err err = read_result_content(r, m, &text, ek_field(block, "content"), limits);
    bool marked = text.len >= sizeof mark - 1 && !memcmp(text.data, mark, sizeof mark - 1);
    if (json_is_true(ek_json_get(block, "is_error")) && !marked) ek_buf_str(&m->blocks[0].text, mark);
    ek_buf_add(&m->blocks[0].text, ek_buf_text(&text), text.len);
    ek_buf_fini(&text);
    return err;
}

/* Results become messages of their own, before the message with the text. */
static ek_err read_user(ek_api_request *r, const json_t *content, const ek_api_limits *limits)
{
    ek_buf text = {0};
    bool has_text = !json_is_array(content);
    ek_err err = has_text ? read_text(&text, content, "content") : EK_OK;
    for (size_t i = 0; !err && i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        if (!strcmp(type, "tool_result")) {
            err = read_result(r, block, limits);
        } else if (!is_text(type)) {
            err = wrong_block(type, "a message of the user");
        } else {
            if (has_text) ek_buf_char(&text, '\n');
            has_text = true;
            err = add_block(&text, block, "a message of the user");
        }
    }
    if (!err && has_text)
        ek_message_text(ek_conversation_add(&r->conversation, EK_ROLE_USER), EK_BLOCK_TEXT, ek_buf_text(&text),
                        text.len);
    ek_buf_fini(&text);
    return err;
}

/* Signatures are not checked: the text is the client's word, as all others. Without a text it is in the signature. */
static ek_err read_thinking(ek_message *m, const json_t *block)
{
    size_t n_text = 0, n_signature = 0;
    const char *text = ek_json_get_text(block, "thinking", &n_text);
    const char *signature = ek_json_get_text(block, "signature", &n_signature);
    ek_buf b = {0};
    if (n_text > 0) ek_buf_add(&b, text, n_text);
    else if (n_signature > 0) ek_unseal(&b, signature, n_signature);
    if (b.len) ek_message_text(m, EK_BLOCK_REASONING, b.data, b.len);
    ek_buf_fini(&b);
    return text ? EK_OK : ek_fail(EK_EINVAL, "a thinking block needs a text thinking");
}

static ek_err read_call(ek_message *m, const json_t *block, const ek_api_limits *limits)
{
    json_t *input;
    EK_TRY(ek_arguments_read(&input, ek_field(block, "input"), limits));
    ek_block *b = ek_message_add(m, EK_BLOCK_CALL);
    b->value = input;
    EK_TRY(copy_member(&b->id, block, "id"));
    return copy_member(&b->name, block, "name");
}

static ek_err read_assistant_text(ek_message *m, const json_t *block)
{
    ek_block *last = m->n_blocks ? &m->blocks[m->n_blocks - 1] : NULL;
    if (!last || last->kind != EK_BLOCK_TEXT) last = ek_message_add(m, EK_BLOCK_TEXT);
    return copy_member(&last->text, block, "text");
}

static ek_err read_assistant(ek_conversation *c, const json_t *content, const ek_api_limits *limits)
{
    ek_message *m = ek_conversation_add(c, EK_ROLE_ASSISTANT);
    if (!json_is_array(content)) return read_text(&ek_message_add(m, EK_BLOCK_TEXT)->text, content, "content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        ek_err err = EK_OK;
        if (!strcmp(type, "text")) err = read_assistant_text(m, block);
        else if (!strcmp(type, "thinking")) err = read_thinking(m, block);
        else if (!strcmp(type, "tool_use")) err = read_call(m, block, limits);
        else if (strcmp(type, "redacted_thinking")) err = wrong_block(type, "a message of the assistant");
        if (err) return err;
    }
    return EK_OK;
}

/* A tool that is offered, or no longer, from here on: a reference to one of tools, or a definition of its own. */
static ek_err read_tool_change(ek_api_request *r, ek_message *m, const json_t *block, const ek_api_limits *limits)
{
    const json_t *change = ek_field(block, "tool");
    const char *type = type_of(change), *name = ek_json_get_text(change, "name", NULL);
    bool added = !strcmp(type_of(block), "tool_addition");
    if (!strcmp(type, "tool_reference") && name)
        return added ? ek_tools_refer(r, m, name, limits) : ek_tools_withdraw(r, name);
    if (!added || strcmp(type, "tool_definition")) return ek_part_refuse("changes of a tool", type, type_of(block));
    json_t *tool = NULL;
    EK_TRY(ek_anthropic_tool(r, ek_field(change, "definition"), &tool));
    ek_tools_bring(r, m, tool);
    return EK_OK;
}

/* A system message among the others: text, and changes of tools. */
static ek_err read_system_message(ek_api_request *r, const json_t *content, const ek_api_limits *limits)
{
    ek_message *m = ek_conversation_add(&r->conversation, EK_ROLE_SYSTEM);
    bool any = false;
    ek_message_add(m, EK_BLOCK_TEXT);
    if (!json_is_array(content)) return read_text(&m->blocks[0].text, content, "content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        if (!strcmp(type, "tool_addition") || !strcmp(type, "tool_removal")) {
            EK_TRY(read_tool_change(r, m, block, limits));
            continue;
        }
        if (any) ek_buf_char(&m->blocks[0].text, '\n');
        any = true;
        EK_TRY(add_block(&m->blocks[0].text, block, "a system message"));
    }
    return EK_OK;
}

static ek_err read_message(ek_api_request *r, const json_t *v, const ek_api_limits *limits)
{
    const char *role = ek_json_get_text(v, "role", NULL);
    const json_t *content = ek_field(v, "content");
    if (!role) role = "";
    if (!content || json_array_size(content) + json_string_length(content) == 0)
        if (strcmp(role, "assistant")) return ek_fail(EK_EINVAL, "content is missing or empty");
    if (!strcmp(role, "user")) return read_user(r, content, limits);
    if (!strcmp(role, "assistant")) return read_assistant(&r->conversation, content, limits);
    if (strcmp(role, "system")) return ek_field_wrong_role(v, "user, assistant, system");
    return read_system_message(r, content, limits);
}

/* A last message of the assistant is the beginning of the reply, unless it waits for the results of its calls. */
static bool is_beginning(const ek_conversation *c)
{
    const ek_message *m = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;
    if (!m || m->role != EK_ROLE_ASSISTANT || m->n_blocks == 0) return false;
    return m->blocks[m->n_blocks - 1].kind == EK_BLOCK_TEXT;
}

ek_err ek_anthropic_messages(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    const json_t *list = ek_field(body, "messages");
    ek_err err = read_system(&r->conversation, ek_field(body, "system"));
    if (err) {
        r->param = "system";
        return ek_fail_in(err, "system");
    }
    if (!json_is_array(list) || json_array_size(list) == 0)
        return ek_field_wrong(r, "messages", "a list of at least one message is needed");
    for (size_t i = 0; i < json_array_size(list); i++) {
        err = read_message(r, json_array_get(list, i), limits);
        if (!err) continue;
        r->param = "messages";
        return ek_fail_in(err, "messages[%zu]", i);
    }
    r->prompt.add_generation_prompt = true;
    r->prompt.continue_final = is_beginning(&r->conversation);
    return EK_OK;
}
