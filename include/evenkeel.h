/* libevenkeel: operators of transformer inference whose results are pure functions of their
 * operands. The number of rows in a call, how a batch is laid out, the threads and the
 * instruction set never change a bit. This header: results, errors, threads. The operators:
 * evenkeel_ops.h. C99 and C++; link with `pkg-config --cflags --libs evenkeel`.
 *
 * Every function may be called from several threads at once. The only state behind them is the
 * pool of threads below (with its working memory) and, per thread, the sentence of the last
 * failure. Nothing aborts on bad input: a call that cannot be done returns a status, leaves its
 * outputs alone and puts a sentence with the numbers into ek_last_error(). */
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
    EK_BAD_ARGUMENT,  /* shapes, types or options that do not fit; the sentence holds both shapes */
    EK_NOT_SUPPORTED, /* well-formed, but not offered */
    EK_NO_MEMORY,     /* outputs may be partly written */
    EK_BAD_MACHINE    /* this processor or this build does not compute in IEEE binary32 */
} ek_status;

EK_API const char *ek_version(void);                 /* "0.1.0" */
EK_API const char *ek_status_name(ek_status status); /* "bad argument"; never NULL */

/* The sentence of this thread's last failure; "" before the first. Valid until the next one. */
EK_API const char *ek_last_error(void);

/* Instruction set in use: "scalar", "avx2" or "avx512". For logs; it changes no result. */
EK_API const char *ek_isa(void);

/* How many threads a call may use, the caller's own included; at the start as many as there are
 * cores. 0 means that number again. Waits for a call in progress; the threads are started by the
 * next call that has work for them. Speed only, never a bit.
 *
 * One call at a time uses the pool; calls made at the same moment by other threads run alone on
 * their own thread. */
EK_API ek_status ek_set_threads(int n_threads);
EK_API int ek_get_threads(void);

/* A program's own pool instead of ours. run() must call task(arg, i) once for every i in
 * [0, n_tasks), in any order, at most `threads` at the same time, and return when all are done;
 * tasks never block on each other. The struct is copied. NULL: our own pool again. */
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
