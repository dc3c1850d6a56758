/* A pool of threads for the operators of a step. Tasks write disjoint outputs, so which thread runs which task cannot
 * change a bit of the answer.
 *
 * On a machine of several NUMA nodes each thread belongs to a node and stays on all CPUs of that node. A page of memory
 * lies on the node of the thread that writes it first, so tasks that read it later should go to that node's threads. */
#ifndef EK_BASE_POOL_H
#define EK_BASE_POOL_H

#include <stdbool.h>

#include "base/err.h"
#include "base/machine/cpu.h"

typedef struct ek_pool ek_pool;

/* n_threads, 1 to 1024, counts the caller; n_threads - 1 threads are started. EINVAL, or ENOMEM when a thread cannot
 * be started. Close with ek_pool_close. */
ek_err ek_pool_open(ek_pool **out, int n_threads);
/* The same on the machine's nodes; for tests, on the nodes of the machine that `root` describes (base/machine/cpu.h).
 * The pool above knows one node and binds nothing. */
ek_err ek_pool_open_nodes(ek_pool **out, int n_threads, const char *root);
void ek_pool_close(ek_pool *p);
int ek_pool_threads(const ek_pool *p);
int ek_pool_nodes(const ek_pool *p); /* 1 to EK_MAX_NODES; each has a thread */
/* Number of threads on the nodes before this one; for node == ek_pool_nodes(p) the number of all threads. */
int ek_pool_node_first(const ek_pool *p, int node);

/* Calls fn(arg, task, worker) once for every task in [0, n_tasks) and returns when all are done. worker in [0,
 * n_threads) is the number of the running thread, for its scratch memory. A thread takes the tasks of its own
 * contiguous range in ascending order, then those that other threads have not begun, from the back. Tasks that read
 * adjacent memory therefore stay one stream per thread. One caller at a time; never from inside a task. A NULL pool
 * runs everything in the caller. */
typedef void ek_task_fn(void *arg, int task, int worker);
void ek_pool_run(ek_pool *p, ek_task_fn *fn, void *arg, int n_tasks);

/* The same with tasks that belong to nodes: node j has the tasks from end[j - 1] (0 for the first node) up to end[j].
 * Threads take the tasks of their own node first, then other nodes' tasks. `stay`: a thread takes only its own node's
 * tasks, for tasks that write memory first. A NULL pool has one node. */
void ek_pool_run_nodes(ek_pool *p, ek_task_fn *fn, void *arg, const int *end, bool stay);

/* A thread that runs tasks on several nodes stays bound to the CPUs of the first node, and its new threads inherit the
 * binding. This unbinds the calling thread until it runs tasks again. */
void ek_pool_leave(ek_pool *p);

#endif
