/* Threads that say what happens where the thread that starts them does. */
#ifndef EK_BASE_THREAD_H
#define EK_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create, without attributes; the new thread has the caller's log (ek_log_here, base/log.h). */
int ek_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
