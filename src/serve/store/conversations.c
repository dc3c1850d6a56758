#include "serve/store/conversations.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "serve/api/field.h"
#include "serve/store/response_state.h"
#include "text/json/json.h"

static const char head[] = "{\"id\":"; /* of each item */

void ek_new_items_fini(ek_new_items *items)
{
    ek_buf_fini(&items->text);
    ek_stored_items_fini(&items->at);
}

static ek_err not_found(const char *id)
{
    return ek_stored_nothing("conversation", id, strlen(id), "here: it was deleted, or made room for others");
}

static ek_err no_item(const char *id)
{
    return ek_stored_nothing("item", id, strlen(id), "in it");
}

/* Holds the entry, which stays unchanged until it is released. */
static ek_err hold(ek_response_store *s, uint64_t owner, const char *id, ek_response_entry **out)
{
    *out = NULL;
    if (strncmp(id, EK_CONVERSATIONS_ID, sizeof EK_CONVERSATIONS_ID - 1) != 0) return not_found(id);
    pthread_mutex_lock(&s->lock);
    ek_response_entry *e = ek_response_entry_find(s, owner, id);
    if (e) ek_response_entry_hold(e);
    pthread_mutex_unlock(&s->lock);
    *out = e;
    return e ? EK_OK : not_found(id);
}

/* --- new texts --- */

/* Appends items from .. to - 1 of a list to out. */
static void copy_items(ek_buf *out, ek_stored_items *at, const char *text, const ek_stored_items *of, int from, int to)
{
    for (int i = from; i < to; i++) {
        ek_stored_item item = of->at[i].item;
        if (out->len > 1) ek_buf_char(out, ',');
        const size_t begin = out->len;
        ek_buf_add(out, text + item.from, item.n);
        item.from = begin;
        ek_stored_items_add(at, &item);
    }
}

static ek_err put(ek_response_store *s, uint64_t owner, ek_stored_response *r)
{
    const size_t n = r->input.len;
    ek_err err = EK_OK;
    if (n > EK_CONVERSATION_BYTES)
        err = ek_fail(EK_ETOOLARGE, "the conversation would have %zu bytes, at most %d are kept", n,
                      EK_CONVERSATION_BYTES);
    else if (!ek_response_store_put(s, owner, r))
        err = ek_fail(EK_ENOMEM, "there is no room for a conversation of %zu bytes beside those of others", n);
    ek_buf_fini(&r->input);
    ek_buf_fini(&r->response);
    ek_stored_items_fini(&r->items);
    return err;
}

static void put_object(ek_buf *out, const char *id, int64_t created, const char *metadata)
{
    ek_buf_fmt(out, "{\"id\":\"%s\",\"object\":\"conversation\",\"created_at\":%lld,\"metadata\":", id,
               (long long)created);
    ek_buf_str(out, metadata);
    ek_buf_char(out, '}');
}

ek_err ek_conversation_create(ek_response_store *s, uint64_t owner, int64_t created, const char *metadata,
                              ek_new_items *items, char out[EK_CONVERSATION_ID])
{
    uint64_t random[2];
    (void)ek_random(random, sizeof random);
    snprintf(out, EK_CONVERSATION_ID, EK_CONVERSATIONS_ID "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    ek_stored_response r = {.id = out};
    put_object(&r.response, out, created, metadata);
    ek_buf_char(&r.input, '[');
    copy_items(&r.input, &r.items, ek_buf_text(&items->text), &items->at, 0, items->at.n);
    ek_buf_char(&r.input, ']');
    ek_new_items_fini(items);
    return put(s, owner, &r);
}

/* A change of a conversation: its entry and the new one, which begins as a copy. Under s->changing. */
typedef struct change {
    ek_response_store *s;
    uint64_t owner;
    ek_response_entry *from;
    ek_stored_response to;
} change;

static ek_err begin(change *c, ek_response_store *s, uint64_t owner, const char *id)
{
    *c = (change){.s = s, .owner = owner};
    pthread_mutex_lock(&s->changing);
    ek_err err = hold(s, owner, id, &c->from);
    if (err) {
        pthread_mutex_unlock(&s->changing);
        return err;
    }
    c->to.id = c->from->id;
    ek_buf_char(&c->to.input, '[');
    return EK_OK;
}

static void keep_items(change *c, int from, int to)
{
    copy_items(&c->to.input, &c->to.items, ek_buf_text(&c->from->input), &c->from->items, from, to);
}

static void keep_object(change *c)
{
    ek_buf_add(&c->to.response, ek_buf_text(&c->from->response), c->from->response.len);
}

static ek_err finish(change *c)
{
    ek_buf_char(&c->to.input, ']');
    ek_err err = put(c->s, c->owner, &c->to);
    ek_response_store_release(c->from);
    pthread_mutex_unlock(&c->s->changing);
    return err;
}

ek_err ek_conversation_set_metadata(ek_response_store *s, uint64_t owner, const char *id, const char *metadata)
{
    change c;
    json_t *object;
    EK_TRY(begin(&c, s, owner, id));
    const ek_err read = ek_json_read(&object, ek_buf_text(&c.from->response), c.from->response.len, 0);
    EK_ASSERT(!read); /* our own writing */
    put_object(&c.to.response, id, json_integer_value(json_object_get(object, "created_at")), metadata);
    json_decref(object);
    keep_items(&c, 0, c.from->items.n);
    return finish(&c);
}

/* --- its content --- */

/* The index of an item among the first n, which begin with their ids, or -1. */
static int find(const ek_response_entry *e, int n_items, const char *item)
{
    const uint64_t key = ek_item_key(&e->store->items, e->owner_id, item, strlen(item));
    ek_buf begin = {0};
    int found = -1;
    ek_buf_str(&begin, head);
    ek_json_quote(&begin, item, strlen(item));
    for (int i = 0; i < n_items && found < 0; i++) {
        const ek_stored_item *at = &e->items.at[i].item;
        if (at->key == key && at->n > begin.len && !memcmp(ek_buf_text(&e->input) + at->from, begin.data, begin.len))
            found = i;
    }
    ek_buf_fini(&begin);
    return found;
}

ek_err ek_conversation_delete_item(ek_response_store *s, uint64_t owner, const char *id, const char *item)
{
    change c;
    EK_TRY(begin(&c, s, owner, id));
    const int i = find(c.from, c.from->items.n, item);
    if (i < 0) {
        ek_buf_fini(&c.to.input);
        ek_response_store_release(c.from);
        pthread_mutex_unlock(&s->changing);
        return no_item(item);
    }
    keep_object(&c);
    keep_items(&c, 0, i);
    keep_items(&c, i + 1, c.from->items.n);
    return finish(&c);
}

ek_err ek_conversation_delete(ek_response_store *s, uint64_t owner, const char *id)
{
    if (strncmp(id, EK_CONVERSATIONS_ID, sizeof EK_CONVERSATIONS_ID - 1) != 0) return not_found(id);
    pthread_mutex_lock(&s->changing); /* otherwise a simultaneous change would bring it back */
    ek_err err = ek_response_store_delete(s, owner, id);
    pthread_mutex_unlock(&s->changing);
    return err ? not_found(id) : EK_OK;
}

ek_err ek_conversation_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n)
{
    ek_response_entry *e;
    EK_TRY(hold(s, owner, id, &e));
    *n = e->input.len;
    ek_response_store_release(e);
    return EK_OK;
}

ek_err ek_conversation_put(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id)
{
    ek_response_entry *e;
    EK_TRY(hold(s, owner, id, &e));
    ek_buf_add(out, ek_buf_text(&e->response), e->response.len);
    ek_response_store_release(e);
    return EK_OK;
}

ek_err ek_conversation_put_item(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id, const char *item)
{
    ek_response_entry *e;
    EK_TRY(hold(s, owner, id, &e));
    const int i = find(e, e->items.n, item);
    if (i >= 0) ek_buf_add(out, ek_buf_text(&e->input) + e->items.at[i].item.from, e->items.at[i].item.n);
    ek_response_store_release(e);
    return i < 0 ? no_item(item) : EK_OK;
}

ek_err ek_item_page_read(ek_api_request *r, ek_item_page *page, ek_span target)
{
    enum { DEFAULT_PAGE = 20, MAX_PAGE = 100 };
    char word[16], *rest = word;
    page->limit = DEFAULT_PAGE;
    if (ek_http_query(page->after, sizeof page->after, target, "after") < 0)
        return ek_field_wrong(r, "after", "the id of an item is needed");
    if (ek_http_query(word, sizeof word, target, "limit")) {
        const long v = strtol(word, &rest, 10);
        if (rest == word || *rest || v < 1 || v > MAX_PAGE)
            return ek_field_wrong_text(r, "limit", "a whole number from 1 to 100 is needed, not", word, "");
        page->limit = (int)v;
    }
    if (!ek_http_query(word, sizeof word, target, "order")) return EK_OK;
    page->oldest_first = !strcmp(word, "asc");
    if (!page->oldest_first && strcmp(word, "desc") != 0)
        return ek_field_wrong_text(r, "order", "it must be asc or desc, not", word, "");
    return EK_OK;
}

/* What follows the id of an item. */
static const char *end_of_id(const char *item)
{
    const char *end = item + sizeof head;
    while (*end != '"') end += *end == '\\' ? 2 : 1;
    return end + 1;
}

/* Writes the stored id of an item, with its quotes. */
static void put_id(ek_buf *out, const char *item)
{
    const char *id = item + sizeof head - 1;
    ek_buf_add(out, id, (size_t)(end_of_id(item) - id));
}

typedef struct range {
    int first, n, step;
    bool more;
} range;

/* What stands behind the items of a page. */
static void put_end(ek_buf *out, const char *text, const ek_stored_items *items, const range *r)
{
    const char *const names[] = {"],\"first_id\":", ",\"last_id\":"};
    for (int k = 0; k < 2; k++) {
        ek_buf_str(out, names[k]);
        if (r->n > 0) put_id(out, text + items->at[r->first + (k ? (r->n - 1) * r->step : 0)].item.from);
        else ek_buf_str(out, "null");
    }
    ek_buf_fmt(out, ",\"has_more\":%s}", r->more ? "true" : "false");
}

static const char begin_list[] = "{\"object\":\"list\",\"data\":[";

static void put_page(ek_buf *out, const char *text, const ek_stored_items *items, const range *r)
{
    ek_buf_str(out, begin_list);
    for (int i = 0; i < r->n; i++) {
        const ek_stored_item *at = &items->at[r->first + i * r->step].item;
        if (i > 0) ek_buf_char(out, ',');
        ek_buf_add(out, text + at->from, at->n);
    }
    put_end(out, text, items, r);
}

/* Simultaneous requests and a client's second try may add ids that the conversation has by now: such items get new
 * ids. */
static void give_free_ids(const ek_response_store *s, uint64_t owner, ek_new_items *items, const ek_stored_items *there)
{
    ek_item_keys taken;
    ek_new_items out = {0};
    ek_item_keys_open(&taken, (size_t)there->n + (size_t)items->at.n);
    for (int i = 0; i < there->n; i++) (void)ek_item_keys_add(&taken, there->at[i].item.key);
    for (int i = 0; i < items->at.n; i++) {
        ek_stored_item item = items->at.at[i].item;
        const char *text = ek_buf_text(&items->text) + item.from;
        if (out.text.len > 0) ek_buf_char(&out.text, ',');
        const size_t from = out.text.len;
        if (ek_item_keys_add(&taken, item.key)) {
            ek_buf_add(&out.text, text, item.n);
            item.from = from;
            ek_stored_items_add(&out.at, &item);
            continue;
        }
        char id[32];
        uint64_t random[2];
        (void)ek_random(random, sizeof random);
        const int n = snprintf(id, sizeof id, "item_%016llx%08x", (unsigned long long)random[0], (unsigned)random[1]);
        const char *rest = end_of_id(text);
        ek_buf_fmt(&out.text, "{\"id\":\"%s\"", id);
        ek_buf_add(&out.text, rest, item.n - (size_t)(rest - text));
        item.from = from, item.n = out.text.len - from;
        ek_response_store_note(s, owner, &out.at, id, (size_t)n, item);
    }
    ek_item_keys_close(&taken);
    ek_new_items_fini(items);
    *items = out;
}

ek_err ek_conversation_append(ek_response_store *s, uint64_t owner, const char *id, ek_new_items *items, ek_buf *list)
{
    change c;
    ek_err err = begin(&c, s, owner, id);
    if (!err) {
        give_free_ids(s, owner, items, &c.from->items);
        keep_object(&c);
        ek_buf_reserve(&c.to.input, c.from->input.len + items->text.len + 2);
        keep_items(&c, 0, c.from->items.n);
        copy_items(&c.to.input, &c.to.items, ek_buf_text(&items->text), &items->at, 0, items->at.n);
        err = finish(&c);
    }
    if (!err && list) put_page(list, ek_buf_text(&items->text), &items->at, &(range){.n = items->at.n, .step = 1});
    ek_new_items_fini(items);
    return err;
}

/* The page among the first n items; false: its item before is not there. */
static bool range_of(range *out, const ek_response_entry *e, int n, const ek_item_page *page)
{
    const int step = page->oldest_first ? 1 : -1, at = *page->after ? find(e, n, page->after) : -1;
    const int first = at >= 0 ? at + step : step > 0 ? 0 : n - 1, left = step > 0 ? n - first : first + 1;
    *out = (range){first, left < page->limit ? left : page->limit, step, left > page->limit};
    return !*page->after || at >= 0;
}

ek_err ek_conversation_put_page(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id,
                                const ek_item_page *page)
{
    ek_response_entry *e;
    range r;
    EK_TRY(hold(s, owner, id, &e));
    const bool is = range_of(&r, e, e->items.n, page);
    if (is) put_page(out, ek_buf_text(&e->input), &e->items, &r);
    ek_response_store_release(e);
    return is ? EK_OK : no_item(page->after);
}

/* A page of a response's input while it is sent. */
typedef struct lent_page {
    ek_response_held *held;
    ek_buf end;
    ek_span part[];
} lent_page;

static void release_page(void *arg)
{
    lent_page *p = arg;
    ek_response_store_release(p->held);
    ek_buf_fini(&p->end);
    free(p);
}

/* The number of input items, or -1: not all of them have their ids. */
static int inputs_of(const ek_response_entry *e)
{
    size_t bytes = 1;
    int n = 0;
    for (; n < e->items.n && !e->items.at[n].item.output; n++) bytes += e->items.at[n].item.n + 1;
    return n > 0 && bytes != e->input.len ? -1 : n == 0 && e->input.len > 2 ? -1 : n;
}

ek_err ek_response_lend_page(ek_outgoing *out, ek_response_store *s, uint64_t owner, const char *id,
                             const ek_item_page *page)
{
    static const char whole[] = ",\"first_id\":null,\"last_id\":null,\"has_more\":false}";
    ek_span text;
    ek_response_held *held;
    range r;
    EK_TRY(ek_response_store_hold(s, owner, id, true, &text, &held));
    const ek_response_entry *e = (const ek_response_entry *)held;
    const int n = inputs_of(e);
    if (n >= 0 && !range_of(&r, e, n, page)) {
        ek_response_store_release(held);
        return no_item(page->after);
    }
    lent_page *p = ek_alloc(sizeof *p + sizeof *p->part * (2 * (size_t)(n < 0 ? 1 : r.n) + 2));
    int k = 0;
    p->held = held;
    p->part[k++] = (ek_span){begin_list, sizeof begin_list - 1 - (n < 0)};
    if (n < 0) p->part[k++] = text, p->part[k++] = (ek_span){whole, sizeof whole - 1};
    for (int i = 0; n >= 0 && i < r.n; i++) {
        const ek_stored_item *at = &e->items.at[r.first + i * r.step].item;
        if (i > 0) p->part[k++] = (ek_span){",", 1};
        p->part[k++] = (ek_span){text.p + at->from, at->n};
    }
    if (n >= 0) put_end(&p->end, text.p, &e->items, &r);
    if (n >= 0) p->part[k++] = (ek_span){p->end.data, p->end.len};
    *out = (ek_outgoing){.list = p->part, .n = k, .release = release_page, .arg = p};
    return EK_OK;
}

ek_err ek_conversation_page_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n)
{
    enum { FRAME = 512 };
    EK_TRY(ek_conversation_size(s, owner, id, n));
    *n += FRAME;
    return EK_OK;
}
