/* The rate of float32 multiply-adds: n rounds of PROBE_FMA_ROUND in one thread. */
#ifndef EK_BENCH_PROBE_FMA_H
#define EK_BENCH_PROBE_FMA_H

enum { PROBE_FMA_ROUND = 16 * 16 };
float probe_fma_loop(int n);

#endif
