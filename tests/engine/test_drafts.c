/* Drafts: what is guessed from a text, how many tokens are drafted, and that nothing else changes. That the answers
 * stay the same whatever is drafted is in test_company.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "asks.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "engine/sample/ngram.h"

/* --- the text */

static void repeated_text_is_guessed(void **state)
{
    (void)state;
    enum { N = 300 };
    int32_t text[2 * N + 20];
    ek_ngram g;
    ek_ngram_init(&g, 2 * N + 20);
    for (int i = 0; i < N; i++) text[i] = (int32_t)(ek_mix64((uint64_t)i) % 262144);
    memcpy(text + N, text, sizeof *text * N);
    ek_ngram_add(&g, text, N, false);
    assert_int_equal(g.source, 0);
    assert_true(ek_ngram_right(&g, 0) == 0);
    for (int n = N + 2; n < 2 * N - 8; n++) { /* two tokens are enough to know the place */
        int32_t guess[2 * N + 20];
        ek_ngram_add(&g, text, n, true);
        assert_int_equal(g.source, n - N);
        memcpy(guess, text, sizeof *text * (size_t)n);
        ek_ngram_guess(&g, guess, 8);
        assert_memory_equal(guess, text, sizeof *text * (size_t)(n + 8));
    }
    assert_int_equal(g.match, EK_NGRAM_MAX_MATCH);
    assert_true(ek_ngram_right(&g, 0) > 0.99f && ek_ngram_right(&g, 0) < 1);
    ek_ngram_fini(&g);
}

/* A guess may go on with itself: 1 2 3 1 2 3 1 2 -> 3 1 2 3 1 ... */
static void a_period_is_guessed(void **state)
{
    (void)state;
    int32_t text[40];
    ek_ngram g;
    ek_ngram_init(&g, 40);
    for (int i = 0; i < 8; i++) text[i] = 1 + i % 3;
    ek_ngram_add(&g, text, 8, false);
    ek_ngram_guess(&g, text, 20);
    for (int i = 0; i < 28; i++) assert_int_equal(text[i], 1 + i % 3);
    ek_ngram_fini(&g);
}

/* In any text the source follows tokens equal to the last ones; in a small alphabet guesses are judged as they are. */
static void the_source_follows_equal_tokens(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        enum { N = 500 };
        int32_t text[N];
        int bits = (int)(seed % 5), judged = 0;
        ek_ngram g;
        ek_ngram_init(&g, seed % 2 ? N : 1); /* a small index forgets, and is right about the rest */
        for (int i = 0; i < N; i++) text[i] = (int32_t)(ek_mix64(seed * N + (uint64_t)i) & ((2u << bits) - 1));
        for (int n = 1; n <= N; n++) {
            if (g.source > 0) judged++;
            ek_ngram_add(&g, text, n, true);
            assert_int_equal(g.n, n);
            if (g.source == 0) continue;
            assert_true(g.source < n && g.match >= 2 && g.match <= g.source);
            assert_memory_equal(text + g.source - g.match, text + n - g.match, sizeof *text * (size_t)g.match);
        }
        if (bits == 4 && judged > 200) assert_true(ek_ngram_right(&g, 0) < 0.6f);
        for (int b = 0; b < EK_NGRAM_BUCKETS; b++) assert_true(g.right[b] >= 0 && g.right[b] <= 1);
        ek_ngram_fini(&g);
    }
}

/* --- how many tokens */

static ek_err guess_right(void *arg, ek_draft *draft, int n)
{
    (void)arg;
    for (int i = 0; i < n; i++) {
        ek_draft *d = &draft[i];
        const ask *a = guess_for->slot[d->seq->slot]->user;
        int at = d->n_tokens - a->n_prompt;
        for (d->n = 0; d->n < d->max && at + d->n < a->n_want; d->n++) d->token[d->n] = a->want[at + d->n];
    }
    return EK_OK;
}

static int times_asked;

static ek_err guess_wrong(void *arg, ek_draft *draft, int n)
{
    times_asked++;
    guess_right(arg, draft, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < draft[i].n; k++) draft[i].token[k] = (draft[i].token[k] + 1) % 90;
    return EK_OK;
}

static bool masks;       /* requests have them */
static uint64_t lengths; /* seed of their lengths; 0: all the same */

static ek_engine_stats run(fake *f, int requests, int max_tokens, int full_pages)
{
    ek_engine *e = open_engine(f, full_pages, 64, requests, 100);
    for (int i = 0; i < requests; i++) {
        grow(&asks[i], f, 900 + lengths * 8 + (uint64_t)i, lengths ? 60 : 20);
        asks[i].ignore_eos = true;
        asks[i].max_tokens = max_tokens;
        asks[i].masked = masks;
        if (lengths) asks[i].max_tokens = 20 + (int)(ek_mix64(lengths * 8 + (uint64_t)i) % 95);
        set_want(&asks[i], 4096);
        submit(e, &asks[i]);
    }
    step_until_idle(e);
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    uint64_t drafted = 0, accepted = 0, tokens = 0;
    for (int i = 0; i < requests; i++) {
        check(&asks[i]);
        drafted += (uint64_t)asks[i].n_drafted, accepted += (uint64_t)asks[i].n_accepted;
        tokens += (uint64_t)asks[i].n_got;
    }
    assert_int_equal(stats.drafted_tokens, drafted);
    assert_int_equal(stats.accepted_tokens, accepted);
    assert_int_equal(stats.reply_tokens, tokens);
    ek_engine_close(e);
    return stats;
}

static fake drafting(ek_err (*guess)(void *, ek_draft *, int))
{
    fake f;
    fake_init(&f, 50, true, true);
    f.draft = EK_DRAFT_AUTO;
    f.guess = guess;
    f.row_cost = 0.25f;
    f.draft_cost = 0.1f;
    return f;
}

static void right_drafts_save_steps(void **state)
{
    (void)state;
    fake f = drafting(guess_right);
    ek_engine_stats s = run(&f, 1, 109, 64);
    assert_int_equal(s.accepted_tokens, s.drafted_tokens);
    assert_true(s.steps <= 109 / 9 + 3);
}

/* A drafter that is always wrong is left alone after some tries, and tried again rarely. */
static void wrong_drafts_end(void **state)
{
    (void)state;
    fake f = drafting(guess_wrong);
    ek_engine_stats s = run(&f, 1, 110, 64);
    assert_int_equal(s.accepted_tokens, 0);
    assert_int_equal(s.steps, 110);
    assert_true(s.drafted_tokens > 5 && s.drafted_tokens <= 20);
    int asked = times_asked;
    f = drafting(guess_wrong);
    masks = true; /* most of what is wrong is not even allowed: that counts too */
    run(&f, 1, 110, 64);
    masks = false;
    assert_true(times_asked - asked <= 12);
}

static ek_err guess_right_later(void *arg, ek_draft *draft, int n)
{
    guess_right(arg, draft, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < draft[i].n; k++)
            if (draft[i].n_tokens < 40) draft[i].token[k] = (draft[i].token[k] + 1) % 90;
    return EK_OK;
}

static void a_drafter_gets_another_chance(void **state)
{
    (void)state;
    fake f = drafting(guess_right_later);
    ek_engine_stats s = run(&f, 1, 115, 64);
    assert_true(s.accepted_tokens > 15);
}

/* Where rows cost what tokens bring, there is nothing to gain but by certain guesses. */
static void many_requests_draft_less(void **state)
{
    (void)state;
    fake f = drafting(guess_right);
    f.draft_max = 4;
    ek_engine_stats one = run(&f, 1, 60, 64);
    assert_true(one.drafted_tokens > 40);
    f = drafting(guess_right);
    ek_engine_stats many = run(&f, 16, 60, 64);
    assert_true(many.drafted_tokens < 16 * 2);
}

/* A pool that is just large enough: no request starts over because of another one's draft. */
static void drafts_take_no_page_that_another_needs(void **state)
{
    (void)state;
    for (lengths = 1; lengths <= 100; lengths++) {
        int pages = 3 + (int)(lengths % 2);
        fake f = drafting(guess_wrong);
        f.draft = EK_DRAFT_OFF;
        ek_engine_stats without = run(&f, 3, 0, pages);
        f = drafting(guess_wrong);
        f.row_cost = f.draft_cost = 0;
        ek_engine_stats with = run(&f, 3, 0, pages);
        assert_true(with.preempted <= without.preempted);
        assert_true(with.steps <= without.steps);
    }
    lengths = 0;
}

/* A token whose successor cannot be computed is delivered before the failure, as without a draft. */
static void a_failure_behind_a_draft_comes_where_it_belongs(void **state)
{
    (void)state;
    for (int at = 25; at < 45; at++) {
        fake f = drafting(guess_right);
        f.row_cost = f.draft_cost = 0;
        f.nan_at = at;
        ek_engine *e = open_engine(&f, 64, 64, 2, 100);
        grow(&asks[0], &f, 900, 20);
        asks[0].ignore_eos = true;
        asks[0].max_tokens = 60;
        set_want(&asks[0], 4096);
        submit(e, &asks[0]);
        step_until_idle(e);
        assert_int_equal(asks[0].finish, EK_FINISH_ERROR);
        assert_int_equal(asks[0].n_got, at + 1 - asks[0].n_prompt);
        assert_memory_equal(asks[0].got, asks[0].want, sizeof *asks[0].got * (size_t)asks[0].n_got);
        assert_non_null(strstr(asks[0].text, "are not numbers"));
        ek_engine_close(e);
    }
}

static void options_have_ranges(void **state)
{
    (void)state;
    fake f = drafting(NULL);
    static const int wrong[] = {0, -1, EK_DRAFT_MAX + 1};
    for (size_t i = 0; i < 3; i++) {
        ek_executor x = fake_executor(&f, 8, 8);
        ek_engine_opts o = ek_engine_defaults();
        ek_engine *e = NULL;
        o.draft = EK_DRAFT_NGRAM;
        o.draft_max = wrong[i];
        assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), "draft_max is"));
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_text_is_guessed),
        cmocka_unit_test(a_period_is_guessed),
        cmocka_unit_test(the_source_follows_equal_tokens),
        cmocka_unit_test(right_drafts_save_steps),
        cmocka_unit_test(wrong_drafts_end),
        cmocka_unit_test(a_drafter_gets_another_chance),
        cmocka_unit_test(many_requests_draft_less),
        cmocka_unit_test(drafts_take_no_page_that_another_needs),
        cmocka_unit_test(a_failure_behind_a_draft_comes_where_it_belongs),
        cmocka_unit_test(options_have_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
