/* The row of selftest about formats of keys and values: every one, whatever --kv says. */
#ifndef EK_CLI_SELFTEST_KV_H
#define EK_CLI_SELFTEST_KV_H

#include <stdbool.h>
#include <stddef.h>

/* A small made model in each format, the first positions in bf16 too where that differs: the instruction set against
 * the plain definition; alone, with another request in chunks, and over cached pages. False: where says what differs.
 * did (room bytes) gets what was done. */
bool ek_selftest_kv_formats(unsigned cpu, char *did, char *where, size_t room);

#endif
