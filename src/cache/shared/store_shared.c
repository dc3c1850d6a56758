#include "cache/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/shared/shared.h"

enum { MAX_REFUTED = 4096, LAST_WRITES = 5 }; /* names; seconds at shutdown */

/* Used by the store's thread alone, except `common`. */
typedef struct shared {
    ek_shared common;
    ek_shared_reads *reads;
    ek_shared_writes *writes;
    ek_store_counts no_disk;
    /* Names of pages that the audit found wrong: such a page is not accepted again. The oldest names are dropped. */
    ek_chain *refuted;
    uint64_t n_refuted;
    double last_warning; /* about a wrong page */
} shared;

static bool is_refuted(const shared *s, const ek_chain *chain)
{
    uint64_t n = s->n_refuted < MAX_REFUTED ? s->n_refuted : MAX_REFUTED;
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&s->refuted[i], chain, sizeof *chain) == 0) return true;
    return false;
}

/* Marks the page as wrong, whatever its checksum. */
static void refute(shared *s, const ek_store_page *p)
{
    if (is_refuted(s, &p->chain)) return;
    s->refuted[s->n_refuted++ % MAX_REFUTED] = p->chain;
    atomic_fetch_add(&s->common.counts.wrong, 1);
    for (int k = 0; k < EK_KIND_COUNT; k++) ek_shared_writes_drop(s->writes, &p->chain, k);
}

static void write_pages(void *arg, ek_store_page *const *page, int n)
{
    shared *s = arg;
    for (int i = 0; i < n; i++) {
        const ek_store_page *p = page[i];
        if (!p->has[EK_FULL] && !p->has[EK_SLIDING]) refute(s, p);
        for (int k = 0; k < EK_KIND_COUNT; k++)
            if (p->has[k] && s->common.writes) ek_shared_writes_put(s->writes, p, k);
    }
}

static void read_one(shared *s, ek_store_page *p, int kind)
{
    ek_shared_counts *c = &s->common.counts;
    size_t n;
    const size_t bytes = ek_record_bytes(&s->common.layout, p, kind);
    const uint8_t *data = ek_shared_reads_take(s->reads, &p->chain, kind, bytes, &n);
    p->has[kind] = data && ek_record_read(data, n, &s->common.layout, p, kind);
    if (data) ek_shared_reads_give(s->reads, kind, data);
    atomic_fetch_add(p->has[kind] ? &c->hits : &c->misses, 1);
    if (!data || p->has[kind]) return;
    atomic_fetch_add(&c->wrong, 1);
    atomic_store(&s->common.doubted_until, ek_now() + EK_SHARED_DOUBT);
    if (s->last_warning == 0 || ek_now() - s->last_warning > 60) {
        s->last_warning = ek_now();
        ek_log(EK_LOG_WARN,
               "shared pages: %s: what lies under the name of positions %d to %d is another page or damaged; "
               "%llu such pages so far",
               s->common.text, p->depth * EK_PAGE_TOKENS, p->depth * EK_PAGE_TOKENS + EK_PAGE_TOKENS - 1,
               (unsigned long long)atomic_load(&c->wrong));
    }
    ek_shared_writes_drop(s->writes, &p->chain, kind);
}

static void read_page(void *arg, ek_store_page *p, const bool want[EK_KIND_COUNT])
{
    shared *s = arg;
    bool refuted = s->n_refuted > 0 && is_refuted(s, &p->chain);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (want[k] && !refuted) read_one(s, p, k);
}

static void read_ahead(void *arg, const ek_store_page *p, const bool want[EK_KIND_COUNT])
{
    shared *s = arg;
    if (!p) ek_shared_reads_begin(s->reads);
    for (int k = 0; p && k < EK_KIND_COUNT; k++)
        if (want[k]) ek_shared_reads_ask(s->reads, &p->chain, k, ek_record_bytes(&s->common.layout, p, k));
}

static uint64_t queued(void *arg)
{
    const shared *s = arg;
    return ek_shared_writes_queued(s->writes);
}

static bool is_written(void *arg, uint64_t n)
{
    const shared *s = arg;
    return ek_shared_writes_written(s->writes, n);
}

static void close_shared(void *arg)
{
    shared *s = arg;
    ek_shared_writes_close(s->writes, LAST_WRITES);
    atomic_store(&s->common.stop, true);
    ek_shared_reads_close(s->reads);
    ek_shared_url_fini(&s->common.url);
    pthread_mutex_destroy(&s->common.lock);
    free(s->common.ca);
    free(s->common.cert);
    free(s->common.what);
    free(s->refuted);
    free(s);
}

/* That this build can use. */
static ek_err read_url(ek_shared_url *url, const char *text)
{
    EK_TRY(ek_shared_url_parse(url, text));
    ek_err err = EK_OK;
    if (url->tls && !ek_link_has_tls())
        err = ek_fail(EK_EUNSUPPORTED, "this build has no TLS: libssl-dev was not installed when it was built");
    if (err) ek_shared_url_fini(url);
    return err;
}

ek_err ek_store_shared_check(const char *text)
{
    ek_shared_url url;
    EK_TRY(read_url(&url, text));
    ek_shared_url_fini(&url);
    return EK_OK;
}

ek_err ek_store_shared_open(ek_store_backend *out, const ek_shared_opts *o, const char *what,
                            const ek_kv_layout *layout)
{
    ek_shared_url url;
    EK_TRY(read_url(&url, o->url));
    shared *s = ek_alloc(sizeof *s);
    ek_shared *c = &s->common;
    c->url = url;
    c->name = "shared pages";
    pthread_mutex_init(&c->lock, NULL);
    ek_shared_url_text(&c->url, c->text);
    if (o->ca) c->ca = ek_strdup(o->ca);
    if (o->cert) c->cert = ek_strdup(o->cert);
    c->what = ek_strdup(what);
    ek_record_space(c->space, what);
    c->layout = *layout;
    c->rate = o->rate, c->max_bytes = o->max_bytes;
    c->writes = !o->read_only;
    s->refuted = ek_alloc(sizeof *s->refuted * MAX_REFUTED);
    ek_err err = ek_shared_writes_open(&s->writes, c);
    if (!err) err = ek_shared_reads_open(&s->reads, c);
    if (err) {
        close_shared(s);
        return err;
    }
    ek_log(EK_LOG_INFO, "shared pages: %s, keys evenkeel:page:1:%s:*%s", c->text, c->space,
           o->read_only ? ", read only" : "");
    *out = (ek_store_backend){.arg = s,
                              .write = write_pages,
                              .read = read_page,
                              .ahead = read_ahead,
                              .queued = queued,
                              .is_written = is_written,
                              .close = close_shared,
                              .counts = &s->no_disk,
                              .shared = &c->counts};
    return EK_OK;
}
