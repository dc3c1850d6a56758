#include "serve/events/events.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"

#ifdef EK_HAVE_EVENTS
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linux.h"
#include "base/log.h"
#include "serve/events/peers.h"
#include "serve/events/replay.h"

/* changes per batch; batches per turn before requests are looked at */
enum { CHANGES = 64, BATCHES = 64, EPOCH = 1 << 18 };
/* Seconds between batches, so that changes of several steps share one. */
static const double PAUSE = 0.01;
/* Seconds between two repetitions of everything. */
static const double AGAIN = 1;

struct ek_events {
    ek_peers *pub, *router; /* router: NULL without */
    atomic_bool stopping;
    ek_held_queue *queue;
    bool arrays;
    char *topic;
    pthread_t thread;
    bool has_thread;
    int stop;
    ek_mirror mirror;
    ek_history history;
    ek_replays replays;
    bool newcomer;         /* a peer subscribed, and there is no replay socket */
    double reported_again; /* ek_now() */
    ek_held_change change[CHANGES];
    pthread_mutex_t lock;
    ek_events_stats stats; /* under the lock */
};

static void put_number(uint8_t out[8], uint64_t number)
{
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(number >> (56 - 8 * i));
}

/* --- publishing */

static void count(ek_events *e, size_t bytes, uint64_t came, uint64_t went)
{
    pthread_mutex_lock(&e->lock);
    ek_events_stats *s = &e->stats;
    s->sequence = e->history.next;
    s->batches++;
    s->bytes += bytes;
    s->came += came;
    s->went += went;
    s->pages = (uint64_t)e->mirror.n;
    pthread_mutex_unlock(&e->lock);
}

/* A slow subscriber loses the oldest batches. */
static void publish(ek_events *e, ek_buf *payload, uint64_t came, uint64_t went)
{
    uint8_t number[8];
    const size_t topic = strlen(e->topic), bytes = topic + sizeof number + payload->len;
    ek_buf message = {0};
    put_number(number, e->history.next);
    ek_zmtp_frame(&message, e->topic, topic, true);
    ek_zmtp_frame(&message, number, sizeof number, true);
    ek_zmtp_frame(&message, payload->data, payload->len, false);
    ek_peers_publish(e->pub, &message);
    ek_history_add(&e->history, payload);
    count(e, bytes, came, went);
}

static void begin_again(ek_events *e)
{
    ek_buf *batch;
    ek_replays_drop(&e->replays);
    ek_history_clear(&e->history);
    int n = ek_events_snapshot(&batch, &e->mirror, e->arrays, ek_unix_now(), EK_PEERS_UNREAD / 2);
    for (int i = 0; i < n; i++) publish(e, &batch[i], 0, 0);
    free(batch);
}

/* False: no changes remain. */
static bool publish_one(ek_events *e)
{
    uint64_t came = 0;
    int n = 0;
    while (n < CHANGES && ek_held_take(e->queue, &e->change[n])) came += e->change[n++].came;
    if (n == 0) return false;
    if (e->history.next >= EPOCH) begin_again(e);
    ek_buf payload = {0};
    ek_events_write(&payload, e->arrays, ek_unix_now(), e->history.next == 0, e->change, n);
    for (int i = 0; i < n; i++) ek_mirror_apply(&e->mirror, &e->change[i]);
    publish(e, &payload, came, (uint64_t)n - came);
    return n == CHANGES;
}

/* Without replays a late subscriber gets all held pages, and so do all others. */
static void tell_again(ek_events *e)
{
    ek_buf *batch;
    e->newcomer = false;
    e->reported_again = ek_now();
    if (e->history.next == 0) return; /* the first batch clears everything anyway */
    int n = ek_events_snapshot(&batch, &e->mirror, e->arrays, ek_unix_now(), EK_PEERS_UNREAD / 2);
    for (int i = 0; i < n; i++) publish(e, &batch[i], 0, 0);
    free(batch);
}

/* ek_peers_opts.subscribed */
static void note_newcomer(void *arg)
{
    ek_events *e = arg;
    e->newcomer = e->newcomer || !e->router;
}

/* Returns whether more may remain. */
static bool publish_some(ek_events *e)
{
    for (int i = 0; i < BATCHES; i++)
        if (!publish_one(e)) return false;
    return true;
}

/* --- replays */

static ek_replay_sent send_replay(void *arg, ek_events_frame peer, uint64_t number, ek_events_frame payload)
{
    ek_events *e = arg;
    uint8_t n[8];
    uint64_t id;
    const char *topic = payload.data ? e->topic : "";
    ek_buf message = {0};
    memcpy(&id, peer.data, sizeof id);
    put_number(n, number);
    ek_zmtp_frame(&message, "", 0, true);
    ek_zmtp_frame(&message, topic, strlen(topic), true);
    ek_zmtp_frame(&message, n, sizeof n, true);
    ek_zmtp_frame(&message, payload.data ? payload.data : "", payload.n, false);
    const ek_err err = ek_peers_send(e->router, id, &message);
    ek_buf_fini(&message);
    return err == EK_OK ? EK_REPLAY_SENT : err == EK_EBUSY ? EK_REPLAY_LATER : EK_REPLAY_GONE;
}

/* ek_peers_opts.has_room */
static bool has_room(void *arg)
{
    const ek_events *e = arg;
    return e->replays.n < EK_REPLAYS;
}

/* ek_peers_opts.asked */
static void take_request(void *arg, uint64_t peer, bool good, const uint8_t number[8])
{
    ek_events *e = arg;
    const ek_events_frame frame[3] = {{&peer, sizeof peer}, {"", 0}, {number, 8}};
    uint64_t from;
    good = good && ek_replay_parse(frame, 3, &from);
    if (good) ek_replays_ask(&e->replays, frame[0], from, ek_now());
    pthread_mutex_lock(&e->lock);
    e->stats.bad_requests += !good;
    pthread_mutex_unlock(&e->lock);
}

static bool go_on(ek_events *e)
{
    if (e->replays.n == 0) return false;
    bool more = ek_replays_go_on(&e->replays, ek_now(), ek_unix_now());
    pthread_mutex_lock(&e->lock);
    e->stats.replays = e->replays.done;
    e->stats.lost_replays = e->replays.lost;
    e->stats.replay_batches = e->replays.batches;
    pthread_mutex_unlock(&e->lock);
    return more;
}

/* --- the thread */

static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static int wait_ms(const ek_events *e, bool pending, double until, bool more)
{
    enum { PEER = 5 }; /* milliseconds after which a peer with too much unread is tried again */
    const double left = ceil((until - ek_now()) * 1e3);
    int ms = e->replays.n > 0 ? PEER : -1;
    if (more || (pending && left <= 0)) return 0;
    if (pending) ms = sooner(ms, (int)left);
    if (e->newcomer) ms = sooner(ms, 100);
    ms = sooner(ms, ek_peers_wait(e->pub));
    return e->router ? sooner(ms, ek_peers_wait(e->router)) : ms;
}

static void *run(void *arg)
{
    ek_events *e = arg;
    bool pending = false, more = false;
    double until = 0;
    for (;;) {
        struct pollfd at[2 + 2 * EK_PEERS_FDS] = {{.fd = e->stop, .events = POLLIN},
                                                  {.fd = ek_held_fd(e->queue), .events = POLLIN}};
        const int n_pub = ek_peers_poll(e->pub, at + 2);
        const int n_router = e->router ? ek_peers_poll(e->router, at + 2 + n_pub) : 0;
        if (poll(at, (nfds_t)(2 + n_pub + n_router), wait_ms(e, pending, until, more)) < 0 && errno != EINTR) {
            ek_log(EK_LOG_ERROR, "events of cached pages end: %s", strerror(errno));
            return NULL;
        }
        if (at[0].revents) return NULL;
        uint64_t news;
        if (at[1].revents && read(ek_held_fd(e->queue), &news, sizeof news) > 0) pending = true;
        if (pending && ek_now() >= until) {
            pending = publish_some(e);
            if (!pending) until = ek_now() + PAUSE;
        }
        ek_peers_turn(e->pub, at + 2, n_pub);
        if (e->newcomer && ek_now() - e->reported_again >= AGAIN) tell_again(e);
        if (e->router) ek_peers_turn(e->router, at + 2 + n_pub, n_router);
        more = go_on(e);
    }
}

/* --- opening */

static ek_err open_socket(ek_events *e, ek_peers **out, const ek_events_address *a, const char *topic, int which)
{
    const ek_peers_opts o = {.address = a,
                             .topic = topic,
                             .stop = &e->stopping,
                             .subscribed = note_newcomer,
                             .has_room = topic ? NULL : has_room,
                             .asked = take_request,
                             .arg = e};
    EK_TRY(ek_peers_open(out, &o));
    snprintf(e->stats.endpoint[which], sizeof e->stats.endpoint[which], "%s", ek_peers_endpoint(*out));
    return EK_OK;
}

static ek_err open_all(ek_events *e, const ek_events_opts *o)
{
    e->stop = eventfd(0, EFD_CLOEXEC);
    if (e->stop < 0) return ek_fail(EK_EIO, "no event descriptor: %s", strerror(errno));
    EK_TRY(open_socket(e, &e->pub, &o->events, e->topic, 0));
    if (*o->replay.endpoint) EK_TRY(open_socket(e, &e->router, &o->replay, NULL, 1));
    if (pthread_create(&e->thread, NULL, run, e))
        return ek_fail(EK_ENOMEM, "the thread that publishes events could not be started");
    e->has_thread = true;
    return EK_OK;
}

bool ek_events_built(void)
{
    return true;
}

ek_err ek_events_open(ek_events **out, const ek_events_opts *o)
{
    ek_events *e = ek_alloc(sizeof *e);
    e->queue = o->queue;
    e->arrays = o->arrays;
    e->topic = ek_strdup(o->topic);
    e->replays = (ek_replays){
        .history = &e->history, .mirror = &e->mirror, .arrays = e->arrays, .send = send_replay, .arg = e};
    pthread_mutex_init(&e->lock, NULL);
    ek_err err = open_all(e, o);
    if (err) {
        ek_events_close(e);
        return err;
    }
    *out = e;
    return EK_OK;
}

void ek_events_stats_read(const ek_events *e, ek_events_stats *out)
{
    ek_events *open = (ek_events *)(uintptr_t)e; /* only to take the lock */
    pthread_mutex_lock(&open->lock);
    *out = e->stats;
    pthread_mutex_unlock(&open->lock);
}

void ek_events_close(ek_events *e)
{
    static const uint64_t one = 1;
    if (!e) return;
    if (e->has_thread) {
        atomic_store(&e->stopping, true);
        while (write(e->stop, &one, sizeof one) < 0 && errno == EINTR) continue;
        pthread_join(e->thread, NULL);
    }
    ek_peers_close(e->pub);
    ek_peers_close(e->router);
    if (e->stop >= 0) close(e->stop);
    ek_replays_drop(&e->replays);
    ek_history_clear(&e->history);
    ek_mirror_fini(&e->mirror);
    pthread_mutex_destroy(&e->lock);
    free(e->topic);
    free(e);
}

#else

bool ek_events_built(void)
{
    return false;
}

ek_err ek_events_open(ek_events **out, const ek_events_opts *o)
{
    (void)o;
    *out = NULL;
    return ek_fail(EK_EUNSUPPORTED, "this program was built without msgpack-c, which --kv-events needs");
}

void ek_events_stats_read(const ek_events *e, ek_events_stats *out)
{
    (void)e;
    memset(out, 0, sizeof *out);
}

void ek_events_close(ek_events *e)
{
    (void)e;
}
#endif

/* --- addresses --- */

static ek_err wrong(const char *option, const char *text, const char *need)
{
    return ek_fail(EK_EINVAL, "%s %.80s: %s", option, text, need);
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
    return !strcmp(host, "[::1]") || !strcmp(host, "lo");
}

ek_err ek_events_address_parse(ek_events_address *out, const char *option, const char *text, bool must_bind)
{
    static const char scheme[] = "tcp://", need[] = "tcp://HOST:PORT is needed, with @ in front of it to bind at HOST";
    const char *host = text + (*text == '@');
    if (strncmp(host, scheme, sizeof scheme - 1) != 0) return wrong(option, text, need);
    host += sizeof scheme - 1;
    ek_address a;
    if (ek_address_read(&a, host, strlen(host)) || a.port == EK_PORT_NONE) return wrong(option, text, need);
    char name[EK_EVENTS_HOST_MAX + 3];
    snprintf(name, sizeof name, a.v6 ? "[%.*s]" : "%.*s", (int)a.n_host, a.host);
    bool any = !strcmp(name, "*") || !strcmp(name, "[::]");
    *out = (ek_events_address){.bind = must_bind || *text == '@' || any, .v6 = a.v6};
    out->open = out->bind && !is_loopback(name);
    if (a.port < 0 || (a.port == 0 && !out->bind))
        return wrong(option, text, out->bind ? "the port is 0 to 65535" : "the port to connect to is 1 to 65535");
    if (a.port == 0) snprintf(out->endpoint, sizeof out->endpoint, "%s%s:*", scheme, name);
    else snprintf(out->endpoint, sizeof out->endpoint, "%s%s:%d", scheme, name, a.port);
    return EK_OK;
}
