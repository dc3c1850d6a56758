/* Messages to a supervisor (base/notify.h): the server is ready, what runs, the server stops; and signs of life, unless
 * it is stalled. */
#include <stdio.h>

#include "base/clock.h"
#include "base/notify.h"
#include "serve/server_state.h"
#include "serve/status.h"

static const double STATUS_SECONDS = 1; /* between two status lines */

void ek_supervised_open(ek_server *s)
{
    s->supervised.watchdog = ek_notify_watchdog();
}

/* Sends the state; again at the next tick if the supervisor's queue was full. */
static void say(ek_server *s, ek_readiness now, const ek_engine_stats *st)
{
    char text[256], name[100];
    snprintf(name, sizeof name, "%s", s->model_name);
    for (char *c = name; *c; c++) /* a line end would begin another message */
        if ((unsigned char)*c < ' ') *c = '?';
    const bool ready = now == EK_READY && !s->supervised.ready, stopping = now == EK_READY_STOPPING;
    const char *news = ready ? "READY=1\n" : stopping && s->supervised.said != EK_READY_STOPPING ? "STOPPING=1\n" : "";
    snprintf(text, sizeof text, "%sSTATUS=%s on port %d: %s, %d running, %d waiting\n", news, name, ek_server_port(s),
             ek_ready_name(now), st->running, st->waiting);
    if (!ek_notify(text)) return;
    s->supervised.ready |= ready;
    s->supervised.said = now;
    s->supervised.running = st->running, s->supervised.waiting = st->waiting;
    s->supervised.said_at = ek_now();
}

void ek_supervised_tick(ek_server *s)
{
    ek_engine_stats st;
    const ek_readiness now = ek_ready(s);
    const double time = ek_now();
    ek_engine_stats_read(s->engine, &st);
    const bool other = now != s->supervised.said || !s->supervised.said_at;
    const bool counts = st.running != s->supervised.running || st.waiting != s->supervised.waiting;
    if (other || (counts && time - s->supervised.said_at >= STATUS_SECONDS)) say(s, now, &st);
    if (!s->supervised.watchdog || now == EK_READY_STALLED ||
        time - s->supervised.alive_at < s->supervised.watchdog / 3)
        return;
    if (ek_notify("WATCHDOG=1\n")) s->supervised.alive_at = time;
}
