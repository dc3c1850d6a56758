/* Clocks for measurements and timeouts. Nothing that computes an answer reads them. */
#ifndef EK_BASE_CLOCK_H
#define EK_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

double ek_now(void);        /* seconds of the monotonic clock */
int64_t ek_unix_time(void); /* seconds since 1970 */
double ek_unix_now(void);   /* the same, with fractions */

double ek_thread_time(void); /* seconds of CPU time that the calling thread has used */

/* Waits for the condition until `deadline` of ek_now, an hour at most; false once it is over. It may wake for nothing.
 */
bool ek_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, double deadline);

#endif
