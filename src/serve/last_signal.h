/* An end of the process that needs nobody: where a thread, a device or a disk hangs, the signals that ask a server to
 * stop end it all the same. */
#ifndef EK_SERVE_LAST_SIGNAL_H
#define EK_SERVE_LAST_SIGNAL_H

/* Stands before the handlers that SIGTERM and SIGINT have now, which are called as before. From the first of them on
 * the process has so many seconds, from the second on one, in which streams are told; then SIGALRM ends it. The third
 * ends it at once. */
void ek_last_signal_watch(double seconds);
/* The same without a signal: so many seconds, 0: as many as it takes. */
void ek_last_signal_within(double seconds);

#endif
