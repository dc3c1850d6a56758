/* Conversion between F32, F16 or BF16 and float: single elements and rows.
 *
 * Widening is exact. Narrowing rounds to nearest even; a NaN stays a NaN (which one is not defined for F16).
 * Addresses need no alignment; other element types must not be passed. */
#ifndef EK_OPS_CONVERT_H
#define EK_OPS_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

static inline float ek_load_float(const void *from, ek_dtype t)
{
    uint32_t u;
    uint16_t h;
    if (t == EK_F32) {
        memcpy(&u, from, sizeof u);
        return ek_bits_f32(u);
    }
    memcpy(&h, from, sizeof h);
    return t == EK_BF16 ? ek_bf16_f32(h) : ek_f16_f32(h);
}

static inline void ek_store_float(void *to, ek_dtype t, float x)
{
    if (t == EK_F32) {
        memcpy(to, &x, sizeof x);
        return;
    }
    uint16_t h = t == EK_BF16 ? ek_f32_bf16(x) : ek_f32_f16(x);
    memcpy(to, &h, sizeof h);
}

/* Narrows a row to BF16 by a plain loop: kernels inline it, and the compiler vectorises it. */
static inline void ek_narrow_bf16(void *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) ek_store_float((uint8_t *)to + 2 * i, EK_BF16, from[i]);
}

typedef struct ek_convert_ops {
    void (*widen)(float *to, const void *from, ek_dtype t, int64_t n);
    void (*narrow)(void *to, ek_dtype t, const float *from, int64_t n);
} ek_convert_ops;

/* The scalar definition, then the kernels that cpu (EK_CPU_* bits) allows. */
void ek_convert_init(ek_convert_ops *ops, unsigned cpu);
/* x86-64: each overwrites the slots. */
void ek_convert_table_avx2(ek_convert_ops *ops);
void ek_convert_table_avx512(ek_convert_ops *ops);

#endif
