/* Pages on a server: connections, reads and writes, each on a separate thread. Inside src/cache/shared. */
#ifndef EK_CACHE_SHARED_SHARED_H
#define EK_CACHE_SHARED_SHARED_H

#include <pthread.h>

#include "cache/shared/redis.h"
#include "cache/store.h"

/* --- records ---
 *
 * The value that the server has under a page's key. Bytes in, bytes out.
 *
 * Key: evenkeel:page:1:SPACE:f:CHAIN, with s instead of f for sliding layers. SPACE has 32 hex digits of the SHA-256 of
 * everything that pages depend on besides their tokens (model, numerics, layout). CHAIN has 64 hex digits of the page's
 * name, a SHA-256 over salt and tokens. There is one key per page and kind, and no command has two keys, as clusters
 * require.
 *
 * Value: "ekpage1", 0; kind and depth in 32 bits; bytes of the page and checksum in 64; the page. Little-endian.
 *
 * The checksum is that of records on disk (ek_store_sum): over name, tokens and contents, which the value does not
 * have. So nobody can read a prompt from a server, and a page under another page's key is refused. */

enum { EK_RECORD_HEAD = 32, EK_RECORD_KEY = 128, EK_RECORD_SPACE = 33 };

/* The 32 hex digits and NUL of SPACE for `what`, a text of everything that pages depend on besides tokens. */
void ek_record_space(char out[EK_RECORD_SPACE], const char *what);
void ek_record_key(char out[EK_RECORD_KEY], const char *space, const ek_chain *chain, int kind);

/* The bytes of the page's record, with its head. */
size_t ek_record_bytes(const ek_kv_layout *layout, const ek_store_page *p, int kind);
void ek_record_write(uint8_t *out, const ek_kv_layout *layout, const ek_store_page *p, int kind);
/* Copies the page named by p from the n bytes of data to p->bytes[kind]. False if they are not its record;
 * p->bytes[kind] is then invalid. */
bool ek_record_read(const uint8_t *data, size_t n, const ek_kv_layout *layout, const ek_store_page *p, int kind);

/* --- connections --- */

/* A connection to the server, used by one thread. After failures it rests, longer each time; it keeps to a rate.
 * ek_shared is the state that both connections share. */

typedef struct ek_shared {
    ek_shared_url url;
    char text[EK_SHARED_TEXT]; /* the URL, for logs */
    const char *name;          /* the purpose, for logs: "shared pages" */
    char *ca, *cert;
    char space[EK_RECORD_SPACE], *what; /* what: all data that pages depend on, as text; space: its hash */
    ek_kv_layout layout;
    double rate; /* bytes per second in each direction; 0: unlimited */
    /* Maximum bytes that wait to be written; maximum bytes that were requested and have not arrived. */
    double max_bytes;
    bool writes; /* pages are also written */
    ek_shared_counts counts;
    _Atomic double doubted_until; /* set after a wrong page: until then, pages are sent even if the server has them */
    atomic_bool stop;             /* ends every wait of a connection */
    pthread_mutex_t lock;         /* guards the following fields */
    double last_warning;
    bool warned; /* since the latest success */
} ek_shared;

/* Seconds to connect, and the maximum wait for a reply besides the time for its bytes. */
#define EK_SHARED_CONNECT  2.0
#define EK_SHARED_PATIENCE 1.0
#define EK_SHARED_SLOWEST  16e6 /* bytes per second */

#define EK_SHARED_DOUBT 60.0 /* seconds */

static inline double ek_shared_patience(double bytes)
{
    return EK_SHARED_PATIENCE + bytes / EK_SHARED_SLOWEST;
}

typedef struct ek_shared_connection {
    ek_shared *s;
    ek_redis *redis; /* NULL: not connected */
    int failures;    /* consecutive failures */
    double rest_until;
    double charged_until; /* the time up to which the bytes moved so far use up the rate */
} ek_shared_connection;

/* Connects. False after a failure, which starts a rest. */
bool ek_shared_connection_connect(ek_shared_connection *l);
/* After an error: closes the connection and starts a rest, except after a first error that is no timeout, because
 * servers close idle connections. True if it may be retried at once. */
bool ek_shared_connection_failed(ek_shared_connection *l, ek_err err);
/* The server refused a command, which is not the connection's fault: counts it, logs it and starts a rest. */
void ek_shared_connection_refused(ek_shared_connection *l, const char *command, const char *words);
void ek_shared_connection_good(ek_shared_connection *l); /* a reply arrived */
void ek_shared_connection_close(ek_shared_connection *l);

/* Counts n moved bytes. */
void ek_shared_connection_charge(ek_shared_connection *l, double n);
/* Seconds until more bytes may move; 0: now. */
double ek_shared_connection_backoff(const ek_shared_connection *l);
/* Starts a thread that blocks all signals, which belong to the program. */
ek_err ek_shared_thread(pthread_t *out, void *(*run)(void *arg), void *arg);

/* Pages from the server. A thread requests several at a time; the store's thread takes those that arrived, with bounded
 * waits. */

typedef struct ek_shared_reads ek_shared_reads;

ek_err ek_shared_reads_open(ek_shared_reads **out, ek_shared *s);
/* s->stop is set before. NULL is allowed. */
void ek_shared_reads_close(ek_shared_reads *r);

/* --- the store's thread --- */

/* Cancels earlier requests, whose records may have arrived already. */
void ek_shared_reads_begin(ek_shared_reads *r);
/* Requests a record of at most `bytes`; records are taken in the order of these calls. */
void ek_shared_reads_ask(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes);
/* Takes a record, requested before or now: *n bytes, valid until the next take; only the first `bytes` exist, even if
 * *n is larger. NULL: the server lacks it, is away, or is too slow. Cancels the requests before it. */
const uint8_t *ek_shared_reads_take(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes, size_t *n);
void ek_shared_reads_give(ek_shared_reads *r, int kind, const uint8_t *data);

/* Pages for the server: a bounded queue, and a thread that sends those that the server lacks. */

typedef struct ek_shared_writes ek_shared_writes;

ek_err ek_shared_writes_open(ek_shared_writes **out, ek_shared *s);
/* Sends the waiting pages, for at most `seconds`, and only while that works. NULL is allowed. */
void ek_shared_writes_close(ek_shared_writes *w, double seconds);

/* --- the store's thread --- */

/* Copies a page to the queue. A page for which there is no room, even after a short wait, is dropped and counted. */
void ek_shared_writes_put(ek_shared_writes *w, const ek_store_page *p, int kind);
/* Deletes the key. */
void ek_shared_writes_drop(ek_shared_writes *w, const ek_chain *chain, int kind);

/* --- any thread --- */

/* queued: the number of entries queued so far. written: whether the first n of them have left the queue or failed. */
uint64_t ek_shared_writes_queued(ek_shared_writes *w);
bool ek_shared_writes_written(ek_shared_writes *w, uint64_t n);

#endif
