/* The largest values of a row in order (value descending, index ascending), as many as the caller
 * takes, without sorting the rest: a bound from block maxima leaves few values, a heap
 * returns them one by one; work grows with the number of values taken. */
#ifndef EK_ENGINE_CHOOSE_H
#define EK_ENGINE_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ek_candidate {
    float z;
    int32_t id;
} ek_candidate;

typedef struct ek_choose {
    int cap;            /* longest row */
    ek_candidate *item; /* [0, n_heap) the heap; what was returned is stored from the end down */
    float *block;       /* block maxima, and a copy for selection */
    const float *z;     /* borrowed from start until the next one */
    int n_heap, n_returned, n_again;
    float bound;       /* values below it are not in the heap yet */
    int hint;          /* about how many values reach bound */
    bool started, all; /* all: none are left below */
} ek_choose;

void ek_choose_init(ek_choose *c, int cap);
void ek_choose_fini(ek_choose *c);

/* Begins with the largest of z[0..cap); about `hint` of them will be wanted. No NaN. -INFINITY is no value: a row that
 * is mostly masked costs a look at its block maxima. */
void ek_choose_start(ek_choose *c, const float *z, int hint);
/* The next one; false when all were returned. */
bool ek_choose_next(ek_choose *c, ek_candidate *out);
/* Begins again with the first. */
void ek_choose_again(ek_choose *c);

#endif
