/* Measuring an engine: how fast it takes prompts and generates. */
#ifndef EK_CLI_BENCH_H
#define EK_CLI_BENCH_H

#include "engine/engine.h"

/* Each measurement is repeated `runs` times, but not begun again once a row has taken this
 * long; the median counts. */
enum { EK_BENCH_SECONDS = 30 };

/* Tokens a second of one prompt of n tokens, from submit to its first reply token. */
ek_err ek_bench_prompt(ek_engine *e, int n, int runs, double *per_second);

/* Steps a second of `batch` requests that all generate, with depth tokens before; each step
 * makes one token of each. */
ek_err ek_bench_generate(ek_engine *e, int batch, int depth, int n_steps, int runs, double *per_second);

/* Context that ek_bench_generate needs: while the last prompts are taken in, the first
 * requests already generate. */
int ek_bench_context(int batch, int depth, int n_steps, int chunk);

#endif
