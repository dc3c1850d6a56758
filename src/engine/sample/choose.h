/* The largest values of a row in order (value descending, index ascending), as many as the caller takes, without
 * sorting the rest. A bound from block maxima leaves few values, and a heap returns them one by one; the work grows
 * with the number of taken values. */
#ifndef EK_ENGINE_CHOOSE_H
#define EK_ENGINE_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ek_candidate {
    float z;
    int32_t id;
} ek_candidate;

typedef struct ek_choose {
    int cap;            /* maximum length of a row */
    ek_candidate *item; /* [0, n_heap): the heap; returned candidates are stored from the end down */
    float *block;       /* block maxima, and a copy for selection */
    const float *z;     /* borrowed from one start to the next */
    int n_heap, n_returned, n_again;
    float bound;       /* values below it are not in the heap yet */
    int hint;          /* estimated number of values above the bound */
    bool started, all; /* all: no values remain below the bound */
} ek_choose;

void ek_choose_init(ek_choose *c, int cap);
void ek_choose_fini(ek_choose *c);

/* Starts with the largest of z[0..cap); about `hint` values will be taken. No NaN. -INFINITY is no value, so a mostly
 * masked row costs only its block maxima. */
void ek_choose_start(ek_choose *c, const float *z, int hint);
/* The next candidate; false after the last. */
bool ek_choose_next(ek_choose *c, ek_candidate *out);
/* Restarts with the first candidate. */
void ek_choose_again(ek_choose *c);

#endif
