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
static int step, last, longest, max_rows;

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
    last = longest = max_rows = 0;
    int ended = 0, late = 0;
    prompt[0] = (int32_t)(seed % 90);
    ask(e, 40, REPLY, on_stream, NULL);
    for (step = 1;; step++) {
        uint64_t before = f.rows;
        if (!ek_engine_step(e)) break;
        if (f.rows - before > (uint64_t)max_rows) max_rows = (int)(f.rows - before);
        if (last == 0 || late == LATE || ek_mix64(seed * 1000 + (uint64_t)step) % 5) continue;
        for (int i = 0; i < LONG; i++) prompt[i] = (int32_t)(ek_mix64(seed + (uint64_t)(late * LONG + i)) % 90);
        ask(e, late % 3 ? LONG : 700, 20, on_late, &ended);
        late++;
    }
    assert_int_equal(late, LATE);
    assert_int_equal(ended, LATE);
    assert_in_range(longest, 1, MAX_GAP);
    /* what bounds a step: the chunk, and of each request a row and its draft */
    assert_in_range(max_rows, o.chunk, o.chunk + o.max_requests * (1 + (draft ? o.draft_max : 0)));
    ek_engine_close(e);
}

static void a_reply_goes_on(void **state)
{
    (void)state;
    int max = 0;
    for (uint64_t seed = 1; seed <= 6; seed++)
        for (int draft = 0; draft < 2; draft++)
            for (int few = 0; few < 2; few++) {
                run(draft ? EK_DRAFT_NGRAM : EK_DRAFT_OFF, few ? 260 : 2000, seed);
                if (longest > max) max = longest;
            }
    printf("longest gap between two tokens of a reply while %d prompts arrive: %d steps\n", LATE, max);
}

/* --- a very long prompt beside streams */

enum { STREAMS = 8, VERY_LONG = 100000 };

typedef struct stream {
    int last, longest, tokens;
} stream;

static void on_one(void *arg, const ek_event *event)
{
    stream *s = arg;
    assert_true(event->finish != EK_FINISH_ERROR);
    if (event->token < 0) return;
    if (s->last > 0 && step - s->last > s->longest) s->longest = step - s->last;
    s->last = step, s->tokens++;
}

/* Whatever the prompt has behind it, a step takes a chunk of it and one row of each stream, and gives each a token. */
static void streams_go_on_beside_a_prompt_of_100000(void **state)
{
    (void)state;
    static int32_t tokens[VERY_LONG];
    for (int few = 0; few < 2; few++) {
        fake f;
        fake_init(&f, 512, true, true);
        f.config.max_position_embeddings = 131072;
        ek_executor x = fake_executor(&f, few ? 1700 : 4000, 400);
        ek_engine_opts o = ek_engine_defaults(); /* the default chunk */
        ek_engine *e;
        assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
        stream streams[STREAMS] = {0};
        const int steps = VERY_LONG / o.chunk;
        for (int i = 0; i < STREAMS; i++) {
            for (int t = 0; t < 30; t++) tokens[t] = (int32_t)(ek_mix64((uint64_t)(i * 30 + t)) % 90);
            const ek_request_opts r = {.tokens = tokens,
                                       .n_tokens = 30,
                                       .max_tokens = steps + 20,
                                       .sampling = ek_sampling_greedy(),
                                       .ignore_eos = true,
                                       .sink = on_one,
                                       .arg = &streams[i],
                                       .prompt_logits_from = 30};
            assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
        }
        int late = 0;
        max_rows = 0;
        for (step = 1;; step++) {
            const uint64_t before = f.rows;
            if (!ek_engine_step(e)) break;
            if ((int)(f.rows - before) > max_rows) max_rows = (int)(f.rows - before);
            if (step != 5) continue;
            for (int i = 0; i < VERY_LONG; i++) tokens[i] = (int32_t)(ek_mix64(77 + (uint64_t)i) % 90);
            const ek_request_opts r = {.tokens = tokens,
                                       .n_tokens = VERY_LONG,
                                       .max_tokens = 4,
                                       .sampling = ek_sampling_greedy(),
                                       .ignore_eos = true,
                                       .sink = on_late,
                                       .arg = &late,
                                       .prompt_logits_from = VERY_LONG};
            assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
        }
        assert_int_equal(late, 1);
        assert_in_range(max_rows, o.chunk, o.chunk + STREAMS);
        for (int i = 0; i < STREAMS; i++) {
            assert_int_equal(streams[i].tokens, steps + 20);
            assert_in_range(streams[i].longest, 1, MAX_GAP);
        }
        ek_engine_close(e);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_reply_goes_on),
                                       cmocka_unit_test(streams_go_on_beside_a_prompt_of_100000)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
