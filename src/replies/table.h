/* Records in memory, by key, and in order of use within each owner. Not locked. Inside src/replies. */
#ifndef EK_REPLIES_TABLE_H
#define EK_REPLIES_TABLE_H

#include "replies/replies.h"

typedef struct ek_reply_owner ek_reply_owner;

typedef struct ek_reply_entry {
    struct ek_reply_entry *next;          /* of its slot */
    struct ek_reply_entry *newer, *older; /* of its owner */
    ek_reply_owner *owner;
    ek_reply_record *record;
    size_t bytes; /* that it counts */
    double since; /* ek_now() */
} ek_reply_entry;

struct ek_reply_owner {
    ek_reply_owner *next;
    uint64_t id;
    size_t bytes;
    ek_reply_entry *newest, *oldest;
};

typedef struct ek_reply_table {
    ek_reply_entry **slot;
    size_t n_slots, n; /* n_slots: a power of two */
    size_t bytes, max_bytes;
    uint64_t evicted;
    ek_reply_owner *owners;
} ek_reply_table;

void ek_reply_table_init(ek_reply_table *t, double max_bytes);
void ek_reply_table_fini(ek_reply_table *t);
/* Borrowed until the table changes; it becomes the most recently used. NULL: none. */
ek_reply_entry *ek_reply_table_find(ek_reply_table *t, const ek_reply_key *k);
/* Takes over the reference; replaces the one of its key. What does not fit at all is released. */
void ek_reply_table_put(ek_reply_table *t, uint64_t owner, ek_reply_record *r, double since);
void ek_reply_table_drop(ek_reply_table *t, ek_reply_entry *e);
/* All of an origin; how many. */
size_t ek_reply_table_drop_origin(ek_reply_table *t, ek_reply_origin origin);

#endif
