/* What every operator of the library shares: the call (threads, working memory, instruction
 * set) and its views in a checked form. Internal to src/lib. */
#ifndef EK_LIB_LIB_H
#define EK_LIB_LIB_H

#include <stdalign.h>

#include "base/err.h"
#include <evenkeel_ops.h>

/* One operator call. Working memory lives until lib_leave and is reused by the next call. */
typedef struct lib_call {
    unsigned cpu;
    int n_workers; /* tasks that may run at the same moment, at least 1 */
    struct lib_blocks *memory;
    struct lib_blocks *own; /* used when the pool is busy with another thread's call */
    bool alone;             /* the pool is busy: everything runs on this thread */
} lib_call;

/* Takes the pool if it is free. EUNSUPPORTED where the machine is not IEEE. */
ek_err lib_enter(lib_call *c);
void lib_leave(lib_call *c);

/* 64-byte aligned, not cleared; NULL with ek_fail when there is no memory. n = 0 is fine. */
void *lib_take(lib_call *c, size_t n);
/* The same for count * size, which may overflow. */
void *lib_take_array(lib_call *c, size_t count, size_t size);

/* Calls fn(arg, task, worker) for every task in [0, n_tasks), worker in [0, c->n_workers): the
 * floating-point environment of each is the one the arithmetic needs. */
typedef void lib_task(void *arg, int64_t task, int worker);
void lib_run(lib_call *c, lib_task *fn, void *arg, int64_t n_tasks);

/* For the public functions: maps a result. */
ek_status lib_status(ek_err e);

/* For tests: the instruction sets the library may use from now on. */
void lib_force_cpu(unsigned cpu);
unsigned lib_cpu(void);

#endif
