/* The memory for keys and values: how much, and how it is split between the pools of full and sliding pages. */
#ifndef EK_ENGINE_BUDGET_H
#define EK_ENGINE_BUDGET_H

#include <stdbool.h>

#include "ops/kv/kv.h"

typedef struct ek_budget {
    int n_pages[EK_PAGE_KINDS];
    int ctx; /* longest context that one request can always finish */
    double bytes;
} ek_budget;

double ek_budget_bytes(const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS]);

/* Pages for max_requests contexts of ctx tokens with prompt chunks of `chunk` rows, cut to
 * `limit` bytes if that is less. Sliding pages are bounded per request, so all requests
 * get theirs as long as they take no more than half; the rest is for full layers, and what these cannot use for sliding
 * ones again. Pages of first positions come before that: for all requests as long as they take no more than a quarter.
 * ENOMEM with both numbers when one request of ctx tokens does not fit; if shrink, ctx is
 * lowered instead to what does (at least one page). */
ek_err ek_budget_plan(ek_budget *b, const ek_kv_layout *layout, int max_requests, int ctx, int chunk, double limit,
                      bool shrink);

/* For people: bytes of keys and values that a token takes in layers of a kind (in sliding ones while it is in their
 * window), that a request of ctx tokens takes in all, and how many such requests fit into the pages, or into bytes. */
double ek_budget_token_bytes(const ek_kv_layout *layout, ek_layer_kind kind);
double ek_budget_request_bytes(const ek_kv_layout *layout, int ctx);
int ek_budget_requests(const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS], int ctx);
int ek_budget_requests_in(const ek_kv_layout *layout, double bytes, int ctx);

/* How many requests a device with so many bytes for pages shall run at once where nobody says it: 128, 64 or 32, the
 * largest of which each can have EK_BUDGET_EACH tokens, or ctx if that is less; else as many as a CPU, 16. */
enum { EK_BUDGET_EACH = 8192, EK_BUDGET_REQUESTS = 128 };
int ek_budget_max_requests(const ek_kv_layout *layout, double bytes, int ctx);

#endif
