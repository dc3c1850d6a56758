/* The plan of the next step (plan.c), the step behind it (ahead.c), and drafts (draft.c). */
#ifndef EK_ENGINE_PLANNING_H
#define EK_ENGINE_PLANNING_H

#include "engine/state.h"

/* Which requests run, with which rows and draws. */

/* Moves requests from the wait queue into slots, in order of arrival, while there are pages for them. */
void ek_plan_admit(ek_engine *e);
/* Lists the rows and draws of the next step, preempting the youngest where pages run out. */
void ek_plan_make(ek_engine *e);

/* The step behind the one that an executor computes, begun before that one's tokens are known (ek_executor.begin), so
 * that the host's work on a step falls into the time of the one in front of it.
 *
 * It is begun where it is certain but for the tokens themselves: every request that runs replies, or will with the step
 * in front, and none of them drafts. If one has a mask, penalties, or logits to be read, the step is begun without its
 * draws, which come when these tokens are delivered (ek_executor.draw); where the executor cannot, it is not begun.
 * Where the executor begins prompts as well (begins_prompts), requests may have prompts of text whose logits nobody
 * reads, too: their next rows are known. A request that ends with its token all the same leaves a row that nobody
 * reads; new requests join the step after. No bit depends on it. */

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

/* Speculation: guesses at a request's next tokens are computed in the step that they follow, and the target's own
 * sample at each position decides whether they stand. A sample is a pure function of its row of logits, its history
 * and its options, so the reply, its logits and its end are the same with any draft; a draft that is right saves
 * steps. docs/SPECULATION.md.
 *
 * A draft exists within one step only. Between steps a request keeps what helps to guess (ngram.h) and how often
 * that was right. Engine thread only. */

/* Gives scheduled requests that reply a draft, behind their tokens, and extends their pages by it: at most `room`
 * rows in all, only unused pages, only where it should pay. */
void ek_draft_plan(ek_engine *e, int room);
/* Whether r's text, as far as it is known, promises a draft of the next tokens that pays. */
bool ek_draft_promises(const ek_engine *e, const ek_request *r);

/* Drafts from outside (engine/proposer.h), proposals.c. Proposals are compared with the reply's tokens whether they
 * were used or not, so that it is known for nothing how good they are, and a wrong or slow source costs no row and no
 * wait. A question goes out behind each token. Its answer usually comes while the next step computes; the tokens behind
 * that step's are the next draft then. Only where it pays by what was measured, the engine waits for an answer before a
 * step: what it waits is charged to the replies' credit as wrong drafts are, and with more than EK_REMOTE_WAIT it does
 * not wait. */
#define EK_REMOTE_WAIT 0.05 /* seconds */

/* Drafts of scheduled requests that have none; returns the rows that are left. */
int ek_proposals_plan(ek_engine *e, int room);
/* Behind a step: takes answers, judges them, asks. */
void ek_proposals_follow(ek_engine *e);
/* r leaves. */
void ek_proposals_forget(ek_engine *e, const ek_request *r);
bool ek_proposals_promises(const ek_engine *e, const ek_request *r);

/* What drafts share: rows that promise less than this are left out; the drafted tokens that s could use and may lose;
 * and the draft behind its tokens, of which as many stay as returned. */
float ek_draft_least_worth(const ek_engine *e, float cost);
int ek_draft_room(const ek_engine *e, const ek_scheduled *s, int room, float cost);
int ek_draft_take(ek_engine *e, ek_scheduled *s, int k);

/* Takes the draft out of the request's rows, which are laid out. */
void ek_draft_drop(ek_scheduled *s);

/* After the step: accepts the drafted tokens that the target sampled itself. */
void ek_draft_settle(const ek_plan *p, ek_scheduled *s);

/* Before the tokens of the step are delivered: counts, and how often a drafter was right. */
void ek_draft_learn(ek_engine *e, const ek_scheduled *s);
/* After that: the new tokens join the text that guesses come from. */
void ek_draft_follow(ek_request *r);

#endif
