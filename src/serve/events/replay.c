#include "serve/events/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

/* --- the mirror --- */

typedef struct ek_mirror_entry {
    ek_held_page page;
    int times; /* number of reports that it is stored; 0: the entry is unused */
    int before, behind, same;
} entry;

static int *bucket_of(const ek_mirror *m, uint64_t hash)
{
    return &m->bucket[ek_mix64(hash) & (m->n_buckets - 1)];
}

static int find(const ek_mirror *m, uint64_t hash)
{
    if (m->n_buckets == 0) return 0;
    int i = *bucket_of(m, hash);
    while (i && m->entry[i - 1].page.hash != hash) i = m->entry[i - 1].same;
    return i;
}

static void grow(ek_mirror *m)
{
    int cap = m->cap ? 2 * m->cap : 64;
    m->entry = ek_realloc(m->entry, sizeof *m->entry * (size_t)cap);
    for (int i = cap; i > m->cap; i--) {
        m->entry[i - 1].times = 0;
        m->entry[i - 1].behind = m->unused;
        m->unused = i;
    }
    m->cap = cap;
    m->n_buckets = 2 * (unsigned)cap;
    free(m->bucket);
    m->bucket = ek_alloc(sizeof *m->bucket * m->n_buckets);
    for (int i = 1; i <= cap; i++) {
        entry *e = &m->entry[i - 1];
        if (e->times == 0) continue;
        int *b = bucket_of(m, e->page.hash);
        e->same = *b;
        *b = i;
    }
}

static void add(ek_mirror *m, const ek_held_page *p)
{
    int i = find(m, p->hash);
    if (i) {
        m->entry[i - 1].times++;
        ek_salt_name_release(p->salt);
        return;
    }
    if (!m->unused) grow(m);
    i = m->unused;
    entry *e = &m->entry[i - 1];
    m->unused = e->behind;
    *e = (entry){.page = *p, .times = 1, .before = m->last};
    if (m->last) m->entry[m->last - 1].behind = i;
    else m->first = i;
    m->last = i;
    int *b = bucket_of(m, p->hash);
    e->same = *b;
    *b = i;
    m->n++;
}

static void remove_one(ek_mirror *m, uint64_t hash)
{
    int i = find(m, hash);
    if (!i) return;
    entry *e = &m->entry[i - 1];
    if (--e->times > 0) return;
    int *b = bucket_of(m, hash);
    while (*b != i) b = &m->entry[*b - 1].same;
    *b = e->same;
    if (e->before) m->entry[e->before - 1].behind = e->behind;
    else m->first = e->behind;
    if (e->behind) m->entry[e->behind - 1].before = e->before;
    else m->last = e->before;
    ek_salt_name_release(e->page.salt);
    e->behind = m->unused;
    m->unused = i;
    m->n--;
}

void ek_mirror_apply(ek_mirror *m, const ek_held_change *c)
{
    if (c->came) add(m, &c->page);
    else remove_one(m, c->page.hash);
}

/* Copies up to max pages after the cursor *at (0: from the beginning) and moves the cursor to the last one. The salts'
 * references stay with m. Returns the number of pages. */
static int list(const ek_mirror *m, int *at, ek_held_change *out, int max)
{
    int n = 0;
    for (int i = *at ? m->entry[*at - 1].behind : m->first; i && n < max; i = m->entry[i - 1].behind) {
        out[n++] = (ek_held_change){.came = true, .page = m->entry[i - 1].page};
        *at = i;
    }
    return n;
}

void ek_mirror_fini(ek_mirror *m)
{
    for (int i = m->first; i; i = m->entry[i - 1].behind) ek_salt_name_release(m->entry[i - 1].page.salt);
    free(m->entry);
    free(m->bucket);
    *m = (ek_mirror){0};
}

#ifdef EK_HAVE_EVENTS
/* --- sent batches --- */

void ek_history_add(ek_history *h, ek_buf *payload)
{
    h->item[h->next++ % EK_HISTORY_BATCHES] = *payload;
    h->bytes += payload->cap;
    *payload = (ek_buf){0};
    while (h->next - h->first > 1 && (h->bytes > EK_HISTORY_BYTES || h->next - h->first == EK_HISTORY_BATCHES)) {
        ek_buf *old = &h->item[h->first++ % EK_HISTORY_BATCHES];
        h->bytes -= old->cap;
        ek_buf_fini(old);
        *old = (ek_buf){0};
    }
}

void ek_history_clear(ek_history *h)
{
    for (; h->first < h->next; h->first++) {
        ek_buf *old = &h->item[h->first % EK_HISTORY_BATCHES];
        ek_buf_fini(old);
        *old = (ek_buf){0};
    }
    h->first = h->next = 0;
    h->bytes = 0;
}

enum { PAGES = 64 };

int ek_events_snapshot(ek_buf **out, const ek_mirror *m, bool arrays, double time, uint64_t n_batches)
{
    uint64_t per = n_batches ? ((uint64_t)m->n + n_batches - 1) / n_batches : 0;
    if (per < PAGES) per = PAGES;
    int n = m->n > 0 ? (int)(((uint64_t)m->n + per - 1) / per) : 1, at = 0;
    ek_held_change *page = ek_alloc(sizeof *page * per);
    *out = ek_alloc(sizeof **out * (size_t)n);
    for (int i = 0; i < n; i++) {
        int k = list(m, &at, page, (int)per);
        ek_events_write(&(*out)[i], arrays, time, i == 0, page, k);
    }
    free(page);
    return n;
}

/* --- requests */

bool ek_replay_parse(const ek_events_frame *frame, int n, uint64_t *from)
{
    if (n != 3 || frame[0].n == 0 || frame[0].n > EK_REPLAY_PEER_MAX || frame[1].n != 0 || frame[2].n != 8)
        return false;
    const uint8_t *p = frame[2].data;
    *from = 0;
    for (int i = 0; i < 8; i++) *from = *from << 8 | p[i];
    return true;
}

static void drop_snapshot(ek_replay *j)
{
    for (int i = 0; i < j->n_snapshot; i++) ek_buf_fini(&j->snapshot[i]);
    free(j->snapshot);
    j->snapshot = NULL;
    j->n_snapshot = j->at = 0;
}

static void end(ek_replays *r, ek_replay *j)
{
    drop_snapshot(j);
    j->n_peer = 0;
    r->n--;
}

void ek_replays_ask(ek_replays *r, ek_events_frame peer, uint64_t from, double now)
{
    ek_replay *free_one = NULL;
    for (ek_replay *j = r->job; j < r->job + EK_REPLAYS; j++) {
        if (j->n_peer == peer.n && !memcmp(j->peer, peer.data, peer.n)) end(r, j);
        if (j->n_peer == 0) free_one = j;
    }
    EK_ASSERT(free_one && peer.n > 0 && peer.n <= EK_REPLAY_PEER_MAX);
    *free_one = (ek_replay){.n_peer = peer.n, .next = from, .progress = now};
    memcpy(free_one->peer, peer.data, peer.n);
    r->n++;
}

void ek_replays_drop(ek_replays *r)
{
    for (ek_replay *j = r->job; j < r->job + EK_REPLAYS; j++)
        if (j->n_peer) end(r, j);
}

static int snapshots(const ek_replays *r)
{
    int n = 0;
    for (int i = 0; i < EK_REPLAYS; i++) n += r->job[i].snapshot != NULL;
    return n;
}

/* The next batch of an unfinished request. False: it has to wait for its turn. */
static bool next_batch(ek_replays *r, ek_replay *j, double time, ek_buf *none, ek_events_frame *out)
{
    enum { SNAPSHOTS = 2 }; /* at the same time: a snapshot is as large as the set of held pages */
    const ek_history *h = r->history;
    if (!j->snapshot && j->next < h->first) {
        if (snapshots(r) >= SNAPSHOTS) return false;
        j->n_snapshot = ek_events_snapshot(&j->snapshot, r->mirror, r->arrays, time, h->next - j->next);
        j->snapshot_end = h->next;
        j->at = 0; /* it also counted batches of the history */
    }
    const ek_buf *b = &h->item[j->next % EK_HISTORY_BATCHES];
    if (j->snapshot) b = j->at < j->n_snapshot ? &j->snapshot[j->at] : none;
    if (b == none && none->len == 0) ek_events_write(none, r->arrays, time, false, NULL, 0);
    *out = (ek_events_frame){b->data, b->len};
    return true;
}

static ek_replay_sent send_next(ek_replays *r, ek_replay *j, double time, ek_buf *none)
{
    ek_events_frame peer = {j->peer, j->n_peer}, payload;
    if (j->next >= r->history->next) return r->send(r->arg, peer, UINT64_MAX, (ek_events_frame){NULL, 0});
    if (!next_batch(r, j, time, none, &payload)) return EK_REPLAY_LATER;
    ek_replay_sent sent = r->send(r->arg, peer, j->next, payload);
    if (sent != EK_REPLAY_SENT) return sent;
    r->batches++;
    j->next++;
    j->at++;
    if (j->snapshot && j->next == j->snapshot_end) drop_snapshot(j);
    return sent;
}

bool ek_replays_go_on(ek_replays *r, double now, double time)
{
    enum { BATCHES = 256 }; /* batches of one request per turn, before other requests and new batches */
    static const double PATIENCE = 10;
    ek_buf none = {0};
    bool more = false;
    for (ek_replay *j = r->job; j < r->job + EK_REPLAYS; j++) {
        ek_replay_sent sent = EK_REPLAY_SENT;
        int n = 0;
        bool last = false;
        while (j->n_peer && !last && sent == EK_REPLAY_SENT && n < BATCHES) {
            last = j->next >= r->history->next;
            sent = send_next(r, j, time, &none);
            if (sent == EK_REPLAY_SENT) n++, j->progress = now;
        }
        if (!j->n_peer) continue;
        if (sent == EK_REPLAY_SENT && last) {
            r->done++;
            end(r, j);
        } else if (sent == EK_REPLAY_GONE || now - j->progress > PATIENCE) {
            r->lost++;
            end(r, j);
        } else {
            more |= sent == EK_REPLAY_SENT;
        }
    }
    ek_buf_fini(&none);
    return more;
}
#endif
