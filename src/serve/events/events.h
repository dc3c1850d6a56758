/* News of cached pages for routers, as vLLM publishes them: a PUB socket of ZeroMQ with the frames topic, sequence
 * number (8 bytes, big-endian, from 0) and batch (batch.h); and a ROUTER that answers those who missed some (replay.h).
 * Without one, everything that is held is told again when somebody subscribes. Both sockets are our own (peers.h):
 * libzmq keeps 30 bytes for each byte of topics that a peer subscribes with, and ends the process where there is no
 * memory for it.
 *
 * A thread of its own takes the changes from the engine's queue, writes and sends them. It waits for nobody: a
 * subscriber that does not read loses all but the last thousand batches, and sees it by their numbers. After 2^18
 * batches the numbers begin again at 0, with a batch that clears everything and all that is held, as after a restart:
 * so what a replay from 0 has to bring stays small. */
#ifndef EK_SERVE_EVENTS_H
#define EK_SERVE_EVENTS_H

#include "base/err.h"
#include "serve/events/address.h"
#include "serve/events/batch.h"

typedef struct ek_events ek_events;

typedef struct ek_events_opts {
    ek_events_address events, replay; /* replay.endpoint "": none */
    ek_events_form form;
    const char *topic;    /* copied */
    ek_held_queue *queue; /* borrowed until close */
} ek_events_opts;

typedef struct ek_events_stats {
    char endpoint[2][EK_EVENTS_HOST_MAX + 32]; /* of events and replay, with the port that was taken; "": none */
    uint64_t sequence;                         /* number of the next batch */
    uint64_t batches, bytes;                   /* sent so far */
    uint64_t came, went;                       /* pages so far */
    uint64_t pages;                            /* held, by what was sent */
    uint64_t replays, lost_replays, replay_batches, bad_requests;
} ek_events_stats;

/* Whether this program was built with what it takes. */
bool ek_events_built(void);
/* Binds, or begins to connect, and starts the thread. EIO with the reason; EUNSUPPORTED where it was not built. */
ek_err ek_events_open(ek_events **out, const ek_events_opts *opts);
void ek_events_stats_read(const ek_events *e, ek_events_stats *out); /* any thread */
void ek_events_close(ek_events *e);                                  /* NULL is allowed */

#endif
