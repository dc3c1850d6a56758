/* Fetches files in ranges over several connections. The first range of an incomplete file is written as it arrives;
 * later ranges wait in memory, so that the file on disk has no holes. */
#include "hub/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { HASH_STEP = 8 << 20, SLOW = 64 << 10 };

typedef struct work work;
typedef struct range {
    struct range *next; /* the next range of the same file */
    work *w;
    ek_get get;
    bool running;
    int64_t from, to, got; /* range of the file; got: bytes that have arrived */
    int64_t counted;       /* the value of got when failures was last reset */
    int64_t skip;          /* bytes of the reply before the range; a server without ranges sends the whole file */
    ek_buf held;
    int failures;
    double not_before;
    const char *url;
    ek_err failed; /* the error of a callback, with its sentence set */
} range;

typedef enum work_state { WORK_WAITS, WORK_HELD, WORK_CHECKS, WORK_RUNS, WORK_DONE } work_state;

struct work {
    struct fetch *f;
    const ek_hub_file *file;
    work_state state;
    ek_hub_blob blob;
    range *first;
    int64_t planned; /* bytes that are written or belong to a range */
    bool no_ranges;  /* the server sends only whole files */
    int tries;       /* attempts that ended with another hash */
    ek_buf url;
    char *direct; /* the address to which the file's address redirects, while it works */
    double look_again;
};

typedef struct fetch {
    ek_client *client;
    const ek_hub_opts *opts;
    const ek_hub_cache *cache;
    const ek_hub_name *name;
    work *work;
    int n_work, n_done, n_running, n_ranges;
    double paused_until; /* a 429 is about all requests, so all pause */
    double bytes;
    bool said_held;
} fetch;

static bool wants_more(const fetch *f)
{
    return f->n_ranges < 2 * f->opts->connections;
}

/* ------------------------------------------------------------------ ranges */

static range *add_range(work *w)
{
    range **end = &w->first, *p = ek_alloc(sizeof *p);
    int64_t size = w->file->size,
            to = w->no_ranges || size - w->planned < EK_HUB_RANGE ? size : w->planned + EK_HUB_RANGE;
    *p = (range){.w = w, .from = w->planned, .to = to};
    w->planned = to;
    while (*end) end = &(*end)->next;
    *end = p;
    w->f->n_ranges++;
    return p;
}

static void free_first(work *w)
{
    range *p = w->first;
    w->first = p->next;
    if (p->running) w->f->n_running--;
    ek_get_fini(&p->get);
    ek_buf_fini(&p->held);
    free(p);
    w->f->n_ranges--;
}

/* Forgets the ranges that have not been written. */
static void drop_ranges(work *w)
{
    while (w->first) free_first(w);
    w->planned = w->blob.written;
}

/* Checks that the reply is about the requested bytes. */
static bool check_head(ek_get *g)
{
    range *p = g->arg;
    int64_t from = p->from + p->got;
    if (g->status == 206) {
        if (g->range_from == from && g->range_total == p->w->file->size) return true;
        snprintf(g->why, sizeof g->why,
                 "the answer is about bytes from %lld of %lld, asked were those from %lld of %lld",
                 (long long)g->range_from, (long long)g->range_total, (long long)from, (long long)p->w->file->size);
        return false;
    }
    p->skip = from;
    return p->w->no_ranges || (from == 0 && p->to == p->w->file->size);
}

static bool take_body(ek_get *g, const char *data, size_t n)
{
    range *p = g->arg;
    work *w = p->w;
    if (p->skip > 0) {
        size_t s = (int64_t)n < p->skip ? n : (size_t)p->skip;
        p->skip -= (int64_t)s, data += s, n -= s;
    }
    if (p->from + p->got + (int64_t)n > p->to) {
        snprintf(g->why, sizeof g->why, "more comes than the %lld bytes that were asked for",
                 (long long)(p->to - p->from));
        return false;
    }
    if (w->first == p) p->failed = ek_hub_blob_write(&w->blob, data, n);
    else ek_buf_add(&p->held, data, n);
    p->got += (int64_t)n;
    return !p->failed;
}

static ek_err start_range(range *p)
{
    work *w = p->w;
    bool whole = w->no_ranges || (p->from + p->got == 0 && p->to == w->file->size);
    p->url = w->direct ? w->direct : w->url.data;
    p->skip = 0;
    ek_get_fini(&p->get);
    /* The addresses of w live until its ranges are gone. Only direct may be replaced while this runs. */
    p->get = (ek_get){.url = p->url,
                      .from = p->from + p->got,
                      .to = whole ? -1 : p->to,
                      .head = check_head,
                      .body = take_body,
                      .arg = p};
    EK_TRY(ek_client_start(w->f->client, &p->get));
    p->running = true;
    w->f->n_running++;
    return EK_OK;
}

/* Writes the complete ranges at the front. */
static ek_err advance(work *w)
{
    for (range *p = w->first; p; p = w->first) {
        if (p->held.len) {
            EK_TRY(ek_hub_blob_write(&w->blob, p->held.data, p->held.len));
            ek_buf_fini(&p->held);
        }
        if (p->from + p->got < p->to) return EK_OK;
        free_first(w);
    }
    return EK_OK;
}

/* --- ends of requests --- */

static bool was_direct(const range *p)
{
    return p->url != p->w->url.data;
}

static ek_err broken(range *p)
{
    work *w = p->w;
    fetch *f = w->f;
    double wait;
    if (was_direct(p) && p->get.status >= 400) { /* it has expired: ask for a new one, which is not a try */
        free(w->direct);
        w->direct = NULL;
        p->not_before = ek_now();
        if (p->failures < 2 * f->opts->retries + 2) p->failures++;
        else return ek_hub_failed(f->opts, f->name, w->file->path, &p->get);
        return EK_OK;
    }
    if (p->got - p->counted >= SLOW) p->failures = 0;
    p->counted = p->got;
    p->failures++;
    wait = ek_hub_wait_before(f->opts, &p->get, p->failures);
    if (wait < 0) return ek_hub_failed(f->opts, f->name, w->file->path, &p->get);
    p->not_before = ek_now() + wait;
    if (p->get.status == 429) f->paused_until = p->not_before;
    return EK_OK;
}

/* The server answered a request for a range with the whole file. From now on there is one request for the whole
 * file. */
static bool refuses_ranges(const range *p)
{
    return p->get.end == EK_GET_STOPPED && p->get.status == 200 && !p->w->no_ranges && !p->failed;
}

static ek_err ended(range *p)
{
    work *w = p->w;
    fetch *f = w->f;
    p->running = false;
    f->n_running--;
    if (p->failed) return p->failed;
    if (p->get.end == EK_GET_DONE && p->from + p->got < p->to) { /* shorter than announced, or closed early */
        p->get.end = EK_GET_BROKEN;
        snprintf(p->get.why, sizeof p->get.why, "the answer ends before its last byte");
    }
    if (p->get.end == EK_GET_DONE) {
        if (p->get.reached && !w->direct && !w->no_ranges) w->direct = ek_strdup(p->get.reached);
        return advance(w);
    }
    if (p->get.end == EK_GET_BROKEN) return broken(p);
    if (!refuses_ranges(p)) return ek_hub_failed(f->opts, f->name, w->file->path, &p->get);
    drop_ranges(w);
    w->no_ranges = true;
    return EK_OK;
}

/* ------------------------------------------------------------------ files */

static void say(const fetch *f, const ek_hub_file *file, const char *what)
{
    ek_buf line = {0};
    ek_buf_fmt(&line, "%s: %s", file->path, what);
    f->opts->watch->line(f->opts->watch->arg, line.data);
    ek_buf_fini(&line);
}

static void done(work *w)
{
    w->state = WORK_DONE;
    w->f->n_done++;
    free(w->direct);
    w->direct = NULL;
    say(w->f, w->file, "complete");
}

static ek_err claim(work *w)
{
    ek_hub_claim c;
    fetch *f = w->f;
    if (w->state == WORK_HELD && ek_now() < w->look_again) return EK_OK;
    EK_TRY(ek_hub_blob_claim(&w->blob, &c, f->cache, w->file));
    w->look_again = ek_now() + 0.2;
    if (c == EK_HUB_THERE) done(w);
    else if (c == EK_HUB_OURS) w->state = WORK_CHECKS;
    else {
        if (!f->said_held) say(f, w->file, "another process fetches it; waiting for that one");
        f->said_held = true;
        w->state = WORK_HELD;
    }
    if (c == EK_HUB_OURS && w->blob.written > HASH_STEP) say(f, w->file, "going on where an earlier pull stopped");
    return EK_OK;
}

static ek_err finish(work *w)
{
    ek_err err = ek_hub_blob_finish(&w->blob);
    if (err == EK_OK) {
        done(w);
        return EK_OK;
    }
    if (err != EK_EFORMAT) return err;
    if (w->tries++) return ek_fail_in(err, "fetched twice and discarded");
    say(w->f, w->file, "its hash is wrong; fetched once more from the beginning");
    w->state = WORK_WAITS;
    return EK_OK;
}

/* Takes one step for a file, if one is possible. */
static ek_err step(work *w, bool may_open)
{
    switch (w->state) {
    case WORK_WAITS:
    case WORK_HELD: return may_open ? claim(w) : EK_OK;
    case WORK_CHECKS:
        EK_TRY(ek_hub_blob_hash(&w->blob, HASH_STEP));
        if (w->blob.hashed == w->blob.written) {
            w->state = WORK_RUNS;
            w->planned = w->blob.written;
        }
        return EK_OK;
    case WORK_RUNS: return w->blob.written == w->file->size ? finish(w) : EK_OK;
    case WORK_DONE: break;
    }
    return EK_OK;
}

/* Starts all that may start: first ranges that wait for another try, then new ranges, each in the order of the
 * files. */
static ek_err start_more(fetch *f)
{
    double now = ek_now();
    if (now < f->paused_until) return EK_OK;
    for (int i = 0; i < f->n_work && f->n_running < f->opts->connections; i++) {
        work *w = &f->work[i];
        if (w->state != WORK_RUNS) continue;
        for (range *p = w->first; p && f->n_running < f->opts->connections; p = p->next)
            if (!p->running && p->from + p->got < p->to && now >= p->not_before) EK_TRY(start_range(p));
        while (w->planned < w->file->size && f->n_running < f->opts->connections && wants_more(f))
            EK_TRY(start_range(add_range(w)));
    }
    return EK_OK;
}

static void report(const fetch *f, bool end)
{
    ek_hub_progress p = {.n_files = f->n_work, .n_done = f->n_done, .bytes = f->bytes};
    for (int i = 0; i < f->n_work; i++) {
        const work *w = &f->work[i];
        if (w->state == WORK_DONE) p.bytes_done += (double)w->file->size;
        if (w->state == WORK_CHECKS || w->state == WORK_RUNS) p.bytes_done += (double)w->blob.written;
        if (w->state == WORK_HELD) {
            int64_t n = ek_hub_blob_size(f->cache, w->file->hash, ".incomplete");
            if (n > 0) p.bytes_done += (double)n;
        }
        if (w->state != WORK_RUNS) continue;
        for (const range *q = w->first; q; q = q->next) p.bytes_done += (double)q->held.len;
    }
    f->opts->watch->progress(f->opts->watch->arg, &p, end);
}

static ek_err run(fetch *f)
{
    while (f->n_done < f->n_work) {
        int open = 0;
        bool checks = false;
        if (f->opts->watch->stop(f->opts->watch->arg)) return ek_hub_interrupted(f->name);
        for (int i = 0; i < f->n_work; i++) {
            work *w = &f->work[i];
            EK_TRY(step(w, open < f->opts->connections));
            open += w->state == WORK_CHECKS || w->state == WORK_RUNS;
            checks |= w->state == WORK_CHECKS;
        }
        EK_TRY(start_more(f));
        report(f, false);
        if (f->n_done == f->n_work) break;
        ek_get *g = ek_client_wait(f->client, checks ? 0 : 0.05);
        for (; g; g = ek_client_wait(f->client, 0)) EK_TRY(ended(g->arg));
    }
    report(f, true);
    return EK_OK;
}

static int by_hash(const void *a, const void *b)
{
    return strcmp(((const work *)a)->file->hash, ((const work *)b)->file->hash);
}

static int smaller_first(const void *a, const void *b)
{
    const ek_hub_file *x = ((const work *)a)->file, *y = ((const work *)b)->file;
    return x->size != y->size ? (x->size > y->size) - (x->size < y->size) : strcmp(x->path, y->path);
}

/* Lists every wanted content once, under any of its names. */
static void list_work(fetch *f, const ek_hub_files *files)
{
    int n = 0;
    f->work = ek_alloc(sizeof *f->work * (size_t)(files->n + 1));
    for (int i = 0; i < files->n; i++)
        if (files->v[i].wanted) f->work[n++] = (work){.file = &files->v[i], .blob = {.lock = -1, .fd = -1}};
    qsort(f->work, (size_t)n, sizeof *f->work, by_hash);
    for (int i = 0; i < n; i++)
        if (!f->n_work || by_hash(&f->work[i], &f->work[f->n_work - 1])) f->work[f->n_work++] = f->work[i];
    qsort(f->work, (size_t)f->n_work, sizeof *f->work, smaller_first);
    for (int i = 0; i < f->n_work; i++) {
        work *w = &f->work[i];
        w->f = f;
        f->bytes += (double)w->file->size;
        ek_hub_url_file(&w->url, f->opts->places->endpoint, f->name->repo, files->commit, w->file->path);
    }
}

ek_err ek_hub_fetch(ek_client *client, const ek_hub_opts *opts, const ek_hub_cache *cache, const ek_hub_name *name,
                    const ek_hub_files *files)
{
    fetch f = {.client = client, .opts = opts, .cache = cache, .name = name};
    list_work(&f, files);
    ek_err err = run(&f);
    for (int i = 0; i < f.n_work; i++) {
        work *w = &f.work[i];
        while (w->first) free_first(w);
        ek_hub_blob_release(&w->blob);
        ek_buf_fini(&w->url);
        free(w->direct);
    }
    free(f.work);
    return err;
}
