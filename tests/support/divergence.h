/* How far rows of logits are from a reference: Kullback-Leibler divergence and first choices. */
#ifndef EK_TESTS_SUPPORT_DIVERGENCE_H
#define EK_TESTS_SUPPORT_DIVERGENCE_H

#include <stddef.h>

typedef struct divergence {
    int rows;
    double sum, max; /* KL(reference || row) in nats; infinite if a row holds NaN or infinity */
    int flips;       /* rows whose argmax differs although the reference gives its own p > 0.6 */
    double squares;  /* of the differences of logits */
    size_t logits;
} divergence;

/* What a test allows. The rms counts where random weights make one token all but certain: KL sees little there. */
typedef struct divergence_bound {
    double mean, max; /* KL in nats */
    double rms;       /* root mean square difference of logits */
} divergence_bound;

/* Adds one row of n logits. */
void divergence_add(divergence *d, const double *reference, const float *row, size_t n);
void divergence_add_f32(divergence *d, const float *reference, const float *row, size_t n);

/* Prints "measured: NAME: …" (tools/check/run.sh shows such lines) and fails the test where a value is above its
 * bound or a first choice flipped. */
void divergence_check(const divergence *d, const char *name, divergence_bound bound);

#endif
