/* Float weights that become 8-bit integers while they are packed (--weights 8): a third to a half of the memory and of
 * the bytes read per token, and products by integers, for a loss that is measured (docs/NUMERICS.md 10).
 *
 * Per group of 64 weights, or 32 where 64 does not divide k, in this order, binary32:
 *     a = max |w|;  a < 2^-100: s = 0, every code 0;  otherwise  s = a / 127,  r = 127 / a
 *     code = w * r rounded to nearest even, in [-127, 127];  value = s * code
 * A pure function of the group's weights. In a row that holds a NaN or an infinity the group's scale is not finite, and
 * so are the logits, which are refused. */
#ifndef EK_OPS_QUANTISED_TYPE_H
#define EK_OPS_QUANTISED_TYPE_H

#include "ops/weights/weight_type.h"

/* The type for rows of k elements of a float type, which stay stored as they are: "bf16@q8.64". NULL where 32 does not
 * divide k, or floats is no float type. */
const ek_weight_type *ek_weight_type_quantised(const ek_weight_type *floats, int k);

#endif
