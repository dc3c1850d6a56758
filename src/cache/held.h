/* What the prefix index holds, told to one other thread: pages that came and pages that went, in their order.
 *
 * The index's thread writes and never waits: it copies a page's tokens into a ring of words. A place for the end of
 * every page is kept free as long as the page counts as told, so that an end can always be written; a page that finds
 * no room is told later (ek_prefix_held_flush). One reader, on a thread of its own, takes them and may sleep on a
 * descriptor. */
#ifndef EK_CACHE_HELD_H
#define EK_CACHE_HELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/kv/kv.h"

enum { EK_HELD_MEDIA = 8 }; /* pictures and sounds of a page that are named; the last name stands for all behind it */

/* What those who share a salt call it: a text, counted. Any thread. */
typedef struct ek_salt_name {
    atomic_int refs;
    size_t n;
    char text[];
} ek_salt_name;

ek_salt_name *ek_salt_name_make(const char *text, size_t n); /* one reference */
ek_salt_name *ek_salt_name_retain(ek_salt_name *s);          /* NULL is allowed, in release too */
void ek_salt_name_release(ek_salt_name *s);

/* 64 positions that a prompt can begin with, behind those of its parent. */
typedef struct ek_held_page {
    uint64_t hash,
        parent; /* of all tokens up to its end, contents and salt among them; parent: unless it is the first */
    bool first; /* of a prompt */
    int32_t token[EK_PAGE_TOKENS];
    int n_media;
    uint64_t media[EK_HELD_MEDIA]; /* names of the pictures and sounds that lie in it, in their order */
    ek_salt_name *salt;            /* of a first page; the reader gets a reference. NULL: none */
} ek_held_page;

typedef struct ek_held_change {
    bool came; /* else it went, and only the page's hash counts */
    ek_held_page
        page; /* the parent of a page that came was told before it and did not go; so with going the other way */
} ek_held_change;

typedef struct ek_held_queue ek_held_queue;

/* For at most max_pages at the same time, and room for n_waiting more that were not taken. EIO: no descriptor. */
ek_err ek_held_open(ek_held_queue **out, int max_pages, int n_waiting);
void ek_held_close(ek_held_queue *q); /* NULL is allowed; what was not taken is dropped */

/* The index's thread. */
bool ek_held_came(ek_held_queue *q, const ek_held_page *page); /* copies; false: no room now */
void ek_held_went(ek_held_queue *q, uint64_t hash);            /* of a page that came */
void ek_held_flush(ek_held_queue *q);                          /* wakes the reader, if there is news */

/* The reader's thread. */
int ek_held_fd(const ek_held_queue *q); /* readable once there is news; a read of 8 bytes ends that */
bool ek_held_take(ek_held_queue *q, ek_held_change *out);

#endif
