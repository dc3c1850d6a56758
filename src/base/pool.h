/* A pool of threads for the inside of a step. Which thread runs which task is free:
 * tasks write disjoint outputs, so the split can never reach a bit of the answer. */
#ifndef EK_BASE_POOL_H
#define EK_BASE_POOL_H

#include "base/err.h"

typedef struct ek_pool ek_pool;

/* n_threads >= 1 counts the caller; n_threads - 1 threads are started. */
ek_err ek_pool_open(ek_pool **out, int n_threads);
void ek_pool_close(ek_pool *p);
int ek_pool_threads(const ek_pool *p);

/* Calls fn(arg, task, worker) once for every task in [0, n_tasks) and returns when all are
 * done; worker in [0, threads) is the running thread's own number (for scratch memory).
 * A thread takes the tasks of its own contiguous share in ascending order, then what others have left
 * from the back: tasks that read memory one after the other stay one stream a thread.
 * One caller at a time; not from inside a task.
 * A NULL pool runs everything in the caller. */
typedef void ek_task_fn(void *arg, int task, int worker);
void ek_pool_run(ek_pool *p, ek_task_fn *fn, void *arg, int n_tasks);

#endif
