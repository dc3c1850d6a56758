/* Clocks for measurements and timeouts. Nothing that computes an answer reads them. */
#ifndef EK_BASE_CLOCK_H
#define EK_BASE_CLOCK_H

#include <stdint.h>

double ek_now(void);        /* seconds of the monotonic clock */
int64_t ek_unix_time(void); /* seconds since 1970 */

double ek_thread_time(void); /* seconds of CPU time that the calling thread has used */

#endif
