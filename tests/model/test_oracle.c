/* The forward pass against an independent float64 program: exact arithmetic to 1e-4 of a logit, the default
 * arithmetic of quantised weights within a bound on the mean KL divergence. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "against.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"

enum { TOKENS = 37, LARGE_VOCABULARY = 33803 };

static ek_config *tiny(const char *name)
{
    ek_config *c = ek_alloc(sizeof *c);
    if (ek_config_tiny(c, name)) fail_msg("%s", ek_err_text());
    return c;
}

static ek_model_opts exact(void)
{
    return (ek_model_opts){.exact = true, .k_format = EK_KV_F32, .v_format = EK_KV_F32, .cpu = ek_cpu_detect()};
}

/* Frees c. */
static void check_exact(ek_config *c, const char *name, double tol)
{
    ek_model_opts opts = exact();
    against a = against_oracle(c, NULL, &opts, TOKENS);
    print_message("%s, eps %g, %d tokens, %d experts: largest difference %.2g, largest logit %.3g\n", name,
                  (double)c->rms_norm_eps, c->vocab_size, c->n_experts, a.worst, a.largest);
    assert_true(a.largest > 0.5);
    if (!(a.worst <= tol)) fail_msg("%s: differs by %g, bound %g", name, a.worst, tol);
    free(c);
}

/* Every deliberate mistake of a list (norms as 1 + w, no value norm, wrong donor, window off by
 * one, router input, gate and up swapped, …) moves a logit by more than 2e-3. */
static void exact_arithmetic_matches(void **state)
{
    (void)state;
    static const char *const name[] = {"T1", "T2", "T3", "T4", "T5", "T6", "T7"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) check_exact(tiny(name[i]), name[i], 1e-4);
}

/* A model of float32 has exact roots as scales of its embeddings; all others have them in bf16. */
static void exact_arithmetic_matches_in_float32(void **state)
{
    (void)state;
    static const char *const name[] = {"T1", "T4", "T6"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        ek_config *c = tiny(name[i]);
        c->exact_scale = true;
        c->rms_norm_eps = 0.5f;
        check_exact(c, name[i], 1e-4);
    }
}

/* Scales in front of a norm are hidden by it, but for eps: the router's renormalisation, the
 * factors of the per-layer inputs. A large eps shows them. */
static void exact_arithmetic_matches_with_large_eps(void **state)
{
    (void)state;
    static const char *const name[] = {"T1", "T2", "T4", "T6", "T7"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        ek_config *c = tiny(name[i]);
        c->rms_norm_eps = 0.5f;
        check_exact(c, name[i], 1e-4);
    }
}

/* Published vocabularies have 262,144 tokens: head, soft cap and embedding tables beyond 32,768 rows. */
static void exact_arithmetic_matches_with_a_large_vocabulary(void **state)
{
    (void)state;
    static const char *const name[] = {"T1", "T5"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        ek_config *c = tiny(name[i]);
        c->vocab_size = c->vocab_size_per_layer = LARGE_VOCABULARY;
        check_exact(c, name[i], 1e-4);
    }
}

/* Integer products, limbs and 16-bit keys and values, with the models of version 2 of the arithmetic, whose embeddings
 * have exact scales. KL in nats, bounds three to five times what was measured, of
 * the rms a fifth above. With 8-bit weights auto is 16. They may shrink and never grow. */
static void default_arithmetic_is_near(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int vocab; /* 0: the configuration's own */
        int bits, group;
        const char *other;         /* modules stored otherwise: … */
        int other_bits;            /* … in groups of 32; 0: as bf16 */
        divergence_bound bound[2]; /* activations 16, auto */
    } row[] = {
        /* a head in bf16: nothing hides the error of a single matrix */
        {"Q1", 0, 4, 64, "embed_tokens", 0, {{1.6e-11, 5.2e-10, 3.2e-4}, {7.3e-7, 3.5e-5, 5.5e-2}}},
        {"Q1", 0, 8, 64, "embed_tokens", 0, {{2.1e-11, 6.8e-10, 3.7e-4}, {2.1e-11, 6.8e-10, 3.7e-4}}},
        {"Q2", 0, 4, 64, "embed_tokens", 0, {{4.2e-14, 7.2e-13, 3.1e-4}, {3.5e-9, 1.2e-7, 1.2e-1}}},
        {"Q3", 0, 4, 64, "embed_tokens", 0, {{6.7e-14, 2.2e-12, 3.7e-4}, {2.3e-9, 1.0e-7, 6.4e-2}}},
        {"Q3", 0, 8, 64, "embed_tokens", 0, {{1.3e-13, 6.4e-12, 3.8e-4}, {1.3e-13, 6.4e-12, 3.8e-4}}},
        /* all of it */
        {"Q1", 0, 4, 64, NULL, 0, {{1.4e-11, 2.8e-10, 3.2e-4}, {5.6e-7, 1.4e-5, 5.8e-2}}},
        {"Q1", 0, 8, 64, NULL, 0, {{2.5e-11, 1.4e-9, 3.4e-4}, {2.5e-11, 1.4e-9, 3.4e-4}}},
        {"Q1", 0, 4, 32, NULL, 0, {{1.7e-11, 4.4e-10, 3.4e-4}, {8.1e-7, 5.2e-5, 5.0e-2}}},
        {"Q1", LARGE_VOCABULARY, 4, 64, NULL, 0, {{3.4e-9, 1.6e-7, 3.6e-4}, {9.4e-5, 3.4e-3, 5.6e-2}}},
        {"Q2", 0, 4, 64, NULL, 0, {{5.9e-14, 2.0e-12, 3.4e-4}, {2.5e-8, 8.8e-7, 2.3e-1}}},
        {"Q2", 0, 8, 64, NULL, 0, {{4.9e-14, 1.3e-12, 3.2e-4}, {4.9e-14, 1.3e-12, 3.2e-4}}},
        {"Q3", 0, 4, 64, NULL, 0, {{4.9e-14, 4.8e-13, 3.8e-4}, {2.9e-9, 1.6e-7, 5.6e-2}}},
        {"Q3", 0, 8, 64, NULL, 0, {{8.0e-14, 2.2e-12, 4.0e-4}, {8.0e-14, 2.2e-12, 4.0e-4}}},
        {"Q3", 0, 6, 64, "self_attn", 3, {{9.1e-14, 3.6e-12, 4.3e-4}, {3.3e-9, 2.6e-7, 5.5e-2}}},
    };
    ek_model_opts opts = {.k_format = EK_KV_I16, .v_format = EK_KV_I16, .cpu = ek_cpu_detect()};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        mlx_opts mlx = {row[i].bits, row[i].group, "model.", "BF16", row[i].other, row[i].other_bits, 32, false, NULL};
        ek_config *c = tiny(row[i].config);
        c->exact_scale = true;
        if (row[i].vocab) c->vocab_size = c->vocab_size_per_layer = row[i].vocab;
        for (int way = 0; way < 2; way++) {
            opts.activations = way ? EK_ACTIVATIONS_AUTO : EK_ACTIVATIONS_16;
            against a = against_oracle(c, &mlx, &opts, 100);
            char what[160];
            snprintf(what, sizeof what, "%s, %d bits, groups of %d, %s %d, %d tokens, activations %s against float64",
                     row[i].config, row[i].bits, row[i].group, row[i].other ? row[i].other : "all", row[i].other_bits,
                     c->vocab_size, ek_activations_name(opts.activations));
            divergence_check(&a.kl, what, row[i].bound[way]);
        }
        free(c);
    }
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_arithmetic_matches),
        cmocka_unit_test(exact_arithmetic_matches_in_float32),
        cmocka_unit_test(exact_arithmetic_matches_with_large_eps),
        cmocka_unit_test(exact_arithmetic_matches_with_a_large_vocabulary),
        cmocka_unit_test(default_arithmetic_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
