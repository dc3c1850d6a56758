/* Pages on a server: connections (line.c), reads and writes, of a thread each. Inside src/cache/shared. */
#ifndef EK_CACHE_SHARED_SHARED_H
#define EK_CACHE_SHARED_SHARED_H

#include <pthread.h>

#include "cache/shared/record.h"
#include "cache/shared/redis.h"

/* One connection to the server, of one thread: it rests after failures, longer each time, and keeps to a rate. What
 * both connections share. */

typedef struct ek_shared {
    ek_shared_url url;
    char text[EK_SHARED_TEXT]; /* of it, for logs */
    const char *name;          /* what it is for, likewise: "shared pages" */
    char *ca, *cert;
    char space[EK_RECORD_SPACE], *what; /* what pages depend on: its hash, its text */
    ek_kv_layout layout;
    double rate;      /* bytes per second, each way; 0: any */
    double max_bytes; /* that wait to be written; that were asked for and have not come */
    bool writes;      /* pages are sent, too */
    ek_shared_counts counts;
    _Atomic double doubted_until; /* a page was wrong: until then what the server has is sent again */
    atomic_bool stop;             /* every wait of a connection ends */
    pthread_mutex_t lock;         /* of what follows */
    double last_warning;
    bool warned; /* since the last good word */
} ek_shared;

/* Connecting, and the longest wait for a reply beside the time for its bytes. */
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
    int failures;    /* one after the other */
    double rest_until;
    double charged_until; /* when what has moved so far is within the rate */
} ek_shared_connection;

/* Connects; false, with a rest begun, if that fails. */
bool ek_shared_connection_connect(ek_shared_connection *l);
/* After an error: the connection is closed, and a rest begins, but for a first one that is no lack of time: a server
 * closes what was idle. True if it may be tried again at once. */
bool ek_shared_connection_failed(ek_shared_connection *l, ek_err err);
/* The server refused a command, for which the connection is not to blame: counted, told, and a rest begins. */
void ek_shared_connection_refused(ek_shared_connection *l, const char *command, const char *words);
void ek_shared_connection_good(ek_shared_connection *l); /* a reply came */
void ek_shared_connection_close(ek_shared_connection *l);

/* n bytes have moved. */
void ek_shared_connection_charge(ek_shared_connection *l, double n);
/* Seconds until more may move; 0: now. */
double ek_shared_connection_backoff(const ek_shared_connection *l);
/* A thread without signals: they are the program's. */
ek_err ek_shared_thread(pthread_t *out, void *(*run)(void *arg), void *arg);

/* Pages from the server: a thread of their own asks for several at a time, and the store's thread takes what came,
 * never waiting longer than a bound. */

typedef struct ek_shared_reads ek_shared_reads;

ek_err ek_shared_reads_open(ek_shared_reads **out, ek_shared *s);
/* s->stop is set before. NULL is allowed. */
void ek_shared_reads_close(ek_shared_reads *r);

/* --- the store's thread */

/* What was asked for so far is not wanted any more: it may be there by now. */
void ek_shared_reads_begin(ek_shared_reads *r);
/* A record of at most `bytes` will be taken; in the order of these calls. */
void ek_shared_reads_ask(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes);
/* The record, asked for before or now: n bytes, to be given back before the next is taken; more than `bytes` are not
 * there, whatever n says. NULL: the server has none, or is away, or does not answer in time. What was asked for before
 * it is not wanted any more. */
const uint8_t *ek_shared_reads_take(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes, size_t *n);
void ek_shared_reads_give(ek_shared_reads *r, int kind, const uint8_t *data);

/* Pages for the server: a queue within a bound, and a thread that sends what the server does not have. */

typedef struct ek_shared_writes ek_shared_writes;

ek_err ek_shared_writes_open(ek_shared_writes **out, ek_shared *s);
/* Sends what waits, for at most so many seconds, and only while that works. NULL is allowed. */
void ek_shared_writes_close(ek_shared_writes *w, double seconds);

/* --- the store's thread */

/* A page is copied to the queue; one for which there is no room, also after a moment, is dropped and counted. */
void ek_shared_writes_put(ek_shared_writes *w, const ek_store_page *p, int kind);
/* The key is to be deleted. */
void ek_shared_writes_drop(ek_shared_writes *w, const ek_chain *chain, int kind);

/* --- any thread */

/* Things put into the queue so far, and whether the first n of them have left it, or cannot now. */
uint64_t ek_shared_writes_queued(ek_shared_writes *w);
bool ek_shared_writes_written(ek_shared_writes *w, uint64_t n);

#endif
