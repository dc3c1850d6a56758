/* `selftest`: requests, ways of running them, and rows. Inside src/cli/selftest. */
#ifndef EK_CLI_SELFTEST_SELFTEST_H
#define EK_CLI_SELFTEST_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/frame/open.h"
#include "engine/engine.h"
#include "engine/trace.h"

/* Numbers of requests, of tokens per reply and per request, and of tokens of the reply to a long prompt. */
enum { EK_SELFTEST_ASKS = 6, EK_SELFTEST_REPLY = 12, EK_SELFTEST_CTX = 512, EK_SELFTEST_LONG_REPLY = 4 };

typedef struct ek_selftest {
    const ek_cli *cli;
    ek_buf path;
    ek_open_opts open;
    ek_model_opts opts;
    ek_pool *pool;
    ek_model *model;
    ek_gpu *gpu;        /* the device, or NULL */
    ek_ranks *ranks;    /* several devices, or NULL */
    bool on_device;     /* the next requests run there */
    double macs;        /* multiply-adds per row */
    double device_rate; /* tokens per second of the device's first row; 0: not run yet */
    int ctx;
    int32_t tokens[EK_SELFTEST_ASKS][EK_SELFTEST_CTX];
    ek_ask ask[EK_SELFTEST_ASKS];
    ek_trace want[EK_SELFTEST_ASKS]; /* results of each request alone */
    ek_trace deep;                   /* the deep prompt's result alone; n_reply 0: not run yet */
    int passed, failed;
} ek_selftest;

/* A way of running the requests. Zero means as for a request alone. */
typedef struct ek_way {
    const char *name;
    int max_requests, chunk;
    bool drafted; /* with a drafter that is right and wrong at random */
    bool scarce;  /* pages suffice for prompts only, so the youngest requests start over */
    bool digests; /* digests instead of reply rows, so that a device's step may begin before the previous one ends */
    int arrive;   /* number of steps over which requests arrive */
    int max_rows; /* leaves out requests with more rows */
} ek_way;

/* Opens the model at t->path again, with its own pool. */
ek_err ek_selftest_open_model(ek_selftest *t, int threads, unsigned cpu);
void ek_selftest_close_model(ek_selftest *t);

/* Makes the requests for t->model, and runs each alone into t->want. */
void ek_selftest_grow(ek_selftest *t);
ek_err ek_selftest_alone(ek_selftest *t);

/* Selects the requests that w runs and returns their number. */
int ek_selftest_pick(const ek_selftest *t, const ek_way *w, int *which);
/* Runs these n requests into got. */
ek_err ek_selftest_run(ek_selftest *t, const ek_way *w, const int *which, int n, ek_trace *got, ek_engine_stats *stats);
/* Runs one request of n tokens, on the device or the CPU; out: every row of its reply's logits. */
ek_err ek_selftest_run_long(ek_selftest *t, const ek_way *w, const int32_t *tokens, int n, bool device, ek_trace *out);

/* ------------------------------------------------------------------ the announcement */

typedef struct ek_selftest_plan {
    int n_requests, n_tokens; /* prompts and replies together */
    int n_ways, n_cached;     /* rows about company, and about caches */
    int n_deep;               /* tokens of the row about depth */
    int threads, n_threads;   /* maximum threads; number of thread counts */
    bool device_only;
    double macs;  /* multiply-adds of a token */
    double alone; /* seconds of the requests alone */
} ek_selftest_plan;

/* Prints the rows and their approximate time, estimated from the requests' time alone. */
void ek_selftest_announce(const ek_selftest_plan *p);

/* ------------------------------------------------------------------ special rows: caches, formats, media */

typedef struct ek_cached_row {
    const char *name;
    /* Runs requests over cached pages and compares them with want[0..n), the results of ask[0..n) alone. did (room
     * bytes) describes the run. False: `where` has the difference, or the reason why the row proved nothing. */
    bool (*run)(ek_model *m, const ek_ask *ask, const ek_trace *want, int n, int ctx, char *did, char *where,
                size_t room);
} ek_cached_row;

extern const ek_cached_row ek_cached_rows[];
extern const int ek_n_cached_rows;

/* Tests every format of keys and values, not only that of --kv, on a small synthetic model, and again with the first
 * positions in bf16 where this makes a difference. Compares the instruction set with the plain definition: alone,
 * beside a request in chunks, and over cached pages. did (room bytes) describes the run. False: `where` has the
 * difference. */
bool ek_selftest_kv_formats(unsigned cpu, char *did, char *where, size_t room);

/* Runs prompts with two drawn pictures or two sounds (kind), and one without, alone and then together, in all chunks
 * and twice. The towers take the kind. did (room bytes) describes the run. False: `where` has the difference, or the
 * reason why the row proved nothing. */
bool ek_selftest_media(ek_model *m, ek_towers *t, ek_part_kind kind, uint64_t seed, char *did, char *where,
                       size_t room);

#endif
