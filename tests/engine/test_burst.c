/* Prompts that begin alike and arrive together: the front is computed once, the others wait for its pages. That this
 * changes no answer is in test_reuse.c and tests/same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "asks.h"
#include "base/log.h"
#include "base/hash/rng.h"

enum { FRONT = 600, REPLY = 5, N = 8 };

static void fill(int32_t *token, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) token[i] = (int32_t)(ek_mix64(seed * 7919 + (uint64_t)i) % 90);
}

/* A shared front and a tail of its own. */
static void make(ask *a, const fake *f, int front, int tail, uint64_t seed)
{
    memset(a, 0, sizeof *a);
    a->f = f;
    fill(a->prompt, front, 1);
    fill(a->prompt + front, tail, seed);
    a->n_prompt = a->prompt_logits_from = front + tail;
    a->max_tokens = REPLY;
    a->ignore_eos = true;
    a->sampling = ek_sampling_greedy();
    set_want(a, 4096);
}

static ek_engine_stats end(ek_engine *e, const fake *f, int n)
{
    do check_cache(e, f);
    while (ek_engine_step(e));
    for (int i = 0; i < n; i++)
        if (asks[i].finish != EK_FINISH_CANCELLED) check(&asks[i]);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    ek_engine_close(e);
    return stats;
}

/* A front is left at any token: what is computed is the front, and of each prompt its tail and a few tokens more. */
static void a_front_is_computed_once(void **state)
{
    (void)state;
    static const int windows[] = {1, 64, 100, 700};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int front = FRONT - 70; front < FRONT; front += 23)
            for (int tail = 0; tail < 30; tail += 29) {
                fake f;
                fake_init(&f, windows[w], true, true);
                if (front % 2) fake_set_start(&f, 3, 0);
                ek_engine *e = open_engine(&f, 400, 400, N, 100);
                for (int i = 0; i < N; i++) {
                    make(&asks[i], &f, front, tail + (tail ? i : 0), 100 + (uint64_t)i);
                    submit(e, &asks[i]);
                }
                ek_engine_stats s = end(e, &f, N);
                assert_int_equal(s.cache_waits, N - 1);
                /* the page in which the front ends may be a tail's already */
                uint64_t max = (uint64_t)(front + N * (tail + N + REPLY + EK_PAGE_TOKENS));
                assert_true(f.rows <= max);
                assert_true(s.cache_tokens >= (uint64_t)((N - 1) * (front - EK_PAGE_TOKENS)));
            }
}

/* Whoever computes the front may leave: the next one goes on where it was. */
static void the_first_may_leave(void **state)
{
    (void)state;
    for (int steps = 1; steps < 8; steps++) {
        fake f;
        fake_init(&f, 100, true, true);
        ek_engine *e = open_engine(&f, 400, 400, N, 100);
        for (int i = 0; i < N; i++) {
            make(&asks[i], &f, FRONT, 10 + i, 200 + (uint64_t)i);
            submit(e, &asks[i]);
        }
        for (int i = 0; i < steps; i++) ek_engine_step(e);
        asks[0].cancel = true;
        ek_engine_cancel(e, asks[0].id);
        ek_engine_stats s = end(e, &f, N);
        assert_true(s.cache_waits >= N - 1);
        assert_true(f.rows <= FRONT + N * (10 + N + REPLY + EK_PAGE_TOKENS) + 100);
    }
}

/* Requests behind those that wait pass them. */
static void others_are_not_held_back(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 100, true, true);
    ek_engine *e = open_engine(&f, 400, 400, 3, 50);
    for (int i = 0; i < 3; i++) {
        make(&asks[i], &f, i < 2 ? FRONT : 0, 20, 300 + (uint64_t)i);
        submit(e, &asks[i]);
    }
    while (asks[2].finish == EK_FINISH_NONE) assert_true(ek_engine_step(e));
    assert_int_equal(asks[0].n_got + asks[1].n_got, 0);
    assert_int_equal(end(e, &f, 3).cache_waits, 1);
}

/* There is nothing to wait for: another tenant's, less than a page, pages that are there, no cache. */
static void nobody_waits_for_nothing(void **state)
{
    (void)state;
    for (int why = 0; why < 4; why++) {
        fake f;
        fake_init(&f, 100, true, true);
        ek_executor x = fake_executor(&f, 400, 400);
        ek_engine_opts o = ek_engine_defaults();
        ek_engine *e;
        o.chunk = 100;
        if (why == 3) o.cache_bytes = 0;
        assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
        make(&asks[0], &f, why == 1 ? 60 : FRONT, 90, 1);
        make(&asks[1], &f, why == 1 ? 60 : FRONT, 90, 2);
        if (why == 0) asks[1].salt = 5;
        submit(e, &asks[0]);
        for (int i = 0; i < 7 && why == 2; i++) ek_engine_step(e); /* it replies */
        submit(e, &asks[1]);
        ek_engine_step(e);
        ek_engine_step(e);
        assert_int_equal(e->n_running, 2);
        while (ek_engine_step(e)) continue;
        for (int i = 0; i < 2; i++) check(&asks[i]);
        ek_engine_stats s;
        ek_engine_stats_read(e, &s);
        assert_int_equal(s.cache_waits, 0);
        ek_engine_close(e);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_front_is_computed_once),
        cmocka_unit_test(the_first_may_leave),
        cmocka_unit_test(others_are_not_held_back),
        cmocka_unit_test(nobody_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
