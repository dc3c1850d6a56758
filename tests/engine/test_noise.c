/* The sampler's noise (docs/NUMERICS.md 7.5): its key, its largest value, which tokens can be
 * drawn and which cannot, ties. The functions of 32 bits by themselves: tests/ops/test_math.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "engine/sample/sampler.h"
#include "noise.h"
#include "ops/math.h"

/* Tokens 0 to 3 at this position with seed 1 have the words 0, 283937710, 868916557, 3131412754:
 * token 0 has the largest noise there is. Found by trying all positions below 2^28. */
enum { LARGEST_AT = 91093890 };

static const int32_t no_history[1];

static double exact_gumbel(uint32_t word)
{
    return -log(-log1p(-(word + 0.5) / 4294967296.0));
}

static void gumbel_is_a_function_of_its_key(void **state)
{
    (void)state;
    /* The published vector of Philox4x32-10 that a sampler can meet: key and counter zero. */
    static const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (int32_t token = 0; token < 4; token++)
        assert_true(fabs(gumbel_of(0, 0, token) - exact_gumbel(zero[token])) < 1.1e-6);
    uint64_t seed = 0x299f31d0a4093822u;
    double sum = 0, squares = 0;
    int n = 0;
    for (int pos = 0; pos < 300; pos++)
        for (int32_t token = 0; token < 1000; token++) {
            uint32_t out[4], key[2] = {0xa4093822u, 0x299f31d0u},
                             counter[4] = {(uint32_t)pos, (uint32_t)token / 4, 0, 0};
            ek_philox(out, counter, key);
            float g = gumbel_of(seed, pos, token);
            assert_true(fabs(g - exact_gumbel(out[token % 4])) <= 1.1e-6);
            sum += g, squares += (double)g * g, n++;
        }
    double mean = sum / n, variance = squares / n - mean * mean;
    assert_true(fabs(mean - 0.5772157) < 0.01);
    assert_true(fabs(variance - 1.6449341) < 0.03);
    assert_true(gumbel_of(1, 2, 3) != gumbel_of(1, 3, 3));
    assert_true(gumbel_of(1, 2, 3) != gumbel_of((uint64_t)1 << 32 | 1, 2, 3));
}

/* The argmax of z + g over all of z. */
static int32_t by_definition(const float *z, int n, uint64_t seed, int pos)
{
    int32_t best = -1;
    float largest = 0;
    for (int32_t t = 0; t < n; t++) {
        float sum = z[t] + gumbel_of(seed, pos, t);
        if (best < 0 || sum > largest) best = t, largest = sum;
    }
    return best;
}

/* Among all tokens, and among the first k without the last. */
static void check_draws(ek_sampler *s, const float *z, int n, uint64_t seed, int pos)
{
    int32_t want = by_definition(z, n, seed, pos);
    ek_sampling o = ek_sampling_greedy();
    o.temperature = 1;
    o.seed = seed;
    assert_int_equal(ek_sample(s, z, NULL, &o, no_history, 1, pos), want);
    o.top_k = n - 1;
    assert_int_equal(ek_sample(s, z, NULL, &o, no_history, 1, pos), want);
}

/* Where the largest noise just reaches the best, or just does not: z in single steps about the
 * place, low and so high that the sum rounds to ties. */
static void the_largest_noise_is_not_passed_over(void **state)
{
    (void)state;
    enum { N = 8 };
    static const float height[] = {0, 1, -25, 30, 1000, -4096, 1e6f, -3e7f};
    float largest = gumbel_of(1, LARGEST_AT, 0);
    assert_true(largest == ek_standard_gumbel(0) && largest < EK_MAX_GUMBEL);
    ek_sampler *s;
    ek_sampler_open(&s, ek_cpu_detect(), N, NULL, 0);
    for (size_t h = 0; h < sizeof height / sizeof *height; h++) {
        float z[N];
        for (int t = 1; t < N; t++) z[t] = t < N - 1 ? height[h] : height[h] - 100;
        float best = z[1] + gumbel_of(1, LARGEST_AT, 1);
        int won = 0, lost = 0;
        z[0] = best - largest;
        for (int i = 0; i < 100; i++) z[0] = nextafterf(z[0], -INFINITY);
        for (int i = 0; i < 200; i++) {
            check_draws(s, z, N, 1, LARGEST_AT);
            by_definition(z, N, 1, LARGEST_AT) == 0 ? won++ : lost++;
            z[0] = nextafterf(z[0], INFINITY);
        }
        assert_true(won > 50 && lost > 50);
    }
    ek_sampler_close(s);
}

/* Logits so large, as a low temperature makes them, that z + g is rounded to steps like those
 * between tokens: many ties, which go to the lowest id whatever is tried first. */
static void ties_high_up_go_to_the_lowest(void **state)
{
    (void)state;
    enum { N = 389 };
    static float z[N];
    ek_sampler *s;
    ek_sampler_open(&s, ek_cpu_detect(), N, NULL, 0);
    for (int pos = 1; pos <= 3000; pos++) {
        float base = pos % 3 == 0 ? 1e6f : pos % 3 == 1 ? -1.3e7f : 2e5f;
        for (int t = 0; t < N; t++) z[t] = base + 0.5f * (float)(ek_mix64((uint64_t)(pos * N + t)) % 9);
        z[N - 1] = base - 1000;
        check_draws(s, z, N, 7, pos);
    }
    ek_sampler_close(s);
}

/* How often a token of weight w beside one of weight 1 is drawn: the sum over its 2^32 words of the
 * probability that exact noise of the other is below. Of version 1's 23 bits: 0.94 of what is right
 * at 1e-7, 0.031 at 1e-8. */
static void rare_tokens_are_drawn_as_often_as_they_should(void **state)
{
    (void)state;
    static const struct {
        double weight, tolerance;
    } c[] = {{1e-6, 1e-4}, {1e-7, 1e-4}, {1e-8, 1e-3}, {1e-9, 3e-3}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        double w = c[i].weight, share = 0;
        float z = (float)log(w);
        for (uint32_t word = 0;; word++) {
            double rate = exp(-((double)z + (double)ek_standard_gumbel(word)));
            if (rate > 40) break;
            share += exp(-rate);
        }
        share *= 0x1p-32 * (1 + w) / w;
        print_message("weight %g: %.5f of what is right\n", w, share);
        assert_true(fabs(share - 1) <= c[i].tolerance);
    }
}

/* Every token equally likely: the smallest word wins, and no second one comes so near that the
 * two tie. With 23 bits one draw in 75 was a tie, which the lowest id won. */
static void a_flat_vocabulary_has_one_winner(void **state)
{
    (void)state;
    enum { N = 262144, DRAWS = 200 };
    float *z = malloc(sizeof *z * N);
    assert_non_null(z);
    for (int i = 0; i < N; i++) z[i] = 20;
    ek_sampler *s;
    ek_sampler_open(&s, ek_cpu_detect(), N, NULL, 0);
    ek_sampling o = ek_sampling_greedy();
    o.temperature = 1;
    o.seed = 7;
    for (int pos = 1; pos <= DRAWS; pos++) {
        uint32_t min = UINT32_MAX, next = UINT32_MAX;
        int32_t winner = -1;
        for (uint32_t block = 0; block < N / 4; block++) {
            uint32_t word[4], key[2] = {7, 0}, counter[4] = {(uint32_t)pos, block, 0, 0};
            ek_philox(word, counter, key);
            for (int i = 0; i < 4; i++) {
                if (word[i] < min) next = min, min = word[i], winner = (int32_t)block * 4 + i;
                else if (word[i] < next) next = word[i];
            }
        }
        assert_true(20 + ek_standard_gumbel(min) > 20 + ek_standard_gumbel(next));
        assert_int_equal(ek_sample(s, z, NULL, &o, no_history, 1, pos), winner);
    }
    ek_sampler_close(s);
    free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gumbel_is_a_function_of_its_key),
        cmocka_unit_test(the_largest_noise_is_not_passed_over),
        cmocka_unit_test(ties_high_up_go_to_the_lowest),
        cmocka_unit_test(rare_tokens_are_drawn_as_often_as_they_should),
        cmocka_unit_test(a_flat_vocabulary_has_one_winner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
