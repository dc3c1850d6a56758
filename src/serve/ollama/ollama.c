/* The dialect of Ollama's API: /api/chat and /api/generate. Reads their bodies; ollama_options.c reads the other
 * fields, ollama_reply.c writes replies, ollama_models.c describes the served model. Fields: docs/API.md. The model is
 * always loaded, so requests to load or unload it change nothing and get Ollama's answer. */
#include "serve/ollama/ollama.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/api/media.h"
#include "serve/api/openai.h"
#include "text/json/json.h"

static void free_own(void *p)
{
    ek_ollama *own = p;
    ek_buf_fini(&own->text);
    ek_buf_fini(&own->held);
    free(own);
}

ek_err ek_ollama_model(ek_api_request *r, const json_t *body)
{
    EK_TRY(ek_field_model(r, body));
    const json_t *name = r->model && *r->model ? NULL : ek_field(body, "name");
    if (ek_json_is_text(name)) {
        free(r->model);
        r->model = ek_strdup(json_string_value(name));
    }
    return r->model && *r->model ? EK_OK : ek_field_wrong(r, "model", "a name is required");
}

/* Moves the blocks from index k on to the front. */
static void move_to_front(ek_message *m, int k)
{
    int n = m->n_blocks - k;
    ek_block *first = ek_alloc((size_t)(n + 1) * sizeof *first);
    memcpy(first, m->blocks + k, (size_t)n * sizeof *first);
    memmove(m->blocks + n, m->blocks, (size_t)k * sizeof *first);
    memcpy(m->blocks, first, (size_t)n * sizeof *first);
    free(first);
}

/* Reads a list of base64 into m: in Ollama's prompts pictures stand before the text of their message. */
static ek_err read_images(ek_api_request *r, ek_message *m, const json_t *object, const char *where,
                          const ek_api_limits *limits)
{
    const json_t *images = ek_field(object, "images");
    int n_others = m->n_blocks;
    if (!images || (json_is_array(images) && json_array_size(images) == 0)) return EK_OK;
    EK_TRY(ek_media_taken(EK_PART_IMAGE, m, &(ek_media_place){"members", "images", where}, limits));
    if (!json_is_array(images)) return ek_fail(EK_EINVAL, "images must be a list of pictures in base64");
    for (size_t i = 0; i < json_array_size(images); i++) {
        const json_t *one = json_array_get(images, i);
        ek_err err = ek_json_is_text(one) ? ek_media_base64(&r->conversation, m, EK_PART_IMAGE, json_string_value(one),
                                                            json_string_length(one), NULL, limits)
                                          : ek_fail(EK_EINVAL, "a picture in base64 is needed");
        if (err) return ek_fail_in(err, "images[%zu]", i);
    }
    move_to_front(m, n_others);
    return EK_OK;
}

/* --- fields of both --- */

/* Any level ("low", …) turns thinking on; the model's template knows only on and off. */
static ek_err read_think(ek_api_request *r, const json_t *body)
{
    static const char *const words[] = {"low", "medium", "high", "max"};
    const json_t *v = ek_field(body, "think");
    if (!v) return EK_OK;
    bool on = json_is_true(v);
    for (size_t i = 0; ek_json_is_text(v) && i < sizeof words / sizeof *words; i++)
        on |= !strcmp(json_string_value(v), words[i]);
    if (!on && !json_is_false(v))
        return ek_field_kind(r, "think", "true, false, \"low\", \"medium\", \"high\" or \"max\" is needed", v);
    r->prompt.thinking = on ? EK_THINKING_ON : EK_THINKING_OFF;
    return EK_OK;
}

/* "json" or a schema, like OpenAI's response format. */
static ek_err read_format(ek_api_request *r, const json_t *body)
{
    const json_t *v = ek_field(body, "format");
    bool text = ek_json_is_text(v), schema = json_is_object(v);
    if (!v || (text && json_string_length(v) == 0)) return EK_OK;
    if (!schema && !(text && !strcmp(json_string_value(v), "json")))
        return ek_field_kind(r, "format", "\"json\" or a schema, which is an object, is needed", v);
    json_t *format = json_object();
    json_object_set_new_nocheck(format, "type", json_string_nocheck(schema ? "json_schema" : "json_object"));
    if (schema) json_object_set_nocheck(format, "schema", (json_t *)(uintptr_t)v);
    ek_err err = ek_openai_format(r, format, "format");
    json_decref(format);
    return err;
}

static ek_err read_logprobs(ek_api_request *r, const json_t *body)
{
    int64_t v;
    bool found;
    EK_TRY(ek_field_bool(r, body, "logprobs", &r->turn.logprobs));
    EK_TRY(ek_field_int(r, body, "top_logprobs", 0, EK_LOGPROBS_MAX, &v, &found));
    if (found && r->turn.logprobs) r->turn.n_top = (int)v;
    return EK_OK;
}

/* Reads the fields of both paths, and `stream`; makes r->own. */
static ek_err ollama_common(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_ollama *own = r->own = ek_alloc(sizeof *own);
    bool ignored;
    r->free_own = free_own;
    r->n = 1;
    r->stream = true;
    own->now = limits->now;
    own->card = limits->card;
    EK_TRY(ek_ollama_model(r, body));
    EK_TRY(ek_field_bool(r, body, "stream", &r->stream));
    EK_TRY(ek_ollama_keep_alive(r, body, &own->unload));
    EK_TRY(ek_ollama_options(r, body, limits));
    EK_TRY(read_format(r, body));
    EK_TRY(read_think(r, body));
    EK_TRY(read_logprobs(r, body));
    EK_TRY(ek_field_bool(r, body, "truncate", &ignored));
    EK_TRY(ek_field_bool(r, body, "shift", &ignored));
    EK_TRY(ek_field_bool(r, body, "_debug_render_only", &own->render));
    return ek_field_ours(r, body, limits);
}

/* The request has nothing to read or to answer. */
static void answer_loaded(ek_api_request *r)
{
    ek_ollama *own = r->own;
    own->loaded = own->unload ? "unload" : "load";
    r->answered = true;
    r->stream = false;
}

static void answer_render(ek_api_request *r)
{
    const ek_ollama *own = r->own;
    if (!own->render) return;
    r->answered = true;
    r->stream = false;
}

/* --- /api/chat --- */

static ek_err read_tool(ek_api_request *r, const json_t *t)
{
    const json_t *type = ek_field(t, "type");
    size_t n = 0;
    if (type && !(ek_json_is_text(type) && !strcmp(json_string_value(type), "function")))
        return ek_field_kind(r, "tools", "each must be of type \"function\"", type);
    if (!ek_json_get_text(ek_json_get(t, "function"), "name", &n) || n == 0)
        return ek_field_wrong(r, "tools", "each needs a function with a name");
    if (type) {
        json_array_append(r->tools, (json_t *)(uintptr_t)t);
        return EK_OK;
    }
    json_t *whole = json_object(); /* the template takes declarations with a type */
    json_object_set_new_nocheck(whole, "type", json_string_nocheck("function"));
    json_object_set_nocheck(whole, "function", (json_t *)(uintptr_t)ek_json_get(t, "function"));
    json_array_append_new(r->tools, whole);
    return EK_OK;
}

static ek_err read_tools(ek_api_request *r, const json_t *body)
{
    const json_t *tools = ek_field(body, "tools");
    if (tools && !json_is_array(tools)) return ek_field_kind(r, "tools", "a list is needed", tools);
    if (json_array_size(tools) > 0) r->tools = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) EK_TRY(read_tool(r, json_array_get(tools, i)));
    return EK_OK;
}

/* The role; Ollama accepts upper case too. A new reference. */
static json_t *role_of(const json_t *message)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const json_t *role = ek_json_get(message, "role");
    for (size_t i = 0; ek_json_is_text(role) && i < sizeof roles / sizeof *roles; i++)
        if (!strcasecmp(json_string_value(role), roles[i])) return json_string_nocheck(roles[i]);
    return json_incref((json_t *)(uintptr_t)role);
}

/* The message with OpenAI's names of members; the values are shared. A new reference. */
static json_t *openai_message(const json_t *v)
{
    static const struct {
        const char *theirs, *ours; /* if two names of theirs mean one of ours, the first present one counts */
    } names[] = {{"content", "content"},          {"thinking", "reasoning"}, {"reasoning", "reasoning"},
                 {"tool_calls", "tool_calls"},    {"tool_name", "name"},     {"name", "name"},
                 {"tool_call_id", "tool_call_id"}};
    json_t *m = json_object(), *role = role_of(v);
    if (role) json_object_set_new_nocheck(m, "role", role);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *member = ek_field(v, names[i].theirs);
        if (member && !json_object_get(m, names[i].ours))
            json_object_set_nocheck(m, names[i].ours, (json_t *)(uintptr_t)member);
    }
    return m;
}

static ek_err read_message(ek_api_request *r, const json_t *v, const ek_api_limits *limits)
{
    if (!json_is_object(v)) return ek_fail(EK_EINVAL, "an object with role and content is needed");
    json_t *m = openai_message(v);
    ek_err err = ek_openai_message(&r->conversation, m, limits);
    json_decref(m);
    EK_TRY(err);
    return read_images(r, &r->conversation.messages[r->conversation.n_messages - 1], v, "this message", limits);
}

static ek_err read_messages(ek_api_request *r, const json_t *list, const ek_api_limits *limits)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        ek_err err = read_message(r, json_array_get(list, i), limits);
        if (!err) continue;
        r->param = "messages";
        return ek_fail_in(err, "messages[%zu]", i);
    }
    ek_drop_billing_line(&r->conversation);
    r->prompt.add_generation_prompt = true;
    return EK_OK;
}

ek_err ek_ollama_read_chat(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    const json_t *list = ek_field(body, "messages");
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_OLLAMA_CHAT));
    EK_TRY(ollama_common(r, body, limits));
    if (list && !json_is_array(list)) return ek_field_kind(r, "messages", "a list is needed", list);
    EK_TRY(read_tools(r, body));
    EK_TRY(ek_openai_calls(r, body));
    if (json_array_size(list) == 0) {
        answer_loaded(r);
        return EK_OK;
    }
    answer_render(r);
    return read_messages(r, list, limits);
}

/* --- /api/generate --- */

/* Refuses fields that would change the reply and are not supported. */
static ek_err refuse_unsupported(ek_api_request *r, const json_t *body)
{
    static const struct {
        const char *key, *why;
    } fields[] = {{"suffix", "not supported: the model continues texts, it does not insert into them"},
                  {"template", "not supported: the model's own template is used; raw takes a prompt as it is"},
                  {"context", "not supported: /api/chat takes the messages of a conversation"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *v = ek_field(body, fields[i].key);
        bool empty = !v || (ek_json_is_text(v) && json_string_length(v) == 0) ||
                     (json_is_array(v) && json_array_size(v) == 0);
        if (!empty) return ek_field_wrong(r, fields[i].key, fields[i].why);
    }
    return EK_OK;
}

static ek_err read_text(ek_api_request *r, const json_t *body, const char *key, const json_t **out)
{
    *out = ek_field(body, key);
    if (*out && !ek_json_is_text(*out)) return ek_field_kind(r, key, "a text is needed", *out);
    return EK_OK;
}

static void add_message(ek_api_request *r, ek_role role, const json_t *text)
{
    if (json_string_length(text) == 0) return;
    ek_message_text(ek_conversation_add(&r->conversation, role), EK_BLOCK_TEXT, json_string_value(text),
                    json_string_length(text));
}

ek_err ek_ollama_read_generate(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    const json_t *prompt, *system;
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_OLLAMA_GENERATE));
    EK_TRY(ollama_common(r, body, limits));
    ek_ollama *own = r->own;
    own->generate = true;
    EK_TRY(read_text(r, body, "prompt", &prompt));
    EK_TRY(read_text(r, body, "system", &system));
    EK_TRY(ek_field_bool(r, body, "raw", &own->raw));
    EK_TRY(refuse_unsupported(r, body));
    if (own->raw && json_array_size(ek_field(body, "images")) > 0)
        return ek_field_wrong(r, "images", "a raw prompt is taken as it stands, without pictures");
    if (own->raw && json_string_length(system) > 0)
        return ek_field_wrong(r, "system", "a raw prompt is taken as it stands, without a system message");
    if (json_string_length(prompt) == 0) {
        answer_loaded(r);
        return EK_OK;
    }
    answer_render(r);
    if (own->raw) {
        ek_buf_add(&own->text, json_string_value(prompt), json_string_length(prompt));
        r->turn.plain = true;
        return EK_OK;
    }
    add_message(r, EK_ROLE_SYSTEM, system);
    add_message(r, EK_ROLE_USER, prompt);
    r->param = "images";
    EK_TRY(read_images(r, &r->conversation.messages[r->conversation.n_messages - 1], body, "this request", limits));
    r->param = NULL;
    ek_drop_billing_line(&r->conversation);
    r->prompt.add_generation_prompt = true;
    return EK_OK;
}
