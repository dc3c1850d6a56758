/* After start a step allocates nothing: malloc and its kin are counted while steps run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "../support/allocated.h"
#include "base/log.h"
#include "scene.h"

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    if (allocated() < 0) skip();
    const int first = allocated();
    void *volatile p = malloc(1);
    free(p);
    assert_true(allocated() > first); /* the counter is in place */
    static const uint64_t seeds[] = {0, 1, 6, 7, 8};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        static scene s;
        ek_pool *pool;
        ek_model *model;
        assert_int_equal(scene_open(&s, seeds[i]), EK_OK);
        assert_int_equal(ek_pool_open(&pool, 2), EK_OK);
        assert_int_equal(model_again(&s, &model, s.opts.cpu, pool), EK_OK);
        ek_engine_opts o = ek_engine_defaults();
        ek_engine *e;
        o.max_requests = 4;
        o.max_queue = MAX_ASKS;
        o.chunk = 100;
        o.ctx_tokens = 1024;
        o.draft = EK_DRAFT_NGRAM;
        ek_executor on = ek_executor_cpu(model);
        on.row_cost = 0;
        assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
        for (int k = 0; k < s.n; k++) {
            const ek_ask *a = &s.ask[k];
            ek_request_opts r = {.tokens = a->tokens,
                                 .n_tokens = a->n_tokens,
                                 .max_tokens = a->max_tokens,
                                 .sampling = a->sampling,
                                 .prompt_logits_from = a->n_tokens};
            assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
        }
        const int before = allocated();
        while (ek_engine_step(e)) continue;
        assert_int_equal(allocated(), before);
        ek_engine_close(e);
        ek_model_close(model);
        ek_pool_close(pool);
        scene_close(&s);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
