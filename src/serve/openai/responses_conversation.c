/* Items in the form that conversations store. */
#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

void ek_responses_see(json_t *seen, const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        size_t n;
        const char *id = ek_json_get_text(json_array_get(items, i), "id", &n);
        if (id) json_object_setn_new_nocheck(seen, id, n, json_true());
    }
}

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

void ek_responses_make_id(char out[EK_ITEM_ID], const char *type)
{
    static const char *const prefixes[][2] = {
        {"message", "msg"}, {"reasoning", "rs"}, {"function_call", "fc"}, {"compaction", "cmp"}};
    const char *prefix = ends_with(type, "_output") ? "out" : "item";
    uint64_t random[2];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strcmp(type, prefixes[i][0])) prefix = prefixes[i][1];
    (void)ek_random(random, sizeof random);
    snprintf(out, EK_ITEM_ID, "%s_%016llx%08x", prefix, (unsigned long long)random[0], (unsigned)random[1]);
}

/* Whether later requests can name the id in a path, and JSON needs no escapes for it. */
static bool is_plain_id(const char *id, size_t n)
{
    if (n == 0 || n >= EK_ITEM_ID) return false;
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
static void choose_id(char out[EK_ITEM_ID], const json_t *item, const char *type, json_t *seen)
{
    size_t n = 0;
    const char *id = ek_json_get_text(item, "id", &n);
    if (id && is_plain_id(id, n) && !json_object_getn(seen, id, n)) snprintf(out, EK_ITEM_ID, "%.*s", (int)n, id);
    else ek_responses_make_id(out, type);
    json_object_set_new_nocheck(seen, out, json_true());
}

ek_err ek_responses_add_items(ek_new_items *out, const json_t *items, json_t *seen, const ek_api_limits *limits)
{
    ek_json_size more = {.containers = 3 * json_array_size(items)};
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &more, 0, 0));
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *type = ek_json_get_text(item, "type", NULL);
        char id[EK_ITEM_ID];
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
