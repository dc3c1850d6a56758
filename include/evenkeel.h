/* libevenkeel: operators of transformer inference whose results are pure functions of their
 * operands. The number of rows in a call, how a batch is laid out, the threads and the
 * instruction set never change a bit. This header: results, errors, threads. The operators:
 * evenkeel_ops.h. C99 and C++; link with `pkg-config --cflags --libs evenkeel`.
 *
 * Threads: every function may be called from several threads at once. The library's only state is the
 * thread pool below (with its working memory) and, per thread, the last error message.
 * Errors: nothing aborts on bad input. A call that fails returns a status, leaves its outputs unchanged
 * (except with EK_NO_MEMORY) and sets the message of ek_last_error(). */
#ifndef EVENKEEL_H
#define EVENKEEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define EK_API __attribute__((visibility("default")))
#else
#define EK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ek_status {
    EK_DONE = 0,
    EK_BAD_ARGUMENT,  /* shapes, types or options do not fit; the message holds both shapes */
    EK_NOT_SUPPORTED, /* well-formed, but not offered */
    EK_NO_MEMORY,     /* outputs may be partly written */
    EK_BAD_MACHINE    /* this processor or this build does not compute in IEEE binary32 */
} ek_status;

EK_API const char *ek_version(void);                 /* "0.1.0" */
EK_API const char *ek_status_name(ek_status status); /* "bad argument"; never NULL */

/* The error message of this thread's last failed call; "" before the first. The library owns the string; it is
 * valid until this thread's next failure. */
EK_API const char *ek_last_error(void);

/* Instruction set in use: "scalar", "avx2", "avxvnni", "avx512" or "amx"; "dotprod" or "i8mm" on Arm. For logs; it
 * changes no result. */
EK_API const char *ek_isa(void);

/* Sets the number of threads per call, the caller's own included: 1 to 1024, or 0 for the number of cores (the
 * default). EK_BAD_ARGUMENT outside that range. The function waits for a call in progress; the next call that has
 * work for them starts the threads. The number changes speed, never a bit.
 *
 * One call at a time uses the pool; concurrent calls of other threads each run on their own thread alone.
 * Do not call it from inside a task. */
EK_API ek_status ek_set_threads(int n_threads);
EK_API int ek_get_threads(void);

/* Replaces the library's thread pool by the program's own. run() must call task(arg, i) once for every i in
 * [0, n_tasks), in any order, at most `threads` at the same time, and return when all are done;
 * tasks never block on each other. The struct is copied; context must stay valid while the hook is set.
 * NULL restores the library's pool. Do not call it from inside a task. */
typedef void ek_pool_task(void *arg, int i);
typedef struct ek_pool_hook {
    void *context;
    int threads; /* 1 to 1024 */
    void (*run)(void *context, ek_pool_task *task, void *arg, int n_tasks);
} ek_pool_hook;
EK_API ek_status ek_set_pool(const ek_pool_hook *hook);

#ifdef __cplusplus
}
#endif
#endif
