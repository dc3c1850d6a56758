/* What the tests of attention share: a sequence with known keys and values in pages full of
 * garbage, one run on an instruction set and a pool, and two references: softmax in float64, and
 * the contract of ops/attn/attn.h written once more as plainly as it reads. */
#ifndef EK_TESTS_OPS_ATTN_SCENE_H
#define EK_TESTS_OPS_ATTN_SCENE_H

#include <stdbool.h>

#include "check.h"
#include "ops/attn/attn.h"

/* A shape, and the window of its rows in tests that take the row at a position. */
typedef struct attn_case {
    ek_attn_shape shape;
    int window; /* 0: to the beginning */
} attn_case;

enum { N_CASES = 53 };
extern const attn_case cases[N_CASES];
const char *case_text(const attn_case *c);
bool whole_codes(ek_kv_format f); /* of attention in integers */
/* R x of ops/attn/attn_int.h, and the codes of R x, whose scale is returned. */
void rotate(float *x, int dim);
float rotated_codes(const float *x, int dim, int max, int *code);
int format_group(ek_kv_format f); /* in a format's name, 32 without one */

/* The row at pos: visible are pos and the positions before it, within the window. */
ek_attn_row row_at(const attn_case *c, int view, int pos);

/* One sequence with keys and values at [0, n_keys), its pages full of garbage elsewhere. */
typedef struct scene {
    ek_attn_shape shape;
    int n_keys, n_pages;
    size_t pool_bytes[2];
    uint8_t *pool[2]; /* pages behind the first n_start positions, and theirs */
    int32_t *page;
    float *k, *v; /* [n_keys][n_kv_heads][head_dim], what the pages hold, decoded */
    ek_kv_view view;
    ek_attn *plan; /* scalar */
} scene;

/* garbage: what unwritten slots hold: 0 zeros, 1 NaN, 2 Inf and huge values, 3 random bytes */
void scene_open(scene *s, const ek_attn_shape *shape, int n_keys, int garbage, uint64_t seed);
void scene_close(scene *s);

/* Writes k and v (one token of all heads) at pos and keeps the values that the format stores. */
void scene_store(scene *s, int pos, const float *k, const float *v);

/* Scores of hundreds: most weights fall below 2^-125 of the largest, in a segment and between
 * segments; values near the ends of float32's range. */
void scene_make_steep(scene *s, float *q, size_t n_q);

size_t q_width(const ek_attn_shape *s);
float *queries(const ek_attn_shape *shape, int n_rows, uint64_t seed);

/* One run with a plan, which stays the caller's. */
float *attend_plan(const ek_attn *a, ek_pool *pool, const ek_attn_shape *shape, const ek_kv_view *views,
                   const ek_attn_row *rows, int n_rows, const float *q);
/* One run on the given ISA and pool into fresh memory; the caller frees the result. */
float *attend(unsigned cpu, ek_pool *pool, const ek_attn_shape *shape, const ek_kv_view *views, const ek_attn_row *rows,
              int n_rows, const float *q);

void reference(const scene *s, const ek_attn_row *row, const float *q, int head, double *o, double *tol);
void contract(const scene *s, const ek_attn_row *row, const float *q, int head, float *out);

#endif
