/* Servers that run on this machine, by the files that they write: one per process, EVENKEEL_DIR/PID.json, in
 * $XDG_RUNTIME_DIR/evenkeel or, without that variable, /tmp/evenkeel-UID. The folder must be the user's
 * alone, or it is not used. A file is ignored and removed if its process ended, even if another one has its number. */
#ifndef EK_CLI_LOCAL_RUNNING_H
#define EK_CLI_LOCAL_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ek_running {
    int pid, port, ctx;
    uint64_t ticks;  /* the process's start, of /proc/PID/stat */
    int64_t started; /* seconds since 1970 */
    char host[256];  /* in the form of --host */
    char model[512]; /* in the form of /v1/models */
    char device[200];
    bool keys; /* clients have to send one */
} ek_running;

/* Writes the file of this process; r->pid, ticks and started are filled in. EIO, or EINVAL if the folder belongs to
 * another user. A server also runs without the file. */
ek_err ek_running_write(ek_running *r);
void ek_running_remove(void); /* this process's file, if it was written */

/* The servers of this user, by port. The list is the caller's, for free(); *n is 0 without any. */
ek_running *ek_running_list(int *n);

/* Whether the process still runs. */
bool ek_running_alive(const ek_running *r);

/* The address at which this machine reaches the server: "http://127.0.0.1:8080". */
void ek_running_url(char *out, int room, const ek_running *r);

/* A server's load now, from /metrics and /proc; -1: no answer within half a second. */
typedef struct ek_running_now {
    double memory; /* bytes of the process in memory */
    int connections, running, waiting;
} ek_running_now;
void ek_running_ask(ek_running_now *now, const ek_running *r);

/* Whether /ready at the server's host and port answers 200 within half a second. */
bool ek_running_ready(const ek_running *r);

#endif
