#include "divergence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

/* x[i] -= ln(sum of exp(x)); returns the argmax. */
static size_t log_softmax(double *x, size_t n)
{
    size_t best = 0;
    double sum = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    double top = x[best];
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - top);
    for (size_t i = 0; i < n; i++) x[i] -= top + log(sum);
    return best;
}

void divergence_add(divergence *d, const double *reference, const float *row, size_t n)
{
    double *p = ek_alloc(sizeof *p * n), *q = ek_alloc(sizeof *q * n), kl = 0;
    for (size_t i = 0; i < n; i++) {
        p[i] = reference[i], q[i] = (double)row[i];
        d->squares += (p[i] - q[i]) * (p[i] - q[i]);
    }
    d->logits += n;
    size_t first = log_softmax(p, n), got = log_softmax(q, n);
    for (size_t i = 0; i < n; i++) kl += exp(p[i]) * (p[i] - q[i]);
    if (!isfinite(kl)) kl = INFINITY;
    d->rows++;
    d->sum += kl;
    if (kl > d->max) d->max = kl;
    d->flips += first != got && exp(p[first]) > 0.6;
    free(p), free(q);
}

void divergence_add_f32(divergence *d, const float *reference, const float *row, size_t n)
{
    double *wide = ek_alloc(sizeof *wide * n);
    for (size_t i = 0; i < n; i++) wide[i] = (double)reference[i];
    divergence_add(d, wide, row, n);
    free(wide);
}

void divergence_check(const divergence *d, const char *name, divergence_bound bound)
{
    double mean = d->rows ? d->sum / d->rows : INFINITY,
           rms = d->rows ? sqrt(d->squares / (double)d->logits) : INFINITY;
    print_message(
        "measured: %s: mean KL %.2g of %.2g, largest %.2g of %.2g, logits' rms %.2g of %.2g, %d flips, %d rows\n", name,
        mean, bound.mean, d->max, bound.max, rms, bound.rms, d->flips, d->rows);
    if (!(mean <= bound.mean)) fail_msg("%s: mean KL %g, bound %g", name, mean, bound.mean);
    if (!(d->max <= bound.max)) fail_msg("%s: largest KL %g, bound %g", name, d->max, bound.max);
    if (!(rms <= bound.rms)) fail_msg("%s: rms difference of logits %g, bound %g", name, rms, bound.rms);
    if (d->flips) fail_msg("%s: %d tokens with p > 0.6 are no longer the first choice", name, d->flips);
}
