#include "replies/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { FIRST_SLOTS = 1024, PER_ENTRY = 64 }; /* PER_ENTRY: bytes that a record takes besides its own bytes */

static size_t slot_of(const ek_reply_table *t, const ek_reply_key *k)
{
    uint64_t h;
    memcpy(&h, k->h, sizeof h); /* the bits of a SHA-256 are spread evenly */
    return (size_t)h & (t->n_slots - 1);
}

void ek_reply_table_init(ek_reply_table *t, double max_bytes)
{
    *t = (ek_reply_table){.n_slots = FIRST_SLOTS, .max_bytes = max_bytes < 1e18 ? (size_t)max_bytes : SIZE_MAX / 2};
    t->slot = ek_alloc(t->n_slots * sizeof(ek_reply_entry *));
}

static void grow(ek_reply_table *t)
{
    ek_reply_entry **old = t->slot;
    const size_t n_old = t->n_slots;
    if (t->n < n_old) return;
    t->n_slots *= 2;
    t->slot = ek_alloc(t->n_slots * sizeof(ek_reply_entry *));
    for (size_t i = 0; i < n_old; i++)
        for (ek_reply_entry *e = old[i], *next; e; e = next) {
            next = e->next;
            ek_reply_entry **at = &t->slot[slot_of(t, ek_reply_record_key(e->record))];
            e->next = *at;
            *at = e;
        }
    free(old);
}

/* --- order of use --- */

static void unlink_use(ek_reply_entry *e)
{
    ek_reply_owner *o = e->owner;
    if (e->newer) e->newer->older = e->older;
    else o->newest = e->older;
    if (e->older) e->older->newer = e->newer;
    else o->oldest = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(ek_reply_entry *e)
{
    ek_reply_owner *o = e->owner;
    e->older = o->newest;
    if (o->newest) o->newest->newer = e;
    else o->oldest = e;
    o->newest = e;
}

static ek_reply_owner *owner_of(ek_reply_table *t, uint64_t id)
{
    for (ek_reply_owner *o = t->owners; o; o = o->next)
        if (o->id == id) return o;
    ek_reply_owner *o = ek_alloc(sizeof *o);
    *o = (ek_reply_owner){.next = t->owners, .id = id};
    t->owners = o;
    return o;
}

static void free_owner_if_empty(ek_reply_table *t, ek_reply_owner *o)
{
    ek_reply_owner **at = &t->owners;
    if (o->newest) return;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    free(o);
}

/* --- entries --- */

void ek_reply_table_drop(ek_reply_table *t, ek_reply_entry *e)
{
    ek_reply_entry **at = &t->slot[slot_of(t, ek_reply_record_key(e->record))];
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    unlink_use(e);
    t->bytes -= e->bytes;
    e->owner->bytes -= e->bytes;
    t->n--;
    free_owner_if_empty(t, e->owner);
    ek_reply_record_release(e->record);
    free(e);
}

size_t ek_reply_table_drop_origin(ek_reply_table *t, ek_reply_origin origin)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_slots; i++)
        for (ek_reply_entry *e = t->slot[i], *next; e; e = next) {
            next = e->next;
            if (ek_reply_record_origin(e->record) != origin) continue;
            ek_reply_table_drop(t, e);
            n++;
        }
    return n;
}

ek_reply_entry *ek_reply_table_find(ek_reply_table *t, const ek_reply_key *k)
{
    for (ek_reply_entry *e = t->slot[slot_of(t, k)]; e; e = e->next) {
        if (memcmp(ek_reply_record_key(e->record)->h, k->h, sizeof k->h) != 0) continue;
        unlink_use(e);
        link_newest(e);
        return e;
    }
    return NULL;
}

static void make_room(ek_reply_table *t, size_t bytes)
{
    while (t->n > 0 && t->bytes + bytes > t->max_bytes) {
        ek_reply_owner *largest = t->owners;
        for (ek_reply_owner *o = largest->next; o; o = o->next)
            if (o->bytes > largest->bytes) largest = o;
        ek_reply_table_drop(t, largest->oldest);
        t->evicted++;
    }
}

void ek_reply_table_put(ek_reply_table *t, uint64_t owner, ek_reply_record *r, double since)
{
    size_t bytes;
    ek_reply_record_bytes(r, &bytes);
    bytes += sizeof(ek_reply_entry) + PER_ENTRY;
    ek_reply_entry *old = ek_reply_table_find(t, ek_reply_record_key(r));
    if (old) ek_reply_table_drop(t, old);
    if (bytes > t->max_bytes) {
        t->evicted++;
        ek_reply_record_release(r);
        return;
    }
    make_room(t, bytes);
    grow(t);
    ek_reply_entry *e = ek_alloc(sizeof *e);
    *e = (ek_reply_entry){.record = r, .bytes = bytes, .since = since, .owner = owner_of(t, owner)};
    ek_reply_entry **at = &t->slot[slot_of(t, ek_reply_record_key(r))];
    e->next = *at;
    *at = e;
    link_newest(e);
    t->n++;
    t->bytes += bytes;
    e->owner->bytes += bytes;
}

void ek_reply_table_fini(ek_reply_table *t)
{
    for (int o = 0; o < EK_REPLY_ORIGINS; o++) ek_reply_table_drop_origin(t, (ek_reply_origin)o);
    free(t->slot);
    *t = (ek_reply_table){0};
}
