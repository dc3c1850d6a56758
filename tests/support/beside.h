/* An executor that computes beside the host, made of one that does not (ek_executor.begin): what is begun is computed
 * at once, and given out at the end. Now and then it refuses a step behind another, or fails at the end of a step that
 * has one behind it, or loses a step whose draws come later. */
#ifndef TESTS_SUPPORT_BESIDE_H
#define TESTS_SUPPORT_BESIDE_H

#include "engine/executor.h"
#include "engine/sample/sampler.h"

typedef struct beside_step {
    int32_t *token; /* of its draws */
    int n_draws;
    uint64_t *digest; /* [max_logits] */
} beside_step;

typedef struct beside {
    ek_executor inner;
    ek_executor_sizes sizes;
    beside_step step[2];
    uint64_t n_begun, n_ended; /* steps */
    float *logits;             /* rows that are shown, of all steps: one behind another shows none */
    float *late;               /* all rows of the step whose draws come later */
    bool *all;                 /* [max_logits]: true */
    bool waits;                /* for these */
    ek_sampler *sampler;
    ek_row *row;
    ek_draw *draw;
    uint64_t followed, refused, failed, lost; /* how often */
    uint64_t drawn_late;                      /* steps begun behind others that drew later */
    uint64_t prompts;                         /* rows of prompts in steps behind others */
    bool obliging;                            /* refuses nothing, never fails */
    bool draws_at_once;                       /* no step draws later */
} beside;

/* b: zero but for the last two, and lives as long as the executor. */
ek_executor beside_executor(beside *b, ek_executor inner);

#endif
