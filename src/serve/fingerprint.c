/* GET /v1/fingerprint (serve/api/model_card.h). Reading a large model takes seconds, so a thread of its own reads it
 * for the first request, and later requests wait for the same result. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "serve/api/model_card.h"
#include "serve/routes.h"
#include "serve/server_state.h"

typedef struct waiter {
    ek_exchange *x;
    struct waiter *next, **link;
} waiter;

struct ek_fingerprint_state {
    ek_job job; /* runs while `running` */
    ek_server *server;
    ek_err (*digest)(void *arg, char out[EK_MODEL_DIGEST]);
    void *digest_arg;
    bool running, known;
    ek_err err;
    char why[256], model[EK_MODEL_DIGEST], sha256[EK_FINGERPRINT];
    ek_buf text;
    waiter *waiters;
};

void ek_fingerprint_open(ek_server *s, const ek_server_opts *o)
{
    s->identity = ek_alloc(sizeof *s->identity);
    s->identity->server = s;
    s->identity->digest = o->digest;
    s->identity->digest_arg = o->digest_arg;
}

void ek_fingerprint_close(ek_server *s)
{
    if (!s->identity) return;
    ek_buf_fini(&s->identity->text);
    free(s->identity);
    s->identity = NULL;
}

void ek_fingerprint_header(ek_server *s, ek_exchange *x)
{
    if (s->identity->known) ek_exchange_header(x, "x-evenkeel-fingerprint", s->identity->sha256);
}

static void reply(struct ek_fingerprint_state *f, ek_exchange *x)
{
    if (f->known) {
        ek_exchange_reply(x, 200, "application/json", ek_buf_text(&f->text), f->text.len);
        return;
    }
    ek_fail(f->err, "%s", f->why);
    ek_reply_failure(x, ek_route_form(f->server, x), f->err, NULL, NULL);
}

static void unlink_waiter(waiter *w)
{
    *w->link = w->next;
    if (w->next) w->next->link = w->link;
    free(w);
}

static void on_gone(void *user)
{
    unlink_waiter(user);
}

static void run(ek_job *j)
{
    struct ek_fingerprint_state *f = (struct ek_fingerprint_state *)(void *)j;
    f->err = f->digest(f->digest_arg, f->model);
    if (f->err) snprintf(f->why, sizeof f->why, "%s", ek_err_text());
}

static void done(ek_job *j)
{
    struct ek_fingerprint_state *f = (struct ek_fingerprint_state *)(void *)j;
    const ek_server *s = f->server;
    f->running = false;
    f->known = !f->err;
    if (f->known)
        ek_fingerprint_write(&f->text, f->sha256, f->model, s->fingerprint, ek_engine_ctx(s->engine), s->config);
    while (f->waiters) {
        ek_exchange *x = f->waiters->x;
        unlink_waiter(f->waiters);
        ek_exchange_on_gone(x, NULL, NULL);
        reply(f, x);
    }
}

void ek_fingerprint_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    struct ek_fingerprint_state *f = s->identity;
    if (!f->digest) {
        ek_route_missing(s, x, "this server does not know where its model lies");
        return;
    }
    if (f->known) {
        reply(f, x);
        return;
    }
    waiter *w = ek_alloc(sizeof *w);
    *w = (waiter){.x = x, .next = f->waiters, .link = &f->waiters};
    if (w->next) w->next->link = &w->next;
    f->waiters = w;
    ek_exchange_on_gone(x, on_gone, w);
    if (f->running) return;
    f->running = true;
    f->job = (ek_job){.run = run, .done = done, .large = true};
    ek_workers_add_always(s->workers, &f->job);
}
