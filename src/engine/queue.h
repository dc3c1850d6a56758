/* The queues of requests: inbox, wait queue, running slots, and turns of clients. A request is in exactly one queue. */
#ifndef EK_ENGINE_QUEUE_H
#define EK_ENGINE_QUEUE_H

#include "engine/state.h"

/* Moves the inbox into the wait queue, each request to its turn. */
void ek_queue_drain_inbox(ek_engine *e);
/* Moves a request of the wait queue into a free slot. */
void ek_queue_run(ek_engine *e, ek_request *r);
/* Moves a running request back into the wait queue, to its turn, which has come. Its pages are released: it starts
 * over. */
void ek_queue_requeue(ek_engine *e, ek_request *r);
/* Removes r from the running array or the wait queue, and from the list of live requests; releases its
 * pages. The caller frees it. */
void ek_queue_remove(ek_engine *e, ek_request *r);

/* Turns of clients: which waiting request runs next, and which running request gives up its slot for it. Slots are
 * divided between the clients that have something to run: a client without one takes it from the client that holds
 * most, and where all hold one at most they take turns. The rows of prompts in a step likewise. Decides when a request
 * runs; a request that starts over gets the same bits. */

/* Of the waiting requests that were not passed over in this round the next one: of the client that runs the fewest,
 * then by place. NULL: none. */
ek_request *ek_turns_next(ek_engine *e);
/* A running request that gives way to r, which waits: the youngest of the client that runs the most, if these are at
 * least two more than r's client runs; or one that has run its turn, where r's client runs none. Each computes some
 * steps, and something that it had not computed before, until it gives way again. NULL: none, or not yet. */
ek_request *ek_turns_victim(ek_engine *e, const ek_request *r);
/* It gives way: back into the wait queue, behind what others may have for as much as it has computed. */
void ek_turns_yield(ek_engine *e, ek_request *r);
/* Of running[from ..) the one to start over where pages run out: the youngest of the client that runs the most. */
ek_request *ek_turns_youngest(const ek_engine *e, int from);

#endif
