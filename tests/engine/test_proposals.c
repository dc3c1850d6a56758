/* Drafts that come from elsewhere, by a made-up clock: a step waits for an answer that pays, and for no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/hash/rng.h"
#include "heard.h"

enum { PROMPT = 40, REPLY = 800, ALL = PROMPT + REPLY };

static const double STEP = 10e-3; /* seconds */
static int32_t text[ALL + 1];     /* random, so the text itself drafts nothing */

/* Another server. Its first `until` answers come `late` seconds after their questions and are right. The others come
 * ten times as late and hold nothing. */
typedef struct other {
    fake *f;
    double late, asked; /* asked, at: time and position of the last question */
    int until, n, at;   /* n: questions so far */
    bool open;
} other;

static bool take_question(void *arg, uint64_t request, uint64_t salt, const int32_t *tokens, int n, int max)
{
    other *o = arg;
    (void)request, (void)salt, (void)tokens, (void)max;
    if (o->open) return false;
    o->open = true, o->at = n, o->asked = o->f->time, o->n++;
    return true;
}

static double answered(const other *o)
{
    return o->open ? o->asked + (o->n <= o->until ? 1 : 10) * o->late : INFINITY;
}

static bool give_answer(void *arg, uint64_t request, ek_proposal *out)
{
    other *o = arg;
    (void)request;
    if (o->f->time < answered(o)) return false;
    out->n = o->n <= o->until ? 8 : 0, out->seconds = out->n > 0 ? o->late : 0;
    for (int i = 0; i < out->n; i++) out->token[i] = o->at + i < ALL ? text[o->at + i] : 0;
    o->open = false;
    return true;
}

static void wait_for_it(void *arg, double seconds)
{
    other *o = arg;
    const double end = o->f->time + seconds + 1e-9, comes = answered(o); /* a real clock goes on, too */
    o->f->time = comes < end ? comes : end;
}

static void forget(void *arg, uint64_t request)
{
    (void)arg, (void)request;
}

typedef struct course {
    int steps;
    double seconds, waited;
} course;

static course run(double late, int until, ek_draft_mode mode)
{
    fake f;
    ek_engine *e;
    fake_init(&f, 50, true, true);
    f.text = text, f.base_seconds = STEP;
    other far = {.f = &f, .late = late, .until = until};
    const ek_proposer proposer = {&far, take_question, give_answer, wait_for_it, forget};
    const ek_executor x = fake_executor(&f, 64, 64);
    ek_engine_opts o = ek_engine_defaults();
    o.draft = mode, o.proposer = &proposer;
    assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
    continue_text(e, text, PROMPT, REPLY);
    ek_engine_stats s;
    ek_engine_stats_read(e, &s);
    ek_engine_close(e);
    const double waited = (double)s.remote_waited * 1e-6;
    return (course){f.steps, f.time, waited};
}

static void right_answers_are_awaited(void **state)
{
    (void)state;
    const course alone = run(0, 0, EK_DRAFT_OFF), beside = run(STEP / 5, 1 << 20, EK_DRAFT_AUTO);
    assert_true(alone.waited == 0 && beside.waited > 0);
    assert_true(beside.steps * 2 < alone.steps && beside.seconds < 0.6 * alone.seconds);
}

static void answers_that_cost_more_than_they_save_are_not(void **state)
{
    (void)state;
    const course alone = run(0, 0, EK_DRAFT_OFF), beside = run(20 * STEP, 1 << 20, EK_DRAFT_AUTO);
    assert_true(beside.waited == 0);
    assert_true(beside.seconds <= alone.seconds);
}

/* The time that a reply waits in vain is bounded, however long the reply is. */
static void a_server_that_stopped_to_draft_costs_a_few_steps(void **state)
{
    (void)state;
    const course alone = run(0, 0, EK_DRAFT_OFF), beside = run(STEP / 5, 4, EK_DRAFT_AUTO);
    assert_true(beside.waited > 0 && beside.seconds < alone.seconds + 8 * STEP);
}

int main(void)
{
    for (int i = 0; i <= ALL; i++) text[i] = 10 + (int32_t)(ek_mix64((uint64_t)i) % 80);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_answers_are_awaited),
        cmocka_unit_test(answers_that_cost_more_than_they_save_are_not),
        cmocka_unit_test(a_server_that_stopped_to_draft_costs_a_few_steps),
    };
    return cmocka_run_group_tests_name("proposals", tests, NULL, NULL);
}
