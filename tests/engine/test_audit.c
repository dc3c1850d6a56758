/* engine: the audit of cached prefixes finds a page whose bytes changed (engine/audit.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "asks.h"
#include "base/log.h"

/* A cached page of a kind that belongs to position 64 of asks[0]'s prompt, and what it holds. */
static uint64_t *cached_slot(ek_engine *e, fake *f, ek_layer_kind kind)
{
    ek_prefix_key key = {.token = asks[0].prompt, .n = asks[0].n_prompt};
    ek_prefix_find(e->prefix, &key);
    int32_t page = ek_prefix_page(e->prefix, kind, 1);
    assert_true(page >= 0);
    return f->page[kind] + (size_t)page * EK_PAGE_TOKENS + 17;
}

static void a_corrupted_page_is_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < EK_KIND_COUNT; kind++) {
        fake f;
        memset(asks, 0, sizeof asks[0]);
        fake_init(&f, 300, true, true);
        ek_executor on = fake_executor(&f, 64, 64);
        ek_engine_opts o = ek_engine_defaults();
        ek_engine *e;
        ek_engine_stats stats;
        o.chunk = 50;
        o.cache_audit = 1;
        assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
        ask_fill(asks[0].prompt, 250, 8);
        for (int round = 0; round < 3; round++) {
            ask_greedy(&asks[0], &f, 250, 3);
            ask_alone(e, &asks[0]);
        }
        ek_engine_stats_read(e, &stats);
        assert_int_equal(stats.cache_audits, 2);
        assert_int_equal(stats.cache_audit_mismatches, 0);
        *cached_slot(e, &f, (ek_layer_kind)kind) ^= (uint64_t)1 << 40; /* one bit of one value */
        ask_greedy(&asks[0], &f, 250, 3);
        asks[0].n_got = asks[0].n_prompt_logits = 0;
        asks[0].finish = EK_FINISH_NONE;
        ek_request_opts r = opts_of(&asks[0]); /* its answer is wrong: nothing looks at it */
        r.sink = NULL, r.on_prompt_logits = NULL;
        assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
        step_until_idle(e);
        ek_engine_stats_read(e, &stats);
        assert_int_equal(stats.cache_audit_mismatches, 1);
        ask_greedy(&asks[0], &f, 250, 3);
        assert_int_equal(ask_alone(e, &asks[0]), 64); /* the page before it was right */
        ask_greedy(&asks[0], &f, 250, 3);
        assert_int_equal(ask_alone(e, &asks[0]), 249);
        ek_engine_stats_read(e, &stats);
        assert_int_equal(stats.cache_audit_mismatches, 1);
        ek_engine_close(e);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_corrupted_page_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
