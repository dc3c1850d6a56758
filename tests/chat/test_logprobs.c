/* Log-probabilities against float64, at vocabulary sizes of published models. */
#include "helper.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash/rng.h"
#include "chat/turn.h"

static void against_float64(int n, float spread, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    double sum = 0, max = -INFINITY;
    for (int i = 0; i < n; i++) {
        x[i] = (float)(ek_mix64(seed + (uint64_t)i) >> 40) * 0x1p-24f * spread - spread / 2;
        if (i % 97 == 5) x[i] = x[i / 2]; /* equal ones */
        if (i % 1001 == 7) x[i] = -INFINITY;
        if (x[i] > max) max = x[i];
    }
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - max);
    for (int n_top = 0; n_top <= EK_LOGPROBS_MAX; n_top += 5) {
        ek_logprobs p;
        ek_logprobs_of(&p, x, n, 3, n_top);
        assert_int_equal(p.self.token, 3);
        assert_true(fabs(p.self.logprob - (x[3] - max - log(sum))) < 4e-6 * (1 + fabs(x[3])));
        assert_int_equal(p.n_top, n_top);
        for (int k = 0; k < n_top; k++) { /* the k-th: k others are before it */
            int before = 0, id = p.top[k].token;
            for (int i = 0; i < n; i++) before += x[i] > x[id] || (x[i] == x[id] && i < id);
            assert_int_equal(before, k);
            assert_true(fabs(p.top[k].logprob - (x[id] - max - log(sum))) < 4e-6 * (1 + fabs(x[id])));
        }
    }
    free(x);
}

static void log_softmax_of_the_whole_vocabulary(void **state)
{
    (void)state;
    against_float64(64, 3, 1);
    against_float64(32769, 60, 2);
    against_float64(262144, 20, 3);
    against_float64(262144, 0, 4); /* all equal: the lowest ids */
}

static void impossible_tokens(void **state)
{
    (void)state;
    float x[32] = {0};
    for (int i = 0; i < 32; i++) x[i] = i == 9 ? 5 : -INFINITY;
    ek_logprobs p;
    ek_logprobs_of(&p, x, 32, 9, 2);
    assert_true(p.self.logprob == 0 && p.top[0].token == 9);
    ek_logprobs_of(&p, x, 32, 8, 2);
    assert_true(isinf(p.self.logprob) && p.self.logprob < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_softmax_of_the_whole_vocabulary),
        cmocka_unit_test(impossible_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
