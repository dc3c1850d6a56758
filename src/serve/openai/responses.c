/* The dialect of OpenAI's Responses API: reads the body; responses_items.c reads its items, responses_tools.c
 * its tools, responses_reply.c writes replies. Fields: docs/API.md. */

#include "serve/openai/responses.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/context.h"
#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "serve/api/tools.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum {
    CONVERSATION_SPARE = 1 << 20, /* minimum bytes that a conversation leaves for its next items */
    WRITTEN_ASIDE = 128 << 10     /* bytes of a reply to a conversation from which on a worker writes its end */
};
enum { ECHO_COPIES = 6 }; /* the echo, and events or a response until they are read */

static void free_own(void *p)
{
    ek_responses *o = p;
    ek_buf *all[] = {&o->echo, &o->input, &o->name, &o->args, &o->closing, &o->users};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ek_buf_fini(all[i]);
    ek_blocks_fini(&o->blocks);
    json_decref(o->spaces);
    json_decref(o->shell_ids);
    ek_stored_items_fini(&o->items);
    free(o->previous);
    free(o->conversation);
    ek_new_items_fini(&o->added);
    ek_api_summary_free(o->stands_for);
    ek_conversation_ask_free(o->ask);
    free(o);
}

/* Reads `background`, once it is known whether the response is stored. */
static ek_err read_background(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_responses *o = r->own;
    bool background = false;
    EK_TRY(ek_field_bool(r, body, "background", &background));
    if (!background || o->counting) return EK_OK;
    if (limits->batch) return ek_field_wrong(r, "background", "a line of a batch waits for its response");
    if (r->resume.tokens.len > 0) return ek_field_wrong(r, "background", "a stream that continues has its client");
    if (!o->store)
        return ek_field_wrong(r, "background", "such a response is read from where it is stored: store has to be true");
    r->background = o->background = true;
    return EK_OK;
}

/* Reads context_management: the condition for a summary before the reply. */
static ek_err read_context(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    static const char field[] = "context_management";
    ek_responses *o = r->own;
    const json_t *list = ek_field(body, field);
    if (!list) return EK_OK;
    if (!json_is_array(list)) return ek_field_wrong(r, field, "a list is needed");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const char *type = ek_json_get_text(v, "type", NULL);
        int64_t at = ek_context_threshold(limits->ctx_tokens);
        bool found;
        if (!type || strcmp(type, "compaction") != 0)
            return ek_field_wrong(r, field, "each entry must be an object of type compaction");
        ek_err err = ek_field_int(r, v, "compact_threshold", 1, INT_MAX, &at, &found);
        r->param = err ? field : NULL;
        if (err) return ek_fail_in(err, "%s", field);
        ek_context *c = ek_context_of(r);
        if (c->compact_at == 0 || at < c->compact_at) c->compact_at = (int)at;
    }
    o->context = r->context;
    if (!r->context) return EK_OK;
    if (limits->summary || o->counting || o->compacting) r->context->compact_at = 0;
    if (r->context->compact_at > 0 && r->resume.tokens.len > 0)
        return ek_field_wrong(r, field, "a stream that continues is not compacted");
    if (!limits->summary) return EK_OK;
    o->stands_for = ek_context_take(r, limits->summary, true);
    o->queued = limits->summary->queued;
    if (o->queued) o->n_events = EK_RESPONSES_QUEUED;
    return EK_OK;
}

/* Refuses fields that would change the reply and are not supported. */
static ek_err refuse_unsupported(ek_api_request *r, const json_t *body)
{
    const json_t *text = ek_field(body, "text"); /* its format is read with the form of the reply */
    if (ek_field(body, "prompt")) return ek_field_wrong(r, "prompt", "stored prompts are not supported");
    if (text && !json_is_object(text)) return ek_field_wrong(r, "text", "an object is needed");
    return EK_OK;
}

/* Reads reasoning.summary, or generate_summary, its old name. The whole thought is sent, whatever length was
 * requested. */
static ek_err read_summary(ek_api_request *r, const json_t *reasoning)
{
    static const char *const words[] = {"auto", "concise", "detailed"};
    ek_responses *o = r->own;
    const json_t *v = ek_field(reasoning, "summary");
    if (!v) v = ek_field(reasoning, "generate_summary");
    const char *word = ek_json_is_text(v) ? json_string_value(v) : NULL;
    if (!v || (word && !strcmp(word, "none"))) return EK_OK;
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++) o->summary |= !strcmp(word, words[i]);
    if (o->summary) return EK_OK;
    return word ? ek_field_wrong_text(r, "reasoning", "its summary must be auto, concise or detailed, not", word, "")
                : ek_field_wrong(r, "reasoning", "its summary must be a text: auto, concise or detailed");
}

static ek_err read_reasoning(ek_api_request *r, const json_t *body)
{
    const json_t *v = ek_field(body, "reasoning"), *effort = ek_field(v, "effort");
    if (v && !json_is_object(v)) return ek_field_wrong(r, "reasoning", "an object is needed");
    if (effort && !ek_json_is_text(effort)) return ek_field_wrong(r, "reasoning", "its effort must be a text");
    EK_TRY(ek_field_thinking(r, v, "max_tokens", "reasoning"));
    EK_TRY(read_summary(r, v));
    if (!effort) return EK_OK;
    const char *e = json_string_value(effort);
    bool off = !strcmp(e, "none") || !strcmp(e, "minimal");
    r->prompt.thinking = off ? EK_THINKING_OFF : EK_THINKING_ON;
    return EK_OK;
}

static ek_err read_include(ek_api_request *r, const json_t *body)
{
    ek_responses *o = r->own;
    const json_t *include = ek_field(body, "include");
    int64_t v;
    bool found;
    if (include && !json_is_array(include)) return ek_field_wrong(r, "include", "a list is needed");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const json_t *word = json_array_get(include, i);
        if (!ek_json_is_text(word)) return ek_field_wrong(r, "include", "a list of texts is needed");
        if (!strcmp(json_string_value(word), "reasoning.encrypted_content")) o->encrypt = true;
        if (!strcmp(json_string_value(word), "message.output_text.logprobs")) r->turn.logprobs = true;
    }
    EK_TRY(ek_field_int(r, body, "top_logprobs", 0, EK_LOGPROBS_MAX, &v, &found));
    if (found) r->turn.n_top = (int)v;
    if (found && v > 0) r->turn.logprobs = true;
    return EK_OK;
}

static ek_err read_counts(ek_api_request *r, const json_t *body)
{
    int64_t v;
    bool found;
    r->n = 1;
    r->turn.max_tokens = INT_MAX;
    EK_TRY(ek_field_int(r, body, "max_output_tokens", 1, INT64_MAX, &v, &found));
    if (found && v < INT_MAX) r->turn.max_tokens = (int)v;
    return EK_OK;
}

/* The items of this request's `input`; a text is a user's message. *out is a new reference. */
static ek_err read_input(ek_api_request *r, const json_t *body, json_t **out)
{
    const ek_responses *o = r->own;
    const json_t *input = ek_field(body, "input");
    if (!input && (o->counting || o->compact)) { /* the API accepts a request without input */
        *out = json_array();
        return EK_OK;
    }
    if (json_is_array(input)) {
        *out = json_incref((json_t *)(uintptr_t)input);
        return EK_OK;
    }
    if (!ek_json_is_text(input)) return ek_field_wrong(r, "input", "a text or a list of items is needed");
    json_t *item = json_object();
    json_object_set_new_nocheck(item, "type", json_string_nocheck("message"));
    json_object_set_new_nocheck(item, "role", json_string_nocheck("user"));
    json_object_set_nocheck(item, "content", (json_t *)(uintptr_t)input);
    *out = json_array();
    json_array_append_new(*out, item);
    return EK_OK;
}

static ek_err add_instructions(ek_api_request *r, const json_t *body)
{
    const json_t *v = ek_field(body, "instructions");
    if (!v) return EK_OK;
    if (!ek_json_is_text(v)) return ek_field_wrong(r, "instructions", "a text is needed");
    if (json_string_length(v) > 0)
        ek_message_text(ek_conversation_add(&r->conversation, EK_ROLE_SYSTEM), EK_BLOCK_TEXT, json_string_value(v),
                        json_string_length(v));
    return EK_OK;
}

/* Appends the earlier turns of the response with that id to items; the values are borrowed. */
static ek_err add_previous(ek_api_request *r, const json_t *body, const ek_api_limits *limits, json_t *items)
{
    ek_responses *o = r->own;
    const json_t *v = ek_field(body, "previous_response_id");
    if (!v) return EK_OK;
    r->param = "previous_response_id";
    if (!ek_json_is_text(v)) return ek_field_wrong(r, "previous_response_id", "a text is needed");
    o->previous = ek_strdup(json_string_value(v));
    ek_err err = !limits->responses ? ek_fail(EK_ENOTFOUND, "there is no response here: this server stores none")
                 : !ek_responses_is_id(o->previous)
                     ? ek_fail(EK_ENOTFOUND, "ids of responses begin with " EK_RESPONSES_ID)
                     : ek_response_store_items(limits, o->previous, items);
    size_t n = json_array_size(items) + json_array_size(ek_field(body, "input")), max = (size_t)limits->max_messages;
    if (!err && max > 0 && n > max)
        err = ek_fail(EK_ETOOLARGE, "with it the input has %zu items, at most %zu are allowed", n, max);
    if (!err) err = ek_responses_items(r, items, limits);
    if (!err) r->param = NULL;
    return err ? ek_fail_in(err, "previous_response_id") : EK_OK;
}

/* Reads a conversation's id, or an object with it; its items come before the input. */
static ek_err add_conversation(ek_api_request *r, const json_t *body, const ek_api_limits *limits, json_t *items)
{
    static const char need[] = "an id, or an object with an id, is needed";
    ek_responses *o = r->own;
    const json_t *v = ek_field(body, "conversation");
    if (!v) return EK_OK;
    r->param = "conversation";
    if (json_is_object(v)) v = ek_field(v, "id");
    if (!ek_json_is_text(v)) return ek_field_wrong(r, "conversation", need);
    o->conversation = ek_strdup(json_string_value(v));
    size_t size = 0;
    ek_err err = !limits->responses ? ek_fail(EK_ENOTFOUND, "there is no conversation here: this server stores none")
                                    : ek_conversation_size(limits->responses, limits->owner, o->conversation, &size);
    if (!err) err = ek_response_store_items(limits, o->conversation, items);
    size_t n = json_array_size(items) + json_array_size(ek_field(body, "input")), max = (size_t)limits->max_messages;
    if (!err && max > 0 && n > max)
        err = ek_fail(EK_ETOOLARGE, "with it the input has %zu items, at most %zu are allowed", n, max);
    if (!err && size > EK_CONVERSATION_BYTES - CONVERSATION_SPARE)
        err = ek_fail(EK_ETOOLARGE, "it has %zu bytes, and room for a reply is left up to %d", size,
                      EK_CONVERSATION_BYTES - CONVERSATION_SPARE);
    if (!err) err = ek_responses_items(r, items, limits);
    if (err) return ek_fail_in(err, "conversation");
    r->param = NULL;
    if (!o->counting && !o->compact) o->conversations = limits->responses;
    r->own_bytes += 2 * size + WRITTEN_ASIDE;
    return EK_OK;
}

/* The items of this request in the form that the conversation stores. */
static ek_err keep_for_conversation(ek_api_request *r, const json_t *items, const json_t *earlier,
                                    const ek_api_limits *limits)
{
    ek_responses *o = r->own;
    json_t *seen = json_object();
    ek_json_size more = {.containers = json_array_size(earlier)};
    ek_err err = limits->count ? limits->count(limits->count_arg, &more, 0, 0) : EK_OK;
    if (!err) ek_responses_see(seen, earlier);
    if (!err) err = ek_responses_add_items(&o->added, items, seen, limits);
    json_decref(seen);
    r->own_bytes += 2 * o->added.text.cap + 2 * (size_t)o->added.at.cap * sizeof(ek_item_node);
    return err;
}

static bool ends_with_trigger(const json_t *items)
{
    const size_t n = json_array_size(items);
    const char *type = n ? ek_json_get_text(json_array_get(items, n - 1), "type", NULL) : NULL;
    return type && !strcmp(type, "compaction_trigger");
}

static ek_err add_input(ek_api_request *r, const json_t *body, const json_t *earlier, const ek_api_limits *limits)
{
    ek_responses *o = r->own;
    json_t *items = NULL;
    EK_TRY(read_input(r, body, &items));
    ek_err err = ek_responses_resolve(&items, earlier, limits);
    if (!err) err = ek_responses_items(r, items, limits);
    if (err) r->param = "input";
    else if (r->conversation.n_messages == 0) err = ek_field_wrong(r, "input", "there is no message");
    if (!err && o->store) ek_responses_keep_input(o, items);
    if (!err && o->conversations) err = keep_for_conversation(r, items, earlier, limits);
    if (!err && o->compact) ek_responses_keep_users(o, earlier), ek_responses_keep_users(o, items);
    if (!err) o->compacting = o->compact || ends_with_trigger(items);
    json_decref(items);
    return err;
}

static ek_err read_conversation(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_responses *o = r->own;
    bool store = true;
    EK_TRY(ek_field_bool(r, body, "store", &store));
    if (store && !o->counting && !o->compact) o->store = limits->responses;
    o->owner = limits->owner;
    EK_TRY(add_instructions(r, body));
    json_t *earlier = json_array();
    ek_err err = EK_OK;
    if (ek_field(body, "previous_response_id") && ek_field(body, "conversation"))
        err = ek_field_wrong(r, "conversation", "it and previous_response_id exclude each other");
    if (!err) err = add_previous(r, body, limits, earlier);
    if (!err) err = add_conversation(r, body, limits, earlier);
    if (!err) err = add_input(r, body, earlier, limits);
    json_decref(earlier);
    ek_drop_billing_line(&r->conversation);
    r->prompt.add_generation_prompt = true;
    return err;
}

/* --- the request's fields in a response --- */

/* Only the instructions have to fit the context, and each event about the response repeats the rest, so the rest has a
 * limit of its own. */
enum { MAX_PAIRS = 16, MAX_KEY = 64, MAX_VALUE = 512 }; /* of metadata; lengths in characters */
enum { MAX_BYTES = 512 << 10 };

static ek_err check_pair(const char *key, size_t n_key, const json_t *value)
{
    size_t n = ek_utf8_count(key, n_key);
    if (n > MAX_KEY)
        return ek_fail(EK_EINVAL, "metadata: a key has %zu characters, at most %d are allowed", n, MAX_KEY);
    ek_buf quoted = {0};
    ek_err err = EK_OK;
    ek_json_quote(&quoted, key, n_key);
    if (!ek_json_is_text(value)) {
        err = ek_fail(EK_EINVAL, "metadata: the value of %s is not a text", quoted.data);
    } else {
        n = ek_utf8_count(json_string_value(value), json_string_length(value));
        if (n > MAX_VALUE)
            err = ek_fail(EK_EINVAL, "metadata: the value of %s has %zu characters, at most %d are allowed",
                          quoted.data, n, MAX_VALUE);
    }
    ek_buf_fini(&quoted);
    return err;
}

ek_err ek_responses_check_metadata(ek_api_request *r, const json_t *body)
{
    json_t *map = (json_t *)(uintptr_t)ek_field(body, "metadata"), *value;
    const char *key;
    size_t n;
    ek_err err = EK_OK;
    if (!map) return EK_OK;
    r->param = "metadata";
    if (!json_is_object(map)) return ek_field_wrong(r, "metadata", "an object of texts is needed");
    if (json_object_size(map) > MAX_PAIRS)
        return ek_fail(EK_EINVAL, "metadata: %zu pairs, at most %d are allowed", json_object_size(map), MAX_PAIRS);
    json_object_keylen_foreach(map, key, n, value)
    {
        if (!err) err = check_pair(key, n, value);
    }
    if (!err) r->param = NULL;
    return err;
}

static void put_member(ek_buf *out, const json_t *body, const char *key, const char *absent)
{
    const json_t *v = ek_field(body, key);
    ek_buf_fmt(out, ",\"%s\":", key);
    if (v) ek_json_write(out, v);
    else ek_buf_str(out, absent);
}

/* Writes own->echo. ETOOLARGE for more than 512 KiB, not counting instructions. */
static ek_err responses_echo(ek_api_request *r, const json_t *body)
{
    static const struct {
        const char *key, *absent;
    } members[] = {{"metadata", "{}"},
                   {"max_output_tokens", "null"},
                   {"parallel_tool_calls", "true"},
                   {"previous_response_id", "null"},
                   {"reasoning", "{\"effort\":null,\"summary\":null}"},
                   {"text", "{\"format\":{\"type\":\"text\"}}"},
                   {"tool_choice", "\"auto\""},
                   {"tools", "[]"},
                   {"truncation", "\"disabled\""},
                   {"user", "null"}};
    ek_responses *o = r->own;
    ek_buf *out = &o->echo;
    put_member(out, body, "instructions", "null");
    size_t n = out->len;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        put_member(out, body, members[i].key, members[i].absent);
    n = out->len - n;
    if (n > MAX_BYTES)
        return ek_fail(EK_ETOOLARGE,
                       "tools, text, user and what else a response repeats have %zu bytes, at most %d are allowed", n,
                       MAX_BYTES);
    ek_buf_fmt(out, ",\"temperature\":%g,\"top_p\":%g,\"top_logprobs\":%d,\"store\":%s,\"background\":%s",
               (double)r->turn.sampling.temperature, (double)r->turn.sampling.top_p, r->turn.n_top,
               o->store ? "true" : "false", o->background ? "true" : "false");
    if (!o->conversation) return EK_OK;
    ek_put_text_after(out, ",\"conversation\":{\"id\":", o->conversation, strlen(o->conversation));
    ek_buf_char(out, '}');
    return EK_OK;
}

/* --- the body --- */

ek_responses *ek_responses_open(ek_api_request *r)
{
    ek_responses *o = r->own = ek_alloc(sizeof *o);
    r->free_own = free_own;
    ek_blocks_init(&o->blocks);
    return o;
}

static ek_err read_fields(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_responses *o = r->own;
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_RESPONSES));
    EK_TRY(ek_field_model(r, body));
    EK_TRY(refuse_unsupported(r, body));
    EK_TRY(ek_responses_check_metadata(r, body));
    EK_TRY(read_counts(r, body));
    EK_TRY(ek_responses_tools(r, body));
    EK_TRY(ek_openai_format(r, ek_field(ek_field(body, "text"), "format"), "text"));
    EK_TRY(ek_openai_guided(r, body, limits));
    EK_TRY(read_reasoning(r, body));
    EK_TRY(read_include(r, body));
    EK_TRY(ek_openai_sampling(r, body, limits));
    EK_TRY(ek_field_bool(r, body, "stream", &r->stream));
    EK_TRY(ek_field_ours(r, body, limits));
    EK_TRY(read_conversation(r, body, limits));
    EK_TRY(read_background(r, body, limits));
    ek_tools_settle(r);
    EK_TRY(ek_openai_calls(r, body));
    EK_TRY(read_context(r, body, limits));
    if (o->compacting && !o->counting) EK_TRY(ek_compaction_ask(r, NULL, 0));
    EK_TRY(responses_echo(r, body));
    r->own_bytes += o->input.cap + (size_t)o->items.cap * sizeof(ek_item_node) + ECHO_COPIES * o->echo.cap +
                    2 * o->users.cap;
    return EK_OK;
}

ek_err ek_responses_read(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_responses_open(r);
    return read_fields(r, body, limits);
}

static ek_err read_count(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_responses_open(r)->counting = true;
    return read_fields(r, body, limits);
}

ek_err ek_responses_read_compact(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_responses_open(r)->compact = true;
    EK_TRY(read_fields(r, body, limits));
    r->stream = false;
    return EK_OK;
}

static ek_err count(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    (void)m, (void)r;
    ek_buf_fmt(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", prompt->ids.len);
    return EK_OK;
}

const ek_dialect ek_dialect_responses_count = {
    .path = "/v1/responses/input_tokens",
    .id_prefix = "",
    .prompt_param = "input",
    .read = read_count,
    .answer = count,
    .error = ek_openai_error,
};
