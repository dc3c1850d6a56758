/* Stored responses: their owners, and eviction. Reading them: response_read.c. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "serve/store/response_state.h"
#include "text/json/json.h"

bool ek_responses_is_id(const char *id)
{
    return !strncmp(id, EK_RESPONSES_ID, sizeof EK_RESPONSES_ID - 1);
}

ek_response_store *ek_response_store_open(int max_entries, size_t max_bytes)
{
    ek_response_store *s = ek_alloc(sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->changing, NULL);
    s->max_entries = max_entries;
    s->max_bytes = max_bytes;
    ek_item_index_open(&s->items);
    return s;
}

static size_t size_of(const ek_response_entry *e)
{
    return sizeof *e + e->input.len + e->response.len + strlen(e->id) + (e->previous ? strlen(e->previous) : 0) +
           (size_t)e->items.cap * sizeof *e->items.at;
}

static void unlink_entry(ek_response_entry *e)
{
    ek_response_owner *o = e->owner;
    *(e->newer ? &e->newer->older : &o->newest) = e->older;
    *(e->older ? &e->older->newer : &o->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(ek_response_store *s, ek_response_entry *e)
{
    ek_response_owner *o = e->owner;
    e->used = ++s->clock;
    e->older = o->newest;
    if (e->older) e->older->newer = e;
    else o->oldest = e;
    o->newest = e;
}

static ek_response_owner *owner_of(ek_response_store *s, uint64_t id)
{
    ek_response_owner *o = s->owners;
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
    for (ek_response_owner **at = &s->owners, *o; (o = *at) != NULL;) {
        if (o->n > 0 || o->read_bytes > 0) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        free(o);
    }
}

static ek_response_entry **bucket_of(ek_response_store *s, const char *id)
{
    return &s->bucket[ek_fnv1a64(id) % EK_RESPONSE_BUCKETS];
}

void ek_response_entry_drop(ek_response_entry *e)
{
    if (e->kept || e->n_readers > 0 || e->writing) return;
    free(e->id);
    free(e->previous);
    ek_buf_fini(&e->input);
    ek_buf_fini(&e->response);
    ek_stored_items_fini(&e->items);
    free(e);
}

void ek_response_entry_hold(ek_response_entry *e)
{
    if (e->n_readers++ > 0) return;
    e->store->read_bytes += size_of(e);
    e->owner->read_bytes += size_of(e);
}

void ek_response_entry_let_go(ek_response_entry *e)
{
    if (--e->n_readers > 0) return;
    ek_response_store *s = e->store;
    ek_response_owner *o = e->owner;
    s->read_bytes -= size_of(e);
    o->read_bytes -= size_of(e);
    if (e->kept) return;
    s->lingering -= size_of(e);
    ek_response_entry_drop(e);
    if (o->n == 0 && o->read_bytes == 0) drop_empty_owners(s);
}

/* by: the entry that replaces it; NULL: none. */
static void forget_for(ek_response_store *s, ek_response_entry *e, ek_response_entry *by)
{
    if (s->files) ek_response_files_forget(s->files, e, by);
    ek_response_entry **at = bucket_of(s, e->id);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    for (int i = 0; i < e->items.n; i++) ek_item_unlink(&e->items.at[i]);
    unlink_entry(e);
    size_t size = size_of(e);
    s->n--, e->owner->n--;
    s->bytes -= size, e->owner->bytes -= size;
    if (e->n_readers > 0) s->lingering += size;
    e->kept = false;
    ek_response_entry_drop(e);
}

static void forget(ek_response_store *s, ek_response_entry *e)
{
    forget_for(s, e, NULL);
}

void ek_response_store_close(ek_response_store *s)
{
    if (!s) return;
    ek_response_files_close(s->files);
    s->files = NULL;
    for (ek_response_owner *o = s->owners; o; o = o->next)
        while (o->oldest) forget(s, o->oldest);
    drop_empty_owners(s);
    ek_item_index_close(&s->items);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->changing);
    free(s);
}

static void take_over(ek_buf *to, ek_buf *from)
{
    *to = *from;
    *from = (ek_buf){0};
    if (to->data) to->data = ek_realloc(to->data, to->cap = to->len + 1);
}

uint64_t ek_response_store_key(const ek_response_store *s, uint64_t owner_id, const char *id, size_t n_id)
{
    return ek_item_key(&s->items, owner_id, id, n_id);
}

void ek_response_store_note(const ek_response_store *s, uint64_t owner_id, ek_stored_items *items, const char *id,
                            size_t n_id, ek_stored_item where)
{
    where.key = ek_response_store_key(s, owner_id, id, n_id);
    ek_stored_items_add(items, &where);
}

static void link_items(ek_response_store *s, ek_response_entry *e)
{
    for (int i = 0; i < e->items.n; i++) {
        e->items.at[i].entry = e;
        ek_item_link(&s->items, &e->items.at[i]);
    }
}

/* --- quotas: the owner with the most makes room, so that nobody loses a response to an owner with more --- */

/* Entries, or bytes, of o, with the one of `size` bytes that is about to be added for `by`. */
static size_t has(const ek_response_owner *o, const ek_response_owner *by, size_t size, bool entries)
{
    return entries ? (size_t)o->n + (o == by) : o->bytes + (o == by ? size : 0);
}

static ek_response_owner *largest(const ek_response_store *s, const ek_response_owner *by, size_t size, bool entries)
{
    ek_response_owner *max = NULL;
    for (ek_response_owner *o = s->owners; o; o = o->next) {
        size_t mine = has(o, by, size, entries), its = max ? has(max, by, size, entries) : 0;
        bool older = max && o->oldest && (!max->oldest || o->oldest->used < max->oldest->used);
        if (!max || mine > its || (mine == its && older)) max = o;
    }
    return max;
}

static bool is_full(const ek_response_store *s, size_t size)
{
    return s->bytes + s->lingering + size > s->max_bytes;
}

/* False, and nothing is evicted, if owners with less would have to lose responses, or if responses being read leave no
 * room, because evicting those frees none. */
static bool make_room(ek_response_store *s, const ek_response_owner *by, size_t size)
{
    size_t least = size;
    for (const ek_response_owner *o = s->owners; o; o = o->next)
        if (o != by) least += o->bytes < size ? o->bytes : size;
    if (is_full(s, size) && (s->read_bytes > s->max_bytes || least > s->max_bytes - s->read_bytes)) return false;
    while (s->n >= s->max_entries || is_full(s, size)) forget(s, largest(s, by, size, s->n >= s->max_entries)->oldest);
    return true;
}

/* Stores e, whose texts are in memory, or frees it. Under the lock. */
static bool put(ek_response_store *s, ek_response_entry *e)
{
    const size_t size = size_of(e);
    ek_response_owner *o = owner_of(s, e->owner_id);
    (void)ek_response_entry_find(s, e->owner_id, e->id); /* an older copy goes last */
    const bool kept = make_room(s, o, size);
    if (kept) {
        ek_response_entry *same = ek_response_entry_find(s, e->owner_id, e->id);
        if (same) forget_for(s, same, e);
        e->owner = o;
        e->kept = true;
        ek_response_entry **at = bucket_of(s, e->id);
        e->next = *at;
        *at = e;
        link_items(s, e);
        link_newest(s, e);
        s->n++, o->n++;
        s->bytes += size, o->bytes += size;
    }
    ek_response_entry_drop(e);
    drop_empty_owners(s);
    return kept;
}

static ek_response_entry *make_entry(ek_response_store *s, uint64_t owner_id, ek_stored_response *r)
{
    ek_response_entry *e = ek_alloc(sizeof *e);
    *e = (ek_response_entry){.store = s, .owner_id = owner_id, .id = ek_strdup(r->id), .from = r->from, .n = r->n};
    e->background = r->background;
    if (r->previous) e->previous = ek_strdup(r->previous);
    take_over(&e->input, &r->input);
    take_over(&e->response, &r->response);
    e->items = r->items;
    r->items = (ek_stored_items){0};
    return e;
}

bool ek_response_store_put(ek_response_store *s, uint64_t owner_id, ek_stored_response *r)
{
    ek_response_entry *e = make_entry(s, owner_id, r);
    const size_t size = size_of(e);
    e->changed = ek_unix_now();
    pthread_mutex_lock(&s->lock);
    const size_t read = s->read_bytes;
    const bool kept = put(s, e);
    if (kept && s->files) ek_response_files_put(s->files, e);
    pthread_mutex_unlock(&s->lock);
    if (!kept) /* a request that continues it will not find it */
        ek_log(EK_LOG_WARN, "event=not_stored id=%.80s bytes=%zu of=%zu being_read=%zu", r->id, size, s->max_bytes,
               read);
    return kept;
}

bool ek_response_store_put_read(ek_response_store *s, ek_response_record *r)
{
    ek_response_entry *e = make_entry(s, r->owner, &r->r);
    e->changed = r->changed;
    e->has_file = true;
    pthread_mutex_lock(&s->lock);
    const bool kept = put(s, e);
    pthread_mutex_unlock(&s->lock);
    return kept;
}

static ek_response_entry *find(ek_response_store *s, uint64_t owner_id, const char *id)
{
    ek_response_entry *e = *bucket_of(s, id);
    while (e && (e->owner_id != owner_id || strcmp(e->id, id))) e = e->next;
    return e;
}

/* --- ages --- */

static int latest_first(const void *a, const void *b)
{
    const double x = (*(ek_response_entry *const *)a)->changed, y = (*(ek_response_entry *const *)b)->changed;
    return (x < y) - (x > y);
}

/* Entries that e continues become as young as e. An entry that is that young already ends the walk, so each link is
 * walked once, even if links from files form a circle. */
static void keep_young(ek_response_store *s, ek_response_entry *e)
{
    const double time = e->changed;
    for (; e && e->young < time; e = e->previous ? find(s, e->owner_id, e->previous) : NULL) e->young = time;
}

void ek_response_store_forget_older(ek_response_store *s, double time)
{
    ek_response_entry **all = ek_alloc(((size_t)s->n + 1) * sizeof *all);
    int n = 0;
    for (const ek_response_owner *o = s->owners; o; o = o->next)
        for (ek_response_entry *e = o->oldest; e; e = e->newer) {
            e->young = -DBL_MAX;
            all[n++] = e;
        }
    if (n > 0) qsort(all, (size_t)n, sizeof *all, latest_first);
    for (int i = 0; i < n; i++) keep_young(s, all[i]);
    for (int i = 0; i < n; i++)
        if (all[i]->young < time) forget(s, all[i]);
    free(all);
    drop_empty_owners(s);
}

/* --- finding --- */

void ek_response_entry_mark_used(ek_response_store *s, ek_response_entry *e)
{
    unlink_entry(e);
    link_newest(s, e);
}

ek_response_entry *ek_response_entry_find(ek_response_store *s, uint64_t owner_id, const char *id)
{
    ek_response_entry *e = find(s, owner_id, id);
    if (e) ek_response_entry_mark_used(s, e);
    return e;
}

ek_err ek_response_not_found(const char *id)
{
    return ek_fail(EK_ENOTFOUND,
                   "there is no response %.80s here: it was not stored, was deleted, or made room for others", id);
}

ek_err ek_stored_nothing(const char *kind, const char *id, size_t n, const char *why)
{
    enum { MAX_SHOWN = 80 };
    ek_buf quoted = {0};
    ek_json_quote(&quoted, id, n < MAX_SHOWN ? n : MAX_SHOWN);
    ek_err err = ek_fail(EK_ENOTFOUND, "there is no %s %s %s", kind, quoted.data, why);
    ek_buf_fini(&quoted);
    return err;
}

/* A client decides how fast a reply is read, so responses that one owner's clients read slowly must leave room for
 * others. */
static ek_err check_quota(const ek_response_store *s, const ek_response_entry *e)
{
    const size_t max = s->max_bytes / EK_RESPONSES_READ_QUOTA, held = e->owner->read_bytes;
    if (e->n_readers > 0 || held == 0 || held + size_of(e) <= max) return EK_OK;
    return ek_fail(EK_EBUSY, "stored responses of %.1f MiB are being read, of at most %.1f: try again later",
                   (double)held / (1 << 20), (double)max / (1 << 20));
}

ek_err ek_response_store_hold(ek_response_store *s, uint64_t owner_id, const char *id, bool input, ek_span *text,
                              ek_response_held **held)
{
    pthread_mutex_lock(&s->lock);
    ek_response_entry *e = ek_response_entry_find(s, owner_id, id);
    const ek_err err = e ? check_quota(s, e) : ek_response_not_found(id);
    if (!err) ek_response_entry_hold(e);
    pthread_mutex_unlock(&s->lock);
    if (err) return err;
    const ek_buf *from = input ? &e->input : &e->response;
    *text = (ek_span){ek_buf_text(from), from->len};
    *held = (ek_response_held *)e;
    return EK_OK;
}

bool ek_response_store_knows(ek_response_store *s, uint64_t owner_id, const char *id, bool *background)
{
    pthread_mutex_lock(&s->lock);
    const ek_response_entry *e = ek_response_entry_find(s, owner_id, id);
    if (background) *background = e && e->background;
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

void ek_response_store_release(void *held)
{
    ek_response_entry *e = held;
    ek_response_store *s = e->store;
    pthread_mutex_lock(&s->lock);
    ek_response_entry_let_go(e);
    pthread_mutex_unlock(&s->lock);
}

ek_err ek_response_store_delete(ek_response_store *s, uint64_t owner_id, const char *id)
{
    pthread_mutex_lock(&s->lock);
    ek_response_entry *e = ek_response_entry_find(s, owner_id, id);
    if (e) forget(s, e);
    drop_empty_owners(s);
    pthread_mutex_unlock(&s->lock);
    return e ? EK_OK : ek_response_not_found(id);
}
