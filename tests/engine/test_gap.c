/* A reply goes on while others arrive: every step gives it its next token, whatever prompts the step shares. Counted in
 * steps, so that the machine's speed does not matter; a step is bounded by the chunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/log.h"
#include "base/hash/rng.h"
#include "engine/request.h"
#include "fake.h"

enum { LONG = 6000, REPLY = 200, LATE = 12, MAX_GAP = 2 };

static int32_t prompt[LONG];
static int step, last, longest, most_rows;

static void on_stream(void *arg, const ek_event *event)
{
    (void)arg;
    assert_true(event->finish != EK_FINISH_ERROR);
    if (event->token < 0) return;
    if (last > 0 && step - last > longest) longest = step - last;
    last = step;
}

static void on_late(void *arg, const ek_event *event)
{
    if (event->finish) ++*(int *)arg;
    assert_true(event->finish != EK_FINISH_ERROR);
}

static void ask(ek_engine *e, int n, int reply, ek_sink_fn *sink, int *ended)
{
    ek_request_opts r = {.tokens = prompt,
                         .n_tokens = n,
                         .max_tokens = reply,
                         .sampling = ek_sampling_greedy(),
                         .ignore_eos = true,
                         .sink = sink,
                         .arg = ended,
                         .prompt_logits_from = n};
    assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
}

/* pages: of each kind; with few of them the late ones wait for room or start over. */
static void run(ek_draft_mode draft, int pages, uint64_t seed)
{
    fake f;
    fake_init(&f, 512, true, true);
    f.config.max_position_embeddings = 16384;
    f.draft = draft;
    ek_executor x = fake_executor(&f, pages, pages);
    ek_engine_opts o = ek_engine_defaults(); /* the default chunk */
    o.draft = draft, o.draft_max = 8;
    ek_engine *e;
    assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
    last = longest = most_rows = 0;
    int ended = 0, late = 0;
    prompt[0] = (int32_t)(seed % 90);
    ask(e, 40, REPLY, on_stream, NULL);
    for (step = 1;; step++) {
        uint64_t before = f.rows;
        if (!ek_engine_step(e)) break;
        if (f.rows - before > (uint64_t)most_rows) most_rows = (int)(f.rows - before);
        if (last == 0 || late == LATE || ek_mix64(seed * 1000 + (uint64_t)step) % 5) continue;
        for (int i = 0; i < LONG; i++) prompt[i] = (int32_t)(ek_mix64(seed + (uint64_t)(late * LONG + i)) % 90);
        ask(e, late % 3 ? LONG : 700, 20, on_late, &ended);
        late++;
    }
    assert_int_equal(late, LATE);
    assert_int_equal(ended, LATE);
    assert_in_range(longest, 1, MAX_GAP);
    /* what bounds a step: the chunk, and of each request a row and its draft */
    assert_in_range(most_rows, o.chunk, o.chunk + o.max_requests * (1 + (draft ? o.draft_max : 0)));
    ek_engine_close(e);
}

static void a_reply_goes_on(void **state)
{
    (void)state;
    int most = 0;
    for (uint64_t seed = 1; seed <= 6; seed++)
        for (int draft = 0; draft < 2; draft++)
            for (int few = 0; few < 2; few++) {
                run(draft ? EK_DRAFT_NGRAM : EK_DRAFT_OFF, few ? 260 : 2000, seed);
                if (longest > most) most = longest;
            }
    printf("longest gap between two tokens of a reply while %d prompts arrive: %d steps\n", LATE, most);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_reply_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
