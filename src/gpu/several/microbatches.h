/* A step in microbatches, so that devices compute at the same time: while the second device computes a microbatch, the
 * first computes the next microbatch. Each microbatch is a step of its own. This changes no bit, as chunks change none.
 *
 * A step with many prompt rows has its rows with logits, and all draws, in the last microbatch. A step of replies begun
 * behind another step has some sequences in each microbatch, with their own draws and rows of logits. Such a microbatch
 * waits only for the draws that it follows, so the first device has a microbatch while the last one has the next
 * microbatch of the step in front. */
#ifndef EK_GPU_RANKS_MICROBATCHES_H
#define EK_GPU_RANKS_MICROBATCHES_H

#include "engine/executor.h"

enum { EK_MICROBATCHES = 4 }; /* at most */

typedef struct ek_microbatches {
    ek_row
        *row; /* [max_rows]: of all microbatches, one behind the other; not in turns, whose rows stay where they are */
    int *follows; /* [max_rows]: likewise, of a step begun behind another */
    int first[EK_MICROBATCHES + 1];
    int n;
    bool turns;                 /* row i has draw i and the i-th row of logits: microbatches have their own */
    int after[EK_MICROBATCHES]; /* of a step begun behind another: the microbatch of that one behind which its draws are
                                   there */
} ek_microbatches;

void ek_microbatches_open(ek_microbatches *p, int max_rows);
void ek_microbatches_close(ek_microbatches *p);

/* Cuts s into at most max microbatches of about as many rows, each of `min` or more; one if there are too few that can
 * go in front of others: rows behind which nothing of their sequence is seen from in front, and which want no logits.
 * front: of the step behind which it begins, whose draws rows of the last microbatch may follow; NULL: of none. */
void ek_microbatches_divide(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min);
/* Cuts s, which follows draws of the step that `front` has, into at most max microbatches of about as many sequences,
 * of `min` or more; into one where there are too few, or where sequences have more rows, or another order, than draws
 * in front. A sequence stays in its microbatch while these have about as many. */
void ek_microbatches_follow(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min);
/* Piece i of s, which borrows from both. */
ek_step ek_microbatches_step(const ek_microbatches *p, const ek_step *s, int i);
/* The microbatch that has the i-th row of logits of the step. */
int ek_microbatches_with(const ek_microbatches *p, int i);

#endif
