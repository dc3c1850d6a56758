/* The rows of allowed tokens of a step (ek_mask). A separate thread makes them while a device computes the forward
 * pass, because only the draws need them. If a draw needs a row that this thread has not begun, the waiting thread
 * makes it. With an executor on the CPU there is no separate thread: if the system suspended it in the middle of a row,
 * the step would wait for milliseconds, to save a tenth of one. */
#ifndef EK_ENGINE_MASKS_H
#define EK_ENGINE_MASKS_H

#include <stdbool.h>
#include <stdint.h>

enum { EK_DRAFT_MAX = 64 }; /* the longest draft of a step */

/* The allowed next tokens of one reply: a grammar's interface for the engine (chat/turn.c makes it from
 * text/grammar/grammar.h). The engine asks between steps, on its own thread, and only for tokens that it sampled or
 * drafted. A row of allowed tokens has bit id % 64 of word id / 64 set for each; it has ek_mask_words(vocab) words. */
typedef struct ek_mask {
    void *arg;
    /* Looks ahead along a draft without changing state: row i has the tokens allowed after the accepted tokens and
     * draft[0..i). Writes rows 0 to k into row (adjacent, k <= n_draft) and returns k, the number of draft tokens, from
     * the first on, that are allowed in their position. all[i]: every token is allowed, and row i was not written.
     * n_draft is 0 without a draft. Allocates nothing. */
    int (*look)(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all);
    /* The token joined the reply. */
    void (*accept)(void *arg, int32_t token);
    /* The result of look and all[], at once and without rows; -1 if only rows can tell. If a result is given, look may
     * be called for its rows on another thread, before the next call of any of the three, while the step computes.
     * NULL: look is always called between steps. */
    int (*peek)(void *arg, const int32_t *draft, int n_draft, bool *all);
} ek_mask;

static inline int ek_mask_words(int vocab_size)
{
    return (vocab_size + 63) / 64;
}

typedef struct ek_masks ek_masks;

/* max: requests of a step. beside: start the thread. Without the thread, ek_masks_wait makes all rows. */
ek_masks *ek_masks_open(int max, bool beside);
void ek_masks_close(ek_masks *m); /* NULL is fine */

/* --- on the engine's thread, between a plan and the end of its step --- */

/* Adds the rows that mask->look writes along the draft, n_draft of whose tokens are allowed. All pointers are borrowed
 * until ek_masks_wait, and the mask's state must not change before it. */
void ek_masks_add(ek_masks *m, const ek_mask *mask, const int32_t *draft, int n_draft, uint64_t *row);
/* Begins with the added rows. */
void ek_masks_begin(ek_masks *m);
/* Returns when all rows are written; at once if there are none, or if it was called before. m may be NULL. */
void ek_masks_wait(ek_masks *m);
/* Seconds that the calls of ek_masks_wait took since the last call of this function; below 0: no rows were added. */
double ek_masks_waited(ek_masks *m);

#endif
