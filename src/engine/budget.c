#include "engine/budget.h"

#include <limits.h>

#include "cache/page_table.h"

static const double MIB = 1048576;

double ek_budget_bytes(const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS])
{
    double bytes = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) bytes += (double)layout->page_bytes[k] * n_pages[k];
    return bytes;
}

static int page_count(double pages)
{
    return pages > INT_MAX / 2 ? INT_MAX / 2 : pages > 0 ? (int)pages : 0;
}

/* Bytes of one request's pages of first positions. */
static double start_bytes(const ek_kv_layout *layout, int ctx, int chunk)
{
    double bytes = 0;
    for (int k = EK_KIND_COUNT; k < EK_PAGE_KINDS; k++)
        bytes += (double)layout->page_bytes[k] * ek_page_table_max(layout, (ek_layer_kind)k, ctx, chunk);
    return bytes;
}

ek_err ek_budget_plan(ek_budget *b, const ek_kv_layout *layout, int max_requests, int ctx, int chunk, double limit,
                      bool shrink)
{
    double full = (double)layout->page_bytes[EK_FULL], sliding = (double)layout->page_bytes[EK_SLIDING];
    /* One request alone must always be able to finish, if need be with chunks of one row. */
    int min = ek_page_table_max(layout, EK_SLIDING, ctx, 1), ample = ek_page_table_max(layout, EK_SLIDING, ctx, chunk);
    int whole = ek_page_table_max(layout, EK_FULL, ctx, chunk);
    double start = start_bytes(layout, ctx, chunk), max = max_requests * (whole * full + ample * sliding + start);
    bool all = limit >= max; /* all requests have their sliding pages */
    if (all) limit = max;

    int starts = all || start * max_requests <= limit / 4 ? max_requests : page_count(limit / 4 / start);
    if (starts < 1) starts = 1;
    for (int k = EK_KIND_COUNT; k < EK_PAGE_KINDS; k++)
        b->n_pages[k] = starts * ek_page_table_max(layout, (ek_layer_kind)k, ctx, chunk);
    const double given = limit;
    limit -= starts * start;

    double n_sliding = sliding > 0 ? limit * (full > 0 && !all ? 0.5 : 1) / sliding : 0;
    if (n_sliding > (double)max_requests * ample) n_sliding = (double)max_requests * ample;
    if (n_sliding < min) n_sliding = min;
    b->n_pages[EK_SLIDING] = page_count(n_sliding);

    double rest = limit - b->n_pages[EK_SLIDING] * sliding;
    double n_full = full > 0 ? rest / full : 0;
    if (n_full > (double)max_requests * whole) {
        n_full = (double)max_requests * whole;
        n_sliding = sliding > 0 ? (limit - n_full * full) / sliding : 0;
        if (n_sliding > (double)max_requests * ample) n_sliding = (double)max_requests * ample;
        b->n_pages[EK_SLIDING] = page_count(n_sliding);
    }
    b->n_pages[EK_FULL] = page_count(n_full);
    b->ctx = ctx;
    b->bytes = ek_budget_bytes(layout, b->n_pages);

    bool fits = rest >= 0 && b->n_pages[EK_FULL] >= whole;
    if (fits) return EK_OK;
    if (!shrink || rest < full)
        return ek_fail(EK_ENOMEM, "one context of %d tokens needs %.1f MiB for keys and values, %.1f MiB are allowed",
                       ctx, (whole * full + min * sliding + start) / MIB, given / MIB);
    b->ctx = (layout->n_start + b->n_pages[EK_FULL]) * EK_PAGE_TOKENS;
    return EK_OK;
}

double ek_budget_token_bytes(const ek_kv_layout *layout, ek_layer_kind kind)
{
    return (double)layout->page_bytes[kind] / EK_PAGE_TOKENS;
}

double ek_budget_request_bytes(const ek_kv_layout *layout, int ctx)
{
    double bytes = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++)
        bytes += (double)layout->page_bytes[k] * ek_page_table_max(layout, (ek_layer_kind)k, ctx, 1);
    return bytes;
}

int ek_budget_requests(const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS], int ctx)
{
    int n = INT_MAX;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        const int each = ek_page_table_max(layout, (ek_layer_kind)k, ctx, 1);
        if (each > 0 && n_pages[k] / each < n) n = n_pages[k] / each;
    }
    return n;
}

int ek_budget_max_requests(const ek_kv_layout *layout, double bytes, int ctx)
{
    enum { LEAST = 16 };
    const int fit = ek_budget_requests_in(layout, bytes, ctx < EK_BUDGET_EACH ? ctx : EK_BUDGET_EACH);
    int n = EK_BUDGET_REQUESTS;
    while (n > LEAST && n > fit) n /= 2;
    return n;
}

int ek_budget_requests_in(const ek_kv_layout *layout, double bytes, int ctx)
{
    return page_count(bytes / ek_budget_request_bytes(layout, ctx));
}
