/* The library's engine from inside: include/evenkeel.h over the layers to the left. Inside src/capi.
 *
 * Locks, in the order in which they are taken: engine, then request, then queue. The workers' lock is taken alone. */
#ifndef EK_CAPI_STATE_H
#define EK_CAPI_STATE_H

#include <evenkeel.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/log.h"
#include "open/open.h"

struct chat;
/* Chats on their way to a thread that reads bodies and writes whole replies, away from the engine's and the program's.
 */
typedef struct capi_workers {
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    struct chat *first, **last;
    pthread_t thread[2];
    int n_threads;
    bool closing;
} capi_workers;

typedef struct capi_request capi_request;
/* What every request has. A kind of request begins with it. */
struct capi_request {
    evenkeel *engine;
    evenkeel_queue *queue;
    evenkeel_id id;
    void *user;
    void (*cancel)(capi_request *r); /* under the engine's lock, which keeps r alive */
    capi_request *next, *prev;       /* of the engine's table */
};

struct evenkeel {
    ek_opened m;
    ek_log_sink *log; /* of its threads, and of a program's while it is in a call that may log */
    pid_t process;    /* that has its threads; a forked child has none of them */
    bool started;
    capi_workers workers;
    pthread_mutex_t lock; /* of requests, last_id, queues */
    capi_request *requests;
    evenkeel_id last_id;
    evenkeel_queue *queues;
    pthread_mutex_t digesting; /* of the model's digest, "" until it was asked for */
    char digest[EK_MODEL_DIGEST];
};

struct evenkeel_queue {
    evenkeel *engine;
    evenkeel_queue *next, *prev; /* of the engine */
    pthread_mutex_t lock;        /* of all below */
    pthread_cond_t changed;
    struct capi_event *first, **last;
    size_t n_pending; /* requests whose END was not taken */
    size_t n_live;    /* requests whose END is not in the queue yet */
    int fd;           /* readable while there is an event */
};

/* The status of an internal error, whose sentence stays. */
ek_status capi_status(ek_err err);

/* Copies n bytes of a caller's struct into room bytes, zeroed where the caller's is shorter. EINVAL for a size of 0,
 * EUNSUPPORTED for one with fields set that this version does not know. name: of the struct. */
ek_err capi_take_struct(void *to, size_t room, const void *from, size_t n, const char *name);

/* EINVAL in a forked child. */
ek_err capi_check_process(const evenkeel *e);

/* Enters r, with engine, queue, user and cancel, into the table and the queue's counts, and gives it an id. */
void capi_begin(capi_request *r);
/* Takes a request back that failed before it had an event. */
void capi_take_back(capi_request *r);
/* Appends an event of r. Its texts are copied; kind END is for capi_end. */
void capi_post(const capi_request *r, const evenkeel_event *e);
/* Takes r off the table and appends its END. r's owner frees it then. */
void capi_end(capi_request *r, const evenkeel_event *e);

/* With the threads' first chat they start; capi_workers_close ends them, when no chat is left. */
void capi_workers_init(capi_workers *w);
void capi_workers_close(capi_workers *w);

/* Around the start of threads: signals of the process are the program's business, so its own threads get them. */
void capi_signals_off(sigset_t *before);
void capi_signals_back(const sigset_t *before);

/* The event of an error with its sentence: an END of no counts. */
evenkeel_event capi_error(ek_err err, const char *text);

#endif
