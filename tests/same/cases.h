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
ek_err masked_ahead(const scene *s, company *base, check_fn *check, void *arg);
ek_err masked_stored(const scene *s, company *base, check_fn *check, void *arg);
ek_err continued(const scene *s, company *base, check_fn *check, void *arg); /* continued.c */
ek_err stored(const scene *s, company *base, check_fn *check, void *arg);    /* stored.c */
ek_err media(const scene *s, company *base, check_fn *check, void *arg);     /* media.c; nothing without pictures */
ek_err shared(const scene *s, company *base, check_fn *check, void *arg);    /* shared.c; nothing without a server */

/* A request whose reply a store keeps: what it gets alone, at least 2 tokens; number: where it draws from, and of its
 * mask, if it has one. */
typedef struct kept_ask {
    ek_ask ask;
    const ek_trace *want;
    int number;
} kept_ask;

/* In stored.c. Keeps a beginning of each reply, in memory or in a folder; out: the requests behind what the store has
 * then. Free tokens[0..n) also after a failure. */
ek_err behind_store(const scene *s, const char *dir, const kept_ask *kept, int n, ek_ask *out, int32_t **tokens);

/* Runs n requests; those with which[i] >= 0 are checked. */
ek_err run_cached(const scene *s, company *base, company c, const char *variant, const ek_ask *ask, const int *which,
                  int n, check_fn *check, void *arg);
/* Every request a second time; how much of the prompt is asked for again differs. */
ek_err cached_again(const scene *s, company *base, const char *variant, company c, check_fn *check, void *arg);

extern const same_case cases[];
extern const int n_cases;

#endif
