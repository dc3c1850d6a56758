/* The queues of requests: inbox, wait queue, running slots, and turns of clients. A request is in exactly one queue. */
#ifndef EK_ENGINE_QUEUE_H
#define EK_ENGINE_QUEUE_H

#include "engine/state.h"

/* Moves the inbox into the wait queue, each request to its turn. */
void ek_queue_drain_inbox(ek_engine *e);
/* Moves a request of the wait queue into a free slot. */
void ek_queue_run(ek_engine *e, ek_request *r);
/* Moves a running request back to its turn in the wait queue. Its pages are released, so it starts over. */
void ek_queue_requeue(ek_engine *e, ek_request *r);
/* Removes r from the running array or the wait queue, and from the list of live requests; releases its
 * pages. The caller frees it. */
void ek_queue_remove(ek_engine *e, ek_request *r);

/* --- turns of clients: the next waiting request, and the running request that gives up its slot for it. Slots are
 * divided between the clients with requests: a client without a slot gets one from the client that holds most, and if
 * all hold at most one they take turns. The prompt rows of a step are divided likewise. Turns decide only when a
 * request runs; a request that starts over gets the same bits. --- */

/* The next waiting request that was not passed over in this round: of the client with the fewest running requests, then
 * by turn. NULL: none. */
ek_request *ek_turns_next(ek_engine *e);
/* A running request that gives way to the waiting request r: the youngest of the client with the most running requests,
 * if it has at least two more than r's client; or, if r's client runs none, one that has run its turn. Each request
 * computes some steps, and rows that it had not computed before, until it gives way again. NULL: none, or not yet. */
ek_request *ek_turns_victim(ek_engine *e, const ek_request *r);
/* r gives way: it returns to the wait queue, behind requests whose cost equals its computed work. */
void ek_turns_yield(ek_engine *e, ek_request *r);
/* The request of running[from ..) that starts over when pages run out: the youngest of the client with the most running
 * requests. */
ek_request *ek_turns_youngest(const ek_engine *e, int from);

#endif
