/* Until the first token of a question with a picture or a sound. */
#ifndef EK_CLI_BENCH_FIRST_H
#define EK_CLI_BENCH_FIRST_H

#include "media/part/part.h"
#include "open/open.h"

/* Seconds from submit to the first token of a prompt of n tokens and, between its halves, m with the tokens around it;
 * then of the same prompt again, whose features and pages are kept. No two calls have the same tokens. */
ek_err ek_bench_first(const ek_opened *o, ek_media *m, int n, double *first, double *again);

/* The context that such a prompt needs. */
int ek_bench_first_context(int tokens, int n);

#endif
