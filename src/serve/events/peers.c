#define _GNU_SOURCE /* accept4 */
#include "serve/events/peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/address.h"
#include "base/linux.h"

enum { TURN = 32 /* messages per peer and turn */, BACKLOG = 64, ANSWERS = 4096 /* bytes */ };
#define GREETING_SECONDS 5.0
#define LOOK_UP_SECONDS  2.0
#define NAP              0.1 /* seconds before the next attempt to connect, or to accept after running out of descriptors */
#define LONGEST_NAP      3.0

typedef struct message {
    int n_users;
    ek_buf bytes;
} message;

typedef struct peer {
    uint64_t id;
    int fd; /* -1: unused */
    bool connecting, ready;
    struct sockaddr_storage from;
    double since;
    ek_zmtp in;
    ek_buf answers; /* bytes to send between messages; the first n_answered were sent */
    size_t n_answered;
    int n_topics;  /* number of subscriptions that match the topic */
    uint64_t next; /* number of the next message */
    message *now;  /* the message being sent, `sent` bytes of it so far; NULL: none */
    size_t sent;
    message *queue[EK_PEERS_UNREAD_ROUTER]; /* of a router */
    int n_queue;
} peer;

struct ek_peers {
    ek_peers_opts opts;
    ek_events_address address;
    char endpoint[EK_PEERS_ENDPOINT];
    int listener;
    double rests_until, nap; /* not before this time it connects or accepts again */
    uint64_t n_peers;        /* so far */
    peer peer[EK_PEERS];
    message *ring[EK_PEERS_UNREAD]; /* messages [first, next) */
    uint64_t first, next;
};

/* --- messages --- */

static message *new_message(ek_buf *bytes)
{
    message *m = ek_alloc(sizeof *m);
    m->n_users = 1;
    m->bytes = *bytes;
    *bytes = (ek_buf){0};
    return m;
}

static void leave(message *m)
{
    if (!m || --m->n_users > 0) return;
    ek_buf_fini(&m->bytes);
    free(m);
}

static bool subscribes(const peer *p)
{
    return p->fd >= 0 && p->n_topics > 0;
}

/* Drops messages that every subscriber has, or is too slow for. */
static void trim(ek_peers *s)
{
    uint64_t from = s->next;
    for (int i = 0; i < EK_PEERS; i++)
        if (subscribes(&s->peer[i]) && s->peer[i].next < from) from = s->peer[i].next;
    for (; s->first < from; s->first++) leave(s->ring[s->first % EK_PEERS_UNREAD]);
}

static message *next_message(ek_peers *s, peer *p)
{
    message *m = NULL;
    if (!s->opts.topic) {
        if (p->n_queue == 0) return NULL;
        m = p->queue[0];
        memmove(p->queue, p->queue + 1, (size_t)--p->n_queue * sizeof *p->queue);
        return m;
    }
    if (!subscribes(p)) return NULL;
    if (p->next < s->first) p->next = s->first;
    if (p->next == s->next) return NULL;
    m = s->ring[p->next++ % EK_PEERS_UNREAD];
    m->n_users++;
    return m;
}

static bool has_more(const ek_peers *s, const peer *p)
{
    if (p->connecting || p->now || p->n_answered < p->answers.len) return true;
    return s->opts.topic ? subscribes(p) && p->next < s->next : p->n_queue > 0;
}

/* --- peers --- */

static void shut(peer *p)
{
    if (p->fd >= 0) close(p->fd);
    ek_buf_fini(&p->answers);
    leave(p->now);
    for (int i = 0; i < p->n_queue; i++) leave(p->queue[i]);
    *p = (peer){.fd = -1};
}

static void begin(ek_peers *s, peer *p, int fd, bool connecting)
{
    *p = (peer){.id = ++s->n_peers, .fd = fd, .connecting = connecting, .since = ek_now()};
    p->in.router = !s->opts.topic;
    p->in.topic = s->opts.topic;
    ek_zmtp_greet(&p->answers, p->in.router);
}

static void set_options(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family) return false;
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr,
                   sizeof(struct in6_addr));
}

static int count_of(const ek_peers *s, const struct sockaddr_storage *from)
{
    int n = 0;
    for (int i = 0; i < EK_PEERS; i++) n += s->peer[i].fd >= 0 && same_host(&s->peer[i].from, from);
    return n;
}

/* A free entry for a peer from this address; NULL: none. */
static peer *make_room(ek_peers *s, const struct sockaddr_storage *from)
{
    peer *idle = NULL, *many = NULL;
    int n_many = count_of(s, from) + 1;
    for (int i = 0; i < EK_PEERS; i++) {
        peer *p = &s->peer[i];
        if (p->fd < 0) return p;
        const int n = count_of(s, &p->from);
        if (n > n_many || (n == n_many && many && p->id > many->id)) many = p, n_many = n; /* its newest */
        if (s->opts.topic && !subscribes(p) && (!idle || p->id < idle->id)) idle = p;
    }
    peer *p = idle ? idle : many;
    if (p) shut(p);
    return p;
}

/* One a turn. */
static void take_in(ek_peers *s)
{
    struct sockaddr_storage from = {0};
    socklen_t n = sizeof from;
    const int fd = accept4(s->listener, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) s->rests_until = ek_now() + NAP;
        return;
    }
    peer *p = make_room(s, &from);
    if (!p) {
        close(fd);
        return;
    }
    set_options(fd);
    begin(s, p, fd, false);
    p->from = from;
}

/* --- bytes from peers --- */

static void subscribed(ek_peers *s, peer *p)
{
    if (p->n_topics++ > 0) return;
    p->next = s->next;
    s->opts.subscribed(s->opts.arg);
}

static bool hear(ek_peers *s, peer *p, ek_zmtp_news news)
{
    switch (news) {
    case EK_ZMTP_READY: p->ready = true; break;
    case EK_ZMTP_SUBSCRIBED: subscribed(s, p); break;
    case EK_ZMTP_UNSUBSCRIBED: p->n_topics -= p->n_topics > 0; break;
    case EK_ZMTP_REQUEST: s->opts.asked(s->opts.arg, p->id, true, p->in.number); break;
    case EK_ZMTP_BAD_REQUEST: s->opts.asked(s->opts.arg, p->id, false, p->in.number); break;
    default: break;
    }
    return p->answers.len < ANSWERS; /* a peer that asks for answers must read them */
}

static bool has_room(const ek_peers *s)
{
    return !s->opts.has_room || s->opts.has_room(s->opts.arg);
}

static void hear_all(ek_peers *s, peer *p)
{
    bool good = true;
    for (ek_zmtp_news news = EK_ZMTP_OTHER; good && news != EK_ZMTP_NOTHING && has_room(s);)
        good = ek_zmtp_next(&p->in, &news, &p->answers) == EK_OK && hear(s, p, news);
    if (!good) shut(p);
}

static void listen_to(ek_peers *s, peer *p)
{
    const size_t room = sizeof p->in.in - p->in.n;
    const ssize_t got = room > 0 ? recv(p->fd, p->in.in + p->in.n, room, 0) : -1;
    if (got < 0 && (room == 0 || errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        shut(p);
        return;
    }
    p->in.n += (size_t)got;
    hear_all(s, p);
}

/* --- bytes to peers --- */

/* Sends b from *at on. False: the connection is broken, or has no room now (*full). */
static bool send_from(peer *p, const ek_buf *b, size_t *at, bool *full)
{
    while (*at < b->len) {
        const ssize_t n = send(p->fd, b->data + *at, b->len - *at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        *full = n < 0 && errno == EAGAIN;
        if (n <= 0) return false;
        *at += (size_t)n;
    }
    return true;
}

/* Sends what is due; false: the connection is broken. */
static bool tell(ek_peers *s, peer *p)
{
    bool full = false;
    for (int i = 0; i < TURN; i++) {
        if (!p->now) {
            if (!send_from(p, &p->answers, &p->n_answered, &full)) return full;
            ek_buf_clear(&p->answers);
            p->n_answered = 0;
            p->now = p->ready ? next_message(s, p) : NULL;
            p->sent = 0;
        }
        if (!p->now) return true;
        if (!send_from(p, &p->now->bytes, &p->sent, &full)) return full;
        leave(p->now);
        p->now = NULL;
    }
    return true;
}

static void go_on(ek_peers *s, peer *p)
{
    if (p->connecting) {
        int failed = 0;
        socklen_t n = sizeof failed;
        if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &failed, &n) || failed) {
            shut(p);
            return;
        }
        p->connecting = false;
        s->nap = NAP;
    }
    if (!tell(s, p)) shut(p);
}

void ek_peers_publish(ek_peers *s, ek_buf *bytes)
{
    if (s->next - s->first == EK_PEERS_UNREAD) leave(s->ring[s->first++ % EK_PEERS_UNREAD]);
    s->ring[s->next++ % EK_PEERS_UNREAD] = new_message(bytes);
}

ek_err ek_peers_send(ek_peers *s, uint64_t id, ek_buf *bytes)
{
    for (int i = 0; i < EK_PEERS; i++) {
        peer *p = &s->peer[i];
        if (p->fd < 0 || p->id != id) continue;
        if (p->n_queue == EK_PEERS_UNREAD_ROUTER) return EK_EBUSY;
        p->queue[p->n_queue++] = new_message(bytes);
        return EK_OK;
    }
    return EK_ENOTFOUND;
}

/* --- addresses --- */

/* HOST of tcp://HOST:PORT without brackets, and the port; 0: any. */
static int split(const ek_events_address *a, char host[EK_PEERS_ENDPOINT])
{
    const char *begin = a->endpoint + strlen("tcp://"), *colon = strrchr(begin, ':');
    size_t n = (size_t)(colon - begin);
    if (*begin == '[') begin++, n -= 2;
    memcpy(host, begin, n);
    host[n] = '\0';
    return colon[1] == '*' ? 0 : atoi(colon + 1);
}

/* The first IPv4 address of the interface of this name. */
static bool of_interface(const char *name, char host[EK_PEERS_ENDPOINT])
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all)) return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || strcmp(i->ifa_name, name) != 0) continue;
        const struct sockaddr_in *in = (const void *)i->ifa_addr;
        found = inet_ntop(AF_INET, &in->sin_addr, host, EK_PEERS_ENDPOINT) != NULL;
    }
    freeifaddrs(all);
    return found;
}

static ek_err bind_at(ek_peers *s, const struct addrinfo *a)
{
    const int on = 1, off = 0;
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[INET6_ADDRSTRLEN + 1];
    s->listener = ek_socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listener < 0) return EK_EIO;
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) setsockopt(s->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(s->listener, a->ai_addr, a->ai_addrlen) || listen(s->listener, BACKLOG)) return EK_EIO;
    if (getsockname(s->listener, (struct sockaddr *)&at, &n)) return EK_EIO;
    if (at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)&at;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(s->endpoint, sizeof s->endpoint, "tcp://[%s]:%d", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const void *)&at;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(s->endpoint, sizeof s->endpoint, "tcp://%s:%d", host, ntohs(four->sin_port));
    }
    return EK_OK;
}

static ek_err open_listener(ek_peers *s)
{
    char host[EK_PEERS_ENDPOINT];
    struct addrinfo *found;
    const int port = split(&s->address, host);
    if (!strcmp(host, "*")) snprintf(host, sizeof host, "0.0.0.0");
    else of_interface(host, host);
    ek_err err = ek_resolve(&found, host, port, ek_now() + 2 * LOOK_UP_SECONDS, s->opts.stop);
    if (err) return ek_fail(EK_EIO, "cannot bind %s: its host was not found", s->address.endpoint);
    err = bind_at(s, found);
    if (err) err = ek_fail(EK_EIO, "cannot bind %s: %s", s->address.endpoint, strerror(errno));
    freeaddrinfo(found);
    return err;
}

/* Connects to a peer that binds, again and again, less often while it does not answer. */
static void connect_again(ek_peers *s)
{
    char host[EK_PEERS_ENDPOINT];
    struct addrinfo *found;
    const int port = split(&s->address, host);
    s->rests_until = ek_now() + s->nap;
    s->nap = 2 * s->nap < LONGEST_NAP ? 2 * s->nap : LONGEST_NAP;
    if (ek_resolve(&found, host, port, ek_now() + LOOK_UP_SECONDS, s->opts.stop)) return;
    const int fd = ek_socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool good = fd >= 0;
    if (good) set_options(fd);
    if (good) good = connect(fd, found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS;
    freeaddrinfo(found);
    if (good) begin(s, &s->peer[0], fd, true);
    else if (fd >= 0) close(fd);
}

/* --- turns --- */

static bool takes_in(const ek_peers *s)
{
    return s->listener >= 0 && ek_now() >= s->rests_until;
}

int ek_peers_poll(ek_peers *s, struct pollfd *fds)
{
    int n = 0;
    if (!s->address.bind && s->peer[0].fd < 0 && ek_now() >= s->rests_until) connect_again(s);
    if (takes_in(s)) fds[n++] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    for (int i = 0; i < EK_PEERS; i++) {
        const peer *p = &s->peer[i];
        if (p->fd < 0) continue;
        const int in = has_room(s) ? POLLIN : 0, out = has_more(s, p) ? POLLOUT : 0;
        fds[n++] = (struct pollfd){.fd = p->fd, .events = (short)(in | out)};
    }
    return n;
}

void ek_peers_turn(ek_peers *s, const struct pollfd *fds, int n)
{
    const double now = ek_now();
    bool comes = false;
    for (int i = 0; i < n; i++) {
        comes |= fds[i].fd == s->listener && fds[i].revents;
        for (int k = 0; k < EK_PEERS && fds[i].revents; k++) {
            peer *p = &s->peer[k];
            if (p->fd != fds[i].fd) continue;
            if (!p->connecting && fds[i].revents & POLLIN) listen_to(s, p);
            else if (!p->connecting && fds[i].revents & (POLLERR | POLLHUP)) shut(p);
            else if (p->connecting) go_on(s, p);
            break;
        }
    }
    for (int k = 0; k < EK_PEERS; k++) {
        peer *p = &s->peer[k];
        if (p->fd >= 0 && !p->ready && now - p->since > GREETING_SECONDS) shut(p);
        if (p->fd >= 0 && p->ready && p->in.n > 0) hear_all(s, p); /* bytes that had no room before */
        if (p->fd >= 0 && !p->connecting && has_more(s, p)) go_on(s, p);
    }
    trim(s);
    if (comes) take_in(s);
}

int ek_peers_wait(const ek_peers *s)
{
    double until = s->rests_until;
    const double now = ek_now();
    bool any = until > now || (!s->address.bind && s->peer[0].fd < 0);
    for (int i = 0; i < EK_PEERS; i++) {
        const peer *p = &s->peer[i];
        if (p->fd < 0 || p->ready) continue;
        if (!any || p->since + GREETING_SECONDS < until) until = p->since + GREETING_SECONDS;
        any = true;
    }
    if (!any) return -1;
    return until > now ? (int)((until - now) * 1000) + 1 : 1;
}

/* --- opening --- */

ek_err ek_peers_open(ek_peers **out, const ek_peers_opts *o)
{
    ek_peers *s = ek_alloc(sizeof *s);
    s->opts = *o;
    s->address = *o->address;
    s->opts.address = &s->address;
    s->listener = -1;
    s->nap = NAP;
    for (int i = 0; i < EK_PEERS; i++) s->peer[i].fd = -1;
    snprintf(s->endpoint, sizeof s->endpoint, "%s", s->address.endpoint);
    ek_err err = s->address.bind ? open_listener(s) : EK_OK;
    if (err) {
        ek_peers_close(s);
        return err;
    }
    *out = s;
    return EK_OK;
}

void ek_peers_close(ek_peers *s)
{
    if (!s) return;
    for (int i = 0; i < EK_PEERS; i++) shut(&s->peer[i]);
    trim(s);
    if (s->listener >= 0) close(s->listener);
    free(s);
}

const char *ek_peers_endpoint(const ek_peers *s)
{
    return s->endpoint;
}
