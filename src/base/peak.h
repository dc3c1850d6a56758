/* What this machine can do at best, for measurements to be compared with: `bench` and the programs of
 * bench/. A machine that is shared changes from second to second, its memory by a factor of two, so a limit
 * is measured again beside every measurement, with the same threads. Each call does its work once, in all
 * threads of pool, and returns how much it was; the caller has the clock. cpu: EK_CPU_ bits that may be
 * used. */
#ifndef EK_BASE_PEAK_H
#define EK_BASE_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* Reads [data, data + bytes) from memory, in one stream per thread; data is 64-byte aligned. Returns the
 * bytes read, bytes rounded down to 64 KiB. Make it much larger than the caches, and written before. */
double ek_peak_read(ek_pool *pool, unsigned cpu, const void *data, size_t bytes);

/* Multiply-adds of 8-bit integers by the widest instruction, and of f32; the operands stay in registers.
 * About 30 ms. 0 without AVX2. */
double ek_peak_int8(ek_pool *pool, unsigned cpu);
double ek_peak_f32(ek_pool *pool, unsigned cpu);
/* The instruction of ek_peak_int8: VPDPBUSD, PMADDUBSW, or NULL. */
const char *ek_peak_int8_name(unsigned cpu);

/* The loops. Each multiplies EK_PEAK_ROUNDS times 12 registers; read takes EK_PEAK_CHUNK bytes. What they
 * return only keeps the compiler from leaving them out. */
enum { EK_PEAK_ROUNDS = 1 << 23, EK_PEAK_CHUNK = 64 << 10 };
typedef int64_t ek_peak_read_fn(const void *chunk);
typedef int64_t ek_peak_multiply_fn(void);
ek_peak_read_fn ek_peak_read_avx512;
ek_peak_multiply_fn ek_peak_int8_avx2, ek_peak_int8_avx512, ek_peak_f32_avx2, ek_peak_f32_avx512;

#endif
