/* Who computes the lines of a batch: an engine in this process, or servers. Both give the same bytes. One thread. */
#ifndef EK_BATCH_RUNNER_H
#define EK_BATCH_RUNNER_H

#include "batch/line.h"
#include "open/open.h"

/* A line on its way: the runner's from start on, the caller's again when it is done. */
typedef struct ek_batch_task {
    size_t index;               /* in the input */
    ek_buf text;                /* the line's bytes */
    ek_batch_line line;         /* with a dialect */
    char id[EK_BATCH_ID];       /* of its result */
    uint64_t seed;              /* where the body has none */
    int status;                 /* of the reply: 200, 400, 404 or 413 */
    ek_buf body;                /* the reply */
    int tries;                  /* that failed; inside servers.c */
    struct ek_batch_task *next; /* inside of runners */
} ek_batch_task;

void ek_batch_task_free(ek_batch_task *t);

/* Whether a status is the request's own, on any machine: others are failures of the run. */
bool ek_batch_is_reply(long status);

typedef struct ek_batch_runner ek_batch_runner;
struct ek_batch_runner {
    int width;       /* lines that it wants at a time */
    ek_buf identity; /* the fingerprint (serve/api/fingerprint.h) */
    char sha256[65]; /* its last member */
    void (*start)(ek_batch_runner *r, ek_batch_task *t);
    /* Works for at most `seconds`, or until a task is done: *out, NULL where none is. An error ends the run; *out is
     * then the task that failed, or NULL. */
    ek_err (*wait)(ek_batch_runner *r, double seconds, ek_batch_task **out);
    void (*close)(ek_batch_runner *r); /* frees the tasks on their way */
};

/* Runs on an engine, which is opened with a chat model, a context that was asked for, and a queue of
 * width * EK_BATCH_CHOICES; its thread is not started. m is borrowed. The errors of ek_opened_digest. */
enum { EK_BATCH_CHOICES = 64 };
ek_err ek_batch_engine_open(ek_batch_runner **out, ek_opened *m, int width);

typedef struct ek_batch_servers_opts {
    const char *const *url; /* http://HOST:PORT[/PREFIX], https too */
    int n;
    const char *key;         /* sent as a bearer's; NULL: none */
    int width;               /* lines per server at a time */
    int ctx;                 /* that their context must be; 0: whatever it is, but equal */
    double patience;         /* seconds without any answer after which the run fails */
    bool (*stop)(void *arg); /* whether to give up waiting for the first one */
    void *arg;
} ek_batch_servers_opts;

/* Runs on servers of this program: lines go to the one with the least to do; a line that fails (no connection, 408,
 * 409, 429, 5xx, a reply that breaks off) is asked again, elsewhere first. Waits until one of them says its
 * fingerprint; every other one has to have the same, and says it with each reply. ENOTFOUND without libcurl, EINVAL,
 * EIO. o is borrowed. */
ek_err ek_batch_servers_open(ek_batch_runner **out, const ek_batch_servers_opts *o);

#endif
