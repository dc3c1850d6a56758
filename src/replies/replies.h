/* The store of replies: records by key, in memory, and below it where they survive or are shared (ek_reply_backend).
 * Any thread, but for open and close.
 *
 * A record is never wrong by its age; it is dropped for room (the least recently used one of the owner that has most),
 * for age where that is limited, and when it was found wrong: then with every other one of its origin, because a file
 * or a server that lied once is not asked again. Every loss is silent for answers: the reply is computed. */
#ifndef EK_REPLIES_REPLIES_H
#define EK_REPLIES_REPLIES_H

#include "replies/flight.h"

typedef struct ek_replies ek_replies;

/* Where records are kept besides memory. find: any thread, several at a time; the others: one thread. */
typedef struct ek_reply_backend {
    ek_reply_origin origin;
    void *arg;
    /* One reference, or NULL. content: the key without owner and salt, for what belongs to nobody. */
    ek_reply_record *(*find)(void *arg, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner);
    /* NULL: it is only read. EIO: none of them is there, as far as the backend knows. */
    ek_err (*write)(void *arg, ek_reply_record *const *r, const uint64_t *owner, int n);
    void (*forget)(void *arg, const ek_reply_key *k); /* NULL: as in all */
    /* Appends what ek_reply_nearest does; NULL: it does not know what was asked. */
    void (*nearest)(void *arg, ek_buf *out, const ek_reply_ask *ask);
    void (*distrust)(void *arg);    /* it held a wrong record: forgets all, and gives none from before any more */
    uint64_t (*damaged)(void *arg); /* records so far that were dropped; NULL: none ever is */
    void (*close)(void *arg);
} ek_reply_backend;

enum { EK_REPLY_BACKENDS = 3 };

typedef struct ek_replies_opts {
    const char *identity; /* ek_reply_ask.identity; copied */
    int n_vocab;
    const int32_t *stop; /* ids that end a reply; copied */
    int n_stop;
    double max_bytes; /* in memory */
    double max_age;   /* seconds; 0: no limit */
    bool asks;        /* records keep what was asked, for cassettes */
    double audit;     /* 0..1: this share of hits is computed again in idle time */
} ek_replies_opts;

/* Counts since start. */
typedef struct ek_replies_stats {
    uint64_t hits, parts, misses;    /* of requests that were looked up */
    uint64_t tokens;                 /* that replies had from here */
    uint64_t from[EK_REPLY_ORIGINS]; /* records that were found, by what they came from; computed: in memory */
    uint64_t stored, evicted, damaged, unwritten;
    uint64_t audits, wrong;
    uint64_t entries, bytes; /* in memory, now */
} ek_replies_stats;

/* ENOMEM where no thread can be started. Takes over the backends with ek_replies_add alone. */
ek_err ek_replies_open(ek_replies **out, const ek_replies_opts *o);
/* Before the first find; searched in this order, behind memory. */
void ek_replies_add(ek_replies *r, const ek_reply_backend *b);
void ek_replies_close(ek_replies *r); /* writes what waits; NULL is allowed */

const char *ek_replies_identity(const ek_replies *r);
ek_flights *ek_replies_flights(ek_replies *r); /* replies that are being computed */
bool ek_replies_keeps_asks(const ek_replies *r);
bool ek_replies_is_stop(const ek_replies *r, int32_t token);

/* The record of k, with one reference for the caller; NULL: there is none. May read a file, or wait for a server for as
 * long as the backend allows: not on a thread that must not wait. */
ek_reply_record *ek_replies_find(ek_replies *r, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner);
/* Of a request that has no record: which request of a file is nearest, and what they differ in (replies/nearest.h). */
void ek_replies_nearest(const ek_replies *r, ek_buf *out, const ek_reply_ask *ask);
/* Keeps a record that was computed, unless one is there that says more. Takes over the reference; returns at once. One
 * that contradicts what is there takes that out, as ek_replies_wrong. */
void ek_replies_put(ek_replies *r, uint64_t owner, ek_reply_record *record);
/* A record was found wrong: it goes, with all of its origin, loudly; one that was computed here with the file on disk,
 * which has the others. */
void ek_replies_wrong(ek_replies *r, const ek_reply_record *record, const char *what);
/* Waits until what was put is with the backends. */
void ek_replies_flush(ek_replies *r);

typedef enum ek_reply_outcome { EK_REPLY_UNASKED, EK_REPLY_MISS, EK_REPLY_PART, EK_REPLY_HIT } ek_reply_outcome;
/* For the counts: n tokens of a reply came from the store. */
void ek_replies_note(ek_replies *r, ek_reply_outcome o, int n);
void ek_replies_note_audit(ek_replies *r);
/* Whether this hit is to be computed again: one in so many, by count. */
bool ek_replies_wants_audit(ek_replies *r);
void ek_replies_stats_read(ek_replies *r, ek_replies_stats *out);

#endif
