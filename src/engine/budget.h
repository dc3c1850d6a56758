/* The memory for keys and values: how much, and how it is split between the pools of full and sliding pages. */
#ifndef EK_ENGINE_BUDGET_H
#define EK_ENGINE_BUDGET_H

#include <stdbool.h>

#include "ops/kv.h"

typedef struct ek_budget {
    int n_pages[EK_KIND_COUNT];
    int ctx; /* longest context that one request can always finish */
    double bytes;
} ek_budget;

double ek_budget_bytes(const ek_kv_layout *layout, const int n_pages[EK_KIND_COUNT]);

/* Pages for max_requests contexts of ctx tokens with prompt chunks of `chunk` rows, cut to
 * `limit` bytes if that is less. Sliding pages are bounded per request, so all requests
 * get theirs as long as they take no more than half; the rest is for full layers.
 * ENOMEM with both numbers when one request of ctx tokens does not fit; if shrink, ctx is
 * lowered instead to what does (at least one page). */
ek_err ek_budget_plan(ek_budget *b, const ek_kv_layout *layout, int max_requests, int ctx, int chunk, double limit,
                      bool shrink);

#endif
