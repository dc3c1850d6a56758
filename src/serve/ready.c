#include "serve/status.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "chat/turn.h"
#include "serve/server_state.h"

enum {
    CANARY_TOKENS = 4,
    AGAIN_SECONDS = 300 /* seconds between canaries of an idle server */
};

/* No client's prompt shares the canary's cached pages, because the number of cached tokens would reveal when it ran. */
static const uint64_t SALT = 0x63616e617279; /* "canary" */

struct ek_canary {
    ek_ids prompt;
    ek_request_id id;
    int n_vocab;
    bool running;
    /* The engine's thread writes these until `ended` is set. */
    uint64_t hash;
    ek_finish finish;
    atomic_bool ended;

    uint64_t first; /* digest of the first answer */
    int n_answers;  /* that agreed */
    bool wrong;
    double next; /* ek_now() of the next canary */
};

static const char *const names[] = {"ok", "starting", "stalled", "wrong", "stopping"};

const char *ek_ready_name(ek_readiness r)
{
    return names[r];
}

ek_readiness ek_ready(const ek_server *s)
{
    char why[1];
    if (s->n_signals || ek_engine_broken(s->engine, why, sizeof why)) return EK_READY_STOPPING;
    if (s->no_engine) return EK_READY;
    if (s->canary && s->canary->wrong) return EK_READY_WRONG;
    if (s->stalled) return EK_READY_STALLED;
    return s->canary && s->canary->n_answers >= 2 ? EK_READY : EK_READY_STARTING;
}

/* --- the canary --- */

static void on_event(void *arg, const ek_event *e)
{
    ek_canary *c = arg;
    if (e->token >= 0) c->hash = ek_digest_row(c->hash, e->digest);
    if (e->finish == EK_FINISH_NONE) return;
    c->finish = e->finish;
    atomic_store(&c->ended, true);
}

static void submit(ek_server *s)
{
    ek_canary *c = s->canary;
    ek_request_opts r = {.tokens = c->prompt.data,
                         .n_tokens = (int)c->prompt.len,
                         .max_tokens = CANARY_TOKENS,
                         .sampling = ek_sampling_greedy(),
                         .ignore_eos = true,
                         .sink = on_event,
                         .arg = c,
                         .cache_salt = SALT,
                         .prompt_logits_from = (int)c->prompt.len,
                         .reply_digest = true};
    c->hash = 0;
    atomic_store(&c->ended, false);
    c->next = ek_now() + AGAIN_SECONDS;
    c->running = ek_engine_submit(s->engine, &r, &c->id) == EK_OK; /* if the queue is full, it tries later */
    if (!c->running) c->next = ek_now() + 1;
}

static void judge(ek_server *s)
{
    ek_canary *c = s->canary;
    c->running = false;
    if (c->finish != EK_FINISH_LENGTH) {
        c->next = ek_now() + 1;
        if (c->finish == EK_FINISH_ERROR) ek_log(EK_LOG_ERROR, "event=canary outcome=failed");
        return;
    }
    if (c->n_answers == 0) c->first = c->hash;
    if (c->hash == c->first) {
        if (c->n_answers++ == 1)
            ek_log(EK_LOG_DEBUG, "event=ready canary=%016llx seconds=%.2f", (unsigned long long)c->hash,
                   ek_now() - s->run_since);
        if (c->n_answers == 1) c->next = 0;
        return;
    }
    c->wrong = true;
    s->metrics.canary_mismatches++;
    ek_log(EK_LOG_ERROR, "event=canary outcome=wrong digest=%016llx first=%016llx: this server is not ready any more",
           (unsigned long long)c->hash, (unsigned long long)c->first);
}

void ek_ready_start(ek_server *s)
{
    static const char text[] = "The quick brown fox jumps over the lazy dog. 0 1 2 3";
    ek_canary *c = s->canary = ek_alloc(sizeof *c);
    c->n_vocab = ek_engine_vocab(s->engine);
    int32_t bos = ek_tokenizer_id(s->chat->tokenizer, "<bos>");
    if (bos >= 0) ek_ids_add(&c->prompt, bos);
    if (ek_encode(s->chat->tokenizer, text, strlen(text), NULL, 0, &c->prompt)) c->prompt.len = 0;
    size_t max = (size_t)(ek_engine_ctx(s->engine) - CANARY_TOKENS);
    if (c->prompt.len > max) c->prompt.len = max;
    submit(s);
}

/* --- the watchdog --- */

static void watch(ek_server *s, const ek_engine_stats *st)
{
    double now = ek_now();
    if (st->steps != s->last_steps || st->running + st->waiting == 0) s->last_step_time = now;
    s->last_steps = st->steps;
    bool stalled = now - s->last_step_time > s->limits.stall_timeout;
    if (stalled && !s->stalled) {
        s->metrics.stalls++;
        ek_log(EK_LOG_ERROR, "event=stall seconds=%.0f running=%d waiting=%d", now - s->last_step_time, st->running,
               st->waiting);
    } else if (!stalled && s->stalled) {
        ek_log(EK_LOG_WARN, "event=stall_over");
    }
    s->stalled = stalled;
}

void ek_ready_tick(ek_server *s)
{
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    watch(s, &st);
    ek_canary *c = s->canary;
    if (!c || s->n_signals) return;
    if (c->running && atomic_load(&c->ended)) judge(s);
    bool starting = c->n_answers < 2, idle = st.running + st.waiting == 0;
    if (!c->running && !c->wrong && (starting || idle) && ek_now() >= c->next) submit(s);
}

void ek_ready_close(ek_server *s)
{
    if (!s->canary) return;
    ek_ids_fini(&s->canary->prompt);
    free(s->canary);
    s->canary = NULL;
}

/* --- messages to a supervisor (base/notify.h): the server is ready, what runs, the server stops; and signs of life,
 * unless it is stalled --- */

static const double STATUS_SECONDS = 1; /* between two status lines */

void ek_supervised_open(ek_server *s)
{
    s->supervised.watchdog = ek_notify_watchdog();
}

/* Sends the state; again at the next tick if the supervisor's queue was full. */
static void say(ek_server *s, ek_readiness now, const ek_engine_stats *st)
{
    char text[256], name[100];
    snprintf(name, sizeof name, "%s", s->model_name);
    for (char *c = name; *c; c++) /* a line end would begin another message */
        if ((unsigned char)*c < ' ') *c = '?';
    const bool ready = now == EK_READY && !s->supervised.ready, stopping = now == EK_READY_STOPPING;
    const char *news = ready ? "READY=1\n" : stopping && s->supervised.said != EK_READY_STOPPING ? "STOPPING=1\n" : "";
    snprintf(text, sizeof text, "%sSTATUS=%s on port %d: %s, %d running, %d waiting\n", news, name, ek_server_port(s),
             ek_ready_name(now), st->running, st->waiting);
    if (!ek_notify(text)) return;
    s->supervised.ready |= ready;
    s->supervised.said = now;
    s->supervised.running = st->running, s->supervised.waiting = st->waiting;
    s->supervised.said_at = ek_now();
}

void ek_supervised_tick(ek_server *s)
{
    ek_engine_stats st;
    const ek_readiness now = ek_ready(s);
    const double time = ek_now();
    ek_engine_stats_read(s->engine, &st);
    const bool other = now != s->supervised.said || !s->supervised.said_at;
    const bool counts = st.running != s->supervised.running || st.waiting != s->supervised.waiting;
    if (other || (counts && time - s->supervised.said_at >= STATUS_SECONDS)) say(s, now, &st);
    if (!s->supervised.watchdog || now == EK_READY_STALLED ||
        time - s->supervised.alive_at < s->supervised.watchdog / 3)
        return;
    if (ek_notify("WATCHDOG=1\n")) s->supervised.alive_at = time;
}
