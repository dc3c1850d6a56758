#include "serve/http/loop.h"

#include <event2/event.h>
#include <stddef.h>

#include "base/clock.h"

static const double BUDGET = 2e-3; /* seconds of a turn after which no more work is begun */

int ek_loop_run(ek_loop *l)
{
    int bad = 0;
    l->begin = ek_thread_time();
    while (!l->stopping && bad == 0) {
        l->not_before = 0;
        bad = event_base_loop(l->base, EVLOOP_ONCE);
        const double end = ek_thread_time(), took = end - l->begin;
        l->begin = end;
        ek_histogram_add(&l->turns, EK_HISTOGRAM_MICRO, took);
        if (took > l->max) l->max = took;
    }
    l->begin = 0;
    return bad;
}

void ek_loop_stop(ek_loop *l)
{
    l->stopping = true;
    event_base_loopbreak(l->base);
}

bool ek_loop_spent(ek_loop *l)
{
    if (!l || l->begin <= 0) return false;
    const double now = ek_now(); /* once per token, so without a system call */
    if (now < l->not_before) return false;
    const double left = BUDGET - (ek_thread_time() - l->begin);
    l->not_before = now + left;
    if (left > 0) return false;
    event_base_loopbreak(l->base); /* the rest of what is active stays active */
    return true;
}

void ek_loop_again(struct event *timer)
{
    static const struct timeval now = {0, 0}; /* timers are checked once per turn, before events */
    event_add(timer, &now);
}
