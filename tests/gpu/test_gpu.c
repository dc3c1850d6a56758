/* The executor of a device on a driver made of host functions, whose kernels compute nothing: what is taken is given
 * back, what does not fit is refused with numbers, and a device that fails ends requests and never answers. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "faked.h"
#include "gpu/step/run.h"
#include "ops/kv/kv_codec.h"

static ek_model *open_model(const char *shape, ek_kv_format kv)
{
    return open_tiny(shape, kv, kv, false);
}

static ek_engine *open_engine(ek_gpu *g)
{
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = ek_gpu_executor(g);
    o.max_requests = 2, o.chunk = 64, o.ctx_tokens = 200;
    assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
    return e;
}

static ek_err try_n(ek_engine *e, ek_trace *out, int n)
{
    static const int32_t tokens[] = {2, 5, 9, 11, 3};
    ek_ask a[3];
    for (int i = 0; i < n; i++)
        a[i] = (ek_ask){.tokens = tokens,
                        .n_tokens = 5 - i,
                        .max_tokens = REPLY * (i + 1),
                        .prompt_logits_from = 5 - i,
                        .ignore_eos = true,
                        .sampling = ek_sampling_greedy()};
    return ek_trace_run(e, a, n, out);
}

static void steps_are_queued_and_all_is_given_back(void **state)
{
    (void)state;
    static const char *const shapes[] = {"T1", "T2", "T4", "T6", "Q1", "Q2"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ek_gpu_driver d = faked(1);
        ek_gpu *g;
        ek_model *m = open_model(shapes[i], EK_KV_I16);
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        assert_true(g->bytes > 0);
        ek_engine *e = open_engine(g);
        check_replies(e, true);
        assert_true(fake.graph_launches > 0); /* both decode, step after step */
        ek_engine_close(e);
        ek_gpu_close(g);
        fake_cuda_is_empty();
        ek_model_close(m);
    }
}

/* Its kernels find nothing here, so drafts and samples are all token 0, which stands. With T2 a draft of three rows
 * attends by other kernels than the model's steps of two. */
static void drafts_are_queued_and_all_is_given_back(void **state)
{
    (void)state;
    for (int head = 0; head < 2; head++) {
        ek_gpu_driver d = faked(1);
        ek_gpu *g;
        ek_engine *e;
        ek_trace out[3];
        ek_engine_stats stats;
        ek_engine_opts o = ek_engine_defaults();
        ek_model *m = open_model(head ? "T1" : "T2", EK_KV_I16);
        ek_drafter *drafter = open_drafter(m, head ? 11 : 0);
        o.max_requests = 3, o.chunk = 64, o.ctx_tokens = 200, o.draft = EK_DRAFT_AUTO, o.draft_max = 3;
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        assert_int_equal(ek_gpu_add_drafter(g, drafter), EK_OK);
        ek_model_release_weights(m), ek_model_release_weights(ek_drafter_model(drafter));
        for (int round = 0; round < 2; round++) {
            ek_executor on = ek_gpu_executor(g);
            assert_true(on.draft_cost > 0 && on.draft_cost < 10);
            on.row_cost = on.draft_cost = 0;
            assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
            assert_int_equal(try_n(e, out, 3), EK_OK);
            for (int k = 0; k < 3; k++) {
                assert_int_equal(out[k].finish, EK_FINISH_LENGTH);
                assert_int_equal(out[k].n_reply, REPLY * (k + 1));
                ek_trace_fini(&out[k]);
            }
            ek_engine_stats_read(e, &stats);
            assert_true(stats.drafted_tokens > 0 && stats.accepted_tokens > 0);
            ek_engine_close(e);
        }
        ek_gpu_close(g);
        fake_cuda_is_empty();
        ek_drafter_close(drafter);
        ek_model_close(m);
    }
}

/* A drafter without room leaves the model's device as it was. */
static void a_drafter_may_not_fit(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(1);
    ek_gpu *g;
    ek_model *m = open_model("T1", EK_KV_I16);
    ek_drafter *drafter = open_drafter(m, 0);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    fake.free = fake.used + 1000;
    assert_int_equal(ek_gpu_add_drafter(g, drafter), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "cuda:0 has no room for the weights"));
    fake.free = (size_t)1 << 30;
    ek_engine *e = open_engine(g);
    check_replies(e, true);
    ek_engine_close(e);
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_drafter_close(drafter);
    ek_model_close(m);
}

static void what_does_not_fit_is_refused_with_numbers(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(1);
    ek_gpu *g = NULL;
    ek_model *m = open_model("T1", EK_KV_I16);
    fake.free = 1000;
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_ENOMEM);
    assert_non_null(
        strstr(ek_err_text(), "cuda:0 has no room for the weights: 0.00 GB asked for, 0.00 of 0.00 GB free"));
    fake_cuda_is_empty();
    d = faked(1);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    fake.free = fake.used + (4 << 20);
    ek_executor on = ek_gpu_executor(g);
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    o.ctx_tokens = 200;
    assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "the device has 0.00 GB free; keys and values need"));
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_model_close(m);
}

static void every_format_of_keys_and_values_opens(void **state)
{
    (void)state;
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++) {
        ek_gpu_driver d = faked(1);
        ek_gpu *g = NULL;
        ek_model *m = open_model("Q1", (ek_kv_format)f);
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        ek_engine *e = open_engine(g);
        check_replies(e, true);
        ek_engine_close(e);
        ek_gpu_close(g);
        fake_cuda_is_empty();
        ek_model_close(m);
    }
}

static void keys_in_integers_ask_for_values_in_integers(void **state)
{
    (void)state;
    static const ek_kv_format pair[][2] = {
        {EK_KV_I12, EK_KV_F16}, {EK_KV_Q8, EK_KV_I8}, {EK_KV_I12, EK_KV_I8}, {EK_KV_I8, EK_KV_I12}};
    for (int i = 0; i < 4; i++) {
        ek_gpu_driver d = faked(1);
        ek_gpu *g = NULL;
        ek_model *m = open_tiny("Q1", pair[i][0], pair[i][1], false);
        if (i < 2) {
            assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_EUNSUPPORTED);
            assert_non_null(strstr(ek_err_text(), "both in integers"));
            assert_non_null(strstr(ek_err_text(), ek_kv_format_name(pair[i][0])));
            assert_non_null(strstr(ek_err_text(), ek_kv_format_name(pair[i][1])));
        } else {
            assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
            ek_gpu_close(g);
        }
        fake_cuda_is_empty();
        ek_model_close(m);
    }
}

/* The driver's error is sticky: requests of this step end with its sentence, without a token, and later ones are
 * refused with it. */
static void a_broken_device_never_answers(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        ek_gpu_driver d = faked(1);
        ek_gpu *g;
        ek_trace out[2];
        ek_model *m = open_model("Q2", EK_KV_I16);
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        ek_engine *e = open_engine(g);
        if (way == 2) fake.sync = 700; /* the kernel's error shows at the end of the step */
        fake.fail_at = way < 2 ? fake.launches + (way ? 180 : 7) : 0, fake.fail_with = 700;
        assert_int_equal(try_two(e, out, true), EK_OK);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(out[k].finish, EK_FINISH_ERROR);
            assert_non_null(strstr(out[k].text, "an illegal memory access was encountered"));
            assert_non_null(strstr(out[k].text, "the device cannot be used any more"));
            if (way != 1) assert_int_equal(out[k].n_reply, 0);
            ek_trace_fini(&out[k]);
        }
        assert_int_equal(try_two(e, out, true), EK_ESHUTDOWN);
        assert_non_null(strstr(ek_err_text(), "an illegal memory access was encountered"));
        ek_engine_close(e);
        ek_gpu_close(g);
        ek_model_close(m);
    }
}

/* Opens a model, with a drafter or NULL, and asks; false if it could not be opened, which one clear line explains. */
static bool asked(ek_model *m, const ek_drafter *drafter, const ek_gpu_driver *d, ek_trace out[2], bool *refused,
                  int *from, int *to)
{
    ek_gpu *g = NULL;
    ek_engine *e = NULL;
    ek_engine_opts o = ek_engine_defaults();
    o.max_requests = 2, o.chunk = 16, o.ctx_tokens = 40;
    if (drafter) o.draft = EK_DRAFT_AUTO, o.draft_max = 2;
    ek_err err = ek_gpu_open(&g, d, m, 0);
    if (!err && drafter) err = ek_gpu_add_drafter(g, drafter);
    if (!err) {
        ek_executor on = ek_gpu_executor(g);
        on.row_cost = on.draft_cost = 0; /* all drafts that there are */
        err = ek_engine_open_on(&e, &on, &o);
    }
    if (err) check_refusal();
    else ask_failing(e, out, refused, from, to);
    if (e) ek_engine_close(e);
    ek_gpu_close(g);
    return !err;
}

/* Every single call of the driver fails once: nothing crashes, a request either has the reply it has without the
 * failure or ends with the sentence, and after an error that stays none is accepted any more. */
static void any_call_may_fail(void **state)
{
    (void)state;
    static const CUresult errors[] = {700, 701, EK_CU_OUT_OF_MEMORY};
    static const char *const shapes[] = {"T1", "Q2", "T2"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ek_model *m = open_model(shapes[i], EK_KV_Q8);
        ek_drafter *drafter = i == 2 ? open_drafter(m, 0) : NULL;
        ek_gpu_driver d = faked(1);
        ek_trace whole[2], out[2];
        bool refused;
        int from = 0, to = 0, a, b, answered = 0, failed = 0;
        assert_true(asked(m, drafter, &d, whole, &refused, &from, &to));
        const int calls = fake.calls;
        assert_true(calls > 500);
        for (int n = 1; n <= calls; n++)
            for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
                if (n > from && n % 4 != (int)k && (k || i == 0)) continue; /* steps are alike */
                d = faked(1);
                fake.fail_call = n, fake.fail_with = errors[k];
                if (!asked(m, drafter, &d, out, &refused, &a, &b)) {
                    assert_true(n <= from);
                    continue;
                }
                assert_true(n > from || !fake.broken);
                const bool error = check_failing(out);
                if (fake.broken && n <= to) assert_true(error && refused);
                if (errors[k] == 700 && !fake.broken) assert_true(!error && !refused); /* a call that gives back */
                answered += !error, failed += error;
            }
        assert_true(answered > 0 && failed > 0);
        print_message("%s: each of %d calls, %d runs answered, %d ended with errors\n", shapes[i], calls, answered,
                      failed);
        for (int r = 0; r < 2; r++) ek_trace_fini(&whole[r]);
        ek_drafter_close(drafter);
        ek_model_close(m);
    }
}

/* Another error fails one step; its requests are run again alone, as after any error of an executor. */
static void an_error_that_passes_costs_a_step(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(1);
    ek_gpu *g;
    ek_model *m = open_model("Q1", EK_KV_I16);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    ek_engine *e = open_engine(g);
    fake.fail_at = fake.launches + 9, fake.fail_with = 701;
    check_replies(e, true);
    ek_engine_close(e);
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_model_close(m);
}

/* After the copy the model's own weights can go; nothing computes on the CPU then. */
static void released_weights_compute_nothing(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(1);
    ek_gpu *g, *other = NULL;
    ek_scratch *s;
    ek_model *m = open_model("T1", EK_KV_I16);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    ek_model_release_weights(m);
    assert_int_equal(ek_scratch_open(&s, m, 1, 1, 10), EK_EINVAL);
    assert_int_equal(ek_gpu_open(&other, &d, m, 0), EK_EINVAL);
    ek_engine *e = open_engine(g); /* T1 has embeddings per layer, which are still read */
    check_replies(e, true);
    ek_engine_close(e);
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_model_close(m);
}

static void pages_go_to_the_host_and_back(void **state)
{
    (void)state;
    ek_gpu_driver d = faked(1);
    ek_gpu *g;
    ek_model *m = open_model("Q1", EK_KV_I16);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    ek_executor on = ek_gpu_executor(g);
    check_pages(&on);
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_model_close(m);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_queued_and_all_is_given_back),
        cmocka_unit_test(drafts_are_queued_and_all_is_given_back),
        cmocka_unit_test(a_drafter_may_not_fit),
        cmocka_unit_test(what_does_not_fit_is_refused_with_numbers),
        cmocka_unit_test(every_format_of_keys_and_values_opens),
        cmocka_unit_test(keys_in_integers_ask_for_values_in_integers),
        cmocka_unit_test(a_broken_device_never_answers),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(an_error_that_passes_costs_a_step),
        cmocka_unit_test(released_weights_compute_nothing),
        cmocka_unit_test(pages_go_to_the_host_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
