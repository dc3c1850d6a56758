/* Threads that inherit the log of the thread that starts them. */
#ifndef EK_BASE_THREAD_H
#define EK_BASE_THREAD_H

#include <pthread.h>

/* Like pthread_create, without attributes; the new thread has the caller's log sink (ek_log_here, base/log.h). */
int ek_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
