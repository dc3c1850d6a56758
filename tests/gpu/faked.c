#include "faked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../support/drafter.h"
#include "base/machine/cpu.h"

ek_gpu_driver faked(int devices)
{
    static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};
    ek_gpu_driver d = {.modules = modules, .built_with = 13000};
    fake_cuda_reset(&d.api);
    fake.devices = devices;
    return d;
}

ek_model *open_tiny(const char *shape, ek_kv_format k, ek_kv_format v, bool deferred)
{
    static ek_config c;
    ek_model *m;
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = k, .v_format = v, .deferred = deferred};
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, shape[0] == 'Q' ? 4 : 0, 5, &o), EK_OK);
    return m;
}

ek_drafter *open_drafter(const ek_model *m, int centroids)
{
    static ek_config c;
    ek_drafter *d;
    const ek_model_opts o = {.cpu = ek_cpu_detect()};
    drafter_config(&c, ek_model_config(m), centroids);
    assert_int_equal(ek_drafter_synthetic(&d, &c, 5, m, &o), EK_OK);
    return d;
}

ek_err try_two(ek_engine *e, ek_trace out[2], bool digests)
{
    static const int32_t tokens[] = {2, 5, 9, 11, 3};
    ek_ask a[2] = {{.tokens = tokens,
                    .n_tokens = 5,
                    .max_tokens = REPLY,
                    .prompt_logits_from = 5,
                    .ignore_eos = true,
                    .digests = digests,
                    .sampling = ek_sampling_greedy()}};
    a[1] = a[0];
    a[1].n_tokens = 3, a[1].prompt_logits_from = 3;
    a[1].sampling.temperature = 1;
    return ek_trace_run(e, a, 2, out);
}

void check_replies(ek_engine *e, bool digests)
{
    ek_trace out[2];
    assert_int_equal(try_two(e, out, digests), EK_OK);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k].finish, EK_FINISH_LENGTH);
        assert_int_equal(out[k].n_reply, REPLY);
        ek_trace_fini(&out[k]);
    }
}

void ask_failing(ek_engine *e, ek_trace out[2], bool *refused, int *from, int *to)
{
    static const int32_t token = 3;
    ek_request_opts one = {.tokens = &token, .n_tokens = 1, .max_tokens = 1, .sampling = ek_sampling_greedy()};
    char why[256] = "";
    *from = fake.calls;
    assert_int_equal(try_two(e, out, true), EK_OK);
    *to = fake.calls;
    *refused = ek_engine_broken(e, why, sizeof why);
    assert_true(*refused == (strstr(why, "cannot be used any more") != NULL));
    if (*refused) assert_int_equal(ek_engine_submit(e, &one, NULL), EK_ESHUTDOWN);
}

bool check_failing(ek_trace out[2])
{
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
    return error;
}

void check_refusal(void)
{
    assert_true(strlen(ek_err_text()) > 20);
    assert_null(strchr(ek_err_text(), '\n'));
}

void check_pages(ek_executor *on)
{
    ek_executor_sizes z = {.max_rows = 4, .max_logits = 2, .max_ctx = 128, .max_requests = 1, .n_pages = {3, 3}};
    assert_int_equal(on->open(on->arg, &z), EK_OK);
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const size_t bytes = on->layout->page_bytes[k];
        if (!bytes) continue;
        uint8_t *in = malloc(bytes), *out = calloc(1, bytes);
        for (size_t i = 0; i < bytes; i++) in[i] = (uint8_t)(i * 7 + 1);
        on->poison_page(on->arg, (ek_layer_kind)k, 0), on->poison_page(on->arg, (ek_layer_kind)k, 2);
        on->write_page(on->arg, (ek_layer_kind)k, 1, in);
        on->read_page(on->arg, (ek_layer_kind)k, 1, out);
        assert_memory_equal(in, out, bytes);
        on->copy_page(on->arg, (ek_layer_kind)k, 1, 2);
        memset(out, 0, bytes);
        on->read_page(on->arg, (ek_layer_kind)k, 2, out);
        assert_memory_equal(in, out, bytes);
        on->read_page(on->arg, (ek_layer_kind)k, 0, out);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(out[i], 0xff);
        free(in), free(out);
    }
    on->close(on->arg);
}
