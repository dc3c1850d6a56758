#include "cli/selftest/selftest_plan.h"

#include <math.h>
#include <stdio.h>

#include "base/machine/cpu.h"

/* The scalar definition: multiply-adds a second, about, and how many its row is cut to. */
static const double SCALAR_RATE = 3e8, SCALAR_LIMIT = 5e9;
enum { FORMATS = 6 }; /* seconds of the row of formats, which needs no model */

/* In words that promise no more than is known. */
static void about_text(char out[32], double seconds)
{
    if (seconds < 90) snprintf(out, 32, "%.0f s", 5 * ceil(seconds / 5));
    else snprintf(out, 32, "%.0f minutes", ceil(seconds / 60));
}

void ek_selftest_announce(const ek_selftest_plan *p)
{
    char time[32];
    int n_isas = 0;
    while (ek_cpu_isas()[n_isas]) n_isas++;
    double scalar = p->n_tokens * p->macs < SCALAR_LIMIT ? p->n_tokens * p->macs : SCALAR_LIMIT;
    double runs = p->n_ways + 2 * p->n_cached + 2 * p->n_threads + p->threads + 2 * n_isas;
    const double deep = 2 * p->alone * p->n_deep / p->n_tokens;
    about_text(time, p->device_only ? 10 * p->alone : runs * p->alone + deep + FORMATS + scalar / SCALAR_RATE);
    printf("%d requests run alone, and then in other ways; each row of logits must have the same bits.\n",
           p->n_requests);
    if (p->device_only) printf("%d ways on the device, about %s.\n\n", p->n_ways + 2, time);
    else
        printf(
            "%d rows: together, late, in chunks, interrupted, drafted, cached, deep, in every --kv, on 1 to %d threads,\n"
            "on %d instruction sets, the plain C definition (scalar) last; about %s.\n\n",
            p->n_ways + p->n_cached + 1 + p->n_threads + n_isas, p->threads, n_isas, time);
    fflush(stdout);
}
