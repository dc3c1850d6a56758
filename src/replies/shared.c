#include "replies/backends.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/shared/shared.h"
#include "cache/store.h"

enum { KEY_ROOM = 160, MAX_RECORD = 32 << 20, MAX_DROPS = 256 };

typedef struct shared {
    ek_shared common;
    int n_vocab;
    double max_age;
    atomic_bool distrusted;
    atomic_ullong damaged;

    pthread_mutex_t lock; /* guards the next members: lookups take turns */
    ek_shared_connection in;
    bool asks, closing;  /* asks: a connection is wanted */
    double last_warning; /* ek_now() at the last damaged record in the log */
    pthread_cond_t wanted;
    pthread_t thread; /* connects, so that no lookup waits for a connection */
    bool has_thread;

    pthread_mutex_t drops_lock;
    ek_reply_key drop[MAX_DROPS]; /* the next lookup deletes these */
    int n_drops;

    ek_shared_connection out; /* the writer's */
} shared;

static ek_redis_arg word(const char *text)
{
    return (ek_redis_arg){text, strlen(text)};
}

static void name_of(char out[KEY_ROOM], const shared *s, const ek_reply_key *k)
{
    char text[EK_REPLY_KEY_TEXT];
    ek_reply_key_text(text, k);
    snprintf(out, KEY_ROOM, "evenkeel:reply:1:%s:%s", s->common.space, text);
}

/* --- connecting --- */

static void *connect_thread(void *arg)
{
    shared *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        if (s->in.redis || !s->asks) {
            pthread_cond_wait(&s->wanted, &s->lock);
            continue;
        }
        if (s->in.rest_until > ek_now()) {
            ek_wait_until(&s->wanted, &s->lock, s->in.rest_until);
            continue;
        }
        ek_shared_connection fresh = s->in;
        pthread_mutex_unlock(&s->lock);
        ek_shared_connection_connect(&fresh);
        pthread_mutex_lock(&s->lock);
        s->in = fresh; /* until it is connected, lookups do not use it */
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- lookups --- */

static ek_err command(ek_shared_connection *c, const char *what, const ek_redis_arg *arg, int n, ek_reply *reply,
                      size_t max_bytes, double deadline)
{
    EK_TRY(ek_redis_send(c->redis, arg, n, deadline));
    EK_TRY(ek_redis_read(c->redis, reply, max_bytes, deadline));
    if (reply->kind == EK_REPLY_ERROR) ek_shared_connection_refused(c, what, reply->text);
    else ek_shared_connection_good(c);
    return EK_OK;
}

static ek_err delete (const shared *s, ek_shared_connection *c, const ek_reply_key *k)
{
    char name[KEY_ROOM];
    ek_reply reply;
    name_of(name, s, k);
    const ek_redis_arg del[] = {word("DEL"), word(name)};
    return command(c, "DEL", del, 2, &reply, 4096, ek_now() + EK_SHARED_PATIENCE);
}

static void forget(void *arg, const ek_reply_key *k)
{
    shared *s = arg;
    pthread_mutex_lock(&s->drops_lock);
    if (s->n_drops < MAX_DROPS) s->drop[s->n_drops++] = *k;
    pthread_mutex_unlock(&s->drops_lock);
}

/* A record that cannot be deleted now is deleted by a later lookup. */
static ek_err delete_dropped(shared *s)
{
    ek_reply_key k;
    for (;;) {
        pthread_mutex_lock(&s->drops_lock);
        const bool any = s->n_drops > 0;
        if (any) k = s->drop[--s->n_drops];
        pthread_mutex_unlock(&s->drops_lock);
        if (!any) return EK_OK;
        const ek_err err = delete (s, &s->in, &k);
        if (!err && s->in.rest_until <= ek_now()) continue;
        forget(s, &k);
        return err;
    }
}

static ek_err look_up(shared *s, const ek_reply_key *k, ek_reply_record **out)
{
    char name[KEY_ROOM];
    ek_reply reply;
    EK_TRY(delete_dropped(s));
    name_of(name, s, k);
    const ek_redis_arg get[] = {word("GET"), word(name)};
    EK_TRY(command(&s->in, "GET", get, 2, &reply, MAX_RECORD, ek_now() + EK_SHARED_PATIENCE));
    if (reply.kind != EK_REPLY_BYTES) return EK_OK;
    if (!ek_reply_record_read(out, k, EK_REPLY_SHARED, s->n_vocab, reply.text, reply.n)) return EK_OK;
    atomic_fetch_add(&s->damaged, 1);
    if (s->last_warning == 0 || ek_now() - s->last_warning > 60) {
        s->last_warning = ek_now();
        ek_log(EK_LOG_WARN, "shared replies: %s: a damaged one is deleted: %s", s->common.text, ek_err_text());
    }
    return delete (s, &s->in, k);
}

static ek_reply_record *find(void *arg, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner)
{
    shared *s = arg;
    ek_reply_record *r = NULL;
    (void)content, (void)owner;
    if (atomic_load(&s->distrusted)) return NULL;
    pthread_mutex_lock(&s->lock);
    if (s->in.redis && s->in.rest_until <= ek_now()) {
        const ek_err err = look_up(s, k, &r);
        if (err) ek_shared_connection_failed(&s->in, err);
    }
    s->asks = true;
    if (!s->in.redis) pthread_cond_signal(&s->wanted);
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* Other processes check the server themselves. This process neither reads nor writes there any more. */
static void distrust(void *arg)
{
    shared *s = arg;
    atomic_store(&s->distrusted, true);
}

/* --- the writer --- */

static ek_err send_record(shared *s, const ek_reply_record *r)
{
    char name[KEY_ROOM], age[24];
    size_t n;
    ek_reply reply;
    const void *bytes = ek_reply_record_bytes(r, &n);
    if (n > MAX_RECORD) return EK_OK;
    name_of(name, s, ek_reply_record_key(r));
    snprintf(age, sizeof age, "%.0f", s->max_age < 1 ? 1 : s->max_age);
    const ek_redis_arg set[] = {word("SET"), word(name), {bytes, n}, word("EX"), word(age)};
    return command(&s->out, "SET", set, s->max_age > 0 ? 5 : 3, &reply, 4096, ek_now() + ek_shared_patience((double)n));
}

/* A record that cannot be sent now is lost for others. Here it is in memory. */
static ek_err write_all(void *arg, ek_reply_record *const *r, const uint64_t *owner, int n)
{
    shared *s = arg;
    (void)owner;
    for (int i = 0; i < n && !atomic_load(&s->distrusted); i++)
        for (bool again = true; again;) {
            again = false;
            if (s->out.rest_until > ek_now()) return EK_OK;
            if (!s->out.redis && !ek_shared_connection_connect(&s->out)) return EK_OK;
            const ek_err err = send_record(s, r[i]);
            if (err) again = ek_shared_connection_failed(&s->out, err);
        }
    return EK_OK;
}

/* --- open and close --- */

static uint64_t count_damaged(void *arg)
{
    shared *s = arg;
    return atomic_load(&s->damaged);
}

static void close_shared(void *arg)
{
    shared *s = arg;
    atomic_store(&s->common.stop, true);
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->wanted);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    ek_shared_connection_close(&s->in);
    ek_shared_connection_close(&s->out);
    ek_shared_url_fini(&s->common.url);
    pthread_mutex_destroy(&s->common.lock);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->drops_lock);
    pthread_cond_destroy(&s->wanted);
    free(s->common.ca);
    free(s->common.cert);
    free(s);
}

ek_err ek_reply_shared_open(ek_reply_backend *out, const ek_reply_shared_opts *o)
{
    EK_TRY(ek_store_shared_check(o->url));
    shared *s = ek_alloc(sizeof *s);
    ek_shared *c = &s->common;
    EK_ASSERT(!ek_shared_url_parse(&c->url, o->url));
    ek_shared_url_text(&c->url, c->text);
    c->name = "shared replies";
    if (o->ca) c->ca = ek_strdup(o->ca);
    if (o->cert) c->cert = ek_strdup(o->cert);
    ek_record_space(c->space, o->identity);
    s->in.s = s->out.s = c;
    s->n_vocab = o->n_vocab;
    s->max_age = o->max_age;
    s->asks = true;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->drops_lock, NULL);
    pthread_cond_init(&s->wanted, NULL);
    const ek_err err = ek_shared_thread(&s->thread, connect_thread, s);
    s->has_thread = !err;
    if (err) {
        close_shared(s);
        return err;
    }
    ek_log(EK_LOG_INFO, "shared replies: %s, keys evenkeel:reply:1:%s:*", c->text, c->space);
    *out = (ek_reply_backend){.origin = EK_REPLY_SHARED,
                              .arg = s,
                              .find = find,
                              .write = write_all,
                              .forget = forget,
                              .distrust = distrust,
                              .damaged = count_damaged,
                              .close = close_shared};
    return EK_OK;
}

bool ek_reply_shared_is_up(const ek_reply_backend *b)
{
    shared *s = b->arg;
    pthread_mutex_lock(&s->lock);
    const bool up = s->in.redis != NULL;
    pthread_mutex_unlock(&s->lock);
    return up;
}
