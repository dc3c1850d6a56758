/* What bench has measured, as a table for readers or as JSON for programs, on standard output. */
#ifndef EK_CLI_BENCH_REPORT_H
#define EK_CLI_BENCH_REPORT_H

#include "cli/frame/open.h"

/* A row: a prompt of so many tokens, or generation by a batch behind prompts of a depth. */
typedef struct ek_bench_result {
    bool generate;
    int tokens, batch, depth; /* of a prompt; of generation */
    int structured;           /* of the batch: requests with a mask */
    double per_second;        /* prompt tokens; steps */
    double per_limit;         /* of the limit measured beside it: tokens a multiply-add; steps a byte */
    double limit;             /* multiply-adds a second; bytes a second */
    double again;             /* of a prompt: how many times sooner its reply begins the second time, from the cache */
    double prompts;           /* of generation at depth: tokens per second of the prompts before it */
    bool offered;             /* nobody asked for it: left out where it takes long, or more than there is */
    bool left_out;
    double would_take; /* why, seconds; */
    double needs;      /* or bytes of keys and values; 0 and 0: the context does not hold it */
} ek_bench_result;

/* Of the machine, per second: bytes read from memory; multiply-adds of 8-bit integers (vectors, tiles) and of floats.
 * 0: it has none. */
typedef struct ek_bench_peaks {
    double read, int8, amx, f32;
} ek_bench_peaks;

typedef struct ek_bench_report {
    const ek_cli *cli;
    const ek_opened *m;
    const char *int8_name; /* of the instructions of peaks.int8; NULL on a device, which has no such limit measured */
    unsigned cpu;
    ek_bench_peaks peaks;
    ek_bench_result *row;
    int n_rows;
    int ctx; /* of the engine */
} ek_bench_report;

/* Prompts, then generation; each table behind lines on what its columns are. Rows that were left out come last, with
 * the reason. */
void ek_bench_print_table(const ek_bench_report *r);

/* One line; rows that were left out are not in it. */
void ek_bench_print_json(const ek_bench_report *r);

#endif
