/* engine: prompts that are held, so that they are read without replies beside them. The clock is made up: a step takes
 * a time for its rows, and more if it has rows of prompts beside replies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "asks.h"
#include "base/hash/rng.h"

enum { CLIENTS = 8, PROMPT = 1600, REPLY = 20, CHUNK = 2048 };

typedef struct client {
    int tokens, first_at;      /* first_at: the step of the first token */
    double asked, first, last; /* seconds */
} client;

static fake f;
static ek_err (*step_of_fake)(void *arg, const ek_step *s);
static double beside; /* seconds that a step takes longer */
static client clients[CLIENTS + 1];
static int n_steps, n_mixed;

static ek_err timed_step(void *arg, const ek_step *s)
{
    const bool mixed = s->n_seqs > 1 && s->n_rows > s->n_seqs && s->n_draws > 0;
    int replies = 0;
    for (int i = 0; i < s->n_rows; i++)
        replies += (i == 0 || s->row[i - 1].seq != s->row[i].seq) &&
                   (i + 1 == s->n_rows || s->row[i + 1].seq != s->row[i].seq);
    if (mixed && replies > 0) f.time += beside, n_mixed++;
    n_steps++;
    return step_of_fake(arg, s);
}

static void on_token(void *arg, const ek_event *event)
{
    client *c = arg;
    assert_true(event->finish == EK_FINISH_NONE || event->finish == EK_FINISH_LENGTH);
    if (c->tokens++ == 0) c->first_at = n_steps, c->first = f.time;
    c->last = f.time;
}

static void ask_for(ek_engine *e, int i, int prompt, uint64_t who)
{
    static int32_t tokens[1 << 16];
    for (int k = 0; k < prompt; k++) tokens[k] = (int32_t)(ek_mix64((uint64_t)(i * 100000 + k)) % 90);
    const ek_request_opts r = {.tokens = tokens,
                               .n_tokens = prompt,
                               .max_tokens = REPLY,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .sink = on_token,
                               .arg = &clients[i],
                               .client = who,
                               .prompt_logits_from = prompt};
    clients[i] = (client){.asked = f.time};
    assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
}

static ek_engine *open(double row, double longer)
{
    ek_engine *e;
    fake_init(&f, 512, true, true);
    f.config.max_position_embeddings = 65536;
    f.base_seconds = 0.004, f.row_seconds = row, beside = longer;
    ek_executor x = fake_executor(&f, 3000, 3000);
    step_of_fake = x.step, x.step = timed_step, x.poison = false;
    ek_engine_opts o = ek_engine_defaults();
    o.chunk = CHUNK, o.max_gap = 0.06, o.cache_bytes = 0;
    assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
    ask_for(e, CLIENTS, 3 * CHUNK, 1); /* steps that tell what rows cost, alone and beside replies */
    for (int i = 0; i < 6; i++) ek_engine_step(e);
    ask_for(e, 0, 3 * CHUNK, 2);
    while (ek_engine_step(e)) continue;
    memset(clients, 0, sizeof clients);
    f.time += 2;
    n_steps = n_mixed = 0;
    return e;
}

static void finish(ek_engine *e)
{
    while (ek_engine_step(e)) continue;
    for (int i = 0; i < CLIENTS; i++) assert_true(clients[i].tokens == 0 || clients[i].tokens == REPLY);
    ek_engine_close(e);
}

/* All of one client begin to reply in the same step. */
static void prompts_of_one_client_end_together(void **state)
{
    (void)state;
    ek_engine *e = open(100e-6, 0.02);
    for (int i = 0; i < CLIENTS; i++) ask_for(e, i, PROMPT, 1);
    finish(e);
    for (int i = 1; i < CLIENTS; i++) assert_int_equal(clients[i].first_at, clients[0].first_at);
    assert_in_range(n_steps, CLIENTS * PROMPT / CHUNK + REPLY, CLIENTS * PROMPT / CHUNK + 3 + REPLY);
}

/* One step has room for all, so nothing is left for another. */
static void short_prompts_end_in_one_step(void **state)
{
    (void)state;
    ek_engine *e = open(100e-6, 0.02);
    for (int i = 0; i < 3; i++) ask_for(e, i, CHUNK / 3, 1);
    finish(e);
    for (int i = 0; i < 3; i++) assert_int_equal(clients[i].first_at, 1);
    assert_int_equal(n_steps, REPLY);
}

/* A completion beside an agent's long prompt. */
static void a_short_prompt_does_not_wait_for_a_long_one(void **state)
{
    (void)state;
    ek_engine *e = open(100e-6, 0.02);
    ask_for(e, 0, 12 * CHUNK, 1), ask_for(e, 1, 100, 1);
    finish(e);
    assert_int_equal(clients[1].first_at, 1);
    assert_true(clients[0].first > clients[1].last);
}

/* Another client's prompts delay nothing. */
static void nobody_waits_for_another_client(void **state)
{
    (void)state;
    ek_engine *e = open(100e-6, 0.02);
    for (int i = 0; i < CLIENTS; i++) ask_for(e, i, PROMPT, (uint64_t)i);
    finish(e);
    assert_true(clients[0].first_at < clients[CLIENTS - 1].first_at);
}

/* The others would take longer than a prompt may be held, at once or because ever more of them come. */
static void none_is_held_for_long(void **state)
{
    (void)state;
    ek_engine *e = open(1e-3, 0.02);
    for (int i = 0; i < CLIENTS; i++) ask_for(e, i, PROMPT, 1);
    finish(e);
    assert_true(clients[0].first_at < clients[CLIENTS - 1].first_at);
    e = open(1e-3, 0.02);
    ask_for(e, 0, PROMPT, 1);
    const double begun = f.time;
    for (int n = 0; clients[0].tokens == 0; n++) {
        if (n < 12) ask_for(e, 1 + n % 2, PROMPT, 1);
        ek_engine_step(e);
        assert_true(f.time - begun < 8 + 3 * CHUNK * 1e-3);
    }
    while (ek_engine_step(e)) continue;
    ek_engine_close(e);
}

/* Where rows cost the same beside replies a first token comes as soon as it can. */
static void rows_that_cost_the_same_hold_nothing(void **state)
{
    (void)state;
    ek_engine *e = open(1e-3, 0);
    for (int i = 0; i < 2; i++) ask_for(e, i, 600, 1);
    finish(e);
    assert_true(clients[0].first_at <= clients[1].first_at);
    e = open(100e-6, 0);
    ask_for(e, 0, CHUNK, 1);
    ek_engine_step(e);
    for (int i = 1; i < 4; i++) ask_for(e, i, CHUNK, 1);
    finish(e);
    assert_true(clients[0].first_at < clients[3].first_at);
}

/* Requests that ran together and come back a step later are awaited, while the first of them is read. */
static void company_is_awaited(void **state)
{
    (void)state;
    ek_engine *e = open(100e-6, 0.02);
    for (int turn = 0; turn < 3; turn++) {
        ask_for(e, 0, PROMPT, 1);
        if (turn > 0) ek_engine_step(e); /* it reads the first one's prompt */
        for (int i = 1; i < CLIENTS; i++) ask_for(e, i, PROMPT, 1);
        while (ek_engine_step(e)) continue;
        for (int i = 1; i < CLIENTS; i++) assert_int_equal(clients[i].first_at, clients[0].first_at);
    }
    f.time += 2; /* nobody else is expected any more */
    const int before = n_steps;
    ask_for(e, 0, PROMPT, 1);
    while (clients[0].tokens == 0) ek_engine_step(e);
    assert_int_equal(n_steps, before + 1);
    finish(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_one_client_end_together),
        cmocka_unit_test(short_prompts_end_in_one_step),
        cmocka_unit_test(a_short_prompt_does_not_wait_for_a_long_one),
        cmocka_unit_test(nobody_waits_for_another_client),
        cmocka_unit_test(none_is_held_for_long),
        cmocka_unit_test(rows_that_cost_the_same_hold_nothing),
        cmocka_unit_test(company_is_awaited),
    };
    return cmocka_run_group_tests_name("hold", tests, NULL, NULL);
}
