/* engine: whoever shares a step, a request gets the reply that its tokens alone decide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "engine/state.h"
#include "fake.h"

enum { MOST_PROMPT = 700, MOST_REPLY = 120, MOST_REQUESTS = 24 };

typedef struct ask {
    int32_t prompt[MOST_PROMPT];
    int n_prompt, most, told_from;
    ek_sampling sampling;
    ek_logit_bias bias;
    bool ignore_eos, broken; /* broken: its rows fail */
    int32_t want[MOST_REPLY];
    int n_want;
    /* what came */
    ek_request_id id;
    int32_t got[MOST_REPLY];
    int n_got, n_told, n_events_after;
    ek_finish finish;
    bool cancel;
    const fake *f;
    char text[256];
} ask;

static void on_event(void *arg, const ek_event *event)
{
    ask *a = arg;
    EK_ASSERT(event->user == a && event->request == a->id);
    EK_ASSERT(a->finish == EK_FINISH_NONE); /* nothing after the last event */
    EK_ASSERT(event->n_prompt == a->n_prompt);
    if (event->token >= 0) {
        float logits[FAKE_VOCAB];
        int32_t tokens[MOST_PROMPT + MOST_REPLY];
        memcpy(tokens, a->prompt, sizeof *tokens * (size_t)a->n_prompt);
        memcpy(tokens + a->n_prompt, a->got, sizeof *tokens * (size_t)a->n_got);
        fake_logits(a->f, tokens, a->n_prompt + a->n_got, logits);
        EK_ASSERT(memcmp(logits, event->logits, sizeof logits) == 0);
        EK_ASSERT(a->n_got < a->most);
        a->got[a->n_got++] = event->token;
        EK_ASSERT(event->n_tokens == a->n_got);
    } else {
        EK_ASSERT(event->finish == EK_FINISH_CANCELLED || event->finish == EK_FINISH_ERROR);
        EK_ASSERT(!event->logits);
    }
    if (event->text) strncpy(a->text, event->text, sizeof a->text - 1);
    a->finish = event->finish;
}

static void on_prompt(void *user, int pos, const float *logits)
{
    ask *a = user;
    float want[FAKE_VOCAB];
    EK_ASSERT(pos == a->told_from + a->n_told);
    EK_ASSERT(a->n_got == 0);
    fake_logits(a->f, a->prompt, pos + 1, want);
    EK_ASSERT(memcmp(want, logits, sizeof want) == 0);
    a->n_told++;
}

static ek_request_opts opts_of(ask *a)
{
    return (ek_request_opts){.tokens = a->prompt,
                             .n_tokens = a->n_prompt,
                             .max_tokens = a->most,
                             .sampling = a->sampling,
                             .ignore_eos = a->ignore_eos,
                             .sink = on_event,
                             .arg = a,
                             .user = a,
                             .prompt_logits_from = a->told_from,
                             .on_prompt_logits = on_prompt};
}

static void grow(ask *a, const fake *f, uint64_t seed, int most_prompt)
{
    uint64_t r = ek_mix64(seed);
    memset(a, 0, sizeof *a);
    a->f = f;
    a->n_prompt = 1 + (int)(r % (uint64_t)most_prompt);
    for (int i = 0; i < a->n_prompt; i++) a->prompt[i] = (int32_t)(ek_mix64(seed + 1000 + (uint64_t)i) % FAKE_NAN);
    a->most = 1 + (int)((r >> 16) % MOST_REPLY);
    a->told_from = r >> 24 & 1 ? a->n_prompt : (int)((r >> 25) % (uint64_t)(a->n_prompt + 1));
    a->ignore_eos = r >> 40 & 1;
    a->sampling = ek_sampling_greedy();
    if (r >> 41 & 1) {
        a->sampling.temperature = 0.7f;
        a->sampling.seed = r;
        if (r >> 42 & 1) a->sampling.top_k = 9;
        if (r >> 43 & 1) a->sampling.top_p = 0.9f;
        if (r >> 44 & 1) a->sampling.frequency_penalty = 0.5f;
        a->bias = (ek_logit_bias){(int32_t)(r >> 45 & 63), 1.5f};
        a->sampling.bias = &a->bias;
        a->sampling.n_bias = 1;
    }
    a->n_want = fake_reply(f, a->prompt, a->n_prompt, &a->sampling, a->ignore_eos, a->most, 4096, a->want);
}

static void check(const ask *a)
{
    if (a->broken && !(a->cancel && a->finish == EK_FINISH_CANCELLED)) {
        assert_int_equal(a->finish, EK_FINISH_ERROR);
        assert_int_equal(a->n_got, 0);
        assert_string_equal(a->text, "token 96 cannot be computed");
        return;
    }
    assert_true(a->n_got <= a->n_want);
    assert_memory_equal(a->got, a->want, sizeof *a->got * (size_t)a->n_got);
    if (a->cancel && a->finish == EK_FINISH_CANCELLED) return;
    assert_int_equal(a->n_got, a->n_want);
    assert_int_equal(a->n_told, a->n_prompt - a->told_from);
    bool stopped = a->want[a->n_want - 1] == FAKE_STOP && !a->ignore_eos;
    assert_int_equal(a->finish, stopped ? EK_FINISH_STOP : EK_FINISH_LENGTH);
}

static ek_engine *open_engine(fake *f, int full, int sliding, int requests, int chunk)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_backend b = fake_backend(f, full, sliding);
    ek_engine *e = NULL;
    o.max_requests = requests;
    o.chunk = chunk;
    assert_int_equal(ek_engine_open_on(&e, &b, &o), EK_OK);
    return e;
}

static ask asks[MOST_REQUESTS];

/* Everything at random at once: arrivals, chunks, pools that are too small for all, cancelled
 * and broken neighbours. Returns how often one was preempted. */
static int run_scene(uint64_t seed)
{
    uint64_t r = ek_mix64(seed ^ 0x5ce7e);
    fake f;
    int window = 1 + (int)(ek_mix64(r) % 200), kinds = (int)(r % 5);
    fake_init(&f, window, kinds != 1, kinds != 2);
    int n = 1 + (int)((r >> 8) % MOST_REQUESTS), chunk = 1 + (int)((r >> 16) % 300), n_arrived = 0;
    int whole = (MOST_PROMPT + MOST_REPLY + 63) / 64;
    int full = whole + (int)((r >> 32) % 20), sliding = (window + 62) / 64 + 2 + (int)((r >> 40) % 12);
    ek_engine *e = open_engine(&f, full, sliding, 1 + (int)((r >> 48) % 12), chunk);
    for (int i = 0; i < n; i++) {
        uint64_t s = ek_mix64(seed * 100 + (uint64_t)i);
        grow(&asks[i], &f, s, s % 4 == 0 ? MOST_PROMPT : 60);
        asks[i].cancel = s >> 8 & 1 && s >> 9 & 1;
        if ((s >> 10 & 7) == 0) asks[i].broken = true, asks[i].prompt[asks[i].n_prompt - 1] = FAKE_FAILS;
        if (asks[i].broken) asks[i].told_from = asks[i].n_prompt;
    }
    bool worked = true;
    for (uint64_t step = 0; worked || n_arrived < n; step++) {
        uint64_t s = ek_mix64(seed * 7919 + step);
        for (int k = (int)(s % 3); k > 0 && n_arrived < n; k--, n_arrived++) {
            ek_request_opts o = opts_of(&asks[n_arrived]);
            assert_int_equal(ek_engine_submit(e, &o, &asks[n_arrived].id), EK_OK);
        }
        ask *victim = &asks[(s >> 8) % (uint64_t)n];
        if (victim->cancel && (s >> 20) % 16 == 0) ek_engine_cancel(e, victim->id);
        assert_int_equal(ek_engine_step(e, &worked), EK_OK);
        assert_true(step < 100000);
    }
    for (int i = 0; i < n; i++) check(&asks[i]);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_int_equal(stats.requests, n);
    for (int k = 0; k < EK_KIND_COUNT; k++) assert_int_equal(stats.pages_used[k], 0);
    assert_true(f.most_rows <= e->max_rows && f.most_logits <= e->max_told + e->opts.max_requests);
    ek_engine_close(e);
    return (int)stats.preempted;
}

static void company_does_not_matter(void **state)
{
    (void)state;
    int preempted = 0;
    for (uint64_t seed = 0; seed < 150; seed++) preempted += run_scene(seed);
    assert_true(preempted > 100); /* the scenes are tight enough to mean something */
}

static void chunks_cover_the_prompt(void **state)
{
    (void)state;
    static const int chunks[] = {1, 7, 64, 255, 256, 257, 700, 5000};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        fake f;
        fake_init(&f, 100, true, true);
        ek_engine *e = open_engine(&f, 64, 64, 3, chunks[c]);
        grow(&asks[0], &f, 77, 60);
        asks[0].n_prompt = 700;
        for (int i = 0; i < 700; i++) asks[0].prompt[i] = i % 90;
        asks[0].told_from = 0;
        asks[0].n_want = fake_reply(&f, asks[0].prompt, 700, &asks[0].sampling, asks[0].ignore_eos, asks[0].most, 4096,
                                    asks[0].want);
        ek_request_opts o = opts_of(&asks[0]);
        assert_int_equal(ek_engine_submit(e, &o, &asks[0].id), EK_OK);
        for (bool worked = true; worked;) ek_engine_step(e, &worked);
        check(&asks[0]);
        int prompt_steps = (700 + chunks[c] - 1) / chunks[c];
        assert_int_equal(f.steps, prompt_steps + asks[0].n_want - 1);
        assert_true(f.most_rows <= chunks[c]);
        ek_engine_close(e);
    }
}

/* Prompt logits come in batches of what the buffer holds. */
static void prompt_logits_are_bounded(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 10, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 512);
    e->max_told = 5;
    for (int i = 0; i < 2; i++) {
        grow(&asks[i], &f, 91 + (uint64_t)i, 200);
        asks[i].told_from = 3 < asks[i].n_prompt ? 3 : 0;
        ek_request_opts o = opts_of(&asks[i]);
        assert_int_equal(ek_engine_submit(e, &o, &asks[i].id), EK_OK);
    }
    for (bool worked = true; worked;) ek_engine_step(e, &worked);
    for (int i = 0; i < 2; i++) check(&asks[i]);
    assert_true(f.most_logits <= 5 + 2);
    ek_engine_close(e);
}

/* Two requests that together outgrow the pool: the younger starts over, the older never does,
 * and no token is sampled twice (on_event would see it). */
static void the_youngest_is_preempted(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 4, 8, 2, 512);
    assert_int_equal(ek_engine_ctx(e), 256);
    for (int i = 0; i < 2; i++) {
        grow(&asks[i], &f, 5, 60);
        asks[i].n_prompt = 60 + i;
        asks[i].told_from = 0;
        asks[i].ignore_eos = true;
        asks[i].most = 100;
        for (int k = 0; k < 61; k++) asks[i].prompt[k] = k + i;
        asks[i].n_want = fake_reply(&f, asks[i].prompt, asks[i].n_prompt, &asks[i].sampling, true, 100, 256, asks[i].want);
        ek_request_opts o = opts_of(&asks[i]);
        assert_int_equal(ek_engine_submit(e, &o, &asks[i].id), EK_OK);
    }
    for (bool worked = true; worked;) {
        ek_engine_step(e, &worked);
        assert_true(asks[0].n_got >= asks[1].n_got);
    }
    check(&asks[0]);
    check(&asks[1]);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    assert_true(stats.preempted >= 1);
    assert_int_equal(stats.prompt_tokens, 60 + 61);
    assert_int_equal(stats.reply_tokens, 200);
    ek_engine_close(e);
}

static void the_context_ends_a_reply(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 1, 8, 2, 512); /* 64 tokens */
    grow(&asks[0], &f, 5, 60);
    asks[0].n_prompt = asks[0].told_from = 63;
    asks[0].most = 50;
    ek_request_opts o = opts_of(&asks[0]);
    assert_int_equal(ek_engine_submit(e, &o, &asks[0].id), EK_OK);
    for (bool worked = true; worked;) ek_engine_step(e, &worked);
    assert_int_equal(asks[0].n_got, 1);
    assert_int_equal(asks[0].finish, EK_FINISH_LENGTH);
    o.n_tokens = 64;
    assert_int_equal(ek_engine_submit(e, &o, &asks[0].id), EK_ETOOLONG);
    assert_string_equal(ek_err_text(), "64 prompt tokens do not fit: the context is 64, one of them for the reply");
    ek_engine_close(e);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 512);
    grow(&asks[0], &f, 6, 60);
    ek_request_id id = 0;
#define REFUSED(change, code)                                                                                         \
    do {                                                                                                              \
        ek_request_opts o = opts_of(&asks[0]);                                                                        \
        change;                                                                                                       \
        assert_int_equal(ek_engine_submit(e, &o, &id), code);                                                         \
    } while (0)
    int32_t bad[] = {1, FAKE_VOCAB}, negative[] = {-1};
    ek_logit_bias bias[] = {{3, NAN}}, stray[] = {{FAKE_VOCAB, 1}};
    REFUSED(o.n_tokens = 0, EK_EINVAL);
    REFUSED(o.n_tokens = -7, EK_EINVAL);
    REFUSED(o.max_tokens = 0, EK_EINVAL);
    REFUSED((o.tokens = bad, o.n_tokens = 2), EK_EINVAL);
    assert_string_equal(ek_err_text(), "prompt position 1 is token 97, the vocabulary has 97");
    REFUSED((o.tokens = negative, o.n_tokens = 1), EK_EINVAL);
    REFUSED((o.stop = negative, o.n_stop = 1), EK_EINVAL);
    REFUSED(o.n_stop = 1 << 30, EK_EINVAL);
    REFUSED(o.prompt_logits_from = -1, EK_EINVAL);
    REFUSED(o.sampling.temperature = NAN, EK_EINVAL);
    REFUSED(o.sampling.temperature = -1, EK_EINVAL);
    REFUSED(o.sampling.top_k = -1, EK_EINVAL);
    REFUSED(o.sampling.top_p = 1.5f, EK_EINVAL);
    REFUSED(o.sampling.min_p = -0.1f, EK_EINVAL);
    REFUSED(o.sampling.repetition_penalty = 0, EK_EINVAL);
    REFUSED(o.sampling.presence_penalty = INFINITY, EK_EINVAL);
    REFUSED((o.sampling.bias = bias, o.sampling.n_bias = 1), EK_EINVAL);
    REFUSED((o.sampling.bias = stray, o.sampling.n_bias = 1), EK_EINVAL);
    assert_int_equal(id, 0);
    bool worked = true;
    ek_engine_step(e, &worked);
    assert_false(worked);
    ek_engine_close(e);
}

static void the_queue_is_bounded(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine_opts opts = ek_engine_defaults();
    opts.max_requests = 2;
    opts.max_queue = 3;
    ek_backend b = fake_backend(&f, 64, 64);
    ek_engine *e;
    assert_int_equal(ek_engine_open_on(&e, &b, &opts), EK_OK);
    for (int i = 0; i < 6; i++) {
        grow(&asks[i], &f, 60 + (uint64_t)i, 60);
        ek_request_opts o = opts_of(&asks[i]);
        assert_int_equal(ek_engine_submit(e, &o, &asks[i].id), i < 5 ? EK_OK : EK_EBUSY);
    }
    assert_string_equal(ek_err_text(), "5 requests are running or waiting, 5 are allowed");
    ek_engine_stop(e, true); /* steps until done */
    for (int i = 0; i < 5; i++) check(&asks[i]);
    ek_request_opts o = opts_of(&asks[5]);
    assert_int_equal(ek_engine_submit(e, &o, &asks[5].id), EK_ESHUTDOWN);
    ek_engine_close(e);
}

static void stop_cancels_what_is_left(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 64);
    for (int i = 0; i < 5; i++) {
        grow(&asks[i], &f, 60 + (uint64_t)i, 60);
        asks[i].ignore_eos = true;
        asks[i].most = 100;
        ek_request_opts o = opts_of(&asks[i]);
        assert_int_equal(ek_engine_submit(e, &o, &asks[i].id), EK_OK);
    }
    bool worked;
    for (int i = 0; i < 9; i++) ek_engine_step(e, &worked);
    ek_engine_close(e);
    for (int i = 0; i < 5; i++) assert_int_equal(asks[i].finish, EK_FINISH_CANCELLED);
}

static void failures_stay_with_their_request(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 4, 512);
    for (int i = 0; i < 4; i++) {
        grow(&asks[i], &f, 160 + (uint64_t)i, 60);
        asks[i].told_from = asks[i].n_prompt;
        if (i == 1) asks[i].broken = true, asks[i].prompt[0] = FAKE_FAILS;
        if (i == 2) asks[i].prompt[asks[i].n_prompt - 1] = FAKE_NAN;
        if (i == 3) {
            asks[i].n_want = 0;
            asks[i].sampling = ek_sampling_greedy();
        }
        ek_request_opts o = opts_of(&asks[i]);
        ek_logit_bias all[FAKE_VOCAB];
        for (int t = 0; t < FAKE_VOCAB && i == 3; t++) all[t] = (ek_logit_bias){t, -INFINITY};
        if (i == 3) o.sampling.bias = all, o.sampling.n_bias = FAKE_VOCAB;
        assert_int_equal(ek_engine_submit(e, &o, &asks[i].id), EK_OK);
    }
    for (bool worked = true; worked;) ek_engine_step(e, &worked);
    check(&asks[0]);
    check(&asks[1]);
    assert_int_equal(asks[2].finish, EK_FINISH_ERROR);
    assert_int_equal(asks[2].n_got, 0);
    assert_non_null(strstr(asks[2].text, "are not numbers"));
    assert_int_equal(asks[3].finish, EK_FINISH_ERROR);
    assert_non_null(strstr(asks[3].text, "every token is masked"));
    ek_engine_close(e);
}

/* Submits and cancels from four threads at once while the engine's thread runs. */
struct client {
    ek_engine *e;
    fake *f;
    int number;
    ask ask[12];
};

static void *client(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < 12; i++) {
        ask *a = &c->ask[i];
        ek_request_opts o = opts_of(a);
        while (ek_engine_submit(c->e, &o, &a->id) == EK_EBUSY) sched_yield();
        if (a->cancel) ek_engine_cancel(c->e, a->id);
        ek_engine_stats stats;
        ek_engine_stats_read(c->e, &stats);
        EK_ASSERT(stats.waiting >= 0);
    }
    return NULL;
}

static void threads_may_submit_and_cancel(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 50, true, true);
    ek_engine_opts opts = ek_engine_defaults();
    opts.max_requests = 3;
    opts.max_queue = 4;
    ek_backend b = fake_backend(&f, 16, 12);
    ek_engine *e;
    assert_int_equal(ek_engine_open_on(&e, &b, &opts), EK_OK);
    struct client *c = calloc(4, sizeof *c);
    pthread_t thread[4];
    for (int t = 0; t < 4; t++) {
        c[t].e = e;
        c[t].f = &f;
        for (int i = 0; i < 12; i++) {
            grow(&c[t].ask[i], &f, 1000 + 100 * (uint64_t)t + (uint64_t)i, 200);
            c[t].ask[i].cancel = i % 4 == 3;
        }
    }
    assert_int_equal(ek_engine_start(e), EK_OK);
    for (int t = 0; t < 4; t++) assert_int_equal(pthread_create(&thread[t], NULL, client, &c[t]), 0);
    for (int t = 0; t < 4; t++) pthread_join(thread[t], NULL);
    ek_engine_stop(e, true);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 12; i++) check(&c[t].ask[i]);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    assert_int_equal(stats.requests, 48);
    ek_engine_close(e);
    free(c);
}

/* A sink may submit the next request and cancel its own. */
static ek_engine *sink_engine;
static void resubmit(void *arg, const ek_event *event)
{
    int *left = arg;
    static const int32_t prompt[] = {1, 2, 3};
    ek_engine_cancel(sink_engine, event->request);
    if (event->finish == EK_FINISH_NONE || --*left == 0) return;
    ek_request_opts o = {.tokens = prompt, .n_tokens = 3, .max_tokens = 50, .ignore_eos = true,
                         .sampling = ek_sampling_greedy(), .sink = resubmit, .arg = left};
    EK_ASSERT(event->finish == EK_FINISH_CANCELLED && event->n_tokens == 1);
    EK_ASSERT(ek_engine_submit(sink_engine, &o, NULL) == EK_OK);
}

static void a_sink_may_call_the_engine(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 50, true, true);
    ek_engine_opts opts = ek_engine_defaults();
    opts.max_requests = 1;
    opts.max_queue = 0;
    ek_backend b = fake_backend(&f, 16, 12);
    assert_int_equal(ek_engine_open_on(&sink_engine, &b, &opts), EK_OK);
    int left = 4;
    static const int32_t prompt[] = {9};
    ek_request_opts o = {.tokens = prompt, .n_tokens = 1, .max_tokens = 50, .ignore_eos = true,
                         .sampling = ek_sampling_greedy(), .sink = resubmit, .arg = &left};
    assert_int_equal(ek_engine_submit(sink_engine, &o, NULL), EK_OK);
    for (bool worked = true; worked;) ek_engine_step(sink_engine, &worked);
    assert_int_equal(left, 0);
    ek_engine_close(sink_engine);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 300, true, true);
    ek_engine *e = NULL;
    ek_backend b = fake_backend(&f, 0, 0);
#define BAD(field, value, code)                                                                                       \
    do {                                                                                                              \
        ek_engine_opts o = ek_engine_defaults();                                                                      \
        o.field = value;                                                                                              \
        assert_int_equal(ek_engine_open_on(&e, &b, &o), code);                                                        \
    } while (0)
    BAD(max_requests, 0, EK_EINVAL);
    BAD(max_queue, -1, EK_EINVAL);
    BAD(chunk, 0, EK_EINVAL);
    BAD(ctx_tokens, 5000, EK_EINVAL);
    assert_string_equal(ek_err_text(), "a context of 5000 tokens, the model has 4096");
    BAD(ctx_tokens, 1, EK_EINVAL);
    BAD(kv_bytes, NAN, EK_EINVAL);
    BAD(kv_bytes, 512, EK_ENOMEM);
    b = fake_backend(&f, 4, 2);
    BAD(chunk, 8, EK_ENOMEM);
    assert_string_equal(ek_err_text(), "2 sliding pages, one request needs 4");
    assert_null(e);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(company_does_not_matter),
        cmocka_unit_test(chunks_cover_the_prompt),
        cmocka_unit_test(prompt_logits_are_bounded),
        cmocka_unit_test(the_youngest_is_preempted),
        cmocka_unit_test(the_context_ends_a_reply),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(stop_cancels_what_is_left),
        cmocka_unit_test(failures_stay_with_their_request),
        cmocka_unit_test(threads_may_submit_and_cancel),
        cmocka_unit_test(a_sink_may_call_the_engine),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
