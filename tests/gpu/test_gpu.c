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

#include "../support/drafter.h"
#include "../support/fake_cuda.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "engine/trace.h"
#include "gpu/gpu.h"
#include "gpu/step/run.h"
#include "ops/kv/kv_codec.h"

static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};

static ek_gpu_driver good(void)
{
    ek_gpu_driver d = {.modules = modules, .built_with = 13000};
    fake_cuda_reset(&d.api);
    return d;
}

/* --- models and requests */

static ek_model *open_model_of(const char *shape, int bits, ek_kv_format k, ek_kv_format v)
{
    static ek_config c;
    ek_model *m;
    ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = k, .v_format = v};
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    return m;
}

static ek_model *open_model(const char *shape, int bits, ek_kv_format kv)
{
    return open_model_of(shape, bits, kv, kv);
}

/* Of m; centroids 0: a dense head. */
static ek_drafter *open_drafter(const ek_model *m, int centroids)
{
    static ek_config c;
    ek_drafter *d;
    ek_model_opts o = {.cpu = ek_cpu_detect()};
    drafter_config(&c, ek_model_config(m), centroids);
    assert_int_equal(ek_drafter_synthetic(&d, &c, 5, m, &o), EK_OK);
    return d;
}

enum { REPLY = 6 };

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

static ek_err try(ek_engine *e, ek_trace out[2])
{
    static const int32_t tokens[] = {2, 5, 9, 11, 3};
    ek_ask a[2] = {{.tokens = tokens,
                    .n_tokens = 5,
                    .max_tokens = REPLY,
                    .prompt_logits_from = 5,
                    .ignore_eos = true,
                    .sampling = ek_sampling_greedy()}};
    a[0].digests = true; /* so that steps begin ahead */
    a[1] = a[0];
    a[1].n_tokens = 3, a[1].prompt_logits_from = 3;
    a[1].sampling.temperature = 1;
    return ek_trace_run(e, a, 2, out);
}

static void ask(ek_engine *e, ek_trace out[2])
{
    assert_int_equal(try(e, out), EK_OK);
}

/* --- */

static void steps_are_queued_and_all_is_given_back(void **state)
{
    (void)state;
    static const char *const shapes[] = {"T1", "T2", "T4", "T6", "Q1", "Q2"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ek_gpu_driver d = good();
        ek_gpu *g;
        ek_trace out[2];
        ek_model *m = open_model(shapes[i], shapes[i][0] == 'Q' ? 4 : 0, EK_KV_I16);
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        assert_true(g->bytes > 0);
        ek_engine *e = open_engine(g);
        ask(e, out);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(out[k].finish, EK_FINISH_LENGTH);
            assert_int_equal(out[k].n_reply, REPLY);
            ek_trace_fini(&out[k]);
        }
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
        ek_gpu_driver d = good();
        ek_gpu *g;
        ek_engine *e;
        ek_trace out[3];
        ek_engine_stats stats;
        ek_engine_opts o = ek_engine_defaults();
        ek_model *m = open_model(head ? "T1" : "T2", 0, EK_KV_I16);
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
    ek_gpu_driver d = good();
    ek_gpu *g;
    ek_trace out[2];
    ek_model *m = open_model("T1", 0, EK_KV_I16);
    ek_drafter *drafter = open_drafter(m, 0);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    fake.free = fake.used + 1000;
    assert_int_equal(ek_gpu_add_drafter(g, drafter), EK_ENOMEM);
    assert_non_null(strstr(ek_err_text(), "cuda:0 has no room for the weights"));
    fake.free = (size_t)1 << 30;
    ek_engine *e = open_engine(g);
    ask(e, out);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k].finish, EK_FINISH_LENGTH);
        ek_trace_fini(&out[k]);
    }
    ek_engine_close(e);
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_drafter_close(drafter);
    ek_model_close(m);
}

static void what_does_not_fit_is_refused_with_numbers(void **state)
{
    (void)state;
    ek_gpu_driver d = good();
    ek_gpu *g = NULL;
    ek_model *m = open_model("T1", 0, EK_KV_I16);
    fake.free = 1000;
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_ENOMEM);
    assert_non_null(
        strstr(ek_err_text(), "cuda:0 has no room for the weights: 0.00 GB asked for, 0.00 of 0.00 GB free"));
    fake_cuda_is_empty();
    d = good();
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
        ek_gpu_driver d = good();
        ek_gpu *g = NULL;
        ek_trace out[2];
        ek_model *m = open_model("Q1", 4, (ek_kv_format)f);
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        ek_engine *e = open_engine(g);
        ask(e, out);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(out[k].finish, EK_FINISH_LENGTH);
            ek_trace_fini(&out[k]);
        }
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
        ek_gpu_driver d = good();
        ek_gpu *g = NULL;
        ek_model *m = open_model_of("Q1", 4, pair[i][0], pair[i][1]);
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
        ek_gpu_driver d = good();
        ek_gpu *g;
        ek_trace out[2];
        ek_model *m = open_model("Q2", 4, EK_KV_I16);
        assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
        ek_engine *e = open_engine(g);
        if (way == 2) fake.sync = 700; /* the kernel's error shows at the end of the step */
        fake.fail_at = way < 2 ? fake.launches + (way ? 180 : 7) : 0, fake.fail_with = 700;
        ask(e, out);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(out[k].finish, EK_FINISH_ERROR);
            assert_non_null(strstr(out[k].text, "an illegal memory access was encountered"));
            assert_non_null(strstr(out[k].text, "the device cannot be used any more"));
            if (way != 1) assert_int_equal(out[k].n_reply, 0);
            ek_trace_fini(&out[k]);
        }
        assert_int_equal(try(e, out), EK_ESHUTDOWN);
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
    char why[256] = "";
    o.max_requests = 2, o.chunk = 16, o.ctx_tokens = 40;
    if (drafter) o.draft = EK_DRAFT_AUTO, o.draft_max = 2;
    ek_err err = ek_gpu_open(&g, d, m, 0);
    if (!err && drafter) err = ek_gpu_add_drafter(g, drafter);
    if (!err) {
        ek_executor on = ek_gpu_executor(g);
        on.row_cost = on.draft_cost = 0; /* all drafts that there are */
        err = ek_engine_open_on(&e, &on, &o);
    }
    if (err) {
        assert_true(strlen(ek_err_text()) > 20);
        assert_null(strchr(ek_err_text(), '\n'));
    } else {
        *from = fake.calls;
        ask(e, out);
        *to = fake.calls;
        *refused = ek_engine_broken(e, why, sizeof why);
        assert_true(*refused == (strstr(why, "cannot be used any more") != NULL));
        static const int32_t token = 3;
        ek_request_opts one = {.tokens = &token, .n_tokens = 1, .max_tokens = 1, .sampling = ek_sampling_greedy()};
        if (*refused) assert_int_equal(ek_engine_submit(e, &one, NULL), EK_ESHUTDOWN);
    }
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
        ek_model *m = open_model(shapes[i], shapes[i][0] == 'Q' ? 4 : 0, EK_KV_Q8);
        ek_drafter *drafter = i == 2 ? open_drafter(m, 0) : NULL;
        ek_gpu_driver d = good();
        ek_trace whole[2], out[2];
        bool refused;
        int from = 0, to = 0, a, b, answered = 0, failed = 0;
        assert_true(asked(m, drafter, &d, whole, &refused, &from, &to));
        const int calls = fake.calls;
        assert_true(calls > 500);
        for (int n = 1; n <= calls; n++)
            for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
                if (n > from && n % 4 != (int)k && (k || i == 0)) continue; /* steps are alike */
                d = good();
                fake.fail_call = n, fake.fail_with = errors[k];
                if (!asked(m, drafter, &d, out, &refused, &a, &b)) {
                    assert_true(n <= from);
                    continue;
                }
                assert_true(n > from || !fake.broken);
                bool error = false;
                for (int r = 0; r < 2; r++) {
                    if (out[r].finish == EK_FINISH_ERROR) {
                        error = true;
                        assert_true(strlen(out[r].text) > 20);
                    } else {
                        assert_int_equal(out[r].finish, EK_FINISH_LENGTH);
                        assert_int_equal(out[r].n_reply, REPLY);
                    }
                    ek_trace_fini(&out[r]);
                }
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
    ek_gpu_driver d = good();
    ek_gpu *g;
    ek_trace out[2];
    ek_model *m = open_model("Q1", 4, EK_KV_I16);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    ek_engine *e = open_engine(g);
    fake.fail_at = fake.launches + 9, fake.fail_with = 701;
    ask(e, out);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k].finish, EK_FINISH_LENGTH);
        assert_int_equal(out[k].n_reply, REPLY);
        ek_trace_fini(&out[k]);
    }
    ek_engine_close(e);
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_model_close(m);
}

/* After the copy the model's own weights can go; nothing computes on the CPU then. */
static void released_weights_compute_nothing(void **state)
{
    (void)state;
    ek_gpu_driver d = good();
    ek_gpu *g, *other = NULL;
    ek_scratch *s;
    ek_model *m = open_model("T1", 0, EK_KV_I16);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    ek_model_release_weights(m);
    assert_int_equal(ek_scratch_open(&s, m, 1, 1, 10), EK_EINVAL);
    assert_int_equal(ek_gpu_open(&other, &d, m, 0), EK_EINVAL);
    ek_trace out[2];
    ek_engine *e = open_engine(g); /* T1 has embeddings per layer, which are still read */
    ask(e, out);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k].finish, EK_FINISH_LENGTH);
        ek_trace_fini(&out[k]);
    }
    ek_engine_close(e);
    ek_gpu_close(g);
    fake_cuda_is_empty();
    ek_model_close(m);
}

/* What is read of a page is what a page that it is written to holds, and its neighbours stay. */
static void pages_go_to_the_host_and_back(void **state)
{
    (void)state;
    ek_gpu_driver d = good();
    ek_gpu *g;
    ek_model *m = open_model("Q1", 4, EK_KV_I16);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    ek_executor on = ek_gpu_executor(g);
    ek_executor_sizes z = {.max_rows = 4, .max_logits = 2, .max_ctx = 128, .max_requests = 1, .n_pages = {3, 3}};
    assert_int_equal(on.open(on.arg, &z), EK_OK);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        size_t bytes = on.layout->page_bytes[k];
        uint8_t *in = malloc(bytes), *out = malloc(bytes);
        for (size_t i = 0; i < bytes; i++) in[i] = (uint8_t)(i * 7 + 1);
        on.poison_page(on.arg, (ek_layer_kind)k, 0), on.poison_page(on.arg, (ek_layer_kind)k, 2);
        on.write_page(on.arg, (ek_layer_kind)k, 1, in);
        on.read_page(on.arg, (ek_layer_kind)k, 1, out);
        assert_memory_equal(in, out, bytes);
        on.copy_page(on.arg, (ek_layer_kind)k, 1, 2);
        on.read_page(on.arg, (ek_layer_kind)k, 2, out);
        assert_memory_equal(in, out, bytes);
        on.read_page(on.arg, (ek_layer_kind)k, 0, out);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(out[i], 0xff);
        free(in), free(out);
    }
    on.close(on.arg);
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
