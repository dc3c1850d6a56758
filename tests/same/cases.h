/* The ways in which requests can share work: one row each. */
#ifndef TESTS_SAME_CASES_H
#define TESTS_SAME_CASES_H

#include "scene.h"

/* Runs the scene in one or more companies and gives every run to check: got[i] is the trace
 * of the scene's request which[i]. */
typedef bool check_fn(void *arg, const char *variant, const ek_trace *got, const int *which, int n);

typedef struct same_case {
    const char *name;
    ek_err (*run)(const scene *s, company *base, check_fn *check, void *arg);
    const char *what;
} same_case;

ek_err masked(const scene *s, company *base, check_fn *check, void *arg); /* masked.c */

extern const same_case cases[];
extern const int n_cases;

#endif
