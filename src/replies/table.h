/* Records in memory by key, and by last use within each owner. Not locked. Inside src/replies. */
#ifndef EK_REPLIES_TABLE_H
#define EK_REPLIES_TABLE_H

#include "replies/replies.h"

typedef struct ek_reply_owner ek_reply_owner;

typedef struct ek_reply_entry {
    struct ek_reply_entry *next;          /* in its slot */
    struct ek_reply_entry *newer, *older; /* among its owner's */
    ek_reply_owner *owner;
    ek_reply_record *record;
    size_t bytes; /* counted for it */
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
/* Finds an entry and makes it the most recently used; borrowed until the table changes. NULL: there is none. */
ek_reply_entry *ek_reply_table_find(ek_reply_table *t, const ek_reply_key *k);
/* Takes over the reference and replaces an entry of the same key. Releases a record larger than the table. */
void ek_reply_table_put(ek_reply_table *t, uint64_t owner, ek_reply_record *r, double since);
void ek_reply_table_drop(ek_reply_table *t, ek_reply_entry *e);
/* Drops all entries of an origin and returns their number. */
size_t ek_reply_table_drop_origin(ek_reply_table *t, ek_reply_origin origin);

#endif
