/* Requests and the prefix index: what a request takes from it, and what it leaves there. */
#ifndef EK_ENGINE_REUSE_H
#define EK_ENGINE_REUSE_H

#include "engine/state.h"

/* The first n tokens of a request as the index knows them; borrowed from it. */
ek_prefix_key ek_reuse_key(const ek_request *r, int n);
/* The largest number of cached positions it may begin with. */
int ek_reuse_max(const ek_request *r);
/* Whether a waiting request had better wait: one that runs is computing the front of its prompt, a page at least that
 * the index does not have. It waits until those pages are there, or the other one runs no more; computing them
 * twice would take longer for both. Decided by tokens and by how far the other one is, never by a clock. */
bool ek_reuse_waits(ek_engine *e, ek_request *r);
/* The pages of the longest cached prefix of a waiting request that holds none: n_done positions. The last token is
 * never among them, because its logits are wanted, nor is a prompt position whose logits were asked for. */
void ek_reuse_adopt(ek_engine *e, ek_request *r);
/* Whether it has as much as it asked for, before it runs for the first time; otherwise it has given its pages back and
 * is to be ended. */
bool ek_reuse_suffices(ek_engine *e, ek_request *r);
/* The waiting request gives its pages back: there is no room to run it yet. */
void ek_reuse_return(ek_engine *e, ek_request *r);
/* It runs now, right after adopt: counts and reports the hit. */
void ek_reuse_admitted(ek_engine *e, ek_request *r);
/* After a step, before its sliding pages are trimmed: full pages go to the index, and sliding ones where the
 * prompt is likely to be taken up again. */
void ek_reuse_capture(ek_engine *e, ek_request *r);
/* The request stops running: all that it holds goes to the index. */
void ek_reuse_give(ek_engine *e, ek_request *r);

#endif
