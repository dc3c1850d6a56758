/* What this machine can do at best, measured: the limits that bench compares with. */
#ifndef EK_CLI_PEAK_H
#define EK_CLI_PEAK_H

#include <stdint.h>

#include "base/pool.h"

/* Bytes a second that all threads together read from memory, in one stream each, over a
 * buffer much larger than the caches; the best of several passes. ENOMEM. */
ek_err ek_peak_read(ek_pool *pool, double *bytes_per_second);

/* 8-bit multiply-adds a second of all threads together, by the widest instruction of cpu, named
 * in *what: VPDPBUSD, PMADDUBSW, or NULL with 0 where there is neither. */
double ek_peak_int8(ek_pool *pool, unsigned cpu, const char **what);

/* The loops: rounds times the multiply-adds returned. The operands stay in registers. */
typedef double ek_peak_fn(int64_t rounds, int32_t *sink);
ek_peak_fn ek_peak_vpdpbusd_avx512, ek_peak_pmaddubsw_avx2;

#endif
