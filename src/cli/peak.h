/* What this machine can do at best, measured: the limits that bench compares with. */
#ifndef EK_CLI_PEAK_H
#define EK_CLI_PEAK_H

#include <stdint.h>

#include "base/pool.h"

/* A machine that is shared changes from second to second, its memory by a factor of two: a limit
 * is measured again beside every measurement that is compared with it. pool is borrowed. */
typedef struct ek_peak ek_peak;

ek_err ek_peak_open(ek_peak **out, ek_pool *pool, unsigned cpu); /* ENOMEM */
void ek_peak_close(ek_peak *p);

/* Bytes a second that all threads together read from memory, in one stream each, once over a
 * buffer much larger than the caches. */
double ek_peak_read(ek_peak *p);

/* 8-bit multiply-adds a second of all threads together, by the widest instruction of cpu, over
 * about 50 ms; 0 where there is none. */
double ek_peak_int8(ek_peak *p);
const char *ek_peak_int8_name(const ek_peak *p); /* VPDPBUSD, PMADDUBSW, or NULL */

/* The loops: rounds times the multiply-adds returned. The operands stay in registers. */
typedef double ek_peak_fn(int64_t rounds, int32_t *sink);
ek_peak_fn ek_peak_vpdpbusd_avx512, ek_peak_pmaddubsw_avx2;

#endif
