/* Clocks for measurements and timeouts, and the dropping of work whose client has left. No computation of an answer
 * reads a clock. */
#ifndef EK_BASE_CLOCK_H
#define EK_BASE_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

double ek_now(void);        /* seconds of the monotonic clock */
int64_t ek_unix_time(void); /* seconds since 1970 */
double ek_unix_now(void);   /* the same, with fractions */

double ek_thread_time(void); /* seconds of CPU time that the calling thread has used */

/* Waits for the condition until `deadline` of ek_now, an hour at most; false once it is over. It may wake for nothing.
 */
bool ek_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, double deadline);

/* Cancellation of long work. The thread that hands out work sets a flag when its client has left; the work checks the
 * flag between its steps and ends early. */

/* Sets the calling thread's flag: any thread may store true in *dropped to cancel the work. NULL (the initial value):
 * the work is never cancelled. */
void ek_wanted_until(const atomic_bool *dropped);
bool ek_is_wanted(void);
ek_err ek_wanted_check(void); /* ECANCELLED after the flag was set */

#endif
