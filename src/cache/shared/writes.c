#include "cache/shared/shared.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { BATCH = 32, TRIES = 2 };
#define BATCH_BYTES 16e6
#define MOMENT      0.02 /* seconds that the store's thread waits for room */

typedef struct item {
    struct item *next;
    ek_chain chain;
    int kind, tries;
    uint8_t *record; /* NULL: delete the key */
    size_t n;
} item;

struct ek_shared_writes {
    ek_shared *s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, room;
    item *first, **end;
    double bytes; /* bytes of the records in the queue */
    uint64_t queued, dequeued;
    double close_by; /* 0: not closing */
    bool up;
    /* the thread's alone */
    ek_shared_connection connection;
    bool described; /* the meaning of the keys was written */
};

/* --- the thread --- */

static ek_redis_arg word(const char *text)
{
    return (ek_redis_arg){text, strlen(text)};
}

/* Removes the first n items. With the lock. */
static void dequeue(ek_shared_writes *w, int n)
{
    for (; n > 0; n--) {
        item *i = w->first;
        w->first = i->next;
        if (!w->first) w->end = &w->first;
        w->bytes -= (double)i->n;
        w->dequeued++;
        if (i->record) ek_free_big(i->record, i->n);
        free(i);
    }
    atomic_store(&w->s->counts.waiting_bytes, (unsigned long long)w->bytes);
    pthread_cond_broadcast(&w->room);
}

/* The items that are sent together: all pages, or all keys to delete. */
static int gather(const ek_shared_writes *w, item *batch[BATCH])
{
    int n = 0;
    double bytes = 0;
    const int max = w->s->rate > 0 ? 1 : BATCH; /* with a rate each item waits for the one before */
    for (item *i = w->first; i && n < max && bytes < BATCH_BYTES; i = i->next) {
        if (n > 0 && !i->record != !w->first->record) break;
        batch[n++] = i;
        bytes += (double)i->n;
    }
    return n;
}

/* Takes a reply to a command of the queue. *refused: the server refused it. */
static ek_err reply_to(ek_shared_writes *w, const char *command, double deadline, long long *number, bool *refused)
{
    ek_reply reply;
    EK_TRY(ek_redis_read(w->connection.redis, &reply, 4096, deadline));
    *refused = reply.kind == EK_REPLY_ERROR;
    if (number) *number = reply.number;
    if (*refused) ek_shared_connection_refused(&w->connection, command, reply.text);
    else ek_shared_connection_good(&w->connection);
    return EK_OK;
}

/* Sends one command per item of a batch, then takes the replies. */
static ek_err ask_each(ek_shared_writes *w, const char *command, item *const *batch, int n, bool wanted[BATCH])
{
    double deadline = ek_now() + EK_SHARED_PATIENCE;
    for (int i = 0; i < n; i++) {
        char key[EK_RECORD_KEY];
        ek_record_key(key, w->s->space, &batch[i]->chain, batch[i]->kind);
        const ek_redis_arg ask[] = {word(command), word(key)};
        EK_TRY(ek_redis_send(w->connection.redis, ask, 2, deadline));
    }
    for (int i = 0; i < n; i++) {
        long long known = 0;
        bool refused;
        EK_TRY(reply_to(w, command, deadline, &known, &refused));
        wanted[i] = !refused && known == 0;
        if (batch[i]->record && !refused && known > 0) atomic_fetch_add(&w->s->counts.known, 1);
        if (batch[i]->record && refused) atomic_fetch_add(&w->s->counts.dropped, 1);
    }
    return EK_OK;
}

static ek_err send_page(ek_shared_writes *w, const item *i)
{
    char key[EK_RECORD_KEY];
    bool refused;
    double deadline = ek_now() + ek_shared_patience((double)i->n);
    ek_record_key(key, w->s->space, &i->chain, i->kind);
    const ek_redis_arg set[] = {word("SET"), word(key), {i->record, i->n}};
    EK_TRY(ek_redis_send(w->connection.redis, set, 3, deadline));
    EK_TRY(reply_to(w, "SET", deadline, NULL, &refused));
    ek_shared_connection_charge(&w->connection, (double)i->n);
    atomic_fetch_add(refused ? &w->s->counts.dropped : &w->s->counts.written, 1);
    atomic_fetch_add(&w->s->counts.written_bytes, refused ? 0 : i->n);
    return EK_OK;
}

/* For operators: writes the meaning of this space's keys to the server. */
static ek_err describe(ek_shared_writes *w)
{
    char key[EK_RECORD_KEY] = "evenkeel:about:1:";
    bool refused;
    double deadline = ek_now() + EK_SHARED_PATIENCE;
    if (w->described || !w->s->writes) return EK_OK;
    strncat(key, w->s->space, sizeof key - strlen(key) - 1);
    const ek_redis_arg set[] = {word("SET"), word(key), word(w->s->what)};
    EK_TRY(ek_redis_send(w->connection.redis, set, 3, deadline));
    EK_TRY(reply_to(w, "SET", deadline, NULL, &refused));
    w->described = !refused;
    return EK_OK;
}

/* *done: items of the batch that are finished, whatever happens. */
static ek_err send_batch(ek_shared_writes *w, item *const *batch, int n, int *done)
{
    bool wanted[BATCH];
    *done = 0;
    EK_TRY(describe(w));
    if (!batch[0]->record) {
        EK_TRY(ask_each(w, "DEL", batch, n, wanted));
        *done = n;
        return EK_OK;
    }
    if (ek_now() < atomic_load(&w->s->doubted_until))
        for (int i = 0; i < n; i++) wanted[i] = true;    /* one was wrong, so others may be that nobody has read yet */
    else EK_TRY(ask_each(w, "TOUCH", batch, n, wanted)); /* known pages count as used on the server */
    for (; *done < n; ++*done) {
        if (wanted[*done] && w->connection.rest_until > ek_now()) { /* it refused one and would refuse these */
            atomic_fetch_add(&w->s->counts.dropped, 1);
            continue;
        }
        if (wanted[*done]) EK_TRY(send_page(w, batch[*done]));
    }
    return EK_OK;
}

/* With the lock, released meanwhile: items stay in the queue until they are sent, and only this thread removes them. */
static void exchange(ek_shared_writes *w)
{
    item *batch[BATCH];
    int n = gather(w, batch), done;
    pthread_mutex_unlock(&w->lock);
    ek_err err = send_batch(w, batch, n, &done);
    bool away = err && !ek_shared_connection_failed(&w->connection, err);
    pthread_mutex_lock(&w->lock);
    if (err && done < n && ++batch[done]->tries == TRIES) { /* this item may be the reason why the connection fails */
        if (batch[done]->record) atomic_fetch_add(&w->s->counts.dropped, 1);
        done++;
    }
    dequeue(w, done);
    w->up = !away && w->connection.rest_until <= ek_now();
}

static void connect_now(ek_shared_writes *w)
{
    pthread_mutex_unlock(&w->lock);
    bool good = ek_shared_connection_connect(&w->connection);
    pthread_mutex_lock(&w->lock);
    w->up = good;
}

/* The time when the thread may continue; 0: now. */
static double rests_until(const ek_shared_writes *w)
{
    double now = ek_now(), until = w->connection.rest_until, backoff = ek_shared_connection_backoff(&w->connection);
    if (backoff > 0 && now + backoff > until) until = now + backoff;
    return until > now ? until : 0;
}

static void *writes_thread(void *arg)
{
    ek_shared_writes *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        double until = rests_until(w);
        if (w->close_by > 0 && (!w->first || !w->up || ek_now() > w->close_by)) break;
        if (until > 0) ek_wait_until(&w->work, &w->lock, w->close_by > 0 && w->close_by < until ? w->close_by : until);
        else if (!w->connection.redis) connect_now(w);
        else if (!w->up) w->up = true; /* a pause after a refusal has ended */
        else if (w->first) exchange(w);
        else pthread_cond_wait(&w->work, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

ek_err ek_shared_writes_open(ek_shared_writes **out, ek_shared *s)
{
    ek_shared_writes *w = ek_alloc(sizeof *w);
    w->s = w->connection.s = s;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->room, NULL);
    ek_err err = ek_shared_thread(&w->thread, writes_thread, w);
    if (err) {
        free(w);
        return err;
    }
    *out = w;
    return EK_OK;
}

void ek_shared_writes_close(ek_shared_writes *w, double seconds)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->close_by = ek_now() + seconds;
    pthread_cond_broadcast(&w->work);
    while (w->first && w->up && ek_wait_until(&w->room, &w->lock, w->close_by)) continue;
    atomic_store(&w->s->stop, true); /* ends whatever it waits for */
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    int n = 0;
    for (const item *i = w->first; i; i = i->next) n++;
    dequeue(w, n);
    ek_shared_connection_close(&w->connection);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->room);
    free(w);
}

/* --- the store's thread --- */

/* Waits a moment for room for n bytes. With the lock. */
static bool has_room(ek_shared_writes *w, double n)
{
    double deadline = ek_now() + MOMENT;
    while (w->first && w->bytes + n > w->s->max_bytes)
        if (!w->up || !ek_wait_until(&w->room, &w->lock, deadline)) return false;
    return true;
}

static void add(ek_shared_writes *w, item *i)
{
    *w->end = i;
    w->end = &i->next;
    w->bytes += (double)i->n;
    w->queued++;
    atomic_store(&w->s->counts.waiting_bytes, (unsigned long long)w->bytes);
    pthread_cond_signal(&w->work);
}

void ek_shared_writes_put(ek_shared_writes *w, const ek_store_page *p, int kind)
{
    const size_t n = ek_record_bytes(&w->s->layout, p, kind);
    pthread_mutex_lock(&w->lock);
    bool room = has_room(w, (double)n);
    pthread_mutex_unlock(&w->lock);
    uint8_t *record = room ? ek_alloc_big(n) : NULL;
    if (!record) {
        atomic_fetch_add(&w->s->counts.dropped, 1);
        return;
    }
    ek_record_write(record, &w->s->layout, p, kind);
    item *i = ek_alloc(sizeof *i);
    *i = (item){.chain = p->chain, .kind = kind, .record = record, .n = n};
    pthread_mutex_lock(&w->lock);
    add(w, i);
    pthread_mutex_unlock(&w->lock);
}

void ek_shared_writes_drop(ek_shared_writes *w, const ek_chain *chain, int kind)
{
    item *i = ek_alloc(sizeof *i);
    *i = (item){.chain = *chain, .kind = kind};
    pthread_mutex_lock(&w->lock);
    add(w, i);
    pthread_mutex_unlock(&w->lock);
}

/* --- any thread --- */

uint64_t ek_shared_writes_queued(ek_shared_writes *w)
{
    pthread_mutex_lock(&w->lock);
    uint64_t n = w->queued;
    pthread_mutex_unlock(&w->lock);
    return n;
}

bool ek_shared_writes_written(ek_shared_writes *w, uint64_t n)
{
    pthread_mutex_lock(&w->lock);
    bool is = w->dequeued >= n || !w->up;
    pthread_mutex_unlock(&w->lock);
    return is;
}
