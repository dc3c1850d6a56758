/* What this machine can do at this moment, measured with the same threads as the kernel under
 * test: other work on the machine then slows both alike. */
#ifndef EK_BENCH_PROBE_H
#define EK_BENCH_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* Bytes a second when all threads read [data, data + bytes) once, in chunks of 64 KiB. */
double probe_read(ek_pool *pool, const uint8_t *data, size_t bytes);
/* int8 multiply-adds a second of all threads in a loop of nothing else; 0 without the instruction. */
double probe_macs(ek_pool *pool);

uint64_t probe_read_chunk(const uint8_t *data, size_t bytes);
int probe_macs_loop(int n); /* n rounds of PROBE_MACS_ROUND multiply-adds */
enum { PROBE_MACS_ROUND = 12 * 64 };

#endif
