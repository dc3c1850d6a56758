#include "replies/replies.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "replies/table.h"

enum { MAX_QUEUED_BYTES = 64 << 20, BATCH = 256 };

/* A record that waits to be written to the backends. */
typedef struct queued {
    struct queued *next;
    ek_reply_record *record;
    uint64_t owner;
} queued;

struct ek_replies {
    ek_replies_opts opts;
    char *identity;
    int32_t *stop;
    ek_reply_backend backend[EK_REPLY_BACKENDS];
    int n_backends;
    pthread_t thread;
    bool has_thread;
    ek_flights *flights;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t news, idle;
    ek_reply_table table;
    queued *first, **last;
    size_t queued_bytes;
    bool writing, closing;
    double audit_due; /* hits that still have to be audited; the whole part counts */
    ek_replies_stats stats;
};

/* --- the writing thread --- */

static int take_batch(ek_replies *r, ek_reply_record **record, uint64_t *owner)
{
    int n = 0;
    for (; r->first && n < BATCH; n++) {
        queued *q = r->first;
        size_t bytes;
        record[n] = q->record;
        owner[n] = q->owner;
        ek_reply_record_bytes(q->record, &bytes);
        r->queued_bytes -= bytes;
        r->first = q->next;
        free(q);
    }
    if (!r->first) r->last = &r->first;
    return n;
}

/* Gathers records for 50 ms, because a transaction per record would be one disk write for each. */
static void *run(void *arg)
{
    ek_replies *r = arg;
    ek_reply_record *record[BATCH];
    uint64_t owner[BATCH];
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->first && !r->closing) pthread_cond_wait(&r->news, &r->lock);
        if (!r->first) break;
        r->writing = true;
        if (!r->closing) {
            pthread_mutex_unlock(&r->lock);
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
            pthread_mutex_lock(&r->lock);
        }
        const int n = take_batch(r, record, owner);
        pthread_mutex_unlock(&r->lock);
        for (int i = 0; i < r->n_backends; i++)
            if (r->backend[i].write) (void)r->backend[i].write(r->backend[i].arg, record, owner, n);
        for (int i = 0; i < n; i++) ek_reply_record_release(record[i]);
        pthread_mutex_lock(&r->lock);
        r->writing = false;
        if (!r->first) pthread_cond_broadcast(&r->idle);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static bool writes(const ek_replies *r)
{
    for (int i = 0; i < r->n_backends; i++)
        if (r->backend[i].write) return true;
    return false;
}

/* Under the lock. If there is no room for a record, the backends do not get it, and it stays in memory. */
static void enqueue(ek_replies *r, uint64_t owner, ek_reply_record *record)
{
    size_t bytes;
    if (!writes(r)) return;
    ek_reply_record_bytes(record, &bytes);
    if (r->first && r->queued_bytes + bytes > MAX_QUEUED_BYTES) {
        r->stats.unwritten++;
        return;
    }
    queued *q = ek_alloc(sizeof *q);
    *q = (queued){.record = ek_reply_record_retain(record), .owner = owner};
    *r->last = q;
    r->last = &q->next;
    r->queued_bytes += bytes;
    pthread_cond_signal(&r->news);
}

void ek_replies_flush(ek_replies *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->first || r->writing) pthread_cond_wait(&r->idle, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

/* --- open and close --- */

ek_err ek_replies_open(ek_replies **out, const ek_replies_opts *o)
{
    ek_replies *r = ek_alloc(sizeof *r);
    r->opts = *o;
    r->identity = ek_strdup(o->identity);
    r->stop = ek_alloc(((size_t)o->n_stop + 1) * sizeof *r->stop);
    if (o->n_stop) memcpy(r->stop, o->stop, (size_t)o->n_stop * sizeof *r->stop);
    r->opts.identity = r->identity;
    r->opts.stop = r->stop;
    r->last = &r->first;
    r->flights = ek_flights_open();
    ek_reply_table_init(&r->table, o->max_bytes);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->news, NULL);
    pthread_cond_init(&r->idle, NULL);
    if (ek_thread_start(&r->thread, run, r)) {
        ek_replies_close(r);
        return ek_fail(EK_ENOMEM, "no thread can be started that keeps replies");
    }
    r->has_thread = true;
    *out = r;
    return EK_OK;
}

void ek_replies_add(ek_replies *r, const ek_reply_backend *b)
{
    EK_ASSERT(r->n_backends < EK_REPLY_BACKENDS);
    r->backend[r->n_backends++] = *b;
}

void ek_replies_close(ek_replies *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
    if (r->has_thread) pthread_join(r->thread, NULL);
    for (int i = 0; i < r->n_backends; i++) r->backend[i].close(r->backend[i].arg);
    ek_reply_table_fini(&r->table);
    ek_flights_close(r->flights);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->news);
    pthread_cond_destroy(&r->idle);
    free(r->identity);
    free(r->stop);
    free(r);
}

const char *ek_replies_identity(const ek_replies *r)
{
    return r->identity;
}

ek_flights *ek_replies_flights(ek_replies *r)
{
    return r->flights;
}

bool ek_replies_keeps_asks(const ek_replies *r)
{
    return r->opts.asks;
}

bool ek_replies_is_stop(const ek_replies *r, int32_t token)
{
    for (int i = 0; i < r->opts.n_stop; i++)
        if (r->stop[i] == token) return true;
    return false;
}

/* --- find and put --- */

static bool is_old(const ek_replies *r, const ek_reply_entry *e)
{
    return r->opts.max_age > 0 && ek_now() - e->since > r->opts.max_age;
}

/* Under the lock. Returns a reference for the caller. */
static ek_reply_record *find_in_memory(ek_replies *r, const ek_reply_key *k)
{
    ek_reply_entry *e = ek_reply_table_find(&r->table, k);
    if (!e) return NULL;
    if (is_old(r, e)) {
        ek_reply_table_drop(&r->table, e);
        r->stats.evicted++;
        return NULL;
    }
    r->stats.from[EK_REPLY_COMPUTED]++;
    return ek_reply_record_retain(e->record);
}

ek_reply_record *ek_replies_find(ek_replies *r, const ek_reply_key *k, const ek_reply_key *content, uint64_t owner)
{
    pthread_mutex_lock(&r->lock);
    ek_reply_record *found = find_in_memory(r, k);
    const uint64_t wrong = r->stats.wrong;
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_backends && !found; i++) {
        const ek_reply_backend *b = &r->backend[i];
        found = b->find(b->arg, k, content, owner);
        if (!found) continue;
        pthread_mutex_lock(&r->lock);
        const bool doubtful = r->stats.wrong != wrong; /* the record may be one of those that are dropped meanwhile */
        r->stats.from[b->origin] += !doubtful;
        if (!doubtful && b->origin != EK_REPLY_FILE) /* a cassette's records are in memory anyway */
            ek_reply_table_put(&r->table, owner, ek_reply_record_retain(found), ek_now());
        pthread_mutex_unlock(&r->lock);
        if (!doubtful) continue;
        ek_reply_record_release(found);
        return NULL;
    }
    return found;
}

void ek_replies_nearest(const ek_replies *r, ek_buf *out, const ek_reply_ask *ask)
{
    for (int i = 0; i < r->n_backends && out->len == 0; i++)
        if (r->backend[i].nearest) r->backend[i].nearest(r->backend[i].arg, out, ask);
}

/* Under the lock, which it releases in between, so the caller looks again. */
static void settle(ek_replies *r, ek_reply_record **record, ek_reply_record *old)
{
    const bool lies = ek_reply_record_contradicts(old, *record);
    ek_reply_record_retain(old);
    pthread_mutex_unlock(&r->lock);
    if (lies) {
        ek_replies_wrong(r, old, "it was computed again and is another one");
    } else {
        ek_reply_record *both = ek_reply_record_merge(old, *record);
        ek_reply_record_release(*record);
        *record = both;
    }
    ek_reply_record_release(old);
    pthread_mutex_lock(&r->lock);
}

void ek_replies_put(ek_replies *r, uint64_t owner, ek_reply_record *record)
{
    const ek_reply_key k = *ek_reply_record_key(record);
    pthread_mutex_lock(&r->lock);
    ek_reply_entry *e = ek_reply_table_find(&r->table, &k);
    while (e && !is_old(r, e) && !ek_reply_record_covers(record, e->record)) {
        if (ek_reply_record_covers(e->record, record)) {
            pthread_mutex_unlock(&r->lock);
            ek_reply_record_release(record);
            return;
        }
        settle(r, &record, e->record);
        e = ek_reply_table_find(&r->table, &k);
    }
    r->stats.stored++;
    enqueue(r, owner, record);
    ek_reply_table_put(&r->table, owner, record, ek_now());
    pthread_mutex_unlock(&r->lock);
}

void ek_replies_wrong(ek_replies *r, const ek_reply_record *record, const char *what)
{
    static const char *const names[] = {"of this process", "on disk", "of the shared server", "of the file"};
    const ek_reply_origin origin = ek_reply_record_origin(record);
    const ek_reply_key *k = ek_reply_record_key(record);
    char text[EK_REPLY_KEY_TEXT];
    for (int i = 0; i < r->n_backends; i++) {
        const ek_reply_backend *b = &r->backend[i];
        const bool holds = b->origin == EK_REPLY_DISK && origin == EK_REPLY_COMPUTED; /* computed by this process */
        if (b->origin == origin || holds) b->distrust(b->arg);
        else if (b->forget) b->forget(b->arg, k);
    }
    /* This comes last. A lookup may hold a record from before a backend was told; it is not kept (ek_replies_find). */
    pthread_mutex_lock(&r->lock);
    const size_t n = ek_reply_table_drop_origin(&r->table, origin);
    r->stats.wrong++;
    pthread_mutex_unlock(&r->lock);
    ek_reply_key_text(text, k);
    ek_log(EK_LOG_ERROR,
           "event=reply_wrong key=%s origin=\"%s\" dropped=%zu: a stored reply is not what the model gives (%s); "
           "it and all replies %s are dropped",
           text, names[origin], n, what, names[origin]);
}

/* --- counts --- */

void ek_replies_note(ek_replies *r, ek_reply_outcome o, int n)
{
    pthread_mutex_lock(&r->lock);
    r->stats.hits += o == EK_REPLY_HIT;
    r->stats.parts += o == EK_REPLY_PART;
    r->stats.misses += o == EK_REPLY_MISS;
    r->stats.tokens += (uint64_t)n;
    pthread_mutex_unlock(&r->lock);
}

void ek_replies_note_audit(ek_replies *r)
{
    pthread_mutex_lock(&r->lock);
    r->stats.audits++;
    pthread_mutex_unlock(&r->lock);
}

bool ek_replies_wants_audit(ek_replies *r)
{
    pthread_mutex_lock(&r->lock);
    r->audit_due += r->opts.audit;
    const bool due = r->audit_due >= 1;
    if (due) r->audit_due -= 1;
    pthread_mutex_unlock(&r->lock);
    return due;
}

void ek_replies_stats_read(ek_replies *r, ek_replies_stats *out)
{
    pthread_mutex_lock(&r->lock);
    *out = r->stats;
    out->evicted += r->table.evicted;
    out->entries = r->table.n;
    out->bytes = r->table.bytes;
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_backends; i++)
        if (r->backend[i].damaged) out->damaged += r->backend[i].damaged(r->backend[i].arg);
}
