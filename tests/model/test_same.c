/* The promise at the level of one forward pass: chunks, other rows, threads and instruction set
 * leave every bit of every logit as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/hashed.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "tensor/dtype.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "model/pass.h"

enum { TOKENS = 80, OTHERS = 5 }; /* longer than a page and than any window */

static const char *const names[] = {"T1", "T2", "T3", "T4", "T5", "T6", "Q1", "Q2", "Q3"};
enum { N_NAMES = sizeof names / sizeof *names };

static void tokens(int32_t *ids, int n, const char *what, int vocab)
{
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(hashed_bits(what, (uint64_t)i) % (uint64_t)vocab);
}

static ek_model *make(const char *name, int bits, unsigned cpu, ek_pool *pool, ek_kv_format kv)
{
    ek_config *c = ek_alloc(sizeof *c);
    ek_model *m;
    assert_int_equal(ek_config_tiny(c, name), EK_OK);
    ek_model_opts o = {.cpu = cpu, .pool = pool, .k_format = kv, .v_format = kv};
    if (ek_model_synthetic(&m, c, bits, 7, &o)) fail_msg("%s", ek_err_text());
    free(c);
    return m;
}

static void same(const float *want, const float *got, int rows, int vocab, const char *name, int bits, const char *how)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vocab; i++) {
            size_t at = (size_t)r * (size_t)vocab + (size_t)i;
            if (ek_f32_bits(want[at]) != ek_f32_bits(got[at]))
                fail_msg("%s %d bits, %s: position %d logit %d is %a, alone %a", name, bits, how, r, i, (double)got[at],
                         (double)want[at]);
        }
}

/* Rows that want no logits are left out of most layers; the others must not notice. */
static void some_want(const ek_model *m, const int32_t *ids, float *logits, int step)
{
    int vocab = ek_model_config(m)->vocab_size, window = ek_model_config(m)->sliding_window;
    ek_scratch *s;
    assert_int_equal(ek_scratch_open(&s, m, step, step, TOKENS), EK_OK);
    test_seq q = seq_open(m, TOKENS);
    ek_row row[TOKENS];
    for (int at = 0; at < TOKENS; at += step) {
        int n = TOKENS - at < step ? TOKENS - at : step, wanted = 0;
        float *few = ek_alloc(sizeof *few * (size_t)(n * vocab));
        for (int r = 0; r < n; r++)
            row[r] = ek_text_row(ids[at + r], at + r, 0, hashed_bits("want", (uint64_t)(at + r)) % 3 == 0, window);
        assert_int_equal(ek_model_forward(m, s, &q.kv, row, n, &q.seq, 1, few, vocab), EK_OK);
        for (int r = 0; r < n; r++)
            if (row[r].wants_logits)
                memcpy(logits + (at + r) * vocab, few + wanted++ * vocab, sizeof *few * (size_t)vocab);
        free(few);
    }
    seq_close(&q);
    ek_scratch_close(s);
}

static void test_chunks(void **state)
{
    (void)state;
    static const int steps[][8] = {{1}, {5, 1, 16, 2, 1, 12}, {63, 1, 16}};
    int32_t ids[TOKENS];
    for (int i = 0; i < N_NAMES; i++)
        for (int bits = 0; bits <= 8; bits += 4) {
            ek_model *m = make(names[i], bits, ek_cpu_detect(), NULL, (i + bits / 4) % EK_KV_FORMAT_COUNT);
            int vocab = ek_model_config(m)->vocab_size;
            size_t n = sizeof(float) * (size_t)(TOKENS * vocab);
            float *want = ek_alloc(n), *got = ek_alloc(n);
            tokens(ids, TOKENS, names[i], vocab);
            assert_int_equal(run_tokens(m, ids, TOKENS, NULL, want), EK_OK);
            for (int t = 0; t < TOKENS * vocab; t++) assert_true(want[t] > -31 && want[t] < 31);
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
                assert_int_equal(run_tokens(m, ids, TOKENS, steps[s], got), EK_OK);
                same(want, got, TOKENS, vocab, names[i], bits, "in chunks");
            }
            for (int step = 1; step <= TOKENS; step += 39) {
                memcpy(got, want, n);
                some_want(m, ids, got, step);
                same(want, got, TOKENS, vocab, names[i], bits, "with few rows wanting logits");
            }
            free(want), free(got);
            ek_model_close(m);
        }
}

/* Every format of keys and values: cold equals chunks of any size. */
static void test_formats(void **state)
{
    (void)state;
    int32_t ids[TOKENS];
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++) {
        const char *name = names[f % N_NAMES];
        ek_model *m = make(name, 4, ek_cpu_detect(), NULL, (ek_kv_format)f);
        int vocab = ek_model_config(m)->vocab_size;
        float *want = ek_alloc(sizeof *want * (size_t)(TOKENS * vocab));
        float *got = ek_alloc(sizeof *got * (size_t)(TOKENS * vocab));
        tokens(ids, TOKENS, name, vocab);
        assert_int_equal(run_tokens(m, ids, TOKENS, NULL, want), EK_OK);
        assert_int_equal(run_tokens(m, ids, TOKENS, (const int[]){7, 1, 20, 0}, got), EK_OK);
        same(want, got, TOKENS, vocab, name, 4, ek_kv_format_name((ek_kv_format)f));
        free(want), free(got);
        ek_model_close(m);
    }
}

static void test_instruction_sets_and_threads(void **state)
{
    (void)state;
    int32_t ids[TOKENS];
    for (int i = 0; i < N_NAMES; i++)
        for (int bits = 0; bits <= 8; bits += 4) {
            float *want = NULL;
            for (const char *const *isa = ek_cpu_isas(); *isa; isa++)
                for (int threads = 1; threads <= (isa[1] ? 1 : 2); threads++) {
                    unsigned cpu;
                    ek_pool *pool;
                    assert_int_equal(ek_cpu_mask(*isa, &cpu), EK_OK);
                    assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
                    ek_model *m = make(names[i], bits, cpu, pool, EK_KV_BF16);
                    int vocab = ek_model_config(m)->vocab_size;
                    float *got = ek_alloc(sizeof *got * (size_t)(TOKENS * vocab));
                    tokens(ids, TOKENS, names[i], vocab);
                    assert_int_equal(run_tokens(m, ids, TOKENS, (const int[]){50, 1, 0}, got), EK_OK);
                    if (want) same(want, got, TOKENS, vocab, names[i], bits, *isa);
                    if (want) free(got);
                    else want = got;
                    ek_model_close(m);
                    ek_pool_close(pool);
                }
            free(want);
        }
}

/* Sequences of different ages share every step: one row of each, then several. */
static void together(const ek_model *m, int32_t ids[OTHERS][TOKENS], float *logits[OTHERS])
{
    static const int take[OTHERS] = {1, 7, 16, 3, 2};
    int vocab = ek_model_config(m)->vocab_size, window = ek_model_config(m)->sliding_window;
    int at[OTHERS] = {0}, left = OTHERS * TOKENS, each = TOKENS / EK_PAGE_TOKENS + 1;
    test_seq pool = seq_open(m, OTHERS * each * EK_PAGE_TOKENS); /* the pages of all */
    ek_seq all[OTHERS];
    ek_row row[OTHERS * 16];
    ek_scratch *s;
    assert_int_equal(ek_scratch_open(&s, m, OTHERS * 16, OTHERS * 16, TOKENS), EK_OK);
    for (int q = 0; q < OTHERS; q++) {
        all[q] = pool.seq;
        for (int k = 0; k < EK_KIND_COUNT; k++) all[q].page[k] += q * each, all[q].end[k] = each;
    }
    float *out = ek_alloc(sizeof *out * (size_t)(OTHERS * 16 * vocab));
    for (int step = 0; left > 0; step++) {
        int n = 0;
        for (int q = 0; q < OTHERS; q++)
            for (int j = 0; j < take[(q + step) % OTHERS] && at[q] + j < TOKENS && step >= q * 3; j++)
                row[n++] = ek_text_row(ids[q][at[q] + j], at[q] + j, q, true, window);
        assert_int_equal(ek_model_forward(m, s, &pool.kv, row, n, all, OTHERS, out, vocab), EK_OK);
        for (int r = 0; r < n; r++) {
            memcpy(logits[row[r].seq] + row[r].pos * vocab, out + r * vocab, sizeof *out * (size_t)vocab);
            at[row[r].seq]++;
        }
        left -= n;
    }
    free(out);
    seq_close(&pool);
    ek_scratch_close(s);
}

static void test_company(void **state)
{
    (void)state;
    static int32_t ids[OTHERS][TOKENS];
    for (int i = 0; i < N_NAMES; i++)
        for (int bits = 0; bits <= 4; bits += 4) {
            ek_model *m = make(names[i], bits, ek_cpu_detect(), NULL, (i + 2 + bits / 4) % EK_KV_FORMAT_COUNT);
            int vocab = ek_model_config(m)->vocab_size;
            size_t n = sizeof(float) * (size_t)(TOKENS * vocab);
            float *want = ek_alloc(n), *got[OTHERS];
            for (int q = 0; q < OTHERS; q++) {
                char what[32];
                snprintf(what, sizeof what, "%s.%d", names[i], q);
                tokens(ids[q], TOKENS, what, vocab);
                got[q] = ek_alloc(n);
            }
            together(m, ids, got);
            for (int q = 0; q < OTHERS; q++) {
                assert_int_equal(run_tokens(m, ids[q], TOKENS, NULL, want), EK_OK);
                same(want, got[q], TOKENS, vocab, names[i], bits, "in company");
                free(got[q]);
            }
            free(want);
            ek_model_close(m);
        }
}

/* A refused step leaves everything as it was. */
static void test_bad_steps_are_refused(void **state)
{
    (void)state;
    ek_model *m = make("T1", 0, ek_cpu_detect(), NULL, EK_KV_BF16);
    int vocab = ek_model_config(m)->vocab_size;
    int window = ek_model_config(m)->sliding_window;
    const ek_row good[] = {ek_text_row(5, 0, 0, true, window), ek_text_row(6, 1, 0, true, window)};
    ek_row far = good[1], blind = good[0], early = good[1];
    far.visible[EK_FULL].end = 3;                 /* beyond what the step writes */
    blind.visible[EK_SLIDING] = (ek_range){0, 0}; /* not even itself */
    early.visible[EK_FULL].lo = -1;
    const struct {
        ek_row row[2];
        const char *says;
    } bad[] = {
        {{ek_text_row(vocab, 0, 0, true, window), good[1]}, "token id 99, the vocabulary has 99"},
        {{ek_text_row(-1, 0, 0, true, window), good[1]}, "token id -1"},
        {{good[0], ek_text_row(6, 2, 0, true, window)}, "row 1 is at position 2, the row before it at 0"},
        {{good[0], ek_text_row(6, 1, 1, true, window)}, "row 1 is of sequence 1, there are 1"},
        {{ek_text_row(5, 8, 0, true, window), ek_text_row(6, 9, 0, true, window)},
         "row 0 is at position 8, the context is 8"},
        {{ek_text_row(5, -1, 0, true, window), ek_text_row(6, 0, 0, true, window)}, "position -1"},
        {{good[0], far}, "row 1 at position 1 sees [0, 3), written is [0, 2)"},
        {{blind, good[1]}, "row 0 at position 0 sees [0, 0)"},
        {{good[0], early}, "row 1 at position 1 sees [-1, 2)"},
    };
    ek_scratch *s;
    assert_int_equal(ek_scratch_open(&s, m, 2, 1, 8), EK_OK);
    test_seq q = seq_open(m, 8);
    float logits[2 * 99], before = logits[0] = 42;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ek_model_forward(m, s, &q.kv, bad[i].row, 2, &q.seq, 1, logits, vocab), EK_EINVAL);
        if (!strstr(ek_err_text(), bad[i].says)) fail_msg("\"%s\", wanted \"%s\"", ek_err_text(), bad[i].says);
    }
    assert_int_equal(ek_model_forward(m, s, &q.kv, good, 2, &q.seq, 1, logits, vocab), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "2 rows want logits, scratch memory is for 1"));
    assert_int_equal(ek_model_forward(m, s, &q.kv, good, 0, &q.seq, 1, logits, vocab), EK_EINVAL);
    assert_true(logits[0] == before);
    for (int k = 0; k < EK_KIND_COUNT; k++) assert_int_equal(q.kv.base[k][0], 0xff);
    seq_close(&q);
    ek_scratch_close(s);
    assert_int_equal(ek_scratch_open(&s, m, 2, 3, 8), EK_EINVAL);
    ek_model_close(m);
}

/* A token's own embedding in its place gives the token's bits; with per-layer inputs, the pad token's. */
static void own_embedding(const ek_model *m, int32_t token, float *out)
{
    ek_linear_row(&m->w.embed, token, out);
    m->rows.scale(out, ek_config_embed_scale(&m->config, m->config.hidden_size), m->config.hidden_size);
}

static void run_rows(const ek_model *m, const ek_row *row, const int *steps, float *logits)
{
    ek_scratch *s;
    int vocab = m->config.vocab_size;
    assert_int_equal(ek_scratch_open(&s, m, TOKENS, TOKENS, TOKENS), EK_OK);
    test_seq q = seq_open(m, TOKENS);
    for (int at = 0, i = 0; at < TOKENS; at += steps[i++])
        assert_int_equal(ek_model_forward(m, s, &q.kv, row + at, steps[i], &q.seq, 1, logits + at * vocab, vocab),
                         EK_OK);
    seq_close(&q);
    ek_scratch_close(s);
}

static void test_embeddings(void **state)
{
    (void)state;
    static const int steps[][4] = {{TOKENS}, {30, 1, 49}};
    for (int i = 0; i < N_NAMES; i++) {
        ek_model *m = make(names[i], i % 2 ? 4 : 0, ek_cpu_detect(), NULL, EK_KV_I16);
        int vocab = m->config.vocab_size, window = m->config.sliding_window, hidden = m->config.hidden_size;
        int32_t ids[TOKENS];
        ek_row row[TOKENS];
        float *e = ek_alloc(sizeof *e * (size_t)(TOKENS * hidden));
        float *want = ek_alloc(sizeof *want * (size_t)(TOKENS * vocab)),
              *got = ek_alloc(sizeof *got * (size_t)(TOKENS * vocab));
        tokens(ids, TOKENS, names[i], vocab);
        for (int r = 0; r < TOKENS; r++) {
            bool as_vector = r % 3 != 1;
            if (as_vector && m->config.per_layer_size) ids[r] = m->config.pad;
            row[r] = ek_text_row(ids[r], r, 0, true, window);
            if (!as_vector) continue;
            own_embedding(m, ids[r], e + r * hidden);
            row[r].embedding = e + r * hidden;
            row[r].token = (ids[r] + 1) % vocab; /* a placeholder */
        }
        assert_int_equal(run_tokens(m, ids, TOKENS, NULL, want), EK_OK);
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
            run_rows(m, row, steps[s], got);
            same(want, got, TOKENS, vocab, names[i], 0, "as embeddings");
        }
        free(e), free(want), free(got);
        ek_model_close(m);
    }
}

/* Rows [20, 45) see each other. What is before them does not notice; they and what follows do; one step or
 * three around the block, every instruction set. */
static void test_mutual_rows(void **state)
{
    (void)state;
    enum { FIRST = 20, END = 45 };
    int noticed = 0; /* models in which the first row behind the block sees keys that the block changed */
    static const int steps[][4] = {{TOKENS}, {FIRST, END - FIRST, TOKENS - END}, {7, 40, 33}};
    for (int i = 0; i < 6; i++) /* the T shapes have every branch */
        for (int kind = 0; kind < EK_KIND_COUNT; kind++) {
            int32_t ids[TOKENS];
            ek_row row[TOKENS];
            float *first = NULL, *plain = NULL;
            for (const char *const *isa = ek_cpu_isas(); *isa; isa++) {
                unsigned cpu;
                assert_int_equal(ek_cpu_mask(*isa, &cpu), EK_OK);
                ek_model *m = make(names[i], i % 2 ? 4 : 0, cpu, NULL, EK_KV_I16);
                int vocab = m->config.vocab_size;
                size_t bytes = sizeof(float) * (size_t)(TOKENS * vocab);
                tokens(ids, TOKENS, names[i], vocab);
                for (int r = 0; r < TOKENS; r++) {
                    row[r] = ek_text_row(ids[r], r, 0, true, m->config.sliding_window);
                    if (r >= FIRST && r < END) row[r].visible[kind].end = END;
                }
                for (size_t s = 0; s < (cpu ? sizeof steps / sizeof *steps : 1); s++) {
                    float *got = ek_alloc(bytes);
                    run_rows(m, row, steps[s], got);
                    if (first) same(first, got, TOKENS, vocab, names[i], kind, "rows that see each other");
                    if (first) free(got);
                    else first = got;
                }
                if (!plain && m->attn[kind]) {
                    plain = ek_alloc(bytes);
                    assert_int_equal(run_tokens(m, ids, TOKENS, NULL, plain), EK_OK);
                    assert_memory_equal(plain, first, sizeof(float) * (size_t)(FIRST * vocab));
                    int hidden = 0; /* activations of one limb may round away what a few far keys change */
                    for (int r = FIRST; r < END - 1; r++)
                        hidden += memcmp(plain + r * vocab, first + r * vocab, sizeof(float) * (size_t)vocab) == 0;
                    assert_true(hidden <= 1);
                    noticed += memcmp(plain + END * vocab, first + END * vocab, sizeof(float) * (size_t)vocab) != 0;
                }
                ek_model_close(m);
            }
            free(first), free(plain);
        }
    assert_true(noticed >= 4);
}

static void test_synthetic_is_a_function_of_its_seed(void **state)
{
    (void)state;
    ek_config *c = ek_alloc(sizeof *c);
    ek_model_opts o = {.cpu = ek_cpu_detect()};
    float logits[3][331];
    for (int i = 0; i < 3; i++) {
        ek_model *m;
        assert_int_equal(ek_config_tiny(c, "Q1"), EK_OK);
        assert_int_equal(ek_model_synthetic(&m, c, 4, i < 2 ? 1 : 2, &o), EK_OK);
        assert_int_equal(run_tokens(m, (const int32_t[]){9}, 1, NULL, logits[i]), EK_OK);
        ek_model_close(m);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_not_equal(logits[0], logits[2], sizeof logits[0]);
    free(c);
}

int main(void)
{
    ek_log_set(EK_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_instruction_sets_and_threads),
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_bad_steps_are_refused),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_mutual_rows),
        cmocka_unit_test(test_synthetic_is_a_function_of_its_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
