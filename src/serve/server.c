#include "serve/server.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "hub/curl.h"
#include "media/locked/helper.h"
#include "serve/server_state.h"
#include "serve/store/response_store.h"
#include "serve/background.h"
#include "serve/receipts.h"
#include "serve/session.h"

enum { AFTER_DRAIN = 4 }; /* seconds for cancelling and closing, rounded up to 5 */

/* Cancels running requests and cuts off readers that do not read. */
static void stop_now(ek_server *s)
{
    ek_log(EK_LOG_INFO, "event=stop cancelling=%d", ek_http_busy(s->http));
    ek_sessions_cancel(s);
    ek_http_cut_slow_readers(s->http);
}

/* The reserve is filled again as soon as the system has memory. */
static void note_memory(ek_server *s)
{
    size_t spent = ek_reserve_times_spent();
    ek_err err = ek_request_memory_check();
    if (spent == s->reserve_spent) return;
    s->reserve_spent = spent;
    ek_log(EK_LOG_WARN, "event=out_of_memory reserve_spent=%zu refilled=%d", spent, err == EK_OK);
}

/* A lost device cannot answer any more: running requests have ended with an error, and the process ends, so that its
 * supervisor starts another one. */
static void note_broken(ek_server *s)
{
    if (s->n_signals || !ek_engine_broken(s->engine, s->broken, sizeof s->broken)) return;
    ek_log(EK_LOG_ERROR, "event=broken running=%d: the server ends: %s", ek_http_busy(s->http), s->broken);
    s->n_signals = 1, s->signalled = ek_now();
    ek_last_signal_within(s->limits.drain_timeout + AFTER_DRAIN);
    ek_http_drain(s->http);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    ek_server *s = arg;
    (void)fd, (void)what;
    note_broken(s);
    ek_ready_tick(s);
    ek_supervised_tick(s);
    ek_sessions_tick(s);
    ek_audits_tick(s);
    ek_receipts_tick(s);
    ek_background_tick(s);
    note_memory(s);
    if (s->n_signals == 0) return;
    if (ek_http_busy(s->http) == 0) ek_loop_stop(&s->loop);
    if (s->n_signals == 1 && ek_now() - s->signalled > s->limits.drain_timeout) {
        s->n_signals++;
        stop_now(s);
    }
}

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    ek_server *s = arg;
    (void)what;
    if (s->n_signals++ > 0) {
        stop_now(s);
        return;
    }
    s->signalled = ek_now();
    ek_log(EK_LOG_INFO, "event=drain signal=%d running=%d", (int)number, ek_http_busy(s->http));
    ek_http_drain(s->http);
}

static void on_hangup(evutil_socket_t number, short what, void *arg)
{
    ek_server *s = arg;
    (void)number, (void)what;
    if (ek_keys_reload(s->keys)) ek_log(EK_LOG_ERROR, "event=keys outcome=kept reason=\"%s\"", ek_err_text());
    else ek_log(EK_LOG_INFO, "event=keys outcome=read keys=%d", ek_keys_count(s->keys));
    ek_receipts_reload(s);
}

enum {
    PREPARE_SPARE = 6, /* slow work that cannot delay the rest */
    FETCH_THREADS = 8,
    FETCH_QUEUE = 64,
    DECODE_THREADS = 4, /* slow work takes three of them: this many videos and PDFs are read at a time */
    DECODE_SHARE = 2,   /* and this many of one client */
    DECODE_QUEUE = 64
};

static ek_err open_loop(ek_server *s)
{
    s->base = event_base_new();
    if (!s->base) return ek_fail(EK_EIO, "no event loop: %s", strerror(errno));
    s->loop.base = s->base;
    s->responses = ek_response_store_open(EK_RESPONSES_MAX, EK_RESPONSES_BYTES);
    EK_TRY(ek_mailbox_open(&s->mailbox, &s->loop, ek_session_news));
    EK_TRY(ek_mailbox_open(&s->drafts.mailbox, &s->loop, ek_drafts_news));
    s->drafts.sessions = ek_draft_sessions_open(ek_engine_ctx(s->engine));
    ek_chat_vocabulary_name(s->drafts.vocabulary, s->chat->tokenizer);
    EK_TRY(ek_workers_open_spare(&s->workers, &s->loop, s->limits.prepare_threads, PREPARE_SPARE,
                                 s->limits.prepare_queue));
    if (s->fetch_from != EK_FETCH_OFF) {
        EK_TRY(ek_curl_load());
        EK_TRY(ek_workers_open(&s->fetchers, &s->loop, FETCH_THREADS, FETCH_QUEUE));
        ek_workers_set_share(s->fetchers, FETCH_THREADS / 2);
    }
    if (s->ffmpeg || s->pdftotext || s->pdftoppm) {
        EK_TRY(ek_workers_open(&s->decoders, &s->loop, DECODE_THREADS, DECODE_QUEUE));
        ek_workers_set_share(s->decoders, DECODE_SHARE);
    }
    static const int numbers[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        s->signals[i] = evsignal_new(s->base, numbers[i], on_signal, s);
        event_add(s->signals[i], NULL);
    }
    ek_last_signal_watch(s->limits.drain_timeout + AFTER_DRAIN);
    s->hangup = evsignal_new(s->base, SIGHUP, on_hangup, s);
    event_add(s->hangup, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* the program may have put it off */
    struct timeval every = {0, 200000};
    s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    event_add(s->tick, &every);
    return EK_OK;
}

static bool is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "::1") || !strcmp(host, "localhost");
}

/* kv@NAME@MODEL; llm-d divides it at the @. */
static void make_topic(ek_buf *out, const ek_server *s, const ek_server_opts *o)
{
    ek_buf_str(out, "kv@");
    if (o->kv_name) ek_buf_str(out, o->kv_name);
    else ek_buf_fmt(out, strchr(o->http.host, ':') ? "[%s]:%d" : "%s:%d", o->http.host, ek_http_port(s->http));
    ek_buf_char(out, '@');
    for (const char *p = s->model_name; *p; p++) ek_buf_char(out, *p == '@' ? '_' : *p);
}

static ek_err open_events(ek_server *s, const ek_server_opts *o)
{
    ek_events_opts e = {.arrays = o->kv_arrays, .queue = ek_engine_held(s->engine)};
    ek_buf topic = {0};
    if (!o->kv_events) return EK_OK;
    if (!e.queue) return ek_fail(EK_EINVAL, "--kv-events tells of cached pages, and there is no cache");
    e.events = *o->kv_events;
    if (o->kv_replay) e.replay = *o->kv_replay;
    if (e.events.open || e.replay.open)
        ek_log(EK_LOG_WARN, "events are open to everybody who reaches %s: the tokens of prompts are in them",
               e.events.open ? e.events.endpoint : e.replay.endpoint);
    make_topic(&topic, s, o);
    e.topic = ek_buf_text(&topic);
    ek_err err = ek_events_open(&s->events, &e);
    ek_buf_fini(&topic);
    if (err) return ek_fail_in(err, "--kv-events, --kv-replay");
    ek_events_stats st;
    ek_events_stats_read(s->events, &st);
    ek_log(EK_LOG_INFO, "event=kv_events endpoint=%s replay=%s", st.endpoint[0],
           *st.endpoint[1] ? st.endpoint[1] : "none");
    return EK_OK;
}

static ek_err open_all(ek_server *s, const ek_server_opts *opts)
{
    /* Waiting bodies take memory too: at most half of the request memory, but at least one body of the largest size. */
    ek_http_opts http = opts->http;
    http.takes_body = ek_route_takes_body;
    http.always = ek_route_always;
    http.loop = &s->loop;
    http.memory = &s->memory;
    if (http.body_memory == 0) http.body_memory = 8 * http.max_body;
    if (http.body_memory > s->memory.total / 2) http.body_memory = s->memory.total / 2;
    if (http.body_memory < http.max_body) http.body_memory = http.max_body;
    int n_ids = ek_tokenizer_size(s->chat->tokenizer), n_vocab = s->config->vocab_size;
    if (n_ids > n_vocab)
        return ek_fail(EK_EFORMAT, "%s: the tokenizer has %d ids, the model %d", opts->model_dir, n_ids, n_vocab);
    if (!ek_random(&s->nonce, sizeof s->nonce)) return ek_fail(EK_EIO, "the system has no random numbers");
    EK_TRY(ek_keys_open(&s->keys, opts->api_keys, opts->api_key_file));
    if (ek_keys_count(s->keys) == 0 && !is_loopback(opts->http.host))
        ek_log(EK_LOG_WARN, "listening on %s without an API key: everybody who reaches this address can use it",
               opts->http.host);
    EK_TRY(ek_open_paths_parse(&s->open_paths, opts->open_paths ? opts->open_paths : EK_OPEN_PATHS_DEFAULT));
    if ((s->card.image || s->card.audio) && ek_helpers_warm(s->limits.prepare_threads))
        ek_log(EK_LOG_WARN, "pictures and sounds are refused: %s", ek_err_text());
    EK_TRY(open_loop(s));
    ek_err kept = EK_OK;
    if (opts->store_dir) kept = ek_response_store_keep(s->responses, opts->store_dir, opts->store_age);
    if (kept) return ek_fail_in(kept, "--store");
    EK_TRY(ek_http_open(&s->http, s->base, &http, ek_route, ek_route_error, s));
    return open_events(s, opts);
}

static void set_limits(ek_server *s, const ek_server_limits *given)
{
    ek_server_limits *l = &s->limits;
    *l = *given;
    if (l->max_json_values <= 0) l->max_json_values = 1000000;
    if (l->max_messages <= 0) l->max_messages = 65536;
    if (l->prepare_threads <= 0) l->prepare_threads = 2;
    if (l->prepare_queue <= 0) l->prepare_queue = 256;
    if (l->drain_timeout <= 0) l->drain_timeout = 60;
    if (l->stall_timeout <= 0) l->stall_timeout = 300;
    if (l->request_memory == 0) l->request_memory = ek_request_memory_default();
    s->memory.total = l->request_memory;
}

ek_err ek_server_open(ek_server **out, ek_engine *engine, const ek_server_opts *opts)
{
    EK_TRY(ek_request_memory_open());
    ek_server *s = ek_alloc(sizeof *s);
    s->engine = engine;
    s->chat = opts->chat;
    s->config = ek_model_config(opts->model);
    s->journal = opts->journal;
    s->replies = opts->replies;
    s->whole_calls = opts->whole_calls;
    s->stop_loops = opts->stop_loops;
    s->shares = opts->shares, s->prefill = opts->prefill, s->decode = opts->decode;
    s->fetch_from = opts->media_urls;
    s->ffmpeg = opts->ffmpeg;
    s->pdftotext = opts->pdftotext;
    s->pdftoppm = opts->pdftoppm;
    s->dialects = opts->dialects ? opts->dialects : ek_dialects;
    s->model_name = ek_strdup(opts->model_name);
    s->cors_origins = ek_strdup(opts->cors_origins ? opts->cors_origins : "");
    if (opts->allowed_hosts) s->allowed_hosts = ek_strdup(opts->allowed_hosts);
    s->no_engine = opts->no_engine;
    s->fingerprint = ek_strdup(opts->numerics ? opts->numerics : ek_model_numerics_id(opts->model));
    s->started = ek_unix_time();
    ek_model_card_make(&s->card, opts->model, opts->model_dir, opts->model_name, ek_engine_ctx(engine));
    ek_model_card_names(&s->card, opts->served_names, opts->aliases);
    s->card.strict = opts->strict_model;
    s->card.on_device = opts->on_device;
    s->card.image = s->chat->media.image;
    s->card.audio = s->chat->media.audio;
    set_limits(s, &opts->limits);
    ek_fingerprint_open(s, opts);
    ek_supervised_open(s);
    ek_err err = ek_receipts_open(s, opts);
    if (!err) err = open_all(s, opts);
    if (err) {
        ek_server_close(s);
        return err;
    }
    *out = s;
    return EK_OK;
}

int ek_server_port(const ek_server *s)
{
    return ek_http_port(s->http);
}

double ek_server_max_turn(const ek_server *s)
{
    return s->loop.max;
}

ek_err ek_server_run(ek_server *s)
{
    s->last_step_time = s->run_since = ek_now();
    ek_engine_on_results(s->engine, ek_mailbox_gather, s->mailbox);
    EK_TRY(ek_engine_start(s->engine));
    if (!s->no_engine) ek_ready_start(s);
    int bad = ek_loop_run(&s->loop);
    ek_engine_stop(s->engine, false);
    ek_engine_on_results(s->engine, NULL, NULL);
    ek_mailbox_deliver(s->mailbox);
    ek_mailbox_deliver(s->drafts.mailbox);
    ek_ready_close(s);
    if (s->broken[0]) return ek_fail(EK_EIO, "%s", s->broken);
    return bad < 0 ? ek_fail(EK_EIO, "the event loop failed: %s", strerror(errno)) : EK_OK;
}

void ek_server_close(ek_server *s)
{
    if (s->fetchers) ek_workers_close(s->fetchers);
    s->fetchers = NULL;
    if (s->decoders) ek_workers_close(s->decoders);
    s->decoders = NULL;
    ek_events_close(s->events);
    if (s->workers) ek_workers_close(s->workers); /* their results may still be answered */
    s->workers = NULL;
    ek_background_close(s);
    if (s->http) ek_http_close(s->http);
    ek_fingerprint_close(s);
    if (s->mailbox) ek_mailbox_close(s->mailbox);
    if (s->drafts.mailbox) ek_mailbox_close(s->drafts.mailbox);
    ek_draft_sessions_close(s->drafts.sessions);
    ek_response_store_close(s->responses);
    ek_audits_close(s);
    ek_receipts_close(s);
    for (int i = 0; i < 2; i++)
        if (s->signals[i]) event_free(s->signals[i]);
    if (s->hangup) event_free(s->hangup);
    if (s->tick) event_free(s->tick);
    if (s->base) event_base_free(s->base);
    ek_model_card_fini(&s->card);
    ek_last_signal_within(0);
    free(s->model_name);
    free(s->fingerprint);
    free(s->cors_origins);
    free(s->allowed_hosts);
    ek_keys_close(s->keys);
    ek_buf_fini(&s->metrics.text);
    free(s);
}

/* --- the last signal --- */

enum { SECOND = 400 /* ms in which streams get their error */ };

static struct sigaction earlier[2];
static volatile sig_atomic_t n_received;
static unsigned first_seconds;

static void end_within(long ms)
{
    const struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* setitimer and _exit are allowed here, whatever locks the interrupted thread holds. */
static void on_last_signal(int number)
{
    const struct sigaction *was = &earlier[number == SIGINT];
    if (n_received >= 2) _exit(128 + number);
    end_within(n_received++ ? SECOND : first_seconds * 1000L);
    if (was->sa_handler != SIG_DFL && was->sa_handler != SIG_IGN) was->sa_handler(number);
}

void ek_last_signal_watch(double seconds)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    n_received = 0;
    first_seconds = seconds < 1e9 ? (unsigned)seconds + 1 : 0;
    for (int i = 0; i < 2; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) || now.sa_handler == on_last_signal) continue;
        earlier[i] = now;
        now.sa_handler = on_last_signal;
        sigaction(numbers[i], &now, NULL);
    }
}

void ek_last_signal_within(double seconds)
{
    const bool at_once = n_received >= 2 && seconds > 0;
    end_within(at_once ? SECOND : seconds > 0 ? ((long)seconds + 1) * 1000 : 0);
}
