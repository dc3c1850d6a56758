/* A step in pieces, so that devices compute at the same time: while the second device computes a piece, the first
 * computes the next piece. Each piece is a step of its own. This changes no bit, as chunks change none.
 *
 * A step with many prompt rows has its rows with logits, and all draws, in the last piece. A step of replies begun
 * behind another step has some sequences in each piece, with their own draws and rows of logits. Such a piece waits
 * only for the draws that it follows, so the first device has a piece while the last one has the next piece of the step
 * in front. */
#ifndef EK_GPU_RANKS_PIECES_H
#define EK_GPU_RANKS_PIECES_H

#include "engine/executor.h"

enum { EK_PIECES = 4 }; /* at most */

typedef struct ek_pieces {
    ek_row *row;  /* [max_rows]: of all pieces, one behind the other; not in turns, whose rows stay where they are */
    int *follows; /* [max_rows]: likewise, of a step begun behind another */
    int first[EK_PIECES + 1];
    int n;
    bool turns;           /* row i has draw i and the i-th row of logits: pieces have their own */
    int after[EK_PIECES]; /* of a step begun behind another: the piece of that one behind which its draws are there */
} ek_pieces;

void ek_pieces_open(ek_pieces *p, int max_rows);
void ek_pieces_close(ek_pieces *p);

/* Cuts s into at most max pieces of about as many rows, each of `min` or more; one if there are too few that can go in
 * front of others: rows behind which nothing of their sequence is seen from in front, and which want no logits. front:
 * of the step behind which it begins, whose draws rows of the last piece may follow; NULL: of none. */
void ek_pieces_cut(ek_pieces *p, const ek_step *s, const ek_pieces *front, int max, int min);
/* Cuts s, which follows draws of the step that `front` has, into at most max pieces of about as many sequences, of
 * `min` or more; into one where there are too few, or where sequences have more rows, or another order, than draws in
 * front. A sequence stays in its piece while these have about as many. */
void ek_pieces_follow(ek_pieces *p, const ek_step *s, const ek_pieces *front, int max, int min);
/* Piece i of s, which borrows from both. */
ek_step ek_pieces_step(const ek_pieces *p, const ek_step *s, int i);
/* The piece that has the i-th row of logits of the step. */
int ek_pieces_with(const ek_pieces *p, int i);

#endif
