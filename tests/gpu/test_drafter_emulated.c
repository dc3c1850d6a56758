/* A drafter on a device with its real kernels, which run on the CPU (tests/emulate): it drafts the tokens that it
 * drafts on the CPU. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../support/drafter.h"
#include "base/machine/cpu.h"
#include "emulated.h"
#include "engine/trace.h"
#include "gpu/gpu.h"

enum { MAX_DRAFTED = 4096 };

typedef struct noted {
    ek_err (*draft)(void *draft_arg, ek_draft *draft, int n);
    void *draft_arg;
    int32_t token[MAX_DRAFTED];
    int n;
} noted;

static ek_err note_drafts(void *arg, ek_draft *draft, int n)
{
    noted *x = arg;
    EK_TRY(x->draft(x->draft_arg, draft, n));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < draft[i].n; k++) {
            assert_true(x->n < MAX_DRAFTED);
            x->token[x->n++] = draft[i].token[k];
        }
    return EK_OK;
}

/* All that it drafts is drafted, and noted. */
static void run_drafted(ek_executor *on, const ek_ask *ask, ek_trace *out, noted *x)
{
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    o.max_requests = 2, o.chunk = 64, o.ctx_tokens = 400, o.draft = EK_DRAFT_AUTO, o.draft_max = 5;
    assert_non_null(on->draft);
    *x = (noted){.draft = on->draft, .draft_arg = on->draft_arg};
    on->draft = note_drafts, on->draft_arg = x, on->row_cost = on->draft_cost = 0;
    assert_int_equal(ek_engine_open_on(&e, on, &o), EK_OK);
    assert_int_equal(ek_trace_run(e, ask, 2, out), EK_OK);
    ek_engine_close(e);
}

static bool own_head; /* of the models and drafters below */

static void compare_drafter(const char *shape, int bits, ek_model_opts o, int centroids, ek_rope_position position)
{
    static ek_config c, dc;
    static int32_t tokens[2][300];
    static noted by_cpu, by_device;
    char where[256];
    ek_model *m;
    ek_drafter *d;
    ek_gpu *g;
    ek_ask ask[2];
    ek_trace want[2], got[2];
    o.cpu = ek_cpu_detect();
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    c.own_head = own_head;
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    drafter_config(&dc, &c, centroids);
    dc.own_head = own_head;
    assert_int_equal(ek_drafter_synthetic(&d, &dc, 7, m, &o), EK_OK);
    ek_drafter_set_position(d, position);
    for (int i = 0; i < 2; i++) {
        const int prompt = i ? 270 : 40;
        for (int t = 0; t < prompt; t++) tokens[i][t] = (t * t * 7 + i * 3 + 5) % c.vocab_size;
        ask[i] = (ek_ask){.tokens = tokens[i],
                          .n_tokens = prompt,
                          .max_tokens = i ? 14 : 9,
                          .prompt_logits_from = prompt,
                          .ignore_eos = true,
                          .sampling = ek_sampling_greedy()};
    }
    ask[1].sampling.temperature = 1;
    ek_executor cpu = ek_executor_cpu(m);
    ek_executor_cpu_set_drafter(&cpu, d);
    run_drafted(&cpu, ask, want, &by_cpu);
    ek_gpu_driver driver = emulated();
    assert_int_equal(ek_gpu_open(&g, &driver, m, 0), EK_OK);
    assert_int_equal(ek_gpu_add_drafter(g, d), EK_OK);
    ek_executor device = ek_gpu_executor(g);
    run_drafted(&device, ask, got, &by_device);
    for (int i = 0; i < 2; i++) {
        bool same = ek_trace_same(&want[i], &got[i], where, sizeof where);
        if (!same) print_message("%s with a drafter, request %d: %s\n", shape, i, where);
        assert_true(same);
        ek_trace_fini(&want[i]), ek_trace_fini(&got[i]);
    }
    assert_true(by_cpu.n > 10);
    assert_int_equal(by_cpu.n, by_device.n);
    assert_memory_equal(by_cpu.token, by_device.token, sizeof *by_cpu.token * (size_t)by_cpu.n);
    ek_gpu_close(g);
    ek_drafter_close(d);
    ek_model_close(m);
}

static void a_drafter_drafts_what_it_drafts_on_the_cpu(void **state)
{
    (void)state;
    compare_drafter("T1", 0, (ek_model_opts){.k_format = EK_KV_I16, .v_format = EK_KV_I16}, 0, EK_ROPE_N);
    compare_drafter("Q1", 4, (ek_model_opts){.k_format = EK_KV_I12, .v_format = EK_KV_I12}, 0, EK_ROPE_N_MINUS_1);
    compare_drafter(
        "T6", 0, (ek_model_opts){.k_format = EK_KV_Q8, .v_format = EK_KV_Q4, .kv_start = EK_SEGMENT, .quantise = true},
        11, EK_ROPE_N);
}

/* Another matrix than the table that tokens are looked up in, of both. */
static void with_heads_of_their_own_too(void **state)
{
    (void)state;
    own_head = true;
    compare_drafter("T1", 0, (ek_model_opts){.k_format = EK_KV_F16, .v_format = EK_KV_F16}, 0, EK_ROPE_N);
    compare_drafter("Q1", 4, (ek_model_opts){.k_format = EK_KV_I12, .v_format = EK_KV_I12}, 11, EK_ROPE_N);
    own_head = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drafter_drafts_what_it_drafts_on_the_cpu),
        cmocka_unit_test(with_heads_of_their_own_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
