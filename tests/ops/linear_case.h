/* A packed matrix with its source, and its product in float64 from the source alone. */
#ifndef EK_TESTS_OPS_LINEAR_CASE_H
#define EK_TESTS_OPS_LINEAR_CASE_H

#include "ops/linear/linear.h"

typedef struct linear_shape {
    ek_wform form; /* F32, F16, BF16: a float matrix; Q4, Q8: by bits */
    int n, k, bits, group;
    ek_dtype scale_dtype; /* of the source */
    bool biased;
    int limbs; /* Q: 0 means 1 */
} linear_shape;

typedef struct linear_case {
    linear_shape shape;
    char name[80];
    ek_linear w;         /* planned for the scalar ISA */
    ek_weight_data data; /* of the arrays below */
    uint8_t *codes;      /* Q: as MLX packs them; F: the elements */
    uint8_t *scales, *biases;
    size_t code_bytes, scale_bytes;
} linear_case;

void linear_case_open(linear_case *c, const linear_shape *shape, uint64_t seed);
void linear_case_close(linear_case *c);

/* Code, scale, bias and value of weight (n, k), read from the source bit by bit. */
int linear_case_code(const linear_case *c, int n, int k);
double linear_case_scale(const linear_case *c, int n, int k);
double linear_case_bias(const linear_case *c, int n, int k);
double linear_case_weight(const linear_case *c, int n, int k);

/* want[r][n] and what float32 rounding may cost of it. Q: the product with the quantised rows
 * of a, so that only the arithmetic is judged. */
void linear_case_reference(const linear_case *c, const ek_acts *a, double *want, double *tol);

/* rows x k floats in guarded memory, quantised by the ops if the case needs it. */
typedef struct linear_input {
    float *x;
    void *mem;
    ek_acts a;
} linear_input;
void linear_input_open(linear_input *in, const linear_case *c, unsigned cpu, int rows, uint64_t seed);
void linear_input_close(linear_input *in);

#endif
