/* Time for measuring and for timeouts. Never read on the way to an answer. */
#ifndef EK_BASE_CLOCK_H
#define EK_BASE_CLOCK_H

double ek_now(void); /* seconds of the monotonic clock */

#endif
