/* Batches of events, the pages that they report as held, and replays for subscribers that missed batches. A request
 * names the first sequence number that it needs, and gets all batches from there on, without a gap: the original
 * batches while they are kept, and before them a substitute of as many batches as are missing, which clears everything
 * and lists the held pages. The numbers end at the latest batch, so that the next published batch follows. One thread;
 * nothing here waits. */
#ifndef EK_SERVE_EVENTS_REPLAY_H
#define EK_SERVE_EVENTS_REPLAY_H

#include "base/buf.h"
#include "cache/held.h"
#include "serve/events/events.h"

/* --- a batch: changes of held pages as vLLM's consumers read them --- */

/* Appends one batch in msgpack: [time, [event, …], 0]. arrays: as in ek_events_opts. time: seconds since 1970. clear:
 * an AllBlocksCleared comes first. n may be 0. BlockStored: consecutive pages make one event with several hashes. A
 * hash has 8 bytes on the wire whatever its value, because llm-d takes no shorter ones. There are no groups: a page is
 * reported once everything is held that a prompt needs to resume after it. */
void ek_events_write(ek_buf *out, bool arrays, double time, bool clear, const ek_held_change *change, int n);

/* --- the mirror --- */

/* The pages that are held according to all batches so far, in order of arrival: a page's parent comes before the page.
 * Zero-initialise. */
typedef struct ek_mirror {
    struct ek_mirror_entry *entry;
    int n, cap;              /* pages; entries */
    int first, last, unused; /* entry + 1; 0: none */
    int *bucket;             /* entry + 1 */
    unsigned n_buckets;      /* a power of two, or 0 */
} ek_mirror;

void ek_mirror_apply(ek_mirror *m, const ek_held_change *c); /* takes over the page's reference of its salt */
void ek_mirror_fini(ek_mirror *m);

/* --- history and replays --- */

enum {
    EK_HISTORY_BATCHES = 4096,
    EK_HISTORY_BYTES = 16 << 20,
    EK_REPLAYS = 8, /* maximum at a time */
    EK_REPLAY_PEER_MAX = 255
};

/* Batches [first, next) of the sequence. Zero-initialise. */
typedef struct ek_history {
    ek_buf item[EK_HISTORY_BATCHES];
    uint64_t first, next;
    size_t bytes;
} ek_history;

void ek_history_add(ek_history *h, ek_buf *payload); /* appends batch number h->next; takes the payload over */
void ek_history_clear(ek_history *h);                /* the next batch has number 0 */

/* Lists the held pages in at most n_batches batches of at least 64 pages; the first batch clears everything. The caller
 * owns *out and the payloads. Returns the number of batches, at least 1. */
int ek_events_snapshot(ek_buf **out, const ek_mirror *m, bool arrays, double time, uint64_t n_batches);

/* Frames of a message. */
typedef struct ek_events_frame {
    const void *data;
    size_t n;
} ek_events_frame;

/* Parses a request as a ROUTER receives it: the peer's identity, an empty frame, 8 bytes. False: not a request. */
bool ek_replay_parse(const ek_events_frame *frame, int n, uint64_t *from);

typedef enum ek_replay_sent {
    EK_REPLAY_SENT,
    EK_REPLAY_LATER, /* the peer has too much unread */
    EK_REPLAY_GONE
} ek_replay_sent;

typedef struct ek_replay {
    uint8_t peer[EK_REPLAY_PEER_MAX];
    size_t n_peer; /* 0: unused */
    uint64_t next;
    ek_buf *snapshot; /* a substitute for n_snapshot batches; those from `at` on are unsent. NULL: none */
    int n_snapshot, at;
    uint64_t snapshot_end; /* the number after the last one that the snapshot replaces */
    double progress;       /* ek_now() */
} ek_replay;

/* Zero-initialise, except the borrowed pointers. */
typedef struct ek_replays {
    const ek_history *history;
    const ek_mirror *mirror;
    bool arrays;
    /* Sends a batch, or the end if payload.data is NULL. */
    ek_replay_sent (*send)(void *arg, ek_events_frame peer, uint64_t number, ek_events_frame payload);
    void *arg;
    ek_replay job[EK_REPLAYS];
    int n;                        /* unfinished jobs */
    uint64_t done, lost, batches; /* totals: answered requests, abandoned requests, sent batches */
} ek_replays;

/* Adds a request; it replaces an earlier one of the same peer. There must be room: n < EK_REPLAYS. */
void ek_replays_ask(ek_replays *r, ek_events_frame peer, uint64_t from, double now);
/* Sends some batches of each job. time: seconds since 1970. Returns whether more can be sent at once. A peer that takes
 * nothing for ten seconds is abandoned. */
bool ek_replays_go_on(ek_replays *r, double now, double time);
void ek_replays_drop(ek_replays *r); /* drops all jobs: the numbers restart */

#endif
