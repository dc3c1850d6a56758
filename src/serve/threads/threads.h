/* The threads beside the event loop's: workers, and the queue of news from the engine's thread. */
#ifndef EK_SERVE_THREADS_H
#define EK_SERVE_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "chat/turn.h"

struct ek_loop;

/* --- workers ---
 *
 * A few threads for work that is too long for the event loop. The queue is bounded, and clients take turns in it. A
 * turn costs the processor time of its job, so a client with long jobs waits for the jobs of others. Large jobs never
 * take the last thread, so small jobs do not wait behind them. A large job that has run for more than 0.1 s is slow.
 * For each slow job a spare thread, if there is one, begins a further job. Half of the spare threads take any client's
 * job; the others take only jobs of clients without a running job. Called from the event loop's thread only. */

typedef struct ek_workers ek_workers;
typedef struct ek_job ek_job;

/* Embedded in the caller's structure. */
struct ek_job {
    void (*run)(ek_job *j);  /* runs on a worker's thread; uses only data that the job owns */
    void (*done)(ek_job *j); /* is called afterwards by the event loop; the job is the caller's again */
    bool large;
    uint64_t client, cost; /* clients take turns (base/fair_queue.h); cost: microseconds, a guess */
    uint64_t elsewhere;    /* set by run: microseconds that other processes took for it */
    uint64_t place;        /* inside workers.c */
    ek_job *next;          /* inside workers.c */
};

/* loop is borrowed. It calls done of finished jobs, as many in a turn as there is time for. n_threads >= 1. EIO,
 * ENOMEM. */
ek_err ek_workers_open(ek_workers **out, struct ek_loop *loop, int n_threads, int max_queue);
/* The same, with n_spare spare threads. */
ek_err ek_workers_open_spare(ek_workers **out, struct ek_loop *loop, int n_threads, int n_spare, int max_queue);
/* From now on at most n jobs of one client run at a time, so that others find a thread. n >= 1. */
void ek_workers_set_share(ek_workers *w, int n);
/* Queues a job. EBUSY, with the numbers, if the queue has no place for this client (base/fair_queue.h); done is then
 * not called. */
ek_err ek_workers_add(ek_workers *w, ek_job *job);
/* The same even if the queue is full: for clean-up, and for a job that continues. */
void ek_workers_add_always(ek_workers *w, ek_job *job);
/* Runs a clean-up and its done: a large one on a worker, others at once, also if w is NULL. */
void ek_workers_clean(ek_workers *w, ek_job *job, bool large);
int ek_workers_waiting(const ek_workers *w); /* jobs that wait or run */
/* Runs the queued jobs to their end, calls done for each, and ends the threads. */
void ek_workers_close(ek_workers *w);

/* --- mailbox ---
 *
 * Queue of news from the engine's thread to the server's: one locked list and one event descriptor. post may be called
 * from any thread, gather from one thread; all other functions belong to the event loop's thread. */

typedef struct ek_mailbox ek_mailbox;
typedef void ek_mail_fn(const ek_turn_news *news);

/* fn is called in the loop's turns for all news, in order of posting, as many as a turn has time for. loop is borrowed.
 * EIO. */
ek_err ek_mailbox_open(ek_mailbox **out, struct ek_loop *loop, ek_mail_fn *fn);
/* An ek_turn_post_fn; box is the ek_mailbox. Copies the news and their text. */
void ek_mailbox_post(void *box, const ek_turn_news *news);
/* Between begin and end, posts wake nobody; the end wakes the reader once for all of them. From one thread; box is the
 * ek_mailbox, in the form that ek_engine_on_results takes. */
void ek_mailbox_gather(void *box, bool begin);
void ek_mailbox_deliver(ek_mailbox *b); /* delivers all posted news now */
void ek_mailbox_close(ek_mailbox *b);   /* call after the last post */

#endif
