/* engine: steps begun before the tokens in front of them are known, where some requests' draws need these tokens: their
 * rows are computed ahead all the same, and drawn later. The executor is the late one of support/beside.h, which
 * computes a step when it is begun and gives its tokens at its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "asks.h"
#include "../support/beside.h"

enum { N = 8, REPLY = 40 };

/* Why a draw needs the token in front of it on the host. */
typedef enum need { MASK, PENALTIES, LOGITS, NEEDS } need;

static const char *const need_name[NEEDS] = {"masks", "penalties", "logits"};

/* Request i: plain, greedy or sampled, or one whose draws come later. */
static void make(ask *a, const fake *f, int i, bool late, need why)
{
    grow(a, f, 900 + (uint64_t)i, 60);
    a->n_prompt = 33 + i;
    for (int k = 0; k < a->n_prompt; k++) a->prompt[k] = (k * 7 + i * 3) % 90;
    a->prompt_logits_from = a->n_prompt, a->max_tokens = REPLY, a->ignore_eos = true, a->masked = false;
    a->sampling = ek_sampling_greedy();
    if (i % 2) a->sampling.temperature = 0.8f, a->sampling.seed = (uint64_t)i, a->sampling.top_k = 9;
    if (late && why == MASK) a->masked = true;
    if (late && why == PENALTIES) a->sampling.frequency_penalty = 0.7f, a->sampling.repetition_penalty = 1.2f;
    if (late && why == LOGITS) a->n_prompt = 64; /* asks.c: of such prompts the logits of replies are asked for */
    for (int k = 0; k < a->n_prompt; k++) a->prompt[k] = (k * 7 + i * 3) % 90;
    a->prompt_logits_from = a->n_prompt;
    set_want(a, 4096);
}

/* Of a new model: an engine opens it once. */
static void make_all(fake *f, int n_late, need why)
{
    fake_init(f, 30, true, true);
    for (int i = 0; i < N; i++) make(&asks[i], f, i, i < n_late, why);
}

static void submit_all(ek_engine *e)
{
    for (int i = 0; i < N; i++) submit(e, &asks[i]);
}

static void check_all(void)
{
    for (int i = 0; i < N; i++) check(&asks[i]);
}

/* All at once; returns the steps. */
static uint64_t run_all(fake *f, beside *b, int full_pages)
{
    ek_engine_stats stats;
    f->beside = b;
    ek_engine *e = open_engine(f, full_pages, 64, N, 1024);
    submit_all(e);
    step_until_idle(e);
    check_all();
    ek_engine_stats_read(e, &stats);
    for (int k = 0; k < EK_PAGE_KINDS; k++) assert_int_equal(stats.pages_used[k], 0);
    ek_engine_close(e);
    return stats.steps;
}

/* Of all mixes as many steps are begun ahead as of plain requests alone, and nobody needs a step more: a request whose
 * draws come later gets its token in every step, too. An executor that cannot draw later begins none. */
static void requests_that_draw_later_hold_nobody_up(void **state)
{
    (void)state;
    static const int n_late[] = {1, 4, 7, 8};
    fake f;
    make_all(&f, 0, MASK);
    beside plain = {.obliging = true};
    const uint64_t steps = run_all(&f, &plain, 64);
    assert_true(plain.followed >= REPLY - 2 && plain.drawn_late == 0);
    for (int why = 0; why < NEEDS; why++)
        for (size_t i = 0; i < sizeof n_late / sizeof *n_late; i++) {
            beside late = {.obliging = true}, at_once = {.obliging = true, .draws_at_once = true};
            make_all(&f, n_late[i], (need)why);
            assert_int_equal(run_all(&f, &late, 64), steps);
            assert_int_equal(late.followed, plain.followed);
            assert_int_equal(late.drawn_late, late.followed);
            make_all(&f, n_late[i], (need)why);
            assert_int_equal(run_all(&f, &at_once, 64), steps);
            print_message("%d plain, %d with %s: %d of %d steps begun ahead, without late draws %d\n", N - n_late[i],
                          n_late[i], need_name[why], (int)late.followed, (int)steps, (int)at_once.followed);
            assert_int_equal(at_once.followed, 0);
        }
}

/* A request leaves while its row is ahead and its draw is not made: others' draws are what they are, and its memory,
 * which the draw would read, is gone. */
static void they_leave_while_ahead(void **state)
{
    (void)state;
    fake f;
    for (int why = 0; why < NEEDS; why++)
        for (int cut = 0; cut < 3; cut++) {
            beside b = {.obliging = true};
            make_all(&f, 4, (need)why);
            for (int i = 0; i < N; i++) {
                if (cut == 0) asks[i].cancel_at = 3 + i * 2;                        /* in its sink */
                if (cut == 1) asks[i].max_tokens = 4 + i, set_want(&asks[i], 4096); /* its end is known before */
                if (cut == 2) asks[i].own_stop = asks[i].want[5 + i], set_want(&asks[i], 4096); /* it is not */
            }
            run_all(&f, &b, 64);
            assert_true(b.drawn_late > 2);
        }
}

/* From outside, between any two steps. */
static void they_are_cancelled_while_ahead(void **state)
{
    (void)state;
    fake f;
    for (int at = 1; at < 6; at++) {
        beside b = {.obliging = true};
        make_all(&f, 2, MASK);
        f.beside = &b;
        ek_engine *e = open_engine(&f, 64, 64, N, 1024);
        submit_all(e);
        for (int i = 0; i < at; i++) ek_engine_step(e);
        asks[0].cancel = asks[7].cancel = true;
        ek_engine_cancel(e, asks[0].id), ek_engine_cancel(e, asks[7].id);
        step_until_idle(e);
        assert_int_equal(asks[0].finish, EK_FINISH_CANCELLED);
        check_all();
        for (int i = 0; i < N; i++) make(&asks[i], &f, i, true, MASK);
        submit_all(e);
        for (int i = 0; i < at; i++) ek_engine_step(e);
        for (int i = 0; i < N; i++) asks[i].cancel = true; /* all leave: the step ahead is nobody's */
        for (int i = 0; i < N; i++) ek_engine_cancel(e, asks[i].id);
        step_until_idle(e);
        check_all();
        ek_engine_close(e);
    }
}

/* Where pages run out no step is begun ahead, and the youngest starts over: with another mask state it would not get
 * its answer. */
static void pages_run_out_while_ahead(void **state)
{
    (void)state;
    fake f;
    uint64_t late = 0;
    for (int pages = 3; pages < 16; pages += 4) {
        beside b = {.obliging = true};
        make_all(&f, 3, MASK);
        f.beside = &b;
        ek_engine *e = open_engine(&f, pages, 64, N, 1024);
        submit_all(e);
        step_until_idle(e);
        check_all();
        ek_engine_stats stats;
        ek_engine_stats_read(e, &stats);
        print_message("%d pages: %d preempted, %d steps begun ahead\n", pages, (int)stats.preempted, (int)b.followed);
        late += b.drawn_late;
        assert_true(b.followed > 0 && (pages > 7 || stats.preempted > 0));
        ek_engine_close(e);
    }
    assert_true(late > 0);
}

/* More clients than places, who take turns as soon as one waits. */
static void clients_take_turns_while_ahead(void **state)
{
    (void)state;
    fake f;
    beside b = {.obliging = true};
    make_all(&f, 4, MASK);
    f.beside = &b;
    ek_engine *e = open_engine(&f, 64, 64, 2, 1024);
    e->turn_seconds = 0;
    submit_all(e);
    for (int i = 0; i < 90; i++) ek_engine_step(e);
    for (int i = 0; i < 3; i++) assert_true(asks[i].n_got > 0); /* three clients */
    step_until_idle(e);
    check_all();
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    assert_true(stats.preempted > 0 && b.drawn_late > 0);
    ek_engine_close(e);
}

/* A draft needs the tokens before it: steps with one are not ahead, those between them are. */
static void drafts_come_between(void **state)
{
    (void)state;
    fake f;
    beside b = {.obliging = true};
    make_all(&f, 2, MASK);
    f.draft = EK_DRAFT_NGRAM, f.draft_max = 6;
    run_all(&f, &b, 64);
    assert_true(b.drawn_late > 0);
}

/* A picture's rows bring their vectors; behind its prompt the reply runs ahead as any other. */
static void prompts_have_spans(void **state)
{
    (void)state;
    static float embedding[20][FAKE_HIDDEN];
    for (int i = 0; i < 20; i++) embedding[i][1] = (float)i;
    fake f;
    beside b = {.obliging = true};
    make_all(&f, 4, MASK);
    for (int i = 2; i < 6; i++) {
        asks[i].span[0] = (ek_prompt_span){5, 25, &embedding[0][0], {[EK_SLIDING] = true}, false};
        asks[i].n_spans = 1;
        set_want(&asks[i], 4096);
    }
    run_all(&f, &b, 64);
    assert_true(b.drawn_late >= REPLY - 2);
}

/* The executor loses a step whose draws it was to make: its rows run again, one by one. */
static void a_step_that_is_lost_runs_again(void **state)
{
    (void)state;
    uint64_t lost = 0, failed = 0;
    fake f;
    for (int why = 0; why < NEEDS; why++) {
        beside b = {0};
        make_all(&f, 3, (need)why);
        run_all(&f, &b, 64);
        lost += b.lost, failed += b.failed;
    }
    assert_true(lost > 0 && failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(requests_that_draw_later_hold_nobody_up),
                                       cmocka_unit_test(they_leave_while_ahead),
                                       cmocka_unit_test(they_are_cancelled_while_ahead),
                                       cmocka_unit_test(pages_run_out_while_ahead),
                                       cmocka_unit_test(clients_take_turns_while_ahead),
                                       cmocka_unit_test(drafts_come_between),
                                       cmocka_unit_test(prompts_have_spans),
                                       cmocka_unit_test(a_step_that_is_lost_runs_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
