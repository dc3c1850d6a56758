/* After a failed request: the time to wait, or the sentence of the final error. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "hub/pull.h"

static const double PATIENCE = 0.7; /* seconds without an answer until a watcher is told */

double ek_hub_wait_before(const ek_hub_opts *opts, const ek_get *g, int failures)
{
    if (g->end != EK_GET_BROKEN || failures > opts->retries || g->retry_after > EK_HUB_MAX_WAIT) return -1;
    if (g->retry_after >= 0) return g->retry_after > 0.25 ? g->retry_after : 0.25;
    return ldexp(0.25, failures < 8 ? failures - 1 : 7);
}

/* 401 and 403: who may read the model, and what the user can do. */
static ek_err refused(const ek_hub_places *p, const ek_hub_name *name, const ek_get *g)
{
    const char *repo = name->repo;
    bool gated = !strcmp(g->error_code, "GatedRepo");
    if (gated && p->token)
        return ek_fail(EK_EINVAL,
                       "%s is gated (status %ld), and the account of the token in %s may not read it: accept its "
                       "conditions on %s/%s",
                       repo, g->status, p->token_from, p->endpoint, repo);
    if (gated)
        return ek_fail(EK_EINVAL,
                       "%s is gated (status %ld): accept its conditions on %s/%s and set HF_TOKEN to a token of that "
                       "account",
                       repo, g->status, p->endpoint, repo);
    if (p->token)
        return ek_fail(
            EK_EINVAL,
            "%s: status %ld: there is no such repository, or the token in %s is not valid or may not read it", repo,
            g->status, p->token_from);
    return ek_fail(
        EK_EINVAL,
        "%s: status %ld: there is no such repository, or it is private or gated; if it is, set HF_TOKEN to a "
        "token of an account that may read it",
        repo, g->status);
}

ek_err ek_hub_failed(const ek_hub_opts *opts, const ek_hub_name *name, const char *what, const ek_get *g)
{
    const ek_hub_places *p = opts->places;
    if ((g->status == 401 || g->status == 403) && !g->foreign) return refused(p, name, g);
    if (g->status == 404 && !strcmp(g->error_code, "RevisionNotFound"))
        return ek_fail(EK_ENOTFOUND, "%s has no revision %s", name->repo, name->revision);
    if (g->status == 404 && !g->foreign)
        return ek_fail(EK_ENOTFOUND, "%s: status 404: %s has no such repository, revision or file", what, p->endpoint);
    if (g->status == 429 && g->retry_after > EK_HUB_MAX_WAIT)
        return ek_fail(EK_EBUSY, "%s: status 429: too many requests; the Hub asks to wait %.0f minutes", what,
                       ceil(g->retry_after / 60));
    if (g->status == 429)
        return ek_fail(EK_EBUSY,
                       "%s: status 429, too many requests, after %d tries; a token (HF_TOKEN) raises the limit", what,
                       opts->retries + 1);
    if (g->end != EK_GET_BROKEN) return ek_fail(EK_EIO, "%s: %s", what, g->why);
    const char *more = strstr(what, "://") ? "" : "; the same command goes on where this one stopped";
    return ek_fail(EK_EIO, "%s: %s, %d tries without progress%s", what, g->why, opts->retries + 1, more);
}

ek_err ek_hub_interrupted(const ek_hub_name *name)
{
    ek_buf text = {0};
    ek_hub_name_text(&text, name);
    ek_err err = ek_fail(EK_ECANCELLED, "interrupted; `evenkeel pull %s` goes on where this one stopped", text.data);
    ek_buf_fini(&text);
    return err;
}

/* The very first request found no way to the Hub. A pause would not help if there is no network. */
static ek_err unreachable(const ek_hub_places *p, const ek_get *g)
{
    return ek_fail(EK_EIO,
                   "%s cannot be reached (%s): is there a network? What is in the cache needs none: `evenkeel list`",
                   p->endpoint, g->why);
}

typedef struct text_get {
    ek_get get;
    ek_buf *out;
    size_t limit;
} text_get;

static bool take_text(ek_get *g, const char *data, size_t n)
{
    text_get *t = g->arg;
    if (t->out->len + n <= t->limit) {
        ek_buf_add(t->out, data, n);
        return true;
    }
    snprintf(g->why, sizeof g->why, "the answer is longer than %zu bytes", t->limit);
    return false;
}

/* Waits until the request ends or is stopped. A watcher is told once that nothing has arrived yet, because without a
 * network, looking up a name may take half a minute. */
static bool run(ek_client *client, const ek_hub_opts *opts, ek_get *g, bool *reported)
{
    const double begun = ek_now();
    while (!opts->watch->stop(opts->watch->arg)) {
        if (ek_client_wait(client, 0.1) == g) return true;
        if (*reported || g->status || ek_now() - begun < PATIENCE) continue;
        *reported = true;
        char text[400];
        snprintf(text, sizeof text,
                 "no answer from %.200s yet: is there a network? It is tried for %.0f s, Ctrl-C ends it",
                 opts->places->endpoint, opts->places->timeout);
        opts->watch->line(opts->watch->arg, text);
    }
    ek_client_cancel(client, g);
    return false;
}

static bool pause_for(const ek_hub_opts *opts, double seconds)
{
    for (double end = ek_now() + seconds; ek_now() < end;) {
        struct timespec step = {.tv_nsec = 50 * 1000 * 1000};
        if (opts->watch->stop(opts->watch->arg)) return false;
        nanosleep(&step, NULL);
    }
    return true;
}

ek_err ek_hub_get_text(ek_buf *out, ek_client *client, const ek_hub_opts *opts, const ek_hub_name *name,
                       const char *url, size_t limit)
{
    text_get t = {.out = out, .limit = limit};
    ek_err err = EK_OK;
    bool reported = false;
    t.get = (ek_get){.url = url, .to = -1, .body = take_text, .arg = &t};
    for (int failures = 1;; failures++) {
        ek_buf_clear(out);
        err = ek_client_start(client, &t.get);
        if (!err && !run(client, opts, &t.get, &reported)) err = ek_hub_interrupted(name);
        if (err || t.get.end == EK_GET_DONE) break;
        if (t.get.unreached) {
            err = unreachable(opts->places, &t.get);
            break;
        }
        double wait = ek_hub_wait_before(opts, &t.get, failures);
        if (wait < 0) {
            err = ek_hub_failed(opts, name, url, &t.get);
            break;
        }
        if (!pause_for(opts, wait)) {
            err = ek_hub_interrupted(name);
            break;
        }
    }
    ek_get_fini(&t.get);
    return err;
}
