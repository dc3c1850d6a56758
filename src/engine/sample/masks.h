/* The rows of allowed tokens of a step (ek_mask). A thread of their own makes them while a device computes the forward
 * pass, because only the draws need them. If a draw needs a row that the thread has not begun, the waiting thread makes
 * it. With an executor on the CPU there is no such thread: a thread that the system suspends in the middle of a row
 * would delay the step by milliseconds and save a tenth of one. */
#ifndef EK_ENGINE_MASKS_H
#define EK_ENGINE_MASKS_H

#include <stdbool.h>
#include <stdint.h>

enum { EK_DRAFT_MAX = 64 }; /* the longest draft of a step */

/* Which tokens may come next in one reply: a grammar's view of it (chat/turn.c makes one of text/grammar/grammar.h).
 * The engine asks between steps, on its own thread, and never for tokens that it did not sample or draft.
 *
 * A row of allowed tokens has bit id % 64 of word id / 64 set for each of them; ek_mask_words(vocab) words. */
typedef struct ek_mask {
    void *arg;
    /* Looks ahead along a draft without changing state: row i says what may follow the accepted tokens and
     * draft[0..i). Writes rows 0 to k into row (adjacent, k <= n_draft) and returns k, the number of draft tokens, from
     * the first, that are allowed where they stand. all[i]: every token is allowed, row i was not written. n_draft is
     * 0 without a draft. Allocates nothing. */
    int (*look)(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all);
    /* The token joined the reply. */
    void (*accept)(void *arg, int32_t token);
    /* What look would return and say in all[], without rows, at once; -1 where only they tell. If it says which rows
     * there are, look may be called for them on another thread before the next call of any of the three, while the
     * step computes. NULL: look is always asked between steps. */
    int (*peek)(void *arg, const int32_t *draft, int n_draft, bool *all);
} ek_mask;

static inline int ek_mask_words(int vocab_size)
{
    return (vocab_size + 63) / 64;
}

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
