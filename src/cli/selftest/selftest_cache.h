/* Rows of selftest about the prefix cache. */
#ifndef EK_CLI_SELFTEST_CACHE_H
#define EK_CLI_SELFTEST_CACHE_H

#include "engine/engine.h"
#include "engine/trace.h"

typedef struct ek_cached_row {
    const char *name;
    /* Runs requests over cached pages and compares them with cold ones: ask[0..n) gave want[0..n) alone. False: where
     * says what differs, or why the row proved nothing. did (room bytes) gets what was done. */
    bool (*run)(ek_model *m, const ek_ask *ask, const ek_trace *want, int n, int ctx, char *did, char *where,
                size_t room);
} ek_cached_row;

extern const ek_cached_row ek_cached_rows[];
extern const int ek_n_cached_rows;

#endif
