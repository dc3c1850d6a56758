/* Making room: closes connections without a request, and bodies that arrive slowly. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/hash/rng.h"
#include "serve/http/http_state.h"

enum { SMALL_BODY = EK_HTTP_SMALL_BODY };
static const double STALLED = 1;    /* seconds without a byte after which a large body may be given up for others */
static const double QUICK = 8;      /* a body that needed fewer seconds at its rate is not given up for others */
static const double RESERVED_S = 2; /* seconds that a connection beyond the limit has for its head */

/* A number for the peer's address; of IPv6 its /64. */
static uint64_t client_of(int fd, bool *local)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    uint64_t id = 0;
    *local = false;
    if (getpeername(fd, (struct sockaddr *)&a, &n)) return 1;
    *local = ek_bound_is_loopback(&a);
    if (a.ss_family == AF_INET) {
        id = ((const struct sockaddr_in *)&a)->sin_addr.s_addr;
    } else if (a.ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&a)->sin6_addr;
        uint32_t v4;
        memcpy(&v4, v6->s6_addr + 12, sizeof v4);
        if (IN6_IS_ADDR_V4MAPPED(v6)) id = v4;
        else memcpy(&id, v6->s6_addr, sizeof id); /* a client has a whole network, at least a /64 */
    }
    return ek_mix64(id) | 1;
}

static int *n_of_client(const ek_conn *c)
{
    return &c->http->n_of_client[c->client % EK_HTTP_CLIENTS];
}

void ek_crowd_enter(ek_conn *c)
{
    c->client = client_of(c->fd, &c->local);
    (*n_of_client(c))++;
}

void ek_crowd_leave(ek_conn *c)
{
    (*n_of_client(c))--;
}

/* Carries no request. */
static bool is_silent(const ek_conn *c, bool lingering)
{
    return (c->state == EK_CONN_HEAD && !c->later_link) || (lingering && c->state == EK_CONN_LINGER);
}

static ek_conn *worst_silent(ek_http *s, bool lingering)
{
    ek_conn *worst = NULL;
    for (ek_conn *c = s->first; c; c = c->next) {
        if (!is_silent(c, lingering)) continue;
        int more = worst ? *n_of_client(c) - *n_of_client(worst) : 1;
        if (more > 0 || (more == 0 && c->since < worst->since)) worst = c;
    }
    return worst;
}

void ek_crowd_make_room(ek_http *s, bool lingering)
{
    enum { TRIES = 4 };
    char byte;
    for (int i = 0; i < TRIES; i++) {
        ek_conn *c = worst_silent(s, lingering);
        if (!c) return;
        bool speaks = c->state == EK_CONN_HEAD && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
        if (!speaks || i == TRIES - 1) {
            ek_conn_kill(c);
            return;
        }
        c->since = ek_now(); /* the received bytes are about to be read */
    }
}

bool ek_crowd_is_late(const ek_conn *c, double now)
{
    return c->reserved && c->state == EK_CONN_HEAD && now - c->since > RESERVED_S;
}

/* --- bodies --- */

void ek_crowd_body_begins(ek_conn *c)
{
    c->rate = (ek_rate){.begin = ek_now()};
    c->rate.half = c->rate.before = c->rate.begin;
}

void ek_crowd_body_grows(ek_conn *c, size_t n)
{
    ek_rate *r = &c->rate;
    double now = ek_now();
    if (now - r->half > c->http->opts.rate_window / 2) {
        r->before = r->half, r->half = now;
        r->n_before = r->n, r->n = 0;
    }
    r->n += n;
}

/* The recent rate in bytes per second. */
static double rate(const ek_conn *c, double now)
{
    const ek_rate *r = &c->rate;
    bool over = now - r->half > c->http->opts.rate_window; /* if nothing arrived, the window was not moved */
    double since = over ? r->half : r->before;
    double n = over ? (double)r->n : (double)(r->n + r->n_before);
    return n / (now - since > 0.01 ? now - since : 0.01);
}

bool ek_crowd_is_slow(const ek_conn *c, double now)
{
    double min = c->http->opts.min_body_rate;
    bool large = c->state == EK_CONN_BODY && c->x->body.len > SMALL_BODY;
    return min > 0 && large && now - c->rate.begin > c->http->opts.rate_window && rate(c, now) < min;
}

/* The seconds that a body of this size takes at its rate: largest for the slowest and largest body. */
static double weight(const ek_conn *c, double now, size_t more)
{
    double r = rate(c, now);
    return (double)(c->x->body.len + more) / (r > 1 ? r : 1);
}

bool ek_crowd_give_up_body(ek_conn *c, size_t n)
{
    double now = ek_now(), longest = 0;
    ek_conn *worst = NULL;
    for (ek_conn *o = c->http->first; o; o = o->next) {
        if (o == c || o->state != EK_CONN_BODY || o->x->body.len <= SMALL_BODY) continue;
        double w = weight(o, now, 0);
        bool stalled = now - o->last_byte > STALLED;
        if (!stalled && w < QUICK + 4 * weight(c, now, n)) continue;
        if (worst && w <= longest) continue;
        worst = o, longest = w;
    }
    if (worst) ek_conn_refuse(worst, 503, "the request's body came slowly while others waited for its memory");
    return worst != NULL;
}
