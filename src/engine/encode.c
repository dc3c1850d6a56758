#include "engine/planning.h"

#include <string.h>

#include "base/clock.h"

enum { DEFAULT_CHUNK = 512 }; /* prompt rows of the step whose time a slice may take */

static bool is_sound(const ek_media *m)
{
    return m->kind == EK_PART_SOUND;
}

void ek_encode_open(ek_engine *e)
{
    ek_features_init(&e->features, e->rules.hidden_size, e->opts.feature_bytes);
}

/* Ends the running encoding. */
static void leave(ek_engine *e)
{
    ek_features_drop(&e->features, e->encoding.feature);
    ek_media_release(e->encoding.media);
    e->encoding = (ek_encoding){0};
}

void ek_encode_close(ek_engine *e)
{
    if (e->encoding.feature) {
        e->on.encoder.drop(e->on.encoder.arg);
        leave(e);
    }
    ek_features_fini(&e->features);
}

/* --- what requests hold */

static void let_go(ek_engine *e, ek_request *r, int i)
{
    if (!r->media.part[i].feature) return;
    ek_features_drop(&e->features, r->media.part[i].feature);
    r->media.part[i].feature = NULL;
    r->media.span[i].embedding = NULL;
}

static void hold(ek_request *r, int i, ek_feature *x)
{
    ek_request_part *p = &r->media.part[i];
    p->feature = x;
    r->media.span[i].embedding = x->rows;
    if (!p->seen && x->maker != r->id) {
        r->media.n_reused[is_sound(p->media)] += x->tokens;
        if (x->salt == r->cache.salt) r->media.n_kept[is_sound(p->media)] += x->tokens;
    }
    p->seen = true;
}

void ek_encode_release(ek_engine *e, ek_request *r)
{
    for (int i = 0; i < r->media.n_parts; i++) let_go(e, r, i);
    r->media.first_part = 0;
}

/* Whether the next step may contain rows of part i. */
static bool is_near(const ek_engine *e, const ek_request *r, int i)
{
    int rows = e->opts.chunk > r->media.longest_piece ? e->opts.chunk : r->media.longest_piece;
    return r->media.span[i].first < (int64_t)r->n_done + rows;
}

static void supply(ek_engine *e, ek_request *r)
{
    for (; r->media.first_part < r->media.n_parts && r->media.span[r->media.first_part].end <= r->n_done;
         r->media.first_part++)
        let_go(e, r, r->media.first_part);
    for (int i = r->media.first_part; i < r->media.n_parts && is_near(e, r, i); i++) {
        ek_feature *x = r->media.part[i].feature ? NULL : ek_features_find(&e->features, r->media.part[i].media);
        if (x) hold(r, i, x);
    }
}

void ek_encode_supply(ek_engine *e)
{
    for (int i = 0; i < e->n_running; i++)
        if (e->running[i]->media.n_parts > 0) supply(e, e->running[i]);
}

/* --- what requests wait for */

/* The first part from i on that is near and has no features; n_parts: there is none. */
static int missing(const ek_engine *e, const ek_request *r, int i)
{
    while (i < r->media.n_parts && r->media.part[i].feature) i++;
    return i < r->media.n_parts && is_near(e, r, i) ? i : r->media.n_parts;
}

bool ek_encode_is_for(const ek_engine *e, const ek_request *r)
{
    if (!e->encoding.feature) return false;
    for (int i = missing(e, r, r->media.first_part); i < r->media.n_parts; i = missing(e, r, i + 1))
        if (ek_feature_is_of(e->encoding.feature, r->media.part[i].media)) return true;
    return false;
}

/* The oldest request that waits for the running encoding. */
static ek_request *who_waits(const ek_engine *e)
{
    for (int k = 0; k < e->n_running; k++)
        if (ek_encode_is_for(e, e->running[k])) return e->running[k];
    return NULL;
}

/* The number of the latest encoding for a client, from its running requests. */
static uint64_t last_of(const ek_engine *e, uint64_t client)
{
    uint64_t last = 0;
    for (int k = 0; k < e->n_running; k++) {
        const ek_request *r = e->running[k];
        if (r->turn.client == client && r->media.encoded_at > last) last = r->media.encoded_at;
    }
    return last;
}

/* The request whose picture is encoded next: of the client whose last encoding is the oldest, the request whose own
 * is. */
static ek_request *whose_turn(const ek_engine *e)
{
    ek_request *next = NULL;
    uint64_t last = 0;
    for (int k = 0; k < e->n_running; k++) {
        ek_request *r = e->running[k];
        if (missing(e, r, r->media.first_part) == r->media.n_parts) continue;
        const uint64_t of = last_of(e, r->turn.client);
        if (next && (of > last || (of == last && r->media.encoded_at >= next->media.encoded_at))) continue;
        next = r, last = of;
    }
    return next;
}

/* --- the work */

static ek_err begin(ek_engine *e, ek_request *r)
{
    ek_media *m = r->media.part[missing(e, r, r->media.first_part)].media;
    ek_feature *x;
    EK_TRY(ek_features_make(&e->features, m, &x));
    ek_err err = e->on.encoder.begin(e->on.encoder.arg, m, x->rows);
    if (err) {
        ek_features_drop(&e->features, x);
        return err;
    }
    x->maker = r->id, x->salt = r->cache.salt;
    r->media.encoded_at = ++e->n_encodings;
    e->encoding = (ek_encoding){.feature = x, .media = ek_media_retain(m), .since = ek_now()};
    return EK_OK;
}

/* Gives the features to all requests that wait for them while the encoding still holds them; afterwards the limit could
 * evict them. */
static void finish(ek_engine *e)
{
    const ek_encoding *x = &e->encoding;
    pthread_mutex_lock(&e->lock);
    e->stats.encoded[is_sound(x->media)]++;
    ek_histogram_add(&e->stats.encode_seconds, EK_HISTOGRAM_SECONDS, ek_now() - x->since);
    pthread_mutex_unlock(&e->lock);
    ek_features_add(&e->features, x->feature);
    ek_encode_supply(e);
    leave(e);
}

/* Beside replies half of the rows for prompts, because a slice and a step lie between two tokens. */
static int slice_rows(const ek_engine *e)
{
    const bool replying = ek_engine_replies(e) && e->opts.max_gap > 0;
    const int rows = ek_engine_prompt_rows(e, replying, 0), own = replying ? (rows + 1) / 2 : rows;
    return own < DEFAULT_CHUNK ? own : DEFAULT_CHUNK;
}

bool ek_encode_slice(ek_engine *e, ek_request **failed, ek_err *err)
{
    const ek_encoder *by = &e->on.encoder;
    *failed = NULL;
    *err = EK_OK;
    if (e->encoding.feature && !who_waits(e)) {
        by->drop(by->arg);
        leave(e);
    }
    if (!e->encoding.feature) {
        ek_request *r = whose_turn(e);
        if (!r) return false;
        *err = begin(e, r);
        *failed = *err ? r : NULL;
        if (*err) return true;
    }
    const int rows = slice_rows(e);
    const double start = ek_now();
    bool done = false;
    *err = by->advance(by->arg, ek_pace_slice(&e->pace, rows, by->row_macs), &done);
    if (!*err && !done) ek_pace_note(&e->pace, rows, ek_now() - start);
    if (*err) {
        *failed = who_waits(e);
        leave(e);
    } else if (done) finish(e);
    return true;
}
