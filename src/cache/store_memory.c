#include "cache/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/machine/cpu.h"

enum { BUCKETS = 1 << 16 };

/* A page and its name, in the list of its bucket and in the list of all pages, which begins with the most recently
 * used. */
typedef struct entry {
    struct entry *next, *newer, *older;
    ek_chain chain;
    int32_t token[EK_PAGE_TOKENS];
    ek_content_id content[EK_PAGE_TOKENS];
    int depth;
    uint8_t *bytes[EK_KIND_COUNT]; /* NULL: not here */
} entry;

typedef struct memory {
    ek_kv_layout layout;
    ek_store_backend below; /* write NULL: none */
    ek_store_counts counts, no_disk;
    size_t max, used;
    entry *latest, *oldest;
    entry *bucket[BUCKETS];
} memory;

static size_t page_bytes(const memory *m, int depth, int kind)
{
    return m->layout.page_bytes[ek_kv_page_kind(&m->layout, (ek_layer_kind)kind, depth)];
}

static entry **bucket_of(memory *m, const ek_chain *chain)
{
    return &m->bucket[(chain->h[0] | chain->h[1] << 8) % BUCKETS];
}

/* The entry with the page's name and tokens. */
static entry *find(memory *m, const ek_store_page *p)
{
    for (entry *e = *bucket_of(m, &p->chain); e; e = e->next)
        if (memcmp(&e->chain, &p->chain, sizeof e->chain) == 0) return e;
    return NULL;
}

static bool alike(const entry *e, const ek_store_page *p)
{
    return e->depth == p->depth && memcmp(e->token, p->token, sizeof e->token) == 0 &&
           memcmp(e->content, p->content, sizeof e->content) == 0;
}

static void unlist(memory *m, entry *e)
{
    *(e->newer ? &e->newer->older : &m->latest) = e->older;
    *(e->older ? &e->older->newer : &m->oldest) = e->newer;
}

static void list_first(memory *m, entry *e)
{
    e->newer = NULL, e->older = m->latest;
    *(m->latest ? &m->latest->newer : &m->oldest) = e;
    m->latest = e;
}

static void touch(memory *m, entry *e)
{
    unlist(m, e);
    list_first(m, e);
}

/* Returns the number of its pages. */
static int drop(memory *m, entry *e)
{
    int n = 0;
    entry **at = bucket_of(m, &e->chain);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    unlist(m, e);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!e->bytes[k]) continue;
        ek_free_big(e->bytes[k], page_bytes(m, e->depth, k));
        m->used -= page_bytes(m, e->depth, k);
        n++;
    }
    m->used -= sizeof *e;
    free(e);
    return n;
}

static entry *add_entry(memory *m, const ek_store_page *p)
{
    entry *e = ek_alloc(sizeof *e), **at = bucket_of(m, &p->chain);
    e->chain = p->chain;
    e->depth = p->depth;
    memcpy(e->token, p->token, sizeof e->token);
    memcpy(e->content, p->content, sizeof e->content);
    e->next = *at;
    *at = e;
    list_first(m, e);
    m->used += sizeof *e;
    return e;
}

/* Makes room for this many more bytes; `keep` stays. */
static bool make_room(memory *m, size_t bytes, const entry *keep)
{
    if (bytes + sizeof *keep > m->max) return false;
    while (m->used + bytes > m->max && m->oldest && m->oldest != keep)
        atomic_fetch_add(&m->counts.evicted, (unsigned)drop(m, m->oldest));
    return m->used + bytes <= m->max;
}

/* Keeps the kinds of p that are missing here. */
static void keep(memory *m, const ek_store_page *p)
{
    entry *e = find(m, p);
    if (e && !alike(e, p)) return; /* equal names of different pages: never seen, and useless */
    if (e) touch(m, e);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const size_t bytes = page_bytes(m, p->depth, k);
        if (!p->has[k] || (e && e->bytes[k])) continue;
        uint8_t *copy = make_room(m, bytes + (e ? 0 : sizeof *e), e) ? ek_alloc_big(bytes) : NULL;
        if (!copy) {
            atomic_fetch_add(&m->counts.failed, 1);
            continue;
        }
        if (!e) e = add_entry(m, p);
        memcpy(copy, p->bytes[k], bytes);
        e->bytes[k] = copy;
        m->used += bytes;
        atomic_fetch_add(&m->counts.written, 1);
    }
    atomic_store(&m->counts.bytes, m->used);
}

static void forget(memory *m, const ek_store_page *p)
{
    entry *e = find(m, p);
    if (e) drop(m, e);
    atomic_store(&m->counts.bytes, m->used);
}

static void write_pages(void *arg, ek_store_page *const *page, int n)
{
    memory *m = arg;
    for (int i = 0; i < n; i++) {
        if (page[i]->has[EK_FULL] || page[i]->has[EK_SLIDING]) keep(m, page[i]);
        else forget(m, page[i]);
    }
    if (m->below.write) m->below.write(m->below.arg, page, n);
}

/* Reads the kinds that are missing here from the backend below. */
static void read_below(memory *m, ek_store_page *p, const bool want[EK_KIND_COUNT])
{
    ek_store_page got = *p;
    bool rest[EK_KIND_COUNT], any = false;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        rest[k] = want[k] && !p->has[k];
        got.has[k] = false;
        any = any || rest[k];
    }
    if (!any || !m->below.read) return;
    m->below.read(m->below.arg, &got, rest);
    keep(m, &got);
    for (int k = 0; k < EK_KIND_COUNT; k++) p->has[k] = p->has[k] || got.has[k];
}

static void read_page(void *arg, ek_store_page *p, const bool want[EK_KIND_COUNT])
{
    memory *m = arg;
    entry *e = find(m, p);
    if (e && alike(e, p)) {
        touch(m, e);
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            if (!want[k] || !e->bytes[k]) continue;
            memcpy(p->bytes[k], e->bytes[k], page_bytes(m, p->depth, k));
            p->has[k] = true;
            atomic_fetch_add(&m->counts.read, 1);
        }
    }
    read_below(m, p, want);
}

/* Asks the backend below for the missing kinds. */
static void read_ahead(void *arg, const ek_store_page *p, const bool want[EK_KIND_COUNT])
{
    memory *m = arg;
    bool rest[EK_KIND_COUNT] = {false};
    const entry *e = p ? find(m, p) : NULL;
    for (int k = 0; p && k < EK_KIND_COUNT; k++) rest[k] = want[k] && !(e && alike(e, p) && e->bytes[k]);
    m->below.ahead(m->below.arg, p, p ? rest : NULL);
}

static uint64_t queued_below(void *arg)
{
    memory *m = arg;
    return m->below.queued(m->below.arg);
}

static bool is_written_below(void *arg, uint64_t n)
{
    memory *m = arg;
    return m->below.is_written(m->below.arg, n);
}

static void close_memory(void *arg)
{
    memory *m = arg;
    while (m->oldest) drop(m, m->oldest);
    if (m->below.close) m->below.close(m->below.arg);
    free(m);
}

ek_err ek_store_memory_open(ek_store_backend *out, const ek_kv_layout *layout, double max_bytes,
                            const ek_store_backend *below)
{
    const double have = ek_memory_available();
    if (have > 0 && max_bytes > have) {
        if (below) below->close(below->arg);
        return ek_fail(EK_ENOMEM, "cached pages in host memory may take %.0f MiB, %.0f MiB of memory are available",
                       max_bytes / 1048576, have / 1048576);
    }
    memory *m = ek_alloc(sizeof *m);
    m->layout = *layout;
    m->max = (size_t)max_bytes;
    if (below) m->below = *below;
    ek_log(EK_LOG_DEBUG, "cache in host memory: up to %.1f MiB", max_bytes / 1048576);
    *out = (ek_store_backend){.arg = m,
                              .write = write_pages,
                              .read = read_page,
                              .ahead = m->below.ahead ? read_ahead : NULL,
                              .queued = m->below.queued ? queued_below : NULL,
                              .is_written = m->below.is_written ? is_written_below : NULL,
                              .close = close_memory,
                              .counts = below ? below->counts : &m->no_disk,
                              .host = &m->counts,
                              .shared = m->below.shared,
                              .fleeting = !below};
    return EK_OK;
}
