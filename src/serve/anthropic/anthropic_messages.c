/* Reads system and messages of Anthropic's Messages API into a conversation. */
#include <string.h>

#include "serve/anthropic/anthropic.h"
#include "serve/api/tools.h"
#include "serve/api/context.h"
#include "serve/api/field.h"
#include "serve/api/media.h"
#include "text/json/json.h"

static const char *type_of(const json_t *block)
{
    const char *type = ek_json_get_text(block, "type", NULL);
    return type ? type : "";
}

/* Claude Code drops the images or documents of a conversation and continues if a refusal contains this token without a
 * letter, digit, '_', ':', '.' or '-' after it; otherwise its turn ends with the error, and so does every later one.
 * Only for refusals that every request would get: not for lack of memory, and not at the end of the server. */
static ek_err with_capability(ek_err err, const char *class)
{
    if (err != EK_EINVAL && err != EK_EPARSE && err != EK_ETOOLARGE && err != EK_EUNSUPPORTED) return err;
    if (strstr(ek_err_text(), "(capability_rejected: ")) return err; /* an inner block has it already */
    ek_buf says = {0};
    ek_buf_str(&says, ek_err_text());
    ek_fail(err, "%s (capability_rejected: %s)", says.data, class);
    ek_buf_fini(&says);
    return err;
}

ek_err ek_anthropic_refused(ek_err err, ek_part_kind kind)
{
    static const char *const classes[] = {"image_block", "video_block", "audio_block"};
    return with_capability(err, classes[kind]);
}

static ek_err wrong_block(const char *type, const char *where)
{
    static const char *const classes[][2] = {
        {"image", "image_block"}, {"document", "document_block"}, {"audio", "audio_block"}, {"video", "video_block"}};
    ek_err err = ek_part_refuse("blocks", type, where);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(type, classes[i][0])) return with_capability(err, classes[i][1]);
    return err;
}

static ek_err copy_member(ek_buf *out, const json_t *block, const char *key)
{
    size_t n;
    const char *s = ek_json_get_text(block, key, &n);
    if (!s) return ek_fail(EK_EINVAL, "a block of type %.40s needs a text %s", type_of(block), key);
    ek_buf_add(out, s, n);
    return EK_OK;
}

/* The target of blocks. Their texts become one, joined by newlines, because the template would put blanks, or nothing,
 * between parts; after a picture a new text begins. */
typedef struct sink {
    ek_conversation *c;
    ek_message *m; /* a message of c, or one that will be added to c */
    const ek_api_limits *limits;
} sink;

static ek_buf *text_of(const sink *to)
{
    int i = to->m->n_blocks - 1;
    while (i >= 0 && to->m->blocks[i].kind == EK_BLOCK_TOOL) i--;
    if (i >= 0 && to->m->blocks[i].kind == EK_BLOCK_TEXT) return &to->m->blocks[i].text;
    return &ek_message_add(to->m, EK_BLOCK_TEXT)->text;
}

/* Called before each text block. any: whether a text came before. */
static void begin_text(const sink *to, bool *any)
{
    if (*any) ek_buf_char(text_of(to), '\n');
    *any = true;
}

static ek_err add_source_of_image(const sink *to, const json_t *block)
{
    const json_t *source = ek_field(block, "source");
    const char *type = type_of(source), *media = ek_json_get_text(source, "media_type", NULL);
    size_t n = 0;
    const char *data = ek_json_get_text(source, "data", &n);
    if (!strcmp(type, "base64")) {
        if (!data) return ek_fail(EK_EINVAL, "the source of an image needs a text data");
        return ek_media_base64(to->c, to->m, EK_PART_IMAGE, data, n, media, to->limits);
    }
    const char *url = ek_json_get_text(source, "url", &n);
    if (!strcmp(type, "url") && url) return ek_media_url(to->c, to->m, EK_PART_IMAGE, url, n, to->limits);
    return ek_part_refuse("images with a source", type, "this message");
}

static ek_err add_image(const sink *to, const json_t *block, const char *where)
{
    ek_err err = ek_media_taken(EK_PART_IMAGE, to->m, &(ek_media_place){"blocks", "image", where}, to->limits);
    if (!err) err = add_source_of_image(to, block);
    return err ? with_capability(err, "image_block") : EK_OK;
}

static ek_err add_text_block(const sink *to, const json_t *block, const char *where)
{
    if (strcmp(type_of(block), "text")) return wrong_block(type_of(block), where);
    return copy_member(text_of(to), block, "text");
}

static ek_err add_text_or_image(const sink *to, const json_t *block, const char *where)
{
    return strcmp(type_of(block), "image") ? add_text_block(to, block, where) : add_image(to, block, where);
}

static ek_err add_blocks(const sink *to, const json_t *list, const char *where,
                         ek_err (*add)(const sink *, const json_t *, const char *))
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *block = json_array_get(list, i);
        if (strcmp(type_of(block), "image")) begin_text(to, &any);
        EK_TRY(add(to, block, where));
    }
    return EK_OK;
}

/* Adds the text of a document's source. PDFs, URLs and uploaded files have none. */
static ek_err add_source(const sink *to, const json_t *source, const char *where)
{
    const char *type = type_of(source), *media = ek_json_get_text(source, "media_type", NULL);
    const json_t *content = ek_field(source, "content");
    size_t n = 0;
    const char *data = ek_json_get_text(source, "data", &n);
    if (!strcmp(type, "text")) return copy_member(text_of(to), source, "data");
    if (!strcmp(type, "content")) {
        if (json_is_array(content)) return add_blocks(to, content, "the content of a document", add_text_or_image);
        return copy_member(text_of(to), source, "content");
    }
    if (!strcmp(type, "base64") && data && media) {
        ek_buf pdf = {0};
        EK_TRY(ek_part_file(text_of(to), data, n, media, where, to->limits, &pdf));
        return pdf.len > 0 ? ek_media_pages(to->c, to->m, &pdf, where, to->limits) : EK_OK;
    }
    return ek_part_refuse("documents with a source", type, where);
}

static ek_err add_document(const sink *to, const json_t *block, const char *where)
{
    static const char *const names[] = {"title", "context", NULL};
    const json_t *source = ek_field(block, "source");
    if (!source) return wrong_block("document", where);
    ek_api_limits own = *to->limits;
    const sink its = {to->c, to->m, &own};
    EK_TRY(ek_part_pdf(&own, block));
    ek_part_open(text_of(to), "document", block, names);
    ek_err err = add_source(&its, source, where);
    if (err) return with_capability(err, "document_block");
    ek_part_close(text_of(to), "document");
    return EK_OK;
}

static ek_err add_search_result(const sink *to, const json_t *block)
{
    static const char *const names[] = {"source", "title", NULL};
    const json_t *content = ek_field(block, "content");
    if (!json_is_array(content)) return ek_fail(EK_EINVAL, "a block of type search_result needs a list content");
    ek_part_open(text_of(to), "search_result", block, names);
    EK_TRY(add_blocks(to, content, "a search_result", add_text_block));
    ek_part_close(text_of(to), "search_result");
    return EK_OK;
}

static bool is_known(const char *type)
{
    return !strcmp(type, "text") || !strcmp(type, "document") || !strcmp(type, "search_result") ||
           !strcmp(type, "image");
}

/* Adds a block that is a text, becomes one, or is a picture. */
static ek_err add_block(const sink *to, const json_t *block, const char *where)
{
    const char *type = type_of(block);
    if (!strcmp(type, "document")) return add_document(to, block, where);
    return !strcmp(type, "search_result") ? add_search_result(to, block) : add_text_or_image(to, block, where);
}

/* Reads a text, or a list of blocks. */
static ek_err read_text(const sink *to, const json_t *v, const char *where)
{
    if (!v) return EK_OK;
    if (ek_json_is_text(v)) {
        ek_buf_add(text_of(to), json_string_value(v), json_string_length(v));
        return EK_OK;
    }
    if (!json_is_array(v)) return ek_fail(EK_EINVAL, "%s must be a text or a list of blocks", where);
    return add_blocks(to, v, where, strcmp(where, "system") ? add_block : add_text_or_image);
}

static ek_err read_system(ek_conversation *c, const json_t *v, const ek_api_limits *limits)
{
    ek_message m = {.role = EK_ROLE_SYSTEM};
    sink to = {c, &m, limits};
    ek_err err = read_text(&to, v, "system");
    if (!err && m.n_blocks > 0) {
        ek_drop_billing(&m.blocks[0].text);
        if (m.blocks[0].text.len) ek_conversation_take(c, &m);
    }
    ek_message_fini(&m);
    return err;
}

/* Reads the content of a result, and the tools that it refers to, which follow it. */
static ek_err read_result_content(ek_api_request *r, const sink *to, const json_t *content)
{
    bool any = false;
    if (!json_is_array(content)) return read_text(to, content, "a tool_result");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        if (!strcmp(type_of(block), "tool_reference")) continue;
        if (strcmp(type_of(block), "image")) begin_text(to, &any);
        EK_TRY(add_block(to, block, "a tool_result"));
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *name = ek_json_get_text(block, "tool_name", NULL);
        if (strcmp(type_of(block), "tool_reference")) continue;
        if (!name) return ek_fail(EK_EINVAL, "a block of type tool_reference needs a text tool_name");
        EK_TRY(ek_tools_refer(r, to->m, name, to->limits));
    }
    return EK_OK;
}

static void mark_error(ek_buf *text)
{
    static const char mark[] = "Error: ";
    ek_buf marked = {0};
    if (text->len >= sizeof mark - 1 && !memcmp(text->data, mark, sizeof mark - 1)) return;
    ek_buf_str(&marked, mark);
    ek_buf_add(&marked, ek_buf_text(text), text->len);
    ek_buf_fini(text);
    *text = marked;
}

static ek_err read_result(ek_api_request *r, const json_t *block, const ek_api_limits *limits)
{
    sink to = {&r->conversation, ek_conversation_add(&r->conversation, EK_ROLE_TOOL), limits};
    ek_message_add(to.m, EK_BLOCK_TEXT);
    EK_TRY(copy_member(&to.m->call_id, block, "tool_use_id"));
    EK_TRY(read_result_content(r, &to, ek_field(block, "content")));
    if (json_is_true(ek_json_get(block, "is_error"))) mark_error(&to.m->blocks[0].text);
    return EK_OK;
}

/* A block of type compaction replaces everything before it; one without a summary replaces nothing. */
static ek_err take_compaction(ek_conversation *c, const json_t *block)
{
    const json_t *v = ek_field(block, "content");
    if (!v) return EK_OK;
    if (!ek_json_is_text(v) || json_string_length(v) == 0)
        return ek_fail(EK_EINVAL, "a block of type compaction needs a text content, or null");
    ek_compaction_take(c, json_string_value(v), json_string_length(v), false);
    return EK_OK;
}

static ek_err read_user_blocks(ek_api_request *r, const sink *to, const json_t *content)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        if (!strcmp(type, "tool_result")) {
            EK_TRY(read_result(r, block, to->limits));
            continue;
        }
        if (!strcmp(type, "compaction")) {
            EK_TRY(take_compaction(&r->conversation, block));
            continue;
        }
        if (!is_known(type)) return wrong_block(type, "a message of the user");
        if (strcmp(type, "image")) begin_text(to, &any);
        EK_TRY(add_block(to, block, "a message of the user"));
    }
    return EK_OK;
}

/* Results become messages of their own, before the message with the text. */
static ek_err read_user(ek_api_request *r, const json_t *content, const ek_api_limits *limits)
{
    ek_message m = {.role = EK_ROLE_USER};
    sink to = {&r->conversation, &m, limits};
    ek_err err = json_is_array(content) ? read_user_blocks(r, &to, content) : read_text(&to, content, "content");
    if (!err && m.n_blocks > 0) ek_conversation_take(&r->conversation, &m);
    ek_message_fini(&m);
    return err;
}

/* Signatures are not checked, because a client may write any reasoning. Without a text the signature has it. */
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
    ek_message *m = NULL;
    if (!json_is_array(content)) {
        m = ek_conversation_add(c, EK_ROLE_ASSISTANT);
        ek_message_add(m, EK_BLOCK_TEXT);
        return read_text(&(sink){c, m, limits}, content, "content");
    }
    if (json_array_size(content) == 0) ek_conversation_add(c, EK_ROLE_ASSISTANT);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        ek_err err = EK_OK;
        if (!strcmp(type, "compaction")) {
            EK_TRY(take_compaction(c, block));
            m = NULL; /* the block replaced it with everything before */
            continue;
        }
        if (!m) m = ek_conversation_add(c, EK_ROLE_ASSISTANT);
        if (!strcmp(type, "text")) err = read_assistant_text(m, block);
        else if (!strcmp(type, "thinking")) err = read_thinking(m, block);
        else if (!strcmp(type, "tool_use")) err = read_call(m, block, limits);
        else if (strcmp(type, "redacted_thinking")) err = wrong_block(type, "a message of the assistant");
        if (err) return err;
    }
    return EK_OK;
}

/* From here on a tool can be called, or no longer: the block refers to one of `tools`, or has its own definition. */
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

/* A system message between others: text, and changes of tools. */
static ek_err read_system_message(ek_api_request *r, const json_t *content, const ek_api_limits *limits)
{
    ek_message *m = ek_conversation_add(&r->conversation, EK_ROLE_SYSTEM);
    const sink to = {&r->conversation, m, limits};
    bool any = false;
    ek_message_add(m, EK_BLOCK_TEXT);
    if (!json_is_array(content)) return read_text(&to, content, "content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        if (!strcmp(type, "tool_addition") || !strcmp(type, "tool_removal")) {
            EK_TRY(read_tool_change(r, m, block, limits));
            continue;
        }
        begin_text(&to, &any);
        EK_TRY(add_block(&to, block, "a system message"));
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

/* Whether the last message is the beginning of the reply: an assistant's message that does not wait for results of
 * calls. */
static bool is_beginning(const ek_conversation *c)
{
    const ek_message *m = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;
    if (!m || m->role != EK_ROLE_ASSISTANT || m->n_blocks == 0) return false;
    return m->blocks[m->n_blocks - 1].kind == EK_BLOCK_TEXT;
}

ek_err ek_anthropic_messages(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    const json_t *list = ek_field(body, "messages");
    ek_err err = read_system(&r->conversation, ek_field(body, "system"), limits);
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
