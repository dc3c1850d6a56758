/* The dialect of /v1/conversations: all requests about conversations and their items, by method and path. It generates
 * nothing. Fields: docs/API.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/api/openai.h"
#include "serve/http/http_head.h"
#include "serve/openai/responses.h"
#include "text/json/json.h"

enum { MAX_ITEMS = 20 };

typedef enum operation { CREATE, GET, UPDATE, DELETE, ADD, LIST, GET_ITEM, DELETE_ITEM } operation;

typedef struct ek_conversation_ask {
    operation what;
    ek_buf id, item; /* from the path; empty: absent */
    ek_item_page page;
    ek_buf metadata;
    ek_new_items items;
    ek_response_store *store;
    uint64_t owner;
    int64_t now;
} ek_conversation_ask;

void ek_conversation_ask_free(ek_conversation_ask *a)
{
    if (!a) return;
    ek_buf_fini(&a->id);
    ek_buf_fini(&a->item);
    ek_buf_fini(&a->metadata);
    ek_new_items_fini(&a->items);
    free(a);
}

/* Reads /v1/conversations[/ID[/items[/ITEM]]] and the method; the router admits no other paths. */
static void read_path(ek_conversation_ask *a, const char *method, const char *path)
{
    static const char name[] = "/conversations", items[] = "/items";
    const char *p = strstr(path ? path : name, name);
    p = p ? p + sizeof name - 1 : "";
    p += *p == '/';
    const size_t n = strcspn(p, "/");
    const bool has_items = !strncmp(p + n, items, sizeof items - 1);
    const char *item = has_items ? p + n + sizeof items - 1 : "";
    item += *item == '/';
    ek_buf_add(&a->id, p, n);
    ek_buf_add(&a->item, item, strcspn(item, "/"));
    const bool get = method && (!strcmp(method, "GET") || !strcmp(method, "HEAD"));
    const bool delete = method && !strcmp(method, "DELETE");
    if (n == 0) a->what = CREATE;
    else if (!has_items) a->what = get ? GET : delete ? DELETE : UPDATE;
    else if (a->item.len == 0) a->what = get ? LIST : ADD;
    else a->what = delete ? DELETE_ITEM : GET_ITEM;
}

/* Items are read like those of a response, so that later responses can continue from them. */
static ek_err read_items(ek_api_request *r, ek_conversation_ask *a, const json_t *body, const ek_api_limits *limits)
{
    const json_t *list = ek_field(body, "items");
    if (!list && a->what == CREATE) return EK_OK;
    if (!json_is_array(list)) return ek_field_wrong(r, "items", "a list of items is needed");
    if (json_array_size(list) > MAX_ITEMS) {
        r->param = "items";
        return ek_fail(EK_EINVAL, "items: %zu are added, at most %d at a time", json_array_size(list), MAX_ITEMS);
    }
    json_t *items = json_incref((json_t *)(uintptr_t)list), *seen = json_object();
    r->param = "items";
    ek_err err = ek_responses_resolve(&items, NULL, limits);
    if (!err) err = ek_responses_items(r, items, limits);
    if (!err) err = ek_responses_add_items(&a->items, items, seen, limits);
    if (!err) r->param = NULL;
    ek_conversation_fini(&r->conversation);
    r->conversation = (ek_conversation){0};
    json_decref(seen);
    json_decref(items);
    return err;
}

static ek_err read_body(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    ek_conversation_ask *a = ((ek_responses *)r->own)->ask;
    const json_t *metadata = ek_field(body, "metadata");
    EK_TRY(ek_members_check(r, body, EK_MEMBERS_CONVERSATIONS));
    if (a->what == ADD && metadata) return ek_field_wrong(r, "metadata", "items have none");
    if (a->what == UPDATE && ek_field(body, "items"))
        return ek_field_wrong(r, "items", "they are added at the path of the items");
    if (a->what == UPDATE && !json_object_get(body, "metadata"))
        return ek_field_wrong(r, "metadata", "an object of texts is needed");
    EK_TRY(ek_responses_check_metadata(r, body));
    if (metadata) ek_json_write(&a->metadata, metadata);
    return a->what == UPDATE ? EK_OK : read_items(r, a, body, limits);
}

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i]) return false;
    return true;
}

static ek_err parse(ek_api_request *r, const char *text, size_t n, const ek_api_limits *limits)
{
    ek_responses *o = ek_responses_open(r);
    ek_conversation_ask *a = o->ask = ek_alloc(sizeof *a);
    r->answered = true;
    a->store = limits->responses;
    a->owner = limits->owner;
    a->now = limits->now;
    read_path(a, limits->method, limits->path);
    if (!a->store) return ek_fail(EK_ENOTFOUND, "there is no conversation here: this server stores none");
    if (a->what == LIST)
        EK_TRY(ek_item_page_read(r, &a->page, (ek_span){limits->target, limits->target ? strlen(limits->target) : 0}));
    if (a->what != CREATE && a->what != UPDATE && a->what != ADD) return EK_OK;
    if (a->what == CREATE && is_blank(text, n)) return EK_OK;
    return ek_field_body(r, text, n, limits, read_body);
}

static ek_err delete (ek_buf *out, const ek_conversation_ask *a)
{
    EK_TRY(ek_conversation_delete(a->store, a->owner, ek_buf_text(&a->id)));
    ek_put_text_after(out, "{\"id\":", ek_buf_text(&a->id), a->id.len);
    ek_buf_str(out, ",\"object\":\"conversation.deleted\",\"deleted\":true}");
    return EK_OK;
}

static ek_err answer(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    ek_conversation_ask *a = ((ek_responses *)r->own)->ask;
    const char *metadata = a->metadata.len ? a->metadata.data : "{}";
    char id[EK_CONVERSATION_ID];
    (void)m, (void)prompt;
    switch (a->what) {
    case CREATE:
        EK_TRY(ek_conversation_create(a->store, a->owner, a->now, metadata, &a->items, id));
        return ek_conversation_put(out, a->store, a->owner, id);
    case GET: return ek_conversation_put(out, a->store, a->owner, ek_buf_text(&a->id));
    case UPDATE:
        EK_TRY(ek_conversation_set_metadata(a->store, a->owner, ek_buf_text(&a->id), metadata));
        return ek_conversation_put(out, a->store, a->owner, ek_buf_text(&a->id));
    case DELETE: return delete (out, a);
    case ADD: return ek_conversation_append(a->store, a->owner, ek_buf_text(&a->id), &a->items, out);
    case LIST: return ek_conversation_put_page(out, a->store, a->owner, ek_buf_text(&a->id), &a->page);
    case GET_ITEM: return ek_conversation_put_item(out, a->store, a->owner, ek_buf_text(&a->id), ek_buf_text(&a->item));
    case DELETE_ITEM:
        EK_TRY(ek_conversation_delete_item(a->store, a->owner, ek_buf_text(&a->id), ek_buf_text(&a->item)));
        return ek_conversation_put(out, a->store, a->owner, ek_buf_text(&a->id));
    }
    return EK_OK;
}

/* The conversation's bytes, and those that the body adds: in its items and in the reply. */
static size_t answer_bytes(const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const ek_conversation_ask *a = ((const ek_responses *)r->own)->ask;
    size_t n = 0;
    (void)m, (void)prompt;
    if (a->what != CREATE && ek_conversation_page_size(a->store, a->owner, ek_buf_text(&a->id), &n))
        n = 0; /* it does not exist */
    return n + 2 * a->items.text.cap + 3 * a->metadata.cap + 1024;
}

const ek_dialect ek_dialect_conversations = {
    .path = "/v1/conversations",
    .id_prefix = EK_CONVERSATIONS_ID,
    .by_path = true,
    .parse = parse,
    .prompt = ek_api_no_prompt,
    .answer = answer,
    .answer_bytes = answer_bytes,
    .error = ek_openai_error,
};
