#include "base/address.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

int ek_decimal(const char *s, size_t n, int max)
{
    int64_t v = 0;
    if (n == 0) return -1;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return -1;
        v = v * 10 + (s[i] - '0');
        if (v > max) return -1;
    }
    return (int)v;
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!word && c != '-' && c != '.' && c != '_') return false;
    }
    return n > 0;
}

static bool is_v6(const char *s, size_t n)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr unused;
    const char *zone = memchr(s, '%', n);
    const size_t k = zone ? (size_t)(zone - s) : n;
    if (k >= sizeof text) return false;
    memcpy(text, s, k);
    text[k] = '\0';
    return inet_pton(AF_INET6, text, &unused) == 1 && (!zone || is_name(zone + 1, n - (size_t)(zone + 1 - s)));
}

const char *ek_address_read(ek_address *out, const char *text, size_t n)
{
    const char *end = text + n;
    const bool v6 = n > 0 && *text == '[';
    const char *first = text + v6, *stop = memchr(first, v6 ? ']' : ':', (size_t)(end - first));
    if (v6 && !stop) return "the host's [ has no ]";
    if (!stop) stop = end;
    *out = (ek_address){.host = first, .n_host = (size_t)(stop - first), .v6 = v6, .port = EK_PORT_NONE};
    const bool any = !v6 && out->n_host == 1 && *first == '*';
    if (out->n_host > EK_ADDRESS_HOST || !(any || (v6 ? is_v6 : is_name)(first, out->n_host)))
        return "there is no host, or one with bytes that no host has";
    stop += v6;
    if (stop == end) return NULL;
    if (*stop != ':') return "behind the host's ] stands a port or nothing";
    out->port = ek_decimal(stop + 1, (size_t)(end - stop - 1), 65535);
    if (out->port < 0) out->port = EK_PORT_WRONG;
    return NULL;
}

enum { MAX_LOOKUPS = 4 };
#define SLICE 0.05 /* seconds between two checks of `stop` */

static atomic_int n_lookups;

/* Shared by the waiting caller and the thread. The last of the two frees it. */
typedef struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t news;
    char *host, port[16];
    bool done, left; /* done: there is a result; left: nobody waits for it any more */
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

/* Starts the thread without signals, which belong to the program. */
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

/* Waits for the result of the lookup. Afterwards the lookup no longer belongs to the caller. */
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
