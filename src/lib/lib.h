/* Code that all operators of the library share: the call (threads, working memory, instruction set) and its views in a
 * checked form. Internal to src/lib. */
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
    struct lib_blocks *own; /* used if another thread's call has the pool */
    bool alone;             /* the pool is busy: everything runs on this thread */
} lib_call;

/* Begins a call: takes the pool if it is free. EUNSUPPORTED if the machine does not compute in IEEE binary32. Every
 * successful lib_enter needs a lib_leave. */
ek_err lib_enter(lib_call *c);
void lib_leave(lib_call *c);

/* Returns n bytes of working memory, 64-byte aligned, not cleared, owned by the call; NULL (message set by ek_fail)
 * without memory. n = 0 is allowed. */
void *lib_take(lib_call *c, size_t n);
/* The same for count * size bytes; an overflow of the product counts as no memory. */
void *lib_take_array(lib_call *c, size_t count, size_t size);

/* Calls fn(arg, task, worker) for every task in [0, n_tasks), worker in [0, c->n_workers).
 * Each task runs in the floating-point environment that the arithmetic needs. Returns when all are done. */
typedef void lib_task(void *arg, int64_t task, int worker);
void lib_run(lib_call *c, lib_task *fn, void *arg, int64_t n_tasks);

/* Maps an internal result to the public status. */
ek_status lib_status(ek_err e);

/* For tests: sets the instruction sets (EK_CPU_*) that the library may use from now on. */
void lib_force_cpu(unsigned cpu);
unsigned lib_cpu(void);

#endif
