#include "cache/shared/shared.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { MAX_FETCHES = 60, MAX_BUFFERS = 64 /* per kind: bits of a word */, BEYOND = 2 };

typedef enum fetch_state { ASKED, SENT, HERE } fetch_state;

/* A request. Requests are sent in the order in which they were made, and replies come in that order. */
typedef struct fetch {
    ek_chain chain;
    int kind;
    size_t bytes; /* of the expected record */
    fetch_state state;
    bool unwanted;
    uint8_t *data; /* its buffer, from its beginning on */
    bool has;      /* HERE: whether the server had the record, of n bytes */
    size_t n;
} fetch;

/* Records of a kind, reused from the first on, so that touched memory stays in use. Their number follows from the limit
 * on bytes in flight, plus BEYOND, because one record may exceed the limit and one is in use. */
typedef struct buffers {
    uint8_t *base;
    size_t each, bytes;
    uint64_t spare;
} buffers;

struct ek_shared_reads {
    ek_shared *s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, news;
    bool up; /* connected, or about to be: requests wait */
    fetch ring[MAX_FETCHES];
    int first, used;
    buffers buffers[EK_KIND_COUNT];
    double since; /* the time when the thread began its present wait; 0: it does not wait */
    /* the thread's alone */
    ek_shared_connection connection;
};

static fetch *at(ek_shared_reads *r, int i)
{
    return &r->ring[(r->first + i) % MAX_FETCHES];
}

/* NULL: all are in use. */
static uint8_t *take_buffer(buffers *b)
{
    if (!b->spare) return NULL;
    const int i = __builtin_ctzll(b->spare);
    b->spare &= b->spare - 1;
    return b->base + (size_t)i * b->each;
}

static void give_buffer(buffers *b, const uint8_t *data)
{
    b->spare |= UINT64_C(1) << (size_t)(data - b->base) / b->each;
}

static ek_err open_buffers(ek_shared_reads *r, const ek_kv_layout *layout)
{
    enum { LINE = 64 };
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        buffers *b = &r->buffers[k];
        b->each = (EK_RECORD_HEAD + ek_kv_page_bytes_max(layout, (ek_layer_kind)k) + LINE - 1) / LINE * LINE;
        const double held = r->s->max_bytes / (double)b->each + BEYOND;
        const int n = held < MAX_BUFFERS ? (int)held : MAX_BUFFERS;
        b->spare = ~UINT64_C(0) >> (MAX_BUFFERS - n);
        b->bytes = b->each * (size_t)n;
        b->base = ek_alloc_big(b->bytes);
        if (!b->base) return EK_ENOMEM;
    }
    return EK_OK;
}

/* Drops unwanted records at the front, except those whose reply is still to come. */
static void trim(ek_shared_reads *r)
{
    while (r->used > 0 && at(r, 0)->unwanted && at(r, 0)->state != SENT) {
        if (at(r, 0)->data) give_buffer(&r->buffers[at(r, 0)->kind], at(r, 0)->data);
        at(r, 0)->data = NULL;
        r->first = (r->first + 1) % MAX_FETCHES;
        r->used--;
    }
}

/* --- the thread --- */

/* Drops all requests: no reply will come. */
static void give_up(ek_shared_reads *r)
{
    for (int i = 0; i < r->used; i++) at(r, i)->state = HERE;
    r->up = false;
    trim(r);
    pthread_cond_broadcast(&r->news);
}

/* With the lock, which is released while the connection is made. */
static void connect_now(ek_shared_reads *r)
{
    r->since = ek_now();
    pthread_mutex_unlock(&r->lock);
    bool good = ek_shared_connection_connect(&r->connection);
    pthread_mutex_lock(&r->lock);
    r->since = 0;
    if (good) r->up = true;
    else give_up(r);
}

/* After an error, with the lock. */
static void failed(ek_shared_reads *r, ek_err err)
{
    r->since = 0;
    if (!ek_shared_connection_failed(&r->connection, err)) {
        give_up(r);
        return;
    }
    for (int i = 0; i < r->used; i++)
        if (at(r, i)->state == SENT) at(r, i)->state = ASKED;
    trim(r);
}

static int count(ek_shared_reads *r, fetch_state state, size_t *bytes)
{
    int n = 0;
    *bytes = 0;
    for (int i = 0; i < r->used; i++) {
        if (at(r, i)->state != state) continue;
        *bytes += at(r, i)->bytes;
        n++;
    }
    return n;
}

/* The first requested but unsent record; unwanted ones are skipped. */
static fetch *next_asked(ek_shared_reads *r)
{
    for (int i = 0; i < r->used; i++) {
        fetch *f = at(r, i);
        if (f->state != ASKED) continue;
        if (!f->unwanted) return f;
        f->state = HERE;
    }
    return NULL;
}

/* Sends as many requests as may be in flight, at least one. With the lock, which is released for each. Sent ones
 * precede unsent ones, because replies come in the order of the ring. */
static ek_err send_asked(ek_shared_reads *r)
{
    for (fetch *f; (f = next_asked(r)) != NULL;) {
        size_t flying;
        if (count(r, SENT, &flying) > 0 && (double)(flying + f->bytes) > r->s->max_bytes) break;
        char key[EK_RECORD_KEY];
        ek_record_key(key, r->s->space, &f->chain, f->kind);
        const ek_redis_arg get[] = {{"GET", 3}, {key, strlen(key)}};
        f->state = SENT;
        pthread_mutex_unlock(&r->lock);
        ek_err err = ek_redis_send(r->connection.redis, get, 2, ek_now() + EK_SHARED_PATIENCE);
        pthread_mutex_lock(&r->lock);
        EK_TRY(err);
    }
    return EK_OK;
}

/* Receives the reply to the oldest sent request. With the lock, released meanwhile. */
static ek_err receive_one(ek_shared_reads *r)
{
    ek_reply reply;
    fetch *f = NULL;
    for (int i = 0; i < r->used && !f; i++)
        if (at(r, i)->state == SENT) f = at(r, i);
    size_t bytes = f->bytes;
    pthread_mutex_unlock(&r->lock);
    ek_err err = ek_redis_read_into(r->connection.redis, &reply, f->data, bytes,
                                    ek_now() + ek_shared_patience((double)bytes));
    const bool has = !err && reply.kind == EK_REPLY_BYTES;
    if (!err && reply.kind == EK_REPLY_ERROR) ek_shared_connection_refused(&r->connection, "GET", reply.text);
    else if (!err) ek_shared_connection_good(&r->connection);
    if (has) ek_shared_connection_charge(&r->connection, (double)reply.n);
    if (has) atomic_fetch_add(&r->s->counts.read_bytes, reply.n);
    pthread_mutex_lock(&r->lock);
    EK_TRY(err);
    f->has = has, f->n = reply.n;
    f->state = HERE;
    r->since = ek_now();
    trim(r);
    pthread_cond_broadcast(&r->news);
    return EK_OK;
}

/* Waits until the moved bytes are within the rate; a new request wakes the thread, which then waits on. */
static void wait_for_rate(ek_shared_reads *r)
{
    for (double backoff; (backoff = ek_shared_connection_backoff(&r->connection)) > 0 && !atomic_load(&r->s->stop);)
        ek_wait_until(&r->work, &r->lock, ek_now() + backoff);
}

/* Continues with a connection; false: there is nothing to do. */
static bool exchange(ek_shared_reads *r)
{
    size_t bytes;
    double backoff = ek_shared_connection_backoff(&r->connection);
    if (count(r, ASKED, &bytes) == 0 && count(r, SENT, &bytes) == 0) return false;
    if (backoff > EK_SHARED_PATIENCE / 2) { /* a rate this low: new requests are computed faster than read */
        for (int i = 0; i < r->used; i++)
            if (at(r, i)->state == ASKED) at(r, i)->state = HERE;
        trim(r);
        pthread_cond_broadcast(&r->news);
        if (count(r, SENT, &bytes) == 0) return true;
    }
    wait_for_rate(r);
    r->since = ek_now();
    ek_err err = send_asked(r);
    if (!err && count(r, SENT, &bytes) > 0) err = receive_one(r);
    if (err) failed(r, err);
    if (r->connection.rest_until >
        ek_now()) { /* a refusal: pending replies would be taken for those to later commands */
        ek_shared_connection_close(&r->connection);
        give_up(r);
    }
    return true;
}

static void *reads_thread(void *arg)
{
    ek_shared_reads *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!atomic_load(&r->s->stop)) {
        double now = ek_now();
        if (r->connection.rest_until > now) ek_wait_until(&r->work, &r->lock, r->connection.rest_until);
        else if (!r->connection.redis) connect_now(r);
        else if (!exchange(r)) {
            r->since = 0;
            pthread_cond_wait(&r->work, &r->lock);
        }
    }
    give_up(r);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void free_reads(ek_shared_reads *r)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) ek_free_big(r->buffers[k].base, r->buffers[k].bytes);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->news);
    free(r);
}

ek_err ek_shared_reads_open(ek_shared_reads **out, ek_shared *s)
{
    ek_shared_reads *r = ek_alloc(sizeof *r);
    r->s = r->connection.s = s;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->news, NULL);
    ek_err err = open_buffers(r, &s->layout);
    if (!err) err = ek_shared_thread(&r->thread, reads_thread, r);
    if (err) {
        free_reads(r);
        return err;
    }
    *out = r;
    return EK_OK;
}

void ek_shared_reads_close(ek_shared_reads *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    ek_shared_connection_close(&r->connection);
    free_reads(r);
}

/* --- the store's thread --- */

static fetch *find(ek_shared_reads *r, const ek_chain *chain, int kind)
{
    for (int i = 0; i < r->used; i++) {
        fetch *f = at(r, i);
        if (!f->unwanted && f->kind == kind && memcmp(&f->chain, chain, sizeof *chain) == 0) return f;
    }
    return NULL;
}

/* NULL: there is no room. */
static fetch *add(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes)
{
    trim(r);
    uint8_t *data = r->used < MAX_FETCHES ? take_buffer(&r->buffers[kind]) : NULL;
    if (!data) return NULL;
    fetch *f = at(r, r->used++);
    *f = (fetch){.chain = *chain, .kind = kind, .bytes = bytes, .state = ASKED, .data = data};
    pthread_cond_signal(&r->work);
    return f;
}

/* Drops the requests before f, or all. */
static void drop_before(ek_shared_reads *r, const fetch *f)
{
    for (int i = 0; i < r->used && at(r, i) != f; i++) at(r, i)->unwanted = true;
    trim(r);
}

void ek_shared_reads_begin(ek_shared_reads *r)
{
    pthread_mutex_lock(&r->lock);
    drop_before(r, NULL);
    pthread_mutex_unlock(&r->lock);
}

/* Whether this many more bytes are within the limit, with those that arrived and were not taken. */
static bool has_room(ek_shared_reads *r, size_t bytes)
{
    size_t all = bytes;
    for (int i = 0; i < r->used; i++) all += at(r, i)->bytes;
    return r->used == 0 || (double)all <= r->s->max_bytes;
}

void ek_shared_reads_ask(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes)
{
    pthread_mutex_lock(&r->lock);
    if (r->up && has_room(r, bytes) && !find(r, chain, kind)) add(r, chain, kind, bytes);
    pthread_mutex_unlock(&r->lock);
}

/* Waits until it has arrived; false once the thread has been in one wait for too long. */
static bool wait_for(ek_shared_reads *r, const fetch *f)
{
    while (f->state != HERE) {
        double limit = ek_shared_patience((double)f->bytes) + 0.1, from = r->since > 0 ? r->since : ek_now();
        if (ek_now() - from > limit) return false;
        ek_wait_until(&r->news, &r->lock, from + limit + 0.01);
    }
    return true;
}

const uint8_t *ek_shared_reads_take(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes, size_t *n)
{
    const uint8_t *data = NULL;
    *n = 0;
    pthread_mutex_lock(&r->lock);
    fetch *f = find(r, chain, kind);
    if (f) drop_before(r, f);
    if (!f && r->up) f = add(r, chain, kind, bytes);
    if (f && wait_for(r, f) && f->has) {
        data = f->data, *n = f->n;
        f->data = NULL;
    }
    if (f) f->unwanted = true;
    trim(r);
    pthread_mutex_unlock(&r->lock);
    return data;
}

void ek_shared_reads_give(ek_shared_reads *r, int kind, const uint8_t *data)
{
    pthread_mutex_lock(&r->lock);
    give_buffer(&r->buffers[kind], data);
    pthread_mutex_unlock(&r->lock);
}
