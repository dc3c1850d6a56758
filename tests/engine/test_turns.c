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

/* A request of a client with a prompt of its own of that many tokens, and a reply of so many. */
static void make(ask *a, const fake *f, int which, int n_prompt, int max_tokens)
{
    grow(a, f, 300 + (uint64_t)which, 60);
    a->n_prompt = a->prompt_logits_from = n_prompt;
    a->max_tokens = max_tokens;
    a->ignore_eos = true;
    for (int i = 0; i < n_prompt; i++) a->prompt[i] = 10 + (which * 31 + i * (which + 1)) % 80;
    set_want(a, 4096);
}

/* Steps until asks[which] has ended. */
static int steps_to_end(ek_engine *e, int which)
{
    int n = 0;
    while (asks[which].finish == EK_FINISH_NONE) n += ek_engine_step(e);
    return n;
}

static uint64_t preempted(const ek_engine *e)
{
    ek_engine_stats st;
    ek_engine_stats_read(e, &st);
    return st.preempted;
}

/* All slots have long replies of one client: another's short one takes one of them. */
static void long_replies_give_way(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 4, 64);
    for (int i = 0; i < 8; i++) make(&asks[i], &f, i, 20, 110);
    for (int i = 0; i < 8; i++) assert_int_equal(submit_for(e, &asks[i], 1), EK_OK);
    for (int i = 0; i < 10; i++) ek_engine_step(e);
    assert_int_equal(preempted(e), 0); /* alone nobody gives way */
    make(&asks[8], &f, 8, 10, 2);
    assert_int_equal(submit_for(e, &asks[8], 2), EK_OK);
    assert_in_range(steps_to_end(e, 8), 1, 4);
    assert_int_equal(preempted(e), 1);
    assert_int_equal(n_ended(0, 8), 0);
    step_until_idle(e);
    assert_int_equal(preempted(e), 1);
    for (int i = 0; i < 9; i++) check(&asks[i]);
    check_cache(e, &f);
    ek_engine_close(e);
}

/* The same without cached prefixes and with a stream of short ones: who gives way still comes to its end. */
static void who_gives_way_goes_on(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 16);
    for (int i = 0; i < 2; i++) make(&asks[i], &f, i, 200, 110);
    for (int i = 0; i < 2; i++) assert_int_equal(submit_for(e, &asks[i], 1), EK_OK);
    for (int n = 0; n_ended(0, 2) < 2; n++) {
        assert_true(n < 400);
        for (int i = 0; i < 3; i++) ek_engine_step(e);
        make(&asks[2], &f, 2, 10, 2);
        assert_int_equal(submit_for(e, &asks[2], 2), EK_OK);
        steps_to_end(e, 2);
        check(&asks[2]);
    }
    assert_true(preempted(e) > 3);
    for (int i = 0; i < 2; i++) check(&asks[i]);
    ek_engine_close(e);
}

/* More clients than slots, each with a long reply: all of them get on. */
static void clients_take_turns(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 64, 64, 2, 64);
    e->turn_seconds = 0;
    for (int i = 0; i < 6; i++) make(&asks[i], &f, i, 20, 110);
    for (int i = 0; i < 6; i++) assert_int_equal(submit_for(e, &asks[i], 1 + (uint64_t)i), EK_OK);
    for (int i = 0; i < 60; i++) ek_engine_step(e);
    assert_int_equal(n_ended(0, 6), 0);
    for (int i = 0; i < 6; i++) assert_true(asks[i].n_got > 0);
    make(&asks[6], &f, 6, 10, 2);
    assert_int_equal(submit_for(e, &asks[6], 9), EK_OK);
    assert_in_range(steps_to_end(e, 6), 1, 12);
    step_until_idle(e);
    for (int i = 0; i < 7; i++) check(&asks[i]);
    ek_engine_close(e);
}

/* One client's long prompts take no more than their part of a step. */
static void short_prompt_beside_long_ones(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 128, 128, 8, 32);
    for (int i = 0; i < 8; i++) make(&asks[i], &f, i, 650, 4);
    for (int i = 0; i < 8; i++) assert_int_equal(submit_for(e, &asks[i], 1), EK_OK);
    for (int i = 0; i < 5; i++) ek_engine_step(e);
    make(&asks[8], &f, 8, 60, 2);
    assert_int_equal(submit_for(e, &asks[8], 2), EK_OK);
    assert_in_range(steps_to_end(e, 8), 1, 7);
    assert_int_equal(n_ended(0, 8), 0);
    step_until_idle(e);
    for (int i = 0; i < 9; i++) check(&asks[i]);
    ek_engine_close(e);
}

/* Where pages run out, those of who runs the most start over, not the youngest of all. */
static void pages_of_the_largest_holder(void **state)
{
    (void)state;
    fake f;
    fake_init(&f, 30, true, true);
    ek_engine *e = open_engine(&f, 16, 64, 5, 64);
    for (int i = 0; i < 4; i++) make(&asks[i], &f, i, 180, 100);
    for (int i = 0; i < 4; i++) assert_int_equal(submit_for(e, &asks[i], 1), EK_OK);
    for (int i = 0; i < 14; i++) ek_engine_step(e);
    make(&asks[4], &f, 4, 60, 100);
    assert_int_equal(submit_for(e, &asks[4], 2), EK_OK);
    assert_in_range(steps_to_end(e, 4), 100, 110);
    assert_true(preempted(e) > 0);
    step_until_idle(e);
    for (int i = 0; i < 5; i++) check(&asks[i]);
    ek_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_not_behind_many),
        cmocka_unit_test(one_client_in_order),
        cmocka_unit_test(room_for_another),
        cmocka_unit_test(shares_of_the_cache),
        cmocka_unit_test(long_replies_give_way),
        cmocka_unit_test(who_gives_way_goes_on),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(short_prompt_beside_long_ones),
        cmocka_unit_test(pages_of_the_largest_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
