/* The turns of the event loop: a budget of CPU time for each, and how long they took.
 *
 * Whatever a turn finds to do, it stops when its budget is spent; what is left waits for the next one, behind what has
 * arrived meanwhile. Work that cannot be divided is done elsewhere (workers.h). Time is that of the thread: what waits
 * or is pre-empted is not the loop's doing. Event loop's thread only. */
#ifndef EK_SERVE_LOOP_H
#define EK_SERVE_LOOP_H

#include <stdbool.h>

#include "base/histogram.h"

struct event_base;

typedef struct ek_loop {
    struct event_base *base;
    double begin;      /* of this turn, in seconds of the thread's CPU time */
    double not_before; /* on the clock of ek_now: until then the turn cannot have spent its time */
    double max;        /* the longest turn so far */
    ek_histogram turns;
    bool stopping;
} ek_loop;

/* Runs turns until ek_loop_stop, or until the loop fails (-1, errno). */
int ek_loop_run(ek_loop *l);
void ek_loop_stop(ek_loop *l);
/* Has this turn used its budget? Then it ends after the callback that asked, which leaves the rest of its work: what
 * libevent has active stays so; own lists need a wake-up (ek_loop_again). A loop that is NULL or does not run has no
 * budget. */
bool ek_loop_spent(ek_loop *l);

struct event;
/* Has the event, a timer, called in the next turn. */
void ek_loop_again(struct event *timer);

#endif
