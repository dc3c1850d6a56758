/* The store of replies: records by key in memory, and in backends that keep or share them (ek_reply_backend). Any
 * thread, except open and close.
 *
 * A record does not become wrong with age. It is dropped for room (the owner with the most loses the least recently
 * used one), for age if that is limited, and when it was found wrong. Then all records of its origin are dropped too,
 * because a file or server that was wrong once is not asked again. A lost record changes no answer: the reply is
 * computed. */
#ifndef EK_REPLIES_REPLIES_H
#define EK_REPLIES_REPLIES_H

#include "replies/record.h"

typedef struct ek_replies ek_replies;

/* --- equal requests at the same time ---
 *
 * The first (the leader) computes, the others (followers) read its tokens as they come. A flight is the reply so far of
 * one key. It belongs to no client: if the leader leaves early, exactly one follower may become the leader. All
 * functions lock; any thread. */

typedef struct ek_flights ek_flights; /* of a store */
typedef struct ek_flight ek_flight;

/* A follower. wake says that there are new tokens or that the leader left. It is called under the lock on the leader's
 * thread, and not again before ek_flight_awake. */
typedef struct ek_flight_follower {
    struct ek_flight_follower *next;
    void (*wake)(void *arg);
    void *arg;
    bool pending; /* wake was called and not answered yet; the follower's own field once it has left */
} ek_flight_follower;

ek_flights *ek_flights_open(void);
void ek_flights_close(ek_flights *f); /* after everybody has left; NULL is allowed */

/* Joins the flight of k: as the leader of a new one (*leads true; probs: the leader gives log-probabilities), else as a
 * follower. NULL: the flight has no leader now or lacks the wanted log-probabilities; compute alone. */
ek_flight *ek_flight_join(ek_flights *all, const ek_reply_key *k, bool probs, ek_flight_follower *f, bool *leads);
/* The leader's next token. probs: as ek_reply_draft_add. */
void ek_flight_add(ek_flight *f, int32_t token, uint64_t row, const ek_logprobs *probs);
/* The leader has ended; followers are woken. */
void ek_flight_land(ek_flight *f);

int ek_flight_tokens(ek_flight *f);
/* Token i; false: it has not come yet. probs may be NULL. */
bool ek_flight_get(ek_flight *f, int i, int32_t *token, uint64_t *row, ek_logprobs *probs);
void ek_flight_awake(ek_flight *f, ek_flight_follower *who);
/* The follower leaves. wake is not called any more, but one call may still be unanswered (pending). */
void ek_flight_leave(ek_flight *f, ek_flight_follower *who);
bool ek_flight_has_leader(ek_flight *f);
/* Makes the follower the leader if there is none. *out: a record of the tokens so far; NULL: there are none. */
bool ek_flight_claim(ek_flight *f, ek_flight_follower *who, ek_reply_record **out);

/* --- the store --- */

/* A place for records besides memory. find is called on any thread, also concurrently; the others on one thread. */
typedef struct ek_reply_backend {
    ek_reply_origin origin;
    void *arg;
    /* One reference, or NULL. content: the content key, for backends without owners. */
    ek_reply_record *(*find)(void *arg, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner);
    /* NULL: the backend is only read. EIO: assume that none was written. */
    ek_err (*write)(void *arg, ek_reply_record *const *r, const uint64_t *owner, int n);
    void (*forget)(void *arg, const ek_reply_key *k); /* NULL: as in all */
    /* As ek_reply_nearest; NULL: the backend does not know the requests. */
    void (*nearest)(void *arg, ek_buf *out, const ek_reply_ask *ask);
    void (*distrust)(void *arg);    /* a record was wrong: forget all, and return no old one any more */
    uint64_t (*damaged)(void *arg); /* number of damaged records so far; NULL: always 0 */
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
    bool asks;        /* records keep their requests, for cassettes */
    double audit;     /* 0..1: this fraction of hits is computed again in idle time */
} ek_replies_opts;

/* Counts since start. */
typedef struct ek_replies_stats {
    uint64_t hits, parts, misses;    /* looked-up requests */
    uint64_t tokens;                 /* of replies, taken from the store */
    uint64_t from[EK_REPLY_ORIGINS]; /* found records by origin; computed: in memory */
    uint64_t stored, evicted, damaged, unwritten;
    uint64_t audits, wrong;
    uint64_t entries, bytes; /* in memory, now */
} ek_replies_stats;

/* ENOMEM if no thread can be started. */
ek_err ek_replies_open(ek_replies **out, const ek_replies_opts *o);
/* Takes over a backend, before the first find. Memory is searched first, then backends in this order. */
void ek_replies_add(ek_replies *r, const ek_reply_backend *b);
void ek_replies_close(ek_replies *r); /* writes pending records; NULL is allowed */

const char *ek_replies_identity(const ek_replies *r);
ek_flights *ek_replies_flights(ek_replies *r); /* replies that are being computed */
bool ek_replies_keeps_asks(const ek_replies *r);
bool ek_replies_is_stop(const ek_replies *r, int32_t token);

/* The record of k, with one reference for the caller; NULL: there is none. May read a file or wait for a server, as
 * long as the backend allows; do not call it on a thread that must not wait. */
ek_reply_record *ek_replies_find(ek_replies *r, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner);
/* For a request without a record: appends the nearest request of a file and the differences (ek_reply_nearest). */
void ek_replies_nearest(const ek_replies *r, ek_buf *out, const ek_reply_ask *ask);
/* Keeps a computed record, unless the stored one contains it. Takes over the reference; returns at once. A stored
 * record that contradicts it is removed as by ek_replies_wrong. */
void ek_replies_put(ek_replies *r, uint64_t owner, ek_reply_record *record);
/* Removes a wrong record and all others of its origin, with an error in the log. If it was computed here, the file on
 * disk is removed, too, because it holds the others. */
void ek_replies_wrong(ek_replies *r, const ek_reply_record *record, const char *what);
/* Waits until the backends have all records that were put. */
void ek_replies_flush(ek_replies *r);

typedef enum ek_reply_outcome { EK_REPLY_UNASKED, EK_REPLY_MISS, EK_REPLY_PART, EK_REPLY_HIT } ek_reply_outcome;
/* Counts the outcome of a request, and n tokens that its reply took from the store. */
void ek_replies_note(ek_replies *r, ek_reply_outcome o, int n);
void ek_replies_note_audit(ek_replies *r);
/* Whether to compute this hit again: every n-th, by count. */
bool ek_replies_wants_audit(ek_replies *r);
void ek_replies_stats_read(ek_replies *r, ek_replies_stats *out);

#endif
