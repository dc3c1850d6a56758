/* What the tests of the library share: inputs from a key, buffers with their views, and a
 * float64 reference of its own (nothing of src/ computes in it). */
#ifndef EK_TESTS_LIB_REF_H
#define EK_TESTS_LIB_REF_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <evenkeel_ops.h>

/* The whole grid instead of the thinned one: a program started with the argument "all". */
extern bool ref_all;
int ref_main(int argc, char **argv); /* sets it; returns 0 */

/* A test program that can repeat one failure:
 *     static const struct CMUnitTest tests[] = {REF_TEST(sinks), REF_TEST(masks)};
 *     return REF_RUN(argc, argv, tests);
 * PROGRAM [TEST] [all] runs the one, thinned or whole: the command that a failing check prints. */
#define REF_TEST(test)                               \
    {                                                \
#test, test, ref_starts, NULL, (void *)#test \
    }
#define REF_RUN(argc, argv, tests) ref_run(argc, argv, tests, sizeof(tests) / sizeof *(tests))
int ref_starts(void **state);
int ref_run(int argc, char **argv, const struct CMUnitTest *tests, size_t n);

double ref_uniform(uint64_t key, uint64_t i); /* [0, 1) */
double ref_normal(uint64_t key, uint64_t i);

/* A dense tensor in memory of its own, 1 to 8 dims. Freed by ref_free_all, which every test calls. */
ek_view ref_new(ek_type t, int n_dims, ...); /* dims are int; zeros */
ek_view ref_normals(ek_type t, uint64_t key, double scale, int n_dims, ...);
ek_view ref_uniforms(ek_type t, uint64_t key, double low, double high, int n_dims, ...);
ek_view ref_like(const ek_view *v, ek_type t); /* dense, the same dims */
ek_view ref_dense(const ek_view *v);           /* a dense copy */
void *ref_take(size_t n);
void ref_free_all(void);

int64_t ref_count(const ek_view *v);
double ref_get(const ek_view *v, int64_t i);         /* the i-th element, row-major, as a double */
void ref_set(const ek_view *v, int64_t i, double x); /* rounded to nearest even */
double ref_at(const ek_view *v, const int64_t *index);
int64_t ref_place(const ek_view *v, int64_t i); /* element offset of the i-th element */

/* A quantised tensor over fresh memory for [dims..., R, C]. */
ek_qview ref_qnew(ek_quant_mode mode, int bits, int group, ek_type scales, const ek_view *shape);
ek_qview ref_quantised(ek_quant_mode mode, int bits, int group, const ek_view *x); /* by ek_quantize */
/* The value of element i (row-major) of the tensor, by the text of the format. */
double ref_qvalue(const ek_qview *q, int64_t i);
ek_view ref_qvalues(const ek_qview *q); /* f32 [.., R, C]; exact values rounded to f32 once */

/* Y[m][n] = sum X W in float64 over 2-D or batched views (numpy's broadcasting). */
double *ref_matmul(const ek_view *x, const ek_view *w, bool transpose, const ek_view *y);

#define MUST(expr)                                                                                   \
    do {                                                                                             \
        ek_status must_ = (expr);                                                                    \
        if (must_ != EK_DONE) fail_msg("%s: %s: %s", #expr, ek_status_name(must_), ek_last_error()); \
    } while (0)

/* The checks below fail the running test and print the case (the format), where it differs first, both values and
 * the command that repeats it. */

/* Prints the command that repeats the running test, and fails it: for checks of a test of its own. */
void ref_again(void);

/* The largest |y - want|; want row-major. */
double ref_max_off(const ek_view *y, const double *want);
__attribute__((format(printf, 4, 5))) void ref_near(const ek_view *y, const double *want, double tol, const char *shape,
                                                    ...);
/* |y - want| <= atol + rtol |want| */
__attribute__((format(printf, 5, 6))) void ref_close(const ek_view *y, const double *want, double rtol, double atol,
                                                     const char *shape, ...);
/* Same shape, same bits. */
__attribute__((format(printf, 3, 4))) void ref_same(const ek_view *want, const ek_view *got, const char *shape, ...);

#endif
