/* bench: the speed of an engine and of towers, absolute and as a fraction of a machine limit, and its reports. Inside
 * src/cli/bench. */
#ifndef EK_CLI_BENCH_H
#define EK_CLI_BENCH_H

#include "cli/frame/cli.h"
#include "cli/frame/open.h"
#include "engine/engine.h"
#include "open/open.h"

/* ------------------------------------------------------------------ prompts and generated tokens */

int ek_bench_max(const ek_list *l); /* the largest number of a list; 0: it is empty */

/* Each measurement is repeated `runs` times; no repetition starts after this many seconds. The median counts. */
enum { EK_BENCH_SECONDS = 30 };

/* A limit of the machine, measured before and after each repetition. A repetition's fraction is its speed over the
 * mean of these two measurements; the result is the median fraction. */
typedef struct ek_bench_limit {
    double (*measure)(void *arg); /* returns units per second */
    void *arg;
    double median; /* out: median of all measurements, per second */
} ek_bench_limit;

/* Both fill in *per_second and, as (tokens or steps) per unit of the limit, *per_limit.
 *
 * Tokens per second of one prompt of n tokens, from submit to its first reply token. *again: how many times sooner that
 * token comes when the same prompt is sent once more (median). */
ek_err ek_bench_prompt(ek_engine *e, int n, int runs, ek_bench_limit *limit, double *per_second, double *per_limit,
                       double *again);

/* Steps per second of `batch` requests that all generate, with depth tokens before. Each step makes one token of each
 * request. *prompts: tokens per second of these prompts, from the first submit until the last request generates
 * (median). structured: the number of requests with a mask. Each token of these has a different row. */
ek_err ek_bench_generate(ek_engine *e, int batch, int structured, int depth, int n_steps, int runs,
                         ek_bench_limit *limit, double *per_second, double *per_limit, double *prompts);

/* Context that ek_bench_generate needs: while the last prompts are processed, the first
 * requests already generate. */
int ek_bench_context(int batch, int depth, int n_steps, int chunk);

/* ------------------------------------------------------------------ reports on standard output */

/* A row: a prompt of a number of tokens, or generation by a batch after prompts of a depth. */
typedef struct ek_bench_result {
    bool generate;
    int tokens, batch, depth; /* tokens of a prompt; requests and depth of generation */
    int structured;           /* requests of the batch with a mask */
    double per_second;        /* prompt tokens; steps */
    double per_limit;         /* for the limit measured beside it: multiply-adds per token, or bytes per step */
    double limit;             /* multiply-adds a second; bytes a second */
    double again;             /* for a prompt: how many times sooner its reply begins the second time, from the cache */
    double prompts;           /* for generation at depth: tokens per second of the prompts before it */
    bool offered;             /* a default row, which is left out if it takes too long or does not fit */
    bool left_out;
    double would_take; /* the reason: seconds, */
    double needs;      /* or bytes of keys and values; both 0: the context is too short */
} ek_bench_result;

/* The machine's limits per second: bytes read from memory; multiply-adds of 8-bit integers (vectors, tiles) and of
 * floats. 0: not available. */
typedef struct ek_bench_peaks {
    double read, int8, amx, f32;
} ek_bench_peaks;

typedef struct ek_bench_report {
    const ek_cli *cli;
    const ek_opened *m;
    const char *int8_name; /* the instructions of peaks.int8; NULL on a device, whose limit is not measured */
    unsigned cpu;
    ek_bench_peaks peaks;
    ek_bench_result *row;
    int n_rows;
    int ctx; /* of the engine */
} ek_bench_report;

/* Prints prompts, then generation; each table after lines that explain its columns. Rows that were left out come last,
 * with the reason. */
void ek_bench_print_table(const ek_bench_report *r);

/* One line, without the rows that were left out. */
void ek_bench_print_json(const ek_bench_report *r);

/* ------------------------------------------------------------------ towers */

/* bench --pictures, --sounds: the time of a model's towers, on a CPU beside its limit, or on a device. With
 * --first-token also the time to the first token of a question with a picture or sound. Returns the exit status. */
int ek_bench_towers(const ek_cli *cli);

#endif
