/* Reports of the pages that the prefix index holds, to one other thread: arrivals and departures, in order.
 *
 * The index's thread writes and never waits: it copies a page's tokens into a ring of words. While a page counts as
 * reported, room for its departure stays reserved, so that a departure can always be written. A page that finds no room
 * is reported later (ek_prefix_held_flush). One reader, on its own thread, takes the reports and may sleep on a
 * descriptor. */
#ifndef EK_CACHE_HELD_H
#define EK_CACHE_HELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/kv/kv.h"

enum { EK_HELD_MEDIA = 8 }; /* named pictures and sounds per page; the last name stands for all further ones */

/* A salt's public name: a text, counted. Any thread. */
typedef struct ek_salt_name {
    atomic_int refs;
    size_t n;
    char text[];
} ek_salt_name;

ek_salt_name *ek_salt_name_make(const char *text, size_t n); /* one reference */
ek_salt_name *ek_salt_name_retain(ek_salt_name *s);          /* NULL is allowed */
void ek_salt_name_release(ek_salt_name *s);

/* 64 positions with which a prompt can begin, after those of the parent. */
typedef struct ek_held_page {
    uint64_t hash, parent; /* hash: of all tokens up to the page's end, with contents and salt; parent: the previous
                              page's hash, unless first */
    bool first;            /* the first page of a prompt */
    int32_t token[EK_PAGE_TOKENS];
    int n_media;
    uint64_t media[EK_HELD_MEDIA]; /* names of its pictures and sounds, in order */
    ek_salt_name *salt;            /* of a first page; the reader gets a reference. NULL: none */
} ek_held_page;

typedef struct ek_held_change {
    bool came;         /* true: an arrival; false: a departure, for which only the page's hash counts */
    ek_held_page page; /* the parent of an arriving page was reported before and has not left; pages leave in the
                          opposite order */
} ek_held_change;

typedef struct ek_held_queue ek_held_queue;

/* For at most max_pages held pages, with room for n_waiting more unread reports. EIO: no descriptor. */
ek_err ek_held_open(ek_held_queue **out, int max_pages, int n_waiting);
void ek_held_close(ek_held_queue *q); /* NULL is allowed; unread reports are dropped */

/* --- the index's thread --- */
bool ek_held_came(ek_held_queue *q, const ek_held_page *page); /* copies; false: no room now */
void ek_held_went(ek_held_queue *q, uint64_t hash);            /* for a reported page */
void ek_held_flush(ek_held_queue *q);                          /* wakes the reader if there are reports */

/* --- the reader's thread --- */
int ek_held_fd(const ek_held_queue *q); /* readable while there are reports; reading 8 bytes clears it */
bool ek_held_take(ek_held_queue *q, ek_held_change *out);

#endif
