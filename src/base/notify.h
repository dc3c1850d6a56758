/* Messages to the supervisor that started this process with a socket in NOTIFY_SOCKET, like systemd for Type=notify:
 * lines of sd_notify(3), "READY=1\nSTATUS=serves". */
#ifndef EK_BASE_NOTIFY_H
#define EK_BASE_NOTIFY_H

#include <stdbool.h>

/* Takes the supervisor's variables, NULL for missing ones: NOTIFY_SOCKET (a path, or @ and an abstract name; others are
 * ignored), WATCHDOG_USEC and WATCHDOG_PID. Call once, before other threads start; without this call nothing is sent.
 */
void ek_notify_open(const char *socket, const char *watchdog_usec, const char *watchdog_pid);

/* Sends the lines as one message. Never waits. True: sent, or no supervisor. False: the supervisor's queue is full or
 * its socket gone; try again later. Any thread. */
bool ek_notify(const char *lines);

/* The interval in seconds within which the supervisor expects "WATCHDOG=1"; 0: it expects none. */
double ek_notify_watchdog(void);

#endif
