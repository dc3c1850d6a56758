/* Speed of an engine: prompt tokens and generated tokens per second, absolute and as a share of a machine limit. */
#ifndef EK_CLI_BENCH_H
#define EK_CLI_BENCH_H

#include "cli/frame/cli.h"
#include "engine/engine.h"

int ek_bench_max(const ek_list *l); /* the largest number of a list; 0: it is empty */

/* Each measurement is repeated `runs` times; no repetition starts after this many seconds. The median counts. */
enum { EK_BENCH_SECONDS = 30 };

/* A limit of the machine, measured before and after each repetition. A repetition's share is its speed over the mean
 * of these two measurements; the result is the median share. */
typedef struct ek_bench_limit {
    double (*measure)(void *arg); /* returns units per second */
    void *arg;
    double median; /* out: median of all measurements, per second */
} ek_bench_limit;

/* Both fill in *per_second and, as (tokens or steps) per unit of the limit, *per_limit.
 *
 * Tokens per second of one prompt of n tokens, from submit to its first reply token. *again: how many times sooner that
 * token comes when the same prompt is sent once more (median). */
ek_err ek_bench_prompt(ek_engine *e, int n, int runs, ek_bench_limit *limit, double *per_second, double *per_limit,
                       double *again);

/* Steps per second of `batch` requests that all generate, with depth tokens before; each step
 * makes one token of each. *prompts: tokens per second of these prompts, from the first submit until the last request
 * generates (median). structured: of the batch those with a mask, of which every token has another row. */
ek_err ek_bench_generate(ek_engine *e, int batch, int structured, int depth, int n_steps, int runs,
                         ek_bench_limit *limit, double *per_second, double *per_limit, double *prompts);

/* Context that ek_bench_generate needs: while the last prompts are processed, the first
 * requests already generate. */
int ek_bench_context(int batch, int depth, int n_steps, int chunk);

#endif
