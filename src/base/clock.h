/* Time for measuring and for timeouts. Never read on the way to an answer. */
#ifndef EK_BASE_CLOCK_H
#define EK_BASE_CLOCK_H

#include <stdint.h>

double ek_now(void);        /* seconds of the monotonic clock */
int64_t ek_unix_time(void); /* seconds since 1970 */

#endif
