/* The queues of requests: inbox, wait queue, running slots. A request is in exactly one of them. */
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

#endif
