/* Medians and quantiles of measurements. */
#ifndef EK_BASE_MEDIAN_H
#define EK_BASE_MEDIAN_H

#include <stdlib.h>

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
