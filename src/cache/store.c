#include "cache/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/log.h"

enum { MAX_SLOTS = 32, MAX_IN = 8, STAGING_BYTES = 64 << 20, AHEAD = 16, READY_BYTES = 2 << 20 };

typedef struct ring {
    ek_store_page slot[MAX_SLOTS];
    int n, first, used; /* entries in use: [first, first + used) modulo n */
} ring;

struct ek_store {
    ek_store_backend backend;
    ek_kv_layout layout;
    uint8_t *bytes[2];
    size_t n_bytes[2];
    void (*wake)(void *arg);
    void *wake_arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, news;
    bool closing, stirred;
    ring out, in;            /* out: to be written; in: loaded */
    uint64_t saved, written; /* pages that were put into out, and pages that left it */
    uint64_t queued;         /* the number that the backend had received when the last one left */
    /* the load; the thread works on it while loading is set */
    bool loading;
    unsigned load; /* counts loads: pages read for an older load are dropped */
    ek_chain chain;
    int32_t *token;
    ek_content_id *content;
    bool has_content;
    uint8_t *want[EK_KIND_COUNT];
    int next, n_pages;
    double waited, waits_since; /* seconds of the load so far, without the present wait; 0: it waits for its reader */
    ek_chain reported_chain;    /* the last page that the backend was asked for ahead */
    int reported;               /* number of pages asked for ahead */
    ek_store_page name;         /* the page that it is asked for; bytes are NULL */
    ek_store_ready_fn *ready;
    void *ready_arg;
    int ready_from[EK_PAGE_KINDS], ready_to[EK_PAGE_KINDS];
};

static bool open_ring(ek_store *s, ring *r, int which)
{
    size_t sliding = ek_kv_page_bytes_max(&s->layout, EK_SLIDING);
    size_t size = sliding + ek_kv_page_bytes_max(&s->layout, EK_FULL);
    size_t n = STAGING_BYTES / size;
    const size_t max = which == 0 ? MAX_SLOTS : MAX_IN; /* loaded pages are taken at once, and nothing waits for out */
    r->n = n > max ? (int)max : n < 2 ? 2 : (int)n;
    s->n_bytes[which] = size * (size_t)r->n;
    s->bytes[which] = ek_alloc_big(s->n_bytes[which]);
    if (!s->bytes[which]) return false;
    for (int i = 0; i < r->n; i++) {
        r->slot[i].bytes[EK_SLIDING] = s->bytes[which] + (size_t)i * size;
        r->slot[i].bytes[EK_FULL] = r->slot[i].bytes[EK_SLIDING] + sliding;
    }
    return true;
}

static void stir(ek_store *s)
{
    s->stirred = true;
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
    s->wake(s->wake_arg);
    pthread_mutex_lock(&s->lock);
}

/* With the lock, which is released meanwhile. */
static void write_some(ek_store *s)
{
    ek_store_page *page[MAX_SLOTS];
    int n = s->out.used;
    for (int i = 0; i < n; i++) page[i] = &s->out.slot[(s->out.first + i) % s->out.n];
    pthread_mutex_unlock(&s->lock);
    s->backend.write(s->backend.arg, page, n);
    pthread_mutex_lock(&s->lock);
    s->out.first = (s->out.first + n) % s->out.n;
    s->out.used -= n;
    s->written += (uint64_t)n;
    if (s->backend.queued) s->queued = s->backend.queued(s->backend.arg);
    stir(s);
}

static void name_page(ek_store *s, ek_store_page *p, int i, const ek_chain *before)
{
    memcpy(p->token, s->token + i * EK_PAGE_TOKENS, sizeof p->token);
    if (s->has_content) memcpy(p->content, s->content + i * EK_PAGE_TOKENS, sizeof p->content);
    else memset(p->content, 0, sizeof p->content);
    p->chain = ek_chain_next(before, p->token, p->content);
    p->depth = i;
}

/* Asks a distant backend for pages before they are needed. With the lock, which is released meanwhile; false if the
 * load has ended since. */
static bool announce(ek_store *s)
{
    unsigned load = s->load;
    if (s->reported < s->next || s->reported == 0) {
        s->reported = s->next, s->reported_chain = s->chain;
        pthread_mutex_unlock(&s->lock);
        s->backend.ahead(s->backend.arg, NULL, NULL);
        pthread_mutex_lock(&s->lock);
        if (load != s->load) return false;
    }
    while (s->reported < s->n_pages && s->reported < s->next + AHEAD) {
        bool want[EK_KIND_COUNT];
        int i = s->reported++;
        for (int k = 0; k < EK_KIND_COUNT; k++) want[k] = s->want[k][i];
        name_page(s, &s->name, i, &s->reported_chain);
        s->reported_chain = s->name.chain;
        if (!want[EK_FULL] && !want[EK_SLIDING]) continue;
        pthread_mutex_unlock(&s->lock);
        s->backend.ahead(s->backend.arg, &s->name, want);
        pthread_mutex_lock(&s->lock);
        if (load != s->load) return false;
    }
    return true;
}

/* With the lock: from now on the load waits for pages if more are to be read and there is room, else for its reader. */
static void note_wait(ek_store *s)
{
    const double now = ek_now();
    if (s->waits_since > 0) s->waited += now - s->waits_since;
    s->waits_since = s->loading && s->in.used < s->in.n ? now : 0;
}

/* Loads one page. */
static void load_one(ek_store *s)
{
    if (s->backend.ahead && !announce(s)) return;
    ek_store_page *p = &s->in.slot[(s->in.first + s->in.used) % s->in.n];
    int i = s->next++;
    unsigned load = s->load;
    bool want[EK_KIND_COUNT];
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        want[k] = s->want[k][i];
        p->has[k] = false;
    }
    name_page(s, p, i, &s->chain);
    s->chain = p->chain;
    if (want[EK_FULL] || want[EK_SLIDING]) {
        pthread_mutex_unlock(&s->lock);
        s->backend.read(s->backend.arg, p, want);
        pthread_mutex_lock(&s->lock);
    }
    if (load != s->load) return; /* the load has ended */
    bool missing = want[EK_FULL] && !p->has[EK_FULL];
    if (missing || s->next == s->n_pages) s->loading = false;
    if (!missing && (p->has[EK_FULL] || p->has[EK_SLIDING])) s->in.used++;
    note_wait(s);
    if (s->in.used < 2 || !s->loading) stir(s); /* the reader that takes the page before looks for this one */
}

/* Prepares unused memory. False: there is nothing to do. With the lock, which is released meanwhile. */
static bool ready_some(ek_store *s)
{
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        const int first = s->ready_from[k], left = s->ready_to[k] - first;
        int n = s->layout.page_bytes[k] ? (int)(READY_BYTES / s->layout.page_bytes[k]) : 0;
        if (left <= 0) continue;
        n = n < 1 ? 1 : n > left ? left : n;
        s->ready_from[k] += n;
        pthread_mutex_unlock(&s->lock);
        s->ready(s->ready_arg, (ek_layer_kind)k, first, n);
        pthread_mutex_lock(&s->lock);
        return true;
    }
    return false;
}

static void *store_thread(void *arg)
{
    ek_store *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        if (s->loading && s->in.used < s->in.n && !s->closing) load_one(s);
        else if (s->out.used > 0) write_some(s);
        else if (s->closing) break;
        else if (!ready_some(s)) pthread_cond_wait(&s->work, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void free_store(ek_store *s)
{
    s->backend.close(s->backend.arg);
    for (int i = 0; i < 2; i++) ek_free_big(s->bytes[i], s->n_bytes[i]);
    for (int k = 0; k < EK_KIND_COUNT; k++) free(s->want[k]);
    free(s->token);
    free(s->content);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->news);
    free(s);
}

ek_err ek_store_open(ek_store **out, const ek_store_backend *b, const ek_kv_layout *layout, int max_tokens,
                     void (*wake)(void *arg), void *arg)
{
    ek_store *s = ek_alloc(sizeof *s);
    size_t tokens = (size_t)max_tokens + EK_PAGE_TOKENS, pages = tokens / EK_PAGE_TOKENS + 1;
    *s = (ek_store){.backend = *b, .layout = *layout, .wake = wake, .wake_arg = arg};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->news, NULL);
    s->token = ek_alloc(sizeof *s->token * tokens);
    s->content = ek_alloc(sizeof *s->content * tokens);
    for (int k = 0; k < EK_KIND_COUNT; k++) s->want[k] = ek_alloc(pages);
    if (!open_ring(s, &s->out, 0) || !open_ring(s, &s->in, 1)) {
        free_store(s);
        return EK_ENOMEM;
    }
    if (ek_thread_start(&s->thread, store_thread, s) != 0) {
        free_store(s);
        return ek_fail(EK_ENOMEM, "the thread of the disk cache could not be started");
    }
    *out = s;
    return EK_OK;
}

void ek_store_close(ek_store *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free_store(s);
}

ek_store_page *ek_store_slot(ek_store *s)
{
    pthread_mutex_lock(&s->lock);
    ek_store_page *p = s->out.used < s->out.n ? &s->out.slot[(s->out.first + s->out.used) % s->out.n] : NULL;
    pthread_mutex_unlock(&s->lock);
    return p;
}

void ek_store_save(ek_store *s)
{
    pthread_mutex_lock(&s->lock);
    s->out.used++;
    s->saved++;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

/* With the lock. The thread may be reading a page of this load; its slot counts only if the load is still the same
 * afterwards. */
static void end_load(ek_store *s)
{
    s->loading = false;
    s->load++;
    s->in.first = s->in.used = 0;
}

void ek_store_load(ek_store *s, const ek_chain *chain, const ek_prefix_key *key, int first, int n_pages,
                   const uint8_t *const want[EK_KIND_COUNT])
{
    pthread_mutex_lock(&s->lock);
    end_load(s);
    size_t n = (size_t)n_pages * EK_PAGE_TOKENS;
    memcpy(s->token, key->token, n * sizeof *s->token);
    s->has_content = key->content != NULL;
    if (s->has_content) {
        size_t known = (size_t)key->n_content < n ? (size_t)key->n_content : n;
        memcpy(s->content, key->content, known * sizeof *s->content);
        memset(s->content + known, 0, (n - known) * sizeof *s->content);
    }
    for (int k = 0; k < EK_KIND_COUNT; k++) memcpy(s->want[k], want[k], (size_t)n_pages);
    s->chain = *chain;
    s->next = first;
    s->reported = 0;
    s->n_pages = n_pages;
    s->loading = first < n_pages;
    s->waited = s->waits_since = 0;
    note_wait(s);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

const ek_store_page *ek_store_loaded(ek_store *s, bool *end)
{
    pthread_mutex_lock(&s->lock);
    const ek_store_page *p = s->in.used > 0 ? &s->in.slot[s->in.first] : NULL;
    *end = !p && !s->loading;
    pthread_mutex_unlock(&s->lock);
    return p;
}

void ek_store_done(ek_store *s)
{
    pthread_mutex_lock(&s->lock);
    s->in.first = (s->in.first + 1) % s->in.n;
    s->in.used--;
    if (s->waits_since == 0) note_wait(s);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

double ek_store_load_seconds(ek_store *s)
{
    pthread_mutex_lock(&s->lock);
    const double seconds = s->waited + (s->waits_since > 0 ? ek_now() - s->waits_since : 0);
    pthread_mutex_unlock(&s->lock);
    return seconds;
}

void ek_store_stop_load(ek_store *s)
{
    pthread_mutex_lock(&s->lock);
    end_load(s);
    pthread_mutex_unlock(&s->lock);
}

void ek_store_set_ready(ek_store *s, ek_store_ready_fn *ready, void *arg)
{
    s->ready = ready;
    s->ready_arg = arg;
}

void ek_store_ready(ek_store *s, ek_layer_kind kind, int to)
{
    pthread_mutex_lock(&s->lock);
    if (to > s->ready_to[kind]) s->ready_to[kind] = to;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

void ek_store_wait(ek_store *s, double seconds)
{
    const double until = ek_now() + seconds;
    pthread_mutex_lock(&s->lock);
    while (!s->stirred && ek_wait_until(&s->news, &s->lock, until)) continue;
    s->stirred = false;
    pthread_mutex_unlock(&s->lock);
}

const ek_store_counts *ek_store_counts_of(const ek_store *s)
{
    return s->backend.counts;
}

const ek_store_counts *ek_store_host_counts_of(const ek_store *s)
{
    return s->backend.host;
}

const ek_shared_counts *ek_store_shared_counts_of(const ek_store *s)
{
    return s->backend.shared;
}

uint64_t ek_store_saved(const ek_store *s)
{
    return s->saved; /* only the engine's thread writes it */
}

bool ek_store_is_written(ek_store *s, uint64_t n)
{
    pthread_mutex_lock(&s->lock);
    bool left = s->written >= n;
    uint64_t queued = s->queued;
    pthread_mutex_unlock(&s->lock);
    return left && (!s->backend.is_written || s->backend.is_written(s->backend.arg, queued));
}

uint64_t ek_store_sum(const ek_store_page *p, int kind, size_t n)
{
    uint64_t h = ek_hash64((uint64_t)kind + EK_STORE_LAYOUT, p->chain.h, sizeof p->chain.h);
    h = ek_hash64(h, p->token, sizeof p->token);
    h = ek_hash64(h, p->content, sizeof p->content);
    return ek_hash64(h, p->bytes[kind], n);
}

bool ek_store_is_fleeting(const ek_store *s)
{
    return s->backend.fleeting;
}
