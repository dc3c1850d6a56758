/* The turns of the event loop: a budget of CPU time for each turn, and a histogram of their durations.
 *
 * A turn stops when its budget is spent. Its remaining work waits for the next turn, after everything that has arrived
 * meanwhile. Work that cannot be divided runs on other threads (workers.h). Time is CPU time of the thread, because
 * waiting and pre-emption are not the loop's doing. Event loop's thread only. */
#ifndef EK_SERVE_LOOP_H
#define EK_SERVE_LOOP_H

#include <stdbool.h>

#include "base/histogram.h"

struct event_base;

typedef struct ek_loop {
    struct event_base *base;
    double begin;      /* start of this turn, in seconds of the thread's CPU time */
    double not_before; /* a time of ek_now() before which the turn cannot have spent its budget */
    double max;        /* the longest turn so far, in seconds */
    ek_histogram turns;
    bool stopping;
} ek_loop;

/* Runs turns until ek_loop_stop. Returns -1 with errno if the loop fails. */
int ek_loop_run(ek_loop *l);
void ek_loop_stop(ek_loop *l);
/* Whether this turn has used its budget. If so, the turn ends after the callback that asked. The callback leaves the
 * rest of its work: libevent's active events stay active, but a list of the caller's own needs a wake-up
 * (ek_loop_again). A NULL or stopped loop has no budget. */
bool ek_loop_spent(ek_loop *l);

struct event;
/* Calls the timer's callback in the next turn. */
void ek_loop_again(struct event *timer);

#endif
