/* Evidence before an answer (gpu/evidence, open/proven.c) on the Vulkan device that is there, in CI lavapipe: a device
 * whose kernels do what they should is taken, and the file is read the next time; one of whose kernels a single launch
 * does nothing is refused by that kernel's name, and nothing is kept; one whose cooperative matrices differ has none.
 */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/machine/cpu.h"
#include "gpu/evidence/evidence.h"
#include "open/proven.h"
#include "vulkan/state.h"
#include "vulkan/vulkan.h"

static ek_cuda_api real;
static int launches, skipped = -1, by_matrices;
static bool matrices, skips_matrices; /* the device says that it has them; their kernels do nothing */

static CUresult launch(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    const bool coop = strstr(f->name, "_coop");
    by_matrices += coop;
    return launches++ == skipped || (coop && skips_matrices) ? EK_CU_OK : real.cuLaunchKernelEx(config, f, args, extra);
}

static CUresult attribute(int *value, int which, CUdevice device)
{
    const CUresult r = real.cuDeviceGetAttribute(value, which, device);
    if (matrices && which == EK_CU_ATTR_MINOR) *value = EK_CUDA_PLAIN_MATRICES;
    return r;
}

static ek_model *model_of(int bits)
{
    ek_config c;
    ek_model *m;
    const ek_model_opts o = {.k_format = EK_KV_I12, .v_format = EK_KV_I12, .cpu = ek_cpu_detect()};
    assert_int_equal(ek_config_tiny(&c, "Q1"), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    return m;
}

static ek_gpu *device_of(void)
{
    ek_gpu_driver d;
    ek_gpu *g;
    if (ek_gpu_driver_load_vulkan(&d)) return NULL;
    real = d.api;
    d.api.cuLaunchKernelEx = launch, d.api.cuDeviceGetAttribute = attribute;
    return ek_gpu_open_device(&g, &d, 0) ? NULL : g;
}

static void a_kernel_that_differs_is_named(void **state)
{
    (void)state;
    ek_gpu *g = device_of();
    int n = 0;
    if (!g) skip();
    ek_model *m = model_of(4);
    skipped = -1, launches = 0;
    assert_int_equal(ek_gpu_prove(g, m, &n), EK_OK);
    assert_true(n > 20);
    const int all = launches;
    static const struct {
        int from_end, at;
        const char *name;
    } cases[] = {{0, 0, "ek_stage"},
                 {0, 1, "ek_gate"},
                 {0, 3, "ek_per_layer"},
                 {0, 4, "ek_sample_mask, edit and scale"},
                 {0, 5, "ek_sample_mask, edit and scale"},
                 {0, 6, "ek_sample_all"},    /* of maxima */
                 {0, 7, "ek_sample_choose"}, /* of weights */
                 {0, 8, "ek_sample_choose"},
                 {0, 9, "ek_sample_all"},
                 {0, 10, "ek_sample_sort"},
                 {0, 12, "ek_embed"},
                 {1, 2, "ek_attn_int_many"},
                 {1, 4, "ek_attn_int_4"},
                 {1, 12, "ek_kv_store"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[128];
        skipped = cases[i].from_end ? all - cases[i].at : cases[i].at, launches = 0;
        snprintf(said, sizeof said, "results of %s differ from the definition", cases[i].name);
        if (ek_gpu_prove(g, m, &n) != EK_EUNSUPPORTED) fail_msg("nothing differs: launch %d", skipped);
        if (!strstr(ek_err_text(), said)) fail_msg("%s was expected: %s", said, ek_err_text());
        assert_non_null(strstr(ek_err_text(), "vulkan:0 ("));
    }
    ek_model_close(m);
    ek_gpu_close(g);
}

static void it_is_made_once(void **state)
{
    (void)state;
    char *const folder = temp_dir(), command[160];
    ek_gpu *g = device_of();
    if (!g) skip();
    setenv("XDG_CACHE_HOME", folder, 1);
    ek_model *m = model_of(8);
    skipped = 0, launches = 0; /* refused: nothing is kept */
    assert_int_equal(ek_proven_take(g, m), EK_EUNSUPPORTED);
    skipped = -1, launches = 0;
    assert_int_equal(ek_proven_take(g, m), EK_OK);
    assert_true(launches > 0);
    launches = 0;
    assert_int_equal(ek_proven_take(g, m), EK_OK);
    assert_int_equal(launches, 0);
    snprintf(command, sizeof command, "for f in %.100s/evenkeel/proven-*; do echo >>$f; done", folder);
    assert_int_equal(system(command), 0); /* damaged: made again */
    assert_int_equal(ek_proven_take(g, m), EK_OK);
    assert_true(launches > 0);
    snprintf(command, sizeof command, "rm -r %.100s/evenkeel", folder);
    assert_int_equal(system(command), 0);
    remove_dir(folder);
    ek_model_close(m);
    ek_gpu_close(g);
}

/* On lavapipe their kernels are made of packed products (shaders/matrices.glsl). */
static void matrices_that_differ_are_left(void **state)
{
    (void)state;
    char *const folder = temp_dir(), command[160];
    setenv("XDG_CACHE_HOME", folder, 1);
    ek_model *m = model_of(4);
    for (int differ = 0; differ < 2; differ++) {
        matrices = true, skips_matrices = differ;
        ek_gpu *g = device_of();
        if (!g) skip();
        skipped = -1, launches = by_matrices = 0;
        assert_int_equal(ek_proven_take(g, m), EK_OK);
        assert_true(by_matrices > 0);
        assert_int_equal(ek_cuda_chip_of(g->c)->matrices, !differ);
        launches = 0;
        assert_int_equal(ek_proven_take(g, m), EK_OK);
        assert_int_equal(launches, 0);
        snprintf(command, sizeof command, "rm -r %.100s/evenkeel", folder);
        assert_int_equal(system(command), 0);
        ek_gpu_close(g);
    }
    matrices = skips_matrices = false;
    remove_dir(folder);
    ek_model_close(m);
}

/* What tells matrices apart tells what is kept apart: one found good says nothing of the other. */
static void every_kind_of_matrix_is_kept_apart(void **state)
{
    (void)state;
    static const int8_t book[2][16] = {{1, 2, 3}, {1, 2, 4}};
    ek_model *m = model_of(4);
    ek_linear *const w = &m->w.layer[0].q;
    const ek_linear as_it_is = *w;
    ek_buf text[5] = {{0}};
    ek_gpu_evidence_needs(&text[0], m);
    w->zero++, ek_gpu_evidence_needs(&text[1], m), *w = as_it_is;
    w->block++, ek_gpu_evidence_needs(&text[2], m), *w = as_it_is;
    w->book = book[0], ek_gpu_evidence_needs(&text[3], m);
    w->book = book[1], ek_gpu_evidence_needs(&text[4], m), *w = as_it_is;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(ek_buf_text(&text[i]), ek_buf_text(&text[j]))) fail_msg("%d and %d are one", i, j);
    for (int i = 0; i < 5; i++) ek_buf_fini(&text[i]);
    ek_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_that_differs_is_named), cmocka_unit_test(it_is_made_once),
        cmocka_unit_test(matrices_that_differ_are_left), cmocka_unit_test(every_kind_of_matrix_is_kept_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
