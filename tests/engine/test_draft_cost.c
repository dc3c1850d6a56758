/* Drafts never make a reply slower: on texts that are made against them the work of all rows is counted, in units of a
 * step of one row, and compared with a step per token. No clock takes part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/log.h"
#include "base/hash/rng.h"
#include "engine/sample/ngram.h"
#include "engine/request.h"
#include "heard.h"

enum { PROMPT = 40, REPLY = 3000, ALL = PROMPT + REPLY, FIRST = 10 };

static int32_t text[ALL + 1];
static const float ROW = 0.25f, DRAFT = 0.1f;

typedef struct work {
    uint64_t steps, drafted, accepted;
    double cost;
} work;

static work run(ek_draft_mode mode, ek_err (*guess)(void *, ek_draft *, int))
{
    fake f;
    fake_init(&f, 50, true, true);
    f.text = text;
    f.guess = guess;
    f.row_cost = ROW, f.draft_cost = DRAFT;
    ek_executor x = fake_executor(&f, 64, 64);
    ek_engine_opts o = ek_engine_defaults();
    ek_engine *e;
    o.draft = mode;
    assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
    continue_text(e, text, PROMPT, REPLY);
    ek_engine_stats s;
    ek_engine_stats_read(e, &s);
    ek_engine_close(e);
    work w = {s.steps, s.drafted_tokens, s.accepted_tokens, 0};
    w.cost = (double)s.steps + (double)ROW * (double)s.drafted_tokens;
    if (guess) w.cost += (double)DRAFT * (double)s.drafted_tokens;
    return w;
}

static void never_slower(const char *what, work w)
{
    double limit = REPLY * (1 + (double)EK_DRAFT_REGAIN) + (double)EK_DRAFT_CREDIT;
    if (w.cost <= limit) return;
    fail_msg("%s: %.0f steps of one row for %d tokens, at most %.0f are right (%llu drafted, %llu accepted)", what,
             w.cost, REPLY, limit, (unsigned long long)w.drafted, (unsigned long long)w.accepted);
}

/* Against the n-grams: a guess is right while nothing is drafted, so that it is trusted, and wrong as soon as it would
 * be drafted. */
static void make_spiteful(uint64_t seed, int alphabet)
{
    const float least = ROW + (1 - ROW) / 10; /* what a first drafted token must promise */
    ek_ngram g;
    ek_ngram_init(&g, ALL);
    for (int i = 0; i < ALL; i++) {
        if (i > 0) ek_ngram_add(&g, text, i, i > PROMPT);
        text[i] = FIRST + (int32_t)(ek_mix64(seed + (uint64_t)i) % (uint64_t)alphabet);
        if (i <= PROMPT || g.source == 0) continue;
        int32_t guess = text[g.source];
        text[i] = ek_ngram_right(&g, 0) > least ? FIRST + (guess - FIRST + 1) % alphabet : guess;
    }
    ek_ngram_fini(&g);
}

static void no_text_makes_ngrams_slow(void **state)
{
    (void)state;
    static const int alphabets[] = {2, 3, 5, 20, 80};
    for (size_t a = 0; a < sizeof alphabets / sizeof *alphabets; a++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            make_spiteful(seed, alphabets[a]);
            never_slower("against n-grams", run(EK_DRAFT_NGRAM, NULL));
            for (int i = 0; i <= ALL; i++)
                text[i] = FIRST + (int32_t)(ek_mix64(seed * ALL + (uint64_t)i) % (uint64_t)alphabets[a]);
            work w = run(EK_DRAFT_NGRAM, NULL);
            never_slower("random text", w);
            if (alphabets[a] == 80) assert_int_equal(w.drafted, 0);
            if (alphabets[a] == 20) assert_true(w.drafted <= 16);
        }
}

/* A text that repeats itself for a while and then never again: drafts end. */
static void drafts_end_with_the_repetition(void **state)
{
    (void)state;
    for (int i = 0; i <= ALL; i++) text[i] = FIRST + (i < 1000 ? i % 9 : (int32_t)(ek_mix64((uint64_t)i) % 80));
    work w = run(EK_DRAFT_NGRAM, NULL);
    assert_true(w.accepted > 800);
    assert_true(w.drafted - w.accepted <= 16);
    assert_true(w.cost < REPLY - 500);
}

/* --- drafters */

static ek_err always_wrong(void *arg, ek_draft *draft, int n)
{
    (void)arg;
    for (int i = 0; i < n; i++)
        for (draft[i].n = 0; draft[i].n < draft[i].max; draft[i].n++)
            draft[i].token[draft[i].n] = FIRST + (text[draft[i].n_tokens + draft[i].n] - FIRST + 1) % 80;
    return EK_OK;
}

/* Right when it is asked for little, wrong when it is trusted. */
static ek_err spiteful(void *arg, ek_draft *draft, int n)
{
    bool wrong = draft[0].max >= 3;
    always_wrong(arg, draft, n);
    for (int i = 0; i < n && !wrong; i++)
        for (int k = 0; k < draft[i].n; k++) draft[i].token[k] = text[draft[i].n_tokens + k];
    return EK_OK;
}

/* Right for the first token, wrong behind it; or for a random number of tokens. */
static ek_err half_right(void *arg, ek_draft *draft, int n)
{
    always_wrong(arg, draft, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < draft[i].n && k < (int)(ek_mix64((uint64_t)draft[i].n_tokens) % 3); k++)
            draft[i].token[k] = text[draft[i].n_tokens + k];
    return EK_OK;
}

static void no_drafter_makes_replies_slow(void **state)
{
    (void)state;
    for (int i = 0; i <= ALL; i++) text[i] = FIRST + (int32_t)(ek_mix64((uint64_t)i) % 80);
    never_slower("a drafter that is wrong", run(EK_DRAFT_AUTO, always_wrong));
    never_slower("a spiteful drafter", run(EK_DRAFT_AUTO, spiteful));
    never_slower("a drafter that is half right", run(EK_DRAFT_AUTO, half_right));
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_makes_ngrams_slow),
        cmocka_unit_test(drafts_end_with_the_repetition),
        cmocka_unit_test(no_drafter_makes_replies_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
