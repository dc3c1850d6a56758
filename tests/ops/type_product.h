/* The product of a packed matrix of any weight type, on every instruction set. */
#ifndef EK_TESTS_OPS_TYPE_PRODUCT_H
#define EK_TESTS_OPS_TYPE_PRODUCT_H

#include "ops/linear/linear.h"

/* Packs data as type `as`, its own or F32. The rows read back are values[n][k]; the product of three rows is the same
 * bits on every instruction set and near that of float64. */
void check_type_product(const ek_weight_data *data, const float *values, const ek_weight_type *as);

#endif
