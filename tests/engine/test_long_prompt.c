/* A long prompt with a tail that changes costs its tail: rows are counted, at the length that agents have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/hash/rng.h"
#include "engine/request.h"
#include "fake.h"

enum { FRONT = 60000, TAIL = 200, REPLY = 4, ALL = FRONT + TAIL };

static int32_t prompt[ALL];
static int cached;

static void on_event(void *arg, const ek_event *event)
{
    (void)arg;
    cached = event->n_cached;
    assert_true(event->finish != EK_FINISH_ERROR);
}

/* Rows that a prompt of the front and a tail of its own takes. */
static uint64_t rows_of(ek_engine *e, fake *f, uint64_t seed)
{
    uint64_t before = f->rows;
    for (int i = FRONT; i < ALL; i++) prompt[i] = (int32_t)(ek_mix64(seed * ALL + (uint64_t)i) % 90);
    ek_request_opts r = {.tokens = prompt,
                         .n_tokens = ALL,
                         .max_tokens = REPLY,
                         .sampling = ek_sampling_greedy(),
                         .ignore_eos = true,
                         .sink = on_event,
                         .prompt_logits_from = ALL};
    assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
    while (ek_engine_step(e)) continue;
    return f->rows - before;
}

static void a_changing_tail_costs_itself(void **state)
{
    (void)state;
    static const int windows[] = {512, 1024};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int start = 0; start < 2; start++) {
            fake f;
            fake_init(&f, windows[w], true, true);
            f.config.max_position_embeddings = 65536;
            if (start) fake_set_start(&f, 4, 0);
            for (int i = 0; i < FRONT; i++) prompt[i] = (int32_t)(ek_mix64((uint64_t)i) % 90);
            ek_executor x = fake_executor(&f, 1200, 200);
            ek_engine_opts o = ek_engine_defaults();
            ek_engine *e;
            assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
            assert_int_equal(rows_of(e, &f, 1), ALL + REPLY - 1);
            assert_int_equal(cached, 0);
            /* The place is new: from the nearest that is kept. From then on it is known. */
            assert_true(rows_of(e, &f, 2) <= 4 * TAIL + REPLY);
            for (uint64_t seed = 3; seed < 8; seed++) {
                assert_int_equal(rows_of(e, &f, seed), TAIL + REPLY - 1);
                assert_int_equal(cached, FRONT);
            }
            ek_engine_close(e);
        }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_changing_tail_costs_itself)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
