#include "base/resolve.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { MAX_LOOKUPS = 4 };
#define SLICE 0.05 /* seconds between looks at `stop` */

static atomic_int n_lookups;

/* Of the one that waits and of the thread: the last of them frees it. */
typedef struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t news;
    char *host, port[16];
    bool done, left; /* there is a result; nobody waits for it any more */
    int rc;
    struct addrinfo *found;
} lookup;

static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

static void free_lookup(lookup *l)
{
    if (l->found) freeaddrinfo(l->found);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->news);
    free(l->host);
    free(l);
    atomic_fetch_sub(&n_lookups, 1);
}

static void *look_up(void *arg)
{
    lookup *l = arg;
    struct addrinfo *found = NULL;
    const int rc = getaddrinfo(l->host, l->port, &hints, &found);
    pthread_mutex_lock(&l->lock);
    l->rc = rc;
    l->found = rc == 0 ? found : NULL;
    l->done = true;
    const bool left = l->left;
    pthread_cond_signal(&l->news);
    pthread_mutex_unlock(&l->lock);
    if (left) free_lookup(l);
    return NULL;
}

/* Without signals: they are the program's. */
static bool start(lookup *l)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&thread, &detached, look_up, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return rc == 0;
}

/* The result of the lookup, which is the caller's no longer. */
static ek_err wait_for(lookup *l, struct addrinfo **out, double deadline, const atomic_bool *stop)
{
    pthread_mutex_lock(&l->lock);
    for (double now = ek_now(); !l->done && now < deadline && !(stop && atomic_load(stop)); now = ek_now())
        ek_wait_until(&l->news, &l->lock, now + SLICE < deadline ? now + SLICE : deadline);
    const bool done = l->done;
    const int rc = l->rc;
    *out = l->found;
    l->found = NULL;
    l->left = !done;
    pthread_mutex_unlock(&l->lock);
    if (!done) return ek_fail(EK_ETIMEOUT, "the name was not looked up in time: the name server does not answer");
    free_lookup(l);
    return rc == 0 ? EK_OK : ek_fail(EK_EIO, "%s", gai_strerror(rc));
}

ek_err ek_resolve(struct addrinfo **out, const char *host, int port, double deadline, const atomic_bool *stop)
{
    struct addrinfo literal = hints;
    char text[16];
    snprintf(text, sizeof text, "%d", port);
    literal.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    *out = NULL;
    if (getaddrinfo(host, text, &literal, out) == 0) return EK_OK;
    *out = NULL;
    if (atomic_fetch_add(&n_lookups, 1) >= MAX_LOOKUPS) {
        atomic_fetch_sub(&n_lookups, 1);
        return ek_fail(EK_ETIMEOUT, "the name server answers none of %d lookups", MAX_LOOKUPS);
    }
    lookup *l = ek_alloc(sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->news, NULL);
    l->host = ek_strdup(host);
    memcpy(l->port, text, sizeof text);
    if (start(l)) return wait_for(l, out, deadline, stop);
    free_lookup(l);
    return ek_fail(EK_ENOMEM, "a thread for looking up a name could not be started");
}
