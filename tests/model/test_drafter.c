/* Drafters against an independent float64 program; what is refused as a drafter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/drafter.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "model/drafter.h"
#include "oracle.h"

enum { DRAFT = 5, MAX_NAMES = 512, CENTROIDS = 11 };

/* Hashed weights as float64, by name, made when the oracle asks. Names of drafter and target are the same, so each has
 * its own store. */
typedef struct store {
    const ek_config *c;
    const char *want;
    struct {
        char name[160];
        double *value;
    } one[MAX_NAMES];
    int n;
} store;

static void make(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    store *s = arg;
    if (strcmp(name, s->want) != 0) return;
    size_t n = 1;
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    double *v = ek_alloc(sizeof *v * n);
    for (size_t i = 0; i < n; i++) v[i] = (double)hashed_weight(name, i);
    strcpy(s->one[s->n].name, name);
    s->one[s->n++].value = v;
}

static const double *values(void *arg, const char *name)
{
    store *s = arg;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->one[i].name, name) == 0) return s->one[i].value;
    int before = s->n;
    assert_true(s->n < MAX_NAMES);
    s->want = name;
    each_tensor(s->c, make, s);
    if (s->n == before) fail_msg("the oracle asked for %s", name);
    return s->one[before].value;
}

static void drop(store *s)
{
    for (int i = 0; i < s->n; i++) free(s->one[i].value);
    free(s);
}

static int64_t order(int i, int vocab)
{
    return (int64_t)i * 5 % vocab; /* coprime to all vocabularies here */
}

static int the_vocab;

static void add_ordering(st_file *f)
{
    int64_t *id = ek_alloc(sizeof *id * (size_t)the_vocab), dim = the_vocab;
    for (int i = 0; i < the_vocab; i++) id[i] = order(i, the_vocab);
    st_add(f, "masked_embedding.token_ordering", "I64", 1, &dim, id, sizeof *id * (size_t)the_vocab);
    free(id);
}

static ek_model_opts exact(void)
{
    return (ek_model_opts){.exact = true, .k_format = EK_KV_F32, .v_format = EK_KV_F32, .cpu = ek_cpu_detect()};
}

/* The program's draft: the bonus token, DRAFT tokens and their logits. */
static void draft(const ek_model *m, ek_drafter *d, const int32_t *ids, int n, int32_t *bonus, int32_t *out, float *z)
{
    const ek_config *c = ek_model_config(m);
    test_seq q = seq_open(m, n);
    ek_row *row = ek_alloc(sizeof *row * (size_t)n);
    float *all = ek_alloc(sizeof *all * (size_t)c->vocab_size), *state = ek_alloc(4 * (size_t)c->hidden_size);
    ek_scratch *s;
    assert_int_equal(ek_scratch_open(&s, m, n, 1, n), EK_OK);
    for (int i = 0; i < n; i++) row[i] = ek_text_row(ids[i], i, 0, i == n - 1, c->sliding_window);
    assert_int_equal(ek_model_forward(m, s, &q.kv, row, n, &q.seq, 1, all, c->vocab_size), EK_OK);
    *bonus = 0;
    for (int v = 1; v < c->vocab_size; v++)
        if (all[v] > all[*bonus]) *bonus = v;
    memcpy(state, ek_scratch_hidden(s, 0), sizeof *state * (size_t)c->hidden_size);
    assert_int_equal(ek_drafter_reserve(d, 1, n + 1), EK_OK);
    ek_drafter_row r = {.seq = &q.seq, .n = n, .token = *bonus, .state = state};
    for (int i = 0; i < DRAFT; i++) {
        assert_int_equal(ek_drafter_step(d, &q.kv, &r, 1, z + i * c->vocab_size, c->vocab_size), EK_OK);
        out[i] = r.token;
    }
    ek_scratch_close(s);
    seq_close(&q);
    free(row), free(all), free(state);
}

/* Of the shape `name` with CENTROIDS or a dense head, n tokens: longer and shorter than the windows. */
static void check(const char *name, int centroids, int n, ek_rope_position position)
{
    ek_config *c = ek_alloc(sizeof *c), *dc = ek_alloc(sizeof *dc);
    assert_int_equal(ek_config_tiny(c, name), EK_OK);
    drafter_config(dc, c, centroids);
    int vocab = the_vocab = c->vocab_size;
    char *dir = temp_dir(), *ddir = temp_dir();
    write_hf(dir, c, NULL, NULL);
    write_hf(ddir, dc, NULL, centroids ? add_ordering : NULL);
    ek_model_opts o = exact();
    ek_model *m;
    ek_drafter *d;
    if (ek_model_open(&m, dir, &o)) fail_msg("%s", ek_err_text());
    if (ek_drafter_open(&d, ddir, m, &o)) fail_msg("%s", ek_err_text());
    ek_drafter_set_position(d, position);

    store *s = ek_alloc(sizeof *s), *ds = ek_alloc(sizeof *ds);
    s->c = c, ds->c = dc;
    int32_t *ids = ek_alloc(4 * (size_t)n), *ordering = ek_alloc(4 * (size_t)vocab), bonus, want_bonus;
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(hashed_bits("prompt", (uint64_t)i) % (uint64_t)vocab);
    for (int i = 0; i < vocab; i++) ordering[i] = (int32_t)order(i, vocab);
    int32_t out[DRAFT], want_out[DRAFT];
    float *z = ek_alloc(sizeof *z * DRAFT * (size_t)vocab);
    double *want = ek_alloc(sizeof *want * DRAFT * (size_t)vocab), worst = 0, largest = 0;
    oracle_drafter od = {dc, values, ds, centroids ? ordering : NULL, position == EK_ROPE_N ? 0 : 1};
    oracle_draft(c, values, s, &od, ids, n, DRAFT, &want_bonus, want_out, want);
    draft(m, d, ids, n, &bonus, out, z);
    assert_int_equal(bonus, want_bonus);
    assert_memory_equal(out, want_out, sizeof out);
    for (int i = 0; i < DRAFT * vocab; i++) {
        worst = fmax(worst, fabs(want[i] - (double)z[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    print_message("%s, %s, %d tokens: largest difference %.2g, largest logit %.3g\n", name,
                  centroids ? "ordered" : "dense", n, worst, largest);
    assert_true(largest > 0.5);
    assert_true(worst <= 1e-4);
    ek_drafter_close(d);
    ek_model_close(m);
    remove_dir(dir), remove_dir(ddir);
    drop(s), drop(ds);
    free(ids), free(ordering), free(z), free(want), free(c), free(dc);
}

static void drafts_match(void **state)
{
    (void)state;
    check("T1", CENTROIDS, 37, EK_ROPE_N);
    check("T1", CENTROIDS, 5, EK_ROPE_N_MINUS_1);
    check("T1", 0, 37, EK_ROPE_N_MINUS_1);
    check("T2", 0, 37, EK_ROPE_N);
    check("T5", 0, 37, EK_ROPE_N);
    check("T6", CENTROIDS + 1, 80, EK_ROPE_N_MINUS_1);
}

/* Rows of one step do not see each other: a draft alone and beside others. */
static void drafts_of_several_are_those_of_each(void **state)
{
    (void)state;
    enum { N = 3, LEN = 30 };
    ek_config *c = ek_alloc(sizeof *c), *dc = ek_alloc(sizeof *dc);
    assert_int_equal(ek_config_tiny(c, "T1"), EK_OK);
    drafter_config(dc, c, CENTROIDS);
    ek_model_opts o = exact();
    ek_model *m;
    ek_drafter *d;
    assert_int_equal(ek_model_synthetic(&m, c, 0, 3, &o), EK_OK);
    assert_int_equal(ek_drafter_synthetic(&d, dc, 4, m, &o), EK_OK);
    assert_int_equal(ek_drafter_reserve(d, N, LEN + 1), EK_OK);
    test_seq q[N];
    float *state_of = ek_alloc(sizeof(float) * N * 2 * (size_t)c->hidden_size);
    ek_drafter_row together[N], alone[N];
    for (int i = 0; i < N; i++) {
        int32_t ids[LEN];
        float *z = ek_alloc(sizeof *z * (size_t)c->vocab_size);
        ek_row row[LEN];
        ek_scratch *s;
        int n = LEN - 9 * i;
        q[i] = seq_open(m, LEN);
        for (int k = 0; k < n; k++) ids[k] = (k * 7 + i) % c->vocab_size;
        for (int k = 0; k < n; k++) row[k] = ek_text_row(ids[k], k, 0, k == n - 1, c->sliding_window);
        assert_int_equal(ek_scratch_open(&s, m, LEN, 1, LEN), EK_OK);
        assert_int_equal(ek_model_forward(m, s, &q[i].kv, row, n, &q[i].seq, 1, z, c->vocab_size), EK_OK);
        float *at = state_of + 2 * i * c->hidden_size;
        for (int k = 0; k < 2; k++)
            memcpy(at + k * c->hidden_size, ek_scratch_hidden(s, 0), sizeof(float) * (size_t)c->hidden_size);
        together[i] = (ek_drafter_row){.seq = &q[i].seq, .n = n, .token = i + 1, .state = at};
        alone[i] = together[i];
        alone[i].state = at + c->hidden_size;
        ek_scratch_close(s);
        free(z);
    }
    /* each sequence in every row of a step, and by itself in a step of one row */
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < N; i++) {
            ek_drafter_row same[N];
            for (int k = 0; k < N; k++) same[k] = together[i], same[k].state = ek_alloc(4 * (size_t)c->hidden_size);
            for (int k = 0; k < N; k++)
                memcpy(same[k].state, together[i].state, sizeof(float) * (size_t)c->hidden_size);
            assert_int_equal(ek_drafter_step(d, &q[i].kv, same, N, NULL, 0), EK_OK);
            assert_int_equal(ek_drafter_step(d, &q[i].kv, &alone[i], 1, NULL, 0), EK_OK);
            for (int k = 0; k < N; k++) {
                assert_int_equal(same[k].token, alone[i].token);
                assert_memory_equal(same[k].state, alone[i].state, sizeof(float) * (size_t)c->hidden_size);
            }
            together[i].token = alone[i].token;
            memcpy(together[i].state, alone[i].state, sizeof(float) * (size_t)c->hidden_size);
            for (int k = 0; k < N; k++) free(same[k].state);
        }
    ek_drafter_row bad = {.seq = &q[0].seq, .n = 0, .token = 1, .state = state_of};
    assert_int_equal(ek_drafter_step(d, &q[0].kv, &bad, 1, NULL, 0), EK_EINVAL);
    bad.n = 1, bad.token = c->vocab_size;
    assert_int_equal(ek_drafter_step(d, &q[0].kv, &bad, 1, NULL, 0), EK_EINVAL);
    for (int i = 0; i < N; i++) seq_close(&q[i]);
    free(state_of), free(c), free(dc);
    ek_drafter_close(d);
    ek_model_close(m);
}

static void wrong_order(st_file *f)
{
    int64_t *id = ek_alloc(sizeof *id * (size_t)the_vocab), dim = the_vocab;
    for (int i = 0; i < the_vocab; i++) id[i] = i / 2;
    st_add(f, "masked_embedding.token_ordering", "I64", 1, &dim, id, sizeof *id * (size_t)the_vocab);
    free(id);
}

/* Every refusal is one line with the numbers. */
static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    ek_config *c = ek_alloc(sizeof *c), *other = ek_alloc(sizeof *other), *dc = ek_alloc(sizeof *dc);
    assert_int_equal(ek_config_tiny(c, "T1"), EK_OK);
    assert_int_equal(ek_config_tiny(other, "T4"), EK_OK);
    drafter_config(dc, c, CENTROIDS);
    the_vocab = c->vocab_size;
    char *dir = temp_dir(), *ddir = temp_dir(), *bad = temp_dir();
    write_hf(dir, c, NULL, NULL);
    write_hf(ddir, dc, NULL, add_ordering);
    write_hf(bad, dc, NULL, wrong_order);
    ek_model_opts o = exact();
    ek_model *m, *m4, *none = NULL;
    ek_drafter *d = NULL;
    assert_int_equal(ek_model_open(&m, dir, &o), EK_OK);
    assert_int_equal(ek_model_synthetic(&m4, other, 0, 1, &o), EK_OK);
    assert_int_equal(ek_model_open(&none, ddir, &o), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "is a drafter: it takes --drafter"));
    assert_int_equal(ek_drafter_open(&d, dir, m, &o), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "is no drafter: its model_type is gemma4_text"));
    assert_int_equal(ek_drafter_open(&d, ddir, m4, &o), EK_EFORMAT);
    assert_non_null(strstr(ek_err_text(), "hidden_size 64 and 99 tokens; this one has hidden_size 90 and 103"));
    assert_int_equal(ek_drafter_open(&d, bad, m, &o), EK_EFORMAT);
    assert_non_null(strstr(ek_err_text(), "token_ordering has 0 at 1: a second time"));
    dc->layer[3].head_dim = 16;
    assert_int_equal(ek_drafter_synthetic(&d, dc, 1, m, &o), EK_EFORMAT);
    assert_non_null(
        strstr(ek_err_text(), "the drafter's layer 3 reads 1 key-value heads of 16, the model has 1 of 32"));
    ek_model_close(m);
    ek_model_close(m4);
    remove_dir(dir), remove_dir(ddir), remove_dir(bad);
    free(c), free(other), free(dc);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_match),
        cmocka_unit_test(drafts_of_several_are_those_of_each),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
