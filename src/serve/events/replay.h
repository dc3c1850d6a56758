/* Batches of events, the pages that they say are held, and what is sent again to those who missed some. A request names
 * the first sequence number that it wants and gets all from there on, without a gap: batches as they were, while they
 * are remembered; before that a history that was made up, in as many batches as are missing: everything is cleared, and
 * what is held came. Numbers go on to the latest batch, so that what is published next follows. One thread; nothing
 * here waits. */
#ifndef EK_SERVE_EVENTS_REPLAY_H
#define EK_SERVE_EVENTS_REPLAY_H

#include "base/buf.h"
#include "cache/held.h"
#include "serve/events/events.h"

/* --- a batch: changes of held pages as vLLM's consumers read them --- */

/* Appends one batch in msgpack: [time, [event, …], 0]. time: seconds since 1970. clear: an AllBlocksCleared comes
 * first. n may be 0. BlockStored: pages that follow each other make one event with several hashes. Hashes have 8 bytes
 * on the wire whatever their value, because llm-d takes no shorter ones. There are no groups: a page is told of when
 * all that a prompt needs to begin behind it is held. */
void ek_events_write(ek_buf *out, const ek_events_form *form, double time, bool clear, const ek_held_change *change,
                     int n);

/* --- the mirror --- */

/* The pages that are held according to all batches so far, in the order in which they came: a page's parent stands
 * before it. Zero-initialise. */
typedef struct ek_mirror {
    struct ek_mirror_entry *entry;
    int n, cap;              /* pages; entries */
    int first, last, unused; /* entry + 1; 0: none */
    int *bucket;             /* entry + 1 */
    unsigned n_buckets;      /* a power of two, or 0 */
} ek_mirror;

void ek_mirror_apply(ek_mirror *m, const ek_held_change *c); /* takes over the page's reference of its salt */
/* Copies up to max pages behind `at`, 0 for the beginning, which becomes the last one's; the salts' references stay
 * with m.
 */
int ek_mirror_list(const ek_mirror *m, int *at, ek_held_change *out, int max);
void ek_mirror_fini(ek_mirror *m);

/* --- history and replays --- */

enum {
    EK_HISTORY_BATCHES = 4096,
    EK_HISTORY_BYTES = 16 << 20,
    EK_REPLAYS = 8, /* at a time */
    EK_REPLAY_PEER_MAX = 255
};

/* Batches [first, next) of the sequence. Zero-initialise. */
typedef struct ek_history {
    ek_buf item[EK_HISTORY_BATCHES];
    uint64_t first, next;
    size_t bytes;
} ek_history;

void ek_history_add(ek_history *h, ek_buf *payload); /* as number h->next; takes the payload over */
void ek_history_clear(ek_history *h);                /* the next one is number 0 */

/* What is held, in at most n_batches batches of 64 pages and more, the first of which clears everything. *out is the
 * caller's, with the payloads. Returns how many, 1 and more. */
int ek_events_snapshot(ek_buf **out, const ek_mirror *m, const ek_events_form *form, double time, uint64_t n_batches);

/* Frames of a message. */
typedef struct ek_events_frame {
    const void *data;
    size_t n;
} ek_events_frame;

/* A request as a ROUTER gets it: who asks, an empty frame, 8 bytes. False: it is none. */
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
    ek_buf *snapshot; /* of n_snapshot batches, of which those from at on were not sent; NULL: none */
    int n_snapshot, at;
    uint64_t snapshot_end; /* the number behind the last one that it stands for */
    double progress;       /* ek_now() */
} ek_replay;

/* Zero-initialise, but for what is borrowed. */
typedef struct ek_replays {
    const ek_history *history;
    const ek_mirror *mirror;
    const ek_events_form *form;
    /* Sends a batch, or with payload.data == NULL the end. */
    ek_replay_sent (*send)(void *arg, ek_events_frame peer, uint64_t number, ek_events_frame payload);
    void *arg;
    ek_replay job[EK_REPLAYS];
    int n;                        /* that are unfinished */
    uint64_t done, lost, batches; /* so far: answered, given up, batches sent */
} ek_replays;

/* A request, in place of one that the same peer has made. There must be room: n < EK_REPLAYS. */
void ek_replays_ask(ek_replays *r, ek_events_frame peer, uint64_t from, double now);
/* Sends some of each. time: seconds since 1970. Returns whether more can be sent at once. A peer that takes nothing for
 * ten seconds is given up. */
bool ek_replays_go_on(ek_replays *r, double now, double time);
void ek_replays_drop(ek_replays *r); /* all: the numbers begin again */

#endif
