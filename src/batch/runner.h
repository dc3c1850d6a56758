/* A runner computes the lines of a batch: by an engine in this process, or by servers, with the same bytes. One thread.
 */
#ifndef EK_BATCH_RUNNER_H
#define EK_BATCH_RUNNER_H

#include "batch/line.h"
#include "open/open.h"

/* A line being computed. It belongs to the runner from start on, and to the caller again when it is done. */
typedef struct ek_batch_task {
    size_t index;               /* in the input */
    ek_buf text;                /* the line's bytes */
    ek_batch_line line;         /* with a dialect */
    char id[EK_BATCH_ID];       /* of its result */
    uint64_t seed;              /* used if the body has none */
    int status;                 /* of the reply: 200, 400, 404 or 413 */
    ek_buf body;                /* the reply */
    int tries;                  /* failed tries; inside servers.c */
    struct ek_batch_task *next; /* inside runners */
} ek_batch_task;

void ek_batch_task_free(ek_batch_task *t);

/* Whether a status depends on the request alone; other statuses are failures of the run. */
bool ek_batch_is_reply(long status);

typedef struct ek_batch_runner ek_batch_runner;
struct ek_batch_runner {
    int width;       /* number of lines that it takes at a time */
    ek_buf identity; /* the fingerprint (serve/api/model_card.h) */
    char sha256[65]; /* its last member */
    void (*start)(ek_batch_runner *r, ek_batch_task *t);
    /* Works until a task is done (*out), or for at most `seconds` (*out NULL). An error ends the run; *out is then the
     * failed task, or NULL. */
    ek_err (*wait)(ek_batch_runner *r, double seconds, ek_batch_task **out);
    void (*close)(ek_batch_runner *r); /* frees unfinished tasks */
};

/* A runner over m's engine. m is borrowed; it has a chat model, an explicit context, a queue of width *
 * EK_BATCH_CHOICES, and no started engine thread. Errors of ek_opened_digest. */
enum { EK_BATCH_CHOICES = 64 };
ek_err ek_batch_engine_open(ek_batch_runner **out, ek_opened *m, int width);

typedef struct ek_batch_servers_opts {
    const char *const *url; /* http://HOST:PORT[/PREFIX], https too */
    int n;
    const char *key;         /* sent as a bearer's; NULL: none */
    int width;               /* lines per server at a time */
    int ctx;                 /* the servers' required context; 0: any, but the same for all */
    double patience;         /* the run fails after this many seconds without any answer */
    bool (*stop)(void *arg); /* true: stop waiting for the first server */
    void *arg;
} ek_batch_servers_opts;

/* A runner over evenkeel servers. Lines go to the server with the fewest. A line that fails (no connection, 408, 409,
 * 429, 5xx, an incomplete reply) is retried, first elsewhere. Waits for the first server's fingerprint; all others need
 * the same one, and every reply repeats it. ENOTFOUND without libcurl, EINVAL, EIO. o is borrowed. */
ek_err ek_batch_servers_open(ek_batch_runner **out, const ek_batch_servers_opts *o);

#endif
