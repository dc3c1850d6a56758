/* Cached pages outside of memory: a thread of its own that writes and reads them, so that no step waits for a disk.
 *
 * The engine's thread copies a page into a free slot and goes on; the store's thread writes it. Loading works the
 * other way round: the engine gives a prompt and takes the pages as they come. All memory is taken at open. What
 * holds the pages is a backend (backends.h; tests bring their own). Every loss is silent for
 * answers: a page that is not written, not found or damaged is computed again. */
#ifndef EK_CACHE_STORE_H
#define EK_CACHE_STORE_H

#include <stdatomic.h>

#include "cache/prefix.h"

enum { EK_STORE_LAYOUT = 1 }; /* of records; part of the key */

/* A page of 64 positions with its name. Without bytes of any kind: the name is to be forgotten. */
typedef struct ek_store_page {
    ek_chain chain;
    int32_t token[EK_PAGE_TOKENS];
    ek_content_id content[EK_PAGE_TOKENS]; /* all zero: plain text */
    int depth;                             /* positions [64 depth, 64 depth + 64) */
    bool has[EK_KIND_COUNT];
    uint8_t *bytes[EK_KIND_COUNT]; /* ek_kv_page_bytes each */
} ek_store_page;

/* Counts since start, any thread. */
typedef struct ek_store_counts {
    atomic_ullong written, read;   /* pages */
    atomic_ullong evicted;         /* for the byte limit */
    atomic_ullong damaged, failed; /* dropped: wrong checksum or structure; a write that was not possible */
    atomic_ullong bytes;           /* now */
} ek_store_counts;

/* Of pages that several processes share (cache/shared/store_shared.h); counts since start, any thread. */
typedef struct ek_shared_counts {
    atomic_ullong hits, misses;              /* pages that were looked for */
    atomic_ullong written, known;            /* pages that were sent; that the server had already */
    atomic_ullong read_bytes, written_bytes; /* of records */
    atomic_ullong wrong;                     /* not what was written under their name, or refuted by the audit */
    atomic_ullong errors;                    /* connections that failed or broke, commands that were refused */
    atomic_ullong dropped;                   /* pages that were not written: no room in flight, or refused */
    atomic_ullong waiting_bytes;             /* now, to be written */
    atomic_int connected;                    /* 0, 1 or 2: the connections that read and write */
} ek_shared_counts;

/* Called on the store's thread, one at a time; close once, after it ended. */
typedef struct ek_store_backend {
    void *arg;
    void (*write)(void *arg, ek_store_page *const *page, int n);
    /* chain, token, content and depth are given; reads the kinds in want into bytes and sets has. Never anything that
     * is not the page that was written under this name. */
    void (*read)(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT]);
    /* May be NULL. The kinds in want of this page, whose bytes are not given, will be read soon, in the order of these
     * calls; page NULL: a new order begins, and what was told before is not wanted. */
    void (*ahead)(void *arg, const ek_store_page *page, const bool want[EK_KIND_COUNT]);
    /* May be NULL: whether the kind of the page is likely to be there; nothing is counted. */
    bool (*holds)(void *arg, const ek_store_page *page, int kind);
    /* May be NULL: everything is written when write returns. Pages given to write so far, and whether the first n of
     * them are written or lost. Any thread. */
    uint64_t (*queued)(void *arg);
    bool (*is_written)(void *arg, uint64_t n);
    void (*close)(void *arg);
    ek_store_counts *counts;
    ek_store_counts *host;    /* of what is kept in host memory besides; NULL: nothing is */
    ek_shared_counts *shared; /* of what is shared with other processes; NULL: nothing is */
    bool fleeting;            /* gone with the process: nothing needs to be written at its end */
} ek_store_backend;

/* The checksum of a page's record: over its name, tokens, contents and n bytes. */
uint64_t ek_store_sum(const ek_store_page *p, int kind, size_t n);

typedef struct ek_store ek_store;

/* Pages of the layout's bytes, prompts of at most max_tokens. wake is called on the store's thread when there is
 * something to take or a slot became free. Takes over the backend, also on failure. */
ek_err ek_store_open(ek_store **out, const ek_store_backend *b, const ek_kv_layout *layout, int max_tokens,
                     void (*wake)(void *arg), void *arg);
/* Writes what waits, then closes the backend. NULL is allowed. */
void ek_store_close(ek_store *s);

/* --- engine's thread */

/* A page to fill, then to hand over with save; NULL while all slots wait to be written. */
ek_store_page *ek_store_slot(ek_store *s);
void ek_store_save(ek_store *s);

/* Begins to load: pages first, first + 1, … below n_pages of the key (copied), as long as they are found, of each the
 * kinds wanted (want[kind] has a byte per page; borrowed during the call). chain: the name of page first - 1, or of
 * the root. Ends a load that was going on. */
void ek_store_load(ek_store *s, const ek_chain *chain, const ek_prefix_key *key, int first, int n_pages,
                   const uint8_t *const want[EK_KIND_COUNT]);
/* The next page, until ek_store_done with it; NULL: none yet, or (*end) no more. */
const ek_store_page *ek_store_loaded(ek_store *s, bool *end);
void ek_store_done(ek_store *s);
/* Seconds in which the load that began last waited for its pages, not for room to put them. */
double ek_store_load_seconds(ek_store *s);
void ek_store_stop_load(ek_store *s);
/* Waits until something happened, at most so many seconds. */
void ek_store_wait(ek_store *s, double seconds);

/* What the thread calls while it has nothing else to do, for pages [from, to) of a kind, some at a time, to being the
 * last that was told: memory is to be ready for them before they come. At first from is 0. */
typedef void ek_store_ready_fn(void *arg, ek_layer_kind kind, int32_t first, int n);
void ek_store_set_ready(ek_store *s, ek_store_ready_fn *ready, void *arg); /* once, before the first ek_store_ready */
void ek_store_ready(ek_store *s, ek_layer_kind kind, int to);

const ek_store_counts *ek_store_counts_of(const ek_store *s);
const ek_store_counts *ek_store_host_counts_of(const ek_store *s);    /* may be NULL */
const ek_shared_counts *ek_store_shared_counts_of(const ek_store *s); /* may be NULL */
/* Pages saved so far, and whether the first n of these are written, or will not be. */
uint64_t ek_store_saved(const ek_store *s);
bool ek_store_is_written(ek_store *s, uint64_t n);
bool ek_store_is_fleeting(const ek_store *s);

/* Backends of the store: memory and a file of SQLite. */

/* Cached pages in an SQLite file.
 *
 * Why SQLite and not a memory-mapped store: its library reads damaged and truncated files without faulting, and
 * reports a full disk as an error; a kill at any moment leaves the last commit. A file belongs to one key (model,
 * numerics, layout): its name is a hash of the key and the key is inside, so that another model's file in the same
 * folder is ignored. Each record has a checksum over its name, tokens and bytes; one that does not fit is deleted. A
 * file whose structure is damaged is deleted and begun anew. Both are logged and counted. Prompts can be read from a
 * file, so that it is its owner's alone; links are not followed, and another program's database is left as it is. */

/* Creates dir if it does not exist (not its parents). max_bytes: of pages; the file itself is a little larger. EIO with
 * the path, also for a link and for a file that is not regular; EFORMAT for a database that is not evenkeel's; EBUSY if
 * another process uses the file. */
ek_err ek_store_sqlite_open(ek_store_backend *out, const char *dir, const char *key, double max_bytes,
                            const ek_kv_layout *layout);

/* Cached pages in host memory, beside those of a device or of a smaller pool: a backend of the store, before the disk's
 * or alone. */

/* Keeps at most max_bytes and evicts the least recently used pages. below (may be NULL): the next backend. Written
 * pages go there too; a page that memory lacks is read from it and kept here. below is taken over, also on failure.
 * ENOMEM if the machine has less than max_bytes available. */
ek_err ek_store_memory_open(ek_store_backend *out, const ek_kv_layout *layout, double max_bytes,
                            const ek_store_backend *below);

#endif
