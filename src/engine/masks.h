/* The rows of allowed tokens of a step (ek_mask), made while a device computes the forward pass, by a thread of their
 * own: the draws alone need them. Who waits for rows that nobody has begun makes them. Where the forward pass has the
 * processors itself there is no such thread: one that the system puts aside in the middle of a row would hold the step
 * up for milliseconds, to save a tenth of one. */
#ifndef EK_ENGINE_MASKS_H
#define EK_ENGINE_MASKS_H

#include "engine/engine.h"

typedef struct ek_masks ek_masks;

/* max: requests of a step. beside: start the thread. Without it, also where it cannot be started, whoever waits makes
 * all rows. */
ek_masks *ek_masks_open(int max, bool beside);
void ek_masks_close(ek_masks *m); /* NULL is fine */

/* --- on the engine's thread, between a plan and the end of its step --- */

/* The rows are to be made that mask->look writes along the draft, of which n_draft tokens are allowed. All pointers are
 * borrowed until ek_masks_wait, and the mask's state must not change before it. */
void ek_masks_add(ek_masks *m, const ek_mask *mask, const int32_t *draft, int n_draft, uint64_t *row);
/* Begins with what was added. */
void ek_masks_begin(ek_masks *m);
/* Returns when all rows are written; at once if there are none, or if it was called before. NULL is fine. */
void ek_masks_wait(ek_masks *m);
/* Seconds that the calls of ek_masks_wait took since the last call of this; below 0: no rows were asked for. */
double ek_masks_waited(ek_masks *m);

#endif
