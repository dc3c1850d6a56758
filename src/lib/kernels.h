/* The kernels that the library calls, one table per operator, and one set of tables per set of CPU flags. */
#ifndef EK_LIB_KERNELS_H
#define EK_LIB_KERNELS_H

#include <evenkeel_ops.h>

#include "ops/attn/attn_rows.h"
#include "ops/convert.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_b.h"
#include "ops/linear/decoded.h"
#include "ops/rows/rows.h"

_Static_assert((int)EK_TYPE_F32 == (int)EK_F32 && (int)EK_TYPE_F16 == (int)EK_F16 && (int)EK_TYPE_BF16 == (int)EK_BF16,
               "the public types and the engine's count floats alike");

static inline ek_dtype lib_dtype(ek_type t) /* of a float type */
{
    return (ek_dtype)t;
}

static inline float lib_float_at(const uint8_t *from, ek_type t)
{
    return ek_load_float(from, lib_dtype(t));
}

typedef struct lib_kernels {
    ek_convert_ops convert;
    ek_decoded_ops product;
    ek_linear_ops linear;
    ek_linear_b_ops linear_b;
    ek_row_ops rows;
    ek_attn_rows_ops attn;
} lib_kernels;

/* Returns the kernel tables for the CPU flags cpu (EK_CPU_*): those of this machine or a subset. The tables are
 * filled once and never written again, so every core may keep a copy in its cache. The library owns them. */
const lib_kernels *lib_kernels_of(unsigned cpu);

#endif
