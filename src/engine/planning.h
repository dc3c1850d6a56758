/* From requests to a step: queues (queue.c), pictures and sounds (encode.c), the plan of the next step (plan.c), the
 * step after it (ahead.c), and drafts (draft.c). */
#ifndef EK_ENGINE_PLANNING_H
#define EK_ENGINE_PLANNING_H

#include "engine/state.h"

/* --- the queues of requests: inbox, wait queue, running slots. A request is in exactly one queue. */

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

/* --- encoding (encode.c): pictures and sounds of running requests are encoded. The work is divided into slices, one
 * between two steps. A slice takes no longer than a step of the default chunk, so other requests get their tokens
 * meanwhile. A running request computes its prompt up to the first part without features and waits there. It holds the
 * features of the parts that the next steps can reach, and releases them once their rows are computed. Its memory is
 * therefore bounded for any number of pictures. Running requests take turns, one picture each. Slices, times and other
 * requests never change a bit of the features (model/tower). */

/* open: call it after the step's memory was opened. close: call it before that is closed. */
void ek_encode_open(ek_engine *e);
void ek_encode_close(ek_engine *e);

/* Before a plan: gives every running request the existing features for its next rows. */
void ek_encode_supply(ek_engine *e);
/* Encodes one slice if a running request lacks features; false if there was nothing to encode. If a picture cannot be
 * encoded, *failed is its request, which has to end, with the error in err.h. */
bool ek_encode_slice(ek_engine *e, ek_request **failed, ek_err *err);
/* r stops running, so its features are released. */
void ek_encode_release(ek_engine *e, ek_request *r);
/* Whether the running encoding is for r. */
bool ek_encode_is_for(const ek_engine *e, const ek_request *r);

/* --- the plan: which requests run, with which rows and draws */

/* Moves requests from the wait queue into slots, in order of arrival, while there are pages for them. */
void ek_plan_admit(ek_engine *e);
/* Lists the rows and draws of the next step, and preempts the youngest requests if pages run out. */
void ek_plan_make(ek_engine *e);

/* --- held prompts (hold.c) ---
 *
 * The first token of a reply makes the following steps short, and a row of a short step costs more. Therefore, while
 * nobody replies, a prompt leaves its last rows until the other prompts of its client are read. Then they reply
 * together. Soon each has as many tokens as if it had begun at once. A prompt is held for at most 8 seconds, and only
 * if measured times say that a step's rows cost more beside replies. It does not wait for a prompt with more than four
 * times its rows left. If a step has room for all prompts, they end in it.
 *
 * If requests ran together just before, an only prompt that a long step would end also leaves its last rows for the
 * next step, because the other requests may arrive meanwhile. Prompts are held only with max_gap. */

/* Decides which prompts are held in the next step. */
void ek_hold_plan(ek_engine *e, bool replying);
/* n, or the rows that r may have because it is held. */
int ek_hold_rows(const ek_request *r, int n);
/* Ends the holding of all prompts. Returns whether one was held. */
bool ek_hold_end(ek_engine *e);
/* Records a step's time, with its numbers of prompt rows, of prompts and of replies. */
void ek_hold_note(ek_engine *e, int rows, int prompts, int replies, double seconds);

/* --- the step ahead: it begins while the executor computes the current step, before that step's tokens are known
 * (ek_executor.begin), so that the host works while the device computes.
 *
 * It is begun if everything except the tokens is certain: every running request replies, or will with the current step,
 * and none drafts. If a request has a mask, penalties, or logits to be read, the step is begun without its draws, which
 * follow when the tokens are delivered (ek_executor.draw); if the executor cannot do that, the step is not begun. If
 * the executor begins prompts too (begins_prompts), requests may have text prompts whose logits nobody reads, because
 * their next rows are known. A request that ends with its token leaves a row that nobody reads; new requests join a
 * step later. No bit depends on it. */

/* Plans and begins the step after e->plan, which was begun; does nothing if that is impossible. */
void ek_ahead_begin(ek_engine *e);
/* After the current step was delivered: makes the step ahead e->plan, with everything that its draws lacked. False: no
 * step was begun. */
bool ek_ahead_take(ek_engine *e);
/* Waits for the step ahead and drops it; its rows will be planned again. Does nothing without one. */
void ek_ahead_drop(ek_engine *e);
/* r leaves the engine or starts over: its row in the step ahead is not read. */
void ek_ahead_leave(ek_engine *e, ek_request *r);
/* Whether all requests of the step ahead have ended, so that its results are not needed. */
bool ek_ahead_is_abandoned(const ek_engine *e);

/* --- speculation (docs/SPECULATION.md): a request's guessed next tokens are computed in the same step, and the
 * target's own sample at each position decides whether they are kept. A sample is a pure function of its row of logits,
 * its history and its options, so reply, logits and end are the same with any draft; a right draft saves steps.
 *
 * A draft exists within one step. Between steps a request keeps data for guessing (ngram.h) and its hit rates. Engine
 * thread only. */

/* Gives replying requests drafts after their tokens, and extends their pages: at most `room` rows in all, only on
 * unused pages, and only if a draft should pay. */
void ek_draft_plan(ek_engine *e, int room);
/* Whether r's text so far promises a draft that saves time. */
bool ek_draft_promises(const ek_engine *e, const ek_request *r);

/* --- drafts from outside (ek_proposer; proposals.c). Proposals are compared with the reply's tokens even if they
 * were not used, so their quality is known for free, and a wrong or slow source costs no row and no wait. A question
 * follows each token. Its answer usually comes while the next step computes; the tokens after that step's are then the
 * next draft. The engine waits for an answer before a step only if measured times say that it pays, never longer than
 * EK_REMOTE_WAIT; the wait is charged to the replies' credit like wrong drafts. */
#define EK_REMOTE_WAIT 0.05 /* seconds */

/* Gives drafts to scheduled requests without one; returns the remaining rows. */
int ek_proposals_plan(ek_engine *e, int room);
/* After a step: takes answers, judges them, and asks again. */
void ek_proposals_follow(ek_engine *e);
/* r leaves the engine. */
void ek_proposals_forget(ek_engine *e, const ek_request *r);
bool ek_proposals_promises(const ek_engine *e, const ek_request *r);

/* --- for all sources: the minimum promise of a row; the number of drafted tokens that s could use and may lose; and
 * taking a draft of k tokens after s's tokens, which returns the number of accepted ones --- */
float ek_draft_least_worth(const ek_engine *e, float cost);
/* The largest length, at most max, of a draft whose last row still pays, if each token is right with that probability.
 */
int ek_draft_length(float right, int max, float least);
int ek_draft_room(const ek_engine *e, const ek_scheduled *s, int room, float cost);
int ek_draft_take(ek_engine *e, ek_scheduled *s, int k);

/* Removes the draft from the request's rows, which are laid out. */
void ek_draft_drop(ek_scheduled *s);

/* After the step: accepts the drafted tokens that the target sampled itself. */
void ek_draft_settle(const ek_plan *p, ek_scheduled *s);

/* Before the step's tokens are delivered: updates counts and drafters' hit rates. */
void ek_draft_learn(ek_engine *e, const ek_scheduled *s);
/* After delivery: adds the new tokens to the text for guesses. */
void ek_draft_follow(ek_request *r);

#endif
