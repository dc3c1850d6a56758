/* Peak memory bandwidth and peak multiply-add throughput of this machine, the limits for `bench` and the programs of
 * bench/. On a shared machine these change from second to second, memory bandwidth by a factor of two, so a limit is
 * measured again beside every measurement, with the same threads. Each function does its work once, on all threads of
 * pool, and returns the amount of work; the caller measures the time. cpu: the EK_CPU_ bits that may be used. */
#ifndef EK_BASE_PEAK_H
#define EK_BASE_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "base/machine/pool.h"

/* Writes memory for ek_peak_read; each part is written by a thread of the NUMA node that will read it. */
void ek_peak_fill(ek_pool *pool, void *data, size_t bytes);
/* Reads [data, data + bytes) from memory, in one stream per thread; data is 64-byte aligned. Returns the bytes read,
 * which are bytes rounded down to 64 KiB. The memory should be much larger than the caches, and written before. */
double ek_peak_read(ek_pool *pool, unsigned cpu, const void *data, size_t bytes);

/* Return the number of multiply-adds done: of 8-bit integers by the widest vector instruction (not AMX), and of f32.
 * The operands stay in registers. About 30 ms per call. 0 without AVX2. */
double ek_peak_int8(ek_pool *pool, unsigned cpu);
double ek_peak_f32(ek_pool *pool, unsigned cpu);
double ek_peak_amx(ek_pool *pool, unsigned cpu); /* of 8-bit integers by tiles; 0 without AMX */
/* The instruction of ek_peak_int8: VPDPBUSD, PMADDUBSW, or NULL. */
const char *ek_peak_int8_name(unsigned cpu);

/* The loops, per instruction set. Each multiplies EK_PEAK_ROUNDS times 12 registers; read takes EK_PEAK_CHUNK bytes.
 * The return value only keeps the compiler from removing the loop. */
enum { EK_PEAK_ROUNDS = 1 << 23, EK_PEAK_CHUNK = 64 << 10, EK_PEAK_TILE_ROUNDS = 32 };
typedef int64_t ek_peak_read_fn(const void *chunk);
typedef int64_t ek_peak_multiply_fn(void);
ek_peak_read_fn ek_peak_read_avx512;
ek_peak_multiply_fn ek_peak_int8_avx2, ek_peak_int8_avxvnni, ek_peak_int8_avx512, ek_peak_f32_avx2, ek_peak_f32_avx512,
    ek_peak_int8_amx;

#endif
