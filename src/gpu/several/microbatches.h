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

enum { EK_MICROBATCHES = 4 }; /* maximum */

typedef struct ek_microbatches {
    /* [max_rows]: the rows of all microbatches, one after the other; unused with `turns`, because rows then stay in
     * place. */
    ek_row *row;
    int *follows; /* [max_rows]: likewise, for a step begun after another */
    int first[EK_MICROBATCHES + 1];
    int n;
    bool turns; /* row i has draw i and the i-th row of logits, so each microbatch has its own */
    /* For a step begun after another: the microbatch of that step whose end completes the draws that microbatch i
     * follows. */
    int after[EK_MICROBATCHES];
} ek_microbatches;

void ek_microbatches_open(ek_microbatches *p, int max_rows);
void ek_microbatches_close(ek_microbatches *p);

/* Divides s into at most max microbatches of similar numbers of rows, each at least `min`. One microbatch if too few
 * rows can go first: rows that no earlier row of their sequence's other rows needs, and that want no logits. front: the
 * step before, if s is begun after it; rows of the last microbatch may follow its draws; NULL: none. */
void ek_microbatches_divide(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min);
/* Divides s, which follows draws of the step of `front`, into at most max microbatches of similar numbers of sequences,
 * each at least `min`; one if there are too few, or if sequences have more rows than draws in `front`, or another
 * order. A sequence stays in its microbatch while microbatches have similar sizes. */
void ek_microbatches_follow(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min);
/* Microbatch i of s; borrows from both. */
ek_step ek_microbatches_step(const ek_microbatches *p, const ek_step *s, int i);
/* The microbatch with the step's i-th row of logits. */
int ek_microbatches_with(const ek_microbatches *p, int i);

#endif
