/* Numbers for the examples: the same on every machine. */
#ifndef EVENKEEL_EXAMPLES_RANDOM_H
#define EVENKEEL_EXAMPLES_RANDOM_H

#include <evenkeel_ops.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(ek_status status)
{
    if (status == EK_DONE) return;
    fprintf(stderr, "%s: %s\n", ek_status_name(status), ek_last_error());
    exit(2);
}

static float *numbers(size_t n, unsigned seed)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    uint32_t s = seed * 2654435761u + 1;
    size_t i;
    if (!x) exit(2);
    for (i = 0; i < n; i++) {
        int bell = 0, k; /* the sum of four uniform numbers, about normal */
        for (k = 0; k < 4; k++) {
            s = s * 1664525u + 1013904223u;
            bell += (int)(s >> 16) - 32768;
        }
        x[i] = (float)bell / 37837.0f;
    }
    return x;
}

/* How many of n floats have other bits. */
static size_t differing(const float *a, const float *b, size_t n)
{
    size_t d = 0, i;
    for (i = 0; i < n; i++) d += memcmp(a + i, b + i, sizeof *a) != 0;
    return d;
}

#endif
