/* engine: what is refused, what ends a request, and that its end touches no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "asks.h"
#include "base/log.h"

static void the_context_ends_a_reply(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 1, 8, 2, 512); /* 64 tokens */
    grow(&asks[0], &f, 5, 60);
    asks[0].n_prompt = asks[0].prompt_logits_from = 63;
    asks[0].max_tokens = 50;
    submit(e, &asks[0]);
    step_until_idle(e);
    assert_int_equal(asks[0].n_got, 1);
    assert_int_equal(asks[0].finish, EK_FINISH_LENGTH);
    ek_request_opts o = opts_of(&asks[0]);
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
    ek_engine *e = open_engine(&f, 64, 64, 2, 40);
    grow(&asks[0], &f, 6, 60);
    ek_request_id id = 0;
#define REFUSED(change, code)                                 \
    do {                                                      \
        ek_request_opts o = opts_of(&asks[0]);                \
        change;                                               \
        assert_int_equal(ek_engine_submit(e, &o, &id), code); \
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
    asks[0].n_prompt = 60;
    ek_prompt_span apart[] = {{3, 7, NULL, {0}, false}, {6, 9, NULL, {0}, false}}, beyond = {50, 61, NULL, {0}, false},
                   empty = {4, 4, NULL, {0}, false};
    ek_prompt_span whole = {2, 52, NULL, {[EK_FULL] = true}, false};
    REFUSED((o.span = apart, o.n_spans = 2), EK_EINVAL);
    assert_string_equal(ek_err_text(), "span 1 is [6, 9); spans ascend within [7, 60)");
    REFUSED((o.span = &beyond, o.n_spans = 1), EK_EINVAL);
    REFUSED((o.span = &empty, o.n_spans = 1), EK_EINVAL);
    REFUSED(o.n_spans = -1, EK_EINVAL);
    REFUSED((o.span = &whole, o.n_spans = 1), EK_EINVAL);
    assert_string_equal(ek_err_text(),
                        "positions 2 to 51 see each other, which takes a step of 50 rows; a step has 40 (chunk)");
    e->rules.whole = 50, e->rules.max_prompt_logits = 20;
    REFUSED((o.span = &whole, o.n_spans = 1, o.prompt_logits_from = 30), EK_EINVAL);
    assert_string_equal(ek_err_text(),
                        "positions 2 to 51 see each other and want 22 rows of prompt logits in one step, 20 fit");
    e->rules.n_pages[EK_SLIDING] = 2;
    REFUSED((o.span = &whole, o.n_spans = 1, o.prompt_logits_from = 32, o.max_tokens = 100), EK_ETOOLONG);
    assert_string_equal(ek_err_text(), "positions 2 to 51 see each other, which takes 3 sliding pages, there are 2");
    assert_int_equal(id, 0);
    assert_false(ek_engine_step(e));
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
    ek_executor x = fake_executor(&f, 64, 64);
    ek_engine *e;
    assert_int_equal(ek_engine_open_on(&e, &x, &opts), EK_OK);
    for (int i = 0; i < 6; i++) {
        grow(&asks[i], &f, 60 + (uint64_t)i, 60);
        ek_request_opts o = opts_of(&asks[i]);
        o.client = 1;
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
        asks[i].max_tokens = 100;
        submit(e, &asks[i]);
    }
    for (int i = 0; i < 9; i++) ek_engine_step(e);
    ek_engine_close(e);
    for (int i = 0; i < 5; i++) assert_int_equal(asks[i].finish, EK_FINISH_CANCELLED);
}

/* A request's own stop ids count, also where the model's are ignored; other requests do not stop at them. */
static void own_stop_ids_count(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 4, 512);
    for (int i = 0; i < 4; i++) {
        grow(&asks[i], &f, 704, 60);
        asks[i].max_tokens = 60;
        asks[i].ignore_eos = i % 2;
        asks[i].own_stop = i < 2 ? 0 : asks[i - 2].want[4];
        set_want(&asks[i], 4096);
        assert_true(asks[i].n_want > 5 || i >= 2);
        submit(e, &asks[i]);
    }
    step_until_idle(e);
    for (int i = 0; i < 4; i++) {
        check(&asks[i]);
        if (i < 2) continue;
        assert_int_equal(asks[i].finish, EK_FINISH_STOP);
        assert_true(asks[i].n_got <= 5);
    }
    ek_engine_close(e);
}

/* Logits that were not asked for do not reach an event: a device keeps them. */
static void count_logits(void *arg, const ek_event *event)
{
    int *n = arg;
    *n += event->logits != NULL;
}

static void logits_come_when_asked_for(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 4, 512);
    int with[2] = {0};
    for (int i = 0; i < 2; i++) {
        grow(&asks[i], &f, 700, 60);
        ek_request_opts o = opts_of(&asks[i]);
        o.sink = count_logits;
        o.arg = &with[i];
        o.reply_logits = i;
        o.max_tokens = 7;
        o.ignore_eos = true;
        assert_int_equal(ek_engine_submit(e, &o, &asks[i].id), EK_OK);
    }
    step_until_idle(e);
    assert_int_equal(with[0], 0);
    assert_int_equal(with[1], 7);
    ek_engine_close(e);
}

static void failures_stay_with_their_request(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 4, 512);
    for (int i = 0; i < 4; i++) {
        grow(&asks[i], &f, 160 + (uint64_t)i, 60);
        asks[i].prompt_logits_from = asks[i].n_prompt;
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
    step_until_idle(e);
    check(&asks[0]);
    check(&asks[1]);
    assert_int_equal(asks[2].finish, EK_FINISH_ERROR);
    assert_int_equal(asks[2].n_got, 0);
    assert_non_null(strstr(asks[2].text, "are not numbers"));
    assert_int_equal(asks[3].finish, EK_FINISH_ERROR);
    assert_non_null(strstr(asks[3].text, "every token is masked"));
    ek_engine_close(e);
}

/* A sink may submit the next request and cancel its own. */
static ek_engine *sink_engine;
static void resubmit(void *arg, const ek_event *event)
{
    int *left = arg;
    static const int32_t prompt[] = {1, 2, 3};
    ek_engine_cancel(sink_engine, event->request);
    if (event->finish == EK_FINISH_NONE || --*left == 0) return;
    ek_request_opts o = {.tokens = prompt,
                         .n_tokens = 3,
                         .max_tokens = 50,
                         .ignore_eos = true,
                         .sampling = ek_sampling_greedy(),
                         .sink = resubmit,
                         .arg = left};
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
    ek_executor x = fake_executor(&f, 16, 12);
    assert_int_equal(ek_engine_open_on(&sink_engine, &x, &opts), EK_OK);
    int left = 4;
    static const int32_t prompt[] = {9};
    ek_request_opts o = {.tokens = prompt,
                         .n_tokens = 1,
                         .max_tokens = 50,
                         .ignore_eos = true,
                         .sampling = ek_sampling_greedy(),
                         .sink = resubmit,
                         .arg = &left};
    assert_int_equal(ek_engine_submit(sink_engine, &o, NULL), EK_OK);
    while (ek_engine_step(sink_engine)) continue;
    assert_int_equal(left, 0);
    ek_engine_close(sink_engine);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 300, true, true);
    ek_engine *e = NULL;
    ek_executor x = fake_executor(&f, 0, 0);
#define BAD(field, value, code)                                \
    do {                                                       \
        ek_engine_opts o = ek_engine_defaults();               \
        o.field = value;                                       \
        assert_int_equal(ek_engine_open_on(&e, &x, &o), code); \
    } while (0)
    BAD(max_requests, 0, EK_EINVAL);
    BAD(max_queue, -1, EK_EINVAL);
    BAD(chunk, 0, EK_EINVAL);
    BAD(ctx_tokens, 5000, EK_EINVAL);
    assert_string_equal(ek_err_text(), "a context of 5000 tokens, the model has 4096");
    BAD(ctx_tokens, 1, EK_EINVAL);
    BAD(kv_bytes, NAN, EK_EINVAL);
    BAD(kv_bytes, 512, EK_ENOMEM);
    x = fake_executor(&f, 4, 2);
    BAD(chunk, 8, EK_ENOMEM);
    assert_string_equal(ek_err_text(), "2 sliding pages, one request needs 4");
    x = fake_executor(&f, 0, 8);
    BAD(chunk, 8, EK_ENOMEM);
    assert_string_equal(ek_err_text(), "0 pages hold no context");
    assert_null(e);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_context_ends_a_reply),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(stop_cancels_what_is_left),
        cmocka_unit_test(failures_stay_with_their_request),
        cmocka_unit_test(own_stop_ids_count),
        cmocka_unit_test(logits_come_when_asked_for),
        cmocka_unit_test(a_sink_may_call_the_engine),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
