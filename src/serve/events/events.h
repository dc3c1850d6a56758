/* News of cached pages for routers, as vLLM publishes them: a PUB socket of ZeroMQ with the frames topic, sequence
 * number (8 bytes, big-endian, from 0) and batch; and a ROUTER that answers those who missed some (replay.h).
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

#include <stdbool.h>

#include "base/address.h"
#include "base/err.h"
#include "cache/held.h"

/* --- addresses: what --kv-events and --kv-replay say; pure --- */

enum { EK_EVENTS_HOST_MAX = EK_ADDRESS_HOST };

typedef struct ek_events_address {
    bool bind; /* else it connects */
    bool open; /* it binds on more than this machine's loopback */
    bool v6;
    char endpoint[EK_EVENTS_HOST_MAX + 32]; /* tcp://HOST:PORT; port * for any free one */
} ek_events_address;

/* tcp://HOST:PORT. HOST: a name, an address, an IPv6 address in brackets, or * for all of this machine's. It binds
 * where HOST is * or [::], behind @ (@tcp://127.0.0.1:5557), and if must_bind; else it connects. PORT 0, for one that
 * binds, is any free one. EINVAL: option, value and what is needed in one line. */
ek_err ek_events_address_parse(ek_events_address *out, const char *option, const char *text, bool must_bind);

/* --- the publisher --- */

typedef struct ek_events_form {
    bool arrays; /* events as lists, in the order that vLLM had before it wrote maps; for consumers of that time */
} ek_events_form;

typedef struct ek_events ek_events;

typedef struct ek_events_opts {
    ek_events_address events, replay; /* replay.endpoint "": none */
    ek_events_form form;
    const char *topic;    /* copied */
    ek_held_queue *queue; /* borrowed until close */
} ek_events_opts;

typedef struct ek_events_stats {
    char endpoint[2][EK_EVENTS_HOST_MAX + 32]; /* of events and replay, with the port that was taken; "": none */
#define EVENTS_STAT(field, debug, type, name, help) uint64_t field;
#include "serve/events/stats.def"
} ek_events_stats;

/* Whether this program was built with what it takes. */
bool ek_events_built(void);
/* Binds, or begins to connect, and starts the thread. EIO with the reason; EUNSUPPORTED where it was not built. */
ek_err ek_events_open(ek_events **out, const ek_events_opts *opts);
void ek_events_stats_read(const ek_events *e, ek_events_stats *out); /* any thread */
void ek_events_close(ek_events *e);                                  /* NULL is allowed */

#endif
