/* The library's engine from inside: it implements include/evenkeel.h over the layers to the left. Inside src/capi.
 *
 * Order of locks: engine, then request, then queue. The workers' lock is taken alone. */
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
/* Threads that read chats' bodies and write whole replies, and the chats that wait for these threads. Neither the
 * engine's nor the program's thread should do this work. */
typedef struct capi_workers {
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t wake;
    struct chat *first, **last;
    pthread_t thread[2];
    int n_threads;
    bool closing;
} capi_workers;

typedef struct capi_request capi_request;
/* The beginning of each kind of request. */
struct capi_request {
    evenkeel *engine;
    evenkeel_queue *queue;
    evenkeel_id id;
    void *user;
    void (*cancel)(capi_request *r); /* called under the engine's lock, which keeps r alive */
    capi_request *next, *prev;       /* in the engine's table */
};

struct evenkeel {
    ek_opened m;
    ek_log_sink *log; /* for its threads, and for the program's during calls that may log */
    pid_t process;    /* the process with its threads; a forked child has none */
    bool started;
    capi_workers workers;
    pthread_mutex_t lock; /* guards requests, last_id, queues */
    capi_request *requests;
    evenkeel_id last_id;
    evenkeel_queue *queues;
    pthread_mutex_t digesting; /* guards digest, which is "" until the first request for it */
    char digest[EK_MODEL_DIGEST];
};

struct evenkeel_queue {
    evenkeel *engine;
    evenkeel_queue *next, *prev; /* in the engine's list */
    pthread_mutex_t lock;        /* guards the fields below */
    pthread_cond_t changed;
    struct capi_event *first, **last;
    size_t n_pending; /* requests whose END the program has not taken */
    size_t n_live;    /* requests whose END is not yet in the queue */
    int fd;           /* readable while there is an event */
};

/* The public status of an internal error; the error's sentence is kept. */
ek_status capi_status(ek_err err);

/* Copies n bytes of a caller's struct into room bytes; missing bytes become zero. EINVAL for a size of 0, EUNSUPPORTED
 * if a field beyond room is set. name: the struct's, for messages. */
ek_err capi_take_struct(void *to, size_t room, const void *from, size_t n, const char *name);

/* EINVAL in a forked child. */
ek_err capi_check_process(const evenkeel *e);

/* Enters r, with engine, queue, user and cancel, into the table and the queue's counts, and gives it an id. */
void capi_begin(capi_request *r);
/* Undoes capi_begin for a request that failed before its first event. */
void capi_take_back(capi_request *r);
/* Appends an event of r and copies its texts. Use capi_end for END. */
void capi_post(const capi_request *r, const evenkeel_event *e);
/* Removes r from the table and appends its END. Afterwards r's owner frees r. */
void capi_end(capi_request *r, const evenkeel_event *e);

/* The first chat starts the threads; capi_workers_close ends them after the last one. */
void capi_workers_init(capi_workers *w);
void capi_workers_close(capi_workers *w);

/* Called around the start of threads: blocks signals there, so that the program's own threads get them. */
void capi_signals_off(sigset_t *before);
void capi_signals_back(const sigset_t *before);

/* The END event of an error, with its sentence and no counts. */
evenkeel_event capi_error(ek_err err, const char *text);

#endif
