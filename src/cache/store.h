/* Cached pages outside the pool: a thread of its own writes and reads them, so that no step waits for a disk.
 *
 * The engine's thread copies a page into a free slot and continues; the store's thread writes it. For loading, the
 * engine gives a prompt and takes pages as they arrive. All memory is allocated at open. A backend holds the pages
 * (constructors below; tests bring their own). No loss changes an answer: a page that is unwritten, missing or damaged
 * is computed again. */
#ifndef EK_CACHE_STORE_H
#define EK_CACHE_STORE_H

#include <stdatomic.h>

#include "cache/prefix.h"

enum { EK_STORE_LAYOUT = 1 }; /* of records; part of the key */

/* A page of 64 positions with its name. Without bytes of any kind: delete this name. */
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
    atomic_ullong evicted;         /* because of the byte limit */
    atomic_ullong damaged, failed; /* dropped: wrong checksum or structure; failed writes */
    atomic_ullong bytes;           /* present bytes */
} ek_store_counts;

/* Counts of pages that several processes share, since start; any thread. */
typedef struct ek_shared_counts {
    atomic_ullong hits, misses;              /* looked-up pages */
    atomic_ullong written, known;            /* sent pages; pages that the server had already */
    atomic_ullong read_bytes, written_bytes; /* of records */
    atomic_ullong wrong;         /* pages that differ from those written under their name, or that the audit refuted */
    atomic_ullong errors;        /* failed or broken connections, and refused commands */
    atomic_ullong dropped;       /* unwritten pages: the queue was full, or the server refused */
    atomic_ullong waiting_bytes; /* present bytes in the queue */
    atomic_int connected;        /* 0, 1 or 2: open connections, for reading and for writing */
} ek_shared_counts;

/* Called on the store's thread, one function at a time; close is called once, at its end. */
typedef struct ek_store_backend {
    void *arg;
    void (*write)(void *arg, ek_store_page *const *page, int n);
    /* Reads the kinds in want of the page with the given chain, token, content and depth into bytes, and sets has. Must
     * never return anything but the page that was written under this name. */
    void (*read)(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT]);
    /* May be NULL. Announces that the kinds in want of this page (without its bytes) will be read soon, in the order of
     * these calls; page NULL: cancels earlier announcements. */
    void (*ahead)(void *arg, const ek_store_page *page, const bool want[EK_KIND_COUNT]);
    /* May be NULL. Whether the kind of the page probably exists; not counted. */
    bool (*holds)(void *arg, const ek_store_page *page, int kind);
    /* May be NULL: write returns when everything is written. queued: the number of pages given to write so far.
     * written: whether the first n of them are written or lost. Any thread. */
    uint64_t (*queued)(void *arg);
    bool (*is_written)(void *arg, uint64_t n);
    void (*close)(void *arg);
    ek_store_counts *counts;
    ek_store_counts *host;    /* counts of pages kept in host memory too; NULL: none */
    ek_shared_counts *shared; /* counts of pages shared with other processes; NULL: none */
    bool fleeting;            /* lost with the process, so nothing has to be written at its end */
} ek_store_backend;

/* The checksum of a page's record, over its name, tokens, contents and n bytes. */
uint64_t ek_store_sum(const ek_store_page *p, int kind, size_t n);

typedef struct ek_store ek_store;

/* For pages of the layout's sizes and prompts of at most max_tokens. wake is called on the store's thread when a page
 * arrived or a slot became free. Takes over the backend, also after an error. */
ek_err ek_store_open(ek_store **out, const ek_store_backend *b, const ek_kv_layout *layout, int max_tokens,
                     void (*wake)(void *arg), void *arg);
/* Writes the waiting pages, then closes the backend. NULL is allowed. */
void ek_store_close(ek_store *s);

/* --- engine's thread --- */

/* A page to fill and to hand over with ek_store_save; NULL: all slots wait to be written. */
ek_store_page *ek_store_slot(ek_store *s);
void ek_store_save(ek_store *s);

/* Starts a load: pages first, first + 1, … below n_pages of the key (copied), as long as they are found, each in the
 * wanted kinds (want[kind] has a byte per page; borrowed during the call). chain: the name of page first - 1, or of the
 * root. Ends an earlier load. */
void ek_store_load(ek_store *s, const ek_chain *chain, const ek_prefix_key *key, int first, int n_pages,
                   const uint8_t *const want[EK_KIND_COUNT]);
/* The next page, valid until ek_store_done; NULL: none yet, or (*end) no more. */
const ek_store_page *ek_store_loaded(ek_store *s, bool *end);
void ek_store_done(ek_store *s);
/* Seconds that the latest load spent waiting for pages, without waiting for room. */
double ek_store_load_seconds(ek_store *s);
void ek_store_stop_load(ek_store *s);
/* Waits for an event, at most `seconds`. */
void ek_store_wait(ek_store *s, double seconds);

/* Prepares memory for pages [first, first + n) of a kind before they arrive. The store's thread calls it when idle, in
 * small steps, from 0 up to the latest number given to ek_store_ready. */
typedef void ek_store_ready_fn(void *arg, ek_layer_kind kind, int32_t first, int n);
void ek_store_set_ready(ek_store *s, ek_store_ready_fn *ready, void *arg); /* once, before the first ek_store_ready */
void ek_store_ready(ek_store *s, ek_layer_kind kind, int to);

const ek_store_counts *ek_store_counts_of(const ek_store *s);
const ek_store_counts *ek_store_host_counts_of(const ek_store *s);    /* may be NULL */
const ek_shared_counts *ek_store_shared_counts_of(const ek_store *s); /* may be NULL */
/* saved: the number of pages saved so far. written: whether the first n of them are written or lost. */
uint64_t ek_store_saved(const ek_store *s);
bool ek_store_is_written(ek_store *s, uint64_t n);
bool ek_store_is_fleeting(const ek_store *s);

/* --- backends: a file of SQLite, memory, a server --- */

/* Cached pages in an SQLite file. SQLite was chosen rather than a memory-mapped store because its library reads damaged
 * and truncated files without faulting, and reports a full disk as an error; a kill at any moment leaves the last
 * commit.
 *
 * A file belongs to one key (model, numerics, layout): its name is a hash of the key, and the key is inside, so another
 * model's file in the same folder is ignored. Each record has a checksum over its name, tokens and bytes; a record
 * whose checksum does not fit is deleted. A file whose structure is damaged is deleted and started anew. Both are
 * logged and counted.
 *
 * Prompts can be read from a file, so only its owner may read it. Links are not followed, and another program's
 * database is left unchanged. */

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

/* Cached pages on a server of Redis' protocol (Redis, Valkey), which any number of processes share: a backend of the
 * store, behind memory and disk or alone.
 *
 * A page's name follows from its model, tenant and tokens, so that nobody finds the page of another one. A checksum
 * exposes a page that does not belong to its name. A server that is slow, full, away or wrong costs time and nothing
 * else: separate threads wait for it (cache/shared), and pages that come too late are computed. The server alone
 * decides which pages it keeps, and for how long (docs/SCALE.md). */

typedef struct ek_shared_opts {
    const char *url;  /* see cache/shared/link.h */
    const char *ca;   /* PEM file of the authorities that may certify the server; NULL: the system's */
    const char *cert; /* PEM file with the client's certificate and key; NULL: none */
    double rate;      /* bytes per second, each way; 0: any */
    double max_bytes; /* maximum bytes waiting to be written; maximum bytes requested at a time */
    bool read_only;   /* writes nothing, but still deletes wrong pages */
} ek_shared_opts;

/* what: everything but the tokens that a page's bytes depend on. Connects later, on its own thread: the log reports a
 * server that cannot be reached, and the thread tries again. EINVAL for the URL, EUNSUPPORTED for TLS in a build
 * without OpenSSL. */
ek_err ek_store_shared_open(ek_store_backend *out, const ek_shared_opts *o, const char *what,
                            const ek_kv_layout *layout);

/* EINVAL, EUNSUPPORTED as above, without opening anything. */
ek_err ek_store_shared_check(const char *url);

/* Both as one backend: pages are written to both; pages that `upper` lacks are read from `lower` and not copied to
 * `upper`. The caller gives up both. */
void ek_store_both(ek_store_backend *out, const ek_store_backend *upper, const ek_store_backend *lower);

#endif
