#include "serve/events/events.h"

#ifdef EK_HAVE_EVENTS
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/events/replay.h"

/* Changes of one batch; batches in a turn before requests are looked at. */
enum { CHANGES = 64, BATCHES = 64, UNREAD = 1000, UNREAD_REPLAY = 64, EPOCH = 1 << 18 };
/* Seconds from a batch to the next: changes of several steps share one. */
static const double PAUSE = 0.01;
/* Seconds between two times that everything is told again. */
static const double AGAIN = 1;

struct ek_events {
    void *context, *pub, *router; /* router: NULL without */
    ek_held_queue *queue;
    ek_events_form form;
    char *topic;
    pthread_t thread;
    bool has_thread;
    int stop;
    ek_mirror mirror;
    ek_history history;
    ek_replays replays;
    bool newcomer;     /* somebody subscribed, and nobody can ask for a replay */
    double told_again; /* ek_now() */
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

/* A subscriber that is behind loses it; so does everybody if there is no memory. */
static void publish(ek_events *e, ek_buf *payload, uint64_t came, uint64_t went)
{
    uint8_t number[8];
    size_t bytes = strlen(e->topic) + 8 + payload->len;
    put_number(number, e->history.next);
    if (zmq_send(e->pub, e->topic, strlen(e->topic), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
        zmq_send(e->pub, number, 8, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        zmq_send(e->pub, payload->data, payload->len, ZMQ_DONTWAIT);
    ek_history_add(&e->history, payload);
    count(e, bytes, came, went);
}

static void begin_again(ek_events *e)
{
    ek_buf *batch;
    ek_replays_drop(&e->replays);
    ek_history_clear(&e->history);
    int n = ek_events_snapshot(&batch, &e->mirror, &e->form, ek_unix_now(), UNREAD / 2);
    for (int i = 0; i < n; i++) publish(e, &batch[i], 0, 0);
    free(batch);
}

/* False: nothing is left. */
static bool publish_one(ek_events *e)
{
    uint64_t came = 0;
    int n = 0;
    while (n < CHANGES && ek_held_take(e->queue, &e->change[n])) came += e->change[n++].came;
    if (n == 0) return false;
    if (e->history.next >= EPOCH) begin_again(e);
    ek_buf payload = {0};
    ek_events_write(&payload, &e->form, ek_unix_now(), e->history.next == 0, e->change, n);
    for (int i = 0; i < n; i++) ek_mirror_apply(&e->mirror, &e->change[i]);
    publish(e, &payload, came, (uint64_t)n - came);
    return n == CHANGES;
}

/* Somebody who came late, where there are no replays, gets what is held, and so does everybody else. */
static void tell_again(ek_events *e)
{
    ek_buf *batch;
    e->newcomer = false;
    e->told_again = ek_now();
    if (e->history.next == 0) return; /* the first batch clears everything anyway */
    int n = ek_events_snapshot(&batch, &e->mirror, &e->form, ek_unix_now(), UNREAD / 2);
    for (int i = 0; i < n; i++) publish(e, &batch[i], 0, 0);
    free(batch);
}

/* Messages of subscribers: a byte, 1 for a subscription, and its topic. */
static void hear_subscribers(ek_events *e)
{
    char first;
    for (int i = 0; i < BATCHES; i++) {
        int n = zmq_recv(e->pub, &first, 1, ZMQ_DONTWAIT);
        if (n < 0) return;
        if (n > 0 && first == 1 && !e->router) e->newcomer = true;
    }
}

/* Returns whether there may be more. */
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
    const char *topic = payload.data ? e->topic : "";
    put_number(n, number);
    if (zmq_send(e->router, peer.data, peer.n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return errno == EAGAIN ? EK_REPLAY_LATER : EK_REPLAY_GONE;
    /* Once the peer's name is taken, so is the rest of the message. */
    if (zmq_send(e->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return EK_REPLAY_GONE;
    if (zmq_send(e->router, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return EK_REPLAY_GONE;
    if (zmq_send(e->router, n, 8, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return EK_REPLAY_GONE;
    bool sent = zmq_send(e->router, payload.data ? payload.data : "", payload.n, ZMQ_DONTWAIT) >= 0;
    return sent ? EK_REPLAY_SENT : EK_REPLAY_GONE;
}

/* Whether a whole message was there. Frames beyond the third, and what is too long of a frame, are passed over. */
static bool take_request(ek_events *e)
{
    enum { FRAMES = 4, ROOM = 256 };
    uint8_t bytes[FRAMES][ROOM];
    ek_events_frame frame[FRAMES];
    int n = 0, more = 1;
    for (size_t size = sizeof more; more; n++) {
        int k = n < FRAMES ? n : FRAMES - 1;
        int got = zmq_recv(e->router, bytes[k], ROOM, ZMQ_DONTWAIT);
        if (got < 0) return false;
        frame[k] = (ek_events_frame){bytes[k], (size_t)got};
        if (zmq_getsockopt(e->router, ZMQ_RCVMORE, &more, &size) < 0) more = 0;
    }
    uint64_t from;
    if (ek_replay_parse(frame, n, &from)) ek_replays_ask(&e->replays, frame[0], from, ek_now());
    else e->stats.bad_requests++; /* under the lock of our caller */
    return true;
}

static void take_requests(ek_events *e)
{
    pthread_mutex_lock(&e->lock);
    while (e->replays.n < EK_REPLAYS && take_request(e)) continue;
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

static long wait_ms(const ek_events *e, bool pending, double until, bool more)
{
    enum { PEER = 5 }; /* milliseconds after which a peer that had too much unread is tried again */
    double left = ceil((until - ek_now()) * 1e3);
    long ms = e->replays.n > 0 ? PEER : -1;
    if (more || (pending && left <= 0)) return 0;
    if (pending && (ms < 0 || left < (double)ms)) ms = (long)left;
    if (e->newcomer && (ms < 0 || ms > 100)) ms = 100;
    return ms;
}

static void *run(void *arg)
{
    ek_events *e = arg;
    bool pending = false, more = false;
    double until = 0;
    for (;;) {
        zmq_pollitem_t item[4] = {{.fd = e->stop, .events = ZMQ_POLLIN},
                                  {.fd = ek_held_fd(e->queue), .events = ZMQ_POLLIN},
                                  {.socket = e->pub, .events = ZMQ_POLLIN},
                                  {.socket = e->router, .events = ZMQ_POLLIN}};
        bool asks = e->router && e->replays.n < EK_REPLAYS;
        if (zmq_poll(item, asks ? 4 : 3, wait_ms(e, pending, until, more)) < 0 && errno != EINTR) {
            ek_log(EK_LOG_ERROR, "events of cached pages end: %s", zmq_strerror(errno));
            return NULL;
        }
        if (item[0].revents) return NULL;
        uint64_t news;
        if (item[1].revents && read(ek_held_fd(e->queue), &news, sizeof news) > 0) pending = true;
        if (pending && ek_now() >= until) {
            pending = publish_some(e);
            if (!pending) until = ek_now() + PAUSE;
        }
        if (item[2].revents) hear_subscribers(e);
        if (e->newcomer && ek_now() - e->told_again >= AGAIN) tell_again(e);
        if (asks && item[3].revents) take_requests(e);
        more = go_on(e);
    }
}

/* --- opening */

static void set(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

static ek_err open_socket(ek_events *e, void **out, int type, const ek_events_address *a, int which)
{
    void *s = *out = zmq_socket(e->context, type);
    if (!s) return ek_fail(EK_EIO, "no socket of ZeroMQ: %s", zmq_strerror(errno));
    set(s, ZMQ_LINGER, 0);
    set(s, ZMQ_SNDHWM, type == ZMQ_ROUTER ? UNREAD_REPLAY : UNREAD);
    set(s, ZMQ_RCVHWM, 64);
    set(s, ZMQ_TCP_KEEPALIVE, 1);
    set(s, ZMQ_IPV6, a->v6);
    const int64_t max = 1024; /* of what peers send: subscriptions, requests */
    zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof max);
    if (type == ZMQ_ROUTER) set(s, ZMQ_ROUTER_MANDATORY, 1);
    else set(s, ZMQ_XPUB_VERBOSE, 1);
    int bad = a->bind ? zmq_bind(s, a->endpoint) : zmq_connect(s, a->endpoint);
    if (bad)
        return ek_fail(EK_EIO, "cannot %s %s: %s", a->bind ? "bind" : "connect to", a->endpoint, zmq_strerror(errno));
    size_t n = sizeof e->stats.endpoint[which];
    zmq_getsockopt(s, ZMQ_LAST_ENDPOINT, e->stats.endpoint[which], &n);
    return EK_OK;
}

static ek_err open_all(ek_events *e, const ek_events_opts *o)
{
    e->stop = eventfd(0, EFD_CLOEXEC);
    e->context = zmq_ctx_new();
    if (e->stop < 0 || !e->context) return ek_fail(EK_EIO, "no context of ZeroMQ: %s", strerror(errno));
    EK_TRY(open_socket(e, &e->pub, ZMQ_XPUB, &o->events, 0));
    if (*o->replay.endpoint) EK_TRY(open_socket(e, &e->router, ZMQ_ROUTER, &o->replay, 1));
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
    e->form = o->form;
    e->topic = ek_strdup(o->topic);
    e->replays = (ek_replays){
        .history = &e->history, .mirror = &e->mirror, .form = &e->form, .send = send_replay, .arg = e};
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
    ek_events *open = (ek_events *)(uintptr_t)e; /* for the lock alone */
    pthread_mutex_lock(&open->lock);
    *out = e->stats;
    pthread_mutex_unlock(&open->lock);
}

void ek_events_close(ek_events *e)
{
    static const uint64_t one = 1;
    if (!e) return;
    if (e->has_thread) {
        while (write(e->stop, &one, sizeof one) < 0 && errno == EINTR) continue;
        pthread_join(e->thread, NULL);
    }
    if (e->pub) zmq_close(e->pub);
    if (e->router) zmq_close(e->router);
    if (e->context) zmq_ctx_term(e->context);
    if (e->stop >= 0) close(e->stop);
    ek_replays_drop(&e->replays);
    ek_history_clear(&e->history);
    ek_mirror_fini(&e->mirror);
    pthread_mutex_destroy(&e->lock);
    free(e->topic);
    free(e);
}

#else

#include <string.h>

bool ek_events_built(void)
{
    return false;
}

ek_err ek_events_open(ek_events **out, const ek_events_opts *o)
{
    (void)o;
    *out = NULL;
    return ek_fail(EK_EUNSUPPORTED, "this program was built without libzmq and msgpack-c, which --kv-events needs");
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
