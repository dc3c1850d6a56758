/* The memory for keys and values: its size, and its division between the pools of full and sliding pages. */
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

/* Plans pages for max_requests contexts of ctx tokens with prompt chunks of `chunk` rows, or for `limit` bytes if those
 * are fewer. Pages of first positions come first: for all requests, while they take at most a quarter of the memory.
 * Then come sliding pages, whose number per request is bounded: for all requests, while they take at most half. The
 * rest is for full layers. Memory that full layers cannot use goes back to sliding ones. ENOMEM with both numbers if
 * one request of ctx tokens does not fit. With shrink, ctx is lowered instead until it fits (at least one page). */
ek_err ek_budget_plan(ek_budget *b, const ek_kv_layout *layout, int max_requests, int ctx, int chunk, double limit,
                      bool shrink);

/* Numbers for people. token_bytes: keys and values of a token in layers of a kind (in sliding ones while it is in the
 * window). request_bytes: a request of ctx tokens. The others: the number of such requests that fit into the pages, or
 * into a number of bytes. */
double ek_budget_token_bytes(const ek_kv_layout *layout, ek_layer_kind kind);
double ek_budget_request_bytes(const ek_kv_layout *layout, int ctx);
int ek_budget_requests(const ek_kv_layout *layout, const int n_pages[EK_PAGE_KINDS], int ctx);
int ek_budget_requests_in(const ek_kv_layout *layout, double bytes, int ctx);

/* The default number of requests at once on a device with `bytes` for pages: the largest of 128, 64 and 32 with which
 * each request can have EK_BUDGET_EACH tokens (or ctx, if that is less), otherwise 16, as on a CPU. */
enum { EK_BUDGET_EACH = 8192, EK_BUDGET_REQUESTS = 128 };
int ek_budget_max_requests(const ek_kv_layout *layout, double bytes, int ctx);

#endif
