/* The step behind the one that an executor computes, begun before that one's tokens are known (ek_executor.begin), so
 * that the host's work on a step falls into the time of the one in front of it.
 *
 * It is begun where it is certain but for the tokens themselves: every request that runs replies, or will with the step
 * in front, and none of them drafts. If one has a mask, penalties, or logits to be read, the step is begun without its
 * draws, which come when these tokens are delivered (ek_executor.draw); where the executor cannot, it is not begun.
 * Where the executor begins prompts as well (begins_prompts), requests may have prompts of text whose logits nobody
 * reads, too: their next rows are known. A request that ends with its token all the same leaves a row that nobody
 * reads; new requests join the step after. No bit depends on it. */
#ifndef EK_ENGINE_AHEAD_H
#define EK_ENGINE_AHEAD_H

#include "engine/state.h"

/* Plans and begins the step behind e->plan, whose own was begun; does nothing where it cannot be. */
void ek_ahead_begin(ek_engine *e);
/* Makes it e->plan, after the step in front was delivered, with what its draws were begun without. False: none was
 * begun. */
bool ek_ahead_take(ek_engine *e);
/* Waits for it, and forgets it: its rows will be planned again. Does nothing if there is none. */
void ek_ahead_drop(ek_engine *e);
/* r leaves the engine or starts over: what its row gives is not read. */
void ek_ahead_leave(ek_engine *e, ek_request *r);
/* Whether all its requests have left: nobody reads what it gives. */
bool ek_ahead_is_abandoned(const ek_engine *e);

#endif
