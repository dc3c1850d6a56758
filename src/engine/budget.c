#include "engine/budget.h"

#include <limits.h>

#include "cache/table.h"

static const double MIB = 1048576;

static double stride(const ek_kv_layout *layout, ek_layer_kind kind)
{
    const int one[EK_KIND_COUNT] = {[EK_SLIDING] = kind == EK_SLIDING, [EK_FULL] = kind == EK_FULL};
    return (double)ek_pages_bytes(layout, one);
}

static int at_most(double pages)
{
    return pages > INT_MAX / 2 ? INT_MAX / 2 : pages > 0 ? (int)pages : 0;
}

ek_err ek_budget_plan(ek_budget *b, const ek_kv_layout *layout, int max_requests, int ctx, int chunk, double limit,
                      bool shrink)
{
    double full = stride(layout, EK_FULL), sliding = stride(layout, EK_SLIDING);
    /* One request alone must always finish, if need be with chunks of one row. */
    int least = ek_table_most(layout, EK_SLIDING, ctx, 1), ample = ek_table_most(layout, EK_SLIDING, ctx, chunk);
    int whole = ek_table_most(layout, EK_FULL, ctx, chunk);
    double most = max_requests * (whole * full + ample * sliding);
    if (limit > most) limit = most;

    double n_sliding = sliding > 0 ? limit * (full > 0 ? 0.5 : 1) / sliding : 0;
    if (n_sliding > (double)max_requests * ample) n_sliding = (double)max_requests * ample;
    if (n_sliding < least) n_sliding = least;
    b->n_pages[EK_SLIDING] = at_most(n_sliding);

    double rest = limit - b->n_pages[EK_SLIDING] * sliding;
    double n_full = full > 0 ? rest / full : 0;
    if (n_full > (double)max_requests * whole) n_full = (double)max_requests * whole;
    b->n_pages[EK_FULL] = at_most(n_full);
    b->ctx = ctx;
    b->bytes = (double)ek_pages_bytes(layout, b->n_pages);

    bool fits = rest >= 0 && b->n_pages[EK_FULL] >= whole;
    if (fits) return EK_OK;
    if (!shrink || rest < full)
        return ek_fail(EK_ENOMEM, "one context of %d tokens needs %.1f MiB for keys and values, %.1f MiB are allowed",
                       ctx, (whole * full + least * sliding) / MIB, limit / MIB);
    b->ctx = b->n_pages[EK_FULL] * EK_PAGE_TOKENS;
    return EK_OK;
}
