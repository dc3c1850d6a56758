/* A pool of threads for the operators of a step. Tasks write disjoint outputs, so which thread runs which task
 * cannot change a bit of the answer. */
#ifndef EK_BASE_POOL_H
#define EK_BASE_POOL_H

#include "base/err.h"

typedef struct ek_pool ek_pool;

/* n_threads, 1 to 1024, counts the caller; n_threads - 1 threads are started. EINVAL, or ENOMEM when a thread cannot
 * be started. Close with ek_pool_close. */
ek_err ek_pool_open(ek_pool **out, int n_threads);
void ek_pool_close(ek_pool *p);
int ek_pool_threads(const ek_pool *p);

/* Calls fn(arg, task, worker) once for every task in [0, n_tasks) and returns when all are
 * done; worker in [0, n_threads) is the number of the running thread, for its scratch memory.
 * A thread takes the tasks of its own contiguous share in ascending order, then those that other
 * threads have left, from the back: tasks that read adjacent memory stay one stream per thread.
 * One caller at a time; never from inside a task.
 * A NULL pool runs everything in the caller. */
typedef void ek_task_fn(void *arg, int task, int worker);
void ek_pool_run(ek_pool *p, ek_task_fn *fn, void *arg, int n_tasks);

#endif
