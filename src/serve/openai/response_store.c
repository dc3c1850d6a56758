#include "serve/openai/response_store.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "base/wanted.h"
#include "text/json/json.h"

enum { BUCKETS = 4096 };

/* What it says never changes, so it is read without the lock while it is held. */
typedef struct entry {
    struct entry *newer, *older; /* by use, of its owner's */
    struct entry *next;          /* in its bucket */
    struct ek_response_store *store;
    bool kept;           /* in the store; under the lock, like the next */
    int n_readers;       /* it stays, and its bytes count, as long as there are any, kept or not */
    struct owner *owner; /* under the lock; of one that is kept */
    uint64_t owner_id;
    uint64_t used; /* when last */
    char *id, *previous;
    ek_buf input, response;
    size_t from, n; /* as in ek_stored_response */
    ek_stored_items items;
} entry;

typedef struct owner {
    struct owner *next;
    uint64_t id;
    entry *newest, *oldest;
    int n;
    size_t bytes;
} owner;

struct ek_response_store {
    pthread_mutex_t lock;
    owner *owners; /* those that have something, and the one that is about to */
    uint64_t clock;
    entry *bucket[BUCKETS]; /* by id */
    ek_item_index items;
    int n, max_entries;
    size_t bytes, max_bytes;
    size_t lingering;  /* bytes of those that are forgotten and still read: they count, too */
    size_t read_bytes; /* of all that is read, kept or not */
};

ek_response_store *ek_response_store_open(int max_entries, size_t max_bytes)
{
    ek_response_store *s = ek_alloc(sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->max_entries = max_entries;
    s->max_bytes = max_bytes;
    ek_item_index_open(&s->items);
    return s;
}

static size_t size_of(const entry *e)
{
    return sizeof *e + e->input.len + e->response.len + strlen(e->id) + (e->previous ? strlen(e->previous) : 0) +
           (size_t)e->items.cap * sizeof *e->items.at;
}

static void unlink_entry(entry *e)
{
    owner *o = e->owner;
    *(e->newer ? &e->newer->older : &o->newest) = e->older;
    *(e->older ? &e->older->newer : &o->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(ek_response_store *s, entry *e)
{
    owner *o = e->owner;
    e->used = ++s->clock;
    e->older = o->newest;
    if (e->older) e->older->newer = e;
    else o->oldest = e;
    o->newest = e;
}

static owner *owner_of(ek_response_store *s, uint64_t id)
{
    owner *o = s->owners;
    while (o && o->id != id) o = o->next;
    if (o) return o;
    o = ek_alloc(sizeof *o);
    o->id = id;
    o->next = s->owners;
    s->owners = o;
    return o;
}

static void drop_empty_owners(ek_response_store *s)
{
    for (owner **at = &s->owners, *o; (o = *at) != NULL;) {
        if (o->n > 0) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        free(o);
    }
}

static entry **bucket_of(ek_response_store *s, const char *id)
{
    return &s->bucket[ek_fnv1a64(id) % BUCKETS];
}

/* Frees an entry that is neither kept nor read. Under the lock. */
static void drop(entry *e)
{
    if (e->kept || e->n_readers > 0) return;
    free(e->id);
    free(e->previous);
    ek_buf_fini(&e->input);
    ek_buf_fini(&e->response);
    ek_stored_items_fini(&e->items);
    free(e);
}

static void hold(entry *e)
{
    if (e->n_readers++ == 0) e->store->read_bytes += size_of(e);
}

static void let_go(entry *e)
{
    if (--e->n_readers > 0) return;
    e->store->read_bytes -= size_of(e);
    if (e->kept) return;
    e->store->lingering -= size_of(e);
    drop(e);
}

static void forget(ek_response_store *s, entry *e)
{
    entry **at = bucket_of(s, e->id);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    for (int i = 0; i < e->items.n; i++) ek_item_unlink(&e->items.at[i]);
    unlink_entry(e);
    size_t size = size_of(e);
    s->n--, e->owner->n--;
    s->bytes -= size, e->owner->bytes -= size;
    if (e->n_readers > 0) s->lingering += size;
    e->kept = false;
    e->owner = NULL;
    drop(e);
}

void ek_response_store_close(ek_response_store *s)
{
    if (!s) return;
    for (owner *o = s->owners; o; o = o->next)
        while (o->oldest) forget(s, o->oldest);
    drop_empty_owners(s);
    ek_item_index_close(&s->items);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void take_over(ek_buf *to, ek_buf *from)
{
    *to = *from;
    *from = (ek_buf){0};
    if (to->data) to->data = ek_realloc(to->data, to->cap = to->len + 1);
}

void ek_response_store_note(const ek_response_store *s, uint64_t owner_id, ek_stored_items *items, const char *id,
                            size_t n_id, ek_stored_item where)
{
    where.key = ek_item_key(&s->items, owner_id, id, n_id);
    ek_stored_items_add(items, &where);
}

static void link_items(ek_response_store *s, entry *e)
{
    for (int i = 0; i < e->items.n; i++) {
        e->items.at[i].entry = e;
        ek_item_link(&s->items, &e->items.at[i]);
    }
}

/* --- shares: who has most makes room, so that nobody loses anything to one who has more */

/* Entries, or bytes, that o has with the one of `size` bytes that is about to come for `by`. */
static size_t has(const owner *o, const owner *by, size_t size, bool entries)
{
    return entries ? (size_t)o->n + (o == by) : o->bytes + (o == by ? size : 0);
}

static owner *largest(const ek_response_store *s, const owner *by, size_t size, bool entries)
{
    owner *most = NULL;
    for (owner *o = s->owners; o; o = o->next) {
        size_t mine = has(o, by, size, entries), its = most ? has(most, by, size, entries) : 0;
        bool older = most && o->oldest && (!most->oldest || o->oldest->used < most->oldest->used);
        if (!most || mine > its || (mine == its && older)) most = o;
    }
    return most;
}

/* False, and nothing is forgotten, where those who have less would have to go, or what is being read leaves no room: to
 * forget that makes none. */
static bool make_room(ek_response_store *s, const owner *by, size_t size)
{
    size_t least = size;
    for (const owner *o = s->owners; o; o = o->next)
        if (o != by) least += o->bytes < size ? o->bytes : size;
    if (s->read_bytes > s->max_bytes || least > s->max_bytes - s->read_bytes) return false;
    while (s->n >= s->max_entries || s->bytes + s->lingering + size > s->max_bytes)
        forget(s, largest(s, by, size, s->n >= s->max_entries)->oldest);
    return true;
}

void ek_response_store_put(ek_response_store *s, uint64_t owner_id, ek_stored_response *r)
{
    entry *e = ek_alloc(sizeof *e);
    *e = (entry){.store = s, .owner_id = owner_id, .id = ek_strdup(r->id), .from = r->from, .n = r->n};
    if (r->previous) e->previous = ek_strdup(r->previous);
    take_over(&e->input, &r->input);
    take_over(&e->response, &r->response);
    e->items = r->items;
    r->items = (ek_stored_items){0};
    pthread_mutex_lock(&s->lock);
    size_t size = size_of(e);
    owner *o = owner_of(s, owner_id);
    if (make_room(s, o, size)) {
        e->owner = o;
        e->kept = true;
        entry **at = bucket_of(s, e->id);
        e->next = *at;
        *at = e;
        link_items(s, e);
        link_newest(s, e);
        s->n++, o->n++;
        s->bytes += size, o->bytes += size;
    }
    drop(e);
    drop_empty_owners(s);
    pthread_mutex_unlock(&s->lock);
}

static void mark_used(ek_response_store *s, entry *e)
{
    unlink_entry(e);
    link_newest(s, e);
}

/* Marks what it finds as used. */
static entry *find(ek_response_store *s, uint64_t owner_id, const char *id)
{
    entry *e = *bucket_of(s, id);
    while (e && (e->owner_id != owner_id || strcmp(e->id, id))) e = e->next;
    if (e) mark_used(s, e);
    return e;
}

static ek_err not_found(const char *id)
{
    return ek_fail(EK_ENOTFOUND,
                   "there is no response %.80s here: it was not stored, was deleted, or made room for others", id);
}

ek_err ek_response_store_hold(ek_response_store *s, uint64_t owner_id, const char *id, bool input, ek_span *text,
                              ek_response_held **held)
{
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, owner_id, id);
    if (e) hold(e);
    pthread_mutex_unlock(&s->lock);
    if (!e) return not_found(id);
    const ek_buf *from = input ? &e->input : &e->response;
    *text = (ek_span){ek_buf_text(from), from->len};
    *held = (ek_response_held *)e;
    return EK_OK;
}

void ek_response_store_release(void *held)
{
    entry *e = held;
    ek_response_store *s = e->store;
    pthread_mutex_lock(&s->lock);
    let_go(e);
    pthread_mutex_unlock(&s->lock);
}

ek_err ek_response_store_delete(ek_response_store *s, uint64_t owner_id, const char *id)
{
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, owner_id, id);
    if (e) forget(s, e);
    drop_empty_owners(s);
    pthread_mutex_unlock(&s->lock);
    return e ? EK_OK : not_found(id);
}

/* --- conversations --- */

/* A conversation, newest first. */
typedef struct chain {
    entry **entries;
    int n, cap;
} chain;

static void add(chain *c, entry *e)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 16;
        c->entries = ek_realloc(c->entries, (size_t)c->cap * sizeof *c->entries);
    }
    hold(e);
    c->entries[c->n++] = e;
}

/* From the newest to the oldest: older ones become the most recently used, so that a conversation loses its end before
 * it loses its beginning. A conversation of more than max_entries cannot be: ids come before those that continue them.
 */
static ek_err hold_chain(ek_response_store *s, uint64_t owner_id, const char *id, chain *c)
{
    ek_err err = EK_OK;
    pthread_mutex_lock(&s->lock);
    for (int steps = 0; id && !err && steps <= s->max_entries; steps++) {
        entry *e = find(s, owner_id, id);
        if (!e) err = not_found(id);
        else add(c, e);
        id = e ? e->previous : NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

static void let_chain_go(ek_response_store *s, chain *c)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < c->n; i++) let_go(c->entries[i]);
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
}

static ek_err count_chain(const chain *c, const ek_api_limits *limits)
{
    ek_json_size sum = {0};
    size_t n = 0;
    for (int i = 0; i < c->n; i++) n += c->entries[i]->input.len + c->entries[i]->n;
    if (limits->weigh) EK_TRY(limits->weigh(limits->count_arg, n));
    for (int i = 0; i < c->n; i++) {
        const entry *e = c->entries[i];
        EK_TRY(ek_wanted_check());
        add_size(&sum, ek_buf_text(&e->input), e->input.len);
        add_size(&sum, ek_buf_text(&e->response) + e->from, e->n);
    }
    return limits->count ? limits->count(limits->count_arg, &sum, n, n) : EK_OK;
}

static void append_items(json_t *list, const char *text, size_t n)
{
    json_t *v;
    EK_ASSERT(ek_json_read(&v, text, n, 0) == EK_OK); /* our own writing */
    json_array_extend(list, v);
    json_decref(v);
}

ek_err ek_response_store_items(const ek_api_limits *limits, const char *id, json_t *list)
{
    chain c = {0};
    ek_err err = hold_chain(limits->responses, limits->owner, id, &c);
    if (!err) err = count_chain(&c, limits);
    for (int i = c.n - 1; i >= 0 && !err; i--) {
        const entry *e = c.entries[i];
        append_items(list, ek_buf_text(&e->input), e->input.len);
        append_items(list, ek_buf_text(&e->response) + e->from, e->n);
        err = ek_wanted_check();
    }
    let_chain_go(limits->responses, &c);
    return err;
}

/* --- an item --- */

static ek_err no_item(const char *id, size_t n)
{
    ek_buf quoted = {0};
    enum { MAX_SHOWN = 80 };
    ek_json_quote(&quoted, id, n < MAX_SHOWN ? n : MAX_SHOWN);
    ek_err err = ek_fail(EK_ENOTFOUND,
                         "there is no item %s here: its response was not stored, was deleted, or made room for others",
                         quoted.data);
    ek_buf_fini(&quoted);
    return err;
}

static ek_err read_item(const ek_api_limits *limits, const char *text, size_t n, json_t **out)
{
    ek_json_size size;
    ek_json_scan(&size, text, n);
    if (limits->count) EK_TRY(limits->count(limits->count_arg, &size, n, n));
    EK_ASSERT(ek_json_read(out, text, n, 0) == EK_OK); /* our own writing */
    return EK_OK;
}

ek_err ek_response_store_item(const ek_api_limits *limits, const char *id, size_t n_id, json_t **out)
{
    ek_response_store *s = limits->responses;
    entry *e = NULL;
    ek_stored_item item = {0};
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    ek_item_node *node = ek_item_find(&s->items, ek_item_key(&s->items, limits->owner, id, n_id));
    if (node) {
        e = node->entry;
        item = node->item;
        hold(e);
        mark_used(s, e);
    }
    pthread_mutex_unlock(&s->lock);
    if (!e) return no_item(id, n_id);
    ek_err err = read_item(limits, ek_buf_text(item.output ? &e->response : &e->input) + item.from, item.n, out);
    size_t n = 0;
    const char *found = ek_json_get_text(*out, "id", &n);
    bool same = e->owner_id == limits->owner && found && n == n_id && !memcmp(found, id, n);
    pthread_mutex_lock(&s->lock);
    let_go(e);
    pthread_mutex_unlock(&s->lock);
    if (err || same) return err;
    json_decref(*out); /* another one of the same 64 bits */
    *out = NULL;
    return no_item(id, n_id);
}
