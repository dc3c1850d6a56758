/* News for the supervisor that started this process and gave it a socket in NOTIFY_SOCKET, as systemd does for
 * Type=notify: lines as in sd_notify(3), "READY=1\nSTATUS=serves". */
#ifndef EK_BASE_NOTIFY_H
#define EK_BASE_NOTIFY_H

#include <stdbool.h>

/* What the supervisor gave, NULL for what is not there: NOTIFY_SOCKET (a path, or @ and an abstract name; another one
 * is ignored), WATCHDOG_USEC and WATCHDOG_PID. Once, before there are threads; without it nobody is told anything. */
void ek_notify_open(const char *socket, const char *watchdog_usec, const char *watchdog_pid);

/* Sends the lines as one message. Never waits. true: sent, or nobody asks for it. false: the supervisor's queue is full
 * or its socket gone; ask again later. Any thread. */
bool ek_notify(const char *lines);

/* Seconds within which the supervisor wants to hear "WATCHDOG=1" of this process; 0: never. */
double ek_notify_watchdog(void);

#endif
