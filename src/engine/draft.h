/* Speculation: guesses at a request's next tokens are computed in the step that they follow, and the target's own
 * sample at each position decides whether they stand. A sample is a pure function of its row of logits, its history
 * and its options, so the reply, its logits and its end are the same with any draft; a draft that is right saves
 * steps. docs/SPECULATION.md.
 *
 * A draft exists within one step only. Between steps a request keeps what helps to guess (ngram.h) and how often
 * that was right. Engine thread only. */
#ifndef EK_ENGINE_DRAFT_H
#define EK_ENGINE_DRAFT_H

#include "engine/state.h"

/* Gives scheduled requests that reply a draft, behind their tokens, and extends their pages by it: at most `room`
 * rows in all, only unused pages, only where it should pay. */
void ek_draft_plan(ek_engine *e, int room);
/* Whether r's text, as far as it is known, promises a draft of the next tokens that pays. */
bool ek_draft_promises(const ek_engine *e, const ek_request *r);

/* Takes the draft out of the request's rows, which are laid out. */
void ek_draft_drop(ek_scheduled *s);

/* After the step: accepts the drafted tokens that the target sampled itself. */
void ek_draft_settle(const ek_plan *p, ek_scheduled *s);

/* Before the tokens of the step are delivered: counts, and how often a drafter was right. */
void ek_draft_learn(ek_engine *e, const ek_scheduled *s);
/* After that: the new tokens join the text that guesses come from. */
void ek_draft_follow(ek_request *r);

#endif
