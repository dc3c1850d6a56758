/* The store of responses from inside. Inside src/serve. */
#ifndef EK_SERVE_RESPONSE_STATE_H
#define EK_SERVE_RESPONSE_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include "serve/store/response_store.h"

typedef struct ek_response_files ek_response_files;

enum { EK_RESPONSE_BUCKETS = 4096 };

/* The texts never change, so a holder reads them without the lock. */
typedef struct ek_response_entry {
    struct ek_response_entry *newer, *older; /* by last use, among its owner's */
    struct ek_response_entry *next;          /* in its bucket */
    struct ek_response_store *store;
    bool kept;                       /* in the store; under the lock, like the next */
    int n_readers;                   /* while there are any, the entry stays and its bytes count, kept or not */
    struct ek_response_owner *owner; /* under the lock; valid while kept or read */
    uint64_t owner_id;
    uint64_t used; /* the clock of the last use */
    char *id, *previous;
    ek_buf input, response;
    size_t from, n; /* as in ek_stored_response */
    bool background;
    double changed; /* ek_unix_now() */
    double young;   /* the latest change of it or of its continuations, as last compared; under the lock */
    uint64_t walk;  /* the last walk along a conversation that came here; under the lock */
    ek_stored_items items;
    /* response_files.c */
    struct ek_response_entry *dirty_next, **dirty_at;
    bool dirty, writing, has_file; /* dirty: to be written; writing: is being written */
} ek_response_entry;

typedef struct ek_response_owner {
    struct ek_response_owner *next;
    uint64_t id;
    ek_response_entry *newest, *oldest;
    int n;
    size_t bytes;
    size_t read_bytes; /* bytes of its entries with readers, kept or not */
} ek_response_owner;

struct ek_response_store {
    pthread_mutex_t lock;
    pthread_mutex_t changing;  /* one change of a conversation at a time; taken before the lock */
    ek_response_owner *owners; /* owners with entries, kept or read, and one about to get its first */
    uint64_t clock, walks;
    ek_response_entry *bucket[EK_RESPONSE_BUCKETS]; /* by id */
    ek_item_index items;
    int n, max_entries;
    size_t bytes, max_bytes;
    size_t lingering;         /* bytes of forgotten entries with readers, which count too */
    size_t read_bytes;        /* bytes of all entries with readers, kept or not */
    ek_response_files *files; /* NULL: only in memory */
};

/* --- under the lock --- */

/* The entry, marked as used; NULL: there is none. */
ek_response_entry *ek_response_entry_find(ek_response_store *s, uint64_t owner_id, const char *id);
void ek_response_entry_mark_used(ek_response_store *s, ek_response_entry *e);
/* A held entry stays, kept or not, until ek_response_entry_let_go. */
void ek_response_entry_hold(ek_response_entry *e);
void ek_response_entry_let_go(ek_response_entry *e);
/* Frees an entry that is neither kept, read nor being written. */
void ek_response_entry_drop(ek_response_entry *e);
/* Forgets entries last changed before that time, unless a later one continues them: conversations go as a whole. */
void ek_response_store_forget_older(ek_response_store *s, double time);

/* --- a response in a file: one record, in this machine's byte order ---
 *
 *   head      "EKSTORE1", the SHA-256 of everything after it, and the numbers below
 *   texts     id, previous, input, response; then the positions of the items
 *
 * Reading checks the sum, all lengths and all texts, because later readers trust them. */

enum { EK_RESPONSE_RECORD_NAME = 32 + 1 }; /* with NUL */

/* The name of a response's file: a hash of owner and id, because a client may choose the id. */
void ek_response_record_name(char out[EK_RESPONSE_RECORD_NAME], uint64_t owner, const char *id);

/* Writes e to a descriptor. EIO. */
ek_err ek_response_record_write(int fd, const ek_response_entry *e);

/* A record that was read. It owns its texts; ek_response_store_put_read takes them over. */
typedef struct ek_response_record {
    uint64_t owner;
    double changed;
    ek_stored_response r;
    char *id, *previous;
} ek_response_record;

/* EFORMAT: the record is damaged or belongs to another name; EUNSUPPORTED: it has another version. */
ek_err ek_response_record_read(ek_response_record *out, ek_response_store *s, const char *name, const void *bytes,
                               size_t n);
void ek_response_record_fini(ek_response_record *r);

/* --- without the lock --- */

/* Keeps a record that was read from its file; false: there is no room. */
bool ek_response_store_put_read(ek_response_store *s, ek_response_record *r);

ek_err ek_response_not_found(const char *id);
/* ENOTFOUND: "there is no KIND "ID" WHY". */
ek_err ek_stored_nothing(const char *kind, const char *id, size_t n, const char *why);

/* --- the folder of files ---
 *
 * Keeps the store of responses in a folder, one file per response, so that responses survive a restart. A thread writes
 * each change at once and deletes the files of forgotten responses. It writes a temporary file and renames it, so a
 * killed process leaves either the old file or the new one. */

/* The next two under the lock of the store. */

/* e is in the store from now on; its file is missing or out of date. */
void ek_response_files_put(ek_response_files *f, ek_response_entry *e);
/* e is no longer in the store. by: its replacement, which is put next; NULL: there is none. */
void ek_response_files_forget(ek_response_files *f, ek_response_entry *e, ek_response_entry *by);

/* Without the lock: writes all pending changes. The entries stay. */
void ek_response_files_close(ek_response_files *f);

#endif
