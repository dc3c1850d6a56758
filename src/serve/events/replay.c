#include "serve/events/replay.h"

#ifdef EK_HAVE_EVENTS
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

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

int ek_events_snapshot(ek_buf **out, const ek_mirror *m, const ek_events_form *form, double time, uint64_t n_batches)
{
    uint64_t per = n_batches ? ((uint64_t)m->n + n_batches - 1) / n_batches : 0;
    if (per < PAGES) per = PAGES;
    int n = m->n > 0 ? (int)(((uint64_t)m->n + per - 1) / per) : 1, at = 0;
    ek_held_change *page = ek_alloc(sizeof *page * per);
    *out = ek_alloc(sizeof **out * (size_t)n);
    for (int i = 0; i < n; i++) {
        int k = ek_mirror_list(m, &at, page, (int)per);
        ek_events_write(&(*out)[i], form, time, i == 0, page, k);
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
        j->n_snapshot = ek_events_snapshot(&j->snapshot, r->mirror, r->form, time, h->next - j->next);
        j->snapshot_end = h->next;
        j->at = 0; /* it also counted batches of the history */
    }
    const ek_buf *b = &h->item[j->next % EK_HISTORY_BATCHES];
    if (j->snapshot) b = j->at < j->n_snapshot ? &j->snapshot[j->at] : none;
    if (b == none && none->len == 0) ek_events_write(none, r->form, time, false, NULL, 0);
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
