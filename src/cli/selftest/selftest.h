/* selftest: its requests, ways of running them, and its rows. Inside src/cli/selftest. */
#ifndef EK_CLI_SELFTEST_SELFTEST_H
#define EK_CLI_SELFTEST_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/frame/open.h"
#include "engine/engine.h"
#include "engine/trace.h"

/* Requests, tokens of a reply and of a request; of the reply to a long prompt. */
enum { EK_SELFTEST_ASKS = 6, EK_SELFTEST_REPLY = 12, EK_SELFTEST_CTX = 512, EK_SELFTEST_LONG_REPLY = 4 };

typedef struct ek_selftest {
    const ek_cli *cli;
    ek_buf path;
    ek_open_opts open;
    ek_model_opts opts;
    ek_pool *pool;
    ek_model *model;
    ek_gpu *gpu;     /* the requests run there, */
    ek_ranks *ranks; /* or on several */
    bool on_device;  /* the next ones do */
    double macs;     /* of one row */
    int ctx;
    int32_t tokens[EK_SELFTEST_ASKS][EK_SELFTEST_CTX];
    ek_ask ask[EK_SELFTEST_ASKS];
    ek_trace want[EK_SELFTEST_ASKS]; /* what they gave alone */
    ek_trace deep;                   /* what the deep prompt gave alone, once it was run: n_reply > 0 */
    int passed, failed;
} ek_selftest;

/* One way of running the requests. Zero stands for "as alone". */
typedef struct ek_way {
    const char *name;
    int max_requests, chunk;
    bool drafted; /* by a drafter that is right and wrong at random */
    bool scarce;  /* pages for the prompts, not for the replies: the youngest start over */
    bool digests; /* for the rows of replies, so that a device's step may begin before the one before it has ended */
    int arrive;   /* steps over which arrivals are scattered */
    int max_rows; /* leave out requests beyond this many rows */
} ek_way;

/* Opens the model of t->path anew, with a pool of its own; closed by the other. */
ek_err ek_selftest_open_model(ek_selftest *t, int threads, unsigned cpu);
void ek_selftest_close_model(ek_selftest *t);

/* Makes the requests for t->model, and runs each alone into t->want. */
void ek_selftest_grow(ek_selftest *t);
ek_err ek_selftest_alone(ek_selftest *t);

/* Which of them w runs; returns how many. */
int ek_selftest_pick(const ek_selftest *t, const ek_way *w, int *which);
/* Runs those n into got. */
ek_err ek_selftest_run(ek_selftest *t, const ek_way *w, const int *which, int n, ek_trace *got, ek_engine_stats *stats);
/* One request of n tokens on the device or not; out: every row of its reply's logits. */
ek_err ek_selftest_run_long(ek_selftest *t, const ek_way *w, const int32_t *tokens, int n, bool device, ek_trace *out);

/* ------------------------------------------------------------------ what it is about to do */

typedef struct ek_selftest_plan {
    int n_requests, n_tokens; /* prompts and replies together */
    int n_ways, n_cached;     /* rows about company, and about caches */
    int n_deep;               /* tokens of the row about depth */
    int threads, n_threads;   /* the most, and how many counts are tried */
    bool device_only;
    double macs;  /* multiply-adds of a token */
    double alone; /* seconds that the requests took, one after the other */
} ek_selftest_plan;

/* Prints what the rows will be and about how long they take, which the time alone tells. */
void ek_selftest_announce(const ek_selftest_plan *p);

/* ------------------------------------------------------------------ rows of its own: caches, formats, media */

typedef struct ek_cached_row {
    const char *name;
    /* Runs requests over cached pages and compares them with cold ones: ask[0..n) gave want[0..n) alone. False: where
     * says what differs, or why the row proved nothing. did (room bytes) gets what was done. */
    bool (*run)(ek_model *m, const ek_ask *ask, const ek_trace *want, int n, int ctx, char *did, char *where,
                size_t room);
} ek_cached_row;

extern const ek_cached_row ek_cached_rows[];
extern const int ek_n_cached_rows;

/* Formats of keys and values, every one, whatever --kv says: a small made model in each format, the first positions in
 * bf16 too where that differs: the instruction set against the plain definition; alone, with another request in chunks,
 * and over cached pages. False: where says what differs. did (room bytes) gets what was done. */
bool ek_selftest_kv_formats(unsigned cpu, char *did, char *where, size_t room);

/* Prompts with two drawn pictures, or (kind EK_PART_SOUND) two sounds, and one without, run alone and then together,
 * cut everywhere and twice. The towers take the kind. False: where says what differs, or why the row proved nothing.
 * did (room bytes) gets what was done. */
bool ek_selftest_media(ek_model *m, ek_towers *t, ek_part_kind kind, uint64_t seed, char *did, char *where,
                       size_t room);

#endif
