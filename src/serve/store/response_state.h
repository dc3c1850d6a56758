/* The insides of the store of responses. Inside src/serve. */
#ifndef EK_SERVE_RESPONSE_STATE_H
#define EK_SERVE_RESPONSE_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include "serve/store/response_store.h"

struct ek_response_record; /* response_record.h */

enum { EK_RESPONSE_BUCKETS = 4096 };

/* What it says never changes, so it is read without the lock while it is held. */
typedef struct ek_response_entry {
    struct ek_response_entry *newer, *older; /* by use, of its owner's */
    struct ek_response_entry *next;          /* in its bucket */
    struct ek_response_store *store;
    bool kept;                       /* in the store; under the lock, like the next */
    int n_readers;                   /* it stays, and its bytes count, as long as there are any, kept or not */
    struct ek_response_owner *owner; /* under the lock; of one that is kept */
    uint64_t owner_id;
    uint64_t used; /* when last */
    char *id, *previous;
    ek_buf input, response;
    size_t from, n; /* as in ek_stored_response */
    bool background;
    double changed; /* ek_unix_now() */
    ek_stored_items items;
    /* response_files.c */
    struct ek_response_entry *dirty_next, **dirty_at;
    bool dirty, writing, has_file; /* waits to be written; is being written: it stays; there is a file of this name */
} ek_response_entry;

typedef struct ek_response_owner {
    struct ek_response_owner *next;
    uint64_t id;
    ek_response_entry *newest, *oldest;
    int n;
    size_t bytes;
} ek_response_owner;

struct ek_response_store {
    pthread_mutex_t lock;
    pthread_mutex_t changing;  /* of conversations: one change at a time; before the lock */
    ek_response_owner *owners; /* those that have something, and the one that is about to */
    uint64_t clock;
    ek_response_entry *bucket[EK_RESPONSE_BUCKETS]; /* by id */
    ek_item_index items;
    int n, max_entries;
    size_t bytes, max_bytes;
    size_t lingering;                /* bytes of those that are forgotten and still read: they count, too */
    size_t read_bytes;               /* of all that is read, kept or not */
    struct ek_response_files *files; /* NULL: in memory alone */
};

/* --- under the lock --- */

/* NULL: not there. Marks what it finds as used. */
ek_response_entry *ek_response_entry_find(ek_response_store *s, uint64_t owner_id, const char *id);
void ek_response_entry_mark_used(ek_response_store *s, ek_response_entry *e);
/* It stays, kept or not, until it is let go. */
void ek_response_entry_hold(ek_response_entry *e);
void ek_response_entry_let_go(ek_response_entry *e);
/* Frees one that is neither kept nor read nor written. */
void ek_response_entry_drop(ek_response_entry *e);
/* Forgets those that were changed before that time. */
void ek_response_store_forget_older(ek_response_store *s, double time);

/* --- without it --- */

/* Keeps one that was read from its file; false: there is no room. */
bool ek_response_store_put_read(ek_response_store *s, struct ek_response_record *r);

ek_err ek_response_not_found(const char *id);

#endif
