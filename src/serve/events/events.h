/* Events of cached pages for routers, in vLLM's format: a ZeroMQ PUB socket with the frames topic, sequence number (8
 * bytes, big-endian, from 0) and batch, and a ROUTER that resends missed batches (replay.h). Without a ROUTER, all held
 * pages are sent again when somebody subscribes. Both sockets are our own (peers.h), because libzmq keeps 30 bytes per
 * byte of a peer's subscriptions and ends the process when memory runs out.
 *
 * A thread takes the changes from the engine's queue, writes and sends them, and waits for nobody. A slow subscriber
 * loses all but the last thousand batches and notices it by their numbers. After 2^18 batches numbers restart at 0,
 * with a batch that clears everything and lists all held pages, as after a restart; this keeps a replay from 0 small.
 */
#ifndef EK_SERVE_EVENTS_H
#define EK_SERVE_EVENTS_H

#include <stdbool.h>

#include "base/address.h"
#include "base/err.h"
#include "cache/held.h"

/* --- addresses in --kv-events and --kv-replay; pure --- */

enum { EK_EVENTS_HOST_MAX = EK_ADDRESS_HOST };

typedef struct ek_events_address {
    bool bind; /* else it connects */
    bool open; /* it binds beyond this machine's loopback */
    bool v6;
    char endpoint[EK_EVENTS_HOST_MAX + 32]; /* tcp://HOST:PORT; port * for any free one */
} ek_events_address;

/* Parses tcp://HOST:PORT. HOST: a name, an address, an IPv6 address in brackets, or * for all addresses of this
 * machine. It binds if HOST is * or [::], after @ (@tcp://127.0.0.1:5557), and if must_bind; otherwise it connects.
 * PORT 0 binds any free port. EINVAL names option, value and the required form in one line. */
ek_err ek_events_address_parse(ek_events_address *out, const char *option, const char *text, bool must_bind);

/* --- the publisher --- */

typedef struct ek_events ek_events;

typedef struct ek_events_opts {
    ek_events_address events, replay; /* replay.endpoint "": none */
    bool arrays;          /* events as lists in vLLM's former order, for older consumers; otherwise as maps */
    const char *topic;    /* copied */
    ek_held_queue *queue; /* borrowed until close */
} ek_events_opts;

typedef struct ek_events_stats {
    char endpoint[2][EK_EVENTS_HOST_MAX + 32]; /* of events and replay, with the actual port; "": none */
#define EVENTS_STAT(field, debug, type, name, help) uint64_t field;
#include "serve/events/stats.def"
} ek_events_stats;

/* Whether this program was built with events. */
bool ek_events_built(void);
/* Binds, or begins to connect, and starts the thread. EIO with the reason; EUNSUPPORTED if not built. */
ek_err ek_events_open(ek_events **out, const ek_events_opts *opts);
void ek_events_stats_read(const ek_events *e, ek_events_stats *out); /* any thread */
void ek_events_close(ek_events *e);                                  /* NULL is allowed */

#endif
