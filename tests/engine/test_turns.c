/* engine: clients take turns in the wait queue and in its room; an answer is what it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "asks.h"

static ek_err submit_for(ek_engine *e, ask *a, uint64_t client)
{
    ek_request_opts o = opts_of(a);
    o.client = client;
    a->engine = e;
    return ek_engine_submit(e, &o, &a->id);
}

static int n_ended(int from, int end)
{
    int n = 0;
    for (int i = from; i < end; i++) n += asks[i].finish != EK_FINISH_NONE;
    return n;
}

static void grow_all(fake *f, int n)
{
    fake_init(f, 30, true, true);
    for (int i = 0; i < n; i++) grow(&asks[i], f, 100 + (uint64_t)i, 60);
}

/* 16 requests of one client wait; another's single one is next. */
static void one_is_not_behind_many(void **state)
{
    (void)state;
    fake f;
    grow_all(&f, 17);
    ek_engine *e = open_engine(&f, 64, 64, 1, 64);
    for (int i = 0; i < 16; i++) assert_int_equal(submit_for(e, &asks[i], 1), EK_OK);
    ek_engine_step(e);
    assert_int_equal(submit_for(e, &asks[16], 2), EK_OK);
    while (n_ended(16, 17) == 0) assert_true(ek_engine_step(e));
    assert_in_range(n_ended(0, 16), 0, 2);
    step_until_idle(e);
    for (int i = 0; i < 17; i++) check(&asks[i]);
    ek_engine_close(e);
}

/* One client's requests run in the order in which they came. */
static void one_client_in_order(void **state)
{
    (void)state;
    fake f;
    grow_all(&f, 10);
    ek_engine *e = open_engine(&f, 64, 64, 1, 64);
    for (int i = 0; i < 10; i++) assert_int_equal(submit_for(e, &asks[i], 5), EK_OK);
    while (ek_engine_step(e))
        for (int i = 1; i < 10; i++) assert_true(asks[i - 1].finish != EK_FINISH_NONE || asks[i].n_got == 0);
    for (int i = 0; i < 10; i++) check(&asks[i]);
    ek_engine_close(e);
}

/* A full queue is full for the client that filled it. */
static void room_for_another(void **state)
{
    (void)state;
    fake f;
    grow_all(&f, 1);
    ek_engine *e = open_engine(&f, 64, 64, 2, 64);
    ek_request_opts o = opts_of(&asks[0]);
    o.sink = NULL; /* nobody waits for them */
    o.client = 1;
    for (int i = 0; i < ek_engine_room(e); i++) assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_EBUSY);
    o.client = 2;
    for (int i = 0; i < ek_engine_room(e) / 2; i++) assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_EBUSY);
    o.client = 3;
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    o.client = 1;
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_EBUSY);
    ek_engine_close(e);
}

/* A request with a prompt of its own, 3 pages long, run to its end; how many of its tokens were cached. */
static int run_for(ek_engine *e, fake *f, uint64_t owner, int32_t first)
{
    ask *a = &asks[0];
    grow(a, f, 1, 60);
    a->n_spans = 0;
    a->n_prompt = a->prompt_logits_from = 200;
    a->max_tokens = 1;
    for (int i = 0; i < 200; i++) a->prompt[i] = 10 + (first * 31 + i * (first + 1)) % 80;
    ek_request_opts o = opts_of(a);
    a->salt = o.cache_salt = owner;
    o.cache_owner = owner;
    o.on_prompt_logits = NULL;
    o.sink = NULL;
    a->engine = e;
    ek_engine_stats before, after;
    ek_engine_stats_read(e, &before);
    assert_int_equal(ek_engine_submit(e, &o, &a->id), EK_OK);
    step_until_idle(e);
    check_cache(e, f);
    ek_engine_stats_read(e, &after);
    return (int)(after.cache_tokens - before.cache_tokens);
}

/* One owner's cached prefixes do not push out those of an owner that has less. */
static void shares_of_the_cache(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 40, 40, 1, 64); /* ten such prompts */
    for (int32_t i = 0; i < 3; i++) assert_int_equal(run_for(e, &f, 1, i), 0);
    for (int32_t i = 0; i < 60; i++) run_for(e, &f, 2, i);
    for (int32_t i = 0; i < 3; i++) assert_true(run_for(e, &f, 1, i) > 100);
    assert_true(run_for(e, &f, 2, 59) > 100); /* what is left is the other's */
    assert_int_equal(run_for(e, &f, 2, 1), 0);
    for (int32_t i = 0; i < 60; i++) run_for(e, &f, 1, i); /* up to its share, as the other */
    assert_true(run_for(e, &f, 2, 1) > 100);
    for (uint64_t o = 3; o < 200; o++) run_for(e, &f, o, 1); /* more owners than can be told apart */
    ek_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_not_behind_many),
        cmocka_unit_test(one_client_in_order),
        cmocka_unit_test(room_for_another),
        cmocka_unit_test(shares_of_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
