/* What selftest is about to do. Inside src/cli. */
#ifndef EK_CLI_SELFTEST_SELFTEST_PLAN_H
#define EK_CLI_SELFTEST_SELFTEST_PLAN_H

#include <stdbool.h>

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

#endif
