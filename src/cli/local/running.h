/* Servers that run on this machine, as they say it themselves: one file per process, EVENKEEL_DIR/PID.json, in
 * $XDG_RUNTIME_DIR/evenkeel or, without that variable, /tmp/evenkeel-UID. The folder is its user's alone, else it is
 * not used. A file whose process is gone, or is another one with its number, counts as none and is removed. */
#ifndef EK_CLI_LOCAL_RUNNING_H
#define EK_CLI_LOCAL_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ek_running {
    int pid, port, ctx;
    uint64_t ticks;  /* the process's start, of /proc/PID/stat */
    int64_t started; /* seconds since 1970 */
    char host[256];  /* as --host has it */
    char model[512]; /* as /v1/models calls it */
    char device[200];
    bool keys; /* clients have to send one */
} ek_running;

/* Writes the file of this process; r->pid, ticks and started are filled in. EIO, or EINVAL for a folder of somebody
 * else: a server runs without it. */
ek_err ek_running_write(ek_running *r);
void ek_running_remove(void); /* this process's file, if it was written */

/* The servers of this user, by port. The list is the caller's, for free(); *n is 0 without any. */
ek_running *ek_running_list(int *n);

/* Whether the process still runs. */
bool ek_running_alive(const ek_running *r);

/* "http://127.0.0.1:8080", where this machine reaches it. */
void ek_running_url(char *out, int room, const ek_running *r);

/* What it is doing now, from /metrics and /proc; -1 for what could not be asked within half a second. */
typedef struct ek_running_now {
    double memory; /* bytes of the process in memory */
    int connections, running, waiting;
} ek_running_now;
void ek_running_ask(ek_running_now *now, const ek_running *r);

/* Whether what listens at its host and port answers /ready with 200, within half a second. */
bool ek_running_ready(const ek_running *r);

#endif
