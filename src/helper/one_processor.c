/* Makes decoders see only one processor. With more threads, the result of a damaged file would depend on the threads'
 * order, and each thread would take uncounted memory. On macOS a program cannot override the functions of its
 * libraries. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *out)
{
    (void)pid;
    memset(out, 0, n);
    CPU_SET_S(0, n, out);
    return 0;
}

PUBLIC int pthread_getaffinity_np(pthread_t thread, size_t n, cpu_set_t *out)
{
    (void)thread;
    return sched_getaffinity(0, n, out);
}
#endif
