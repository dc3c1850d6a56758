/* Reads stored responses: the conversation that ends with a response, and single items. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "serve/store/response_state.h"
#include "text/json/json.h"

/* --- conversations --- */

/* A conversation, newest first. */
typedef struct chain {
    ek_response_entry **entries;
    int n, cap;
} chain;

static void add(chain *c, ek_response_entry *e)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 16;
        c->entries = ek_realloc(c->entries, (size_t)c->cap * sizeof *c->entries);
    }
    ek_response_entry_hold(e);
    c->entries[c->n++] = e;
}

/* Walks from the newest to the oldest, so that older ones become the most recently used, and a conversation loses its
 * end before its beginning. A resumed stream has an id from its client, so responses could form a circle. */
static ek_err hold_chain(ek_response_store *s, uint64_t owner_id, const char *id, chain *c)
{
    ek_err err = EK_OK;
    pthread_mutex_lock(&s->lock);
    const uint64_t walk = ++s->walks;
    for (ek_response_entry *e; id && !err; id = e ? e->previous : NULL) {
        e = ek_response_entry_find(s, owner_id, id);
        if (!e) err = ek_response_not_found(id);
        else if (e->walk == walk) err = ek_fail(EK_EINVAL, "%.80s continues itself: it has no beginning", id);
        else add(c, e);
        if (e) e->walk = walk;
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

static void let_chain_go(ek_response_store *s, chain *c)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < c->n; i++) ek_response_entry_let_go(c->entries[i]);
    pthread_mutex_unlock(&s->lock);
    free(c->entries);
}

static void add_size(ek_json_size *sum, const char *text, size_t n)
{
    ek_json_size one;
    ek_json_scan(&one, text, n);
    sum->values += one.values;
    sum->containers += one.containers;
    sum->growth += one.growth;
    sum->coded += one.coded;
}

static size_t chain_bytes(const chain *c)
{
    size_t n = 0;
    for (int i = 0; i < c->n; i++) n += c->entries[i]->input.len + c->entries[i]->n;
    return n;
}

static ek_err count_chain(const chain *c, const ek_api_limits *limits)
{
    ek_json_size sum = {0};
    const size_t n = chain_bytes(c);
    for (int i = 0; i < c->n; i++) {
        const ek_response_entry *e = c->entries[i];
        EK_TRY(ek_wanted_check());
        add_size(&sum, ek_buf_text(&e->input), e->input.len);
        add_size(&sum, ek_buf_text(&e->response) + e->from, e->n);
    }
    return limits->count ? limits->count(limits->count_arg, &sum, n, n) : EK_OK;
}

static void append_items(json_t *list, const char *text, size_t n)
{
    json_t *v;
    const ek_err err = ek_json_read(&v, text, n, 0);
    EK_ASSERT(err == EK_OK); /* our own writing */
    json_array_extend(list, v);
    json_decref(v);
}

ek_err ek_response_store_items(const ek_api_limits *limits, const char *id, json_t *list)
{
    chain c = {0};
    ek_err err = hold_chain(limits->responses, limits->owner, id, &c);
    const bool reads = !err && ek_plan_reads(limits->plan, chain_bytes(&c));
    if (reads) err = count_chain(&c, limits);
    for (int i = c.n - 1; i >= 0 && reads && !err; i--) {
        const ek_response_entry *e = c.entries[i];
        append_items(list, ek_buf_text(&e->input), e->input.len);
        if (e->n > 0) append_items(list, ek_buf_text(&e->response) + e->from, e->n); /* it may be empty */
        err = ek_wanted_check();
    }
    let_chain_go(limits->responses, &c);
    return err;
}

/* --- items by their ids --- */

enum { BUCKETS = 1 << 18 };

void ek_stored_items_add(ek_stored_items *list, const ek_stored_item *item)
{
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 8;
        list->at = ek_realloc(list->at, (size_t)list->cap * sizeof *list->at);
    }
    list->at[list->n++] = (ek_item_node){.item = *item};
}

void ek_stored_items_fini(ek_stored_items *list)
{
    free(list->at);
    *list = (ek_stored_items){0};
}

void ek_item_keys_open(ek_item_keys *k, size_t max)
{
    k->n_slots = 16;
    while (k->n_slots < 2 * max) k->n_slots *= 2;
    k->slot = ek_alloc(k->n_slots * sizeof *k->slot);
}

bool ek_item_keys_add(ek_item_keys *k, uint64_t key)
{
    key += key == 0; /* 0: an empty slot */
    uint64_t *at = &k->slot[key & (k->n_slots - 1)];
    while (*at && *at != key) at = at + 1 < k->slot + k->n_slots ? at + 1 : k->slot;
    if (*at) return false;
    *at = key;
    return true;
}

void ek_item_keys_close(ek_item_keys *k)
{
    free(k->slot);
}

void ek_item_index_open(ek_item_index *x)
{
    x->bucket = ek_alloc(BUCKETS * sizeof(ek_item_node *));
    (void)ek_random(&x->seed, sizeof x->seed);
}

void ek_item_index_close(ek_item_index *x)
{
    free(x->bucket);
}

uint64_t ek_item_key(const ek_item_index *x, uint64_t owner, const char *id, size_t n)
{
    return ek_hash64(ek_mix64(x->seed ^ owner), id, n);
}

void ek_item_link(ek_item_index *x, ek_item_node *node)
{
    ek_item_node **at = &x->bucket[node->item.key % BUCKETS];
    node->next = *at;
    node->back = at;
    if (node->next) node->next->back = &node->next;
    *at = node;
}

void ek_item_unlink(ek_item_node *node)
{
    *node->back = node->next;
    if (node->next) node->next->back = node->back;
}

/* The newest node of this key, or NULL. */
static ek_item_node *find_node(const ek_item_index *x, uint64_t key)
{
    ek_item_node *node = x->bucket[key % BUCKETS];
    while (node && node->item.key != key) node = node->next;
    return node;
}

/* --- an item --- */

static ek_err no_item(const char *id, size_t n)
{
    return ek_stored_nothing("item", id, n, "here: its response was not stored, was deleted, or made room for others");
}

static ek_err read_item(const ek_api_limits *limits, const char *text, size_t n, json_t **out)
{
    ek_json_size size;
    ek_json_scan(&size, text, n);
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &size, n, n));
    const ek_err err = ek_json_read(out, text, n, 0);
    EK_ASSERT(err == EK_OK); /* our own writing */
    return EK_OK;
}

ek_err ek_response_store_item(const ek_api_limits *limits, const char *id, size_t n_id, json_t **out)
{
    ek_response_store *s = limits->responses;
    ek_response_entry *e = NULL;
    ek_stored_item item = {0};
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    ek_item_node *node = find_node(&s->items, ek_item_key(&s->items, limits->owner, id, n_id));
    if (node) {
        e = node->entry;
        item = node->item;
        ek_response_entry_hold(e);
        ek_response_entry_mark_used(s, e);
    }
    pthread_mutex_unlock(&s->lock);
    if (!e) return no_item(id, n_id);
    const bool reads = ek_plan_reads(limits->plan, item.n);
    ek_err err = EK_OK;
    if (reads) err = read_item(limits, ek_buf_text(item.output ? &e->response : &e->input) + item.from, item.n, out);
    size_t n = 0;
    const char *found = ek_json_get_text(*out, "id", &n);
    bool same = e->owner_id == limits->owner && found && n == n_id && !memcmp(found, id, n);
    pthread_mutex_lock(&s->lock);
    ek_response_entry_let_go(e);
    pthread_mutex_unlock(&s->lock);
    if (err || same || !reads) return err;
    json_decref(*out); /* another id with the same 64 bits */
    *out = NULL;
    return no_item(id, n_id);
}
