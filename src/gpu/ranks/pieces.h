/* A step with many rows of prompts in pieces, so that devices compute at the same time: while the second has a piece,
 * the first has the one behind it. Each piece is a step of its own, which changes no bit (a chunk never does). Rows
 * that want logits, and all draws, are in the last one. */
#ifndef EK_GPU_RANKS_PIECES_H
#define EK_GPU_RANKS_PIECES_H

#include "engine/executor.h"

enum { EK_PIECES = 4 }; /* at most */

typedef struct ek_pieces {
    ek_row *row; /* [max_rows]: of all pieces, one behind the other */
    int first[EK_PIECES + 1];
    int n;
} ek_pieces;

void ek_pieces_open(ek_pieces *p, int max_rows);
void ek_pieces_close(ek_pieces *p);

/* Cuts s into at most max pieces of about as many rows, each of `min` or more; one if there are too few that can go in
 * front of others: rows behind which nothing of their sequence is seen from in front, and which want no logits. */
void ek_pieces_cut(ek_pieces *p, const ek_step *s, int max, int min);
/* Piece i of s, which borrows from both. */
ek_step ek_pieces_step(const ek_pieces *p, const ek_step *s, int i);

#endif
