/* sampler: the definition of docs/NUMERICS.md 7, and float64 for probabilities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "base/hash/rng.h"
#include "engine/sample/choose.h"
#include "engine/sample/masks.h"
#include "engine/sample/sampler.h"
#include "noise.h"
#include "ops/math.h"
#include "ops/rows/rows.h"
#include "tensor/dtype.h"

enum { MAX_ROW = 40009 }; /* published vocabularies are larger than 32,768 */

static float unit(uint64_t key)
{
    return (float)(ek_mix64(key) >> 40) * 0x1p-24f;
}

/* --- choosing the best */

static int by_rank(const void *x, const void *y)
{
    const ek_candidate *a = x, *b = y;
    if (a->z != b->z) return a->z > b->z ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void sorted(const float *z, int n, ek_candidate *out)
{
    for (int i = 0; i < n; i++) out[i] = (ek_candidate){z[i], i};
    qsort(out, (size_t)n, sizeof *out, by_rank);
}

static float row[MAX_ROW];
static ek_candidate want[MAX_ROW];

static void the_best_come_in_order(void **state)
{
    (void)state;
    static const int lengths[] = {1, 2, 15, 63, 64, 65, 129, 1000, 4097, 5000, MAX_ROW},
                     hints[] = {1, 2, 10, 64, 256, 5000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t h = 0; h < sizeof hints / sizeof *hints; h++)
            for (int coarse = 0; coarse < 3; coarse++) {
                int n = lengths[l];
                for (int i = 0; i < n; i++) {
                    float u = unit(l * 1000003 + h * 10007 + (uint64_t)coarse * 101 + (uint64_t)i * 7);
                    row[i] = coarse == 0 ? u : coarse == 1 ? floorf(u * 8) : -INFINITY; /* many ties; all equal */
                    if (coarse == 1 && u > 0.9f) row[i] = -INFINITY;
                }
                sorted(row, n, want);
                ek_choose c;
                ek_choose_init(&c, n);
                ek_candidate got;
                ek_choose_start(&c, row, hints[h]);
                int values = 0;
                while (values < n && want[values].z > -INFINITY) values++;
                for (int i = 0; i < values; i++) {
                    if (i == n / 3 || i == values - 1) { /* begins again, here and there */
                        ek_choose_again(&c);
                        for (int k = 0; k < i; k++) {
                            assert_true(ek_choose_next(&c, &got));
                            assert_int_equal(got.id, want[k].id);
                        }
                    }
                    assert_true(ek_choose_next(&c, &got));
                    assert_int_equal(got.id, want[i].id);
                    assert_true(got.z == want[i].z);
                }
                assert_false(ek_choose_next(&c, &got));
                ek_choose_fini(&c);
            }
}

/* --- the whole, against a definition that sorts everything and leaves nothing out */

static int32_t by_definition(const float *logits, const uint64_t *allowed, int n, const ek_sampling *o,
                             const int32_t *tokens, int n_prompt, int n_tokens, int32_t suppress)
{
    static float z[MAX_ROW];
    for (int t = 0; t < n; t++) z[t] = !allowed || allowed[t / 64] >> t % 64 & 1 ? logits[t] : -INFINITY;
    z[suppress] = -INFINITY;
    for (int i = 0; i < o->n_bias; i++) z[o->bias[i].token] += o->bias[i].bias;
    for (int t = 0; t < n; t++) {
        int all = 0, reply = 0;
        for (int i = 0; i < n_tokens; i++) all += tokens[i] == t, reply += i >= n_prompt && tokens[i] == t;
        if (all) z[t] = z[t] < 0 ? z[t] * o->repetition_penalty : z[t] / o->repetition_penalty;
        if (reply) z[t] -= o->presence_penalty, z[t] -= o->frequency_penalty * (float)reply;
    }
    if (o->temperature > 0)
        for (int t = 0; t < n; t++) z[t] /= o->temperature;
    sorted(z, n, want);
    if (want[0].z == -INFINITY) return -1;
    if (o->temperature == 0) return want[0].id;
    int k = o->top_k > 0 && o->top_k < n ? o->top_k : n;
    float total = 0, sum = 0;
    for (int i = 0; i < k; i++) total += ek_exp(want[i].z - want[0].z);
    ek_row_ops plain;
    ek_row_init(&plain, 0);
    if (k == n) total = plain.sum_exp(z, n, want[0].z);
    int32_t best = -1;
    float max = 0;
    for (int i = 0; i < k && want[i].z > -INFINITY; i++) {
        float w = ek_exp(want[i].z - want[0].z);
        if (i > 0 && o->top_p < 1 && !(sum < o->top_p * total)) break;
        if (i > 0 && w < o->min_p) break;
        sum += w;
        float g = want[i].z + gumbel_of(o->seed, n_tokens, want[i].id);
        if (best < 0 || g > max || (g == max && want[i].id < best)) max = g, best = want[i].id;
    }
    return best;
}

static void draws_follow_the_definition(void **state)
{
    (void)state;
    static const int sizes[] = {1, 3, 60, 389, 2000, 5000};
    int masked = 0, distinct[3] = {0};
    for (uint64_t seed = 0; seed < 3000; seed++) {
        uint64_t r = ek_mix64(seed);
        int n = seed % 40 == 39 ? MAX_ROW : sizes[r % 6], n_tokens = 1 + (int)((r >> 8) % 40),
            n_prompt = 1 + (int)((r >> 16) % (uint64_t)n_tokens);
        int32_t tokens[40], suppress = (int32_t)((r >> 24) % (uint64_t)n);
        float wide = r >> 32 & 1 ? 30 : 3;
        for (int i = 0; i < n; i++) {
            row[i] = wide * (2 * unit(seed * 100000 + (uint64_t)i) - 1);
            if (r >> 33 & 1) row[i] = rintf(row[i]); /* ties */
        }
        for (int i = 0; i < n_tokens; i++) tokens[i] = (int32_t)(ek_mix64(seed + 77 * (uint64_t)i) % (uint64_t)n);
        ek_logit_bias bias[3] = {{tokens[0], 4.5f}, {(int32_t)(r % (uint64_t)n), -INFINITY}, {tokens[0], -1}};
        ek_sampling o = ek_sampling_greedy();
        o.seed = r;
        o.bias = bias;
        o.n_bias = (int)(r >> 34 & 3);
        static const float temperature[] = {0, 1, 1, 0.3f, 1.7f, 0.01f, 1, 0.8f};
        o.temperature = temperature[r >> 36 & 7];
        static const int top_k[] = {0, 0, 1, 5, 64, 300, 100000, 0};
        o.top_k = top_k[r >> 39 & 7];
        static const float top_p[] = {1, 1, 0.95f, 0.5f, 0, 0.999f, 1, 0.9f}, min_p[] = {0, 0, 0, 0.05f};
        o.top_p = top_p[r >> 42 & 7];
        o.min_p = min_p[r >> 45 & 3];
        if (r >> 47 & 1) o.repetition_penalty = 1.3f;
        if (r >> 48 & 1) o.presence_penalty = 0.7f;
        if (r >> 49 & 1) o.frequency_penalty = -0.4f;
        unsigned cpu = 0;
        const char *const *isas = ek_cpu_isas();
        int n_isas = 0;
        while (isas[n_isas]) n_isas++;
        assert_int_equal(ek_cpu_mask(isas[seed % (uint64_t)n_isas], &cpu), EK_OK);
        ek_sampler *s;
        ek_sampler_open(&s, cpu, n, &suppress, 1);
        assert_int_equal(ek_sampling_check(&o, n), EK_OK);
        static uint64_t allowed[MAX_ROW / 64 + 1];
        const uint64_t *mask = r >> 50 & 1 ? allowed : NULL;
        for (int w = 0; w < ek_mask_words(n); w++) { /* words of all, none, a few and most */
            uint64_t bits = ek_mix64(seed * 1000 + (uint64_t)w);
            allowed[w] = bits >> 60 < 5 ? UINT64_MAX : bits >> 60 < 9 ? 0 : bits & ek_mix64(bits);
            if (r >> 51 & 1 && w > 0) allowed[w] = 0; /* nearly nothing */
        }
        int32_t right = by_definition(row, mask, n, &o, tokens, n_prompt, n_tokens, suppress);
        for (int twice = 0; twice < 2; twice++) /* nothing is left over from a draw */
            assert_int_equal(ek_sample(s, row, mask, &o, tokens, n_prompt, n_tokens), right);
        masked += right < 0;
        if (right >= 0) distinct[right != want[0].id]++;
        ek_sampler_close(s);
    }
    assert_true(masked > 10 && distinct[0] > 100 && distinct[1] > 100); /* every way out was taken */
}

/* --- the distribution */

/* Draws of n categories at many positions against probabilities p (0: must not occur). */
static void check_distribution(const float *logits, int n, const ek_sampling *o, const double *p)
{
    enum { DRAWS = 100000 };
    int count[64] = {0}, classes = 0;
    ek_sampler *s;
    ek_sampler_open(&s, ek_cpu_detect(), n, NULL, 0);
    for (int pos = 1; pos <= DRAWS; pos++) {
        static const int32_t no_history[1];
        ek_sampling at = *o;
        at.seed = (uint64_t)pos / 50000; /* over positions and over seeds */
        count[ek_sample(s, logits, NULL, &at, no_history, 1, pos)]++;
    }
    ek_sampler_close(s);
    double chi = 0;
    for (int i = 0; i < n; i++) {
        if (p[i] == 0) assert_int_equal(count[i], 0);
        double e = p[i] * DRAWS;
        if (e < 5) continue;
        chi += (count[i] - e) * (count[i] - e) / e;
        classes++;
    }
    assert_true(classes > 2);
    double free = classes - 1; /* five standard deviations; the draws never change */
    assert_true(chi < free + 5 * sqrt(2 * free));
}

static void draws_have_the_softmax_distribution(void **state)
{
    (void)state;
    enum { N = 50 };
    float logits[N];
    double p[N], sum = 0;
    for (int i = 0; i < N; i++) logits[i] = 6 * unit(31 + (uint64_t)i) - 3;
    ek_sampling o = ek_sampling_greedy();
    o.temperature = 0.8f;
    for (int i = 0; i < N; i++) sum += p[i] = exp(logits[i] / 0.8);
    for (int i = 0; i < N; i++) p[i] /= sum;
    check_distribution(logits, N, &o, p);

    sorted(logits, N, want);
    double kept = 0, q[N] = {0};
    for (int i = 0; i < 12; i++) kept += q[want[i].id] = p[want[i].id];
    for (int i = 0; i < N; i++) q[i] /= kept;
    o.top_k = 12;
    check_distribution(logits, N, &o, q);

    memset(q, 0, sizeof q);
    double before = 0;
    int i = 0;
    for (; i < N && before < 0.7; i++) before += q[want[i].id] = p[want[i].id];
    for (int k = 0; k < N; k++) q[k] /= before;
    o.top_k = 0;
    o.top_p = 0.7f;
    check_distribution(logits, N, &o, q);

    memset(q, 0, sizeof q);
    before = 0;
    for (i = 0; i < N && p[want[i].id] >= 0.2 * p[want[0].id]; i++) before += q[want[i].id] = p[want[i].id];
    for (int k = 0; k < N; k++) q[k] /= before;
    o.top_p = 1;
    o.min_p = 0.2f;
    check_distribution(logits, N, &o, q);
}

static void greedy_takes_the_first_of_equals(void **state)
{
    (void)state;
    float logits[300];
    for (int i = 0; i < 300; i++) logits[i] = i == 70 || i == 71 || i == 290 ? 2 : 1;
    int32_t suppress[] = {70};
    static const int32_t tokens[] = {1};
    ek_sampler *s;
    ek_sampling o = ek_sampling_greedy();
    ek_sampler_open(&s, ek_cpu_detect(), 300, NULL, 0);
    assert_int_equal(ek_sample(s, logits, NULL, &o, tokens, 1, 1), 70);
    o.temperature = 1e-6f;
    assert_int_equal(ek_sample(s, logits, NULL, &o, tokens, 1, 1), 70);
    ek_sampler_close(s);
    ek_sampler_open(&s, ek_cpu_detect(), 300, suppress, 1);
    assert_int_equal(ek_sample(s, logits, NULL, &o, tokens, 1, 1), 71);
    ek_sampler_close(s);
}

static void digest_tells_every_bit(void **state)
{
    enum { N = 1000 };
    float x[N];
    (void)state;
    for (int i = 0; i < N; i++) x[i] = (float)i / 7;
    const uint64_t whole = ek_logits_digest(x, N);
    uint64_t sum = 0;
    for (int i = N - 1; i >= 0; i--) sum += ek_mix64((uint64_t)i << 32 | ek_f32_bits(x[i]));
    assert_true(whole == sum);
    for (int i = 0; i < N; i += 37)
        for (int b = 0; b < 32; b++) {
            const float was = x[i];
            x[i] = ek_bits_f32(ek_f32_bits(was) ^ 1u << b);
            assert_true(ek_logits_digest(x, N) != whole);
            x[i] = was;
        }
    x[3] = 4.0f / 7, x[4] = 3.0f / 7; /* exchanged */
    assert_true(ek_logits_digest(x, N) != whole);
    assert_true(ek_logits_digest(x, N - 1) != ek_logits_digest(x, N));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_come_in_order),
        cmocka_unit_test(draws_follow_the_definition),
        cmocka_unit_test(draws_have_the_softmax_distribution),
        cmocka_unit_test(greedy_takes_the_first_of_equals),
        cmocka_unit_test(digest_tells_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
