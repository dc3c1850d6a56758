/* A histogram of positive values in bins of doubling width: counting is cheap, and the relative error of a quantile is
 * bounded. Not synchronised. */
#ifndef EK_BASE_HISTOGRAM_H
#define EK_BASE_HISTOGRAM_H

#include <stdint.h>
#include <stdlib.h>

enum { EK_HISTOGRAM_BINS = 24 };
#define EK_HISTOGRAM_SECONDS 1e-4 /* first bound for times: 0.1 ms to 839 s */
#define EK_HISTOGRAM_MICRO   1e-6 /* first bound for short times: 1 us to 8.4 s */
#define EK_HISTOGRAM_COUNTS  1.0  /* first bound for counts */

/* Zero-initialise. bin[i] counts values above the previous bound up to first * 2^i; the last bin all larger ones. */
typedef struct ek_histogram {
    uint64_t bin[EK_HISTOGRAM_BINS + 1];
    double sum;
} ek_histogram;

static inline void ek_histogram_add(ek_histogram *h, double first, double value)
{
    int i = 0;
    for (double bound = first; i < EK_HISTOGRAM_BINS && value > bound; bound *= 2) i++;
    h->bin[i]++;
    h->sum += value;
}

/* --- medians and quantiles of measurements --- */

static inline int ek_ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v[0..n), n > 0. */
static inline double ek_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ek_ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

#endif
