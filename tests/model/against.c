#include "against.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/checkpoint.h"
#include "../support/pages.h"
#include "base/alloc.h"
#include "oracle.h"

enum { MAX_TENSORS = 512 };

/* Tensors as float64, by name. */
typedef struct store {
    struct {
        char name[160];
        double *value;
    } one[MAX_TENSORS];
    int n;
} store;

static void save(void *arg, const char *name, const float *w, size_t n)
{
    store *s = arg;
    assert_true(s->n < MAX_TENSORS);
    double *v = ek_alloc(sizeof *v * n);
    for (size_t i = 0; i < n; i++) v[i] = (double)w[i];
    snprintf(s->one[s->n].name, sizeof s->one[s->n].name, "%s", name);
    s->one[s->n++].value = v;
}

static void save_hashed(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    size_t n = 1;
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    float *w = ek_alloc(sizeof *w * n);
    for (size_t i = 0; i < n; i++) w[i] = hashed_weight(name, i);
    save(arg, name, w, n);
    free(w);
}

static const double *find_values(void *arg, const char *name)
{
    store *s = arg;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->one[i].name, name) == 0) return s->one[i].value;
    fail_msg("the oracle asked for %s", name);
    return NULL;
}

static void compare(against *a, const double *want, const float *got, size_t rows, size_t vocab)
{
    for (size_t i = 0; i < rows * vocab; i++) {
        double d = fabs(want[i] - (double)got[i]);
        if (!(d <= a->worst)) a->worst = isnan(d) ? INFINITY : d;
        a->largest = fmax(a->largest, fabs(want[i]));
    }
    for (size_t r = 0; r < rows; r++) divergence_add(&a->kl, want + r * vocab, got + r * vocab, vocab);
}

against against_oracle(const ek_config *c, const mlx_opts *mlx, const ek_model_opts *opts, int n_tokens)
{
    char *dir = temp_dir(), *widened = temp_dir();
    size_t n = (size_t)n_tokens, vocab = (size_t)c->vocab_size;
    float *got = ek_alloc(sizeof *got * n * vocab);
    double *want = ek_alloc(sizeof *want * n * vocab);
    int32_t *ids = ek_alloc(sizeof *ids * n);
    store *s = ek_alloc(sizeof *s);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(hashed_bits("prompt", i) % vocab);

    if (mlx) {
        write_mlx_values(dir, widened, c, mlx, save, s);
    } else {
        write_hf(dir, c, NULL, NULL);
        each_tensor(c, save_hashed, s);
    }
    ek_model *m;
    if (ek_model_open(&m, dir, opts)) fail_msg("%s", ek_err_text());
    assert_int_equal(run_tokens(m, ids, n_tokens, NULL, got), EK_OK);
    ek_model_close(m);
    oracle_forward(c, find_values, s, ids, n_tokens, want);

    against a = {0};
    compare(&a, want, got, n, vocab);
    for (int i = 0; i < s->n; i++) free(s->one[i].value);
    free(s), free(want), free(got), free(ids);
    remove_dir(dir), remove_dir(widened);
    return a;
}
