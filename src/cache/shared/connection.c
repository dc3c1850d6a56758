#include "cache/shared/shared.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define SHORTEST_REST 0.25
#define LONGEST_REST  30.0

/* At most one line per minute for both connections. */
static void warn(ek_shared *s, const char *why, double rest)
{
    pthread_mutex_lock(&s->lock);
    bool silent = s->last_warning > 0 && ek_now() - s->last_warning < 60;
    if (!silent) s->last_warning = ek_now();
    s->warned = s->warned || !silent;
    pthread_mutex_unlock(&s->lock);
    if (silent || atomic_load(&s->stop)) return;
    ek_log(EK_LOG_WARN, "%s: %s: %s; tried again in %.2g s, and less often while it lasts", s->name, s->text, why,
           rest);
}

static double rest(ek_shared_connection *l)
{
    double pause = SHORTEST_REST;
    for (int i = 1; i < l->failures && pause < LONGEST_REST; i++) pause *= 2;
    if (pause > LONGEST_REST) pause = LONGEST_REST;
    l->rest_until = ek_now() + pause;
    return pause;
}

static void say_good(ek_shared *s)
{
    pthread_mutex_lock(&s->lock);
    bool was = s->warned;
    s->warned = false;
    pthread_mutex_unlock(&s->lock);
    if (was) ek_log(EK_LOG_INFO, "%s: %s: connected", s->name, s->text);
}

void ek_shared_connection_close(ek_shared_connection *l)
{
    if (l->redis) atomic_fetch_sub(&l->s->counts.connected, 1);
    ek_redis_close(l->redis);
    l->redis = NULL;
}

bool ek_shared_connection_connect(ek_shared_connection *l)
{
    ek_shared *s = l->s;
    const ek_link_opts o = {.url = &s->url, .ca = s->ca, .cert = s->cert, .stop = &s->stop};
    ek_err err = ek_redis_open(&l->redis, &o, ek_now() + EK_SHARED_CONNECT);
    if (!err) {
        atomic_fetch_add(&s->counts.connected, 1);
        say_good(s);
        return true;
    }
    l->redis = NULL;
    l->failures++;
    atomic_fetch_add(&s->counts.errors, 1);
    warn(s, ek_err_text(), rest(l));
    return false;
}

bool ek_shared_connection_failed(ek_shared_connection *l, ek_err err)
{
    bool again = l->failures++ == 0 && err == EK_EIO;
    atomic_fetch_add(&l->s->counts.errors, 1);
    ek_shared_connection_close(l);
    if (!again) warn(l->s, ek_err_text(), rest(l));
    return again;
}

void ek_shared_connection_refused(ek_shared_connection *l, const char *command, const char *words)
{
    char shown[EK_PLAIN_NAME], why[EK_PLAIN_NAME + 128];
    bool cluster = strncmp(words, "MOVED", 5) == 0 || strncmp(words, "ASK ", 4) == 0;
    snprintf(why, sizeof why, "the server answers %s to %s%s", ek_plain_name(shown, words), command,
             cluster ? " (a node of a cluster has some keys alone: name a proxy for it)" : "");
    atomic_fetch_add(&l->s->counts.errors, 1);
    if (l->rest_until > ek_now()) return; /* an error of the same batch: one wait is enough */
    l->failures++;
    warn(l->s, why, rest(l));
}

void ek_shared_connection_good(ek_shared_connection *l)
{
    l->failures = 0;
}

void ek_shared_connection_charge(ek_shared_connection *l, double n)
{
    double now = ek_now();
    if (l->s->rate <= 0) return;
    if (l->charged_until < now) l->charged_until = now;
    l->charged_until += n / l->s->rate;
}

double ek_shared_connection_backoff(const ek_shared_connection *l)
{
    double left = l->charged_until - ek_now();
    return left > 0 ? left : 0;
}

ek_err ek_shared_thread(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = ek_thread_start(out, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? EK_OK : ek_fail(EK_ENOMEM, "a thread for shared pages could not be started");
}
