/* Stored responses and their items. Of an item the members are kept that this server reads or that the API's own types
 * have, for requests that continue it and for clients that read it again. A client's other members would fill the
 * store, so they are dropped. */

#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"
#include "serve/api/field.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

enum { MAX_LABEL = EK_ITEM_AFTER - 1 }; /* maximum bytes of an id or a status; this server's are shorter */

/* Members by the type of an item, NULL at the end. Items of other types are kept whole. */
static const struct {
    const char *type;
    const char *member[10];
} by_type[] = {
    {"message", {"role", "content", "phase"}},
    {"reasoning", {"content", "summary", "encrypted_content"}},
    {"function_call", {"call_id", "name", "namespace", "arguments"}},
    {"function_call_output", {"call_id", "output"}},
    {"custom_tool_call", {"call_id", "name", "namespace", "input"}},
    {"custom_tool_call_output", {"call_id", "output"}},
    {"item_reference", {NULL}},
    {"compaction", {"encrypted_content"}},
};

/* Members of the parts in contents, outputs and summaries of any type. */
static const char *const part_members[] = {"text",        "refusal",   "title",    "source",    "image_url",
                                           "detail",      "file_id",   "file_url", "filename",  "file_data",
                                           "input_audio", "audio_url", "video",    "video_url", "input_video",
                                           "timestamps",  "fps",       "pdf",      NULL};

static bool is_label(const char *key)
{
    return !strcmp(key, "type") || !strcmp(key, "id") || !strcmp(key, "status");
}

static bool is_listed(const char *const *list, const char *key)
{
    while (*list && strcmp(*list, key) != 0) list++;
    return *list != NULL;
}

static bool is_kept(const char *const *members, const char *key, const json_t *v)
{
    if (is_label(key)) return !json_is_string(v) || json_string_length(v) <= MAX_LABEL;
    return is_listed(members, key);
}

static void put_parts(ek_buf *out, const json_t *list);

/* Writes {…} with the kept members; members NULL: all. id: of an item, whose lists are lists of parts; NULL: a part. */
static void put_object(ek_buf *out, const json_t *o, const char *const *members, const char *id)
{
    json_t *v;
    const char *key;
    size_t n;
    bool any = id != NULL;
    ek_buf_str(out, id ? "{\"id\":" : "{");
    if (id) ek_json_quote(out, id, strlen(id));
    json_object_keylen_foreach((json_t *)(uintptr_t)o, key, n, v)
    {
        bool none = !id && !strcmp(key, "annotations"); /* the type of a text requires them, but they are not read */
        if (strlen(key) != n || (id && !strcmp(key, "id")) || (!none && members && !is_kept(members, key, v))) continue;
        if (any) ek_buf_char(out, ',');
        any = true;
        ek_json_quote(out, key, n);
        ek_buf_char(out, ':');
        if (none) ek_buf_str(out, "[]");
        else if (id && members && json_is_array(v)) put_parts(out, v);
        else ek_json_write(out, v);
    }
    ek_buf_char(out, '}');
}

static void put_parts(ek_buf *out, const json_t *list)
{
    ek_buf_char(out, '[');
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (i > 0) ek_buf_char(out, ',');
        if (json_is_object(v)) put_object(out, v, part_members, NULL);
        else ek_json_write(out, v);
    }
    ek_buf_char(out, ']');
}

void ek_responses_put_kept(ek_buf *out, const json_t *item, const char *id)
{
    const char *type = ek_json_get_text(item, "type", NULL);
    const size_t n = sizeof by_type / sizeof *by_type;
    size_t i = 0;
    while (i < n && strcmp(type ? type : "message", by_type[i].type) != 0) i++;
    put_object(out, item, i < n ? by_type[i].member : NULL, id);
}

/* --- items by reference (item_reference), and the items that later requests may refer to --- */

/* Whether the item is a reference; it may lack a type. */
static bool is_reference(const json_t *item)
{
    const json_t *type = ek_json_get(item, "type");
    if (ek_json_is_text(type)) return !strcmp(json_string_value(type), "item_reference");
    return (!type || json_is_null(type)) && ek_json_get(item, "id") && !ek_json_get(item, "role");
}

static void see(json_t *seen, const json_t *item)
{
    size_t n;
    const char *id = ek_json_get_text(item, "id", &n);
    if (id) json_object_setn_new_nocheck(seen, id, n, json_true());
}

/* Appends the item that the reference names. */
static ek_err resolve(json_t *list, json_t *seen, const json_t *reference, const ek_api_limits *limits)
{
    size_t n = 0;
    const char *id = ek_json_get_text(reference, "id", &n);
    json_t *item;
    if (!id) return ek_fail(EK_EINVAL, "an item_reference needs an id");
    if (json_object_getn(seen, id, n)) return EK_OK;
    if (!limits->responses) return ek_fail(EK_ENOTFOUND, "there is no item here: this server stores no responses");
    EK_TRY(ek_response_store_item(limits, id, n, &item));
    if (!item) return EK_OK;
    see(seen, item);
    json_array_append_new(list, item);
    return EK_OK;
}

static bool has_reference(const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++)
        if (is_reference(json_array_get(items, i))) return true;
    return false;
}

ek_err ek_responses_resolve(json_t **items, const json_t *earlier, const ek_api_limits *limits)
{
    ek_err err = EK_OK;
    if (!has_reference(*items)) return EK_OK;
    ek_json_size ids = {.containers = json_array_size(earlier) + json_array_size(*items)}; /* upper bound */
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &ids, 0, 0));
    json_t *seen = json_object(), *list = json_array();
    ek_responses_see(seen, earlier);
    for (size_t i = 0; i < json_array_size(*items) && !err; i++) {
        json_t *item = json_array_get(*items, i);
        if (is_reference(item)) {
            err = resolve(list, seen, item, limits);
            if (err) ek_fail_in(err, "input[%zu]", i);
        } else {
            see(seen, item);
            json_array_append(list, item);
        }
    }
    json_decref(seen);
    json_decref(*items);
    *items = list;
    return err;
}

/* Whether the id of n bytes can be kept: no item before it has the same. */
static bool is_free_id(const ek_responses *o, ek_item_keys *taken, const char *id, size_t n)
{
    if (!id || !n || n > MAX_LABEL || strlen(id) != n) return false;
    return ek_item_keys_add(taken, ek_response_store_key(o->store, o->owner, id, n));
}

enum { ITEM_ID = 64 }; /* bytes of an item's id with its NUL */

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

/* A new id for an item of this type. */
static void make_id(char out[ITEM_ID], const char *type)
{
    static const char *const prefixes[][2] = {
        {"message", "msg"}, {"reasoning", "rs"}, {"function_call", "fc"}, {"compaction", "cmp"}};
    const char *prefix = ends_with(type, "_output") ? "out" : "item";
    uint64_t random[2];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strcmp(type, prefixes[i][0])) prefix = prefixes[i][1];
    (void)ek_random(random, sizeof random);
    snprintf(out, ITEM_ID, "%s_%016llx%08x", prefix, (unsigned long long)random[0], (unsigned)random[1]);
}

void ek_responses_keep_input(ek_responses *o, const json_t *items)
{
    ek_item_keys taken;
    ek_item_keys_open(&taken, json_array_size(items));
    ek_buf_char(&o->input, '[');
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *type = ek_json_get_text(item, "type", NULL);
        char own[ITEM_ID];
        size_t n_id;
        const char *id = ek_json_get_text(item, "id", &n_id);
        if (!is_free_id(o, &taken, id, n_id)) {
            make_id(own, type ? type : "message");
            id = own, n_id = strlen(own);
        }
        if (i > 0) ek_buf_char(&o->input, ',');
        size_t from = o->input.len;
        ek_responses_put_kept(&o->input, item, id);
        ek_stored_item where = {.from = from, .n = o->input.len - from};
        ek_response_store_note(o->store, o->owner, &o->items, id, n_id, where);
    }
    ek_buf_char(&o->input, ']');
    ek_item_keys_close(&taken);
    o->n_inputs = o->items.n;
}

void ek_responses_keep_users(ek_responses *o, const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i), *content = ek_json_get(item, "content");
        const char *role = ek_json_get_text(item, "role", NULL);
        if (!role || strcmp(role, "user") != 0) continue;
        ek_buf_fmt(
            &o->users,
            "{\"id\":\"msg_user%zu\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\",\"content\":",
            o->users.len);
        if (ek_json_is_text(content)) ek_buf_str(&o->users, "[{\"type\":\"input_text\",\"text\":");
        if (json_is_array(content)) put_parts(&o->users, content);
        else ek_json_write(&o->users, content);
        ek_buf_str(&o->users, ek_json_is_text(content) ? "}]}," : "},");
    }
}

/* --- items in the form that conversations store --- */

void ek_responses_see(json_t *seen, const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++) see(seen, json_array_get(items, i));
}

/* Whether later requests can name the id in a path, and JSON needs no escapes for it. */
static bool is_plain_id(const char *id, size_t n)
{
    if (n == 0 || n >= ITEM_ID) return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:", id[i])) return false;
    return true;
}

static json_t *text_part(const char *role, const json_t *text)
{
    json_t *list = json_array(), *part = json_object();
    const bool output = role && !strcmp(role, "assistant");
    json_object_set_new_nocheck(part, "type", json_string_nocheck(output ? "output_text" : "input_text"));
    json_object_set_nocheck(part, "text", (json_t *)(uintptr_t)text);
    if (output) json_object_set_new_nocheck(part, "annotations", json_array());
    json_array_append_new(list, part);
    return list;
}

/* The item with its id in front, the status of a complete one, and its content as a list of parts. */
static json_t *normal(const json_t *item, const char *type, const char *id)
{
    json_t *out = json_object(), *v;
    const char *key, *role = ek_json_get_text(item, "role", NULL);
    const bool message = !strcmp(type, "message");
    size_t n;
    json_object_set_new_nocheck(out, "id", json_string_nocheck(id));
    json_object_set_new_nocheck(out, "type", json_string_nocheck(type));
    if (message || ends_with(type, "_call") || ends_with(type, "_output"))
        json_object_set_new_nocheck(out, "status", json_string_nocheck("completed"));
    json_object_keylen_foreach((json_t *)(uintptr_t)item, key, n, v)
    {
        const bool own = (n == 2 && !memcmp(key, "id", 2)) || (n == 4 && !memcmp(key, "type", 4)) || json_is_null(v);
        if (message && n == 7 && !memcmp(key, "content", 7) && json_is_string(v))
            json_object_set_new_nocheck(out, "content", text_part(role, v));
        else if (!own) json_object_setn_nocheck(out, key, n, v);
    }
    return out;
}

/* Its id, or a new one if it has none or the id is taken. */
static void choose_id(char out[ITEM_ID], const json_t *item, const char *type, json_t *seen)
{
    size_t n = 0;
    const char *id = ek_json_get_text(item, "id", &n);
    if (id && is_plain_id(id, n) && !json_object_getn(seen, id, n)) snprintf(out, ITEM_ID, "%.*s", (int)n, id);
    else make_id(out, type);
    json_object_set_new_nocheck(seen, out, json_true());
}

ek_err ek_responses_add_items(ek_new_items *out, const json_t *items, json_t *seen, const ek_api_limits *limits)
{
    ek_json_size more = {.containers = 3 * json_array_size(items)};
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &more, 0, 0));
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *type = ek_json_get_text(item, "type", NULL);
        char id[ITEM_ID];
        if (!type) type = "message";
        if (!strcmp(type, "compaction_trigger")) continue; /* a request, not a part of the conversation */
        choose_id(id, item, type, seen);
        json_t *all = normal(item, type, id);
        if (out->text.len > 0) ek_buf_char(&out->text, ',');
        ek_stored_item where = {.from = out->text.len};
        ek_responses_put_kept(&out->text, all, id);
        where.n = out->text.len - where.from;
        ek_response_store_note(limits->responses, limits->owner, &out->at, id, strlen(id), where);
        json_decref(all);
    }
    return EK_OK;
}

void ek_responses_extend(ek_responses *o, const ek_buf *response)
{
    ek_new_items *all = &o->added;
    if (!o->conversations) return;
    for (int i = o->n_inputs; i < o->items.n; i++) {
        ek_stored_item item = o->items.at[i].item;
        if (all->text.len > 0) ek_buf_char(&all->text, ',');
        const size_t from = all->text.len;
        ek_buf_add(&all->text, ek_buf_text(response) + item.from, item.n);
        item.from = from;
        item.output = false;
        ek_stored_items_add(&all->at, &item);
    }
    (void)ek_conversation_append(o->conversations, o->owner, o->conversation, all, NULL); /* a deleted one stays so */
    o->conversations = NULL;
}

/* --- the stored response, and background responses before they run --- */

void ek_responses_keep(const ek_api_reply *r, ek_buf *response)
{
    ek_responses *o = r->own;
    if (!o->store) return;
    ek_stored_response kept = {.id = r->id,
                               .previous = o->previous,
                               .input = o->input,
                               .response = *response,
                               .from = o->output_from,
                               .n = o->n_output,
                               .background = o->background,
                               .items = o->items};
    ek_response_store_put(o->store, o->owner, &kept);
    o->input = *response = (ek_buf){0};
    o->items = (ek_stored_items){0};
    o->store = NULL;
}

void ek_responses_queued(ek_buf *out, const ek_api_reply *r, bool events)
{
    static const char *const types[EK_RESPONSES_QUEUED] = {"created", "queued"};
    ek_responses *o = r->own;
    for (int i = 0; i < EK_RESPONSES_QUEUED && events; i++) {
        ek_responses_frame_open(out, r, types[i]);
        ek_buf_str(out, ",\"response\":");
        ek_responses_put(out, r, "queued", NULL);
        ek_responses_frame_close(out, r);
    }
    if (!events) ek_responses_put(out, r, "queued", NULL);
    o->queued = events;
}

void ek_responses_cancelled(ek_buf *out, const ek_api_reply *r)
{
    ek_responses *o = r->own;
    ek_buf copy = {0};
    o->items.n = o->n_inputs; /* nothing of the written items is kept */
    ek_responses_put(out, r, "cancelled", NULL);
    ek_buf_add(&copy, out->data, out->len);
    ek_responses_keep(r, &copy);
    ek_buf_fini(&copy);
}
