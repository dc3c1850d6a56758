/* Evidence before an answer (gpu/evidence, open/card.c) on the Vulkan device that is there, in CI lavapipe: a device
 * whose kernels do what they should is taken, and the file is read the next time; one of whose kernels a single launch
 * does nothing is refused by that kernel's name, and nothing is kept; one whose cooperative matrices differ has none. A
 * driver that fails before an answer is refused likewise, so that with auto the CPU answers. */
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

#include "../support/drafter.h"
#include "../support/files.h"
#include "base/machine/cpu.h"
#include "gpu/evidence/evidence.h"
#include "open/card.h"
#include "vulkan/state.h"
#include "vulkan/vulkan.h"

static ek_cuda_api real;
static const char *skipped; /* launches of this kernel do nothing */
static int launches, by_matrices;
static bool matrices, skips_matrices; /* the device says that it has them; their kernels do nothing */
static const char *refused;           /* the driver makes no kernel with this in its name */
static bool is_lost;                  /* the device, when it is waited for */

enum { KERNELS = 128 };
static const char *seen[KERNELS]; /* kernels that were launched */
static int n_seen;

static void note(const char *name)
{
    for (int i = 0; i < n_seen; i++)
        if (!strcmp(seen[i], name)) return;
    assert_true(n_seen < KERNELS);
    seen[n_seen++] = name;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    const bool coop = strstr(f->name, "_coop");
    by_matrices += coop;
    launches++;
    note(f->name);
    const bool none = (skipped && !strcmp(f->name, skipped)) || (coop && skips_matrices);
    return none ? EK_CU_OK : real.cuLaunchKernelEx(config, f, args, extra);
}

static CUresult attribute(int *value, int which, CUdevice device)
{
    const CUresult r = real.cuDeviceGetAttribute(value, which, device);
    if (matrices && which == EK_CU_ATTR_MINOR) *value = EK_CUDA_PLAIN_MATRICES;
    return r;
}

static CUresult function_of(CUfunction *out, CUmodule module, const char *name)
{
    return refused && strstr(name, refused) ? 2013 : real.cuModuleGetFunction(out, module, name);
}

static CUresult synchronize(CUstream stream)
{
    const CUresult r = real.cuStreamSynchronize(stream);
    return is_lost ? EK_CU_UNKNOWN : r;
}

static CUresult no_context(CUcontext *context, CUdevice device)
{
    (void)context, (void)device;
    return 2003; /* VK_ERROR_INITIALIZATION_FAILED */
}

static ek_model *model_like(const char *shape, int bits, ek_kv_format kv)
{
    static ek_config c;
    ek_model *m;
    const ek_model_opts o = {.k_format = kv, .v_format = kv, .cpu = ek_cpu_detect()};
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    return m;
}

static ek_model *model_of(int bits)
{
    return model_like("Q1", bits, EK_KV_I12);
}

static ek_gpu *device_of(void)
{
    ek_gpu_driver d;
    ek_gpu *g;
    if (ek_gpu_driver_load_vulkan(&d)) return NULL;
    real = d.api;
    d.api.cuLaunchKernelEx = launch, d.api.cuDeviceGetAttribute = attribute;
    d.api.cuModuleGetFunction = function_of, d.api.cuStreamSynchronize = synchronize;
    return ek_gpu_open_device(&g, &d, 0) ? NULL : g;
}

/* What is read of these is what a kernel behind them makes of it, which is named. */
static const struct {
    const char *kernel, *named;
} behind[] = {{"ek_pack_q", "ek_embed"},
              {"ek_quantize", "ek_product"},
              {"ek_sample_mask", "ek_sample_mask, edit and scale"},
              {"ek_sample_edit", "ek_sample_mask, edit and scale"},
              {"ek_sample_scale", "ek_sample_"},
              {"ek_sample_weights", "ek_sample_choose"},
              {"ek_attn_int_queries", "ek_attn_int_many"},
              {"ek_attn_int_join", "ek_attn_int"},
              {"ek_attn_join", "ek_attn_segment"}};

static const char *name_for(const char *kernel)
{
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
        if (!strcmp(kernel, behind[i].kernel)) return behind[i].named;
    return kernel;
}

/* Of all that the comparisons of m launch, one kernel after the other does nothing. */
static void every_kernel_matters(ek_gpu *g, const ek_model *m, int at_least)
{
    int n = 0;
    n_seen = 0, skipped = NULL;
    if (ek_gpu_prove(g, m, &n)) fail_msg("%s", ek_err_text());
    assert_true(n_seen >= at_least);
    for (int i = 0; i < n_seen; i++) {
        char said[128];
        skipped = seen[i];
        snprintf(said, sizeof said, "results of %s", name_for(skipped));
        if (ek_gpu_prove(g, m, &n) != EK_EUNSUPPORTED) fail_msg("nothing differs without %s", skipped);
        if (!strstr(ek_err_text(), said)) fail_msg("%s was expected: %s", said, ek_err_text());
        assert_non_null(strstr(ek_err_text(), "vulkan:0 ("));
        g->err = EK_OK;
    }
    skipped = NULL;
}

static void a_kernel_that_differs_is_named(void **state)
{
    (void)state;
    ek_gpu *g = device_of();
    if (!g) skip();
    ek_model *m = model_of(4);
    every_kernel_matters(g, m, 25);
    ek_model_close(m);
    m = model_like("Q2", 4, EK_KV_F16); /* with experts */
    every_kernel_matters(g, m, 25);
    ek_model_close(m);
    ek_gpu_close(g);
}

/* A drafter with a dense head, and one with ordered embeddings. */
static void a_drafter_is_compared_before_it_drafts(void **state)
{
    (void)state;
    static ek_config c;
    ek_gpu *g = device_of();
    if (!g) skip();
    const ek_model_opts o = {.cpu = ek_cpu_detect()};
    ek_model *m = model_of(4);
    for (int centroids = 0; centroids < 12; centroids += 11) {
        ek_drafter *d;
        drafter_config(&c, &m->config, centroids);
        assert_int_equal(ek_drafter_synthetic(&d, &c, 7, m, &o), EK_OK);
        every_kernel_matters(g, ek_drafter_model(d), 15);
        ek_drafter_close(d);
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
    skipped = "ek_stage_short"; /* refused: nothing is kept */
    assert_int_equal(ek_proven_take(g, m), EK_EUNSUPPORTED);
    skipped = NULL, launches = 0;
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

/* A driver that does not compile them. The comparisons without them are kept, so these few launches are all. */
static void matrices_that_are_not_compiled_are_left(const ek_model *m)
{
    refused = "_coop";
    ek_gpu *g = device_of();
    assert_int_equal(ek_proven_take(g, m), EK_OK);
    assert_false(ek_cuda_chip_of(g->c)->matrices);
    ek_gpu_close(g);
    refused = NULL;
}

/* On lavapipe their kernels are made of packed products (vulkan/shaders/matrices.glsl). */
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
        skipped = NULL, launches = by_matrices = 0;
        assert_int_equal(ek_proven_take(g, m), EK_OK);
        assert_true(by_matrices > 0);
        assert_int_equal(ek_cuda_chip_of(g->c)->matrices, !differ);
        launches = 0;
        assert_int_equal(ek_proven_take(g, m), EK_OK);
        assert_int_equal(launches, 0);
        if (differ) matrices_that_are_not_compiled_are_left(m);
        snprintf(command, sizeof command, "rm -r %.100s/evenkeel", folder);
        assert_int_equal(system(command), 0);
        ek_gpu_close(g);
    }
    matrices = skips_matrices = false;
    remove_dir(folder);
    ek_model_close(m);
}

static void refuses(ek_gpu *g, const ek_model *m, const char *said)
{
    assert_int_equal(ek_proven_take(g, m), EK_EUNSUPPORTED);
    if (!strstr(ek_err_text(), said)) fail_msg("%s was expected: %s", said, ek_err_text());
    g->err = EK_OK;
}

static void a_driver_that_fails_is_refused(void **state)
{
    (void)state;
    ek_gpu_driver d;
    ek_gpu *g = device_of();
    if (!g) skip();
    ek_model *m = model_of(4);
    unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
    refused = "ek_stage_short";
    refuses(g, m, ") has no kernel ek_stage_short: an unknown error of the driver");
    refused = NULL, is_lost = true;
    refuses(g, m, "the device is lost");
    ek_gpu_close(g);
    is_lost = false;
    assert_int_equal(ek_gpu_driver_load_vulkan(&d), EK_OK);
    d.api.cuDevicePrimaryCtxRetain = no_context;
    assert_int_equal(ek_gpu_open_device(&g, &d, 0), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), ") does not start: the driver does not start"));
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
    enum { TEXTS = 9 };
    ek_buf text[TEXTS] = {{0}};
    ek_gpu_evidence_needs(&text[0], m);
    w->zero++, ek_gpu_evidence_needs(&text[1], m), *w = as_it_is;
    w->block++, ek_gpu_evidence_needs(&text[2], m), *w = as_it_is;
    w->book = book[0], ek_gpu_evidence_needs(&text[3], m);
    w->book = book[1], ek_gpu_evidence_needs(&text[4], m), *w = as_it_is;
    ek_config *const c = &m->config;
    c->per_layer_size++, ek_gpu_evidence_needs(&text[5], m), c->per_layer_size--;
    c->n_experts++, ek_gpu_evidence_needs(&text[6], m), c->n_experts--;
    c->backbone_hidden_size = 64, ek_gpu_evidence_needs(&text[7], m);
    c->n_centroids = 64, ek_gpu_evidence_needs(&text[8], m), c->n_centroids = 0, c->backbone_hidden_size = 0;
    for (int i = 0; i < TEXTS; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(ek_buf_text(&text[i]), ek_buf_text(&text[j]))) fail_msg("%d and %d are one", i, j);
    for (int i = 0; i < TEXTS; i++) ek_buf_fini(&text[i]);
    ek_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_kernel_that_differs_is_named),
                                       cmocka_unit_test(a_drafter_is_compared_before_it_drafts),
                                       cmocka_unit_test(it_is_made_once),
                                       cmocka_unit_test(matrices_that_differ_are_left),
                                       cmocka_unit_test(a_driver_that_fails_is_refused),
                                       cmocka_unit_test(every_kind_of_matrix_is_kept_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
