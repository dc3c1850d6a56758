/* The CPU executor by itself: several draws of one request in a step, refused drafts, adopted prefixes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "cache/page_table.h"
#include "engine/executor.h"
#include "engine/sample/sampler.h"

enum { PROMPT = 70, REPLY = 40, MAX = PROMPT + REPLY + 8, DRAFT = 4, PAGES = 24, SEQS = 3, MAX_VOCAB = 512 };

/* A model on its executor, with the cache that an engine would keep. */
typedef struct bed {
    ek_model *model;
    ek_pool *pool;
    ek_executor x;
    ek_pages *pages;
    int vocab, window;
} bed;

/* One sequence, as a request is one. */
typedef struct lane {
    int32_t tokens[MAX];
    int n_tokens;
    ek_page_table table;
    uint64_t hash[MAX]; /* of the logits at a position; 0: not seen yet */
} lane;

static bed open_bed(const char *name, int threads)
{
    bed b = {0};
    ek_config *c = calloc(1, sizeof *c);
    assert_int_equal(ek_config_tiny(c, name), EK_OK);
    assert_int_equal(ek_pool_open(&b.pool, threads), EK_OK);
    ek_model_opts o = {.cpu = ek_cpu_detect(), .pool = b.pool, .k_format = EK_KV_I16, .v_format = EK_KV_I16};
    assert_int_equal(ek_model_synthetic(&b.model, c, 0, 3, &o), EK_OK);
    free(c);
    b.x = ek_executor_cpu(b.model);
    ek_executor_sizes sizes = {.max_rows = PROMPT, .max_logits = PROMPT, .max_ctx = MAX, .max_requests = SEQS};
    for (int k = 0; k < EK_KIND_COUNT; k++) sizes.n_pages[k] = b.x.layout->page_bytes[k] ? PAGES : 0;
    assert_int_equal(b.x.open(b.x.arg, &sizes), EK_OK);
    for (int k = 0; k < EK_KIND_COUNT; k++)
        for (int i = 0; i < sizes.n_pages[k]; i++) b.x.poison_page(b.x.arg, (ek_layer_kind)k, i);
    ek_page_memory memory = {b.x.arg, b.x.copy_page, b.x.poison_page};
    assert_int_equal(ek_pages_open(&b.pages, sizes.n_pages, &memory), EK_OK);
    b.vocab = b.x.config->vocab_size, b.window = b.x.config->sliding_window;
    assert_true(b.vocab <= MAX_VOCAB);
    return b;
}

static void close_bed(bed *b)
{
    ek_pages_close(b->pages);
    b->x.close(b->x.arg);
    ek_model_close(b->model);
    ek_pool_close(b->pool);
}

static void open_lane(const bed *b, lane *l, uint64_t seed)
{
    memset(l, 0, sizeof *l);
    for (int i = 0; i < PROMPT; i++) l->tokens[i] = (int32_t)(ek_mix64(seed * 1000 + (uint64_t)i) % (uint64_t)b->vocab);
    l->n_tokens = PROMPT;
    ek_page_table_init(&l->table, b->x.layout, MAX);
}

static void close_lane(const bed *b, lane *l)
{
    ek_page_table_clear(&l->table, b->pages);
    ek_page_table_fini(&l->table);
}

static ek_seq seq_of(const lane *l, int slot)
{
    ek_seq s = {.slot = slot};
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        s.page[k] = l->table.page[k];
        s.first[k] = l->table.first[k], s.end[k] = l->table.end[k];
    }
    return s;
}

/* Runs the tokens from the table's end to n; each of the last `draws` is drawn from, with the tokens up to it as
 * its history. The drawn tokens go to out. */
static void run(const bed *b, lane *l, int n, const ek_sampling *o, int draws, int32_t *out)
{
    ek_row row[PROMPT];
    ek_draw draw[DRAFT + 1];
    bool shown[PROMPT] = {0};
    int first = l->table.n, n_rows = n - first;
    assert_int_equal(ek_page_table_extend(&l->table, b->pages, n_rows), EK_OK);
    for (int i = 0; i < n_rows; i++)
        row[i] = ek_text_row(l->tokens[first + i], first + i, 0, i >= n_rows - draws, b->window);
    for (int i = 0; i < draws; i++) {
        draw[i] = (ek_draw){
            .logits = i, .sampling = o, .tokens = l->tokens, .n_prompt = PROMPT, .n_tokens = n - draws + 1 + i};
        shown[i] = true;
    }
    ek_seq seq = seq_of(l, 0);
    ek_step step = {.row = row,
                    .n_rows = n_rows,
                    .seq = &seq,
                    .n_seqs = 1,
                    .shown = shown,
                    .digested = shown,
                    .draw = draw,
                    .n_draws = draws};
    assert_int_equal(b->x.step(b->x.arg, &step), EK_OK);
    for (int i = 0; i < draws; i++) {
        int pos = n - draws + i;
        out[i] = draw[i].token;
        assert_int_equal(b->x.digest(b->x.arg, i), ek_logits_digest(b->x.logits(b->x.arg, i), b->vocab));
        l->hash[pos] = ek_hash64(1, b->x.logits(b->x.arg, i), sizeof(float) * (uint64_t)b->vocab);
    }
}

/* One token after the other: what all else must give. */
static void reply_plainly(const bed *b, lane *l, const ek_sampling *o)
{
    while (l->n_tokens < PROMPT + REPLY) {
        int32_t token;
        run(b, l, l->n_tokens, o, 1, &token);
        assert_true(token >= 0);
        l->tokens[l->n_tokens++] = token;
        ek_page_table_trim(&l->table, b->pages, l->table.n);
    }
}

static const ek_sampling samplings[] = {
    {.top_p = 1, .repetition_penalty = 1},
    {.temperature = 1.3f,
     .top_k = 40,
     .top_p = 0.95f,
     .repetition_penalty = 1.3f,
     .frequency_penalty = 0.4f,
     .seed = 5},
};

/* Drafts of up to DRAFT tokens, right up to a random place: k + 1 rows are verified in one step, each sampled at
 * its own position with its own history (penalties see the drafted tokens before it). */
static void drafts_are_verified_in_one_step(void **state)
{
    (void)state;
    static const char *const names[] = {"T1", "T3", "T5", "T6"};
    int refused = 0;
    for (size_t m = 0; m < sizeof names / sizeof *names; m++)
        for (size_t s = 0; s < 2; s++) {
            bed b = open_bed(names[m], 1 + (int)m % 2);
            static lane plain, l;
            int steps = 0;
            open_lane(&b, &plain, m + 1);
            reply_plainly(&b, &plain, &samplings[s]);
            open_lane(&b, &l, m + 1);
            while (l.n_tokens < PROMPT + REPLY) {
                uint64_t r = ek_mix64(m * 100 + s * 1000 + (uint64_t)l.n_tokens);
                int k = l.table.n == 0 ? 0 : (int)(r % (DRAFT + 1)), good = (int)((r >> 8) % (DRAFT + 1)),
                    n = l.n_tokens;
                for (int i = 0; i < k; i++) l.tokens[n + i] = plain.tokens[n + i] ^ (i >= good);
                for (int i = 0; i < k; i++) l.tokens[n + i] %= b.vocab;
                int32_t token[DRAFT + 1];
                run(&b, &l, n + k, &samplings[s], k + 1, token);
                int taken = 0;
                for (; taken < k && l.tokens[n + taken] == token[taken]; taken++) continue;
                l.tokens[n + taken] = token[taken];
                l.n_tokens = n + taken + 1;
                for (int pos = n + taken; pos < n + k; pos++) l.hash[pos] = 0; /* of tokens that were refused */
                ek_page_table_truncate(&l.table, b.pages, n + taken);
                ek_page_table_trim(&l.table, b.pages, l.table.n);
                refused += k - taken;
                steps++;
            }
            assert_true(steps < REPLY);
            assert_memory_equal(l.tokens, plain.tokens, sizeof *l.tokens * (PROMPT + REPLY));
            assert_memory_equal(l.hash, plain.hash, sizeof *l.hash * (PROMPT + REPLY - 1));
            close_lane(&b, &l);
            close_lane(&b, &plain);
            close_bed(&b);
        }
    assert_true(refused > 50);
}

/* Prefixes of every length around the edges of a page: both go on as if alone. */
static void adopted_prefixes_give_the_same_bits(void **state)
{
    (void)state;
    static const int lengths[] = {1, 5, 63, 64, 65, PROMPT - 1};
    static const char *const names[] = {"T1", "T2", "T5"};
    for (size_t m = 0; m < sizeof names / sizeof *names; m++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            bed b = open_bed(names[m], 1);
            static lane plain, from, l;
            int32_t token;
            open_lane(&b, &plain, 9);
            reply_plainly(&b, &plain, &samplings[0]);
            open_lane(&b, &from, 9);
            open_lane(&b, &l, 9);
            from.tokens[lengths[i]] ^= 1; /* the two part where the prefix ends */
            run(&b, &from, lengths[i], &samplings[0], 1, &token);
            assert_int_equal(ek_page_table_adopt(&l.table, b.pages, &from.table, lengths[i]), EK_OK);
            run(&b, &from, PROMPT, &samplings[0], 1, &token); /* writes into the page that was copied */
            reply_plainly(&b, &l, &samplings[0]);
            assert_memory_equal(l.tokens, plain.tokens, sizeof *l.tokens * (PROMPT + REPLY));
            assert_memory_equal(l.hash + PROMPT - 1, plain.hash + PROMPT - 1, sizeof *l.hash * REPLY);
            close_lane(&b, &from);
            close_lane(&b, &l);
            close_lane(&b, &plain);
            close_bed(&b);
        }
}

/* Truncated into a page that another one holds: the next row is written into a copy. */
static void a_shared_page_is_copied_before_it_is_written(void **state)
{
    (void)state;
    bed b = open_bed("T1", 1);
    static lane plain, from, l;
    int32_t token;
    open_lane(&b, &plain, 4);
    reply_plainly(&b, &plain, &samplings[0]);
    open_lane(&b, &from, 4);
    open_lane(&b, &l, 4);
    run(&b, &from, 64, &samplings[0], 1, &token);
    assert_int_equal(ek_page_table_adopt(&l.table, b.pages, &from.table, 64), EK_OK);
    assert_true(ek_page_table_holds(&l.table, 40)); /* all in the first page */
    ek_page_table_truncate(&l.table, b.pages, 40);
    l.tokens[40] ^= 1;
    run(&b, &l, 64, &samplings[0], 1, &token);
    from.n_tokens = PROMPT;
    reply_plainly(&b, &from, &samplings[0]);
    assert_memory_equal(from.tokens, plain.tokens, sizeof *l.tokens * (PROMPT + REPLY));
    close_lane(&b, &from);
    close_lane(&b, &l);
    close_lane(&b, &plain);
    close_bed(&b);
}

/* Draws of a step say each for itself that they failed. */
static void draws_fail_one_by_one(void **state)
{
    (void)state;
    bed b = open_bed("T1", 2);
    static lane l;
    static ek_logit_bias none[MAX_VOCAB];
    for (int t = 0; t < b.vocab; t++) none[t] = (ek_logit_bias){t, -INFINITY};
    ek_sampling masked = samplings[0];
    masked.bias = none, masked.n_bias = b.vocab;
    open_lane(&b, &l, 1);
    assert_int_equal(ek_page_table_extend(&l.table, b.pages, 3), EK_OK);
    float nan[MAX_VOCAB];
    for (int i = 0; i < MAX_VOCAB; i++) nan[i] = NAN;
    assert_true(b.x.config->hidden_size <= MAX_VOCAB);
    ek_row row[3];
    for (int i = 0; i < 3; i++) row[i] = ek_text_row(l.tokens[i], i, 0, true, b.window);
    row[2].embedding = nan;
    ek_draw draw[3] = {{.logits = 0, .sampling = &samplings[0], .tokens = l.tokens, .n_prompt = 3, .n_tokens = 1},
                       {.logits = 1, .sampling = &masked, .tokens = l.tokens, .n_prompt = 3, .n_tokens = 2},
                       {.logits = 2, .sampling = &samplings[0], .tokens = l.tokens, .n_prompt = 3, .n_tokens = 3}};
    static const bool shown[3];
    ek_seq seq = seq_of(&l, 0);
    ek_step step = {.row = row,
                    .n_rows = 3,
                    .seq = &seq,
                    .n_seqs = 1,
                    .shown = shown,
                    .digested = shown,
                    .draw = draw,
                    .n_draws = 3};
    assert_int_equal(b.x.step(b.x.arg, &step), EK_OK);
    assert_true(draw[0].token >= 0);
    assert_int_equal(draw[1].token, EK_DRAW_MASKED);
    assert_int_equal(draw[2].token, EK_DRAW_NOT_FINITE);
    close_lane(&b, &l);
    close_bed(&b);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_verified_in_one_step),
        cmocka_unit_test(adopted_prefixes_give_the_same_bits),
        cmocka_unit_test(a_shared_page_is_copied_before_it_is_written),
        cmocka_unit_test(draws_fail_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
