#include "engine/cached.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    PATIENCE = 5,
    LAST_WRITES = 10,
    LAST_EVENT = 10,
    SAVES_PER_STEP = 8
}; /* seconds without a page; seconds at the end */
#define FORGETTING 0.5
#define READY      (32u << 20) /* bytes */
#define GRACE      1.0         /* maximum seconds of all loads together beyond the time of computing the same pages */
#define RETURN     0.1         /* seconds of each elapsed second that reading may lose again */

static void copy_out(ek_engine *e, const ek_prefix_unsaved *u)
{
    ek_store_page *p = ek_store_slot(e->store);
    if (!p) return;
    p->chain = *u->chain;
    p->depth = u->depth;
    memcpy(p->token, u->token, sizeof p->token);
    memset(p->content, 0, sizeof p->content);
    if (u->content) memcpy(p->content, u->content, sizeof p->content);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        p->has[k] = u->page[k] != EK_NO_PAGE;
        ek_layer_kind kind = ek_kv_page_kind(e->on.layout, (ek_layer_kind)k, u->depth);
        if (p->has[k]) e->on.read_page(e->on.arg, kind, u->page[k], p->bytes[k]);
    }
    ek_engine_note_broken(e);
    if (!e->broken[0]) ek_store_save(e->store); /* otherwise nothing was read */
}

/* Only the audit finds such pages, while nothing runs, so it may wait a moment for free slots. */
static void forget_one(ek_engine *e, const ek_chain *chain)
{
    ek_store_page *p;
    while (!(p = ek_store_slot(e->store)) && ek_now() < e->forget_by) ek_store_wait(e->store, 0.02);
    if (!p) return;
    p->chain = *chain;
    p->has[EK_FULL] = p->has[EK_SLIDING] = false;
    ek_store_save(e->store);
}

/* A page leaves memory before it was written, so this is the last chance to write it; or the page is wrong. */
static void save_evicted(void *arg, const ek_prefix_unsaved *u)
{
    if (u->page[EK_FULL] == EK_NO_PAGE && u->page[EK_SLIDING] == EK_NO_PAGE) forget_one(arg, u->chain);
    else copy_out(arg, u);
}

/* On the store's thread. */
static void wake(void *arg)
{
    ek_engine *e = arg;
    pthread_mutex_lock(&e->lock);
    e->poked = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* The store's thread prepares unused memory for as many pages as one request may have, at most READY bytes: pages from
 * the store would otherwise arrive faster than the system clears memory for them. */
static void ready_ahead(ek_engine *e)
{
    for (int k = 0; k < EK_PAGE_KINDS && e->on.ready_pages; k++) {
        const size_t bytes = e->on.layout->page_bytes[k];
        const int all = e->sizes.n_pages[k];
        if (bytes == 0 || all == 0) continue;
        /* Unused pages are a stack: those that were never handed out are the last. */
        int to = all - (ek_pages_unused(e->pages, (ek_layer_kind)k) - ek_pages_idle(e->pages, (ek_layer_kind)k));
        const int max = ek_page_table_max(e->on.layout, (ek_layer_kind)k, e->sizes.max_ctx, 1),
                  room = (int)(READY / bytes);
        to += max < room ? max : room;
        if (to > all) to = all;
        if (to <= e->n_ready[k]) continue;
        e->n_ready[k] = to;
        ek_store_ready(e->store, (ek_layer_kind)k, to);
    }
}

ek_err ek_shelf_open(ek_engine *e)
{
    const ek_store_backend *b = e->opts.cache_store;
    if (!b) return EK_OK;
    if (!e->prefix) return ek_fail(EK_EINVAL, "cached pages cannot be kept outside of memory: there is no cache in it");
    if (!e->on.read_page) {
        ek_log(EK_LOG_WARN, "cached pages are not kept outside of memory: this device does not give them out");
        return EK_OK;
    }
    int max_pages = e->sizes.max_ctx / EK_PAGE_TOKENS + 2;
    for (int k = 0; k < EK_KIND_COUNT; k++) e->load_want[k] = ek_alloc((size_t)max_pages);
    e->opts.cache_store = NULL; /* the store closes it from here on */
    EK_TRY(ek_store_open(&e->store, b, e->on.layout, e->sizes.max_ctx, wake, e));
    ek_prefix_set_saver(e->prefix, save_evicted, e);
    ek_store_set_ready(e->store, e->on.ready_pages, e->on.arg);
    ready_ahead(e);
    return EK_OK;
}

void ek_shelf_save(ek_engine *e)
{
    ek_prefix_unsaved u;
    if (!e->store) return;
    ready_ahead(e);
    for (int i = 0; i < SAVES_PER_STEP && ek_store_slot(e->store) && ek_prefix_next_unsaved(e->prefix, &u); i++)
        copy_out(e, &u);
}

int ek_shelf_drop(ek_engine *e, const ek_prefix_key *key, int first)
{
    e->forget_by = ek_now() + FORGETTING;
    ek_chain chain = ek_chain_root(key->salt);
    /* the wrong page first, because there may not be time to name all that follow it */
    for (int i = 0; e->store && i < key->n / EK_PAGE_TOKENS; i++) {
        chain = ek_chain_next(&chain, key->token + i * EK_PAGE_TOKENS, NULL);
        if (i >= first) forget_one(e, &chain);
    }
    return ek_prefix_drop(e->prefix, key, first * EK_PAGE_TOKENS);
}

void ek_shelf_close(ek_engine *e)
{
    const ek_store_backend *b = e->opts.cache_store;
    if (b) b->close(b->arg); /* set only if opening failed earlier */
    e->opts.cache_store = NULL;
    if (!e->store) return;
    const bool last = !ek_store_is_fleeting(e->store);
    for (double end = ek_now() + LAST_WRITES; last && ek_prefix_n_unsaved(e->prefix) > 0 && ek_now() < end;) {
        ek_shelf_save(e);
        if (!ek_store_slot(e->store)) ek_store_wait(e->store, 0.1);
    }
    if (last && ek_prefix_n_unsaved(e->prefix) > 0)
        ek_log(EK_LOG_WARN, "cached pages: %d were not written before the end", ek_prefix_n_unsaved(e->prefix));
    ek_prefix_set_saver(e->prefix, NULL, NULL);
    ek_store_close(e->store);
    e->store = NULL;
}

/* --- loading */

/* Marks the pages below n that memory lacks: full ones from `found` on, where the path in memory ends, and sliding ones
 * from `low` on. Returns the first one; n: there are none. */
static int mark_wanted(ek_engine *e, const ek_request *r, int found, int low, int n)
{
    const bool full = e->on.layout->page_bytes[EK_FULL] > 0, sliding = e->on.layout->page_bytes[EK_SLIDING] > 0;
    int first = n, back = ek_prefix_usable(e->prefix, ek_reuse_max(r)) - r->window + 1; /* useless before that */
    for (int i = n - 1; i >= 0; i--) {
        e->load_want[EK_FULL][i] = full && i >= found;
        e->load_want[EK_SLIDING][i] = sliding && i >= low && (i + 1) * EK_PAGE_TOKENS > back &&
                                      ek_prefix_page(e->prefix, EK_SLIDING, i) == EK_NO_PAGE;
        if (e->load_want[EK_FULL][i] || e->load_want[EK_SLIDING][i]) first = i;
    }
    return first;
}

/* Requests those pages. False if there are none. */
static bool ask(ek_engine *e, const ek_request *r, const ek_prefix_key *key, int found, int low, int n)
{
    const int first = mark_wanted(e, r, found, low, n);
    if (first == n) return false;
    ek_chain chain = ek_prefix_chain(e->prefix, key, first - 1);
    const uint8_t *want[EK_KIND_COUNT] = {e->load_want[0], e->load_want[1]};
    ek_store_load(e->store, &chain, key, first, n, want);
    return true;
}

/* Number of pages of sliding layers that are visible to a sequence that begins after them. */
static int window_pages(const ek_request *r)
{
    return (r->window - 1 + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
}

/* Pages that would let r resume later than it can now: all full pages, and of the sliding ones, which can be many times
 * as large, those visible after the last full one. */
typedef struct lack {
    int found, low, n; /* pages on the path in memory; the first wanted sliding page; all pages */
} lack;

/* False if it lacks nothing. */
static bool lacks(ek_engine *e, const ek_request *r, lack *out)
{
    ek_prefix_key key = ek_reuse_key(r, r->n_tokens);
    const int found = ek_prefix_find(e->prefix, &key) / EK_PAGE_TOKENS, max = ek_reuse_max(r);
    int n = (max + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS; /* part of the last one is useful */
    if (n * EK_PAGE_TOKENS > r->n_tokens) n--;
    if (ek_prefix_usable(e->prefix, max) >= max) return false;
    int low = n > window_pages(r) ? n - window_pages(r) : 0;
    if (e->on.layout->page_bytes[EK_FULL] == 0) low = 0; /* a page joins the index only after the page before it */
    *out = (lack){.found = found, .low = low, .n = n};
    return mark_wanted(e, r, found, low, n) < n;
}

static void begin_load(ek_engine *e, ek_request *r, const lack *l)
{
    ek_prefix_key key = ek_reuse_key(r, r->n_tokens);
    e->load_span = window_pages(r);
    e->load_low = l->low;
    ask(e, r, &key, l->found, l->low, l->n);
    e->load_for = r->id;
    e->load_since = ek_now();
    e->load_before = 0;
    e->load_taken = 0;
}

/* After a load: if r cannot resume anywhere with the requested sliding pages, requests those that are visible at the
 * end of the full ones, if that end came early; then the pages before them, four times as many each time. False: there
 * are no more. */
static bool go_back(ek_engine *e, ek_request *r)
{
    ek_prefix_key key = ek_reuse_key(r, r->n_tokens);
    const int found = ek_prefix_find(e->prefix, &key) / EK_PAGE_TOKENS;
    const int max = ek_reuse_max(r), usable = ek_prefix_usable(e->prefix, max);
    while (e->load_low > 0 && usable < max) {
        const int end = found < e->load_low ? found : e->load_low;
        int low = found - window_pages(r);
        if (usable >= end * EK_PAGE_TOKENS) return false;
        if (low >= e->load_low) {
            e->load_span = e->load_span > 0 ? 4 * e->load_span : 1;
            low = e->load_low - e->load_span;
        }
        e->load_low = low > 0 ? low : 0;
        e->load_before += ek_store_load_seconds(e->store);
        if (ask(e, r, &key, found, e->load_low, end)) return true;
    }
    return false;
}

/* Adds a loaded page to the index; false if it has no place there. */
static bool take_in(ek_engine *e, const ek_request *r, const ek_store_page *p)
{
    int32_t page[EK_KIND_COUNT] = {EK_NO_PAGE, EK_NO_PAGE};
    ek_prefix_key key = ek_reuse_key(r, r->n_tokens);
    bool good = true;
    for (int k = 0; k < EK_KIND_COUNT && good; k++) {
        ek_layer_kind kind = ek_kv_page_kind(e->on.layout, (ek_layer_kind)k, p->depth);
        if (!p->has[k]) continue;
        good = ek_pages_acquire(e->pages, kind, 1, &page[k]) == EK_OK;
        if (good) e->on.write_page(e->on.arg, kind, page[k], p->bytes[k]);
    }
    if (good) good = ek_prefix_attach(e->prefix, &key, p->depth, page);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (page[k] != EK_NO_PAGE)
            ek_pages_release(e->pages, ek_kv_page_kind(e->on.layout, (ek_layer_kind)k, p->depth), page[k]);
    return good;
}

/* --- the cost of reading. A request that reads waits, and pages that arrive more slowly than they are computed are not
 * worth it. The time of loads beyond computing the same pages is summed over all requests, and fades with time. Once it
 * reaches GRACE, nothing is read until half of it has faded, so that a slow store costs the first request a second, and
 * not each of them. --- */

static double lost(const ek_engine *e)
{
    const double left = e->lost - RETURN * (ek_now() - e->lost_at);
    return left > 0 ? left : 0;
}

/* Seconds that the load took beyond computing the received pages and one more, which the store may not have had. */
static double excess(const ek_engine *e)
{
    const double computing = e->pace.row_seconds * EK_PAGE_TOKENS * (e->load_taken + 1);
    if (computing == 0 && e->load_taken > 0) return 0; /* nothing has been computed yet */
    return e->load_before + ek_store_load_seconds(e->store) - computing;
}

static void say_rest(ek_engine *e)
{
    enum { SILENCE = 60 };
    if (e->rest_said > 0 && ek_now() - e->rest_said < SILENCE) return;
    e->rest_said = ek_now();
    ek_log(EK_LOG_WARN,
           "cached pages: reading them took %.1f s more than computing them takes: prompts are computed for %.0f s",
           e->lost, (e->lost - GRACE / 2) / RETURN);
}

static void end_load(ek_engine *e)
{
    const double more = excess(e), before = lost(e);
    ek_store_stop_load(e->store);
    e->load_for = 0;
    e->lost = before + more > 0 ? before + more : 0;
    if (e->lost > 2 * GRACE) e->lost = 2 * GRACE;
    e->lost_at = ek_now();
    if (e->lost < GRACE || e->rests) return;
    e->rests = true;
    say_rest(e);
}

static bool rests(ek_engine *e)
{
    if (e->rests && lost(e) <= GRACE / 2) e->rests = false;
    return e->rests;
}

/* The reason to end reading before all pages have arrived; NULL: none. */
static const char *too_slow(const ek_engine *e)
{
    if (ek_now() - e->load_since >= PATIENCE) return "no page came for 5 seconds";
    return excess(e) > GRACE - lost(e) ? "they come slower than they are computed" : NULL;
}

/* --- whose pages are read */

/* The request of the wait queue whose pages are read; NULL: none. Ends reading for a request that has left the queue.
 */
static ek_request *reader(ek_engine *e)
{
    ek_request *r = e->load_for ? e->waiting : NULL;
    while (r && r->id != e->load_for) r = r->next;
    if (!r && e->load_for) end_load(e);
    return r;
}

/* Ends reading for r, which requests the rest when its turn comes. */
static void put_off(ek_engine *e, ek_request *r)
{
    r->cache.asked_store = false;
    end_load(e);
}

static bool stands_behind(const ek_request *a, const ek_request *r)
{
    while (r && r != a) r = r->next;
    return r != NULL;
}

void ek_shelf_end_unwanted_load(ek_engine *e)
{
    reader(e);
}

/* Takes the pages that arrived for r; true if these were the last, or if reading ends without the rest. */
static bool take_loaded(ek_engine *e, ek_request *r)
{
    bool end = false, good = true;
    for (const ek_store_page *p; (p = ek_store_loaded(e->store, &end)) != NULL;) {
        good = take_in(e, r, p);
        ek_store_done(e->store);
        e->load_since = ek_now();
        e->load_taken++;
        if (!good) break;
    }
    end |= !good;
    const char *why = end ? NULL : too_slow(e);
    if (!end && !why) return false;
    if (end && good && go_back(e, r)) return false;
    if (why)
        ek_log(e->load_taken > 0 ? EK_LOG_DEBUG : EK_LOG_WARN, /* a slow store is no fault, a silent one is */
               "cached pages: %s: the rest of a prompt is computed", why);
    end_load(e);
    return true;
}

bool ek_shelf_ready(ek_engine *e, ek_request *r)
{
    if (!e->store) return true;
    lack l;
    ek_request *now = reader(e);
    if (now == r) return take_loaded(e, r);
    if (r->cache.asked_store) return true;
    if (rests(e)) {
        r->cache.asked_store = true;
        return true;
    }
    if (now && !stands_behind(now, r)) { /* one that lacks nothing passes it */
        if (!r->cache.in_line) r->cache.in_line = lacks(e, r, &l);
        return !r->cache.in_line;
    }
    if (!lacks(e, r, &l)) return true;
    if (now) put_off(e, now);
    r->cache.asked_store = true;
    begin_load(e, r, &l);
    return false;
}

void ek_shelf_put_off(ek_engine *e, ek_request *r)
{
    if (e->store && e->load_for == r->id) put_off(e, r);
}

void ek_shelf_ahead(ek_engine *e)
{
    ek_request *r = e->waiting;
    if (!e->store || !r || e->n_running < e->opts.max_requests) return;
    ek_request *now = reader(e);
    if (now != r && (r->cache.asked_store || ek_reuse_waits(e, r) || ek_shelf_ready(e, r))) r = now;
    if (r && r->id == e->load_for) ek_shelf_ready(e, r);
}

/* --- last events that wait */

bool ek_shelf_take_leaving(ek_engine *e, ek_request *r, const ek_event *event)
{
    if (!r->cache.publish || !e->store || !e->prefix) return false;
    ek_leaving *l = ek_alloc(sizeof *l), **at = &e->leaving;
    *l = (ek_leaving){.req = r, .event = *event, .unsaved = ek_prefix_unsaved_mark(e->prefix)};
    l->until = ek_now() + LAST_EVENT;
    if (event->logits) {
        const size_t n = sizeof *l->logits * (size_t)e->rules.vocab_size;
        l->logits = ek_alloc(n);
        memcpy(l->logits, event->logits, n);
        l->event.logits = l->logits;
    }
    while (*at) at = &(*at)->next;
    *at = l;
    return true;
}

static bool is_there(ek_engine *e, ek_leaving *l)
{
    if (!l->handed) {
        if (!ek_prefix_saved_until(e->prefix, l->unsaved)) return false;
        l->saved = ek_store_saved(e->store);
        l->handed = true;
    }
    return ek_store_is_written(e->store, l->saved);
}

ek_leaving *ek_shelf_next_leaving(ek_engine *e, bool now)
{
    for (ek_leaving **at = &e->leaving; *at; at = &(*at)->next) {
        ek_leaving *l = *at;
        if (!now && ek_now() < l->until && !is_there(e, l)) continue;
        *at = l->next;
        return l;
    }
    return NULL;
}

void ek_leaving_end(ek_leaving *l)
{
    ek_request_free(l->req);
    free(l->logits);
    free(l);
}
