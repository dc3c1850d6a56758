#include "base/clock.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ek_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double ek_unix_now(void)
{
    return seconds_of(CLOCK_REALTIME);
}

int64_t ek_unix_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec;
}

bool ek_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, double deadline)
{
    double left = deadline - ek_now();
    struct timespec until;
    if (left <= 0) return false;
    clock_gettime(CLOCK_REALTIME, &until);
    double ns = (double)until.tv_nsec + (left < 3600 ? left : 3600) * 1e9, seconds = (double)(int64_t)(ns / 1e9);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec = (long)(ns - seconds * 1e9);
    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

double ek_thread_time(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static _Thread_local const atomic_bool *flag;

void ek_wanted_until(const atomic_bool *dropped)
{
    flag = dropped;
}

bool ek_is_wanted(void)
{
    return !flag || !atomic_load_explicit(flag, memory_order_relaxed);
}

ek_err ek_wanted_check(void)
{
    return ek_is_wanted() ? EK_OK : ek_fail(EK_ECANCELLED, "nobody waits for the reply any more");
}
