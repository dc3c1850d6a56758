/* News for the supervisor that started this process and gave it a socket in NOTIFY_SOCKET, as systemd does for
 * Type=notify: lines as in sd_notify(3), "READY=1\nSTATUS=serves". */
#ifndef EK_BASE_NOTIFY_H
#define EK_BASE_NOTIFY_H

#include <stdbool.h>

/* Sends the lines as one message. Never waits. true: sent, or nobody asked for it (no NOTIFY_SOCKET, or none that this
 * knows: a path, or @ and an abstract name). false: the supervisor's queue is full or its socket gone; ask again later.
 */
bool ek_notify(const char *lines);

/* Seconds within which the supervisor wants to hear "WATCHDOG=1" of this process (WATCHDOG_USEC, WATCHDOG_PID); 0:
 * never. */
double ek_notify_watchdog(void);

#endif
